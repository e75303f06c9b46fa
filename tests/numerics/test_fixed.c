/* test_fixed.c: the unit fits the batch, nothing that is not lost overflows, and a summand becomes the
 * nearest integer. */
#include "tt_test.h"
#include "tutti/base/rng.h"
#include "tutti/base/threads.h"
#include "tutti/numerics/fixed.h"

/* Batches: sequences and tokens. */
static const int64_t sizes[] = {1,       2,       3,       7,       64,
                                100,     1000,    1024,    1025,    2048,
                                1 << 20, 3 << 24, 1 << 30, 1 << 30, INT64_C(1) << 40};
enum { SIZES = sizeof sizes / sizeof *sizes };

static const float scales[] = {1, 0x1p-70f, 0x1p-15f, 0.1f, 3, 1000, 65535, 65536, 65537, 1e18f};
enum { SCALES = sizeof scales / sizeof *scales };

START_TEST(test_shift)
{
    ck_assert_int_eq(tt_fixed_make(1024, 1024, 1).shift, 29); /* as the header says */
    ck_assert_int_eq(tt_fixed_make(1, 1024, 1).shift, 29);
    ck_assert_int_eq(tt_fixed_make(1025, 1024, 1).shift, 28);
    ck_assert_int_eq(tt_fixed_make(1, 1, 1).shift, 39);
    for (int s = 0; s < SIZES; s++) {
        for (int t = 0; t < SIZES; t++) {
            tt_fixed fixed = tt_fixed_make(sizes[s], sizes[t], 1);
            ck_assert(fixed.unit == ldexp(1, -fixed.shift));
            ck_assert(fixed.middle == ldexp(1.5, 52 - fixed.shift));
            if (s > 0 && t > 0) { /* no better for a larger batch */
                ck_assert_int_le(fixed.shift, tt_fixed_make(sizes[s - 1], sizes[t], 1).shift);
                ck_assert_int_le(fixed.shift, tt_fixed_make(sizes[s], sizes[t - 1], 1).shift);
            }
        }
    }
}
END_TEST

/* Everything at the limit, all signs equal, twice over: in 128 bits, and one bit below overflow. The
 * unit is as fine as that allows, to two bits for what S and T are rounded up. */
static void check_range(int64_t S, int64_t T, float scale)
{
    tt_fixed fixed = tt_fixed_make(S, T, scale);
    const float limit = tt_fixed_limit(&fixed, T), one = tt_fixed_limit(&fixed, 1);
    const int64_t leaf = tt_fixed_of(&fixed, limit), row = tt_fixed_of(&fixed, one);
    ck_assert_int_le(leaf, INT64_C(1) << TT_FIXED_BITS);
    ck_assert_int_eq(tt_fixed_of(&fixed, -limit), -leaf);
    const __int128 most = INT64_MAX / 2 + 1;
    ck_assert((__int128)2 * S * leaf <= most);
    ck_assert((__int128)S * leaf + (__int128)S * T * row <= most);
    /* ... and to a third for what the scale is. */
    const double of_leaf = ldexp((double)T * (double)scale, fixed.shift + 12);
    const double of_total = 2 * (double)S * of_leaf;
    ck_assert(of_total > 0x1p58 || of_leaf > 0x1p48);
}

START_TEST(test_range)
{
    for (int s = 0; s < SIZES; s++) {
        for (int t = 0; t < SIZES; t++) {
            for (int k = 0; k < SCALES; k++) {
                check_range(sizes[s], sizes[t], scales[k]);
            }
        }
    }
}
END_TEST

/* A power of two moves unit and limit and no bit of an integer. Between two powers everything is as for
 * the upper one but the limit, which is the gradient's 4096 a token at every scale. */
START_TEST(test_scale)
{
    for (int s = 0; s < SIZES; s++) {
        const tt_fixed plain = tt_fixed_make(sizes[s], 1000, 1);
        ck_assert(plain.most == 4096);
        for (int k = -70; k <= 60; k++) {
            const tt_fixed moved = tt_fixed_make(sizes[s], 1000, ldexpf(1, k));
            const tt_fixed below = tt_fixed_make(sizes[s], 1000, ldexpf(0.9f, k));
            ck_assert_int_eq(moved.shift, plain.shift - k);
            ck_assert_int_eq(below.shift, moved.shift);
            ck_assert(below.unit == moved.unit && below.middle == moved.middle);
            ck_assert(below.most == ldexpf(0.9f, k + 12));
            ck_assert(tt_fixed_limit(&moved, 77) == ldexpf(tt_fixed_limit(&plain, 77), k));
            for (uint64_t i = 0; i < 100; i++) {
                tt_u32x4 r = tt_rng(tt_rng_key(3, TT_RNG_TEST, 2), 0, i);
                const float x =
                    ldexpf((float)r.v[0], -32 - (int)(r.v[1] % 30)) * tt_fixed_limit(&plain, 1000);
                ck_assert_int_eq(tt_fixed_of(&moved, ldexpf(x, k)), tt_fixed_of(&plain, x));
            }
        }
    }
}
END_TEST

