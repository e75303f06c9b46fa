/* gelu.h: GELU in its tanh form, and its derivative.
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

static inline float gelu_gate(float x)
{
    return 1 / (1 + exp_f32(-GELU_TWO_ROOT * (x + GELU_CUBIC * x * x * x)));
}

static inline float gelu_f32(float x)
{
    return x * gelu_gate(x);
}

static inline float gelu_slope_f32(float x)
{
    float s = gelu_gate(x);
    return s + x * (GELU_TWO_ROOT * (1 + 3 * GELU_CUBIC * x * x)) * (s * (1 - s));
}

#endif
