/* column_sums.h: the bias gradient, summed beside the weight gradient while dy is in the cache. */
#ifndef TUTTI_KERNELS_GENERIC_COLUMN_SUMS_H
#define TUTTI_KERNELS_GENERIC_COLUMN_SUMS_H

#include "kernels/generic/act.h"

/* gb[n] inout += column sums of dy[M,n] (rows N apart): each leaf from zero in row order. */
static inline void column_sums(float *gb, const act *dy, int64_t N, int64_t M, int64_t n,
                               int64_t leaf)
{
    for (int64_t j = 0; j < n; j += BLOCK) {
        float sum[BLOCK];
        block_load_f32(sum, gb + j, n - j);
        for (int64_t first = 0; first < M; first += leaf) {
            float leaf_sum[BLOCK] = {0};
            for (int64_t m = first; m < tt_min(first + leaf, M); m++) {
                float d[BLOCK];
                block_load(d, dy + m * N + j, n - j);
                for (int i = 0; i < BLOCK; i++) {
                    leaf_sum[i] += d[i];
                }
            }
            for (int i = 0; i < BLOCK; i++) {
                sum[i] += leaf_sum[i];
            }
        }
        block_store_f32(gb + j, sum, n - j);
    }
}

#endif
