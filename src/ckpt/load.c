/* load.c: from a file of whole tensors to the pieces that this rank wants.
 *
 * First the file is proved to be the one that is meant: our format, every tensor with its shape, no
 * tensor more. Then every digest is checked, each rank reading a share. Only then are the caller's
 * pieces and scalars filled, so a file that is refused changes nothing.
 *
 * Each rank opens the file for itself and reads independently. Ranks that read a damaged file
 * together could part ways inside a collective call; so they only meet in agreements.
 *
 * A file for params_only may come from elsewhere (h5py): it needs neither our format nor digests,
 * and other float widths are converted. Digests that it has are checked.
 *
 * Owns nothing after it returns. Reads an HDF5 file, fills tt_state; next: scan.c. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tutti/base/file.h"
#include "tutti/base/memory.h"
#include "tutti/base/narrow.h"

#include "ckpt/ckpt_impl.h"

enum { SCALAR_ROOM = 256 };

/* One load under way. */
typedef struct load {
    tt_world *world;
    const tt_state *state;
    tt_h5 *file;
    const char *path;
    bool params_only;
    tt_catalog catalog;
    int *which;    /* [tensors] entry of each row, -1: not wanted */
    int *checked;  /* [entries] entries whose digests are recomputed, `checks` of them */
    uint64_t *sum; /* [entries] */
    float *buffer; /* of pieces with a form; NULL: there are none */
    int checks;
} load;

static const char params[] = "params/";

/* Is a row or an entry of this name read at all? */
static bool wanted(const load *l, const char *name)
{
    return !l->params_only || strncmp(name, params, sizeof params - 1) == 0;
}

static tt_code other_model(const load *l, const char *what, const char *name, const char *rest,
                           tt_err *err)
{
    return tt_fail(err, TT_EUSER, "checkpoint of another model: %s %s %s%s", l->path, what, name,
                   rest);
}

static tt_code match_row(load *l, int i, int *hint, tt_err *err)
{
    const tt_tensor_row *row = &l->state->tensor[i];
    char there[TT_SHAPE_ROOM], here[TT_SHAPE_ROOM];
    l->which[i] = -1;
    if (!wanted(l, row->name)) {
        return TT_OK;
    }
    int at = tt_catalog_find(&l->catalog, row->name, hint);
    if (at < 0) {
        return other_model(l, "lacks", row->name, "", err);
    }
    const tt_entry *entry = &l->catalog.entry[at];
    if (entry->dims != row->dims || entry->dim[0] != row->dim[0] ||
        (row->dims > 1 && entry->dim[1] != row->dim[1])) {
        tt_shape_text(entry->dims, entry->dim, there);
        tt_shape_text(row->dims, row->dim, here);
        return tt_fail(err, TT_EUSER, "checkpoint of another model: %s is %s in %s, %s here",
                       row->name, there, l->path, here);
    }
    if (entry->kind != TT_H5_F32 && !(l->params_only && entry->kind == TT_H5_FLOAT)) {
        return tt_fail(err, TT_EUSER, "%s in %s does not hold %s", row->name, l->path,
                       l->params_only ? "floating-point numbers" : "32-bit floats");
    }
    l->which[i] = at;
    return TT_OK;
}

/* A tensor of the file that no row asks for, in a group that rows come from, is another model's. */
static tt_code match_entry(const load *l, int at, int *hint, tt_err *err)
{
    const tt_entry *entry = &l->catalog.entry[at];
    bool ours = false;
    if (!wanted(l, entry->path) || !tt_entry_is_tensor(entry)) {
        return TT_OK;
    }
    for (int i = 0; i < l->state->tensors; i++) {
        int row = (*hint + i) % l->state->tensors;
        if (l->which[row] == at) {
            *hint = row + 1;
            return TT_OK;
        }
        ours = ours || tt_same_group(l->state->tensor[row].name, entry->path);
    }
    return ours ? other_model(l, "has", entry->path, ", which this model lacks", err) : TT_OK;
}

/* Scalars and texts are small: every rank checks them all. */
static tt_code check_small(const load *l, tt_err *err)
{
    for (int i = 0; i < l->catalog.count; i++) {
        const tt_entry *entry = &l->catalog.entry[i];
        uint64_t sum = 0;
        tt_beat(l->world, NULL);
        if (tt_entry_is_tensor(entry) || entry->kind == TT_H5_OTHER) {
            continue;
        }
        tt_code rc = tt_digest_small(l->file, entry, &sum, err);
        if (rc == TT_OK && sum != entry->digest) {
            rc = tt_fail(err, TT_EWORLD, "%s is damaged: %s does not match its digest", l->path,
                         entry->path);
        }
        if (rc == TT_OK && tt_is_group_digest(entry->path)) {
            rc = tt_check_group(&l->catalog, l->file, i, err);
        }
        if (rc != TT_OK) {
            return rc;
        }
    }
    return TT_OK;
}

static void scalar_path(const tt_scalar_row *row, char out[SCALAR_ROOM])
{
    snprintf(out, SCALAR_ROOM, "state/%s", row->name);
}

static tt_h5_kind scalar_kind(const tt_scalar_row *row)
{
    return row->i64 != NULL ? TT_H5_I64 : TT_H5_F64;
}

