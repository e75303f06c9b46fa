/* reduce.h: tutti. The gradient is summed over ranks, the updated weights are gathered.
 *
 * tt_reduce_ready is what on_grad_ready leads to in the final micro-batch: it reduces every bucket
 * whose last stage is done, one MPI_Allreduce per bucket, at most `limit` elements a call (large
 * calls make Open MPI allocate and fault in temporaries). Blocking today; tt_reduce_finish is where
 * outstanding work will be awaited.
 *
 * Collectivity: all ranks make the same calls in the same order. */
#ifndef TUTTI_DIST_REDUCE_H
#define TUTTI_DIST_REDUCE_H

#include <stddef.h>
#include <stdint.h>

#include "tutti/base/status.h"
#include "tutti/dist/cut.h"
#include "tutti/dist/world.h"

typedef struct tt_reduce {
    tt_world *world;           /* borrowed */
    const tt_buckets *buckets; /* borrowed */
    float *sum;                /* [N] borrowed, reduced in place; or NULL */
    int64_t *fixed;            /* the same, when the gradient is fixed point */
    int next;                  /* buckets next+1.. are already reduced (they go from the end) */
} tt_reduce;

/* One of sum and fixed; the other is NULL. Integers wrap around: that no sum can is the caller's care
 * (numerics/fixed.h). */
void tt_reduce_begin(tt_reduce *reduce, tt_world *world, const tt_buckets *buckets, float *sum,
                     int64_t *fixed);
/* Stage and all above it are final on this rank: reduces what has become ready. Collective. */
tt_code tt_reduce_ready(tt_reduce *reduce, int stage, tt_err *err);
/* Reduces what is left and waits for all. Collective. */
tt_code tt_reduce_finish(tt_reduce *reduce, tt_err *err);

/* Every rank holds its piece of every bucket of vector[N] (elements of 1, 2, 4 or 8 bytes); afterwards
 * all hold all. One MPI_Allgatherv per bucket. Collective. */
tt_code tt_gather(tt_world *world, const tt_buckets *buckets, void *vector, size_t size,
                  tt_err *err);
/* The same of an array that holds only some ranges of the flat vector, one after another: of each bucket
 * what is held of it, no call where that is nothing. Collective. */
tt_code tt_gather_held(tt_world *world, const tt_buckets *buckets, const tt_shard *held,
                       void *array, size_t size, tt_err *err);

#endif
