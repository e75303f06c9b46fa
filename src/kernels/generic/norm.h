/* norm.h: layer norm, forward and backward.
 *
 *     y = (x - mean) rstd gain + bias,  rstd = 1 / sqrt(mean((x - mean)^2) + eps)
 *     dx += rstd (h - mean(h) - n mean(h n)),  h = dy gain,  n = (x - mean) rstd
 *     ggain += sum over rows of dy n,  gbias += sum over rows of dy
 *
 * Backward reads dy and x once. A leaf of rows is cut into shares of NORM_ROWS rows; a thread makes
 * dx of its share and sums the share's ggain and gbias from zero in scratch. Shares are added in
 * order to the leaf's sums, and these, when the leaf ends, to ggain and gbias. So the order follows
 * from the leaf alone. Scratch holds the sums of NORM_SHARES shares, which are all that is done at a
 * time, and of the leaf. */
#ifndef TUTTI_KERNELS_GENERIC_NORM_H
#define TUTTI_KERNELS_GENERIC_NORM_H

#include <assert.h>
#include <math.h>

#include "kernels/generic/census.h"
#include "kernels/generic/fixed.h"

#define NORM_EPS 1e-5f

enum { NORM_ROWS = 32, NORM_SHARES = 128 };

static inline void norm_row(tt_census *census, act *y, float *mean_, float *rstd_, const act *x,
                            const act *gain, const act *bias, int64_t C)
{
    wide sum = wide_zero(), square = wide_zero();
    for (int64_t c = 0; c < C; c += LANES) {
        wide f = wide_load_act(x + c, C - c);
        EACH_PART(p)
        {
            sum.part[p] += f.part[p];
        }
    }
    const float mean = wide_total(sum) / (float)C;
    for (int64_t c = 0; c < C; c += LANES) {
        wide d = wide_load_act(x + c, C - c);
        EACH_PART(p)
        {
            d.part[p] -= mean;
        }
        d = wide_clear(d, C - c);
        EACH_PART(p)
        {
            square.part[p] = vec_fma(d.part[p], d.part[p], square.part[p]);
        }
    }
    const float rstd = 1 / sqrtf(wide_total(square) / (float)C + NORM_EPS);
    for (int64_t c = 0; c < C; c += LANES) {
        wide f = wide_load_act(x + c, C - c), g = wide_load_act(gain + c, C - c);
        wide b = wide_load_act(bias + c, C - c);
        EACH_PART(p)
        {
            f.part[p] = vec_fma((f.part[p] - mean) * rstd, g.part[p], b.part[p]);
        }
        wide_store_seen(census, y + c, f, C - c);
    }
    *mean_ = mean;
    *rstd_ = rstd;
}

static void generic_norm(tt_ctx *ctx, void *y_, float *mean, float *rstd, const void *x_,
                         const void *gain, const void *bias, int64_t M, int64_t C)
{
    act *y = y_;
    const act *x = x_;
#pragma omp parallel for num_threads(ctx->threads)
    for (int64_t m = 0; m < M; m++) {
        norm_row(ctx->count.result, y + m * C, mean + m, rstd + m, x + m * C, gain, bias, C);
    }
}

/* Sums of ggain and gbias: two rows of C padded to whole steps. */
static inline int64_t norm_grad_row(int64_t C)
{
    return tt_round_up(C, LANES);
}

static inline size_t norm_grad_bytes(int64_t C)
{
    return tt_padded(tt_bytes(tt_mul(2 * (NORM_SHARES + 1), norm_grad_row(C)), sizeof(float)));
}

