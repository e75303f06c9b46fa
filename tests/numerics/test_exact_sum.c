/* test_exact_sum.c: an exact sum is the double nearest to the true sum, whatever the order, grouping,
 * ranks, signs and mode of the processor. */
#include <float.h>

#include "tt_test.h"
#include "tutti/base/rng.h"
#include "tutti/base/threads.h"
#include "tutti/numerics/exact_sum.h"

/* The reference: how often each power of two was added, from 2^-1074 up, carried bit by bit. */
enum { POWERS = 2200, LEAST = 1074 };

static uint64_t bits_of(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static double of_bits(uint64_t bits)
{
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static uint64_t slow_bits(const double *x, int n)
{
    static int64_t times[POWERS];
    bool negative = false;
    memset(times, 0, sizeof times);
    for (int i = 0; i < n; i++) {
        uint64_t bits = bits_of(x[i]), field = bits >> 52 & 0x7ff;
        for (int b = 0; b < 53; b++) {
            bool set = b < 52 ? (bits >> b & 1) != 0 : field != 0;
            times[(field != 0 ? (int)field - 1 : 0) + b] += !set ? 0 : bits >> 63 ? -1 : 1;
        }
    }
    for (int pass = 0; pass < 2; pass++) { /* the second one, when the first found a negative sum */
        for (int p = 0; p + 1 < POWERS; p++) {
            int64_t bit = times[p] & 1;
            times[p + 1] += (times[p] - bit) / 2;
            times[p] = bit;
        }
        if (times[POWERS - 1] >= 0) {
            break;
        }
        negative = true;
        for (int p = 0; p < POWERS; p++) {
            times[p] = -times[p];
        }
    }
    int top = POWERS - 1;
    while (top > 0 && times[top] == 0) {
        top--;
    }
    int low = top > 52 ? top - 52 : 0;
    uint64_t m = 0;
    for (int p = top; p >= low; p--) {
        m = 2 * m + (uint64_t)times[p];
    }
    bool half = low > 0 && times[low - 1] != 0, rest = false;
    for (int p = 0; p < low - 1; p++) {
        rest = rest || times[p] != 0;
    }
    m += half && (rest || m % 2 != 0);
    double value = ldexp((double)m, low - LEAST);
    return bits_of(negative ? -value : value);
}

static tt_exact sum_of(const double *x, int n)
{
    tt_exact sum = {.pending = 0};
    for (int i = 0; i < n; i++) {
        tt_exact_add(&sum, x[i]);
    }
    return sum;
}

static void check(const double *x, int n)
{
    tt_exact sum = sum_of(x, n);
    ck_assert_uint_eq(bits_of(tt_exact_value(&sum)), slow_bits(x, n));
}

/* Finite, exponent fields from `least` on, `span` of them. */
static double draw(uint64_t i, uint32_t least, uint32_t span)
{
    tt_u32x4 r = tt_rng(tt_rng_key(5, TT_RNG_TEST, 1), 0, i);
    uint64_t bits = (uint64_t)r.v[0] << 32 | r.v[1];
    return of_bits((bits & ~(UINT64_C(0x7ff) << 52)) | (uint64_t)(least + r.v[2] % span) << 52);
}

START_TEST(test_rounding)
{
    uint64_t drawn = 0;
    const uint32_t spans[] = {1, 2, 10, 54, 120, 2047};
    for (int s = 0; s < 6; s++) {
        for (int trial = 0; trial < 300; trial++) {
            double x[12];
            int n = 1 + trial % 12;
            uint32_t least = (uint32_t)(trial * 7) % (2048 - spans[s]);
            for (int i = 0; i < n; i++) {
                x[i] = draw(drawn++, least, spans[s]);
            }
            check(x, n);
        }
    }
}
END_TEST

START_TEST(test_cancellation)
{
    const double big[] = {1e300, 1, -1e300};
    tt_exact sum = sum_of(big, 3);
    ck_assert(tt_exact_value(&sum) == 1);
    for (uint64_t trial = 0; trial < 300; trial++) { /* what is left is a part of the last bits */
        double x[9];
        for (int i = 0; i < 4; i++) {
            x[i] = draw(10 * trial + (uint64_t)i, 0, 2047);
            x[i + 4] = -nextafter(x[i], i % 2 == 0 ? 0 : x[i]);
        }
        x[8] = draw(10 * trial + 9, 0, 2047);
        check(x, 9);
        check(x, 8);
    }
}
END_TEST

START_TEST(test_ties)
{
    const double half = DBL_EPSILON / 2, tiny = 0x1p-1074;
    const double x[][4] = {{1, half, 0, 0},          {1 + DBL_EPSILON, half, 0, 0},
                           {1, half, tiny, 0},       {1, half, -tiny, 0},
                           {-1, -half, -tiny, 0},    {1, half / 2, half / 2, 0},
                           {2, -half, 0, 0},         {2, -half, -tiny, 0},
                           {0x1p53, 1, 0x1p-900, 0}, {0x1.fffffffffffffp0, half, 0, 0}};
    for (size_t i = 0; i < sizeof x / sizeof *x; i++) {
        check(x[i], 4);
    }
    check((double[]){1, half}, 2);
    tt_exact sum = sum_of(x[1], 4);
    ck_assert(tt_exact_value(&sum) == 1 + 2 * DBL_EPSILON); /* up to the even one */
}
END_TEST

START_TEST(test_ends)
{
    const double tiny = 0x1p-1074, least = DBL_MIN;
    check((double[]){tiny, tiny, tiny}, 3);
    check((double[]){least, -tiny}, 2);
    check((double[]){-least, tiny}, 2);
    check((double[]){least - tiny, tiny}, 2);
    check((double[]){2 * least, tiny}, 2); /* the lowest place where anything is rounded */
    check((double[]){2 * least + 2 * tiny, tiny}, 2);
    check((double[]){-tiny}, 1);
    check((double[]){0x1p-500, tiny, -0x1p-500}, 3);
    check((double[]){DBL_MAX, DBL_MAX, -DBL_MAX}, 3);
    check((double[]){-DBL_MAX}, 1);
    check((double[]){DBL_MAX, DBL_MAX}, 2);   /* infinite */
    check((double[]){-DBL_MAX, -DBL_MAX}, 2); /* the other */
    check((double[]){DBL_MAX, 0x1p970}, 2);   /* a tie between the greatest and infinity */
    check((double[]){DBL_MAX, 0x1p970, -tiny}, 3);
    tt_exact none = {.pending = 0}, zero = sum_of((double[]){-0.0, -0.0}, 2);
    ck_assert_uint_eq(bits_of(tt_exact_value(&none)), 0);
    ck_assert_uint_eq(bits_of(tt_exact_value(&zero)), 0);
}
END_TEST

START_TEST(test_not_finite)
{
    const double bad[] = {INFINITY, -INFINITY, NAN, -NAN};
    for (int i = 0; i < 4; i++) {
        tt_exact sum = sum_of((double[]){1, bad[i], 2}, 3), other = sum_of((double[]){3}, 1);
        ck_assert_int_eq(sum.nonfinite, 1);
        ck_assert(isnan(tt_exact_value(&sum)));
        tt_exact_merge(&other, &sum);
        ck_assert(isnan(tt_exact_value(&other)));
        tt_exact_add(&other, -bad[i]); /* infinities do not cancel */
        ck_assert(isnan(tt_exact_value(&other)));
        ck_assert_int_eq(other.nonfinite, 2);
    }
}
END_TEST

enum { N = 3000 };

static void shuffle(double *x, int n, uint64_t stream)
{
    for (int i = n - 1; i > 0; i--) {
        int j = (int)(tt_rng(tt_rng_key(5, TT_RNG_TEST, 2), stream, (uint64_t)i).v[0] %
                      (uint32_t)(i + 1));
        double kept = x[i];
        x[i] = x[j];
        x[j] = kept;
    }
}

/* The same bits for every order and every grouping, into sums that are merged one into the other or
 * carried and added word by word, as ranks do. */
START_TEST(test_order_and_grouping)
{
    static double x[N];
    for (int i = 0; i < N; i++) {
        x[i] = draw((uint64_t)i, 0, 2047);
    }
    tt_exact whole = sum_of(x, N);
    const uint64_t value = bits_of(tt_exact_value(&whole));
    ck_assert_uint_eq(value, slow_bits(x, N));
    tt_exact_carry(&whole);
    for (int trial = 0; trial < 20; trial++) {
        shuffle(x, N, (uint64_t)trial);
        tt_exact merged = {.pending = 0}, reduced = {.pending = 0};
        for (int at = 0, n = 0; at < N; at += n) {
            n = trial * 40 + 1 < N - at ? trial * 40 + 1 : N - at;
            tt_exact part = sum_of(x + at, n);
            tt_exact_merge(&merged, &part);
            tt_exact_carry(&part);
            int64_t words[TT_EXACT_WORDS], all[TT_EXACT_WORDS];
            memcpy(words, &part, sizeof words);
            memcpy(all, &reduced, sizeof all);
            for (int w = 0; w < TT_EXACT_WORDS; w++) {
                all[w] += words[w];
            }
            memcpy(&reduced, all, sizeof all);
        }
        ck_assert_uint_eq(bits_of(tt_exact_value(&merged)), value);
        ck_assert_uint_eq(bits_of(tt_exact_value(&reduced)), value);
        tt_exact_carry(&merged);
        tt_exact_carry(&reduced);
        ck_assert(memcmp(&merged, &whole, sizeof whole) == 0);
        ck_assert(memcmp(&reduced, &whole, sizeof whole) == 0);
    }
}
END_TEST

/* `times` summands x by doubling, so that limbs fill up as they would one by one. */
static tt_exact many(double x, int64_t times)
{
    tt_exact sum = {.pending = 0}, power = sum_of(&x, 1);
    for (; times > 0; times /= 2) {
        if (times % 2 != 0) {
            tt_exact_merge(&sum, &power);
        }
        tt_exact copy = power;
        tt_exact_merge(&power, &copy);
    }
    return sum;
}

START_TEST(test_billions)
{
    /* all 32 bits of a limb set, in its first and in its second */
    const double x[] = {0x1.fffffffep31, 0x1.fffffffffffffp84, 0x1.fffffffep-1000};
    for (int i = 0; i < 6; i++) {
        const double f = i < 3 ? x[i] : -x[i - 3];
        const int64_t power = INT64_C(1) << 40, most = INT64_C(1) << 30;
        tt_exact sum = many(f, power);
        ck_assert(tt_exact_value(&sum) == f * (double)power);
        sum = many(f, most - 2); /* full: one by one from here */
        ck_assert_int_eq(sum.pending, most - 2);
        tt_exact_add(&sum, f);
        tt_exact_add(&sum, f);
        ck_assert_int_eq(sum.pending, 1);
        tt_exact_add(&sum, f);
        tt_exact_add(&sum, -f);
        ck_assert(tt_exact_value(&sum) == f * (double)most);
        sum = many(f, most - 1); /* two full ones */
        tt_exact other = sum;
        tt_exact_merge(&sum, &other);
        tt_exact_add(&sum, f);
        tt_exact_add(&sum, f);
        ck_assert(tt_exact_value(&sum) == f * (double)(2 * most));
    }
}
END_TEST

/* Last: the process stays in this mode. Doubles are compared as bits, as all below 2^-1022 are 0. */
START_TEST(test_flushed)
{
    tt_flush_denormals(1);
    const double tiny = 0x1p-1074;
    volatile double read = tiny;
    ck_assert(read == 0);
    tt_exact sum = sum_of((double[]){tiny, tiny, tiny}, 3);
    ck_assert_uint_eq(bits_of(tt_exact_value(&sum)), 3);
    tt_exact_add(&sum, of_bits(UINT64_C(1) << 63 | 5));
    ck_assert_uint_eq(bits_of(tt_exact_value(&sum)), UINT64_C(1) << 63 | 2);
    tt_exact_add(&sum, DBL_MIN);
    ck_assert_uint_eq(bits_of(tt_exact_value(&sum)), (UINT64_C(1) << 52) - 2);
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("exact_sum");
    TCase *tcase = tcase_create("exact_sum");
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, test_rounding);
    tcase_add_test(tcase, test_cancellation);
    tcase_add_test(tcase, test_ties);
    tcase_add_test(tcase, test_ends);
    tcase_add_test(tcase, test_not_finite);
    tcase_add_test(tcase, test_order_and_grouping);
    tcase_add_test(tcase, test_billions);
    tcase_add_test(tcase, test_flushed);
    suite_add_tcase(suite, tcase);
    return suite;
}

TT_TEST_MAIN(make_suite)
