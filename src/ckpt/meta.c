/* meta.c: everything of a checkpoint but its elements: groups, shapes, scalars, texts, digests.
 *
 * One process makes it, with HDF5 and in memory (part.c says why), and learns where each tensor's
 * elements will be. Before the file gets its name HDF5 opens it anew, and everything must be there.
 *
 * Rank 0 only, nothing collective. Reads tt_saving, writes the .part; next: elements.c. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tutti/base/memory.h"
#include "tutti/base/narrow.h"
#include "tutti/numerics/digest.h"

#include "ckpt/ckpt_impl.h"

int64_t tt_row_elements(const tt_tensor_row *row)
{
    return row->dims > 1 ? tt_mul(row->dim[0], row->dim[1]) : row->dim[0];
}

static tt_code put_digest(tt_h5 *file, const char *path, uint64_t digest, tt_err *err)
{
    char name[256];
    if (snprintf(name, sizeof name, "digests/%s", path) >= (int)sizeof name) {
        return tt_fail(err, TT_EWORLD, "cannot write %s to %s: name too long", path,
                       tt_h5_name(file));
    }
    return tt_h5_put(file, name, TT_H5_U64, &digest, err);
}

static tt_code put_scalar(tt_h5 *file, const tt_scalar_row *row, tt_err *err)
{
    char name[256];
    const void *value = row->i64 != NULL ? (const void *)row->i64 : row->f64;
    if (snprintf(name, sizeof name, "state/%s", row->name) >= (int)sizeof name) {
        return tt_fail(err, TT_EWORLD, "cannot write %s to %s: name too long", row->name,
                       tt_h5_name(file));
    }
    tt_code rc = tt_h5_put(file, name, row->i64 != NULL ? TT_H5_I64 : TT_H5_F64, value, err);
    return rc == TT_OK ? put_digest(file, name, tt_digest_scalar(value), err) : rc;
}

static tt_code put_text(tt_h5 *file, const char *path, const char *text, tt_err *err)
{
    if (text == NULL) {
        return TT_OK;
    }
    tt_code rc = tt_h5_put_text(file, path, text, err);
    return rc == TT_OK ? put_digest(file, path, tt_digest_text(text), err) : rc;
}

/* The digest of each group, from those of its tensors. */
static tt_code put_group_digests(const tt_saving *s, tt_h5 *file, tt_err *err)
{
    const tt_state *state = &s->state;
    tt_code rc = TT_OK;
    char name[256];
    uint64_t *sum = tt_alloc(state->tensors, sizeof *sum, err);
    bool *done = tt_alloc(state->tensors, sizeof *done, err);
    if (sum == NULL || done == NULL) {
        rc = err->code;
        goto out;
    }
    for (int i = 0; i < state->tensors; i++) {
        const char *first = state->tensor[i].name;
        int count = 0;
        if (done[i]) {
            continue;
        }
        for (int k = i; k < state->tensors; k++) {
            if (tt_same_group(state->tensor[k].name, first)) {
                sum[count++] = s->digest[k];
                done[k] = true;
            }
        }
        const uint64_t digest = tt_digest_group(sum, count);
        snprintf(name, sizeof name, TT_GROUP_DIGESTS "%.*s", (int)tt_group_length(first), first);
        TT_TRY(tt_h5_put(file, name, TT_H5_U64, &digest, err));
        TT_TRY(put_digest(file, name, tt_digest_scalar(&digest), err));
    }
out:
    free(sum);
    free(done);
    return rc;
}

/* More than the file will come to: its contents, and what HDF5 adds for each dataset. */
static int64_t most_bytes(const tt_state *state)
{
    const int64_t per_dataset = 4096;
    int64_t bytes = 1 << 20;
    for (int i = 0; i < state->tensors; i++) {
        /* at most: its own dataset and digest, and those of a group of its own */
        bytes += tt_mul(tt_row_elements(&state->tensor[i]), sizeof(float)) + 4 * per_dataset;
    }
    bytes += state->scalars * 2 * per_dataset;
    bytes += state->config != NULL ? tt_count(strlen(state->config)) : 0;
    bytes += state->arithmetic != NULL ? tt_count(strlen(state->arithmetic)) : 0;
    bytes += state->tokenizer != NULL ? tt_count(strlen(state->tokenizer)) : 0;
    return bytes;
}

