/* reduce.c: the two big collectives of a step: gradients are summed, updated weights gathered.
 *
 * Backward finishes stages in descending order, so buckets become ready from the end of the vector
 * to its start, in the same order on every rank. A bucket is one call; the limit that made the
 * buckets keeps each call small enough for MPI to work in memory it already has.
 *
 * Reads tt_buckets; writes the caller's vectors and world->wire. */
#include <assert.h>

#include "dist/dist_impl.h"
#include "tutti/base/clock.h"
#include "tutti/base/narrow.h"
#include "tutti/dist/reduce.h"

void tt_reduce_begin(tt_reduce *reduce, tt_world *world, const tt_buckets *buckets, float *sum,
                     int64_t *fixed)
{
    *reduce = (tt_reduce){
        .world = world, .buckets = buckets, .sum = sum, .fixed = fixed, .next = buckets->count - 1};
}

tt_code tt_reduce_ready(tt_reduce *reduce, int stage, tt_err *err)
{
    tt_code rc = TT_OK;
    for (; reduce->next >= 0; reduce->next--) {
        const tt_bucket *bucket = &reduce->buckets->bucket[reduce->next];
        if (bucket->last_stage < stage) {
            break;
        }
        const int64_t first = bucket->range.first;
        const int count = tt_int(bucket->range.end - first);
        if (reduce->fixed != NULL) {
            TT_TRY(tt_allreduce(reduce->world, reduce->fixed + first, count, sizeof(int64_t),
                                MPI_INT64_T, MPI_SUM, err));
        } else {
            TT_TRY(tt_allreduce(reduce->world, reduce->sum + first, count, sizeof(float), MPI_FLOAT,
                                MPI_SUM, err));
        }
    }
out:
    return rc;
}

tt_code tt_reduce_finish(tt_reduce *reduce, tt_err *err)
{
    return tt_reduce_ready(reduce, 0, err);
}

/* The MPI type that moves an element of `size` bytes without looking at it. */
static MPI_Datatype element_type(size_t size)
{
    assert(size == 1 || size == 2 || size == 4 || size == 8);
    return size == 1   ? MPI_UINT8_T
           : size == 2 ? MPI_UINT16_T
           : size == 4 ? MPI_UINT32_T
                       : MPI_UINT64_T;
}

/* Elements of an array before `flat`, one that holds the whole vector (held NULL) or ranges of it. */
static int64_t held_before(const tt_shard *held, int64_t flat)
{
    return held != NULL ? tt_shard_before(held, flat) : flat;
}

tt_code tt_gather_held(tt_world *world, const tt_buckets *buckets, const tt_shard *held,
                       void *array, size_t size, tt_err *err)
{
    if (tt_alone(world)) {
        return TT_OK;
    }
    tt_code rc = TT_OK;
    MPI_Datatype type = element_type(size);
    int *count = world->counts, *offset = world->counts + world->size;
    for (int i = 0; i < buckets->count; i++) {
        const tt_range bucket = buckets->bucket[i].range;
        const int64_t first = held_before(held, bucket.first);
        const int64_t n = held_before(held, bucket.end) - first;
        if (n == 0) {
            continue;
        }
        for (int r = 0; r < world->size; r++) {
            const tt_range piece = tt_cut(bucket.end - bucket.first, r, world->size);
            const int64_t begin = held_before(held, bucket.first + piece.first);
            count[r] = tt_int(held_before(held, bucket.first + piece.end) - begin);
            offset[r] = tt_int(begin - first);
        }
        unsigned char *at = (unsigned char *)array + tt_bytes(first, size);
        const double start = tt_seconds();
        TT_TRY(tt_mpi_check(MPI_Allgatherv(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, at, count, offset,
                                           type, tt_world_comm(world)),
                            "MPI_Allgatherv", err));
        tt_wire_add(world, tt_bytes(n, size), start);
    }
out:
    return rc;
}

tt_code tt_gather(tt_world *world, const tt_buckets *buckets, void *vector, size_t size,
                  tt_err *err)
{
    return tt_gather_held(world, buckets, NULL, vector, size, err);
}
