/* diff.c: two files, group by group.
 *
 *     largest   max over tensors of  max|a-b| / max(|a|, |b|)      both maxima over the tensor
 *     l2        ||a-b|| / ||b||                                    over the group
 *     different elements whose bits differ: 0 and -0 do, equal NaNs do not
 *
 * and the first element, in the order of file A, whose bits differ.
 *
 * A NaN or infinity that differs makes both measures infinite: it must not hide. So does what a number
 * format keeps beside weights and moments (fp8/amax) and only one of the files has.
 *
 * Owns two buffers while it works. Reads two files; next: cli/checkpoint.c. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tutti/base/memory.h"
#include "tutti/base/narrow.h"

#include "ckpt/ckpt_impl.h"

typedef struct side {
    const char *path;
    tt_h5 *file;
    tt_catalog catalog;
    float *buffer; /* [TT_CKPT_CHUNK], owned */
} side;

/* Sums over one tensor, or one scalar. */
typedef struct measure {
    double gap, size;   /* max|a-b|, max(|a|, |b|) */
    double gap2, base2; /* sums of squares of a-b and of b */
    int64_t different;
    tt_first_diff *first; /* of all tensors, borrowed */
} measure;

/* Sums of squares per group, beside the public results. */
typedef struct norms {
    double gap2, base2;
} norms;

static tt_code open_side(side *s, tt_err *err)
{
    tt_code rc = TT_OK;
    TT_TRY(tt_h5_open(s->path, s->path, &s->file, err));
    TT_TRY(tt_check_format(s->file, err));
    TT_TRY(tt_catalog_read(&s->catalog, s->file, err));
    s->buffer = tt_alloc(TT_CKPT_CHUNK, sizeof *s->buffer, err);
    rc = s->buffer == NULL ? err->code : TT_OK;
out:
    return rc;
}

static void close_side(side *s)
{
    tt_err closing;
    free(s->buffer);
    tt_catalog_free(&s->catalog);
    tt_h5_close(&s->file, &closing); /* opened for reading: nothing is lost */
}

static void add_element(measure *m, double a, double b, bool same)
{
    double gap = same ? 0 : fabs(a - b);
    gap = isnan(gap) || (!same && isinf(gap)) ? (double)INFINITY : gap;
    m->different += !same;
    m->gap = fmax(m->gap, gap);
    m->gap2 += gap * gap;
    if (isfinite(a) && isfinite(b)) {
        m->size = fmax(m->size, fmax(fabs(a), fabs(b)));
        m->base2 += b * b;
    }
}

/* Notes where the files part, once. */
static void note_first(tt_first_diff *first, const tt_entry *entry, int64_t index)
{
    snprintf(first->path, sizeof first->path, "%s", entry->path);
    first->dims = tt_entry_is_tensor(entry) ? entry->dims : 0;
    first->at[0] = entry->dims > 1 ? index / entry->dim[1] : index;
    first->at[1] = entry->dims > 1 ? index % entry->dim[1] : 0;
}

/* Numbers that read alike (NaNs) are told apart by their bits. */
static void note_floats(tt_first_diff *first, const float *value[2])
{
    for (int i = 0; i < 2; i++) {
        snprintf(first->value[i], sizeof first->value[i], "%.9g", (double)*value[i]);
    }
    for (int i = 0; i < 2 && isnan(*value[0]) && isnan(*value[1]); i++) {
        uint32_t bits;
        memcpy(&bits, value[i], sizeof bits);
        snprintf(first->value[i], sizeof first->value[i], "nan (bits %08" PRIx32 ")", bits);
    }
}

static double ratio(double gap, double base)
{
    return gap == 0 ? 0 : base == 0 ? (double)INFINITY : gap / base;
}

