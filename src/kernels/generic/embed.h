/* embed.h: token and position embedding, forward and backward. */
#ifndef TUTTI_KERNELS_GENERIC_EMBED_H
#define TUTTI_KERNELS_GENERIC_EMBED_H

#include "kernels/generic/dropout.h"

static void generic_embed(tt_ctx *ctx, void *x_, const void *wte_, const void *wpe_,
                          const int32_t *token, int64_t B, int64_t T, int64_t C,
                          const tt_dropout *drop)
{
    act *x = x_;
    const act *wte = wte_, *wpe = wpe_;
#pragma omp parallel for num_threads(ctx->threads)
    for (int64_t m = 0; m < B * T; m++) {
        int64_t b = m / T, t = m % T;
        for (int64_t c = 0; c < C; c += BLOCK) {
            float sum[BLOCK], position[BLOCK];
            block_load(sum, wte + token[m] * C + c, C - c);
            block_load(position, wpe + t * C + c, C - c);
            for (int i = 0; i < BLOCK; i++) {
                sum[i] += position[i];
            }
            if (dropout_on(drop)) {
                dropout_block(sum, C - c, drop, b, t * C + c);
            }
            block_store(x + m * C + c, sum, C - c);
        }
    }
}

/* Threads own columns, so that equal tokens add up in row order without races. */
static void generic_embed_grad(tt_ctx *ctx, float *gwte, float *gwpe, const void *dx_,
                               const int32_t *token, int64_t B, int64_t T, int64_t C,
                               const tt_dropout *drop)
{
    const act *dx = dx_;
#pragma omp parallel for num_threads(ctx->threads)
    for (int64_t block = 0; block < blocks_of(C); block++) {
        int64_t c = block * BLOCK;
        for (int64_t m = 0; m < B * T; m++) {
            int64_t b = m / T, t = m % T;
            float d[BLOCK], word[BLOCK], position[BLOCK];
            float *gw = gwte + token[m] * C + c, *gp = gwpe + t * C + c;
            block_load(d, dx + m * C + c, C - c);
            if (dropout_on(drop)) {
                dropout_block(d, C - c, drop, b, t * C + c);
            }
            block_load_f32(word, gw, C - c);
            block_load_f32(position, gp, C - c);
            for (int i = 0; i < BLOCK; i++) {
                word[i] += d[i];
                position[i] += d[i];
            }
            block_store_f32(gw, word, C - c);
            block_store_f32(gp, position, C - c);
        }
    }
}

#endif
