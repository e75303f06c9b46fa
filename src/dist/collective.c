/* collective.c: one row a collective. See collective.h.
 *
 * A new one is a function and a row. In place is how the engine sums, because a second gradient would
 * be as large as the first; MPI libraries may know a faster way where there are two, so that is a row
 * of its own.
 *
 * Owns the requests of an exchange. Reads tt_buckets; next: cli/bench_allreduce.c. */
#include "tutti/dist/collective.h"

#include <assert.h>
#include <stdlib.h>

#include "dist/dist_impl.h"
#include "tutti/base/clock.h"
#include "tutti/base/memory.h"
#include "tutti/base/narrow.h"
#include "tutti/dist/reduce.h"

static int length(const tt_bucket *bucket)
{
    return tt_int(bucket->range.end - bucket->range.first);
}

static tt_code run_allreduce(tt_exchange *x, tt_err *err)
{
    tt_reduce reduce;
    tt_reduce_begin(&reduce, x->world, x->buckets, x->vector, NULL);
    return tt_reduce_finish(&reduce, err);
}

/* Starts one a bucket, from the last to the first as backward does, and waits for all. */
static tt_code start_all(tt_exchange *x, bool in_place, tt_err *err)
{
    tt_code rc = TT_OK;
    MPI_Request *request = x->requests;
    const double start = tt_seconds();
    for (int i = x->buckets->count - 1; i >= 0; i--) {
        const tt_bucket *bucket = &x->buckets->bucket[i];
        float *from = x->vector + bucket->range.first, *to = x->other + bucket->range.first;
        TT_TRY(tt_mpi_check(MPI_Iallreduce(in_place ? MPI_IN_PLACE : from, in_place ? from : to,
                                           length(bucket), MPI_FLOAT, MPI_SUM,
                                           tt_world_comm(x->world), &request[i]),
                            "MPI_Iallreduce", err));
    }
    TT_TRY(tt_mpi_check(MPI_Waitall(x->buckets->count, request, MPI_STATUSES_IGNORE), "MPI_Waitall",
                        err));
    for (int i = 0; i < x->buckets->count; i++) {
        const double since = i == 0 ? start : tt_seconds(); /* all of the time, once */
        tt_wire_add(x->world, tt_bytes(length(&x->buckets->bucket[i]), sizeof(float)), since);
    }
out:
    return rc;
}

static tt_code run_iallreduce(tt_exchange *x, tt_err *err)
{
    return start_all(x, true, err);
}

static tt_code run_iallreduce_apart(tt_exchange *x, tt_err *err)
{
    return start_all(x, false, err);
}

static tt_code run_reduce_scatter(tt_exchange *x, tt_err *err)
{
    tt_code rc = TT_OK;
    int *count = x->world->counts;
    for (int i = x->buckets->count - 1; i >= 0; i--) {
        const tt_bucket *bucket = &x->buckets->bucket[i];
        const int64_t first = bucket->range.first, n = length(bucket);
        for (int r = 0; r < x->world->size; r++) {
            const tt_range piece = tt_cut(n, r, x->world->size);
            count[r] = tt_int(piece.end - piece.first);
        }
        const int64_t mine = tt_cut(n, x->world->rank, x->world->size).first;
        const double start = tt_seconds();
        TT_TRY(tt_mpi_check(MPI_Reduce_scatter(x->vector + first, x->other + first + mine, count,
                                               MPI_FLOAT, MPI_SUM, tt_world_comm(x->world)),
                            "MPI_Reduce_scatter", err));
        tt_wire_add(x->world, tt_bytes(n, sizeof(float)), start);
    }
out:
    return rc;
}

static tt_code run_allgather(tt_exchange *x, tt_err *err)
{
    return tt_gather(x->world, x->buckets, x->vector, sizeof(float), err);
}

const tt_collective tt_collectives[TT_COLLECTIVES] = {
    {"MPI_Allreduce", run_allreduce, TT_SUMMED, 2},
    {"MPI_Iallreduce", run_iallreduce, TT_SUMMED, 2},
    {"MPI_Iallreduce, apart", run_iallreduce_apart, TT_APART, 2},
    {"MPI_Reduce_scatter", run_reduce_scatter, TT_PIECES, 1},
    {"MPI_Allgatherv", run_allgather, TT_GATHERED, 1},
};

tt_code tt_exchange_open(tt_exchange *x, tt_world *world, const tt_buckets *buckets, float *vector,
                         float *other, tt_err *err)
{
    *x = (tt_exchange){.world = world, .buckets = buckets, .vector = vector, .other = other};
    x->requests = tt_alloc(tt_max(1, buckets->count), sizeof(MPI_Request), err);
    return x->requests != NULL ? TT_OK : err->code;
}

void tt_exchange_close(tt_exchange *x)
{
    free(x->requests);
    *x = (tt_exchange){.world = NULL};
}

/* ---- what goes in, and what must come out ---- */

enum { VALUES = 32 }; /* so small that sums over 2^19 ranks are whole in FP32 */

static float value(int rank, int64_t element)
{
    return (float)((7 * element + 3 * (int64_t)rank) % VALUES);
}

void tt_collective_fill(const tt_collective *c, tt_exchange *x)
{
    const int rank = x->world->rank, R = x->world->size;
    for (int i = 0; i < x->buckets->count; i++) {
        const tt_range range = x->buckets->bucket[i].range;
        const tt_range piece = tt_cut(range.end - range.first, rank, R);
        for (int64_t e = range.first; e < range.end; e++) {
            const bool mine = e - range.first >= piece.first && e - range.first < piece.end;
            x->vector[e] = c->outcome != TT_GATHERED || mine ? value(rank, e) : -1;
            x->other[e] = -1;
        }
    }
}

int64_t tt_collective_wrong(const tt_collective *c, const tt_exchange *x)
{
    const int R = x->world->size, rank = x->world->rank;
    const float *result = c->outcome == TT_APART || c->outcome == TT_PIECES ? x->other : x->vector;
    float sum[VALUES] = {0}; /* of elements 0 to VALUES - 1, and so of all that differ by VALUES */
    int64_t wrong = 0;
    for (int e = 0; e < VALUES; e++) {
        for (int r = 0; r < R; r++) {
            sum[e] += value(r, e);
        }
    }
    for (int i = 0; i < x->buckets->count; i++) {
        const tt_range range = x->buckets->bucket[i].range;
        for (int r = 0; r < R; r++) {
            const tt_range piece = tt_cut(range.end - range.first, r, R);
            const bool other = c->outcome == TT_PIECES && r != rank;
            for (int64_t e = range.first + piece.first; e < range.first + piece.end; e++) {
                const float wanted = c->outcome == TT_GATHERED ? value(r, e)
                                     : other                   ? -1
                                                               : sum[e % VALUES];
                wrong += result[e] != wanted;
            }
        }
    }
    return wrong;
}