static tt_code measure_tensor(side *a, side *b, const tt_entry *entry, measure *m, tt_err *err)
{
    tt_code rc = TT_OK;
    for (int64_t at = 0; at < entry->count; at += TT_CKPT_CHUNK) {
        int64_t count = tt_min(entry->count - at, TT_CKPT_CHUNK);
        TT_TRY(tt_h5_read(a->file, entry->path, at, count, a->buffer, err));
        TT_TRY(tt_h5_read(b->file, entry->path, at, count, b->buffer, err));
        for (int64_t i = 0; i < count; i++) {
            const float *x = a->buffer + i, *y = b->buffer + i;
            const bool same = memcmp(x, y, sizeof *x) == 0;
            if (!same && m->first->path[0] == '\0') {
                note_first(m->first, entry, at + i);
                note_floats(m->first, (const float *[]){x, y});
            }
            add_element(m, (double)*x, (double)*y, same);
        }
    }
out:
    return rc;
}

static tt_code measure_scalar(side *a, side *b, const tt_entry *entry, measure *m, tt_err *err)
{
    tt_code rc = TT_OK;
    char shown[2][48] = {"", ""};
    if (entry->kind == TT_H5_F64) {
        double x = 0, y = 0;
        TT_TRY(tt_h5_get(a->file, entry->path, entry->kind, &x, err));
        TT_TRY(tt_h5_get(b->file, entry->path, entry->kind, &y, err));
        add_element(m, x, y, memcmp(&x, &y, sizeof x) == 0);
        snprintf(shown[0], sizeof shown[0], "%.17g", x);
        snprintf(shown[1], sizeof shown[1], "%.17g", y);
    } else {
        int64_t x = 0, y = 0;
        TT_TRY(tt_h5_get(a->file, entry->path, entry->kind, &x, err));
        TT_TRY(tt_h5_get(b->file, entry->path, entry->kind, &y, err));
        add_element(m, (double)x, (double)y, x == y);
        snprintf(shown[0], sizeof shown[0], "%" PRId64, x);
        snprintf(shown[1], sizeof shown[1], "%" PRId64, y);
    }
    if (m->different > 0 && m->first->path[0] == '\0') {
        note_first(m->first, entry, 0);
        memcpy(m->first->value, shown, sizeof shown);
    }
out:
    return rc;
}

/* Tensors and scalars are compared; texts say how a run was laid out, not what it learned, and digests
 * of groups follow from their tensors. */
static bool compared(const tt_entry *entry)
{
    return entry->kind != TT_H5_TEXT && entry->kind != TT_H5_OTHER &&
           !tt_is_group_digest(entry->path);
}

/* Weights, gradients and moments must be in both files. What else there is depends on the number format
 * of a run. */
static bool in_both(const tt_entry *entry)
{
    static const char *const groups[] = {"params", "grads", "adam_m", "adam_v"};
    const size_t length = tt_group_length(entry->path);
    for (size_t i = 0; i < sizeof groups / sizeof groups[0]; i++) {
        if (strlen(groups[i]) == length && memcmp(groups[i], entry->path, length) == 0) {
            return true;
        }
    }
    return false;
}

/* An entry that only one of the files has, the first of them or the second. */
static void measure_lone(const tt_entry *entry, int owner, measure *m)
{
    m->different = tt_entry_is_tensor(entry) ? entry->count : 1;
    m->gap = m->gap2 = (double)INFINITY;
    if (m->first->path[0] == '\0') {
        note_first(m->first, entry, 0);
        m->first->dims = 0;
        snprintf(m->first->value[owner], sizeof m->first->value[owner], "there");
        snprintf(m->first->value[1 - owner], sizeof m->first->value[0], "missing");
    }
}