/* The same by another road: scaled and rounded in long double. */
static int64_t slow(const tt_fixed *fixed, float x)
{
    return llrintl(ldexpl((long double)x, fixed->shift));
}

static void check(const tt_fixed *fixed, float x)
{
    const int64_t q = tt_fixed_of(fixed, x);
    ck_assert_int_eq(q, slow(fixed, x));
    ck_assert_int_eq(tt_fixed_of(fixed, -x), -q);
}

static const int64_t batches[][2] = {{1, 1},
                                     {24, 1024},
                                     {2048, 1024},
                                     {3, 8192},
                                     {INT64_C(1) << 40, 64},
                                     {INT64_C(1) << 40, 1 << 20}};
enum { BATCHES = sizeof batches / sizeof *batches };

START_TEST(test_nearest)
{
    for (int b = 0; b < BATCHES; b++) {
        tt_fixed fixed = tt_fixed_make(batches[b][0], batches[b][1], 1);
        const float limit = tt_fixed_limit(&fixed, batches[b][1]);
        check(&fixed, 0);
        check(&fixed, limit);
        check(&fixed, nextafterf(limit, 0));
        check(&fixed, 0x1p-149f);
        for (int e = -3; e < 23; e++) { /* ties, and their neighbours */
            for (int half = 1; half < 100; half += 2) {
                const float x = ldexpf((float)half, e - fixed.shift - 1);
                if (x < limit) {
                    check(&fixed, x);
                    check(&fixed, nextafterf(x, 0));
                    check(&fixed, nextafterf(x, INFINITY));
                }
            }
        }
        for (uint64_t i = 0; i < 20000; i++) {
            tt_u32x4 r = tt_rng(tt_rng_key(3, TT_RNG_TEST, 0), (uint64_t)b, i);
            const float x = ldexpf((float)r.v[0], -32 - (int)(r.v[1] % 60)) * limit;
            check(&fixed, x);
        }
    }
    tt_fixed fixed = tt_fixed_make(1, 1024, 1);
    ck_assert_int_eq(tt_fixed_of(&fixed, 0x1p-30f), 0); /* to even */
    ck_assert_int_eq(tt_fixed_of(&fixed, 0x3p-30f), 2);
    ck_assert_int_eq(tt_fixed_of(&fixed, 0x5p-30f), 2);
}
END_TEST

/* The nearest double, then the nearest float; a float that is whole units comes back. */
START_TEST(test_back)
{
    for (int b = 0; b < BATCHES; b++) {
        tt_fixed fixed = tt_fixed_make(batches[b][0], batches[b][1], 1);
        for (uint64_t i = 0; i < 20000; i++) {
            tt_u32x4 r = tt_rng(tt_rng_key(3, TT_RNG_TEST, 1), (uint64_t)b, i);
            const int64_t q = (int64_t)((uint64_t)r.v[0] << 32 | r.v[1]) >> r.v[2] % 64;
            const long double exact = ldexpl((long double)q, -fixed.shift);
            ck_assert(tt_fixed_to(&fixed, q) == (float)(double)exact);
            const float whole = ldexpf((float)(r.v[3] >> 8), -fixed.shift);
            ck_assert(tt_fixed_to(&fixed, tt_fixed_of(&fixed, whole)) == whole);
        }
    }
}
END_TEST

/* What is lost gives anything, but quietly. */
START_TEST(test_lost)
{
    tt_fixed fixed = tt_fixed_make(24, 1024, 1);
    const float bad[] = {NAN, -NAN, INFINITY, -INFINITY, 3e38f, -3e38f, -0x1.8p23f, -12582913};
    int64_t all = 0;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        all ^= tt_fixed_of(&fixed, bad[i]);
        ck_assert(!(fabsf(bad[i]) <= tt_fixed_limit(&fixed, 1024)));
    }
    ck_assert_int_ne(all, 0);
}
END_TEST

/* Last: the process stays in this mode. */
START_TEST(test_flushed)
{
    tt_flush_denormals(1);
    for (int b = 0; b < BATCHES; b++) {
        tt_fixed fixed = tt_fixed_make(batches[b][0], batches[b][1], 1);
        ck_assert_int_eq(tt_fixed_of(&fixed, 0x1p-149f), 0);
        ck_assert_int_eq(tt_fixed_of(&fixed, -0x1.fffffcp-127f), 0);
        for (int64_t q = 1; q < 1000; q++) {
            ck_assert(tt_fixed_to(&fixed, q) == (float)q * (float)fixed.unit);
            ck_assert_int_eq(tt_fixed_of(&fixed, tt_fixed_to(&fixed, q)), q);
        }
    }
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("fixed");
    TCase *tcase = tcase_create("fixed");
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, test_shift);
    tcase_add_test(tcase, test_range);
    tcase_add_test(tcase, test_scale);
    tcase_add_test(tcase, test_nearest);
    tcase_add_test(tcase, test_back);
    tcase_add_test(tcase, test_lost);
    tcase_add_test(tcase, test_flushed);
    suite_add_tcase(suite, tcase);
    return suite;
}

TT_TEST_MAIN(make_suite)
