/* vec_cases.h: what holds for the vector vocabulary of every instruction set: each operation against
 * its definition, exp and logistic within their stated bounds over the whole range of floats, and
 * dropout's words against tt_rng.
 *
 * A test file includes the vocabulary, defines TT_ACT_BF16, then includes this and gives its suite
 * vec_case(). Every VEC_STRIDE-th float is tried; 1, for all of them, takes some minutes. */
#ifndef TT_VEC_CASES_H
#define TT_VEC_CASES_H

#include "fixed_cases.h"
#include "kernels/generic/dropout.h"
#include "kernels/generic/exp.h"
#include "kernels/generic/gelu.h"
#include "tt_test.h"

#ifndef VEC_STRIDE
#define VEC_STRIDE 61
#endif

static const float some[] = {0.0f,      -0.0f,       1.0f,        -1.0f,    1.5f,     -3.25f,
                             1e-30f,    -1e30f,      3.4e38f,     -3.4e38f, INFINITY, -INFINITY,
                             0x1p-126f, 1.00390625f, 1.01171875f, 2.0f,     0.1f,     NAN};
enum { SOME = sizeof some / sizeof some[0] };

static bool same(float x, float y)
{
    return memcmp(&x, &y, sizeof x) == 0 || (isnan(x) && isnan(y));
}

START_TEST(operations)
{
    for (int i = 0; i < SOME; i++) {
        for (int j = 0; j < SOME; j++) {
            const float x = some[i], y = some[j];
            const vec a = vec_all(x), b = vec_all(y);
            const vec below = vec_below(a, b, vec_all(7), vec_all(9));
            const vec most = vec_max(a, b), least = vec_min(a, b), fused = vec_fma(a, b, a);
            const float product = x * y + x, exact = fmaf(x, y, x);
            bool right = true;
            for (int l = 0; l < VEC; l++) {
                right = right && below[l] == (x < y ? 7 : 9) && same(most[l], x > y ? x : y) &&
                        same(least[l], x < y ? x : y) &&
                        (same(fused[l], product) || same(fused[l], exact));
            }
            ck_assert_msg(right, "%a and %a", (double)x, (double)y);
        }
        ck_assert(same(vec_sqrt(vec_all(some[i]))[VEC - 1], sqrtf(some[i])));
    }
}
END_TEST

START_TEST(lanes_keep_their_places)
{
    float x[LANES], y[LANES + 1];
    double sum = 0;
    for (int n = 0; n <= LANES; n++) {
        for (int l = 0; l < LANES; l++) {
            x[l] = (float)(l + 1);
            y[l] = -1;
        }
        y[LANES] = -1;
        wide_store(y, wide_load(x, n), n);
        for (int l = 0; l <= LANES; l++) {
            ck_assert(y[l] == (l < n ? (float)(l + 1) : -1));
        }
        wide_store(y, wide_load(x, n), LANES);
        for (int l = 0; l < LANES; l++) {
            ck_assert(y[l] == (l < n ? (float)(l + 1) : 0));
        }
        wide_store(y, wide_clear(wide_of(x), n), LANES);
        for (int l = 0; l < LANES; l++) {
            ck_assert(y[l] == (l < n ? (float)(l + 1) : 0));
        }
        ck_assert(wide_total(wide_load(x, n)) == (float)(n * (n + 1) / 2));
    }
    for (int p = 0; p < PARTS; p++) {
        vec_doubles low, high;
        vec_to_doubles(wide_of(x).part[p], &low, &high);
        for (int l = 0; l < DOUBLES; l++) {
            ck_assert(low[l] == p * VEC + l + 1 && high[l] == p * VEC + DOUBLES + l + 1);
            sum += low[l] + high[l];
        }
    }
    ck_assert(sum == LANES * (LANES + 1) / 2);
}
END_TEST

/* Every code widens, and every 61st float narrows, as tutti/numerics/format.h has it. */
START_TEST(bf16)
{
    tt_bf16 code[LANES], back[LANES + 1];
    bool right = true;
    for (uint32_t first = 0; first < 1u << 16; first += LANES) {
        for (uint32_t l = 0; l < LANES; l++) {
            code[l] = (tt_bf16)(first + l);
        }
        wide w = wide_load_act(code, LANES);
        float f[LANES];
        wide_to(f, w);
        for (int l = 0; l < LANES; l++) {
            right = right && tt_bits_of_f32(f[l]) == (uint32_t)code[l] << 16;
        }
    }
    ck_assert(right);
    for (uint64_t bits = 0; bits < (uint64_t)1 << 32; bits += LANES * 61) {
        float f[LANES];
        for (uint32_t l = 0; l < LANES; l++) {
            f[l] = tt_f32_of_bits((uint32_t)bits + 61 * l);
        }
        wide_store_act(back, wide_of(f), LANES);
        for (int l = 0; l < LANES; l++) {
            right = right && back[l] == tt_bf16_of_f32(f[l]);
        }
    }
    ck_assert(right);
    for (int n = 0; n <= LANES; n++) {
        memset(back, 0xab, sizeof back);
        wide_store_act(back, wide_load_act(code, n), n);
        ck_assert_mem_eq(back, code, (size_t)n * sizeof *code);
        ck_assert(back[n] == 0xabab);
    }
}
END_TEST

