/* mpi_reduce.c: gradients are summed over ranks in every way there is, in the promised number of calls
 * and bytes. */
#include "dist_test.h"

#include "tutti/dist/reduce.h"

enum { ZERO_0, ZERO_1, ZERO_2, PIECES, KINDS }; /* PIECES: held in turn, sums apart */
enum { ROUNDS = 3, MOST = 64 };                 /* ranks of a node */

typedef struct summer {
    bed bed;
    int kind;
    bool fixed;
    void *of[MOST], *own;
    unsigned char *held;
    void *piece, *staging;
    tt_reduce reduce;
} summer;

static size_t size_of(const summer *s)
{
    return s->fixed ? sizeof(int64_t) : sizeof(float);
}

static void summer_open(summer *s, int64_t limit, int most, int kind, bool fixed, bool overlap)
{
    size_t staging;
    *s = (summer){.kind = kind, .fixed = fixed};
    bed_open(&s->bed, limit, most, kind != PIECES);
    const bed *b = &s->bed;
    ck_assert_int_le(b->node.size, MOST);
    s->held = bed_memory(&s->bed, tt_bytes(b->ring.elements, size_of(s)), false, s->of, &s->own);
    must(tt_reduce_staging(&staging, &b->node, &b->buckets, kind >= ZERO_2, size_of(s), &err_));
    must((s->staging = tt_alloc(tt_count(staging), 1, &err_)) ? TT_OK : TT_EWORLD);
    must((s->piece = tt_alloc(b->cut.elements, size_of(s), &err_)) ? TT_OK : TT_EWORLD);
    const tt_reduce_spec spec = {.node = &s->bed.node,
                                 .buckets = &b->buckets,
                                 .ring = &b->ring,
                                 .cut = &b->cut,
                                 .fixed = fixed,
                                 .scatter = kind >= ZERO_2,
                                 .all = kind == ZERO_0,
                                 .held = s->of,
                                 .piece = kind == PIECES ? s->piece : NULL,
                                 .staging = staging > 0 ? s->staging : NULL,
                                 .threads = 1,
                                 .overlap = overlap};
    must(tt_reduce_open(&s->reduce, &spec, &err_));
}

static void summer_close(summer *s)
{
    tt_reduce_close(&s->reduce);
    free(s->piece);
    free(s->staging);
    free(s->own);
    bed_close(&s->bed);
}

/* Gradient of rank r at element e in a round; the sum over ranks is exact in any order. */
static int64_t value(int r, int64_t e, int round)
{
    return (r + 1) * (e % 1021) - 7 * r + round;
}

static int64_t total(int64_t e, int round)
{
    int64_t sum = 0;
    for (int r = 0; r < W->size; r++) {
        sum += value(r, e, round);
    }
    return sum;
}

/* Integers of any size add up. */
static int64_t scaled(const summer *s, int64_t x)
{
    return s->fixed ? x * ((int64_t)1 << 40) : x;
}

static void put(const summer *s, void *array, int64_t at, int64_t x)
{
    if (s->fixed) {
        ((int64_t *)array)[at] = scaled(s, x);
    } else {
        ((float *)array)[at] = (float)x;
    }
}

static bool is(const summer *s, const void *array, int64_t at, int64_t x)
{
    return s->fixed ? ((const int64_t *)array)[at] == scaled(s, x)
                    : ((const float *)array)[at] == (float)x;
}

static int bucket_of(const summer *s, int64_t e)
{
    int b = 0;
    while (s->bed.buckets.bucket[b].range.end <= e) {
        b++;
    }
    return b;
}

/* A pass through the stages: each one's gradient is written just before it is announced, as backward
 * does; a bucket that went too early would sum what was there before. */
static void backward(summer *s, int round)
{
    const tt_ring *ring = &s->bed.ring;
    for (int stage = STAGES - 1; stage >= 0; stage--) {
        const tt_group_of_stages *group = &ring->group[ring->of_stage[stage]];
        if (s->kind == PIECES && stage == group->end_stage - 1) {
            must(tt_reduce_free_place(&s->reduce, ring->of_stage[stage], &err_));
            const int64_t length = group->range.end - group->range.first;
            memset(s->held + tt_bytes(group->at, size_of(s)), 0, tt_bytes(length, size_of(s)));
        }
        for (int64_t e = stage > 0 ? stage_end[stage - 1] : 0; e < stage_end[stage]; e++) {
            put(s, s->held, e - ring->shift[stage], value(W->rank, e, round));
        }
        must(tt_reduce_ready(&s->reduce, stage, &err_));
        must(tt_reduce_progress(&s->reduce, &err_));
    }
    must(tt_reduce_finish(&s->reduce, &err_));
}

