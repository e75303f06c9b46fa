/* peak.h: how fast this instruction set multiplies and adds, with nothing to load or store. */
#ifndef TUTTI_KERNELS_GENERIC_PEAK_H
#define TUTTI_KERNELS_GENERIC_PEAK_H

#include "kernels/generic/act.h"
#include "tutti/base/clock.h"

static double generic_peak(tt_ctx *ctx, double seconds)
{
    enum { SUMS = 10, ROUNDS = 100000 }; /* independent sums, to hide the latency */
    double rate = 0;
#pragma omp parallel num_threads(ctx->threads) reduction(+ : rate)
    {
        vec sum[SUMS];
        memset(sum, 0, sizeof sum);
        double start = tt_seconds(), elapsed = 0, operations = 0;
        while (elapsed < seconds) {
            for (int round = 0; round < ROUNDS; round++) {
#pragma GCC unroll 10
                for (int i = 0; i < SUMS; i++) {
                    sum[i] = vec_fma(sum[i], vec_all(0.5f), vec_all(1));
                }
            }
            operations += 2.0 * VEC * SUMS * ROUNDS;
            elapsed = tt_seconds() - start;
        }
        volatile float sink = 0; /* the sums are used, so they are computed */
        for (int i = 0; i < SUMS; i++) {
            sink = sink + sum[i][0];
        }
        rate += operations / elapsed;
    }
    return rate;
}

#endif
