/* trial.c: see trial.h. What is computed meanwhile is slept through: what a thread beside it takes from
 * real layers is not seen, and is little (poke.h). */
#include "tutti/dist/trial.h"

#include <math.h>
#include <time.h>

#include "dist/dist_impl.h"
#include "tutti/base/clock.h"
#include "tutti/base/narrow.h"

enum { TIMES = 3, LAYERS = 12 };  /* medians of so many; calls while a block goes backward */
static const double enough = 0.2; /* seconds of computing that a trial sleeps through at most */

typedef struct bucket {
    void *data;
    int count;
    size_t size;
    MPI_Datatype type;
    MPI_Comm lane;
} bucket;

static bucket bucket_of(const tt_reduce *r, int b)
{
    const tt_range range = r->spec.buckets->bucket[b].range;
    const size_t size = r->spec.fixed ? sizeof(int64_t) : sizeof(float);
    const int64_t at = tt_ring_at(r->spec.ring, b, range.first);
    return (bucket){.data = (unsigned char *)r->spec.held[0] + tt_bytes(at, size),
                    .count = tt_int(range.end - range.first),
                    .size = size,
                    .type = r->spec.fixed ? MPI_INT64_T : MPI_FLOAT,
                    .lane = tt_node_lane(r->spec.node, TT_LANE_REDUCE, 0)};
}

static void compute(double seconds)
{
    const struct timespec time = {.tv_sec = (time_t)seconds,
                                  .tv_nsec = (long)(1e9 * fmod(seconds, 1))};
    nanosleep(&time, NULL);
}

static tt_code blocking(const bucket *k, double *seconds, tt_err *err)
{
    const double start = tt_seconds();
    const tt_code rc =
        tt_mpi_check(MPI_Allreduce(MPI_IN_PLACE, k->data, k->count, k->type, MPI_SUM, k->lane),
                     "MPI_Allreduce", err);
    *seconds = tt_seconds() - start;
    return rc;
}

/* With `beside` seconds of computing after its beginning. */
static tt_code overlapped(tt_world *world, const bucket *k, double beside, double *seconds,
                          tt_err *err)
{
    tt_code rc = TT_OK;
    MPI_Request request;
    int done = 0;
    double start = tt_seconds();
    tt_wire_launch(world, tt_bytes(k->count, k->size));
    TT_TRY(tt_mpi_check(
        MPI_Iallreduce(MPI_IN_PLACE, k->data, k->count, k->type, MPI_SUM, k->lane, &request),
        "MPI_Iallreduce", err));
    *seconds = tt_seconds() - start;
    for (int i = 0; i < LAYERS && beside > 0; i++) {
        compute(beside / LAYERS);
        start = tt_seconds();
        TT_TRY(tt_mpi_check(MPI_Test(&request, &done, MPI_STATUS_IGNORE), "MPI_Test", err));
        *seconds += tt_seconds() - start;
    }
    start = tt_seconds();
    TT_TRY(tt_mpi_check(MPI_Wait(&request, MPI_STATUS_IGNORE), "MPI_Wait", err));
    *seconds += tt_seconds() - start;
    tt_wire_land(world);
out:
    return rc;
}

static tt_code try_bucket(tt_reduce *r, int b, double beside, tt_held_up *up, tt_err *err)
{
    tt_code rc = TT_OK;
    tt_world *world = r->spec.node->world;
    const bucket k = bucket_of(r, b);
    double block[TIMES], overlap[TIMES], both[2];
    for (int i = 0; i < TIMES; i++) {
        TT_TRY(tt_barrier(world, err));
        const char *outer = tt_wait_begin(world, "MPI_Allreduce");
        rc = blocking(&k, &block[i], err);
        tt_wait_end(world, outer);
        TT_TRY(rc);
        TT_TRY(tt_barrier(world, err));
        outer = tt_wait_begin(world, "MPI_Iallreduce");
        rc = overlapped(world, &k, fmin(beside, enough), &overlap[i], err);
        tt_wait_end(world, outer);
        TT_TRY(rc);
    }
    both[0] = tt_median(block, TIMES);
    both[1] = tt_median(overlap, TIMES);
    TT_TRY(tt_max_f64(world, both, 2, err));
    *up = (tt_held_up){.elements = k.count, .blocking = both[0], .overlap = both[1]};
out:
    return rc;
}

/* The largest bucket with layers left behind it, or with none; -1: there is none. */
static int largest(const tt_buckets *buckets, bool early)
{
    int found = -1;
    int64_t most = 0;
    for (int b = 0; b < buckets->count; b++) {
        const tt_range range = buckets->bucket[b].range;
        if (early == (buckets->bucket[b].last_stage > 0) && range.end - range.first > most) {
            most = range.end - range.first;
            found = b;
        }
    }
    return found;
}

tt_code tt_reduce_try(tt_reduce *r, double seconds, tt_trial *trial, tt_err *err)
{
    tt_code rc = TT_OK;
    const tt_buckets *buckets = r->spec.buckets;
    const int early = largest(buckets, true), last = largest(buckets, false);
    double all = seconds; /* of the fastest rank: it has least to hide behind */
    *trial = (tt_trial){.blocks = 0};
    all = -all;
    TT_TRY(tt_max_f64(r->spec.node->world, &all, 1, err));
    all = -all;
    if (early >= 0) {
        const tt_range range = buckets->bucket[early].range;
        const double beside = all * (double)(range.end - range.first);
        TT_TRY(try_bucket(r, early, beside, &trial->early, err));
    }
    if (last >= 0) {
        TT_TRY(try_bucket(r, last, 0, &trial->last, err));
    }
    for (int b = 0; b < buckets->count; b++) {
        const tt_held_up *up = buckets->bucket[b].last_stage > 0 ? &trial->early : &trial->last;
        r->blocks[b] = up->blocking < up->overlap;
        trial->blocks += r->blocks[b];
    }
out:
    return rc;
}
