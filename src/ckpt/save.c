/* save.c: the last good file is never touched before the new one is whole.
 *
 *     digests <- sum over ranks of the digests of their pieces          from memory
 *     rank 0:    .name.part <- metadata, scalars, texts, digests; space reserved       part.c
 *     together:  each rank writes its pieces                            MPI-IO
 *     each rank: fsync
 *     together:  digests of the stored tensors = digests, else damaged  read back, a share each
 *     rank 0:    rename to name, sync the folder
 *
 * Between any two lines all ranks agree, so a failure of one is a failure of all with one sentence,
 * and rank 0 removes the .part. The read-back comes from the page cache as a rule: it proves that
 * every element is where it belongs, not what the disk's surface holds; `checkpoint verify` does.
 *
 * Owns nothing after it returns. Reads tt_state, writes an HDF5 file; next: load.c. */
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tutti/base/file.h"
#include "tutti/base/memory.h"
#include "tutti/base/narrow.h"
#include "tutti/numerics/digest.h"

#include "ckpt/ckpt_impl.h"

/* One save under way. */
typedef struct save {
    tt_world *world;
    const tt_state *state;
    const char *path, *part; /* the file to be, and where it is made */
    const tt_fault *fault;
    int64_t step;
    uint64_t *digest;  /* [tensors] */
    uint64_t *covered; /* [tensors] elements of the pieces of all ranks; follows digest */
    float *buffer;     /* of pieces with a form; NULL: there are none */
    int rank;
} save;

static int64_t elements(const tt_tensor_row *row)
{
    return row->dims > 1 ? tt_mul(row->dim[0], row->dim[1]) : row->dim[0];
}

/* Digest and coverage of every tensor, over all ranks. Collective. */
static tt_code add_pieces(const save *s, tt_err *err)
{
    tt_code rc = TT_OK;
    for (int i = 0; i < s->state->tensors; i++) {
        const tt_tensor_row *row = &s->state->tensor[i];
        assert(row->dims == 1 || row->dims == 2);
        for (int p = 0; p < row->pieces && rc == TT_OK; p++) {
            const tt_piece *piece = &row->piece[p];
            assert(piece->first >= 0 && piece->first + piece->count <= elements(row));
            rc = tt_piece_digest(s->world, piece, s->buffer, &s->digest[i], err);
            s->covered[i] += (uint64_t)piece->count;
        }
    }
    TT_TRY(tt_agree(s->world, rc, err));
    TT_TRY(tt_sum_u64(s->world, s->digest, 2 * s->state->tensors, err));
    for (int i = 0; i < s->state->tensors && rc == TT_OK; i++) {
        const tt_tensor_row *row = &s->state->tensor[i];
        if ((int64_t)s->covered[i] != elements(row)) {
            rc = tt_fail(err, TT_EWORLD,
                         "cannot save %s: the ranks hold %lld of %lld elements of %s", s->path,
                         (long long)s->covered[i], (long long)elements(row), row->name);
        }
    }
out:
    return rc;
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
static tt_code put_group_digests(const save *s, tt_h5 *file, tt_err *err)
{
    const tt_state *state = s->state;
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
        bytes += tt_mul(elements(&state->tensor[i]), sizeof(float)) + 4 * per_dataset;
    }
    bytes += state->scalars * 2 * per_dataset;
    bytes += state->config != NULL ? tt_count(strlen(state->config)) : 0;
    bytes += state->arithmetic != NULL ? tt_count(strlen(state->arithmetic)) : 0;
    bytes += state->tokenizer != NULL ? tt_count(strlen(state->tokenizer)) : 0;
    return bytes;
}

