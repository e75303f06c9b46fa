/* test_format.c: every format against a slow exact reference.
 *
 * The reference lists all finite values of a format from its definition, in double, where they and
 * the midpoints between neighbours are exact, and rounds by searching that list. */
#include "tt_test.h"
#include "tutti/base/rng.h"
#include "tutti/base/threads.h"
#include "tutti/numerics/format.h"

typedef struct list {
    int count;     /* finite codes from zero up, sign aside */
    double *value; /* [count + 1]: the last is the value that would follow the largest */
    int shift;     /* code = index << shift */
    uint32_t sign; /* the sign's bit */
} list;

static list make_list(tt_format format)
{
    const tt_format_info *f = &tt_formats[format];
    int m = f->mantissa_bits, bias = (1 << (f->exponent_bits - 1)) - 1;
    list l = {.shift = format == TT_TF32 ? 13 : 0};
    l.sign = 1u << (f->exponent_bits + m + l.shift);
    l.count = format == TT_E4M3 ? 127 : ((1 << f->exponent_bits) - 1) << m;
    l.value = malloc((size_t)(l.count + 1) * sizeof *l.value);
    for (int code = 0; code <= l.count; code++) {
        int field = code >> m, mantissa = code & ((1 << m) - 1);
        l.value[code] = field == 0 ? ldexp(mantissa, 1 - bias - m)
                                   : ldexp((1 << m) + mantissa, field - bias - m);
    }
    return l;
}

/* Does a check hold? Millions are made, and Check's own assert takes a microsecond; so mistakes are
 * counted, and the first one is printed. */
static void holds(bool ok, int *wrong, const char *what, tt_format format, uint32_t code)
{
    if (!ok && (*wrong)++ == 0) {
        fprintf(stderr, "%s: %s, code or pattern %08x\n", tt_formats[format].name, what, code);
    }
}

