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

static inline vec vec_gelu_gate(vec x)
{
    vec cubic = vec_fma(x * x, vec_all(GELU_TWO_ROOT * GELU_CUBIC), vec_all(GELU_TWO_ROOT));
    return vec_logistic(x * cubic);
}

static inline vec vec_gelu(vec x)
{
    return x * vec_gelu_gate(x);
}

/* Beyond 16 the derivative is 0 or 1 in FP32; x^2 would overflow long after. NaN stays NaN. */
static inline vec vec_gelu_slope(vec x)
{
    x = vec_max(vec_all(-16), vec_min(vec_all(16), x));
    vec s = vec_gelu_gate(x);
    vec slope = vec_fma(x * x, vec_all(3 * GELU_TWO_ROOT * GELU_CUBIC), vec_all(GELU_TWO_ROOT));
    return vec_fma(x * slope, s * (1 - s), s);
}

/* f[BLOCK] inout. */
static inline void block_gelu(float *f)
{
    for (int i = 0; i < BLOCK; i += VEC) {
        vec_store(f + i, vec_gelu(vec_load(f + i)));
    }
}

static inline void block_gelu_slope(float *f)
{
    for (int i = 0; i < BLOCK; i += VEC) {
        vec_store(f + i, vec_gelu_slope(vec_load(f + i)));
    }
}

#endif
