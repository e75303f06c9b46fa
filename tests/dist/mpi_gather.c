/* mpi_gather.c: weights come to every rank in every way there is, when they are needed; and what is held
 * in part. */
#include "dist_test.h"

#include "tutti/dist/gather.h"

enum { MOST = 64 }; /* ranks of a node */

/* Byte k of the vector in a version. */
static unsigned char pattern(int64_t k, int version)
{
    return (unsigned char)(k * 31 + k / 251 + 5 + 17 * version);
}

typedef struct loader {
    bed bed;
    int64_t size;
    void *of[MOST], *own;
    unsigned char *held, *piece;
    tt_gather gather;
} loader;

static void loader_open(loader *l, int64_t limit, int most, bool whole, int64_t size, bool overlap)
{
    *l = (loader){.size = size};
    bed_open(&l->bed, limit, most, whole);
    const bed *b = &l->bed;
    l->held = bed_memory(&l->bed, tt_size(b->ring.elements * size), true, l->of, &l->own);
    must((l->piece = tt_alloc(b->cut.elements, tt_size(size), &err_)) ? TT_OK : TT_EWORLD);
    const tt_gather_spec spec = {.node = &l->bed.node,
                                 .buckets = &b->buckets,
                                 .ring = &b->ring,
                                 .cut = &b->cut,
                                 .size = tt_size(size),
                                 .held = l->held,
                                 .piece = whole ? NULL : l->piece,
                                 .exchange = true,
                                 .overlap = overlap};
    must(tt_gather_open(&l->gather, &spec, &err_));
}

static void loader_close(loader *l)
{
    tt_gather_close(&l->gather);
    free(l->piece);
    free(l->own);
    bed_close(&l->bed);
}

/* The update: this rank writes what it owns. */
static void write_pieces(loader *l, int version)
{
    const tt_shard *cut = &l->bed.cut;
    for (int b = 0; b < cut->count; b++) {
        for (int64_t e = cut->range[b].first; e < cut->range[b].end; e++) {
            unsigned char *to =
                l->bed.ring.whole ? l->held + e * l->size
                                  : l->piece + (cut->local[b] + e - cut->range[b].first) * l->size;
            for (int64_t k = 0; k < l->size; k++) {
                to[k] = pattern(e * l->size + k, version);
            }
        }
    }
}

/* A stage's weights are those of this version. */
static int64_t wrong_in(const loader *l, int stage, int version)
{
    int64_t wrong = 0;
    for (int64_t e = stage > 0 ? stage_end[stage - 1] : 0; e < stage_end[stage]; e++) {
        for (int64_t k = 0; k < l->size; k++) {
            const int64_t at = (e - l->bed.ring.shift[stage]) * l->size + k;
            wrong += l->held[at] != pattern(e * l->size + k, version);
        }
    }
    return wrong;
}

/* Comes to a stage, and is told what is next. Returns whether its group was fresh. */
static bool visit(loader *l, int stage, int next, int version)
{
    const tt_ring *ring = &l->bed.ring;
    const int group = ring->of_stage[stage];
    bool fresh, first;
    must(tt_gather_need(&l->gather, 0, &first, &err_));
    if (first) {
        must(tt_gather_packed(&l->gather, 0, &err_));
    }
    must(tt_gather_need(&l->gather, group, &fresh, &err_));
    if (fresh) {
        must(tt_gather_packed(&l->gather, group, &err_));
    }
    if (next >= 0 && !ring->whole) {
        must(tt_gather_ahead(&l->gather, ring->of_stage[next], group, &err_));
    }
    /* A tied head reads the first stage wherever it is. */
    ck_assert(tt_all(wrong_in(l, 0, version) == 0 && wrong_in(l, stage, version) == 0));
    must(tt_gather_progress(&l->gather, &err_));
    return fresh;
}

