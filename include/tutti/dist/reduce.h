/* reduce.h: tutti. The gradient is summed over ranks, bucket by bucket, while backward goes on.
 *
 * A bucket is reduced once it is ready on this rank, and in the same order everywhere: from the end of
 * the vector to its start, as backward finishes stages. What happens to one:
 *
 *     ready     this rank's gradient of it is complete; the others of the node are told
 *     summed    when all of the node are ready: each adds up its share of the bucket over them
 *     sent      between nodes, each lane reduces its share: one MPI call
 *     arrived   the sums over all ranks are here; the others of the node are told
 *     done      and what this rank needs of their shares has been fetched
 *
 * Two kinds. ALL (ZeRO 0, 1): MPI_Iallreduce, or its blocking twin; what is needed is all of the bucket,
 * or this rank's piece. SCATTER (ZeRO 2, 3): each piece goes to its rank alone. Sums within a node are
 * made in the order of its ranks, those of pieces in the order of nodes.
 *
 * Nothing waits before tt_reduce_finish, except, without `overlap`, each bucket where it becomes ready,
 * and a place that must become free. Who waits goes on with what others may wait for.
 *
 * Collectivity: all ranks pass the same buckets in the same order; progress is anybody's. The first
 * error is kept and returned by every later call. Memory: the caller's, but for requests and staging.
 *
 * Reads gradients; writes sums; next: train/step.h. */
#ifndef TUTTI_DIST_REDUCE_H
#define TUTTI_DIST_REDUCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tutti/base/status.h"
#include "tutti/dist/cut.h"
#include "tutti/dist/node.h"
#include "tutti/dist/ring.h"

typedef struct tt_reduce_spec {
    tt_node *node; /* borrowed, as all here */
    const tt_buckets *buckets;
    const tt_ring *ring; /* how the gradient is held */
    const tt_shard *cut; /* this rank's piece of every bucket */
    bool fixed;          /* int64_t, else float */
    bool scatter;        /* else ALL */
    bool all;            /* of ALL: every rank needs all of it, else its piece */
    void *const *held;   /* [n] the held gradient of each rank of the node; own is [node->rank] */
    void *piece;         /* [cut->elements] where the sums of this rank's pieces go; NULL: to
                                * where the gradient is held */
    void *staging;       /* tt_reduce_staging bytes; NULL when that is 0 */
    int threads;         /* that add up */
    bool overlap;        /* else every bucket is awaited where it becomes ready */
    tt_meanwhile meanwhile; /* of a rank that waits here */
} tt_reduce_spec;

typedef struct tt_reduce {
    tt_reduce_spec spec;
    int ready, summed, arrived, done; /* buckets above it are; they go from the end */
    bool add;                         /* to what `piece` holds */
    uint64_t epoch;                   /* number of this reduction */
    bool *blocks;             /* [buckets] by MPI's blocking call, where there is one; owned */
    uint64_t *told;           /* [buckets] epoch in which it was last ready here; owned */
    struct tt_spread *spread; /* owned */
    void **from;              /* [n or M, the larger] owned: what a sum reads */
    tt_flags flags;           /* [2 buckets]: ready, read */
    void *requests;           /* MPI's, owned: see requests_of in reduce.c */
    int64_t sent, received;   /* elements of a bucket's part of staging */
    tt_err first;             /* error; TT_OK: none yet */
} tt_reduce;

/* *bytes of staging, where pieces come in from other nodes and go out to them. Local. */
tt_code tt_reduce_staging(size_t *bytes, const tt_node *node, const tt_buckets *buckets,
                          bool scatter, size_t size, tt_err *err);

/* Collective. */
tt_code tt_reduce_open(tt_reduce *reduce, const tt_reduce_spec *spec, tt_err *err);
void tt_reduce_close(tt_reduce *reduce);

/* Can a bucket be reduced by MPI's blocking call? Not in pieces, nor where ranks share memory. */
bool tt_reduce_may_block(const tt_reduce *reduce);

/* A reduction begins. add: its sums are added to those that `piece` holds. Local. */
void tt_reduce_begin(tt_reduce *reduce, bool add);
/* Stage and all above it are final on this rank. */
tt_code tt_reduce_ready(tt_reduce *reduce, int stage, tt_err *err);
/* Carries on what can be. */
tt_code tt_reduce_progress(tt_reduce *reduce, tt_err *err);
/* All that is left becomes ready; waits for all. Collective. */
tt_code tt_reduce_finish(tt_reduce *reduce, tt_err *err);
/* Waits until nobody reads any more what is held at the place of this group. */
tt_code tt_reduce_free_place(tt_reduce *reduce, int group, tt_err *err);

#endif
