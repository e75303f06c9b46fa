/* node.h: ranks that share memory, as the engine sees them.
 *
 * The ranks of a node map the same windows of memory (MPI-3), so that among them weights need no
 * copies and gradients no messages. Between nodes talk lanes: of each node one rank stands for lane l,
 * the one with local index l modulo the node's ranks. Where nothing is shared every rank is a node by
 * itself, and there is one lane of all ranks: plain MPI is the case n = 1 of the same engine.
 *
 *     R ranks = M nodes of n ranks each, or fewer where a node is not full; lanes: the largest n
 *
 * What one rank of a node did is told to the others by flags: numbers in shared memory that only grow.
 * Who sets a flag has written what it announces; who has seen it may read that.
 *
 * Owns windows, communicators and tables. Reads tt_world; next: reduce.h, gather.h. */
#ifndef TUTTI_DIST_NODE_H
#define TUTTI_DIST_NODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tutti/base/status.h"
#include "tutti/dist/world.h"

/* Communicators are kept apart by purpose, as each lives in an order of calls of its own. */
typedef enum tt_lane_use { TT_LANE_REDUCE, TT_LANE_GATHER, TT_LANE_USES } tt_lane_use;

typedef struct tt_node {
    tt_world *world;            /* borrowed; NULL: one rank, or imagined */
    int world_rank, world_size; /* r, R */
    int rank, size;             /* this rank's index among those that share memory; how many, n */
    int index, count;           /* of this node; M */
    int lanes;                  /* the largest n */
    int full_lanes;             /* the smallest: lanes that every node has a rank of its own for */
    int *at;     /* [M, lanes] the rank of a node with that local index, -1: none; owned */
    void *comms; /* MPI's, owned: see node.c */
} tt_node;

/* At most `most` neighbouring ranks of a machine share memory, and are a node; 0: all of a machine, 1:
 * nobody shares. It is the same on all ranks. A NULL world is one rank. Collective; on failure it is
 * closed. */
tt_code tt_node_open(tt_node *node, tt_world *world, int most, tt_err *err);
/* Frees the windows too: nobody may use their memory any more. Safe on a zeroed or closed node.
 * Collective. */
void tt_node_close(tt_node *node);

/* The tables alone, of ranks that fill nodes of per_node one after another: what a plan needs. Local. */
tt_code tt_node_imagine(tt_node *node, int rank, int ranks, int per_node, tt_err *err);

/* Memory that all ranks of the node map: `once`: one piece for all of them, else one each. of[n] out:
 * where this rank sees each rank's piece (once: the same for all). Zeroed, page-aligned, the node's
 * until it is closed. bytes are the same on all ranks of a node. Only where n > 1. Collective. */
tt_code tt_node_window(tt_node *node, size_t bytes, bool once, void **of, tt_err *err);

/* TT_OK when the file system of the windows has room for `bytes` of each rank of this node and
 * once_bytes for all of them together; else a sentence that says how to get it, the same on all ranks.
 * Collective. */
tt_code tt_node_room(tt_node *node, size_t bytes, size_t once_bytes, tt_err *err);

/* The rank that is local index l of node m; -1: there is none. */
static inline int tt_node_at(const tt_node *node, int m, int lane)
{
    return node->at[m * node->lanes + lane];
}

/* Does this rank stand for the lane? */
static inline bool tt_node_stands(const tt_node *node, int lane)
{
    return lane % node->size == node->rank;
}

/* [count] numbers of each rank of a node, 0 at first. */
typedef struct tt_flags {
    const tt_node *node; /* borrowed */
    uint64_t **of;       /* [n] owned, pieces of a window, or the rank's own array */
    uint64_t *own;       /* owned when nothing is shared */
} tt_flags;

/* Collective. */
tt_code tt_flags_open(tt_flags *flags, tt_node *node, int count, tt_err *err);
void tt_flags_close(tt_flags *flags);
/* This rank's number i, which may not fall: what was written before is seen by who sees it. */
void tt_flags_set(const tt_flags *flags, int i, uint64_t value);
/* Is number i of every rank of the node at least `value`? */
bool tt_flags_all(const tt_flags *flags, int i, uint64_t value);

/* What else a rank carries on while it waits for others, who may wait for that. NULL: nothing. */
typedef struct tt_meanwhile {
    void (*carry_on)(void *user);
    void *user;
} tt_meanwhile;

static inline void tt_meanwhile_do(const tt_meanwhile *meanwhile)
{
    if (meanwhile->carry_on != NULL) {
        meanwhile->carry_on(meanwhile->user);
    }
}

/* A moment's pause while waiting for others; *turns counts them, 0 at first. */
void tt_relax(int *turns);

#endif
