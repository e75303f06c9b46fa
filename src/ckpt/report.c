/* report.c: what a person asks a file: what is in it, is it whole, which texts does it carry.
 *
 * Owns: nothing after it returns; texts are the caller's. Reads one file; next: diff.c. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tutti/base/memory.h"
#include "tutti/base/narrow.h"

#include "ckpt/ckpt_impl.h"

/* Opens a file and lists it; both are the caller's also after a failure. */
static tt_code open_catalog(const char *path, tt_h5 **file, tt_catalog *catalog, tt_err *err)
{
    tt_code rc = TT_OK;
    TT_TRY(tt_h5_open(path, path, file, err));
    TT_TRY(tt_check_format(*file, err));
    TT_TRY(tt_catalog_read(catalog, *file, err));
out:
    return rc;
}

static tt_code finish(const tt_text *out, const char *path, tt_err *err)
{
    return out->failed ? tt_fail(err, TT_EWORLD, "out of memory reading %s", path) : TT_OK;
}

/* --- texts ------------------------------------------------------------------------------------ */

static tt_code get_text(tt_h5 *file, const char *name, tt_text *text, tt_err *err)
{
    char seal[64];
    uint64_t digest = 0;
    tt_code rc = TT_OK;
    if (text == NULL) {
        return TT_OK;
    }
    snprintf(seal, sizeof seal, "digests/%s", name);
    bool sealed = tt_h5_exists(file, seal);
    if (!tt_h5_exists(file, name)) {
        return sealed ? tt_fail(err, TT_EWORLD,
                                "%s is damaged: %s is missing, only its digest is there",
                                tt_h5_name(file), name)
                      : tt_fail(err, TT_EUSER, "%s holds no /%s", tt_h5_name(file), name);
    }
    TT_TRY(tt_h5_get_text(file, name, text, err));
    if (sealed) {
        TT_TRY(tt_h5_get(file, seal, TT_H5_U64, &digest, err));
        if (digest != tt_digest_text(text->data)) {
            rc = tt_fail(err, TT_EWORLD, "%s is damaged: %s does not match its digest",
                         tt_h5_name(file), name);
        }
    }
out:
    return rc;
}

tt_code tt_ckpt_texts(const char *path, tt_text *config, tt_text *tokenizer, tt_err *err)
{
    tt_h5 *file = NULL;
    tt_err closing;
    tt_code rc = TT_OK;
    TT_TRY(tt_h5_open(path, path, &file, err));
    TT_TRY(get_text(file, "config", config, err));
    TT_TRY(get_text(file, "tokenizer", tokenizer, err));
out:
    tt_h5_close(&file, &closing); /* opened for reading: nothing is lost */
    return rc;
}

tt_code tt_ckpt_arithmetic(const char *path, tt_text *arithmetic, tt_err *err)
{
    tt_h5 *file = NULL;
    tt_err closing;
    tt_code rc = TT_OK;
    TT_TRY(tt_h5_open(path, path, &file, err));
    if (tt_h5_exists(file, "arithmetic") || tt_h5_exists(file, "digests/arithmetic")) {
        rc = get_text(file, "arithmetic", arithmetic, err);
    }
    if (rc == TT_EUSER) { /* it is there, and is something else: nobody's request was wrong */
        rc = tt_fail(err, TT_EWORLD, "%s is damaged: /arithmetic is not a text", path);
    }
out:
    tt_h5_close(&file, &closing); /* opened for reading: nothing is lost */
    return rc;
}

/* --- info ------------------------------------------------------------------------------------- */

/* Keys with a value in YAML text made of sections: lines that do not end in a colon. */
static int count_keys(const char *yaml)
{
    int keys = 0;
    while (*yaml != '\0') {
        size_t length = strcspn(yaml, "\n");
        keys += length > 0 && yaml[0] != '#' && yaml[length - 1] != ':';
        yaml += length + (yaml[length] == '\n');
    }
    return keys;
}

