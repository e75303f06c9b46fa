/* collective.h: the collectives that a step is made of, one by one, bucket by bucket as the engine calls
 * them, for whoever measures them; and whether what they leave is right.
 *
 * Invariant: a vector filled by tt_collective_fill holds whole numbers whose sums FP32 holds exactly, so
 * that every wrong element is seen, in whatever order MPI added.
 *
 * Memory: vectors are the caller's, an exchange owns its requests. Reads tt_buckets; next:
 * cli/bench_allreduce.c. */
#ifndef TUTTI_DIST_COLLECTIVE_H
#define TUTTI_DIST_COLLECTIVE_H

#include <stdint.h>

#include "tutti/base/status.h"
#include "tutti/dist/cut.h"
#include "tutti/dist/world.h"

typedef struct tt_exchange {
    tt_world *world;           /* borrowed */
    const tt_buckets *buckets; /* borrowed; they cover [0, n) */
    float *vector;             /* [n] borrowed: what a rank has */
    float *other;              /* [n] borrowed: what it gets, where that is not in place */
    void *requests;            /* MPI_Request [buckets], owned */
} tt_exchange;

typedef enum tt_outcome {
    TT_SUMMED,  /* vector is the sum over ranks */
    TT_APART,   /* other is, and vector is what it was */
    TT_PIECES,  /* this rank's piece of each bucket of other is */
    TT_GATHERED /* vector is made of the pieces of all ranks */
} tt_outcome;

typedef struct tt_collective {
    const char *name;
    tt_code (*run)(tt_exchange *exchange, tt_err *err); /* collective */
    tt_outcome outcome;
    int trips; /* each rank sends and gets (R-1)/R of the vector so many times, at least */
} tt_collective;

enum { TT_COLLECTIVES = 5 };
extern const tt_collective tt_collectives[TT_COLLECTIVES];

tt_code tt_exchange_open(tt_exchange *exchange, tt_world *world, const tt_buckets *buckets,
                         float *vector, float *other, tt_err *err);
void tt_exchange_close(tt_exchange *exchange); /* safe on a zeroed one */

/* What this rank has before the collective. Local. */
void tt_collective_fill(const tt_collective *collective, tt_exchange *exchange);
/* Elements of this rank that are not what they should be after one run of it. Local. */
int64_t tt_collective_wrong(const tt_collective *collective, const tt_exchange *exchange);

#endif
