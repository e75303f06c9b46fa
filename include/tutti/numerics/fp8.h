/* fp8.h: how FP8 is scaled: by powers of two, one exponent for each block of numbers.
 *
 * E4M3 and E5M2 have few exponents, so a block of numbers is multiplied by 2^e before it is rounded
 * and by 2^-e when it is used. e is the largest with which the block's largest magnitude does not
 * exceed what the format holds (less a margin, when that magnitude is only expected). Scaling by a
 * power of two rounds nothing, so all that is lost is lost in one rounding to 3 or 2 mantissa bits;
 * a scale that used the range to its end would keep at most one binade more at the bottom.
 *
 * Every E4M3 and E5M2 number times 2^-e is exact in BF16: it has fewer mantissa bits, and e is kept
 * where no exponent leaves BF16's range. So a matmul of FP8 numbers is the BF16 matmul of these
 * values, with FP32 sums, and nothing needs to know the scales but who rounds and who decodes.
 *
 * Blocks. The rows of a matrix are cut into blocks of `size` neighbours, the last of a row may be
 * shorter. One block for a whole sequence or a whole weight is per-tensor scaling; blocks of 32 with
 * an 8-bit exponent each are OCP's MXFP8 (its E8M0 exponent is -e).
 *
 * A block that holds an infinity or a NaN has no scale (TT_FP8_NAN): all of it becomes NaN, so that it
 * shows instead of saturating.
 *
 * Plain functions. Reads format.h; next: kernels/kernels.h (fp8_scale, fp8_round, fp8_value). */
#ifndef TUTTI_NUMERICS_FP8_H
#define TUTTI_NUMERICS_FP8_H

#include <stdint.h>

#include "tutti/numerics/format.h"

enum {
    TT_FP8_NAN = -128,    /* the exponent of a block that is not finite */
    TT_FP8_LOWEST = -126, /* the scale is a normal number */
    TT_FP8_HIGHEST =
        109,       /* 2^-109 times E5M2's smallest number, 2^-16, is BF16's smallest normal */
    TT_FP8_MX = 32 /* numbers of a block in MXFP8 */
};

/* The exponent for numbers of magnitude up to `amax`, leaving 2^margin of room. */
static inline int8_t tt_fp8_exponent(tt_format format, float amax, int margin)
{
    const uint32_t bits = tt_bits_of_f32(amax), top = tt_bits_of_f32((float)tt_formats[format].max);
    if (bits >= 0x7f800000u) {
        return TT_FP8_NAN;
    }
    /* Both are 1.fraction * 2^exponent; a larger fraction than the format's costs one more. */
    int e =
        (int)(top >> 23) - (int)(bits >> 23) - ((bits & 0x7fffffu) > (top & 0x7fffffu)) - margin;
    e = e < TT_FP8_LOWEST ? TT_FP8_LOWEST : e;
    return (int8_t)(e > TT_FP8_HIGHEST ? TT_FP8_HIGHEST : e);
}

/* 2^e; NaN for a block that has no scale. */
static inline float tt_fp8_scale(int e)
{
    return tt_f32_of_bits(e == TT_FP8_NAN ? 0x7fc00000u : (uint32_t)(127 + e) << 23);
}

/* Blocks in a row of `width`. */
static inline int64_t tt_fp8_blocks(int64_t width, int64_t size)
{
    return (width + size - 1) / size;
}

#endif
