/* spread.h: how the pieces of a bucket lie for the lanes that this rank stands for, in the form in which
 * MPI's calls want it. Nonblocking calls read these arrays until they are done, so they are made once;
 * buckets of one length share them.
 *
 * Owns its arrays. Reads tt_node and buckets; next: reduce.c, gather.c. */
#ifndef TUTTI_DIST_SPREAD_H
#define TUTTI_DIST_SPREAD_H

#include <stdint.h>

#include "tutti/base/status.h"
#include "tutti/dist/cut.h"
#include "tutti/dist/node.h"

typedef struct tt_spread {
    int nodes, stood; /* M; lanes that this rank stands for */
    int *lane;        /* [stood] ascending; the first is this rank's own */
    int *like;        /* [buckets] of which arrays */
    int *count;       /* [lengths][stood][M] elements of the piece of that node's rank, 0: none */
    int *offset;      /* the same, of its first element in the bucket */
    int64_t *share;   /* [lengths] elements of all pieces of these lanes */
} tt_spread;

/* Local. */
tt_code tt_spread_make(tt_spread *spread, const tt_node *node, const tt_buckets *buckets,
                       tt_err *err);
void tt_spread_free(tt_spread *spread);

/* [M] of bucket b and the i-th lane. */
static inline const int *tt_spread_counts(const tt_spread *s, int b, int i)
{
    return s->count + ((int64_t)s->like[b] * s->stood + i) * s->nodes;
}

static inline const int *tt_spread_offsets(const tt_spread *s, int b, int i)
{
    return s->offset + ((int64_t)s->like[b] * s->stood + i) * s->nodes;
}

#endif
