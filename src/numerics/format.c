/* format.c: the number formats as one table, and conversions that follow from its rows.
 *
 * Conversion works on bits alone, so it gives the same result whatever the rounding mode and
 * whether or not subnormals are flushed. Values of TF32 are stored as FP32 patterns: its code is
 * the 19-bit one shifted up. */
#include "tutti/numerics/format.h"

#include <assert.h>
#include <math.h>

const tt_format_info tt_formats[TT_FORMATS] = {
    [TT_FP32] = {"fp32", 4, 32, 8, 23, 0x1.fffffep127, 0x1p-126, 0x1p-149, 0x1p-23,
                 "IEEE 754 binary32: accumulators, gradients, optimizer state"},
    [TT_TF32] = {"tf32", 4, 19, 8, 10, 0x1.ffcp127, 0x1p-126, 0x1p-136, 0x1p-10,
                 "matmul input: FP32's range, FP16's precision, stored in 4 bytes"},
    [TT_BF16] = {"bf16", 2, 16, 8, 7, 0x1.fep127, 0x1p-126, 0x1p-133, 0x1p-7,
                 "upper half of FP32: weights, activations and their gradients"},
    [TT_FP16] = {"fp16", 2, 16, 5, 10, 65504, 0x1p-14, 0x1p-24, 0x1p-10,
                 "IEEE 754 binary16: narrow range, wants loss scaling"},
    [TT_E4M3] = {"fp8_e4m3", 1, 8, 4, 3, 448, 0x1p-6, 0x1p-9, 0x1p-3,
                 "OCP FP8: no infinity, one NaN, overflow saturates"},
    [TT_E5M2] = {"fp8_e5m2", 1, 8, 5, 2, 57344, 0x1p-14, 0x1p-16, 0x1p-2,
                 "OCP FP8: FP16's range, has infinities; training saturates"},
};

/* Bits below the code in its storage. */
static int low_zeros(tt_format format)
{
    return format == TT_TF32 ? 13 : 0;
}

/* Largest code of a finite number, sign aside. */
static uint32_t max_code(tt_format format)
{
    const tt_format_info *f = &tt_formats[format];
    uint32_t infinity = ((1u << f->exponent_bits) - 1) << f->mantissa_bits;
    return format == TT_E4M3 ? 0x7eu : infinity - 1;
}

/* significand / 2^shift, to nearest, ties to even. */
static uint32_t round_shift(uint32_t significand, int shift)
{
    if (shift == 0) {
        return significand;
    }
    if (shift > 24) { /* less than half of one */
        return 0;
    }
    uint32_t half = 1u << (shift - 1);
    uint32_t odd = (significand >> shift) & 1u;
    return (significand + half - 1 + odd) >> shift;
}

uint32_t tt_format_code(tt_format format, float value)
{
    assert(format >= 0 && format < TT_FORMATS);
    uint32_t bits = tt_bits_of_f32(value);
    if (format == TT_FP32) {
        return bits;
    }
    const tt_format_info *f = &tt_formats[format];
    const int m = f->mantissa_bits, bias = (1 << (f->exponent_bits - 1)) - 1;
    uint32_t sign = bits >> 31 << (f->exponent_bits + m);
    uint32_t size = bits & 0x7fffffffu, code;

    if (size > 0x7f800000u) {
        uint32_t payload = size >> (23 - m) & ((1u << m) - 1);
        code = format == TT_E4M3 ? 0x7fu : (max_code(format) + 1) | 1u << (m - 1) | payload;
    } else {
        /* value = significand * 2^(exponent - 23); subnormals of FP32 share the smallest exponent.
         * The result's exponent is at least that of its own subnormals. */
        int field = (int)(size >> 23);
        int exponent = (field > 0 ? field : 1) - 127;
        uint32_t significand = (size & 0x7fffffu) | (field > 0 ? 0x800000u : 0);
        int least = 1 - bias;
        int target = exponent > least ? exponent : least;
        uint32_t rounded = round_shift(significand, 23 - m + target - exponent);
        /* The leading one, where there is one, adds the last unit to the exponent field; so does a
         * carry out of rounding. */
        code = ((uint32_t)(target - least) << m) + rounded;
        if (code > max_code(format)) {
            code = format == TT_E4M3 ? max_code(format) : max_code(format) + 1;
        }
    }
    return (sign | code) << low_zeros(format);
}

uint32_t tt_format_saturated(tt_format format, float value)
{
    uint32_t code = tt_format_code(format, value);
    if ((tt_bits_of_f32(value) & 0x7fffffffu) > 0x7f800000u ||
        isfinite(tt_format_value(format, code))) {
        return code;
    }
    return tt_format_code(format, copysignf((float)tt_formats[format].max, value));
}

float tt_format_value(tt_format format, uint32_t code)
{
    assert(format >= 0 && format < TT_FORMATS);
    if (format == TT_FP32 || format == TT_TF32) {
        return tt_f32_of_bits(code);
    }
    const tt_format_info *f = &tt_formats[format];
    const int m = f->mantissa_bits, bias = (1 << (f->exponent_bits - 1)) - 1;
    uint32_t sign = (code >> (f->exponent_bits + m) & 1u) << 31;
    uint32_t size = code & ((1u << (f->exponent_bits + m)) - 1);
    uint32_t mantissa = size & ((1u << m) - 1);

    if (f->exponent_bits == 8) { /* same exponents as FP32: the bits are the bits */
        return tt_f32_of_bits(sign | size << (23 - m));
    }
    if (size > max_code(format)) {
        uint32_t quiet = mantissa != 0 ? 0x00400000u : 0;
        return tt_f32_of_bits(sign | 0x7f800000u | mantissa << (23 - m) | quiet);
    }
    if (size >> m == 0) { /* subnormal here, normal or zero in FP32: exact */
        float unit = tt_f32_of_bits((uint32_t)(127 + 1 - bias - m) << 23);
        return tt_f32_of_bits(sign | tt_bits_of_f32((float)mantissa * unit));
    }
    return tt_f32_of_bits(sign | ((size << (23 - m)) + ((uint32_t)(127 - bias) << 23)));
}

int tt_format_find(const char *name)
{
    for (int i = 0; i < TT_FORMATS; i++) {
        if (strcmp(name, tt_formats[i].name) == 0) {
            return i;
        }
    }
    return -1;
}
