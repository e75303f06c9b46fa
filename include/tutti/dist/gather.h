/* gather.h: updated weights come to every rank, group by group, while the next forward goes on.
 *
 * A load brings one group (dist/ring.h) to its place: each rank puts its own pieces there, and lanes
 * exchange them between nodes. Held whole, every group is loaded once an update, in the order in which
 * forward will want them. Held in turn (ZeRO 3), a group is loaded when a pass comes to it, and the
 * next one ahead of time into the other place. Loads have numbers and begin in the same order on every
 * rank.
 *
 * What is loaded may have to be packed before matmuls read it; ranks that share it deal that among
 * themselves, and tell each other when they are done.
 *
 * Invariants: a load begins to write at its place when all ranks of the node have given up what was
 * there; nobody reads weights between an update's begin and tt_gather_begin, as a step's agreement
 * (train/step.c) comes before the update on every rank.
 *
 * Collectivity: all ranks ask for the same groups in the same order. The first error is kept.
 *
 * Reads pieces; writes the held vector; next: train/tutti.c. */
#ifndef TUTTI_DIST_GATHER_H
#define TUTTI_DIST_GATHER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tutti/base/status.h"
#include "tutti/dist/cut.h"
#include "tutti/dist/node.h"
#include "tutti/dist/ring.h"

typedef struct tt_gather_spec {
    tt_node *node; /* borrowed, as all here */
    const tt_buckets *buckets;
    const tt_ring *ring;    /* how weights are held */
    const tt_shard *cut;    /* this rank's piece of every bucket */
    size_t size;            /* bytes of an element: 1, 2, 4 or 8 */
    void *held;             /* [ring->elements] of the node where n > 1, else of the rank */
    const void *piece;      /* [cut->elements] this rank's; NULL: they lie in `held` */
    bool exchange;          /* false: every rank has written all of it */
    bool overlap;           /* else loads are awaited where they begin, and none begins ahead */
    tt_meanwhile meanwhile; /* of a rank that waits here */
} tt_gather_spec;

typedef struct tt_berth {
    int group;       /* -1: none yet */
    uint64_t load;   /* number of the load that it holds or waits for; 0: none */
    uint64_t before; /* of the load that was there before */
    uint64_t version;
    enum { TT_PLACE_WAITS, TT_PLACE_MOVES, TT_PLACE_HERE } state;
    bool packed;
} tt_berth;

typedef struct tt_gather {
    tt_gather_spec spec;
    uint64_t loads, version;  /* numbers of the last load and of the last update */
    uint64_t started;         /* loads up to this one have begun */
    int open;                 /* loads that are not here */
    tt_berth *place;          /* [ring->places] owned */
    tt_flags flags;           /* [3 places]: here, given up, packed */
    struct tt_spread *spread; /* owned */
    void *requests;           /* MPI's, owned: [buckets][lanes this rank stands for] */
    tt_err first;             /* error; TT_OK: none yet */
} tt_gather;

/* Collective. */
tt_code tt_gather_open(tt_gather *gather, const tt_gather_spec *spec, tt_err *err);
void tt_gather_close(tt_gather *gather);

/* This rank has written its pieces of new weights, and nobody reads the old ones any more. */
tt_code tt_gather_begin(tt_gather *gather, tt_err *err);
/* Carries on what can be. */
tt_code tt_gather_progress(tt_gather *gather, tt_err *err);
/* Returns when the group is at its place; *fresh: it has not been packed since it came. */
tt_code tt_gather_need(tt_gather *gather, int group, bool *fresh, tt_err *err);
/* This rank has packed its share of a fresh group; returns when the node has packed all. */
tt_code tt_gather_packed(tt_gather *gather, int group, tt_err *err);
/* The group will be needed after `now`: its load may begin if there is a place. */
tt_code tt_gather_ahead(tt_gather *gather, int group, int now, tt_err *err);

/* How many ranks pack what is loaded, and which of them this one is. */
static inline int tt_gather_sharers(const tt_gather *gather)
{
    return gather->spec.exchange ? gather->spec.node->size : 1;
}

static inline int tt_gather_share(const tt_gather *gather)
{
    return gather->spec.exchange ? gather->spec.node->rank : 0;
}

/* Every rank holds its piece of every bucket of an array that holds only some ranges of the flat
 * vector, one after another; afterwards all hold all. One MPI_Allgatherv a bucket, none where nothing
 * is held. Elements of 1, 2, 4 or 8 bytes. Collective. */
tt_code tt_gather_held(tt_world *world, const tt_buckets *buckets, const tt_shard *held,
                       void *array, size_t size, tt_err *err);

#endif
