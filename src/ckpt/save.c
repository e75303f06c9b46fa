/* save.c: the last good file is never touched before the new one is whole.
 *
 *     begin    digests <- sum over ranks of the digests of their pieces      from memory; a snapshot
 *              rank 0:    .name.part <- metadata, scalars, texts, digests    meta.c, part.c
 *     write    each rank: its pieces at their places, then fsync             elements.c
 *     look     each rank: digests of a share of the stored tensors           elements.c
 *     commit   digests of the stored tensors = digests, else damaged
 *              rank 0:    what HDF5 finds in the file is what was put there  meta.c
 *              rank 0:    rename to name, sync the folder
 *
 * Between any two acts all ranks agree, so a failure of one is a failure of all with one sentence,
 * and rank 0 removes the .part. The acts in the middle are a rank's own: they call neither MPI nor
 * HDF5, so a thread can do them while the rank computes.
 *
 * Reads tt_state, writes an HDF5 file; next: meta.c, elements.c. */
#include <assert.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tutti/base/clock.h"
#include "tutti/base/file.h"
#include "tutti/base/memory.h"
#include "tutti/base/narrow.h"
#include "tutti/numerics/digest.h"

#include "ckpt/ckpt_impl.h"

static const tt_fault no_fault = {.rank = -1, .step = -1};

/* --- digests and snapshot ----------------------------------------------------------------------- */

enum { SOME = 1 << 16 }; /* elements that a thread copies and digests while they are in its cache */

/* Elements [at, at + count) of a piece into `room`, which may be where they are, and their digest. */
static tt_code take_some(const tt_piece *piece, int64_t at, int64_t count, float *room,
                         uint64_t *digest, tt_err *err)
{
    if (piece->form.get != NULL) {
        const tt_code rc = piece->form.get(piece->form.owner, piece->at + at, count, room, err);
        if (rc != TT_OK) {
            return rc;
        }
    } else {
        memcpy(room, piece->data + at, tt_bytes(count, sizeof *room));
    }
    *digest = tt_digest32(room, piece->first + at, count);
    return TT_OK;
}

/* A piece into the snapshot, by all threads. */
static tt_code take_piece(const tt_piece *piece, float *room, uint64_t *digest, tt_err *err)
{
    const int64_t parts = tt_ceil_div(piece->count, SOME);
    uint64_t sum = 0;
    tt_err first = {TT_OK, ""};
#pragma omp parallel for schedule(static) reduction(+ : sum) if (parts > 1)
    for (int64_t i = 0; i < parts; i++) {
        const int64_t at = i * SOME, count = tt_min(SOME, piece->count - at);
        uint64_t part = 0;
        tt_err why = {TT_OK, ""};
        if (take_some(piece, at, count, room + at, &part, &why) != TT_OK) {
#pragma omp critical
            tt_keep_first(&first, why.code, &why);
        }
        sum += part;
    }
    *digest += sum;
    if (first.code != TT_OK) {
        *err = first;
    }
    return first.code;
}

/* The digest of a piece where it is, by all threads. */
static void digest_piece(const tt_piece *piece, uint64_t *digest)
{
    const int64_t parts = tt_ceil_div(piece->count, SOME);
    uint64_t sum = 0;
#pragma omp parallel for schedule(static) reduction(+ : sum) if (parts > 1)
    for (int64_t i = 0; i < parts; i++) {
        const int64_t at = i * SOME, count = tt_min(SOME, piece->count - at);
        sum += tt_digest32(piece->data + at, piece->first + at, count);
    }
    *digest += sum;
}

/* Digests of this rank's pieces; with room for it, their snapshot. Local. */
static tt_code take_pieces(tt_saving *s, tt_err *err)
{
    tt_code rc = TT_OK;
    float *room = s->how.room;
    for (int i = 0; i < s->state.tensors; i++) {
        const tt_tensor_row *row = &s->state.tensor[i];
        if (i == s->state.tensors / 2) {
            tt_fault_strike(s->how.fault, "in_snapshot", s->rank, s->how.step);
        }
        assert(row->dims == 1 || row->dims == 2);
        for (int p = 0; p < row->pieces; p++) {
            const tt_piece *piece = &row->piece[p];
            assert(piece->first >= 0 && piece->first + piece->count <= tt_row_elements(row));
            tt_beat(s->world, NULL);
            if (room != NULL) {
                TT_TRY(take_piece(piece, room, &s->digest[i], err));
                room += piece->count;
            } else if (piece->form.get != NULL) {
                TT_TRY(tt_piece_digest(s->world, piece, (void *)s->buffer, &s->digest[i], err));
            } else {
                digest_piece(piece, &s->digest[i]);
            }
            s->covered[i] += (uint64_t)piece->count;
        }
    }
out:
    return rc;
}

