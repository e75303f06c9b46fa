/* convert.h: from element to element: FP32 to the storage format and back, GELU. */
#ifndef TUTTI_KERNELS_GENERIC_CONVERT_H
#define TUTTI_KERNELS_GENERIC_CONVERT_H

#include "kernels/generic/census.h"
#include "kernels/generic/gelu.h"

static void generic_to_act(tt_ctx *ctx, void *y_, const float *x, int64_t n)
{
    act *y = y_;
#pragma omp parallel for num_threads(ctx->threads)
    for (int64_t i = 0; i < n; i += LANES) {
        wide_store_seen(ctx->count.result, y + i, wide_load(x + i, n - i), n - i);
    }
}

static void generic_from_act(tt_ctx *ctx, float *y, const void *x_, int64_t n)
{
    const act *x = x_;
#pragma omp parallel for num_threads(ctx->threads)
    for (int64_t i = 0; i < n; i += LANES) {
        wide_store(y + i, wide_load_act(x + i, n - i), n - i);
    }
}

static void generic_gelu(tt_ctx *ctx, void *y_, const void *x_, int64_t n)
{
    act *y = y_;
    const act *x = x_;
#pragma omp parallel for num_threads(ctx->threads)
    for (int64_t i = 0; i < n; i += LANES) {
        wide f = wide_load_act(x + i, n - i);
        EACH_PART(p)
        {
            f.part[p] = vec_gelu(f.part[p]);
        }
        wide_store_seen(ctx->count.result, y + i, f, n - i);
    }
}

#endif
