/* catalog.c: what a checkpoint holds, read once and then looked things up in.
 *
 * Invariant: entries are in the file's order; none is below /digests; an entry is `sealed` exactly
 * when the file holds a digest for it; a digest without an entry is `lost`.
 *
 * Owns: the entries and their paths (tt_catalog_free). Reads an open file; next: digest.c. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tutti/base/memory.h"
#include "tutti/base/narrow.h"

#include "ckpt/ckpt_impl.h"

static tt_code add_entry(void *context, const char *path, tt_h5_kind kind, int dims,
                         const int64_t *dim, tt_err *err)
{
    tt_catalog *catalog = context;
    tt_beat(catalog->world, NULL);
    if (catalog->count == catalog->room) {
        int room = catalog->room > 0 ? 2 * catalog->room : 64;
        tt_entry *entry = realloc(catalog->entry, tt_bytes(room, sizeof *entry));
        if (entry == NULL) {
            return tt_fail(err, TT_EWORLD, "out of memory for a list of %d tensors", room);
        }
        catalog->entry = entry;
        catalog->room = room;
    }
    tt_entry entry = {.kind = kind, .dims = dims, .dim = {dim[0], dim[1]}, .count = 1};
    if (tt_entry_is_tensor(&entry)) {
        entry.count = dims > 1 ? tt_mul(dim[0], dim[1]) : dim[0];
    }
    entry.path = tt_strdup(path, err);
    if (entry.path == NULL) {
        return err->code;
    }
    catalog->entry[catalog->count++] = entry;
    return TT_OK;
}

static int compare_paths(const void *a, const void *b, void *entry)
{
    const tt_entry *e = entry;
    return strcmp(e[*(const int *)a].path, e[*(const int *)b].path);
}

/* A hostile file may have any number of entries, in any order. */
static tt_code sort_names(tt_catalog *catalog, tt_err *err)
{
    catalog->by_name = tt_alloc(catalog->count, sizeof *catalog->by_name, err);
    if (catalog->by_name == NULL) {
        return err->code;
    }
    for (int i = 0; i < catalog->count; i++) {
        catalog->by_name[i] = i;
    }
    if (catalog->count > 1) {
        qsort_r(catalog->by_name, tt_size(catalog->count), sizeof *catalog->by_name, compare_paths,
                catalog->entry);
    }
    return TT_OK;
}

/* A catalog being completed with what its digests tell. */
typedef struct seals {
    tt_catalog *catalog;
    int room; /* of lost_path */
    int hint;
} seals;

static const char digests[] = "digests/";

static tt_code match_digest(void *context, const char *path, tt_h5_kind kind, int dims,
                            const int64_t *dim, tt_err *err)
{
    seals *s = context;
    tt_catalog *catalog = s->catalog;
    (void)kind;
    (void)dims;
    (void)dim;
    path += sizeof digests - 1;
    tt_beat(catalog->world, NULL);
    if (tt_catalog_find(catalog, path, &s->hint) >= 0) {
        return TT_OK;
    }
    if (catalog->lost == s->room) {
        int room = s->room > 0 ? 2 * s->room : 16;
        char **lost = realloc(catalog->lost_path, tt_bytes(room, sizeof *lost));
        if (lost == NULL) {
            return tt_fail(err, TT_EWORLD, "out of memory for a list of %d tensors", room);
        }
        catalog->lost_path = lost;
        s->room = room;
    }
    char *name = tt_strdup(path, err);
    if (name == NULL) {
        return err->code;
    }
    catalog->lost_path[catalog->lost++] = name;
    return TT_OK;
}

tt_code tt_catalog_read(tt_catalog *catalog, tt_h5 *file, tt_err *err)
{
    tt_code rc = TT_OK;
    tt_text path = {0};
    seals s = {.catalog = catalog};
    *catalog = (tt_catalog){.world = catalog->world};
    TT_TRY(tt_h5_walk(file, "", "digests", add_entry, catalog, err));
    TT_TRY(sort_names(catalog, err));
    for (int i = 0; i < catalog->count; i++) {
        tt_entry *entry = &catalog->entry[i];
        path.length = 0;
        tt_beat(catalog->world, NULL);
        tt_text_add(&path, "%s%s", digests, entry->path);
        if (path.failed) {
            rc = tt_fail(err, TT_EWORLD, "out of memory reading %s", tt_h5_name(file));
            goto out;
        }
        entry->sealed = tt_h5_exists(file, path.data);
        if (entry->sealed) {
            TT_TRY(tt_h5_get(file, path.data, TT_H5_U64, &entry->digest, err));
        }
    }
    TT_TRY(tt_h5_walk(file, "digests", "", match_digest, &s, err));
out:
    tt_text_free(&path);
    if (rc != TT_OK) {
        tt_catalog_free(catalog);
    }
    return rc;
}

