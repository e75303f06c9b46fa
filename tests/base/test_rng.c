/* test_rng.c: Philox's known answers, the distributions made from it, the permutation. */
#include "tt_test.h"
#include "tutti/base/rng.h"

/* From kat_vectors of the Random123 distribution. */
START_TEST(test_known_answers)
{
    const struct {
        tt_u32x4 counter;
        tt_key key;
        tt_u32x4 answer;
    } known[] = {
        {{{0, 0, 0, 0}}, {{0, 0}}, {{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}}},
        {{{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}},
         {{0xffffffff, 0xffffffff}},
         {{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}}},
        {{{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}},
         {{0xa4093822, 0x299f31d0}},
         {{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}}},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        tt_u32x4 block = tt_philox(known[i].counter, known[i].key);
        ck_assert_mem_eq(&block, &known[i].answer, sizeof block);
    }
}
END_TEST

static bool same(tt_u32x4 a, tt_u32x4 b)
{
    return memcmp(&a, &b, sizeof a) == 0;
}

/* Each argument counts, also its upper half; no two small combinations share a key. */
START_TEST(test_keys_differ)
{
    tt_key key = tt_rng_key(1, TT_RNG_INIT, 0);
    tt_u32x4 block = tt_rng(key, 5, 9);
    ck_assert(same(block, tt_rng(key, 5, 9)));
    ck_assert(!same(block, tt_rng(key, 9, 5)));
    ck_assert(!same(block, tt_rng(key, 5 + (1ull << 32), 9)));
    ck_assert(!same(block, tt_rng(key, 5, 9 + (1ull << 32))));
    ck_assert(!same(block, tt_rng(tt_rng_key(1ull << 32 | 1, TT_RNG_INIT, 0), 5, 9)));
    ck_assert(!same(block, tt_rng(tt_rng_key(1, TT_RNG_INIT, 1ull << 32), 5, 9)));

    enum { SIDE = 8 };
    uint64_t seen[SIDE * SIDE * 5];
    int count = 0;
    for (uint64_t seed = 0; seed < SIDE; seed++) {
        for (uint64_t step = 0; step < SIDE; step++) {
            for (tt_purpose p = TT_RNG_INIT; p <= TT_RNG_SPLIT; p++) {
                tt_key k = tt_rng_key(seed, p, step);
                uint64_t word = (uint64_t)k.k[1] << 32 | k.k[0];
                int twice = 0;
                for (int i = 0; i < count; i++) {
                    twice += word == seen[i];
                }
                ck_assert_int_eq(twice, 0);
                seen[count++] = word;
            }
        }
    }
}
END_TEST

/* Runs continue across versions only while these values stay; computed apart, in Python. */
START_TEST(test_stored_values)
{
    tt_key key = tt_rng_key(1337, TT_RNG_SHUFFLE, 3);
    ck_assert_uint_eq(key.k[0], 0x839e975b);
    ck_assert_uint_eq(key.k[1], 0x4df0872f);
    const int64_t image[5] = {350, 665, 314, 910, 704};
    for (int i = 0; i < 5; i++) {
        ck_assert_int_eq(tt_permute(key, 1000, i), image[i]);
    }
    ck_assert_int_eq(tt_permute(key, (int64_t)1 << 40, 7), 1031685719373);
    key = tt_rng_key(1337, TT_RNG_INIT, 0);
    const double normal[3] = {1.3510252651459604, -0.49233497276609955, 1.3184823017797802};
    for (uint64_t i = 0; i < 3; i++) {
        ck_assert(fabs(tt_rng_normal(key, 2, i) - normal[i]) < 2e-7);
    }
    ck_assert(tt_rng_uniform(key, 2, 5) == 0.030225040391087532);
}
END_TEST

START_TEST(test_uniform)
{
    enum { BINS = 64, DRAWS = 64000 };
    tt_key key = tt_rng_key(3, TT_RNG_TEST, 0);
    int bin[BINS] = {0}, outside = 0;
    double sum = 0;
    for (uint64_t i = 0; i < DRAWS; i++) {
        double u = tt_rng_uniform(key, 0, i);
        outside += !(u >= 0 && u < 1);
        bin[(int)(u * BINS) % BINS]++;
        sum += u;
    }
    ck_assert_int_eq(outside, 0);
    double chi2 = 0;
    for (int i = 0; i < BINS; i++) {
        double off = bin[i] - (double)DRAWS / BINS;
        chi2 += off * off / ((double)DRAWS / BINS);
    }
    ck_assert(fabs(sum / DRAWS - 0.5) < 0.005);
    ck_assert(chi2 > 25 && chi2 < 120); /* 63 degrees of freedom */
}
END_TEST

