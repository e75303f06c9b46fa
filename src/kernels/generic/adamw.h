/* adamw.h: one AdamW update with decoupled decay, in PyTorch's order of operations.
 *
 *     g <- g grad_scale;  p <- p (1 - lr decay)
 *     m <- beta1 m + (1 - beta1) g;  v <- beta2 v + (1 - beta2) g^2
 *     p <- p - (lr / correction1) m / (sqrt(v) / sqrt(correction2) + eps)
 *
 * The master, m and v stay FP32; w is the master rounded to act. */
#ifndef TUTTI_KERNELS_GENERIC_ADAMW_H
#define TUTTI_KERNELS_GENERIC_ADAMW_H

#include <math.h>

#include "kernels/generic/act.h"

static void generic_adamw(tt_ctx *ctx, float *master, float *m, float *v, void *w_, const float *g,
                          int64_t n, const tt_adamw *step)
{
    act *w = w_;
    const float keep = (float)(1 - (double)step->lr * (double)step->weight_decay);
    const float beta1 = step->beta1, beta2 = step->beta2, eps = step->eps;
    const float rest1 = (float)(1 - (double)beta1), rest2 = (float)(1 - (double)beta2);
    const float rate = (float)((double)step->lr / (double)step->correction1);
    const float root = (float)(1 / sqrt((double)step->correction2));
    const float grad_scale = step->grad_scale;
#pragma omp parallel for num_threads(ctx->threads)
    for (int64_t block = 0; block < blocks_of(n); block++) {
        int64_t first = block * BLOCK;
        float p[BLOCK], a[BLOCK], b[BLOCK], d[BLOCK];
        block_load_f32(p, master + first, n - first);
        block_load_f32(a, m + first, n - first);
        block_load_f32(b, v + first, n - first);
        block_load_f32(d, g + first, n - first);
        for (int i = 0; i < BLOCK; i++) {
            float grad = d[i] * grad_scale;
            a[i] = beta1 * a[i] + rest1 * grad;
            b[i] = beta2 * b[i] + rest2 * (grad * grad);
            p[i] = p[i] * keep - rate * a[i] / (sqrtf(b[i]) * root + eps);
        }
        block_store_f32(master + first, p, n - first);
        block_store_f32(m + first, a, n - first);
        block_store_f32(v + first, b, n - first);
        block_store(w + first, p, n - first);
    }
}

#endif
