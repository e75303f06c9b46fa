/* test_fp8.c: scales, rounding and codes of FP8 against the table of formats, bit by bit. */
#include "rig.h"
#include "tutti/numerics/fp8.h"

static const tt_format fp8[] = {TT_E4M3, TT_E5M2};

/* The largest power of two that keeps amax in range, by trying all. */
static int slow_exponent(tt_format format, double amax)
{
    int e = TT_FP8_HIGHEST;
    while (e > TT_FP8_LOWEST && ldexp(amax, e) > tt_formats[format].max) {
        e--;
    }
    return e;
}

static uint8_t slow_code(tt_format format, double x, int e)
{
    const double most = tt_formats[format].max;
    if (e == TT_FP8_NAN) {
        x = (double)NAN;
    } else {
        x = fmin(fmax(ldexp(x, e), -most), most);
    }
    return isnan(x) ? 0x7f : (uint8_t)tt_format_code(format, (float)x);
}

START_TEST(exponents)
{
    for (int f = 0; f < 2; f++) {
        ck_assert_int_eq(tt_fp8_exponent(fp8[f], 0, 0), TT_FP8_HIGHEST);
        ck_assert_int_eq(tt_fp8_exponent(fp8[f], INFINITY, 0), TT_FP8_NAN);
        ck_assert_int_eq(tt_fp8_exponent(fp8[f], NAN, 0), TT_FP8_NAN);
        for (uint32_t code = 0; code < 0x7f80;
             code++) { /* every BF16 magnitude, and its neighbours */
            for (uint32_t rest = 0; rest < 3; rest++) {
                float amax = tt_f32_of_bits((code << 16) + rest - (code > 0 && rest == 2 ? 3 : 0));
                int want = slow_exponent(fp8[f], (double)amax);
                ck_assert_int_eq(tt_fp8_exponent(fp8[f], amax, 0), want);
                ck_assert_int_eq(tt_fp8_exponent(fp8[f], amax, 3),
                                 want == TT_FP8_HIGHEST
                                     ? tt_fp8_exponent(fp8[f], amax * 8, 0)
                                     : (want - 3 < TT_FP8_LOWEST ? TT_FP8_LOWEST : want - 3));
            }
        }
    }
}
END_TEST

static void case_of(rig *r, tt_format format, int64_t rows, int64_t width, int64_t size,
                    double spread)
{
    const int64_t n = rows * width, across = tt_fp8_blocks(width, size);
    void *x = rig_random(r, n, 1), *y = rig_acts(r, n), *z = rig_acts(r, n);
    uint8_t *code = rig_block((size_t)n);
    int8_t *e = rig_block((size_t)(rows * across));
    float amax = 0;
    double most = 0;
    for (int64_t i = 0; i < n; i++) { /* magnitudes over many binades, some zeros */
        rig_put(r, x, i, ldexp(rig_get(r, x, i), (int)(i * 7 % 31 - 15)) * spread * (i % 11 != 3));
    }
    memcpy(y, x, (size_t)n * rig_size(r));
    r->ops.fp8_scale(&r->ctx, e, &amax, x, rows, width, size, format);
    r->ops.fp8_round(&r->ctx, code, x, e, rows, width, size, format, false);
    ck_assert_mem_eq(x, y, (size_t)n * rig_size(r));
    for (int64_t b = 0; b < rows * across; b++) {
        double largest = 0;
        for (int64_t i = b % across * size; i < (b % across + 1) * size && i < width; i++) {
            largest = fmax(largest, fabs(rig_get(r, x, b / across * width + i)));
        }
        most = fmax(most, largest);
        ck_assert_int_eq(e[b], slow_exponent(format, largest));
        for (int64_t i = b % across * size; i < (b % across + 1) * size && i < width; i++) {
            const int64_t at = b / across * width + i;
            ck_assert_int_eq(code[at], slow_code(format, rig_get(r, x, at), e[b]));
        }
    }
    ck_assert((double)amax == most);
    r->ops.fp8_value(&r->ctx, z, code, e, rows, width, size, format);
    r->ops.fp8_round(&r->ctx, NULL, y, e, rows, width, size, format, true);
    for (int64_t i = 0; i < n; i++) {
        const int exponent = e[i / width * across + i % width / size];
        const double want = ldexp((double)tt_format_value(format, code[i]), -exponent);
        ck_assert_msg(rig_get(r, y, i) == want && rig_get(r, z, i) == want, "%g, %g, want %g",
                      rig_get(r, y, i), rig_get(r, z, i), want);
    }
    /* What is on the grid stays, with any scale that fits. */
    uint8_t *again = rig_block((size_t)n);
    r->ops.fp8_scale(&r->ctx, e, NULL, y, rows, width, size, format);
    r->ops.fp8_round(&r->ctx, again, y, e, rows, width, size, format, true);
    ck_assert_mem_eq(y, z, (size_t)n * rig_size(r));
    free(x), free(y), free(z), free(code), free(again), free(e);
}

