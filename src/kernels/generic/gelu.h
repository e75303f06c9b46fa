/* gelu.h: GELU in its tanh form, forward and backward.
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

static void generic_gelu(tt_ctx *ctx, void *y_, const void *x_, int64_t n)
{
    act *y = y_;
    const act *x = x_;
#pragma omp parallel for num_threads(ctx->threads)
    for (int64_t block = 0; block < blocks_of(n); block++) {
        int64_t first = block * BLOCK;
        float f[BLOCK];
        block_load(f, x + first, n - first);
        for (int i = 0; i < BLOCK; i++) {
            f[i] *= gelu_gate(f[i]);
        }
        block_store(y + first, f, n - first);
    }
}

static void generic_gelu_grad(tt_ctx *ctx, void *dx_, const void *dy_, const void *x_, int64_t n)
{
    act *dx = dx_;
    const act *dy = dy_, *x = x_;
#pragma omp parallel for num_threads(ctx->threads)
    for (int64_t block = 0; block < blocks_of(n); block++) {
        int64_t first = block * BLOCK;
        float f[BLOCK], d[BLOCK];
        block_load(f, x + first, n - first);
        block_load(d, dy + first, n - first);
        for (int i = 0; i < BLOCK; i++) {
            float s = gelu_gate(f[i]);
            float slope = GELU_TWO_ROOT * (1 + 3 * GELU_CUBIC * f[i] * f[i]);
            d[i] *= s + f[i] * slope * (s * (1 - s));
        }
        block_store(dx + first, d, n - first);
    }
}

#endif
