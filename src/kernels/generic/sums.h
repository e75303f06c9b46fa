/* sums.h: sums over rows and over everything. */
#ifndef TUTTI_KERNELS_GENERIC_SUMS_H
#define TUTTI_KERNELS_GENERIC_SUMS_H

#include "kernels/generic/act.h"

/* Threads own columns; a leaf of rows is summed from zero, then added. */
static void generic_bias_grad(tt_ctx *ctx, float *gb, const void *dy_, int64_t M, int64_t N,
                              int64_t leaf)
{
    const act *dy = dy_;
#pragma omp parallel for num_threads(ctx->threads)
    for (int64_t block = 0; block < blocks_of(N); block++) {
        int64_t n = block * BLOCK;
        float sum[BLOCK];
        block_load_f32(sum, gb + n, N - n);
        for (int64_t first = 0; first < M; first += leaf) {
            float leaf_sum[BLOCK] = {0};
            for (int64_t m = first; m < tt_min(first + leaf, M); m++) {
                float d[BLOCK];
                block_load(d, dy + m * N + n, N - n);
                for (int i = 0; i < BLOCK; i++) {
                    leaf_sum[i] += d[i];
                }
            }
            for (int i = 0; i < BLOCK; i++) {
                sum[i] += leaf_sum[i];
            }
        }
        block_store_f32(gb + n, sum, N - n);
    }
}

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