/* Everything but the elements, into a new HDF5 file. */
static tt_code fill_file(const save *s, const char *scratch, tt_err *err)
{
    tt_code rc = TT_OK;
    tt_err closing;
    tt_h5 *file = NULL;
    const tt_state *state = s->state;
    TT_TRY(tt_h5_create(scratch, s->path, &file, err));
    TT_TRY(tt_h5_put_format(file, TT_CKPT_FORMAT, err));
    for (int i = 0; i < state->tensors; i++) {
        const tt_tensor_row *row = &state->tensor[i];
        TT_TRY(tt_h5_make_tensor(file, row->name, row->dims, row->dim, err));
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

/* The .part without its elements. Rank 0 only. */
static tt_code make_part(const save *s, tt_err *err)
{
    char scratch[TT_SCRATCH_ROOM];
    int fd = -1;
    tt_code rc = TT_OK;
    TT_TRY(tt_part_scratch(most_bytes(s->state), s->path, &fd, scratch, err));
    TT_TRY(fill_file(s, scratch, err));
    TT_TRY(tt_part_copy(fd, s->part, s->path, err));
out:
    if (fd >= 0) {
        close(fd);
    }
    return rc;
}

/* This rank's pieces into the open file. */
static tt_code write_pieces(const save *s, tt_h5 *file, tt_err *err)
{
    tt_code rc = TT_OK;
    for (int i = 0; i < s->state->tensors; i++) {
        const tt_tensor_row *row = &s->state->tensor[i];
        if (i == s->state->tensors / 2) {
            tt_fault_strike(s->fault, "mid_save", s->rank, s->step);
            if (tt_fault_due(s->fault, TT_FAULT_ENOSPC, s->rank, s->step)) {
                return tt_fail(err, TT_EWORLD, "cannot write %s to %s: %s", row->name, s->path,
                               strerror(ENOSPC));
            }
        }
        for (int p = 0; p < row->pieces; p++) {
            TT_TRY(tt_piece_write(s->world, file, row->name, &row->piece[p], s->buffer, err));
        }
    }
out:
    return rc;
}

/* Writes the elements and brings them to the disk. Collective. */
static tt_code write_elements(const save *s, tt_err *err)
{
    tt_h5 *file = NULL;
    tt_err closing;
    tt_code rc = tt_h5_open_shared(s->world, s->part, s->path, &file, err);
    if (rc != TT_OK) {
        return rc;
    }
    rc = write_pieces(s, file, err);
    tt_code closed = tt_h5_close(&file, &closing);
    if (rc == TT_OK && closed != TT_OK) {
        rc = tt_fail(err, closed, "%s", closing.text);
    }
    if (rc == TT_OK) {
        /* Every rank: on a cluster each node has pages of its own to bring to the disk. */
        rc = tt_part_sync(s->world, s->part, s->path, err);
    }
    return tt_agree(s->world, rc, err);
}

/* Finds the rows in the stored file; scalars and texts must match their digests. Local. */
static tt_code find_rows(const save *s, tt_h5 *file, const tt_catalog *catalog, int *which,
                         tt_err *err)
{
    int hint = 0;
    for (int i = 0; i < s->state->tensors; i++) {
        const tt_tensor_row *row = &s->state->tensor[i];
        which[i] = tt_catalog_find(catalog, row->name, &hint);
        const tt_entry *entry = which[i] >= 0 ? &catalog->entry[which[i]] : NULL;
        if (entry == NULL || entry->kind != TT_H5_F32 || entry->dims != row->dims ||
            entry->count != elements(row) || !entry->sealed || entry->digest != s->digest[i]) {
            return tt_fail(err, TT_EWORLD, "cannot save %s: %s does not read back", s->path,
                           row->name);
        }
    }
    for (int i = 0; i < catalog->count; i++) {
        const tt_entry *entry = &catalog->entry[i];
        uint64_t sum = 0;
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

/* Reads everything back. Collective. */
static tt_code read_back(const save *s, tt_err *err)
{
    int count = s->state->tensors;
    tt_h5 *file = NULL;
    tt_catalog catalog = {0};
    uint64_t *sum = tt_alloc(count, sizeof *sum, err);
    int *which = tt_alloc(count, sizeof *which, err);
    tt_err closing;
    tt_code rc = sum == NULL || which == NULL ? err->code : TT_OK;
    if (rc == TT_OK) {
        rc = tt_h5_open(s->part, s->path, &file, err);
    }
    if (rc == TT_OK) {
        rc = tt_catalog_read(&catalog, file, err);
    }
    if (rc == TT_OK) {
        rc = find_rows(s, file, &catalog, which, err);
    }
    TT_TRY(tt_agree(s->world, rc, err));
    TT_TRY(tt_digest_tensors(s->world, file, &catalog, which, count, sum, err));
    for (int i = 0; i < count && rc == TT_OK; i++) {
        if (sum[i] != s->digest[i]) {
            rc = tt_fail(err, TT_EWORLD, "cannot save %s: %s reads back with other values", s->path,
                         s->state->tensor[i].name);
        }
    }
out:
    tt_catalog_free(&catalog);
    tt_h5_close(&file, &closing); /* opened for reading: nothing is lost */
    free(which);
    free(sum);
    return rc;
}

static tt_code commit(const save *s, tt_err *err)
{
    tt_fault_strike(s->fault, "before_rename", s->rank, s->step);
    tt_code rc = s->rank == 0 ? tt_commit_file(s->part, s->path, err) : TT_OK;
    rc = tt_agree(s->world, rc, err);
    if (rc == TT_OK) {
        tt_fault_strike(s->fault, "after_rename", s->rank, s->step);
    }
    return rc;
}

tt_code tt_ckpt_save(tt_world *world, const char *path, const tt_state *state,
                     const tt_fault *fault, int64_t step, tt_err *err)
{
    static const tt_fault none = {.rank = -1, .step = -1};
    int rank = world != NULL ? world->rank : 0;
    bool made = false;
    tt_code rc = TT_OK;
    save s = {.world = world, .state = state, .path = path, .step = step, .rank = rank};
    s.fault = fault != NULL ? fault : &none;
    tt_beat(world, "saving a checkpoint");
    tt_fault_strike(s.fault, "before_save", rank, step);

    char *part = tt_part_path(path, err);
    s.part = part;
    s.digest = tt_alloc(2 * (int64_t)state->tensors, sizeof *s.digest, err);
    s.covered = s.digest != NULL ? s.digest + state->tensors : NULL;
    rc = part == NULL || s.digest == NULL ? err->code : tt_piece_buffer(state, &s.buffer, err);
    TT_TRY(tt_agree(world, rc, err));
    TT_TRY(add_pieces(&s, err));
    made = true;
    rc = rank == 0 ? make_part(&s, err) : TT_OK;
    TT_TRY(tt_agree(world, rc, err));
    TT_TRY(write_elements(&s, err));
    TT_TRY(read_back(&s, err));
    TT_TRY(commit(&s, err));
out:
    if (rc != TT_OK && made && rank == 0) {
        unlink(part);
    }
    free(s.buffer);
    free(s.digest);
    free(part);
    return rc;
}
