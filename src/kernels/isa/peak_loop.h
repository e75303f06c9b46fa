/* peak_loop.h: FLOP/s of a unit, measured; an ISA brings the burst.
 *
 * The peak is what the unit does when nobody disturbs it, so each thread keeps its best short burst
 * and the threads' bests are added.
 *
 * Reads the clock; next: gemm_avx2.h, gemm_avx512.h, gemm_avx512bf16.c. */
#ifndef TUTTI_KERNELS_PEAK_LOOP_H
#define TUTTI_KERNELS_PEAK_LOOP_H

#include "tutti/base/clock.h"
#include "tutti/kernels/kernels.h"

enum { PEAK_ROUNDS = 20000 }; /* a burst of a fraction of a millisecond */

/* From the ISA: runs PEAK_ROUNDS rounds of independent multiply-adds and returns their FLOP. */
static double peak_burst(void);

static double peak(tt_ctx *ctx, double seconds)
{
    double total = 0.0;
#pragma omp parallel num_threads(ctx->threads) reduction(+ : total)
    {
        double best = 0.0, begin = tt_seconds(), now = begin;
        do {
            double before = now;
            double flop = peak_burst();
            now = tt_seconds();
            double rate = now > before ? flop / (now - before) : 0.0;
            best = rate > best ? rate : best;
        } while (now - begin < seconds);
        total += best;
    }
    return total;
}

#endif
