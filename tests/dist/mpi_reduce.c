/* mpi_reduce.c: gradients are summed, weights gathered, in the right order, in the promised number
 * of calls and bytes. Values are integers that FP32 holds exactly, so equality is exact. */
#define TT_MPI_TEST
#include "tt_test.h"

#include "tutti/dist/reduce.h"

#define W (&tt_test_world)

enum { STAGES = 8, N = 5001 };
/* ragged: an empty stage, tiny ones, one that is divided */
static const int64_t stage_end[STAGES] = {1000, 1000, 1065, 1129, 1130, 1130, 5000, N};
static const int64_t limits[] = {64, 100, 700, 1300, 100000};
enum { LIMITS = sizeof limits / sizeof limits[0] };

static tt_buckets buckets;

static void make(int64_t limit)
{
    tt_err err;
    ck_assert(tt_all(tt_buckets_make(&buckets, stage_end, STAGES, limit, &err) == TT_OK));
}

/* Gradient of rank r at element e; the sum over ranks is exact in any order. */
static float value(int r, int64_t e)
{
    return (float)((r + 1) * (e % 1021) - 7 * r);
}

static float total(int64_t e)
{
    float sum = 0;
    for (int r = 0; r < W->size; r++) {
        sum += value(r, e);
    }
    return sum;
}

START_TEST(sums_every_element)
{
    for (int i = 0; i < LIMITS; i++) {
        make(limits[i]);
        static float g[N + 1];
        for (int64_t e = 0; e < N; e++) {
            g[e] = value(W->rank, e);
        }
        g[N] = 42; /* beyond the end: not ours */
        tt_err err;
        tt_reduce reduce;
        tt_wire before = W->wire;
        tt_reduce_begin(&reduce, W, &buckets, g, NULL);
        for (int s = STAGES - 1; s >= 0; s--) {
            ck_assert(tt_all(tt_reduce_ready(&reduce, s, &err) == TT_OK));
        }
        ck_assert(tt_all(reduce.next == -1));
        ck_assert(tt_all(tt_reduce_finish(&reduce, &err) == TT_OK));
        int64_t wrong = 0;
        for (int64_t e = 0; e < N; e++) {
            wrong += g[e] != total(e);
        }
        ck_assert(tt_all(wrong == 0 && g[N] == 42));
        bool alone = W->size == 1;
        ck_assert(tt_all(W->wire.calls - before.calls == (alone ? 0 : buckets.count)));
        ck_assert(tt_all(W->wire.bytes - before.bytes == (alone ? 0 : 4 * N)));
        tt_buckets_free(&buckets);
    }
}
END_TEST

START_TEST(finish_alone_sums_all)
{
    make(700);
    static float g[N];
    for (int64_t e = 0; e < N; e++) {
        g[e] = value(W->rank, e);
    }
    tt_err err;
    tt_reduce reduce;
    tt_reduce_begin(&reduce, W, &buckets, g, NULL);
    ck_assert(tt_all(tt_reduce_finish(&reduce, &err) == TT_OK));
    int64_t wrong = 0;
    for (int64_t e = 0; e < N; e++) {
        wrong += g[e] != total(e);
    }
    ck_assert(tt_all(wrong == 0));
    tt_buckets_free(&buckets);
}
END_TEST

/* Fixed point: integers of any size add up, in as many calls, of twice the bytes. */
START_TEST(integers_are_summed)
{
    const int64_t big = (int64_t)1 << 55;
    make(700);
    static int64_t q[N];
    for (int64_t e = 0; e < N; e++) {
        q[e] = (e % 2 == 0 ? big : -big) + e * (W->rank + 1);
    }
    tt_err err;
    tt_reduce reduce;
    tt_wire before = W->wire;
    tt_reduce_begin(&reduce, W, &buckets, NULL, q);
    ck_assert(tt_all(tt_reduce_finish(&reduce, &err) == TT_OK));
    int64_t wrong = 0, R = W->size;
    for (int64_t e = 0; e < N; e++) {
        wrong += q[e] != R * (e % 2 == 0 ? big : -big) + e * (R * (R + 1) / 2);
    }
    ck_assert(tt_all(wrong == 0));
    ck_assert(tt_all(W->wire.calls - before.calls == (R == 1 ? 0 : buckets.count)));
    ck_assert(tt_all(W->wire.bytes - before.bytes == (R == 1 ? 0 : 8 * N)));
    tt_buckets_free(&buckets);
}
END_TEST

START_TEST(reduces_only_what_is_final)
{
    /* Each stage's gradient is written just before it is announced, as backward does; a bucket that
     * went too early would have summed the zeros. What is announced and whole is summed at once. */
    for (int i = 0; i < LIMITS; i++) {
        make(limits[i]);
        static float g[N];
        memset(g, 0, sizeof g);
        tt_err err;
        tt_reduce reduce;
        tt_reduce_begin(&reduce, W, &buckets, g, NULL);
        for (int s = STAGES - 1; s >= 0; s--) {
            for (int64_t e = s > 0 ? stage_end[s - 1] : 0; e < stage_end[s]; e++) {
                g[e] = value(W->rank, e);
            }
            ck_assert(tt_all(tt_reduce_ready(&reduce, s, &err) == TT_OK));
            int64_t wrong = 0;
            int left = 0;
            for (int b = 0; b < buckets.count; b++) {
                bool done = buckets.bucket[b].last_stage >= s;
                left += !done;
                for (int64_t e = buckets.bucket[b].range.first; e < buckets.bucket[b].range.end;
                     e++) {
                    bool written = e >= (s > 0 ? stage_end[s - 1] : 0);
                    wrong += g[e] != (done ? total(e) : written ? value(W->rank, e) : 0);
                }
            }
            ck_assert(tt_all(wrong == 0));
            ck_assert(tt_all(reduce.next == left - 1));
        }
        tt_buckets_free(&buckets);
    }
}
END_TEST

