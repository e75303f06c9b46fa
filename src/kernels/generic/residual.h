/* residual.h: the gradient of the branch that is added to a residual (forward: epilogue.h). */
#ifndef TUTTI_KERNELS_GENERIC_RESIDUAL_H
#define TUTTI_KERNELS_GENERIC_RESIDUAL_H

#include "kernels/generic/census.h"
#include "kernels/generic/dropout.h"

static void generic_residual_grad(tt_ctx *ctx, void *db_, const void *dy_, int64_t B, int64_t T,
                                  int64_t C, const tt_dropout *drop)
{
    act *db = db_;
    const act *dy = dy_;
#pragma omp parallel for num_threads(ctx->threads)
    for (int64_t m = 0; m < B * T; m++) {
        for (int64_t c = 0; c < C; c += BLOCK) {
            float d[BLOCK];
            block_load(d, dy + m * C + c, C - c);
            if (dropout_on(drop)) {
                dropout_block(d, C - c, drop, m / T, m % T * C + c);
            }
            block_store_seen(ctx->count.result, db + m * C + c, d, C - c);
        }
    }
}

#endif
