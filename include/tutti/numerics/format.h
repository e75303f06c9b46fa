/* format.h: the number formats of the field as one table; tests take their tolerances from it.
 *
 * Conversions from FP32 round to nearest, ties to even, and keep NaN a NaN. Overflow: to infinity
 * where the format has one (IEEE rule); E4M3 has none and saturates, as the OCP FP8 specification
 * allows. Subnormal results are produced, not flushed.
 *
 * BF16 is defined here inline: every layer above converts by these two functions or by a kernel. */
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

/* Any format: the code of `value` in the low bits, and the value of a code. TF32 codes are FP32 bit
 * patterns with the low 13 bits zero. */
uint32_t tt_format_code(tt_format format, float value);
float tt_format_value(tt_format format, uint32_t code);

/* Index of a format by name, or -1. */
int tt_format_find(const char *name);

#endif
