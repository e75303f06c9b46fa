/* collective.h: the collectives that a step is made of, one by one, bucket by bucket as the engine calls
 * them, for whoever measures them; and whether what they leave is right.
 *
 * Invariant: a vector filled by tt_collective_fill holds whole numbers whose sums FP32 holds exactly, so
 * that every wrong element is seen, in whatever order MPI added.
 *
 * Memory: vectors are the caller's; an exchange owns its requests, and a window where ranks share
 * memory. Reads tt_buckets; next: cli/bench_allreduce.c. */
#ifndef TUTTI_DIST_COLLECTIVE_H
#define TUTTI_DIST_COLLECTIVE_H

#include <stdbool.h>
#include <stdint.h>

#include "tutti/base/status.h"
#include "tutti/dist/cut.h"
#include "tutti/dist/world.h"

typedef struct tt_exchange {
    tt_world *world;            /* borrowed */
    const tt_buckets *buckets;  /* borrowed; they cover [0, n) */
    float *vector;              /* [n] borrowed: what a rank has */
    float *other;               /* [n] borrowed: what it gets, where that is not in place */
    void *requests;             /* MPI_Request [buckets], owned */
    struct tt_engines *engines; /* owned: the reductions of dist/reduce.h over these vectors */
} tt_exchange;

typedef enum tt_outcome {
    TT_SUMMED,   /* vector is the sum over ranks */
    TT_APART,    /* other is, and vector is what it was */
    TT_PIECES,   /* this rank's piece of each bucket of other is */
    TT_IN_PLACE, /* this rank's piece of each bucket of vector is */
    TT_GATHERED  /* vector is made of the pieces of all ranks */
} tt_outcome;

typedef struct tt_collective {
    const char *name;
    tt_code (*run)(tt_exchange *exchange, tt_err *err); /* collective */
    tt_outcome outcome;
    int trips;   /* each rank sends and gets (R-1)/R of the vector so many times, at least */
    bool window; /* vector is memory that ranks of a node share, in place of the exchange's own */
} tt_collective;

enum { TT_COLLECTIVES = 8 };
extern const tt_collective tt_collectives[TT_COLLECTIVES];

/* Collective. */
tt_code tt_exchange_open(tt_exchange *exchange, tt_world *world, const tt_buckets *buckets,
                         float *vector, float *other, tt_err *err);
void tt_exchange_close(tt_exchange *exchange); /* safe on a zeroed one; collective */
/* Can it be run? Not in a window where there is no room for one, or nobody to share it with. */
bool tt_collective_possible(const tt_collective *collective, const tt_exchange *exchange);

/* Where what it leaves is. */
float *tt_collective_result(const tt_collective *collective, const tt_exchange *exchange);

/* What this rank has before the collective. Local. */
void tt_collective_fill(const tt_collective *collective, tt_exchange *exchange);
/* Elements of this rank that are not what they should be after one run of it. Local. */
int64_t tt_collective_wrong(const tt_collective *collective, const tt_exchange *exchange);

#endif