/* Digest and coverage of every tensor, over all ranks. Collective. */
static tt_code add_pieces(tt_saving *s, tt_err *err)
{
    tt_code rc = TT_OK;
    TT_TRY(tt_agree(s->world, take_pieces(s, err), err));
    TT_TRY(tt_sum_u64(s->world, s->digest, 2 * s->state.tensors, err));
    for (int i = 0; i < s->state.tensors && rc == TT_OK; i++) {
        const tt_tensor_row *row = &s->state.tensor[i];
        if ((int64_t)s->covered[i] != tt_row_elements(row)) {
            rc = tt_fail(err, TT_EWORLD,
                         "cannot save %s: the ranks hold %lld of %lld elements of %s", s->path,
                         (long long)s->covered[i], (long long)tt_row_elements(row), row->name);
        }
    }
out:
    return rc;
}

/* --- acts of a rank's own ------------------------------------------------------------------------ */

static tt_code act(tt_saving *s, tt_err *err)
{
    const double start = tt_seconds();
    tt_code rc = TT_OK;
    if (s->act == TT_ACT_WRITE) {
        rc = tt_elements_write(s, err);
        s->times.write += tt_seconds() - start;
    } else {
        rc = tt_elements_look(s, err);
        s->times.look += tt_seconds() - start;
    }
    return rc;
}

static void *act_behind(void *saving)
{
    tt_saving *s = saving;
    s->own = act(s, &s->why);
    s->busy = false;
    return NULL;
}

/* Does the act now, or lets a thread begin it. Where no thread can be had it is done now: that takes
 * the rank's time and nothing else. */
static void start_act(tt_saving *s, tt_act what)
{
    s->act = what;
    s->why = (tt_err){TT_OK, ""};
    if (s->how.behind) {
        s->busy = true;
        s->threaded = true; /* before there is anybody to read it */
        if (pthread_create(&s->thread, NULL, act_behind, s) == 0) {
            return;
        }
        s->threaded = false;
        s->busy = false;
    }
    s->own = act(s, &s->why);
}

/* Waits for the act, and is seen to wait while it moves. */
static void end_act(tt_saving *s)
{
    const struct timespec nap = {0, 2000000};
    int64_t seen = -1;
    while (s->threaded && s->busy) {
        const int64_t moved = s->moved;
        if (moved != seen) {
            tt_beat(s->world, NULL);
        }
        seen = moved;
        nanosleep(&nap, NULL);
    }
    if (s->threaded) {
        pthread_join(s->thread, NULL);
        s->threaded = false;
    }
}

void tt_saving_moved(tt_saving *s)
{
    if (s->threaded) {
        s->moved++;
    } else {
        tt_beat(s->world, NULL);
    }
}

/* --- what callers see ----------------------------------------------------------------------------- */

static void free_saving(tt_saving **saving, bool failed)
{
    tt_saving *s = *saving;
    if (s == NULL) {
        return;
    }
    end_act(s);
    if (failed && s->made && s->rank == 0) {
        unlink(s->part);
    }
    free(s->path);
    free(s->part);
    free(s->digest);
    free(s->place);
    free(s->sum);
    free(s->buffer);
    free(s);
    *saving = NULL;
}

/* Memory of a save. Local. */
static tt_code new_saving(tt_saving **saving, tt_world *world, const char *path,
                          const tt_state *state, const tt_save_how *how, tt_err *err)
{
    tt_saving *s = tt_alloc(1, sizeof *s, err);
    *saving = s;
    if (s == NULL) {
        return err->code;
    }
    s->world = world;
    s->rank = world != NULL ? world->rank : 0;
    s->ranks = world != NULL ? world->size : 1;
    s->state = *state;
    s->how = *how;
    if (s->how.fault == NULL) {
        s->how.fault = &no_fault;
    }
    s->path = tt_strdup(path, err);
    s->part = tt_part_path(path, err);
    s->digest = tt_alloc(2 * (int64_t)state->tensors, sizeof *s->digest, err);
    s->place = tt_alloc(state->tensors, sizeof *s->place, err);
    s->sum = tt_alloc(state->tensors, sizeof *s->sum, err);
    void *buffer = NULL;
    if (posix_memalign(&buffer, TT_PAGE, TT_CKPT_CHUNK * sizeof(float) + 2 * TT_PAGE) != 0) {
        return tt_fail(err, TT_EWORLD, "out of memory saving %s", path);
    }
    s->buffer = buffer;
    if (s->path == NULL || s->part == NULL || s->digest == NULL || s->place == NULL ||
        s->sum == NULL || s->buffer == NULL) {
        return err->code;
    }
    s->covered = s->digest + state->tensors;
    return TT_OK;
}