static void check_all(int64_t limit, int most, bool whole, int64_t size, bool overlap)
{
    loader l;
    loader_open(&l, limit, most, whole, size, overlap);
    for (int version = 1; version <= 3; version++) {
        const tt_wire before = W->wire;
        write_pieces(&l, version);
        must(tt_gather_begin(&l.gather, &err_));
        for (int s = 0; s < STAGES; s++) {
            visit(&l, s, s + 1 < STAGES ? s + 1 : s - 1, version);
        }
        const tt_wire forward = W->wire;
        if (whole && W->size > 1 && l.bed.node.count > 1) {
            ck_assert(tt_all(forward.calls - before.calls == l.bed.buckets.count));
            ck_assert(tt_all(forward.bytes - before.bytes == N * size));
        } else if (W->size == 1 || whole) { /* they are where they are needed */
            ck_assert(tt_all(forward.calls == before.calls));
        }
        for (int s = STAGES - 1; s >= 0; s--) {
            const bool fresh = visit(&l, s, s - 1, version);
            ck_assert(!whole || !fresh);
        }
        ck_assert(tt_all(!whole || W->wire.calls == forward.calls));
        must(tt_barrier(W, &err_)); /* a step's agreement: nobody reads any more */
    }
    ck_assert(tt_all(W->wire.open == 0));
    loader_close(&l);
}

START_TEST(comes_in_every_way)
{
    const bool whole = _i % 2 == 0;
    const int most = shared[_i / 2];
    for (int i = 0; i < LIMITS; i++) { /* limit 64: every rank but the first has empty pieces */
        for (int64_t size = 1; size <= 8; size *= 2) {
            check_all(limits[i], most, whole, size, size != 2);
        }
    }
}
END_TEST

/* Calls on their way are awaited before their memory goes. */
START_TEST(may_be_closed_on_the_way)
{
    for (int i = 0; i < SHARED; i++) {
        loader l;
        loader_open(&l, 700, shared[i], true, 4, true);
        write_pieces(&l, 1);
        must(tt_gather_begin(&l.gather, &err_));
        loader_close(&l);
    }
}
END_TEST

/* Some ranges of the vector, held one after another: begins and ends within buckets and pieces, whole
 * buckets, none of some. Elements are marked by where they lie in the flat vector. */
START_TEST(gathers_what_is_held)
{
    static tt_range range[] = {{3, 40}, {130, 131}, {990, 1100}, {1400, 1400}, {2000, 3500}};
    static int64_t local[] = {0, 37, 38, 148, 148};
    enum { HELD = 1648, RANGES = 5 };
    const tt_shard held = {.count = RANGES, .range = range, .local = local, .elements = HELD};
    ck_assert_int_eq(tt_shard_before(&held, 0), 0);
    ck_assert_int_eq(tt_shard_before(&held, 130), 37);
    ck_assert_int_eq(tt_shard_before(&held, 1000), 48);
    ck_assert_int_eq(tt_shard_before(&held, N), HELD);
    for (int i = 0; i < LIMITS; i++) {
        int32_t array[HELD + 1];
        bed b;
        bed_open(&b, limits[i], 1, true);
        memset(array, 0xff, sizeof array);
        for (int k = 0; k < b.cut.count; k++) {
            for (int64_t e = b.cut.range[k].first; e < b.cut.range[k].end; e++) {
                const int64_t at = tt_shard_before(&held, e);
                if (tt_shard_before(&held, e + 1) > at) {
                    array[at] = (int32_t)e;
                }
            }
        }
        int wanted = 0, wrong = 0;
        for (int k = 0; k < b.buckets.count; k++) {
            wanted += tt_shard_before(&held, b.buckets.bucket[k].range.end) >
                      tt_shard_before(&held, b.buckets.bucket[k].range.first);
        }
        const tt_wire before = W->wire;
        must(tt_gather_held(W, &b.buckets, &held, array, sizeof *array, &err_));
        for (int k = 0; k < RANGES; k++) {
            for (int64_t e = range[k].first; e < range[k].end; e++) {
                wrong += array[local[k] + e - range[k].first] != e;
            }
        }
        ck_assert(tt_all(wrong == 0 && array[HELD] == -1));
        const bool alone = W->size == 1;
        ck_assert(tt_all(W->wire.calls - before.calls == (alone ? 0 : wanted)));
        ck_assert(tt_all(W->wire.bytes - before.bytes == (alone ? 0 : (int64_t)sizeof array - 4)));
        bed_close(&b);
    }
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("dist/gather");
    TCase *tests = tcase_create("gather");
    tcase_add_loop_test(tests, comes_in_every_way, 0, 2 * SHARED);
    tcase_add_test(tests, may_be_closed_on_the_way);
    tcase_add_test(tests, gathers_what_is_held);
    suite_add_tcase(suite, tests);
    return suite;
}

TT_MPI_TEST_MAIN(make_suite)
