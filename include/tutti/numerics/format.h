/* format.h: the number formats of the field as one table; tests take their tolerances from it.
 *
 * Conversions from FP32 round to nearest, ties to even, and keep NaN a NaN of its sign. Subnormal
 * results are produced, not flushed. Overflow, that is what would round beyond the largest number,
 * becomes infinity where the format has one (IEEE's rule, which is the OCP FP8 specification's
 * non-saturating mode for E5M2); E4M3 has none and saturates.
 *
 * The specification leaves the mode to the user. What each gives:
 *
 *                  tt_format_code            tt_format_saturated
 *                  E4M3    E5M2   FP16 ..    E4M3    E5M2   FP16 ..
 *     overflow     max     inf    inf        max     max    max
 *     infinity     max     inf    inf        max     max    max         (with its sign)
 *     NaN          NaN     NaN    NaN        NaN     NaN    NaN
 *
 * FP8 training converts with saturation, so that a scale that was guessed too large clips a few
 * numbers and does not make a step infinite.
 *
 * BF16, FP16 and TF32 are defined here inline: every layer above converts by these functions or by a
 * kernel. They work on bits, so the rounding mode and the flushing of subnormals do not matter. */
#ifndef TUTTI_NUMERICS_FORMAT_H
#define TUTTI_NUMERICS_FORMAT_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef enum tt_format {
    TT_FP32,
    TT_TF32,
    TT_BF16,
    TT_FP16,
    TT_E4M3,
    TT_E5M2,
    TT_FORMATS
} tt_format;

typedef struct tt_format_info {
    const char *name; /* "bf16" */
    size_t bytes;     /* of storage */
    int bits, exponent_bits, mantissa_bits;
    double max, min_normal, min_subnormal, epsilon; /* epsilon: gap above 1 */
    const char *note;
} tt_format_info;

extern const tt_format_info tt_formats[TT_FORMATS];

typedef uint16_t tt_bf16; /* upper half of an FP32 */
typedef uint16_t tt_fp16; /* IEEE 754 binary16 */

static inline float tt_f32_of_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline uint32_t tt_bits_of_f32(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline float tt_f32_of_bf16(tt_bf16 code)
{
    return tt_f32_of_bits((uint32_t)code << 16);
}

/* Round to nearest even; NaN keeps its sign and upper payload and becomes quiet. */
static inline tt_bf16 tt_bf16_of_f32(float value)
{
    uint32_t bits = tt_bits_of_f32(value);
    uint32_t rounded = bits + 0x7fffu + ((bits >> 16) & 1u);
    uint32_t quiet = bits | 0x00400000u;
    return (tt_bf16)(((bits & 0x7fffffffu) > 0x7f800000u ? quiet : rounded) >> 16);
}

/* Every FP16 number is an FP32 number; NaN keeps its sign and payload and becomes quiet. */
static inline float tt_f32_of_fp16(tt_fp16 code)
{
    uint32_t sign = (uint32_t)(code & 0x8000u) << 16, size = code & 0x7fffu;
    uint32_t normal =
        (size << 13) + (112u << 23); /* 112: by how much the exponents' biases differ */
    uint32_t special = size << 13 | 0x7f800000u | (size > 0x7c00u ? 0x00400000u : 0);
    uint32_t tiny = tt_bits_of_f32((float)(int32_t)size * 0x1p-24f); /* exact, and normal in FP32 */
    return tt_f32_of_bits(sign | (size >= 0x7c00u ? special : size >= 0x400u ? normal : tiny));
}

/* Round to nearest even; NaN keeps its sign and upper payload and becomes quiet. */
static inline tt_fp16 tt_fp16_of_f32(float value)
{
    uint32_t bits = tt_bits_of_f32(value), sign = bits >> 16 & 0x8000u, size = bits & 0x7fffffffu;
    uint32_t code;
    if (size > 0x7f800000u) {
        code = 0x7e00u | (size >> 13 & 0x3ffu);
    } else if (size >= 0x47800000u) { /* 2^16 and above */
        code = 0x7c00u;
    } else if (size >= 0x38800000u) { /* 2^-14: normal; from 65520 on the carry makes infinity */
        code = (size - (112u << 23) + 0xfffu + (size >> 13 & 1u)) >> 13;
    } else if (size >= 0x33000000u) { /* 2^-25: in units of 2^-24 */
        int shift = 126 - (int)(size >> 23);
        uint32_t significand = (size & 0x7fffffu) | 0x800000u;
        code = (significand + (1u << (shift - 1)) - 1 + (significand >> shift & 1u)) >> shift;
    } else {
        code = 0;
    }
    return (tt_fp16)(sign | code);
}

/* The nearest TF32 number, ties to even; NaN keeps its sign and upper payload and becomes quiet. */
static inline float tt_tf32_of_f32(float value)
{
    uint32_t bits = tt_bits_of_f32(value);
    uint32_t rounded = bits + 0xfffu + ((bits >> 13) & 1u);
    uint32_t quiet = bits | 0x00400000u;
    return tt_f32_of_bits(((bits & 0x7fffffffu) > 0x7f800000u ? quiet : rounded) & 0xffffe000u);
}

/* Any format: the code of `value` in the low bits, and the value of a code. TF32 codes are FP32 bit
 * patterns with the low 13 bits zero. A NaN of FP16 or FP8 comes out quiet. */
uint32_t tt_format_code(tt_format format, float value);
float tt_format_value(tt_format format, uint32_t code);

/* The same code, but what would be infinite becomes the largest number, with its sign. */
uint32_t tt_format_saturated(tt_format format, float value);

/* Index of a format by name, or -1. */
int tt_format_find(const char *name);

#endif