/* Everything compared in `a` must be in `b` with the same type and shape. */
static tt_code match(const side *a, const side *b, tt_err *err)
{
    int hint = 0;
    for (int i = 0; i < a->catalog.count; i++) {
        const tt_entry *x = &a->catalog.entry[i];
        char in_a[TT_SHAPE_ROOM], in_b[TT_SHAPE_ROOM];
        if (!compared(x)) {
            continue;
        }
        int at = tt_catalog_find(&b->catalog, x->path, &hint);
        if (at < 0 && !in_both(x)) {
            continue;
        }
        if (at < 0) {
            return tt_fail(err, TT_EUSER, "files do not compare: %s is in %s and not in %s",
                           x->path, a->path, b->path);
        }
        const tt_entry *y = &b->catalog.entry[at];
        if (x->dims != y->dims || x->dim[0] != y->dim[0] ||
            (x->dims > 1 && x->dim[1] != y->dim[1])) {
            tt_shape_text(x->dims, x->dim, in_a);
            tt_shape_text(y->dims, y->dim, in_b);
            return tt_fail(err, TT_EUSER, "files do not compare: %s is %s in %s, %s in %s", x->path,
                           in_a, a->path, in_b, b->path);
        }
        if (x->kind != y->kind) {
            return tt_fail(err, TT_EUSER,
                           "files do not compare: %s has another type in %s than in "
                           "%s",
                           x->path, a->path, b->path);
        }
    }
    return TT_OK;
}

/* Index of the group that `path` belongs to, made when it is new; `room` when there is no room. */
static int find_group(const char *path, tt_group_diff *group, int room, int *groups)
{
    size_t length = tt_group_length(path);
    length = length < sizeof group->group ? length : sizeof group->group - 1;
    int i = 0;
    while (i < *groups &&
           (strncmp(group[i].group, path, length) != 0 || group[i].group[length] != '\0')) {
        i++;
    }
    if (i == *groups && i < room) {
        group[i] = (tt_group_diff){.largest = 0};
        memcpy(group[i].group, path, length);
        (*groups)++;
    }
    return i;
}

static void add_to_group(tt_group_diff *group, norms *norm, const char *path, const measure *m)
{
    double relative = ratio(m->gap, m->size);
    group->different += m->different;
    if (relative > group->largest || (m->different > 0 && group->tensor[0] == '\0')) {
        const char *name = path + tt_group_length(path);
        group->largest = relative;
        snprintf(group->tensor, sizeof group->tensor, "%s", name[0] == '/' ? name + 1 : name);
    }
    norm->gap2 += m->gap2;
    norm->base2 += m->base2;
}

tt_code tt_ckpt_diff(const char *a, const char *b, bool *identical, tt_group_diff *group, int room,
                     int *groups, tt_first_diff *first, tt_err *err)
{
    side one = {.path = a}, two = {.path = b};
    norms *norm = NULL;
    tt_code rc = TT_OK;
    *identical = true;
    *groups = 0;
    *first = (tt_first_diff){.dims = 0};
    TT_TRY(open_side(&one, err));
    TT_TRY(open_side(&two, err));
    TT_TRY(match(&one, &two, err));
    TT_TRY(match(&two, &one, err));
    norm = tt_alloc(room, sizeof *norm, err);
    if (norm == NULL) {
        rc = err->code;
        goto out;
    }
    for (int owner = 0; owner < 2; owner++) {
        const tt_catalog *mine = owner == 0 ? &one.catalog : &two.catalog;
        const tt_catalog *other = owner == 0 ? &two.catalog : &one.catalog;
        int hint = 0;
        for (int i = 0; i < mine->count; i++) {
            const tt_entry *entry = &mine->entry[i];
            measure m = {.first = first};
            const bool lone = tt_catalog_find(other, entry->path, &hint) < 0;
            if (!compared(entry) || (owner == 1 && !lone)) {
                continue; /* what both have has been measured */
            }
            if (lone) {
                measure_lone(entry, owner, &m);
            } else {
                TT_TRY(tt_entry_is_tensor(entry) ? measure_tensor(&one, &two, entry, &m, err)
                                                 : measure_scalar(&one, &two, entry, &m, err));
            }
            *identical = *identical && m.different == 0;
            int at = find_group(entry->path, group, room, groups);
            if (at < room) {
                add_to_group(&group[at], &norm[at], entry->path, &m);
            }
        }
    }
    for (int i = 0; i < *groups; i++) {
        group[i].l2 = ratio(sqrt(norm[i].gap2), sqrt(norm[i].base2));
    }
out:
    free(norm);
    close_side(&one);
    close_side(&two);
    return rc;
}