static tt_code info_small(tt_h5 *file, const tt_entry *entry, tt_text *out, tt_err *err)
{
    int64_t whole = 0;
    uint64_t digest = 0;
    double real = 0;
    tt_text text = {0};
    tt_code rc = TT_OK;
    if (entry->kind == TT_H5_I64) {
        TT_TRY(tt_h5_get(file, entry->path, entry->kind, &whole, err));
        tt_text_add(out, "%-24s %" PRId64 "\n", entry->path, whole);
    } else if (entry->kind == TT_H5_U64) {
        TT_TRY(tt_h5_get(file, entry->path, entry->kind, &digest, err));
        tt_text_add(out, "%-24s %016" PRIx64 "\n", entry->path, digest);
    } else if (entry->kind == TT_H5_F64) {
        TT_TRY(tt_h5_get(file, entry->path, entry->kind, &real, err));
        tt_text_add(out, "%-24s %.17g\n", entry->path, real);
    } else if (entry->kind == TT_H5_TEXT) {
        TT_TRY(tt_h5_get_text(file, entry->path, &text, err));
        if (strcmp(entry->path, "config") == 0) {
            tt_text_add(out, "%-24s %d keys\n", entry->path, count_keys(text.data));
        } else if (strcmp(entry->path, "arithmetic") == 0) {
            tt_text_add(out, "%-24s %s\n", entry->path,
                        tt_text_is_clean(text.data) ? text.data : "(not plain text)");
        } else {
            tt_text_add(out, "%-24s %.40s%s\n", entry->path, text.data,
                        text.length > 40 ? "..." : "");
        }
    }
out:
    tt_text_free(&text);
    return rc;
}

/* Is entry i the first tensor of its group? */
static bool opens_group(const tt_catalog *catalog, int i)
{
    for (int k = 0; k < i; k++) {
        if (tt_entry_is_tensor(&catalog->entry[k]) &&
            tt_same_group(catalog->entry[k].path, catalog->entry[i].path)) {
            return false;
        }
    }
    return true;
}

/* Tensors and elements of the group that entry `first` opens. */
static int measure_group(const tt_catalog *catalog, int first, int64_t *elements)
{
    int tensors = 0;
    *elements = 0;
    for (int i = first; i < catalog->count; i++) {
        const tt_entry *entry = &catalog->entry[i];
        if (tt_entry_is_tensor(entry) && tt_same_group(entry->path, catalog->entry[first].path)) {
            tensors++;
            *elements += entry->count;
        }
    }
    return tensors;
}

static void info_groups(const tt_catalog *catalog, tt_text *out)
{
    tt_text_add(out, "\n%-24s %10s %16s %12s\n", "group", "tensors", "elements", "size");
    for (int i = 0; i < catalog->count; i++) {
        const char *path = catalog->entry[i].path;
        if (tt_entry_is_tensor(&catalog->entry[i]) && opens_group(catalog, i)) {
            int64_t elements;
            char size[32];
            int tensors = measure_group(catalog, i, &elements);
            tt_human_bytes(4.0 * (double)elements, size);
            tt_text_add(out, "%-24.*s %10d %16" PRId64 " %12s\n", (int)tt_group_length(path), path,
                        tensors, elements, size);
        }
    }
}

static void info_tensors(const tt_catalog *catalog, tt_text *out)
{
    int width = 24;
    for (int i = 0; i < catalog->count; i++) {
        width = tt_int(tt_max(width, tt_count(strlen(catalog->entry[i].path))));
    }
    tt_text_add(out, "\n%-*s %16s %14s  %s\n", width, "tensor", "shape", "elements", "digest");
    for (int i = 0; i < catalog->count; i++) {
        const tt_entry *entry = &catalog->entry[i];
        char shape[TT_SHAPE_ROOM];
        if (tt_entry_is_tensor(entry)) {
            tt_shape_text(entry->dims, entry->dim, shape);
            tt_text_add(out, "%-*s %16s %14" PRId64 "  ", width, entry->path, shape, entry->count);
            tt_text_add(out, entry->sealed ? "%016" PRIx64 "\n" : "none\n", entry->digest);
        }
    }
}

