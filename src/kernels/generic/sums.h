/* sums.h: sums over everything. */
#ifndef TUTTI_KERNELS_GENERIC_SUMS_H
#define TUTTI_KERNELS_GENERIC_SUMS_H

#include "kernels/generic/fixed.h"

#pragma omp declare reduction(exact:tt_exact                       \
                              : tt_exact_merge(&omp_out, &omp_in)) \
    initializer(omp_priv = (tt_exact){.pending = 0})

/* Chunks of BLOCK elements are summed over LANES in FP64; the sums of chunks are added without
 * rounding, so it does not matter how many there are in a call, or which thread adds which. */
static void generic_sum_squares(tt_ctx *ctx, tt_exact *sum, const tt_grad *g, int64_t n)
{
    tt_exact all = {.pending = 0};
#pragma omp parallel for num_threads(ctx->threads) reduction(exact : all)
    for (int64_t chunk = 0; chunk < n; chunk += BLOCK) {
        const int64_t end = tt_min(n, chunk + BLOCK);
        vec_doubles part[LANES / DOUBLES] = {{0}};
        double lanes[LANES], total = 0;
        for (int64_t i = chunk; i < end; i += LANES) {
            wide f = grad_load(g, i, end - i);
            EACH_PART(p)
            {
                vec_doubles low, high;
                vec_to_doubles(f.part[p], &low, &high);
                part[2 * p] += low * low;
                part[2 * p + 1] += high * high;
            }
        }
        memcpy(lanes, part, sizeof lanes);
        for (int l = 0; l < LANES; l++) {
            total += lanes[l];
        }
        tt_exact_add(&all, total);
    }
    tt_exact_merge(sum, &all);
}

#endif
