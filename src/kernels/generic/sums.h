/* sums.h: sums over everything. */
#ifndef TUTTI_KERNELS_GENERIC_SUMS_H
#define TUTTI_KERNELS_GENERIC_SUMS_H

#include "kernels/generic/act.h"

/* SEGMENTS equal runs, whatever the number of threads, each summed over LANES in double. */
static double generic_sum_squares(tt_ctx *ctx, const float *x, int64_t n)
{
    enum { SEGMENTS = 64 };
    double partial[SEGMENTS];
    int64_t length = tt_round_up(tt_ceil_div(n, SEGMENTS), BLOCK);
#pragma omp parallel for num_threads(ctx->threads)
    for (int64_t segment = 0; segment < SEGMENTS; segment++) {
        double lanes[LANES] = {0}, sum = 0;
        int64_t last = tt_min(n, (segment + 1) * length);
        for (int64_t i = segment * length; i < last; i += BLOCK) {
            float f[BLOCK];
            block_load_f32(f, x + i, last - i);
            for (int j = 0; j < BLOCK; j += LANES) {
                for (int l = 0; l < LANES; l++) {
                    lanes[l] += (double)f[j + l] * (double)f[j + l];
                }
            }
        }
        for (int l = 0; l < LANES; l++) {
            sum += lanes[l];
        }
        partial[segment] = sum;
    }
    double sum = 0;
    for (int segment = 0; segment < SEGMENTS; segment++) {
        sum += partial[segment];
    }
    return sum;
}

#endif