/* With their sign to words, and from words below 2^16; a float of the same bits may be a NaN. */
START_TEST(halves)
{
    uint16_t half[LANES], back[LANES];
    vec_bits words[PARTS];
    bool right = true;
    for (uint32_t first = 0; first < 1u << 16; first += LANES) {
        for (uint32_t l = 0; l < LANES; l++) {
            half[l] = (uint16_t)(first + l);
        }
        for (uint32_t p = 0; p < PARTS; p++) {
            words[p] = vec_of_halves(half + p * VEC);
            for (uint32_t l = 0; l < VEC; l++) {
                right = right && words[p][l] == (uint32_t)(int16_t)half[p * VEC + l];
            }
            words[p] &= 0xffffu;
        }
        vec_to_halves(back, words);
        right = right && memcmp(back, half, sizeof half) == 0;
    }
    ck_assert(right);
}
END_TEST

/* The same for FP16, and TF32's rounding, whether subnormals are flushed or not. */
static void fp16_and_tf32(void)
{
    tt_fp16 code[LANES], back[LANES];
    bool right = true;
    for (uint32_t first = 0; first < 1u << 16; first += LANES) {
        for (uint32_t l = 0; l < LANES; l++) {
            code[l] = (tt_fp16)(first + l);
        }
        for (int p = 0; p < PARTS; p++) {
            const vec v = vec_of_fp16(code + p * VEC);
            for (int l = 0; l < VEC; l++) {
                const float want = tt_f32_of_fp16(code[p * VEC + l]), got = v[l];
                right = right && tt_bits_of_f32(got) == tt_bits_of_f32(want);
            }
        }
    }
    ck_assert(right);
    for (uint64_t bits = 0; bits < (uint64_t)1 << 32; bits += LANES * 61) {
        float f[LANES], rounded[LANES];
        for (uint32_t l = 0; l < LANES; l++) {
            f[l] = tt_f32_of_bits((uint32_t)bits + 61 * l);
        }
        wide w = wide_of(f);
        vec_to_fp16(back, w.part);
        for (int p = 0; p < PARTS; p++) {
            vec_store(rounded + p * VEC, vec_tf32(w.part[p]));
        }
        for (int l = 0; l < LANES; l++) {
            right = right && back[l] == tt_fp16_of_f32(f[l]) &&
                    tt_bits_of_f32(rounded[l]) == tt_bits_of_f32(tt_tf32_of_f32(f[l]));
        }
    }
    ck_assert(right);
}

START_TEST(fp16)
{
    fp16_and_tf32();
    tt_flush_denormals(1);
    fp16_and_tf32();
}
END_TEST

/* Units in the last place between y and the exact value, which is a normal number. */
static double ulps(float y, double exact)
{
    int exponent;
    frexp(exact, &exponent);
    return fabs((double)y - exact) / ldexp(1, exponent - 24);
}

/* exp(x) or logistic(x) as FP32 should have it: subnormal results are 0, or stay where the mode of the
 * thread keeps them; what rounds beyond the greatest number is infinite. */
static bool within(float y, double exact, double bound)
{
    if (exact < 0x1p-126) {
        return y >= 0 && y < 0x1p-126f;
    }
    if (exact >= 0x1.ffffffp127) {
        return y == INFINITY;
    }
    return ulps(y, exact) <= bound;
}

START_TEST(bounds_over_all_floats)
{
    const uint64_t end = (uint64_t)1 << 32;
    for (uint64_t bits = 0; bits < end; bits += VEC_STRIDE * VEC) {
        vec x;
        for (uint32_t l = 0; l < VEC; l++) {
            x[l] = tt_f32_of_bits((uint32_t)tt_min((int64_t)(bits + VEC_STRIDE * l), UINT32_MAX));
        }
        const vec y = vec_exp(x), z = vec_logistic_inside(x);
        for (int l = 0; l < VEC; l++) {
            const double up = exp((double)x[l]);
            const bool inside = x[l] > -EXP_OVER && x[l] <= -EXP_LOW;
            if (isnan(x[l]) ? !isnan(y[l])
                            : !within(y[l], up, EXP_ULPS) ||
                                  (inside && !within(z[l], up / (1 + up), LOGISTIC_ULPS))) {
                ck_abort_msg("%a: exp %a, logistic %a", (double)x[l], (double)y[l], (double)z[l]);
            }
        }
    }
}
END_TEST

