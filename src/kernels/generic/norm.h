/* norm.h: layer norm, forward and backward.
 *
 *     y = (x - mean) rstd gain + bias,  rstd = 1 / sqrt(mean((x - mean)^2) + eps)
 *     dx += rstd (h - mean(h) - n mean(h n)),  h = dy gain,  n = (x - mean) rstd
 *     ggain += sum over rows of dy n,  gbias += sum over rows of dy */
#ifndef TUTTI_KERNELS_GENERIC_NORM_H
#define TUTTI_KERNELS_GENERIC_NORM_H

#include <math.h>

#include "kernels/generic/act.h"

#define NORM_EPS 1e-5f

static void generic_norm(tt_ctx *ctx, void *y_, float *mean_, float *rstd_, const void *x_,
                         const void *gain_, const void *bias_, int64_t M, int64_t C)
{
    act *y = y_;
    const act *x = x_, *gain = gain_, *bias = bias_;
#pragma omp parallel for num_threads(ctx->threads)
    for (int64_t m = 0; m < M; m++) {
        const act *row = x + m * C;
        float f[BLOCK], lanes[LANES] = {0};
        for (int64_t c = 0; c < C; c += BLOCK) {
            block_load(f, row + c, C - c);
            lanes_add(lanes, f);
        }
        float mean = lanes_total(lanes) / (float)C;
        memset(lanes, 0, sizeof lanes);
        for (int64_t c = 0; c < C; c += BLOCK) {
            block_load(f, row + c, C - c);
            for (int i = 0; i < BLOCK; i++) {
                float d = f[i] - mean;
                f[i] = d * d;
            }
            block_clear(f, C - c);
            lanes_add(lanes, f);
        }
        float rstd = 1 / sqrtf(lanes_total(lanes) / (float)C + NORM_EPS);
        for (int64_t c = 0; c < C; c += BLOCK) {
            float g[BLOCK], b[BLOCK];
            block_load(f, row + c, C - c);
            block_load(g, gain + c, C - c);
            block_load(b, bias + c, C - c);
            for (int i = 0; i < BLOCK; i++) {
                f[i] = (f[i] - mean) * rstd * g[i] + b[i];
            }
            block_store(y + m * C + c, f, C - c);
        }
        mean_[m] = mean;
        rstd_[m] = rstd;
    }
}

/* Threads own rows. */
static inline void norm_grad_rows(tt_ctx *ctx, act *dx, const act *dy, const act *x,
                                  const act *gain, const float *mean, const float *rstd, int64_t M,
                                  int64_t C)
{
#pragma omp parallel for num_threads(ctx->threads)
    for (int64_t m = 0; m < M; m++) {
        float h[BLOCK], n[BLOCK], g[BLOCK], d[BLOCK];
        float h_lanes[LANES] = {0}, hn_lanes[LANES] = {0};
        for (int64_t c = 0; c < C; c += BLOCK) {
            block_load(h, dy + m * C + c, C - c);
            block_load(n, x + m * C + c, C - c);
            block_load(g, gain + c, C - c);
            for (int i = 0; i < BLOCK; i++) {
                h[i] *= g[i];
                n[i] = h[i] * ((n[i] - mean[m]) * rstd[m]);
            }
            lanes_add(h_lanes, h);
            lanes_add(hn_lanes, n);
        }
        float h_mean = lanes_total(h_lanes) / (float)C;
        float hn_mean = lanes_total(hn_lanes) / (float)C;
        for (int64_t c = 0; c < C; c += BLOCK) {
            block_load(h, dy + m * C + c, C - c);
            block_load(n, x + m * C + c, C - c);
            block_load(g, gain + c, C - c);
            block_load(d, dx + m * C + c, C - c);
            for (int i = 0; i < BLOCK; i++) {
                float normal = (n[i] - mean[m]) * rstd[m];
                d[i] += rstd[m] * (h[i] * g[i] - h_mean - normal * hn_mean);
            }
            block_store(dx + m * C + c, d, C - c);
        }
    }
}

/* Threads own columns; a leaf of rows is summed from zero, then added. */
static inline void norm_grad_columns(tt_ctx *ctx, float *ggain, float *gbias, const act *dy,
                                     const act *x, const float *mean, const float *rstd, int64_t M,
                                     int64_t C, int64_t leaf)
{
#pragma omp parallel for num_threads(ctx->threads)
    for (int64_t block = 0; block < blocks_of(C); block++) {
        int64_t c = block * BLOCK;
        float gain_sum[BLOCK], bias_sum[BLOCK];
        block_load_f32(gain_sum, ggain + c, C - c);
        block_load_f32(bias_sum, gbias + c, C - c);
        for (int64_t first = 0; first < M; first += leaf) {
            float gain_leaf[BLOCK] = {0}, bias_leaf[BLOCK] = {0};
            for (int64_t m = first; m < tt_min(first + leaf, M); m++) {
                float d[BLOCK], n[BLOCK];
                block_load(d, dy + m * C + c, C - c);
                block_load(n, x + m * C + c, C - c);
                for (int i = 0; i < BLOCK; i++) {
                    gain_leaf[i] += d[i] * ((n[i] - mean[m]) * rstd[m]);
                    bias_leaf[i] += d[i];
                }
            }
            for (int i = 0; i < BLOCK; i++) {
                gain_sum[i] += gain_leaf[i];
                bias_sum[i] += bias_leaf[i];
            }
        }
        block_store_f32(ggain + c, gain_sum, C - c);
        block_store_f32(gbias + c, bias_sum, C - c);
    }
}

static void generic_norm_grad(tt_ctx *ctx, void *dx, float *ggain, float *gbias, const void *dy,
                              const void *x, const void *gain, const float *mean, const float *rstd,
                              int64_t M, int64_t C, int64_t leaf)
{
    norm_grad_rows(ctx, dx, dy, x, gain, mean, rstd, M, C);
    norm_grad_columns(ctx, ggain, gbias, dy, x, mean, rstd, M, C, leaf);
}

#endif