static void cases(rig *r)
{
    if (r->ops.format == TT_FP16) { /* its range does not hold what FP8 decodes to; no run asks */
        return;
    }
    for (int f = 0; f < 2; f++) {
        case_of(r, fp8[f], 1, 1, 1, 1);
        case_of(r, fp8[f], 3, 50, 50, 1e-3);
        case_of(r, fp8[f], 5, 33, TT_FP8_MX, 1);
        case_of(r, fp8[f], 7, 96, TT_FP8_MX, 1e3);
        case_of(r, fp8[f], 2, 4096 * 2 + 17, 4096 * 2 + 17, 1);
        case_of(r, fp8[f], 2, 4096 * 3 + 5, 4096 * 2, 1e-5);
    }
}

START_TEST(matrices)
{
    rig_each(cases);
}
END_TEST

/* Every number of the format and every midpoint of two, with its neighbours; and what is outside. */
static void grid_cases(rig *r)
{
    for (int f = 0; f < 2; f++) {
        const tt_format format = fp8[f];
        const uint32_t last = tt_format_code(format, (float)tt_formats[format].max);
        enum { ROOM = 2 * 5 * 128 + 8 };
        int64_t n = 0;
        void *x = rig_acts(r, ROOM);
        uint8_t code[ROOM];
        int8_t e[1] = {0};
        for (uint32_t c = 0; c <= last; c++) {
            double low = (double)tt_format_value(format, c);
            double high = c < last ? (double)tt_format_value(format, c + 1) : 2 * low;
            const double at[] = {low, (low + high) / 2, low + (high - low) * 0.49,
                                 low + (high - low) * 0.51, -(low + high) / 2};
            for (int i = 0; i < 5; i++) {
                rig_put(r, x, n++, at[i]);
            }
        }
        rig_put(r, x, n++, 1e30);
        rig_put(r, x, n++, -1e30);
        rig_put(r, x, n++, -0.0);
        r->ops.fp8_round(&r->ctx, code, x, e, 1, n, n, format, false);
        for (int64_t i = 0; i < n; i++) {
            ck_assert_int_eq(code[i], slow_code(format, rig_get(r, x, i), 0));
        }
        for (int c = 0; c < 256; c++) {
            code[c] = (uint8_t)c;
        }
        r->ops.fp8_value(&r->ctx, x, code, e, 1, 256, 256, format);
        for (int c = 0; c < 256; c++) {
            const float want = tt_format_value(format, (uint32_t)c);
            const double got = rig_get(r, x, c);
            ck_assert_msg(isnan(want) ? isnan(got) : got == (double)want, "%s: %g, want %g",
                          tt_formats[format].name, got, (double)want);
        }
        free(x);
    }
}

START_TEST(grid)
{
    rig_each(grid_cases);
}
END_TEST

/* A block with an infinity or a NaN becomes NaN as a whole, and only it. */
static void nan_cases(rig *r)
{
    const float bad[] = {INFINITY, -INFINITY, NAN};
    for (int b = 0; b < 3; b++) {
        const int64_t width = 3 * TT_FP8_MX;
        void *x = rig_random(r, width, 1);
        uint8_t code[3 * TT_FP8_MX];
        int8_t e[3];
        float amax = 0;
        rig_put(r, x, TT_FP8_MX + 5, (double)bad[b]);
        r->ops.fp8_scale(&r->ctx, e, &amax, x, 1, width, TT_FP8_MX, TT_E4M3);
        ck_assert(isinf(amax) && e[0] != TT_FP8_NAN && e[1] == TT_FP8_NAN && e[2] != TT_FP8_NAN);
        r->ops.fp8_round(&r->ctx, code, x, e, 1, width, TT_FP8_MX, TT_E4M3, true);
        for (int pass = 0; pass < 2; pass++) {
            for (int64_t i = 0; i < width; i++) {
                ck_assert_int_eq(isnan(rig_get(r, x, i)) != 0, i / TT_FP8_MX == 1);
            }
            r->ops.fp8_value(&r->ctx, x, code, e, 1, width, TT_FP8_MX, TT_E4M3);
        }
        free(x);
    }
}

START_TEST(nan_shows)
{
    rig_each(nan_cases);
}
END_TEST

/* The claim that lets the BF16 matmul serve: every number times every scale is a BF16 number. */
START_TEST(exact_in_bf16)
{
    for (int f = 0; f < 2; f++) {
        for (uint32_t c = 0; c < 256; c++) {
            const float value = tt_format_value(fp8[f], c);
            for (int e = TT_FP8_LOWEST; e <= TT_FP8_HIGHEST && isfinite(value); e++) {
                const double want = ldexp((double)value, -e);
                if (fabs(want) <= tt_formats[TT_BF16].max) {
                    ck_assert((double)tt_f32_of_bf16(tt_bf16_of_f32((float)want)) == want);
                    ck_assert(want == 0 || fabs(want) >= tt_formats[TT_BF16].min_normal);
                }
            }
        }
    }
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("fp8");
    TCase *tests = tcase_create("fp8");
    tcase_add_test(tests, exponents);
    tcase_add_test(tests, matrices);
    tcase_add_test(tests, grid);
    tcase_add_test(tests, nan_shows);
    tcase_add_test(tests, exact_in_bf16);
    suite_add_tcase(suite, tests);
    return suite;
}

TT_TEST_MAIN(make_suite)