/* Adds the row's part to ggain[] and gbias[], and its gradient to dx. */
static inline void norm_grad_one(tt_census *census, act *dx, float *ggain, float *gbias,
                                 const act *dy, const act *x, const act *gain, float mean,
                                 float rstd, int64_t C)
{
    wide h_sum = wide_zero(), hn_sum = wide_zero();
    for (int64_t c = 0; c < C; c += LANES) {
        wide d = wide_load_act(dy + c, C - c), n = wide_load_act(x + c, C - c);
        wide g = wide_load_act(gain + c, C - c);
        wide gg = wide_load(ggain + c, LANES), gb = wide_load(gbias + c, LANES);
        EACH_PART(p)
        {
            vec normal = (n.part[p] - mean) * rstd, h = d.part[p] * g.part[p];
            gg.part[p] = vec_fma(d.part[p], normal, gg.part[p]);
            gb.part[p] += d.part[p];
            h_sum.part[p] += h;
            hn_sum.part[p] = vec_fma(h, normal, hn_sum.part[p]);
        }
        wide_store(ggain + c, gg, LANES);
        wide_store(gbias + c, gb, LANES);
    }
    const float h_mean = wide_total(h_sum) / (float)C, hn_mean = wide_total(hn_sum) / (float)C;
    for (int64_t c = 0; c < C; c += LANES) {
        wide h = wide_load_act(dy + c, C - c), n = wide_load_act(x + c, C - c);
        wide g = wide_load_act(gain + c, C - c), d = wide_load_act(dx + c, C - c);
        EACH_PART(p)
        {
            vec normal = (n.part[p] - mean) * rstd;
            vec centred = vec_fma(h.part[p], g.part[p], vec_all(-h_mean));
            d.part[p] =
                vec_fma(vec_fma(normal, vec_all(-hn_mean), centred), vec_all(rstd), d.part[p]);
        }
        wide_store_seen(census, dx + c, d, C - c);
    }
}

static void generic_norm_grad(tt_ctx *ctx, void *dx_, const tt_grad *ggain, const tt_grad *gbias,
                              const void *dy_, const void *x_, const void *gain, const float *mean,
                              const float *rstd, int64_t M, int64_t C, int64_t leaf)
{
    act *dx = dx_;
    const act *dy = dy_, *x = x_;
    const int64_t row = norm_grad_row(C), of_leaf = tt_ceil_div(tt_min(leaf, M), NORM_ROWS);
    const int64_t shares = M / leaf * of_leaf + tt_ceil_div(M % leaf, NORM_ROWS);
    float *total = (void *)ctx->workspace, *part = total + 2 * row;
    const float limit = grad_limit(ggain, tt_min(leaf, M));
    assert(norm_grad_bytes(C) <= ctx->workspace_bytes);
    for (int64_t begin = 0; begin < shares; begin += NORM_SHARES) {
        const int64_t end = tt_min(shares, begin + NORM_SHARES);
#pragma omp parallel num_threads(ctx->threads)
        {
#pragma omp for
            for (int64_t share = begin; share < end; share++) {
                float *sum = part + (share - begin) * 2 * row;
                const int64_t start = share / of_leaf * leaf;
                const int64_t first = start + share % of_leaf * NORM_ROWS;
                const int64_t last = tt_min(first + NORM_ROWS, tt_min(start + leaf, M));
                memset(sum, 0, tt_bytes(2 * row, sizeof *sum));
                for (int64_t m = first; m < last; m++) {
                    norm_grad_one(ctx->count.result, dx + m * C, sum, sum + row, dy + m * C,
                                  x + m * C, gain, mean[m], rstd[m], C);
                }
            }
#pragma omp for
            for (int64_t c = 0; c < 2 * row; c += LANES) {
                const tt_grad *out = c < row ? ggain : gbias;
                const int64_t n = C - c % row;
                wide sum = wide_load(total + c, LANES);
                for (int64_t share = begin; share < end; share++) {
                    const bool ends = (share + 1) % of_leaf == 0 || share + 1 == shares;
                    wide f = wide_load(part + (share - begin) * 2 * row + c, LANES);
                    EACH_PART(p)
                    {
                        sum.part[p] = share % of_leaf == 0 ? f.part[p] : sum.part[p] + f.part[p];
                    }
                    if (ends) {
                        grad_add(out, c % row, sum, n, limit);
                    }
                }
                wide_store(total + c, sum, LANES);
            }
        }
    }
}

#endif