tt_code tt_saving_begin(tt_saving **saving, tt_world *world, const char *path,
                        const tt_state *state, const tt_save_how *how, tt_err *err)
{
    tt_code rc = TT_OK;
    const double start = tt_seconds();
    assert(!how->behind || how->room != NULL);
    *saving = NULL;
    tt_beat(world, "saving a checkpoint");
    TT_TRY(tt_agree(world, new_saving(saving, world, path, state, how, err), err));
    tt_saving *s = *saving;
    tt_fault_strike(s->how.fault, "before_save", s->rank, how->step);
    TT_TRY(add_pieces(s, err));
    s->times.begin = tt_seconds() - start;
    s->made = true;
    TT_TRY(tt_agree(world, s->rank == 0 ? tt_meta_make(s, err) : TT_OK, err));
    TT_TRY(tt_sum_i64(world, s->place, state->tensors, err)); /* zeros but of rank 0 */
    s->times.meta = tt_seconds() - start - s->times.begin;
    tt_fault_strike(s->how.fault, "part_made", s->rank, how->step);
    start_act(s, TT_ACT_WRITE);
out:
    if (rc != TT_OK) {
        free_saving(saving, true);
    }
    return rc;
}

bool tt_saving_busy(const tt_saving *saving)
{
    return saving != NULL && saving->busy;
}

/* All ranks have written and looked. Collective. */
static tt_code commit(tt_saving *s, tt_err *err)
{
    tt_code rc = TT_OK;
    const double start = tt_seconds();
    const bool looked = s->how.read_back;
    if (looked) {
        TT_TRY(tt_sum_u64(s->world, s->sum, s->state.tensors, err));
    }
    for (int i = 0; looked && i < s->state.tensors; i++) {
        if (s->sum[i] != s->digest[i]) {
            rc = tt_fail(err, TT_EWORLD, "cannot save %s: %s reads back with other values", s->path,
                         s->state.tensor[i].name);
            goto out;
        }
    }
    rc = s->rank == 0 && looked ? tt_meta_check(s, err) : TT_OK;
    tt_fault_strike(s->how.fault, "before_rename", s->rank, s->how.step);
    if (s->rank == 0 && rc == TT_OK) {
        rc = tt_commit_file(s->part, s->path, err);
        s->made = rc != TT_OK;
    }
    TT_TRY(tt_agree(s->world, rc, err));
    tt_fault_strike(s->how.fault, "after_rename", s->rank, s->how.step);
    s->times.commit = tt_seconds() - start;
    if (s->how.times != NULL) {
        *s->how.times = s->times;
    }
out:
    return rc;
}

tt_code tt_saving_next(tt_saving **saving, tt_err *err)
{
    tt_saving *s = *saving;
    tt_code rc = TT_OK;
    if (s == NULL) {
        return TT_OK;
    }
    end_act(s);
    if (s->own != TT_OK) {
        *err = s->why;
    }
    TT_TRY(tt_agree(s->world, s->own, err));
    if (s->act == TT_ACT_WRITE && s->how.read_back) {
        start_act(s, TT_ACT_LOOK);
        goto out;
    }
    TT_TRY(commit(s, err));
    free_saving(saving, false);
out:
    if (rc != TT_OK) {
        free_saving(saving, true);
    }
    return rc;
}

tt_code tt_saving_finish(tt_saving **saving, tt_err *err)
{
    tt_code rc = TT_OK;
    while (*saving != NULL && rc == TT_OK) {
        tt_beat((*saving)->world, "saving a checkpoint");
        rc = tt_saving_next(saving, err);
    }
    return rc;
}

void tt_saving_drop(tt_saving **saving)
{
    free_saving(saving, true);
}

tt_code tt_ckpt_save(tt_world *world, const char *path, const tt_state *state,
                     const tt_fault *fault, int64_t step, tt_err *err)
{
    tt_saving *saving;
    const tt_save_how how = {.read_back = true, .fault = fault, .step = step};
    const tt_code rc = tt_saving_begin(&saving, world, path, state, &how, err);
    return rc == TT_OK ? tt_saving_finish(&saving, err) : rc;
}