START_TEST(ends_of_the_range)
{
    static const float at[] = {EXP_LOW, EXP_OVER, 0.0f, -0.0f, 87.0f, -87.0f, 0x1p-149f, 1.0f};
    for (int i = 0; i < 8; i++) {
        float x = nextafterf(at[i], -200);
        for (int k = 0; k < 3; k++, x = nextafterf(x, 200)) {
            ck_assert_msg(within(vec_exp(vec_all(x))[0], exp((double)x), EXP_ULPS), "%a",
                          (double)x);
        }
    }
    ck_assert(vec_exp(vec_all(0))[0] == 1 && vec_logistic_inside(vec_all(0))[0] == 0.5f);
    ck_assert(vec_exp(vec_all(-INFINITY))[0] == 0 && vec_exp(vec_all(INFINITY))[0] == INFINITY);
}
END_TEST

START_TEST(gelu_of_any_number)
{
    for (int i = 0; i < SOME; i++) {
        const float y = vec_gelu(vec_all(some[i]))[0], slope = vec_gelu_slope(vec_all(some[i]))[0];
        if (fabsf(some[i]) > 100) { /* -inf times 0 is no number */
            ck_assert(some[i] > 0 ? slope == 1 : fabsf(slope) < 1e-30f);
            ck_assert(some[i] == -INFINITY ? isnan(y) : y == (some[i] > 0 ? some[i] : 0));
        } else {
            ck_assert(isnan(some[i]) ? isnan(y) && isnan(slope) : isfinite(y) && isfinite(slope));
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
    /* the last: counters that pass 2^32 within a block */
    static const int64_t firsts[] = {0, 1, 2, 3, 4, 5, 64, 67, ((int64_t)1 << 34) - 40};
    float mask[201];
    for (int f = 0; f < 9; f++) {
        for (int64_t n = 0; n < 200; n += n < 70 ? 1 : 43) {
            bool right = true;
            mask[n] = -1;
            dropout_mask(mask, n, &drop, 1, firsts[f]);
            for (int64_t i = 0; i < n; i++) {
                uint64_t e = (uint64_t)(firsts[f] + i);
                tt_u32x4 word = tt_rng(drop.key, tt_dropout_stream(sample[1], 11), e / 4);
                right = right && mask[i] == (word.v[e % 4] >= drop.threshold ? drop.scale : 0);
            }
            ck_assert(right && mask[n] == -1);
        }
    }
}
END_TEST

START_TEST(words_are_those_of_tt_rng)
{
    const tt_key key = tt_rng_key(1, TT_RNG_DROPOUT, 2);
    const uint64_t stream = 77 + ((uint64_t)1 << 40);
    static const uint64_t firsts[] = {0, 5, 0xfffffff8u, 0x123456789abcu};
    for (int f = 0; f < 4; f++) {
        vec_words first[TOGETHER];
        uint64_t counters[TOGETHER * COUNTERS];
        for (int i = 0; i < TOGETHER * COUNTERS; i++) {
            counters[i] = firsts[f] + (uint64_t)i;
        }
        memcpy(first, counters, sizeof first);
        const philox_words words = philox(key, stream, first);
        for (int i = 0; i < TOGETHER * COUNTERS; i++) {
            const tt_u32x4 want = tt_rng(key, stream, firsts[f] + (uint64_t)i);
            for (int w = 0; w < 4; w++) { /* upper halves play no part */
                ck_assert_uint_eq((uint32_t)words.word[w][i / COUNTERS][i % COUNTERS], want.v[w]);
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

static TCase *vec_case(void)
{
    TCase *tests = tcase_create("vec");
    tcase_add_test(tests, operations);
    tcase_add_test(tests, lanes_keep_their_places);
    tcase_add_test(tests, bf16);
    tcase_add_test(tests, halves);
    tcase_add_test(tests, fp16);
    tcase_add_test(tests, bounds_over_all_floats);
    tcase_add_test(tests, ends_of_the_range);
    tcase_add_test(tests, gelu_of_any_number);
    tcase_add_test(tests, words_are_those_of_tt_rng);
    tcase_add_test(tests, masks_at_any_start_and_length);
    tcase_add_test(tests, dropout_rate);
    fixed_tests(tests);
    return tests;
}

#endif
