/* rng.h: randomness is a function, not a stream (decision 9 of the design).
 *
 * Philox4x32-10 (Salmon, Moraes, Dror, Shaw: Parallel random numbers: as easy as 1, 2, 3; SC'11).
 * The key is derived from (seed, purpose, step); the counter is (index, stream, lane), so any value
 * can be computed anywhere, in any order, by any rank, thread or recompute, with no stored state.
 *
 * Invariant: the value depends on these arguments and nothing else. */
#ifndef TUTTI_BASE_RNG_H
#define TUTTI_BASE_RNG_H

#include <stdint.h>

/* Stored in no file, but part of every result: append only. */
typedef enum tt_purpose {
    TT_RNG_INIT = 1,    /* weights: stream = parameter index, index = element */
    TT_RNG_DROPOUT = 2, /* masks: stream = (sample, layer site), index = element */
    TT_RNG_SHUFFLE = 3, /* epoch permutation: round function of the bijection */
    TT_RNG_SAMPLE = 4,  /* generation: index = token */
    TT_RNG_SPLIT = 5,   /* which documents are held out */
    TT_RNG_TEST = 6,
    TT_RNG_ROUND = 7 /* rounding of weights: step = updates, index = flat element */
} tt_purpose;

typedef struct tt_key {
    uint32_t k[2];
} tt_key;

typedef struct tt_u32x4 {
    uint32_t v[4];
} tt_u32x4;

/* The raw bijection, known-answer tested. */
tt_u32x4 tt_philox(tt_u32x4 counter, tt_key key);

/* Key for a purpose at a step. Distinct (seed, purpose, step) give unrelated keys. */
tt_key tt_rng_key(uint64_t seed, tt_purpose purpose, uint64_t step);

/* Four values for (stream, index). */
tt_u32x4 tt_rng(tt_key key, uint64_t stream, uint64_t index);

/* Standard normal for (stream, index): Box-Muller in double from one Philox block. */
float tt_rng_normal(tt_key key, uint64_t stream, uint64_t index);

/* Uniform in [0, 1) with 32 bits. */
double tt_rng_uniform(tt_key key, uint64_t stream, uint64_t index);

/* A keyed bijection of [0, n): the image of `index` (Feistel network on the next even power of two,
 * cycle walking; Black and Rogaway 2002). n >= 1, 0 <= index < n. */
int64_t tt_permute(tt_key key, int64_t n, int64_t index);

#endif
