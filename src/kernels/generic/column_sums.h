/* column_sums.h: the bias gradient, summed beside the weight gradient while dy is in the cache. */
#ifndef TUTTI_KERNELS_GENERIC_COLUMN_SUMS_H
#define TUTTI_KERNELS_GENERIC_COLUMN_SUMS_H

#include "kernels/generic/fixed.h"

/* gb, n elements from `at` on, += column sums of dy[M,n] (rows N apart): each leaf from zero in row
 * order. */
static inline void column_sums(const tt_grad *gb, int64_t at, const act *dy, int64_t N, int64_t M,
                               int64_t n, int64_t leaf)
{
    const float limit = grad_limit(gb, tt_min(leaf, M));
    for (int64_t j = 0; j < n; j += LANES) {
        for (int64_t first = 0; first < M; first += leaf) {
            wide of_leaf = wide_zero();
            for (int64_t m = first; m < tt_min(first + leaf, M); m++) {
                wide d = wide_load_act(dy + m * N + j, n - j);
                EACH_PART(p)
                {
                    of_leaf.part[p] += d.part[p];
                }
            }
            grad_add(gb, at + j, of_leaf, n - j, limit);
        }
    }
}

#endif
