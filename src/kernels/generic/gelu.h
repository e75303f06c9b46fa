/* gelu.h: GELU in its tanh form and its derivative.
 *
 *     0.5 x (1 + tanh(u)) = x s,  s = 1 / (1 + exp(-2 u)),  u = sqrt(2 / pi) (x + 0.044715 x^3)
 *     derivative: s + x s (1 - s) 2 u'
 *
 * The logistic form needs one exponential and keeps its relative accuracy where tanh(u) is near -1. */
#ifndef TUTTI_KERNELS_GENERIC_GELU_H
#define TUTTI_KERNELS_GENERIC_GELU_H

#include "kernels/generic/act.h"
#include "kernels/generic/exp.h"

#define GELU_TWO_ROOT 1.5957691216057308f /* 2 sqrt(2 / pi) */
#define GELU_CUBIC 0.044715f
#define GELU_FAR 10.0f /* 2 u is 87.3 there: s is 1 to the last bit, or the least normal number */

/* s of an x no further from 0 than GELU_FAR. */
static inline vec vec_gelu_gate(vec x)
{
    vec cubic = vec_fma(x * x, vec_all(GELU_TWO_ROOT * GELU_CUBIC), vec_all(GELU_TWO_ROOT));
    return vec_logistic_inside(x * cubic);
}

/* 0 below -GELU_FAR; -inf and NaN give NaN, so that they show. */
static inline vec vec_gelu(vec x)
{
    vec near = vec_max(vec_all(-GELU_FAR), vec_min(vec_all(GELU_FAR), x));
    return vec_below(x, vec_all(-GELU_FAR), x * 0, x * vec_gelu_gate(near));
}

/* Far from 0 the derivative is 1, or less than 1e-30. NaN stays NaN. */
static inline vec vec_gelu_slope(vec x)
{
    x = vec_max(vec_all(-GELU_FAR), vec_min(vec_all(GELU_FAR), x));
    vec s = vec_gelu_gate(x);
    vec slope = vec_fma(x * x, vec_all(3 * GELU_TWO_ROOT * GELU_CUBIC), vec_all(GELU_TWO_ROOT));
    return vec_fma(x * slope, s * (1 - s), s);
}

#endif
