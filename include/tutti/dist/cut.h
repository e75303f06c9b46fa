/* cut.h: ZeRO by cut, not by divisibility; and the buckets that are cut.
 *
 * The flat parameter vector [0, N) is covered by buckets: consecutive ranges of at most `limit`
 * elements, each within consecutive stages (a stage is what the model finishes at once in backward:
 * the embeddings, a block, the final norm), small neighbours merged up to the limit, larger stages
 * divided. Piece r of a bucket is cut(n, r, R): TT_CUT-aligned, any n and R, empty pieces allowed.
 * Rank r owns piece r of every bucket.
 *
 * Invariants: buckets are disjoint, ascending, cover [0, N); pieces of one bucket likewise; nothing
 * here depends on anything but its arguments. */
#ifndef TUTTI_DIST_CUT_H
#define TUTTI_DIST_CUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tutti/base/status.h"

enum { TT_CUT = 64 }; /* elements */

typedef struct tt_range {
    int64_t first, end; /* [first, end) */
} tt_range;

/* Piece r of [0, n) for R ranks. */
tt_range tt_cut(int64_t n, int r, int R);

typedef struct tt_bucket {
    tt_range range; /* of the flat vector */
    int last_stage; /* the stage whose gradient arrives last in backward: the lowest it touches */
} tt_bucket;

typedef struct tt_buckets {
    int count;
    tt_bucket *bucket; /* [count], owned */
} tt_buckets;

/* Elements of `bytes` each in so many 10^6 bytes. */
int64_t tt_bucket_elements(double megabytes, size_t bytes);

/* stage_end[stages] are the ascending ends of the stages in the flat vector; the last is N. limit in
 * elements, >= TT_CUT, rounded down to TT_CUT. Stages may be empty; so may the vector. */
tt_code tt_buckets_make(tt_buckets *buckets, const int64_t *stage_end, int stages, int64_t limit,
                        tt_err *err);
void tt_buckets_free(tt_buckets *buckets);

/* Ranges of the flat vector that are held in arrays of their own, and where. As tt_shard_make makes it,
 * what a rank holds of the optimizer's state: one range per bucket, every bucket whole (ZeRO 0), local
 * offset = flat offset, or its pieces, one after another. */
typedef struct tt_shard {
    int count;
    tt_range *range;  /* [count], ascending, may be empty, owned */
    int64_t *local;   /* [count] offset of range[i].first in those arrays, ascending, owned */
    int64_t elements; /* length of those arrays */
} tt_shard;

tt_code tt_shard_make(tt_shard *shard, const tt_buckets *buckets, bool pieces, int rank, int ranks,
                      tt_err *err);
void tt_shard_free(tt_shard *shard);

/* How many elements of the shard come before element `flat` of the flat vector. */
int64_t tt_shard_before(const tt_shard *shard, int64_t flat);

#endif
