/* convert.h: FP32 to the storage format and back. */
#ifndef TUTTI_KERNELS_GENERIC_CONVERT_H
#define TUTTI_KERNELS_GENERIC_CONVERT_H

#include "kernels/generic/act.h"

static void generic_to_act(tt_ctx *ctx, void *y_, const float *x, int64_t n)
{
    act *y = y_;
#pragma omp parallel for num_threads(ctx->threads)
    for (int64_t block = 0; block < blocks_of(n); block++) {
        block_store(y + block * BLOCK, x + block * BLOCK, n - block * BLOCK);
    }
}

static void generic_from_act(tt_ctx *ctx, float *y, const void *x_, int64_t n)
{
    const act *x = x_;
#pragma omp parallel for num_threads(ctx->threads)
    for (int64_t block = 0; block < blocks_of(n); block++) {
        float f[BLOCK];
        block_load(f, x + block * BLOCK, n - block * BLOCK);
        block_store_f32(y + block * BLOCK, f, n - block * BLOCK);
    }
}

#endif
