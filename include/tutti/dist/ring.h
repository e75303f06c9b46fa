/* ring.h: which part of a flat vector is held at a time, and where it lies.
 *
 * A group is a run of stages that share buckets with each other and with no other stage: the unit in
 * which weights come and gradients go. Held whole, every group has a place of its own and the held
 * vector is the flat one. Held in turn, the first group keeps its place, as a tied head reads the
 * embeddings in the last stage and adds to their gradient there; of the others, neighbours take turns
 * in two places, so that one can be on its way while the other is in use.
 *
 * Invariant: arithmetic on ranges, the same on every rank; no MPI. */
#ifndef TUTTI_DIST_RING_H
#define TUTTI_DIST_RING_H

#include <stdbool.h>
#include <stdint.h>

#include "tutti/base/status.h"
#include "tutti/dist/cut.h"

enum { TT_TURNS = 2 }; /* places beside the first, when held in turn */

typedef struct tt_group_of_stages {
    tt_range range;               /* of the flat vector */
    int first_stage, end_stage;   /* [first, end) */
    int first_bucket, end_bucket; /* [first, end) */
    int place;                    /* groups of one place are never held together */
    int64_t at;                   /* where range.first lies in the held vector */
} tt_group_of_stages;

typedef struct tt_ring {
    int count;
    tt_group_of_stages *group; /* [count] ascending, owned */
    int stages;
    int *of_stage;    /* [stages] its group, owned */
    int *place;       /* [stages] its group's place, owned */
    int *of_bucket;   /* [buckets] its group, owned */
    int64_t *shift;   /* [stages] flat element e of the stage is held at e - shift, owned */
    int places;       /* count when whole */
    int64_t elements; /* length of the held vector */
    bool whole;
} tt_ring;

/* stage_end[stages] as for tt_buckets_make, which made `buckets`. */
tt_code tt_ring_make(tt_ring *ring, const tt_buckets *buckets, const int64_t *stage_end, int stages,
                     bool whole, tt_err *err);
void tt_ring_free(tt_ring *ring);

/* Where flat element `flat` of a bucket is held. */
static inline int64_t tt_ring_at(const tt_ring *ring, int bucket, int64_t flat)
{
    const tt_group_of_stages *group = &ring->group[ring->of_bucket[bucket]];
    return group->at + (flat - group->range.first);
}

#endif
