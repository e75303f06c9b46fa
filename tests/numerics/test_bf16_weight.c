/* test_bf16_weight.c: the two halves of an FP32 against a slow search for the nearest BF16, and
 * stochastic rounding by every one of its random numbers. */
#include "tt_test.h"
#include "tutti/base/rng.h"
#include "tutti/numerics/bf16_weight.h"

/* Size of a code as a number; infinity counts as the power of two that would follow. */
static double size_of(uint32_t code)
{
    return (code & 0x7fffu) == 0x7f80u ? 0x1p128 : fabs((double)tt_f32_of_bf16((tt_bf16)code));
}

/* The nearest BF16, of two that are as near the one further from zero. */
static tt_bf16 nearest_away(float value)
{
    const uint32_t inner = tt_bits_of_f32(value) >> 16, outer = inner + 1;
    const double x = fabs((double)value);
    if (!isfinite(value)) {
        return (tt_bf16)inner;
    }
    return (tt_bf16)(x - size_of(inner) < size_of(outer) - x ? inner : outer);
}

static bool splits_well(uint32_t bits)
{
    const float value = tt_f32_of_bits(bits);
    const tt_split_f32 split = tt_split_of_f32(value);
    const uint32_t back = tt_bits_of_f32(tt_f32_of_split(split.high, split.low));
    if (isnan(value)) {
        return isnan(tt_f32_of_bf16(split.high)) && split.high == tt_bf16_of_f32(value) &&
               back == (uint32_t)split.high << 16;
    }
    return back == bits && split.high == nearest_away(value);
}

/* Both ends of the range, of the normal numbers, of subnormals, infinities and NaN; in between. */
static const uint16_t highs[] = {0x0000, 0x0001, 0x0002, 0x007e, 0x007f, 0x0080, 0x0081,
                                 0x00ff, 0x3f7f, 0x3f80, 0x3f81, 0x4049, 0x7eff, 0x7f00,
                                 0x7f7e, 0x7f7f, 0x7f80, 0x7f81, 0x7fbf, 0x7fc0, 0x7fff};
enum { HIGHS = sizeof highs / sizeof *highs };

START_TEST(halves_of_every_low)
{
    for (int i = 0; i < 2 * HIGHS; i++) {
        const uint32_t high = highs[i / 2] | (i % 2 ? 0x8000u : 0);
        int wrong = 0;
        for (uint32_t low = 0; low <= 0xffffu; low++) {
            wrong += !splits_well(high << 16 | low);
        }
        ck_assert_msg(wrong == 0, "%04x: %d of its 65536 numbers", high, wrong);
    }
}
END_TEST

START_TEST(halves_of_random_numbers)
{
    const tt_key key = tt_rng_key(3, TT_RNG_TEST, 0);
    int wrong = 0;
    for (uint64_t i = 0; i < 500000; i++) {
        const tt_u32x4 word = tt_rng(key, 0, i);
        for (int k = 0; k < 4; k++) {
            wrong += !splits_well(word.v[k]);
        }
    }
    ck_assert_int_eq(wrong, 0);
}
END_TEST

/* No pair stands for two numbers, and each that is no NaN for one. */
START_TEST(every_pair_is_a_number)
{
    int wrong = 0;
    for (int i = 0; i < 2 * HIGHS; i++) {
        const uint32_t high = highs[i / 2] | (i % 2 ? 0x8000u : 0);
        for (uint32_t low = 0; low <= 0xffffu; low++) {
            const float value = tt_f32_of_split((tt_bf16)high, (uint16_t)low);
            const tt_split_f32 split = tt_split_of_f32(value);
            wrong += !isnan(value) && (split.high != high || split.low != low);
        }
    }
    ck_assert_int_eq(wrong, 0);
}
END_TEST

/* Of 65536 equally likely numbers exactly `rest` round up, where the number lies rest / 65536 above its
 * lower neighbour: unbiased to the last bit. */
START_TEST(random_rounding_is_unbiased)
{
    static const uint16_t rests[] = {0, 1, 2, 0x1234, 0x7fff, 0x8000, 0x8001, 0xfffe, 0xffff};
    for (int i = 0; i < 2 * HIGHS; i++) {
        const uint32_t high = highs[i / 2] | (i % 2 ? 0x8000u : 0);
        for (int k = 0; k < 9; k++) {
            const uint32_t bits = high << 16 | rests[k];
            const float value = tt_f32_of_bits(bits);
            const bool top = (high & 0x7fffu) >= 0x7f7fu;
            int up = 0, other = 0;
            for (uint32_t random = 0; random <= 0xffffu; random++) {
                const tt_bf16 code = tt_bf16_random(value, (uint16_t)random);
                up += code == high + 1;
                other += top ? code != tt_bf16_of_f32(value) : code != high && code != high + 1;
            }
            ck_assert_msg(other == 0 && (top || up == rests[k]), "%08x: %d up, %d elsewhere", bits,
                          up, other);
        }
    }
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("bf16_weight");
    TCase *tests = tcase_create("bf16_weight");
    tcase_set_timeout(tests, 60);
    tcase_add_test(tests, halves_of_every_low);
    tcase_add_test(tests, halves_of_random_numbers);
    tcase_add_test(tests, every_pair_is_a_number);
    tcase_add_test(tests, random_rounding_is_unbiased);
    suite_add_tcase(suite, tests);
    return suite;
}

TT_TEST_MAIN(make_suite)