/* Byte k of the gathered vector. */
static unsigned char pattern(int64_t k)
{
    return (unsigned char)(k * 31 + k / 251 + 5);
}

/* Every rank fills its own pieces and spoils the rest; afterwards all elements are right. */
static void check_gather(int64_t limit, int64_t size)
{
    static unsigned char v[8 * N + 1];
    tt_shard shard;
    tt_err err;
    make(limit);
    ck_assert(tt_all(tt_shard_make(&shard, &buckets, 1, W->rank, W->size, &err) == TT_OK));
    for (int64_t k = 0; k < N * size; k++) {
        v[k] = (unsigned char)~pattern(k);
    }
    for (int i = 0; i < shard.count; i++) {
        for (int64_t k = shard.range[i].first * size; k < shard.range[i].end * size; k++) {
            v[k] = pattern(k);
        }
    }
    v[N * size] = 42; /* beyond the end: not ours */
    tt_wire before = W->wire;
    ck_assert(tt_all(tt_gather(W, &buckets, v, (size_t)size, &err) == TT_OK));
    int64_t wrong = 0;
    for (int64_t k = 0; k < N * size; k++) {
        wrong += v[k] != pattern(k);
    }
    ck_assert(tt_all(wrong == 0 && v[N * size] == 42));
    bool alone = W->size == 1;
    ck_assert(tt_all(W->wire.calls - before.calls == (alone ? 0 : buckets.count)));
    ck_assert(tt_all(W->wire.bytes - before.bytes == (alone ? 0 : N * size)));
    tt_shard_free(&shard);
    tt_buckets_free(&buckets);
}

START_TEST(gathers_every_element)
{
    for (int i = 0; i < LIMITS; i++) { /* limit 64: every rank but the first has empty pieces */
        for (int64_t size = 1; size <= 8; size *= 2) {
            check_gather(limits[i], size);
        }
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
        tt_shard mine;
        tt_err err;
        make(limits[i]);
        ck_assert(tt_all(tt_shard_make(&mine, &buckets, 1, W->rank, W->size, &err) == TT_OK));
        memset(array, 0xff, sizeof array);
        for (int k = 0; k < mine.count; k++) {
            for (int64_t e = mine.range[k].first; e < mine.range[k].end; e++) {
                const int64_t at = tt_shard_before(&held, e);
                if (tt_shard_before(&held, e + 1) > at) {
                    array[at] = (int32_t)e;
                }
            }
        }
        int wanted = 0, wrong = 0;
        for (int b = 0; b < buckets.count; b++) {
            wanted += tt_shard_before(&held, buckets.bucket[b].range.end) >
                      tt_shard_before(&held, buckets.bucket[b].range.first);
        }
        const tt_wire before = W->wire;
        ck_assert(tt_all(tt_gather_held(W, &buckets, &held, array, sizeof *array, &err) == TT_OK));
        for (int k = 0; k < RANGES; k++) {
            for (int64_t e = range[k].first; e < range[k].end; e++) {
                wrong += array[local[k] + e - range[k].first] != e;
            }
        }
        ck_assert(tt_all(wrong == 0 && array[HELD] == -1));
        const bool alone = W->size == 1;
        ck_assert(tt_all(W->wire.calls - before.calls == (alone ? 0 : wanted)));
        ck_assert(tt_all(W->wire.bytes - before.bytes == (alone ? 0 : (int64_t)sizeof array - 4)));
        tt_shard_free(&mine);
        tt_buckets_free(&buckets);
    }
}
END_TEST

START_TEST(nothing_to_do)
{
    tt_err err;
    tt_buckets none = {0};
    tt_reduce reduce;
    tt_wire before = W->wire;
    tt_reduce_begin(&reduce, W, &none, NULL, NULL);
    ck_assert(tt_all(tt_reduce_ready(&reduce, 0, &err) == TT_OK));
    ck_assert(tt_all(tt_reduce_finish(&reduce, &err) == TT_OK));
    ck_assert(tt_all(tt_gather(W, &none, NULL, 4, &err) == TT_OK));
    ck_assert(tt_all(W->wire.calls == before.calls));
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("dist/reduce");
    TCase *tests = tcase_create("reduce");
    tcase_add_test(tests, sums_every_element);
    tcase_add_test(tests, finish_alone_sums_all);
    tcase_add_test(tests, integers_are_summed);
    tcase_add_test(tests, reduces_only_what_is_final);
    tcase_add_test(tests, gathers_every_element);
    tcase_add_test(tests, gathers_what_is_held);
    tcase_add_test(tests, nothing_to_do);
    suite_add_tcase(suite, tests);
    return suite;
}

TT_MPI_TEST_MAIN(make_suite)
