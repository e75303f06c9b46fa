/* attention_grad.h: causal attention, backward by recomputing the probabilities from lse.
 *
 *     dv[j]   = sum_t p[t,j] mask[t,j] do[t]
 *     ds[t,j] = p[t,j] (mask[t,j] (do[t] . v[j]) - do[t] . o[t])
 *     dq[t]   = sum_j ds[t,j] k[j] / sqrt(D),    dk[j] = sum_t ds[t,j] q[t] / sqrt(D)
 *
 * do . o is the row sum of p times its gradient, dropout included, because o was made with it.
 *
 * One task is one key-value head of one sequence: it alone writes dk and dv, adding the query heads
 * of its group in order, so there are no races and one order of summation. */
#ifndef TUTTI_KERNELS_GENERIC_ATTENTION_GRAD_H
#define TUTTI_KERNELS_GENERIC_ATTENTION_GRAD_H

#include "kernels/generic/attention.h"

static inline float attention_dot(const act *restrict x, const act *restrict y, int64_t D)
{
    float lanes[LANES] = {0};
    for (int64_t d = 0; d < D; d += BLOCK) {
        float f[BLOCK], g[BLOCK];
        block_load(f, x + d, D - d);
        block_load(g, y + d, D - d);
        for (int i = 0; i < BLOCK; i++) {
            f[i] *= g[i];
        }
        lanes_add(lanes, f);
    }
    return lanes_total(lanes);
}

/* In: s = scores, ds = do . v, mask = multipliers (use_mask) of one row. Out: s = p mask, ds = the
 * gradient of the scores; both zero from `count` on, up to the next multiple of BLOCK. */
static inline void attention_grad_row(float *restrict s, float *restrict ds,
                                      const float *restrict mask, bool use_mask, int64_t count,
                                      float lse, float dot)
{
    for (int64_t j = 0; j < count; j += BLOCK) {
        if (use_mask) {
            for (int i = 0; i < BLOCK; i++) {
                float p = exp_f32(s[j + i] - lse);
                s[j + i] = p * mask[j + i];
                ds[j + i] = p * (mask[j + i] * ds[j + i] - dot);
            }
        } else {
            for (int i = 0; i < BLOCK; i++) {
                float p = exp_f32(s[j + i] - lse);
                s[j + i] = p;
                ds[j + i] = p * (ds[j + i] - dot);
            }
        }
        block_clear(s + j, count - j);
        block_clear(ds + j, count - j);
    }
}

static void generic_attention_grad(tt_ctx *ctx, void *dqkv_, const void *d_o_, const void *o_,
                                   const void *qkv_, const float *lse, int64_t B, int64_t T,
                                   int64_t H, int64_t G, int64_t D, int64_t T_max,
                                   const tt_dropout *drop)
{
    act *dqkv = dqkv_;
    const act *d_out = d_o_, *out = o_, *qkv = qkv_;
    int64_t stride = (H + 2 * G) * D, group = H / G;
    float scale = 1 / sqrtf((float)D);
#pragma omp parallel for num_threads(ctx->threads)
    for (int64_t task = 0; task < B * G; task++) {
        int64_t b = task / G, g = task % G;
        attention_scratch a = attention_scratch_of(ctx, T, D, true);
        const act *k = qkv + b * T * stride + (H + g) * D;
        const act *v = qkv + b * T * stride + (H + G + g) * D;
        attention_panels_turned(a.k_turned, k, stride, T, a.T, D);
        attention_panels_turned(a.v, v, stride, T, a.T, D);
        attention_panels(a.k, k, stride, T, a.T, D, 1);
        memset(a.dk, 0, tt_bytes(a.T * a.D, sizeof *a.dk));
        memset(a.dv, 0, tt_bytes(a.T * a.D, sizeof *a.dv));
        for (int64_t h = g * group; h < (g + 1) * group; h++) {
            for (int64_t t = 0; t < T; t += QUERIES) {
                int64_t rows = tt_min(QUERIES, T - t), keys = t + QUERIES;
                const act *q = qkv + (b * T + t) * stride + h * D;
                const act *o = out + (b * T + t) * H * D + h * D;
                const act *d_o = d_out + (b * T + t) * H * D + h * D;
                attention_rows(a.q, q, stride, rows, QUERIES, D, scale);
                attention_rows(a.d_o, d_o, H * D, rows, QUERIES, D, 1);
                attention_panels(a.q_panels, q, stride, rows, QUERIES, D, scale);
                attention_panels(a.d_o_panels, d_o, H * D, rows, QUERIES, D, 1);
                multiply(a.s, a.row, a.q, D, 1, a.k_turned, D * PANEL, QUERIES, keys, D, false);
                multiply(a.ds, a.row, a.d_o, D, 1, a.v, D * PANEL, QUERIES, keys, D, false);
                for (int64_t i = 0; i < QUERIES; i++) {
                    float *s = a.s + i * a.row, *ds = a.ds + i * a.row;
                    if (i >= rows) {
                        memset(s, 0, tt_bytes(keys, sizeof *s));
                        memset(ds, 0, tt_bytes(keys, sizeof *ds));
                        continue;
                    }
                    if (dropout_on(drop)) {
                        dropout_mask(a.mask, t + i + 1, drop, b, (h * T_max + t + i) * T_max);
                    }
                    attention_grad_row(s, ds, a.mask, dropout_on(drop), t + i + 1,
                                       lse[(b * H + h) * T + t + i],
                                       attention_dot(d_o + i * H * D, o + i * H * D, D));
                }
                multiply(a.dv, a.D, a.s, 1, a.row, a.d_o_panels, QUERIES * PANEL, keys, a.D,
                         QUERIES, true);
                multiply(a.dk, a.D, a.ds, 1, a.row, a.q_panels, QUERIES * PANEL, keys, a.D, QUERIES,
                         true);
                multiply(a.out, a.D, a.ds, a.row, 1, a.k, a.T * PANEL, QUERIES, a.D, keys, false);
                attention_store(dqkv + (b * T + t) * stride + h * D, stride, a.out, a.D, rows, D,
                                scale);
            }
        }
        act *row = dqkv + b * T * stride;
        attention_store(row + (H + g) * D, stride, a.dk, a.D, T, D, 1);
        attention_store(row + (H + G + g) * D, stride, a.dv, a.D, T, D, 1);
    }
}

#endif