static tt_code match_scalar(const load *l, const tt_scalar_row *row, int *hint, tt_err *err)
{
    char name[SCALAR_ROOM];
    scalar_path(row, name);
    int at = tt_catalog_find(&l->catalog, name, hint);
    if (at < 0 && row->optional) {
        return TT_OK;
    }
    if (at < 0) {
        return tt_fail(err, TT_EWORLD, "%s is damaged: it lacks %s", l->path, name);
    }
    if (l->catalog.entry[at].kind != scalar_kind(row)) {
        return tt_fail(err, TT_EUSER, "checkpoint of another version: %s in %s is not %s", name,
                       l->path, row->i64 != NULL ? "a 64-bit integer" : "a double");
    }
    return TT_OK;
}

/* Opens the file and finds every row in it. Local. */
static tt_code examine(load *l, tt_err *err)
{
    tt_code rc = TT_OK;
    int hint = 0;
    TT_TRY(tt_piece_buffer(l->state, &l->buffer, err));
    TT_TRY(tt_h5_open(l->path, l->path, &l->file, err));
    if (!l->params_only) {
        TT_TRY(tt_check_format(l->file, err));
    } else if (!tt_h5_exists(l->file, "params")) {
        rc = tt_fail(err, TT_EUSER, "%s is not a checkpoint: it has no group /params", l->path);
        goto out;
    }
    TT_TRY(tt_catalog_read(&l->catalog, l->file, err));
    /* First of all: a file that has lost a tensor is damaged, not another model's. */
    TT_TRY(tt_check_lost(&l->catalog, l->params_only ? params : "", l->path, err));
    l->which = tt_alloc(l->state->tensors, sizeof *l->which, err);
    l->checked = tt_alloc(l->catalog.count, sizeof *l->checked, err);
    l->sum = tt_alloc(l->catalog.count, sizeof *l->sum, err);
    if (l->which == NULL || l->checked == NULL || l->sum == NULL) {
        rc = err->code;
        goto out;
    }
    for (int i = 0; i < l->state->tensors; i++) {
        TT_TRY(match_row(l, i, &hint, err));
        if (l->which[i] >= 0 && l->catalog.entry[l->which[i]].sealed) {
            l->checked[l->checks++] = l->which[i];
        }
    }
    hint = 0;
    for (int i = 0; i < l->catalog.count; i++) {
        TT_TRY(match_entry(l, i, &hint, err));
    }
    if (!l->params_only) {
        for (int i = 0; i < l->state->scalars; i++) {
            TT_TRY(match_scalar(l, &l->state->scalar[i], &hint, err));
        }
        TT_TRY(tt_check_sealed(&l->catalog, l->path, err));
        TT_TRY(check_small(l, err));
    }
out:
    return rc;
}

static tt_code check_sums(const load *l, tt_err *err)
{
    for (int k = 0; k < l->checks; k++) {
        const tt_entry *entry = &l->catalog.entry[l->checked[k]];
        if (l->sum[k] != entry->digest) {
            return tt_fail(err, TT_EWORLD, "%s is damaged: %s does not match its digest", l->path,
                           entry->path);
        }
    }
    return TT_OK;
}

static tt_code fill(const load *l, tt_err *err)
{
    char name[SCALAR_ROOM];
    tt_code rc = TT_OK;
    for (int i = 0; i < l->state->tensors; i++) {
        const tt_tensor_row *row = &l->state->tensor[i];
        for (int p = 0; p < row->pieces && l->which[i] >= 0; p++) {
            TT_TRY(tt_piece_read(l->world, l->file, row->name, &row->piece[p], l->buffer, err));
        }
    }
    for (int i = 0; i < l->state->scalars && !l->params_only; i++) {
        const tt_scalar_row *row = &l->state->scalar[i];
        void *value = row->i64 != NULL ? (void *)row->i64 : row->f64;
        scalar_path(row, name);
        if (!row->optional || tt_h5_exists(l->file, name)) {
            TT_TRY(tt_h5_get(l->file, name, scalar_kind(row), value, err));
        }
    }
out:
    return rc;
}

static void still_waiting(void *world)
{
    tt_beat(world, NULL);
}

tt_code tt_ckpt_await(tt_world *world, const char *path, tt_err *err)
{
    const int rank = world != NULL ? world->rank : 0;
    uint64_t there = rank == 0 && tt_file_exists(path);
    tt_code rc = tt_sum_u64(world, &there, 1, err);
    if (rc == TT_OK && there != 0 && rank != 0 && !tt_file_exists(path)) {
        const int fd = tt_open_late(path, O_RDONLY | O_NONBLOCK, still_waiting, world);
        if (fd >= 0) {
            close(fd);
        }
    }
    return rc;
}

tt_code tt_ckpt_load(tt_world *world, const char *path, const tt_state *state, bool params_only,
                     tt_err *err)
{
    tt_err closing;
    load l = {.world = world,
              .state = state,
              .path = path,
              .params_only = params_only,
              .catalog = {.world = world}};
    tt_code rc = TT_OK;
    tt_beat(world, "reading a checkpoint");
    TT_TRY(tt_ckpt_await(world, path, err));
    TT_TRY(tt_agree(world, examine(&l, err), err));
    TT_TRY(tt_digest_tensors(world, l.file, &l.catalog, l.checked, l.checks, l.sum, err));
    TT_TRY(check_sums(&l, err));
    TT_TRY(tt_agree(world, fill(&l, err), err));
out:
    tt_h5_close(&l.file, &closing); /* opened for reading: nothing is lost */
    tt_catalog_free(&l.catalog);
    free(l.which);
    free(l.checked);
    free(l.sum);
    free(l.buffer);
    return rc;
}
