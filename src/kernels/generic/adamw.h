/* adamw.h: one AdamW update with decoupled decay, in PyTorch's order of operations.
 *
 *     g <- g grad_scale;  p <- p (1 - lr decay)
 *     m <- beta1 m + (1 - beta1) g;  v <- beta2 v + (1 - beta2) g^2
 *     p <- p - (lr / correction1) m / (sqrt(v) / sqrt(correction2) + eps)
 *
 * All of it in FP32; m and v stay so, and the master as tt_master says. One body for all kinds: a kind
 * changes how a step of p is loaded and stored and not what is computed, so a split master has the
 * bits of an FP32 one. */
#ifndef TUTTI_KERNELS_GENERIC_ADAMW_H
#define TUTTI_KERNELS_GENERIC_ADAMW_H

#include <math.h>

#include "kernels/generic/census.h"
#include "kernels/generic/fixed.h"
#include "kernels/generic/master.h"

static void generic_adamw(tt_ctx *ctx, const tt_master *master, float *m, float *v, void *w_,
                          const tt_grad *g, int64_t n, const tt_adamw *step)
{
    act *w = w_;
    const bool stochastic = master->kind == TT_MASTER_NONE && master->stochastic;
    const float keep = (float)(1 - (double)step->lr * (double)step->weight_decay);
    const float beta1 = step->beta1, beta2 = step->beta2, eps = step->eps;
    const float rest1 = (float)(1 - (double)beta1), rest2 = (float)(1 - (double)beta2);
    const float rate = (float)((double)step->lr / (double)step->correction1);
    const float root = (float)(1 / sqrt((double)step->correction2));
    const float grad_scale = step->grad_scale;
#pragma omp parallel for num_threads(ctx->threads)
    for (int64_t run = 0; run < n; run += MASTER_RUN) {
        const int64_t end = tt_min(n, run + MASTER_RUN);
        uint16_t random[MASTER_RUN];
        if (stochastic) {
            master_random(random, master, run);
        }
        for (int64_t i = run; i < end; i += LANES) {
            wide p = master_load(master, w, i, n - i), d = grad_load(g, i, n - i);
            wide first = wide_load(m + i, n - i), second = wide_load(v + i, n - i);
            EACH_PART(k)
            {
                vec grad = d.part[k] * grad_scale;
                first.part[k] = vec_fma(vec_all(beta1), first.part[k], rest1 * grad);
                second.part[k] = vec_fma(vec_all(beta2), second.part[k], rest2 * (grad * grad));
                vec spread = vec_fma(vec_sqrt(second.part[k]), vec_all(root), vec_all(eps));
                p.part[k] = vec_fma(p.part[k], vec_all(keep), -rate * first.part[k] / spread);
            }
            wide_store(m + i, first, n - i);
            wide_store(v + i, second, n - i);
            master_store(master, w, i, n - i, p, random + (i - run));
            census_see(ctx->count.result, w + i, p, n - i);
        }
    }
}

#endif
