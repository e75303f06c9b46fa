/* embed.h: token and position embedding, forward and backward. */
#ifndef TUTTI_KERNELS_GENERIC_EMBED_H
#define TUTTI_KERNELS_GENERIC_EMBED_H

#include "kernels/generic/census.h"
#include "kernels/generic/dropout.h"
#include "kernels/generic/fixed.h"

/* x[n], or BLOCK of it, out = dropout(word + position). */
static inline void embed_block(tt_census *census, act *x, const act *word, const act *position,
                               int64_t n, const tt_dropout *drop, int64_t b, int64_t first)
{
    float mask[BLOCK];
    const bool on = dropout_on(drop);
    if (on) {
        dropout_mask(mask, tt_min(n, BLOCK), drop, b, first);
        block_clear(mask, n);
    }
    for (int i = 0; i < BLOCK && i < n; i += LANES) {
        wide sum = wide_load_act(word + i, n - i), at = wide_load_act(position + i, n - i);
        EACH_PART(p)
        {
            sum.part[p] += at.part[p];
            sum.part[p] = on ? sum.part[p] * vec_load(mask + i + p * VEC) : sum.part[p];
        }
        wide_store_seen(census, x + i, sum, n - i);
    }
}

static void generic_embed(tt_ctx *ctx, void *x_, const void *wte_, const void *wpe_,
                          const int32_t *token, int64_t B, int64_t T, int64_t C,
                          const tt_dropout *drop)
{
    act *x = x_;
    const act *wte = wte_, *wpe = wpe_;
#pragma omp parallel for num_threads(ctx->threads)
    for (int64_t m = 0; m < B * T; m++) {
        for (int64_t c = 0; c < C; c += BLOCK) {
            embed_block(ctx->count.result, x + m * C + c, wte + token[m] * C + c,
                        wpe + m % T * C + c, C - c, drop, m / T, m % T * C + c);
        }
    }
}

/* gwte from `word` on and gwpe from `position` on, n elements or BLOCK, += dx under dropout. */
static inline void embed_grad_block(const tt_grad *gwte, int64_t word, const tt_grad *gwpe,
                                    int64_t position, const act *dx, int64_t n,
                                    const tt_dropout *drop, int64_t b, int64_t first)
{
    float mask[BLOCK];
    const bool on = dropout_on(drop);
    if (on) {
        dropout_mask(mask, tt_min(n, BLOCK), drop, b, first);
        block_clear(mask, n);
    }
    for (int i = 0; i < BLOCK && i < n; i += LANES) {
        wide d = wide_load_act(dx + i, n - i);
        EACH_PART(p)
        {
            d.part[p] = on ? d.part[p] * vec_load(mask + i + p * VEC) : d.part[p];
        }
        grad_add(gwte, word + i, d, n - i, grad_limit(gwte, 1));
        grad_add(gwpe, position + i, d, n - i, grad_limit(gwpe, 1));
    }
}

/* A thread owns a range of columns, so that equal tokens add up in row order without races. */
static void generic_embed_grad(tt_ctx *ctx, const tt_grad *gwte, const tt_grad *gwpe,
                               const void *dx_, const int32_t *token, int64_t B, int64_t T,
                               int64_t C, const tt_dropout *drop)
{
    const act *dx = dx_;
    const int64_t blocks = blocks_of(C), ranges = tt_min(ctx->threads, blocks);
#pragma omp parallel for num_threads(ctx->threads)
    for (int64_t range = 0; range < ranges; range++) {
        const int64_t begin = blocks * range / ranges * BLOCK;
        const int64_t end = tt_min(C, blocks * (range + 1) / ranges * BLOCK);
        for (int64_t m = 0; m < B * T; m++) {
            const int64_t word = token[m] * C, position = m % T * C;
            for (int64_t c = begin; c < end; c += BLOCK) {
                embed_grad_block(gwte, word + c, gwpe, position + c, dx + m * C + c, end - c, drop,
                                 m / T, position + c);
            }
        }
    }
}

#endif
