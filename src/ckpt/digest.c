/* digest.c: digests of what a file holds, each rank reading a share.
 *
 * All elements of the tensors in question stand in one long row; rank r reads the r-th of R equal
 * stretches of it, whatever tensors they cut through. Digests of parts add up to those of wholes
 * (numerics/digest.h), so one sum over ranks gives the digest of every tensor.
 *
 * Reads an open file in chunks of TT_CKPT_CHUNK elements; owns nothing; next: save.c, load.c. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "tutti/base/memory.h"
#include "tutti/base/narrow.h"
#include "tutti/numerics/digest.h"

#include "ckpt/ckpt_impl.h"

/* Does `path` belong to the group of this name? */
static bool in_group(const char *path, const char *group)
{
    const size_t length = strlen(group);
    return tt_group_length(path) == length && strncmp(path, group, length) == 0;
}

/* Adds the digest of elements [first, end) of one tensor to *sum. */
static tt_code digest_range(tt_world *world, tt_h5 *file, const char *path, int64_t first,
                            int64_t end, float *buffer, uint64_t *sum, tt_err *err)
{
    for (int64_t at = first; at < end; at += TT_CKPT_CHUNK) {
        int64_t count = tt_min(end - at, TT_CKPT_CHUNK);
        tt_beat(world, NULL);
        tt_code rc = tt_h5_read(file, path, at, count, buffer, err);
        if (rc != TT_OK) {
            return rc;
        }
        *sum += tt_digest32(buffer, at, count);
    }
    return TT_OK;
}

/* This rank's share of the sums. */
static tt_code digest_share(tt_world *world, tt_h5 *file, const tt_catalog *catalog,
                            const int *which, int count, uint64_t *sum, tt_err *err)
{
    tt_code rc = TT_OK;
    int64_t total = 0, start = 0;
    const int rank = world != NULL ? world->rank : 0, ranks = world != NULL ? world->size : 1;
    float *buffer = tt_alloc(TT_CKPT_CHUNK, sizeof *buffer, err);
    if (buffer == NULL) {
        return err->code;
    }
    for (int k = 0; k < count; k++) {
        total += catalog->entry[which[k]].count;
    }
    int64_t share = tt_ceil_div(total, ranks);
    int64_t mine = share * rank, end = mine + share;
    for (int k = 0; k < count; k++) {
        const tt_entry *entry = &catalog->entry[which[k]];
        int64_t from = tt_max(mine - start, 0), to = tt_min(end - start, entry->count);
        sum[k] = 0;
        TT_TRY(digest_range(world, file, entry->path, from, to, buffer, &sum[k], err));
        start += entry->count;
    }
out:
    free(buffer);
    return rc;
}

tt_code tt_digest_tensors(tt_world *world, tt_h5 *file, const tt_catalog *catalog, const int *which,
                          int count, uint64_t *sum, tt_err *err)
{
    tt_code rc = digest_share(world, file, catalog, which, count, sum, err);
    rc = tt_agree(world, rc, err);
    return rc == TT_OK ? tt_sum_u64(world, sum, count, err) : rc;
}

tt_code tt_digest_small(tt_h5 *file, const tt_entry *entry, uint64_t *sum, tt_err *err)
{
    unsigned char value[8];
    assert(!tt_entry_is_tensor(entry) && entry->kind != TT_H5_OTHER);
    if (entry->kind != TT_H5_TEXT) {
        tt_code rc = tt_h5_get(file, entry->path, entry->kind, value, err);
        *sum = rc == TT_OK ? tt_digest_scalar(value) : 0;
        return rc;
    }
    tt_text text = {0};
    tt_code rc = tt_h5_get_text(file, entry->path, &text, err);
    *sum = rc == TT_OK ? tt_digest_text(text.data) : 0;
    tt_text_free(&text);
    return rc;
}

bool tt_is_group_digest(const char *path)
{
    return strncmp(path, TT_GROUP_DIGESTS, sizeof TT_GROUP_DIGESTS - 1) == 0;
}

tt_code tt_check_group(const tt_catalog *catalog, tt_h5 *file, int at, tt_err *err)
{
    const char *path = catalog->entry[at].path, *group = path + sizeof TT_GROUP_DIGESTS - 1;
    tt_code rc = TT_OK;
    uint64_t stored = 0;
    int count = 0;
    bool whole = true;
    uint64_t *sum = tt_alloc(catalog->count, sizeof *sum, err);
    if (sum == NULL) {
        rc = err->code;
        goto out;
    }
    for (int i = 0; i < catalog->count; i++) {
        const tt_entry *entry = &catalog->entry[i];
        if (tt_entry_is_tensor(entry) && in_group(entry->path, group)) {
            sum[count++] = entry->digest;
            whole = whole && entry->sealed;
        }
    }
    for (int i = 0; i < catalog->lost; i++) {
        whole = whole && !in_group(catalog->lost_path[i], group);
    }
    TT_TRY(tt_h5_get(file, path, TT_H5_U64, &stored, err));
    if (whole && stored != tt_digest_group(sum, count)) {
        rc = tt_fail(err, TT_EWORLD, "%s is damaged: %s is not the digest of the group's tensors",
                     tt_h5_name(file), path);
    }
out:
    free(sum);
    return rc;
}

uint64_t tt_digest_scalar(const void *value)
{
    return tt_digest_bytes(value, 8);
}

uint64_t tt_digest_text(const char *text)
{
    return tt_digest_bytes(text, tt_count(strlen(text)));
}
