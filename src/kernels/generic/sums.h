/* sums.h: sums over everything. */
#ifndef TUTTI_KERNELS_GENERIC_SUMS_H
#define TUTTI_KERNELS_GENERIC_SUMS_H

#include "kernels/generic/act.h"

/* SEGMENTS equal runs, whatever the number of threads, each summed over LANES in double. */
static double generic_sum_squares(tt_ctx *ctx, const float *x, int64_t n)
{
    enum { SEGMENTS = 64 };
    double partial[SEGMENTS];
    int64_t length = tt_round_up(tt_ceil_div(n, SEGMENTS), LANES);
#pragma omp parallel for num_threads(ctx->threads)
    for (int64_t segment = 0; segment < SEGMENTS; segment++) {
        const int64_t last = tt_min(n, (segment + 1) * length);
        vec_doubles sum[LANES / DOUBLES] = {{0}};
        double lanes[LANES];
        for (int64_t i = segment * length; i < last; i += LANES) {
            wide f = wide_load(x + i, last - i);
            EACH_PART(p)
            {
                vec_doubles low, high;
                vec_to_doubles(f.part[p], &low, &high);
                sum[2 * p] += low * low;
                sum[2 * p + 1] += high * high;
            }
        }
        memcpy(lanes, sum, sizeof lanes);
        partial[segment] = 0;
        for (int l = 0; l < LANES; l++) {
            partial[segment] += lanes[l];
        }
    }
    double sum = 0;
    for (int segment = 0; segment < SEGMENTS; segment++) {
        sum += partial[segment];
    }
    return sum;
}

#endif