/* What this rank needs is the sum. */
static void check_sums(const summer *s, int round, bool added)
{
    int64_t wrong = 0;
    for (int64_t e = 0; e < N; e++) {
        const int b = bucket_of(s, e);
        const tt_range mine = s->bed.cut.range[b];
        const bool own = e >= mine.first && e < mine.end;
        const int64_t sum = total(e, round) + (added ? total(e, round - 1) : 0);
        if (s->kind == PIECES && own) {
            wrong += !is(s, s->piece, s->bed.cut.local[b] + (e - mine.first), sum);
        } else if (s->kind == ZERO_0 || (own && s->kind != PIECES)) {
            wrong += !is(s, s->held, tt_ring_at(&s->bed.ring, b, e), sum);
        }
    }
    ck_assert(tt_all(wrong == 0));
}

static void check_all(int64_t limit, int most, int kind, bool fixed, bool overlap)
{
    summer s;
    summer_open(&s, limit, most, kind, fixed, overlap);
    for (int round = 0; round < ROUNDS; round++) {
        const tt_wire before = W->wire;
        const bool added = kind == PIECES && round == ROUNDS - 1;
        tt_reduce_begin(&s.reduce, added);
        backward(&s, round);
        check_sums(&s, round, added);
        const bool alone = W->size == 1;
        ck_assert(tt_all(W->wire.calls - before.calls == (alone ? 0 : s.bed.buckets.count)));
        ck_assert(tt_all(W->wire.bytes - before.bytes == (alone ? 0 : N * tt_count(size_of(&s)))));
        ck_assert(tt_all(W->wire.open == 0 && W->wire.exposed >= before.exposed));
        must(tt_barrier(W, &err_)); /* a step's agreement: before it nobody writes anew */
    }
    summer_close(&s);
}

START_TEST(sums_in_every_way)
{
    const int kind = _i % KINDS, most = shared[_i / KINDS];
    for (int i = 0; i < LIMITS; i++) { /* limit 64: every rank but the first has empty pieces */
        for (int overlap = 0; overlap < 2; overlap++) {
            check_all(limits[i], most, kind, (i + overlap) % 2 == 0, overlap);
        }
    }
}
END_TEST

/* A rank that has nothing to say still takes part. */
START_TEST(finish_alone_sums_all)
{
    for (int i = 0; i < SHARED; i++) {
        summer s;
        summer_open(&s, 700, shared[i], ZERO_1, false, true);
        for (int64_t e = 0; e < N; e++) {
            put(&s, s.held, e, value(W->rank, e, 0));
        }
        tt_reduce_begin(&s.reduce, false);
        must(tt_reduce_finish(&s.reduce, &err_));
        check_sums(&s, 0, false);
        summer_close(&s);
    }
}
END_TEST

/* The sums of pieces come in the order of ranks, whoever shares memory, also where rounding tells. */
START_TEST(order_of_sums_is_that_of_ranks)
{
    for (int most = 0; most < 2; most++) { /* all share; nobody does */
        summer s;
        summer_open(&s, 700, most, PIECES, false, true);
        const float mine = W->rank == 0 ? 1e8f : W->rank == 1 ? 3.0f : -5.0f;
        float sum = 1e8f;
        for (int r = 1; r < W->size; r++) {
            sum += r == 1 ? 3.0f : -5.0f;
        }
        tt_reduce_begin(&s.reduce, false);
        for (int stage = STAGES - 1; stage >= 0; stage--) {
            const tt_ring *ring = &s.bed.ring;
            const int g = ring->of_stage[stage];
            if (stage == ring->group[g].end_stage - 1) {
                must(tt_reduce_free_place(&s.reduce, g, &err_));
            }
            for (int64_t e = stage > 0 ? stage_end[stage - 1] : 0; e < stage_end[stage]; e++) {
                ((float *)(void *)s.held)[e - ring->shift[stage]] = mine;
            }
            must(tt_reduce_ready(&s.reduce, stage, &err_));
        }
        must(tt_reduce_finish(&s.reduce, &err_));
        int64_t wrong = 0;
        for (int64_t i = 0; i < s.bed.cut.elements; i++) {
            wrong += ((float *)s.piece)[i] != sum;
        }
        ck_assert(tt_all(wrong == 0));
        summer_close(&s);
    }
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("dist/reduce");
    TCase *tests = tcase_create("reduce");
    tcase_add_loop_test(tests, sums_in_every_way, 0, KINDS * SHARED);
    tcase_add_test(tests, finish_alone_sums_all);
    tcase_add_test(tests, order_of_sums_is_that_of_ranks);
    suite_add_tcase(suite, tests);
    return suite;
}

TT_MPI_TEST_MAIN(make_suite)