/* The code that `value` must get. */
static uint32_t reference(const list *l, tt_format format, float value)
{
    double size = fabs((double)value);
    int low = 0, high = l->count; /* the answer's index; count stands for overflow */
    while (low < high) {          /* largest index whose value is <= size */
        int middle = (low + high + 1) / 2;
        if (l->value[middle] <= size) {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    int index = low;
    if (index < l->count) {
        double half = (l->value[index] + l->value[index + 1]) / 2;
        if (size > half || (size == half && index % 2 == 1)) {
            index++;
        }
    }
    if (format == TT_E4M3 && index > 126) {
        index = 126;
    }
    return (uint32_t)index << l->shift | (signbit(value) ? l->sign : 0);
}

START_TEST(test_table)
{
    const struct {
        const char *name;
        double max, normal, subnormal, epsilon;
    } known[TT_FORMATS] = {
        {"fp32", 3.4028234663852886e38, 1.1754943508222875e-38, 1.401298464324817e-45,
         1.1920928955078125e-07},
        {"tf32", 3.4011621342146535e38, 1.1754943508222875e-38, 1.1479437019748901e-41,
         0.0009765625},
        {"bf16", 3.3895313892515355e38, 1.1754943508222875e-38, 9.183549615799121e-41, 0.0078125},
        {"fp16", 65504, 6.103515625e-05, 5.960464477539063e-08, 0.0009765625},
        {"fp8_e4m3", 448, 0.015625, 0.001953125, 0.125},
        {"fp8_e5m2", 57344, 6.103515625e-05, 1.52587890625e-05, 0.25}};
    for (int f = 0; f < TT_FORMATS; f++) {
        const tt_format_info *info = &tt_formats[f];
        ck_assert_str_eq(info->name, known[f].name);
        ck_assert(info->max == known[f].max && info->min_normal == known[f].normal);
        ck_assert(info->min_subnormal == known[f].subnormal && info->epsilon == known[f].epsilon);
        ck_assert_int_eq(info->bits, 1 + info->exponent_bits + info->mantissa_bits);
        ck_assert_int_ge((int)info->bytes * 8, info->bits);
        ck_assert_int_eq(tt_format_find(info->name), f);
        ck_assert(tt_format_value((tt_format)f, tt_format_code((tt_format)f, (float)info->max)) ==
                  info->max);
    }
    ck_assert_int_eq(tt_format_find("fp64"), -1);
    ck_assert_int_eq(tt_format_find(""), -1);
}
END_TEST

/* value(code) is what the definition says, and code(value(code)) is the code again. */
START_TEST(test_all_codes)
{
    int wrong = 0;
    for (tt_format f = TT_TF32; f < TT_FORMATS; f++) {
        list l = make_list(f);
        for (int i = 0; i < l.count; i++) {
            uint32_t code = (uint32_t)i << l.shift;
            float plus = tt_format_value(f, code), minus = tt_format_value(f, code | l.sign);
            holds(plus == l.value[i] && minus == -l.value[i], &wrong, "value", f, code);
            holds(!signbit(plus) && signbit(minus), &wrong, "sign", f, code);
            holds(tt_format_code(f, plus) == code, &wrong, "round trip", f, code);
            holds(tt_format_code(f, minus) == (code | l.sign), &wrong, "round trip of -", f, code);
        }
        free(l.value);
    }
    ck_assert_int_eq(wrong, 0);
}
END_TEST

START_TEST(test_bf16_codes)
{
    int wrong = 0;
    for (uint32_t code = 0; code < 65536; code++) {
        float value = tt_f32_of_bf16((tt_bf16)code);
        bool nan = (code & 0x7fff) > 0x7f80;
        uint32_t back = nan ? code | 0x40 : code;
        holds((isnan(value) != 0) == nan, &wrong, "nan", TT_BF16, code);
        holds(tt_bf16_of_f32(value) == back, &wrong, "inline round trip", TT_BF16, code);
        holds(tt_format_code(TT_BF16, value) == back, &wrong, "round trip", TT_BF16, code);
        holds(tt_bits_of_f32(tt_format_value(TT_BF16, code)) == code << 16, &wrong, "bits", TT_BF16,
              code);
        /* The pattern 8000 below is a tie: up from odd codes, down from even ones. */
        if ((code & 0x7f80) != 0x7f80) {
            float tie = tt_f32_of_bits(code << 16 | 0x8000);
            float above = tt_f32_of_bits(code << 16 | 0x8001);
            float below = tt_f32_of_bits(code << 16 | 0x7fff);
            holds(tt_bf16_of_f32(tie) == code + (code & 1), &wrong, "tie", TT_BF16, code);
            holds(tt_bf16_of_f32(above) == code + 1, &wrong, "above a tie", TT_BF16, code);
            holds(tt_bf16_of_f32(below) == code, &wrong, "below a tie", TT_BF16, code);
        }
    }
    ck_assert_int_eq(wrong, 0);
}
END_TEST

/* All codes of the one- and two-byte formats, NaN's and infinities among them: each comes back, a NaN
 * quiet; and FP16's inline functions say the same. */
START_TEST(test_small_codes)
{
    int wrong = 0;
    for (tt_format f = TT_BF16; f < TT_FORMATS; f++) {
        const tt_format_info *info = &tt_formats[f];
        const uint32_t exponent = ((1u << info->exponent_bits) - 1) << info->mantissa_bits;
        const uint32_t mantissa = (1u << info->mantissa_bits) - 1;
        const uint32_t quiet = 1u << (info->mantissa_bits - 1);
        for (uint32_t code = 0; code < 1u << info->bits; code++) {
            const float value = tt_format_value(f, code);
            const bool top = (code & exponent) == exponent;
            const bool nan =
                top && (f == TT_E4M3 ? (code & mantissa) == mantissa : (code & mantissa) != 0);
            const bool inf = top && !nan && f != TT_E4M3;
            const uint32_t back = nan ? code | quiet : code;
            holds((isnan(value) != 0) == nan && (isinf(value) != 0) == inf, &wrong, "kind", f,
                  code);
            holds((signbit(value) != 0) == (code >> (info->bits - 1) != 0), &wrong, "sign", f,
                  code);
            holds(tt_format_code(f, value) == back, &wrong, "round trip", f, code);
            if (f == TT_FP16) {
                const float same = tt_f32_of_fp16((tt_fp16)code);
                holds(tt_bits_of_f32(same) == tt_bits_of_f32(value), &wrong, "inline", f, code);
                holds(tt_fp16_of_f32(same) == back, &wrong, "inline round trip", f, code);
            }
            /* Every FP8 number is a BF16 number, whatever power of two it is scaled with. */
            const bool fp8 = f == TT_E4M3 || f == TT_E5M2;
            holds(!fp8 || nan ||
                      tt_f32_of_bf16(tt_bf16_of_f32(value * 0x1p-40f)) == value * 0x1p-40f,
                  &wrong, "is exact in BF16", f, code);
        }
    }
    ck_assert_int_eq(wrong, 0);
}
END_TEST

/* The code with saturation, and by the inline functions, of a value whose code is `due`. */
static void ways(const list *l, tt_format f, float value, uint32_t due, int *wrong)
{
    const uint32_t bits = tt_bits_of_f32(value), largest = (uint32_t)(l->count - 1) << l->shift;
    const uint32_t size = due & ~l->sign,
                   kept = (due & l->sign) | (size > largest ? largest : size);
    holds(tt_format_code(f, value) == due, wrong, "code", f, bits);
    holds(tt_format_saturated(f, value) == kept, wrong, "saturated", f, bits);
    holds(f != TT_BF16 || tt_bf16_of_f32(value) == due, wrong, "inline", f, bits);
    holds(f != TT_FP16 || tt_fp16_of_f32(value) == due, wrong, "inline", f, bits);
    holds(f != TT_TF32 || tt_bits_of_f32(tt_tf32_of_f32(value)) == due, wrong, "inline", f, bits);
}

START_TEST(test_ties)
{
    int wrong = 0;
    for (tt_format f = TT_TF32; f < TT_FORMATS; f++) {
        list l = make_list(f);
        for (int i = 0; i < l.count; i++) {
            double half = (l.value[i] + l.value[i + 1]) / 2;
            float tie = (float)half;
            holds(tie == half, &wrong, "a tie that FP32 does not hold", f, (uint32_t)i);
            uint32_t bits = tt_bits_of_f32(tie);
            for (uint32_t k = bits - 1; k <= bits + 1; k++) { /* its neighbours in FP32 too */
                float plus = tt_f32_of_bits(k), minus = -plus;
                ways(&l, f, plus, reference(&l, f, plus), &wrong);
                ways(&l, f, minus, reference(&l, f, minus), &wrong);
            }
        }
        free(l.value);
    }
    ck_assert_int_eq(wrong, 0);
}
END_TEST

/* Ten million numbers in all, or a million where asserts and sanitizers are on: half of them any FP32,
 * half near the format's own range. */
#ifdef NDEBUG
enum { PAIRS_EACH = 1000000 };
#else
enum { PAIRS_EACH = 100000 };
#endif

START_TEST(test_random)
{
    int wrong = 0;
    tt_key key = tt_rng_key(1, TT_RNG_TEST, 0);
    for (tt_format f = TT_TF32; f < TT_FORMATS; f++) {
        list l = make_list(f);
        int bias = (1 << (tt_formats[f].exponent_bits - 1)) - 1;
        for (uint64_t i = 0; i < PAIRS_EACH; i++) {
            tt_u32x4 r = tt_rng(key, (uint64_t)f, i);
            int exponent = (int)(r.v[1] % (uint32_t)(2 * bias + 16)) - bias - 12;
            exponent = exponent < -127 ? -127 : exponent > 127 ? 127 : exponent;
            uint32_t near = (r.v[2] & 0x807fffffu) | (uint32_t)(exponent + 127) << 23;
            const uint32_t patterns[2] = {r.v[0], near};
            for (int k = 0; k < 2; k++) {
                float value = tt_f32_of_bits(patterns[k]);
                if (!isnan(value)) {
                    ways(&l, f, value, reference(&l, f, value), &wrong);
                } else {
                    const float back = tt_format_value(f, tt_format_code(f, value));
                    const float kept = tt_format_value(f, tt_format_saturated(f, value));
                    holds(isnan(back) && isnan(kept), &wrong, "NaN", f, patterns[k]);
                    holds(signbit(back) == signbit(value), &wrong, "NaN's sign", f, patterns[k]);
                }
            }
        }
        free(l.value);
    }
    ck_assert_int_eq(wrong, 0);
}
END_TEST

START_TEST(test_specials)
{
    const uint32_t patterns[] = {0x7f800001u, 0x7fc00000u, 0x7fffffffu, 0xff800001u, 0xffc12345u};
    for (tt_format f = 0; f < TT_FORMATS; f++) {
        for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++) {
            float nan = tt_f32_of_bits(patterns[i]);
            float back = tt_format_value(f, tt_format_code(f, nan));
            ck_assert(isnan(back));
            ck_assert_int_eq(signbit(back) != 0, patterns[i] >> 31);
            ck_assert_uint_eq(tt_format_saturated(f, nan), tt_format_code(f, nan));
        }
        float most = tt_format_value(f, tt_format_saturated(f, INFINITY));
        float least = tt_format_value(f, tt_format_saturated(f, -INFINITY));
        ck_assert((double)most == tt_formats[f].max && (double)least == -tt_formats[f].max);
        ck_assert(tt_bits_of_f32(tt_format_value(f, tt_format_code(f, -0.0f))) == 0x80000000u);
        float inf = tt_format_value(f, tt_format_code(f, INFINITY));
        float huge = tt_format_value(f, tt_format_code(f, -3.4028234663852886e38f));
        if (f == TT_E4M3) { /* the OCP rule: saturate, there is no infinity */
            ck_assert(inf == 448 && huge == -448);
        } else {
            ck_assert(inf == INFINITY);
            ck_assert(f == TT_FP32 ? isfinite(huge) : huge == -INFINITY);
        }
    }
    ck_assert_uint_eq(tt_format_code(TT_E4M3, 463.9f), 0x7e);
    ck_assert_uint_eq(tt_format_code(TT_E4M3, 1e30f), 0x7e);
    ck_assert_uint_eq(tt_format_code(TT_E4M3, NAN) & 0x7f, 0x7f);
    ck_assert(isnan(tt_format_value(TT_E4M3, 0x7f)) && isnan(tt_format_value(TT_E4M3, 0xff)));
    ck_assert_uint_eq(tt_format_code(TT_E5M2, 61439.0f), 0x7b); /* below the tie to 65536 */
    ck_assert_uint_eq(tt_format_code(TT_E5M2, 61440.0f), 0x7c); /* the tie goes to infinity */
    ck_assert_uint_eq(tt_format_saturated(TT_E5M2, 61440.0f), 0x7b);
    ck_assert_uint_eq(tt_format_saturated(TT_E5M2, -1e30f), 0xfb);
    ck_assert_uint_eq(tt_format_saturated(TT_E4M3, -1e30f), 0xfe);
    ck_assert(isnan(tt_format_value(TT_E5M2, 0x7d)) && isinf(tt_format_value(TT_E5M2, 0xfc)));
    ck_assert_uint_eq(tt_format_code(TT_FP16, 65519.9f), 0x7bff);
    ck_assert_uint_eq(tt_format_code(TT_FP16, 65520.0f), 0x7c00);
}
END_TEST

/* Conversions work on bits, so they give subnormals also where arithmetic flushes them. */
START_TEST(test_flushing_changes_nothing)
{
    tt_flush_denormals(1);
    for (tt_format f = TT_TF32; f < TT_FORMATS; f++) {
        uint32_t one = f == TT_TF32 ? 1u << 13 : 1u;
        ck_assert_uint_eq(tt_format_code(f, tt_format_value(f, one)), one);
        ck_assert_uint_ne(tt_bits_of_f32(tt_format_value(f, one)), 0);
    }
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("format");
    TCase *tcase = tcase_create("format");
    tcase_add_test(tcase, test_table);
    tcase_add_test(tcase, test_all_codes);
    tcase_add_test(tcase, test_bf16_codes);
    tcase_add_test(tcase, test_small_codes);
    tcase_add_test(tcase, test_ties);
    tcase_add_test(tcase, test_random);
    tcase_add_test(tcase, test_specials);
    tcase_add_test(tcase, test_flushing_changes_nothing); /* last: it changes the thread's mode */
    suite_add_tcase(suite, tcase);
    return suite;
}

TT_TEST_MAIN(make_suite)
