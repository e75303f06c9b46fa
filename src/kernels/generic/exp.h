/* exp.h: an exponential that vectorises.
 *
 * exp(x) = 2^n exp(r), n = round(x / ln 2), |r| <= ln 2 / 2; exp(r) by its Taylor series up to r^7,
 * whose remainder is below 6e-9. Relative error at most 2 units in the last place (2.4e-7) for x in
 * [EXP_LOW, EXP_HIGH]; beyond, the value at the nearer end, so that 2^n stays a normal number. NaN
 * gives NaN. No branches, no calls. A test holds it to this. */
#ifndef TUTTI_KERNELS_GENERIC_EXP_H
#define TUTTI_KERNELS_GENERIC_EXP_H

#include <stdint.h>

#include "tutti/numerics/format.h"

#define EXP_LOW (-87.0f)
#define EXP_HIGH 88.0f

static inline float exp_f32(float x)
{
    const float shift =
        12582912.0f; /* 1.5 * 2^23: adding it rounds to an integer in the low bits */
    const float log2_e = 1.44269504f;
    const float ln2_high = 0.693359375f; /* few bits: n * ln2_high is exact */
    const float ln2_low = -2.12194440e-4f;
    x = x < EXP_LOW ? EXP_LOW : x;
    x = x > EXP_HIGH ? EXP_HIGH : x;
    float shifted = x * log2_e + shift;
    float n = shifted - shift;
    float r = (x - n * ln2_high) - n * ln2_low;
    float p = 1.0f / 5040;
    p = p * r + 1.0f / 720;
    p = p * r + 1.0f / 120;
    p = p * r + 1.0f / 24;
    p = p * r + 1.0f / 6;
    p = p * r + 1.0f / 2;
    p = p * r + 1.0f;
    p = p * r + 1.0f;
    return p * tt_f32_of_bits((tt_bits_of_f32(shifted) << 23) + (127u << 23));
}

#endif
