/* network.h: what a collective takes, on paper: nodes of so many ranks, each node with one link.
 *
 * A message of n bytes between nodes takes latency + n / link seconds; within a node nothing but the
 * adding takes time, because memory is faster than links. Three ways to sum a vector of n bytes over p,
 * as MPI libraries have them (alpha: latency, beta: 1 / link, gamma: to add a byte to another):
 *
 *     doubling   log2 p rounds of the whole vector: log2 p (alpha + n beta + n gamma). Short vectors.
 *     halving    log2 p rounds of halves to scatter the sum, as many to gather it:
 *                2 log2 p alpha + 2 (p-1)/p n beta + (p-1)/p n gamma. Where p is no power of 2, some
 *                fold theirs into a neighbour's first and get it back last: 2 (alpha + n beta) more.
 *     ring       2 (p-1) steps of n/p: 2 (p-1) alpha + 2 (p-1)/p n beta + (p-1)/p n gamma.
 *
 * The cheapest is taken, as MPI libraries do. To gather is half of either; there libraries leave the
 * rounds to vectors of up to 512 KiB, and so does this. A sum is scattered by dist/reduce.c itself, each
 * piece straight to whose it is: the p - 1 messages and the bytes of half a ring. Not all calls are as
 * good: Open MPI's MPI_Iallreduce in place sends whole vectors up a tree, log2 p (alpha + n beta),
 * before anything comes back; `tutti bench allreduce` shows what a call is worth.
 *
 * Ranks of a node have one link. Placed node by node, a ring of all ranks passes it once each way, so
 * n bytes cross it, not N n; so it is in halving, which begins with neighbours: what is left to be sent
 * between nodes is n/N a rank. In doubling all N ranks send the whole vector at once. Where ranks of a
 * node share memory (`shared`) they add up there, and lanes of one rank a node carry n/N each: the same
 * bytes, but p is the number of nodes, not of ranks.
 *
 * Plain values. Next: train/forecast.h. */
#ifndef TUTTI_TRAIN_NETWORK_H
#define TUTTI_TRAIN_NETWORK_H

#include <stdbool.h>

typedef struct tt_network {
    int ranks, node_ranks; /* R; N of the fullest node */
    bool shared;           /* ranks of a node add up in shared memory */
    double latency;        /* alpha: seconds of a message between nodes, however short */
    double link;           /* bytes a second of a node, each way; beta is 1 / link */
    double sum;            /* gamma: seconds to add a byte of one vector to another's */
} tt_network;

typedef enum tt_way { TT_WAY_HOME, TT_WAY_DOUBLING, TT_WAY_HALVING, TT_WAY_RING } tt_way;
extern const char *const tt_way_names[]; /* HOME: nothing leaves the node */

int tt_network_nodes(const tt_network *network);

/* Seconds to sum a vector of so many bytes over all ranks; *way (NULL: not wanted) is how. */
double tt_network_allreduce(const tt_network *network, double bytes, tt_way *way);
/* Seconds after which each rank has its piece of the sum; the vector is of so many bytes. */
double tt_network_reduce_scatter(const tt_network *network, double bytes);
/* Seconds after which all ranks have the vector of so many bytes, of which each had a piece. */
double tt_network_allgather(const tt_network *network, double bytes);

#endif
