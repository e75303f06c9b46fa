/* test_exp.c: the exponential's stated error over its range, and dropout's words against tt_rng. */
#define TT_ACT_FP32
#include "kernels/generic/dropout.h"
#include "kernels/generic/exp.h"
#include "tt_test.h"

START_TEST(error_bound)
{
    double worst = 0;
    for (double x = (double)EXP_LOW; x <= (double)EXP_HIGH; x += 0.00017) {
        double want = exp((double)(float)x);
        worst = fmax(worst, fabs((double)exp_f32((float)x) - want) / want);
    }
    ck_assert_msg(worst <= 2.4e-7, "relative error %g", worst);
    for (int i = -1000; i <= 1000; i++) { /* around zero: softmax's top */
        float x = (float)i * 1e-6f;
        ck_assert(fabs((double)exp_f32(x) - exp((double)x)) <= 1.2e-7);
    }
    ck_assert(exp_f32(0) == 1);
}
END_TEST

START_TEST(outside_the_range)
{
    ck_assert(exp_f32(-INFINITY) == exp_f32(EXP_LOW));
    ck_assert(exp_f32(-1e30f) > 0 && exp_f32(-1e30f) < 2e-38f);
    ck_assert(exp_f32(1e30f) == exp_f32(EXP_HIGH));
    ck_assert(isfinite(exp_f32(INFINITY)));
    ck_assert(isnan(exp_f32(NAN)));
}
END_TEST

START_TEST(words_are_those_of_tt_rng)
{
    tt_key key = tt_rng_key(1, TT_RNG_DROPOUT, 2);
    static const uint64_t firsts[] = {0, 5, 0xfffffff8u, 0x123456789abcu};
    for (int f = 0; f < 4; f++) {
        uint32_t word[BLOCK];
        philox_words(word, key, 77 + ((uint64_t)1 << 40), firsts[f]);
        for (uint64_t i = 0; i < BLOCK; i++) {
            tt_u32x4 want = tt_rng(key, 77 + ((uint64_t)1 << 40), firsts[f] + i / 4);
            ck_assert_uint_eq(word[i], want.v[i % 4]);
        }
    }
}
END_TEST

START_TEST(masks_at_any_start_and_length)
{
    const int64_t sample[] = {3, 1000000007};
    tt_dropout drop = {.key = tt_rng_key(1, TT_RNG_DROPOUT, 2),
                       .site = 11,
                       .threshold = 1u << 30,
                       .scale = 4.0f / 3,
                       .sample = sample};
    float mask[200];
    for (int64_t first = 0; first < 9; first++) {
        for (int64_t n = 0; n < 200; n += n < 70 ? 1 : 43) {
            dropout_mask(mask, n, &drop, 1, first);
            for (int64_t i = 0; i < n; i++) {
                uint64_t e = (uint64_t)(first + i);
                tt_u32x4 word = tt_rng(drop.key, tt_dropout_stream(sample[1], 11), e / 4);
                ck_assert(mask[i] == (word.v[e % 4] >= drop.threshold ? drop.scale : 0));
            }
        }
    }
}
END_TEST

START_TEST(dropout_rate)
{
    enum { N = 1 << 18 };
    static float mask[N];
    const int64_t sample[] = {0, 1};
    for (double p = 0.1; p < 1; p += 0.4) {
        tt_dropout drop = {.key = tt_rng_key(8, TT_RNG_DROPOUT, 0),
                           .site = 1,
                           .threshold = (uint32_t)(p * 4294967296.0),
                           .scale = (float)(1 / (1 - p)),
                           .sample = sample};
        double kept = 0, pairs = 0, mean = 0;
        dropout_mask(mask, N, &drop, 0, 0);
        for (int i = 0; i < N; i++) {
            kept += mask[i] != 0;
            pairs += i > 0 && mask[i] != 0 && mask[i - 1] != 0;
            mean += (double)mask[i] / N;
        }
        double sigma = sqrt(p * (1 - p) / N), both = (1 - p) * (1 - p);
        ck_assert(fabs(kept / N - (1 - p)) < 5 * sigma);
        ck_assert(fabs(pairs / N - both) < 10 * sqrt(both / N));
        ck_assert(fabs(mean - 1) < 5 * sigma / (1 - p));
    }
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("exp");
    TCase *tests = tcase_create("exp");
    tcase_add_test(tests, error_bound);
    tcase_add_test(tests, outside_the_range);
    tcase_add_test(tests, words_are_those_of_tt_rng);
    tcase_add_test(tests, masks_at_any_start_and_length);
    tcase_add_test(tests, dropout_rate);
    suite_add_tcase(suite, tests);
    return suite;
}

TT_TEST_MAIN(make_suite)
