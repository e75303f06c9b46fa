/* dist_test.h: what tests of the engine share: ragged stages, cut in every way, on ranks that share
 * memory in every way. Values are integers that FP32 holds exactly, so equality is exact. */
#ifndef DIST_TEST_H
#define DIST_TEST_H

#define TT_MPI_TEST
#include "tt_test.h"

#include "tutti/base/memory.h"
#include "tutti/base/narrow.h"
#include "tutti/dist/cut.h"
#include "tutti/dist/node.h"
#include "tutti/dist/ring.h"

#define W (&tt_test_world)

#define must(call)                                           \
    do {                                                     \
        tt_err err_ = {TT_OK, ""};                           \
        const bool ok_ = (call) == TT_OK;                    \
        ck_assert_msg(tt_all(ok_), #call ": %s", err_.text); \
    } while (0)

enum { STAGES = 8, N = 5001 };
/* an empty stage, tiny ones, one that is divided */
static const int64_t stage_end[STAGES] = {1000, 1000, 1065, 1129, 1130, 1130, 5000, N};
static const int64_t limits[] = {64, 100, 700, 1300, 100000};
enum { LIMITS = sizeof limits / sizeof limits[0] };
/* ranks that share memory at most; 0: all. On 3 and 4 ranks 2 makes nodes of different sizes, and equal
 * ones. */
static const int shared[] = {1, 2, 3, 0};
enum { SHARED = sizeof shared / sizeof shared[0] };

/* One way to cut, hold and share. */
typedef struct bed {
    tt_node node;
    tt_buckets buckets;
    tt_shard cut;
    tt_ring ring;
} bed;

static inline void bed_open(bed *b, int64_t limit, int most, bool whole)
{
    must(tt_node_open(&b->node, W, most, &err_));
    must(tt_buckets_make(&b->buckets, stage_end, STAGES, limit, &err_));
    must(tt_shard_make(&b->cut, &b->buckets, true, W->rank, W->size, &err_));
    must(tt_ring_make(&b->ring, &b->buckets, stage_end, STAGES, whole, &err_));
}

static inline void bed_close(bed *b)
{
    tt_ring_free(&b->ring);
    tt_shard_free(&b->cut);
    tt_buckets_free(&b->buckets);
    tt_node_close(&b->node);
}

/* Memory that the ranks of a node see of each other, or of their own where nobody shares; of[n] out. */
static inline void *bed_memory(bed *b, size_t bytes, bool once, void **of, void **own)
{
    *own = NULL;
    if (b->node.size > 1) {
        must(tt_node_window(&b->node, bytes, once, of, &err_));
    } else {
        must((*own = of[0] = tt_alloc(tt_count(bytes), 1, &err_)) != NULL ? TT_OK : TT_EWORLD);
    }
    return of[b->node.rank];
}

#endif