START_TEST(test_normal)
{
    enum { DRAWS = 200000 };
    tt_key key = tt_rng_key(4, TT_RNG_TEST, 0);
    double m1 = 0, m2 = 0, m3 = 0, m4 = 0;
    int beyond = 0, bad = 0;
    for (uint64_t i = 0; i < DRAWS; i++) {
        double x = tt_rng_normal(key, 1, i);
        bad += !isfinite(x);
        m1 += x;
        m2 += x * x;
        m3 += x * x * x;
        m4 += x * x * x * x;
        beyond += fabs(x) > 1.959964;
    }
    ck_assert_int_eq(bad, 0);
    ck_assert(fabs(m1 / DRAWS) < 0.01 && fabs(m2 / DRAWS - 1) < 0.015);
    ck_assert(fabs(m3 / DRAWS) < 0.03 && fabs(m4 / DRAWS - 3) < 0.1);
    ck_assert(fabs((double)beyond / DRAWS - 0.05) < 0.0025);
}
END_TEST

START_TEST(test_permutation_is_bijection)
{
    const int64_t sizes[] = {1,    2,    3,    4,    5,     7,     8,     9,    15,   16,
                             17,   63,   64,   65,   255,   256,   257,   1000, 1023, 1024,
                             1025, 4095, 4096, 4097, 10007, 65535, 65536, 65537};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        int64_t n = sizes[s];
        for (uint64_t seed = 0; seed < (n <= 64 ? 20 : 2); seed++) {
            tt_key key = tt_rng_key(seed, TT_RNG_SHUFFLE, 0);
            unsigned char *hit = calloc((size_t)n, 1);
            int64_t wrong = 0;
            for (int64_t i = 0; i < n; i++) {
                int64_t image = tt_permute(key, n, i);
                if (image < 0 || image >= n || hit[image]) {
                    wrong++;
                } else {
                    hit[image] = 1;
                }
            }
            ck_assert_int_eq(wrong, 0);
            free(hit);
        }
    }
}
END_TEST

/* Sizes whose images cannot be listed: in range, distinct. */
START_TEST(test_permutation_of_many)
{
    tt_key key = tt_rng_key(1, TT_RNG_SHUFFLE, 0);
    const int64_t sizes[] = {((int64_t)1 << 40) + 1, INT64_MAX};
    for (int s = 0; s < 2; s++) {
        int64_t image[200];
        for (int i = 0; i < 200; i++) {
            image[i] = tt_permute(key, sizes[s], sizes[s] - 1 - i);
            ck_assert(image[i] >= 0 && image[i] < sizes[s]);
            int twice = 0;
            for (int j = 0; j < i; j++) {
                twice += image[j] == image[i];
            }
            ck_assert_int_eq(twice, 0);
        }
    }
}
END_TEST

/* Over many keys each of the 24 orders of 4 things comes up about equally often, and in a long
 * permutation neither place nor neighbourhood survives. */
START_TEST(test_permutation_is_even_handed)
{
    enum { KEYS = 4800 };
    int order[256] = {0};
    for (uint64_t k = 0; k < KEYS; k++) {
        tt_key key = tt_rng_key(k, TT_RNG_SHUFFLE, 0);
        int code = 0;
        for (int64_t i = 0; i < 4; i++) {
            code = code * 4 + (int)tt_permute(key, 4, i);
        }
        order[code]++;
    }
    int orders = 0;
    for (int i = 0; i < 256; i++) {
        if (order[i] > 0) {
            orders++;
            ck_assert(order[i] > 120 && order[i] < 290); /* 200, deviation 14 */
        }
    }
    ck_assert_int_eq(orders, 24);

    const int64_t n = 5000;
    tt_key key = tt_rng_key(11, TT_RNG_SHUFFLE, 0);
    int fixed = 0, neighbours = 0;
    double covariance = 0;
    for (int64_t i = 0; i < n; i++) {
        int64_t image = tt_permute(key, n, i), next = tt_permute(key, n, (i + 1) % n);
        fixed += image == i;
        neighbours += next == image + 1;
        covariance += ((double)image / (double)n - 0.5) * ((double)i / (double)n - 0.5);
    }
    ck_assert(fixed < 10 && neighbours < 10);
    ck_assert(fabs(covariance / (double)n * 12) < 0.06);
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("rng");
    TCase *tcase = tcase_create("rng");
    tcase_add_test(tcase, test_known_answers);
    tcase_add_test(tcase, test_keys_differ);
    tcase_add_test(tcase, test_stored_values);
    tcase_add_test(tcase, test_uniform);
    tcase_add_test(tcase, test_normal);
    tcase_add_test(tcase, test_permutation_is_bijection);
    tcase_add_test(tcase, test_permutation_of_many);
    tcase_add_test(tcase, test_permutation_is_even_handed);
    suite_add_tcase(suite, tcase);
    return suite;
}

TT_TEST_MAIN(make_suite)