tt_code tt_ckpt_info(const char *path, tt_text *out, tt_err *err)
{
    tt_h5 *file = NULL;
    tt_catalog catalog = {0};
    tt_err closing;
    tt_code rc = TT_OK;
    TT_TRY(open_catalog(path, &file, &catalog, err));
    tt_text_add(out, "%-24s %s\n%-24s %s\n", "file", path, "format", TT_CKPT_FORMAT);
    for (int i = 0; i < catalog.count; i++) {
        TT_TRY(info_small(file, &catalog.entry[i], out, err));
    }
    info_groups(&catalog, out);
    info_tensors(&catalog, out);
    rc = finish(out, path, err);
out:
    tt_catalog_free(&catalog);
    tt_h5_close(&file, &closing);
    return rc;
}

/* --- verify ----------------------------------------------------------------------------------- */

/* Recomputes one digest; *well is false, and out says why, when it is missing or wrong or the data
 * cannot be read. */
static void verify_entry(tt_h5 *file, const tt_catalog *catalog, int at, bool *well, tt_text *out)
{
    const tt_entry *entry = &catalog->entry[at];
    uint64_t sum = 0;
    tt_err why;
    *well = false;
    if (!entry->sealed) {
        tt_text_add(out, "damaged  %s has no digest\n", entry->path);
        return;
    }
    if (entry->kind == TT_H5_OTHER) {
        tt_text_add(out, "damaged  %s is of a type that checkpoints do not have\n", entry->path);
        return;
    }
    tt_code rc = tt_entry_is_tensor(entry)
                     ? tt_digest_tensors(NULL, file, catalog, &at, 1, &sum, &why)
                     : tt_digest_small(file, entry, &sum, &why);
    if (rc == TT_OK && sum == entry->digest && tt_is_group_digest(entry->path)) {
        rc = tt_check_group(catalog, file, at, &why);
    }
    if (rc != TT_OK) {
        tt_text_add(out, "damaged  %s\n", why.text);
    } else if (sum != entry->digest) {
        tt_text_add(out, "damaged  %s: digest %016" PRIx64 ", stored %016" PRIx64 "\n", entry->path,
                    sum, entry->digest);
    } else {
        *well = true;
    }
}

tt_code tt_ckpt_verify(const char *path, tt_text *out, tt_err *err)
{
    tt_h5 *file = NULL;
    tt_catalog catalog = {0};
    tt_err closing;
    int tensors = 0, smalls = 0, bad = 0;
    tt_code rc = TT_OK;
    TT_TRY(open_catalog(path, &file, &catalog, err));
    for (int i = 0; i < catalog.count; i++) {
        bool well;
        verify_entry(file, &catalog, i, &well, out);
        bad += !well;
        tensors += well && tt_entry_is_tensor(&catalog.entry[i]);
        smalls += well && !tt_entry_is_tensor(&catalog.entry[i]);
    }
    for (int i = 0; i < catalog.lost; i++) {
        tt_text_add(out, "damaged  %s is missing, only its digest is there\n",
                    catalog.lost_path[i]);
    }
    bad += catalog.lost;
    tt_text_add(out, "OK       %s%d tensors, %d scalars and texts match their digests\n",
                bad > 0 ? "the other " : "", tensors, smalls);
    TT_TRY(finish(out, path, err));
    if (bad > 0) {
        rc = tt_fail(err, TT_EWORLD, "%s is damaged: %d of %d digests do not match", path, bad,
                     catalog.count + catalog.lost);
    }
out:
    tt_catalog_free(&catalog);
    tt_h5_close(&file, &closing);
    return rc;
}