void tt_catalog_free(tt_catalog *catalog)
{
    for (int i = 0; i < catalog->count; i++) {
        free(catalog->entry[i].path);
    }
    for (int i = 0; i < catalog->lost; i++) {
        free(catalog->lost_path[i]);
    }
    free(catalog->entry);
    free(catalog->by_name);
    free(catalog->lost_path);
    *catalog = (tt_catalog){0};
}

int tt_catalog_find(const tt_catalog *catalog, const char *path, int *hint)
{
    int low = 0, high = catalog->count;
    if (*hint < catalog->count && strcmp(catalog->entry[*hint].path, path) == 0) {
        return (*hint)++;
    }
    while (low < high) {
        const int middle = low + (high - low) / 2, at = catalog->by_name[middle];
        const int side = strcmp(catalog->entry[at].path, path);
        if (side == 0) {
            *hint = at + 1;
            return at;
        }
        low = side < 0 ? middle + 1 : low;
        high = side < 0 ? high : middle;
    }
    return -1;
}

bool tt_entry_is_tensor(const tt_entry *entry)
{
    return entry->kind == TT_H5_F32 || entry->kind == TT_H5_FLOAT;
}

size_t tt_group_length(const char *path)
{
    const char *slash = strchr(path, '/');
    return slash != NULL ? (size_t)(slash - path) : 0;
}

bool tt_same_group(const char *a, const char *b)
{
    size_t length = tt_group_length(a);
    return length == tt_group_length(b) && strncmp(a, b, length) == 0;
}

void tt_shape_text(int dims, const int64_t *dim, char out[TT_SHAPE_ROOM])
{
    if (dims == 0) {
        snprintf(out, TT_SHAPE_ROOM, "a single value");
    } else if (dims == 1) {
        snprintf(out, TT_SHAPE_ROOM, "[%lld]", (long long)dim[0]);
    } else {
        snprintf(out, TT_SHAPE_ROOM, "[%lld,%lld%s]", (long long)dim[0], (long long)dim[1],
                 dims > 2 ? ",..." : "");
    }
}

tt_code tt_check_format(tt_h5 *file, tt_err *err)
{
    tt_code rc = TT_OK;
    tt_text format = {0};
    TT_TRY(tt_h5_get_format(file, &format, err));
    if (format.length == 0) {
        rc = tt_fail(err, TT_EUSER, "%s is not a checkpoint: it has no format attribute",
                     tt_h5_name(file));
    } else if (strcmp(format.data, TT_CKPT_FORMAT) != 0) {
        rc = tt_fail(err, TT_EUSER, "%s is not a checkpoint: its format is %.60s, not %s",
                     tt_h5_name(file), format.data, TT_CKPT_FORMAT);
    }
out:
    tt_text_free(&format);
    return rc;
}

tt_code tt_check_lost(const tt_catalog *catalog, const char *prefix, const char *name, tt_err *err)
{
    for (int i = 0; i < catalog->lost; i++) {
        const char *path = catalog->lost_path[i];
        if (strncmp(path, prefix, strlen(prefix)) == 0) {
            return tt_fail(err, TT_EWORLD, "%s is damaged: %s is missing, only its digest is there",
                           name, path);
        }
    }
    return TT_OK;
}

tt_code tt_check_sealed(const tt_catalog *catalog, const char *name, tt_err *err)
{
    for (int i = 0; i < catalog->count; i++) {
        if (!catalog->entry[i].sealed) {
            return tt_fail(err, TT_EWORLD, "%s is damaged: %s has no digest", name,
                           catalog->entry[i].path);
        }
    }
    return tt_check_lost(catalog, "", name, err);
}
