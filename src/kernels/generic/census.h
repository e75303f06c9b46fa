/* census.h: stores in act that also count what storing did to the numbers (tt_census).
 *
 * A kernel that stores results calls these in place of act.h's stores. Who does not count pays a
 * branch a step, always taken the same way; who counts reads back what was stored and compares bits,
 * element by element, so the counts say what happened, however the ISA rounds. Bits, because a
 * comparison of floats takes subnormal ones for zero.
 *
 * A thread adds to its own element of the array, so nothing is shared and nothing is lost.
 *
 * Reads act.h; next: epilogue.h and one file per noun. */
#ifndef TUTTI_KERNELS_GENERIC_CENSUS_H
#define TUTTI_KERNELS_GENERIC_CENSUS_H

#include "kernels/generic/act.h"

/* One number: the bits of its FP32 result and of what was stored, as FP32. */
static inline void census_one(tt_census *census, uint32_t result, uint32_t stored)
{
    const uint32_t infinite = 0x7f800000u, was = result & 0x7fffffffu, is = stored & 0x7fffffffu;
    census->inf += is == infinite;
    census->nan += is > infinite;
    census->overflow += is == infinite && was < infinite;
    census->underflow += is == 0 && was != 0;
}

/* y[n], or LANES of it, as stored, of result[LANES]. */
__attribute__((cold, noinline, unused)) static void census_step(tt_census *census, const act *y,
                                                                const float *result, int64_t n)
{
    tt_census *mine = census + tt_thread_id();
    for (int64_t i = 0; i < tt_min(n, LANES); i++) {
        census_one(mine, tt_bits_of_f32(result[i]), tt_bits_of_f32(f32_of_act(y[i])));
    }
    mine->values += tt_min(n, LANES);
}

/* After y[n], or LANES of it, was stored: counts it unless census is NULL. */
static inline void census_see(tt_census *census, const act *y, wide result, int64_t n)
{
    if (__builtin_expect(census != NULL, 0)) {
        float lane[LANES];
        wide_to(lane, result);
        census_step(census, y, lane, n);
    }
}

/* wide_store_act, counted. */
static inline void wide_store_seen(tt_census *census, act *y, wide w, int64_t n)
{
    wide_store_act(y, w, n);
    census_see(census, y, w, n);
}

/* block_store, counted. */
static inline void block_store_seen(tt_census *census, act *restrict y, const float *restrict f,
                                    int64_t n)
{
    block_store(y, f, n);
    if (__builtin_expect(census != NULL, 0)) {
        for (int i = 0; i < BLOCK && i < n; i += LANES) {
            census_step(census, y + i, f + i, n - i);
        }
    }
}

#endif