/* Everything but the elements, into a new HDF5 file; where they will be. */
static tt_code fill_file(tt_saving *s, const char *scratch, tt_err *err)
{
    tt_code rc = TT_OK;
    tt_err closing;
    tt_h5 *file = NULL;
    const tt_state *state = &s->state;
    TT_TRY(tt_h5_create(scratch, s->path, &file, err));
    TT_TRY(tt_h5_put_format(file, TT_CKPT_FORMAT, err));
    for (int i = 0; i < state->tensors; i++) {
        const tt_tensor_row *row = &state->tensor[i];
        tt_beat(s->world, NULL);
        TT_TRY(tt_h5_make_tensor(file, row->name, row->dims, row->dim, &s->place[i], err));
    }
    for (int i = 0; i < state->scalars; i++) {
        TT_TRY(put_scalar(file, &state->scalar[i], err));
    }
    TT_TRY(put_text(file, "config", state->config, err));
    TT_TRY(put_text(file, "arithmetic", state->arithmetic, err));
    TT_TRY(put_text(file, "tokenizer", state->tokenizer, err));
    TT_TRY(put_group_digests(s, file, err));
    for (int i = 0; i < state->tensors; i++) {
        TT_TRY(put_digest(file, state->tensor[i].name, s->digest[i], err));
    }
    TT_TRY(tt_h5_close(&file, err));
out:
    tt_h5_close(&file, &closing); /* after a failure only: the first sentence stands */
    return rc;
}

tt_code tt_meta_make(tt_saving *s, tt_err *err)
{
    char scratch[TT_SCRATCH_ROOM];
    int fd = -1;
    tt_code rc = TT_OK;
    TT_TRY(tt_part_scratch(most_bytes(&s->state), s->path, &fd, scratch, err));
    TT_TRY(fill_file(s, scratch, err));
    TT_TRY(tt_part_copy(fd, s->part, s->path, err));
out:
    if (fd >= 0) {
        close(fd);
    }
    return rc;
}

/* Finds the rows in the stored file; scalars and texts must match their digests. */
static tt_code find_rows(const tt_saving *s, tt_h5 *file, const tt_catalog *catalog, tt_err *err)
{
    int hint = 0;
    for (int i = 0; i < s->state.tensors; i++) {
        const tt_tensor_row *row = &s->state.tensor[i];
        const int at = tt_catalog_find(catalog, row->name, &hint);
        const tt_entry *entry = at >= 0 ? &catalog->entry[at] : NULL;
        if (entry == NULL || entry->kind != TT_H5_F32 || entry->dims != row->dims ||
            entry->count != tt_row_elements(row) || !entry->sealed ||
            entry->digest != s->digest[i]) {
            return tt_fail(err, TT_EWORLD, "cannot save %s: %s does not read back", s->path,
                           row->name);
        }
    }
    for (int i = 0; i < catalog->count; i++) {
        const tt_entry *entry = &catalog->entry[i];
        uint64_t sum = 0;
        tt_beat(s->world, NULL);
        if (!tt_entry_is_tensor(entry)) {
            tt_code rc = tt_digest_small(file, entry, &sum, err);
            if (rc == TT_OK && (!entry->sealed || sum != entry->digest)) {
                rc = tt_fail(err, TT_EWORLD, "cannot save %s: %s does not read back", s->path,
                             entry->path);
            }
            if (rc != TT_OK) {
                return rc;
            }
        }
    }
    return TT_OK;
}

tt_code tt_meta_check(const tt_saving *s, tt_err *err)
{
    tt_h5 *file = NULL;
    tt_catalog catalog = {.world = s->world};
    tt_err closing;
    tt_code rc = TT_OK;
    rc = tt_h5_open(s->part, s->path, &file, err);
    if (rc == TT_EUSER) { /* it was ours a moment ago */
        const tt_err why = *err;
        rc = tt_fail(err, TT_EWORLD, "cannot save %s: it does not read back: %.800s", s->path,
                     why.text);
    }
    TT_TRY(rc);
    TT_TRY(tt_catalog_read(&catalog, file, err));
    TT_TRY(find_rows(s, file, &catalog, err));
out:
    tt_catalog_free(&catalog);
    tt_h5_close(&file, &closing); /* opened for reading: nothing is lost */
    return rc;
}
