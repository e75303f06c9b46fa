/* fixed.h: gradients as 64-bit fixed point, the accumulators of exact mode.
 *
 * A summand x (what one sequence adds to a gradient element: a leaf) becomes the integer nearest to
 * x * 2^shift, ties to even. Integers add without rounding, so the total is the same for every order,
 * every grouping into micro-batches and ranks, and every algorithm of MPI_SUM.
 *
 * Range. Gradients are sums over tokens, not means, times a factor on the loss, here called scale: the
 * seed of backward (optim/scaler.h). A summand that is a sum over n tokens may be as large as
 * n * scale * 2^MARGIN in magnitude: a mean of 4096 a token, in an element of the gradient of nats
 * with respect to one weight, whatever the scale. Trained models show means far below 1; a model whose
 * gradients are beyond 4096 has diverged. A summand that is larger, or NaN, is lost: it is counted and
 * the step is skipped on all ranks like one with infinite gradients. A sequence adds to an element at
 * most two such sums over its T tokens (a tied embedding: one from the head, one from the input), so
 * over S sequences
 *
 *     |total| <= 2 S T scale 2^(MARGIN + shift) <= 2^62
 *     when  shift <= 62 - 1 - MARGIN - log2(S T) - log2(scale)
 *
 * and no sum of what was not lost can overflow, whoever adds up what: nothing needs checking where
 * integers are added, in the reduction least of all. (One bit below 2^63, which no int64 holds, so
 * that rounding to integers cannot reach it either, even where a unit is larger than a summand.) A
 * leaf must also fit 51 bits, so that one addition in FP64 rounds it:
 * shift <= 51 - MARGIN - log2(T) - log2(scale).  shift is the largest that satisfies both, with S, T
 * and scale rounded up to powers of two. (The limit is a product rounded to FP32. Rounding keeps order,
 * and what bounds the limit is a power of two, so a rounded limit is within the bound too.)
 *
 * Scale. A power of two moves summands, limit and unit by the same binary places: the integers are the
 * same bits for every such scale, as long as backward itself neither over- nor underflows. With another
 * scale the unit is up to twice as coarse against the gradient; it is still that of all splits.
 *
 * Resolution. A summand is off by at most half a unit. For T = 1024 and up to 1024 sequences a step,
 * shift is 29 at scale 1: half a unit is 2^-30, which in the mean over the tokens of a sequence is
 * 2^-40, about 1e-12; over K sequences errors average out by sqrt(K) more. AdamW's eps is 1e-8 unless
 * it is chosen smaller, so an element too small to be resolved is one that eps has silenced. In FP32, a
 * sum over K leaves is rounded K times to 24 bits of what has come together so far; here a gradient is
 * rounded to FP32 once, at the end.
 *
 * S and T are those of the configuration, and the scale is the step's: all splits of one batch have the
 * same shift. The loss itself is summed elsewhere (exact_sum.h) and never scaled.
 *
 * Plain memory. Reads nothing; next: kernels/kernels.h. */
#ifndef TUTTI_NUMERICS_FIXED_H
#define TUTTI_NUMERICS_FIXED_H

#include <stdint.h>

enum { TT_FIXED_MARGIN = 12, TT_FIXED_BITS = 51, TT_FIXED_TOTAL_BITS = 62 };

typedef struct tt_fixed {
    int shift;     /* one unit is 2^-shift; negative for large batches and large scales */
    float most;    /* largest magnitude of a summand of one token: scale * 2^MARGIN */
    double middle; /* 1.5 * 2^52 units: doubles near it are whole units apart */
    double unit;   /* 2^-shift */
} tt_fixed;

/* For steps of `sequences` sequences of `tokens` tokens, both at least 1, whose losses are multiplied by
 * `scale`: positive and so that scale * 2^MARGIN * tokens and the unit are normal FP32 numbers. */
tt_fixed tt_fixed_make(int64_t sequences, int64_t tokens, float scale);

/* Largest magnitude of a summand that is a sum over `rows` tokens. */
static inline float tt_fixed_limit(const tt_fixed *fixed, int64_t rows)
{
    return (float)rows * fixed->most;
}

/* x as an integer, for |x| <= tt_fixed_limit of at most `tokens` rows; anything for others. The sum
 * is rounded to a whole number of units, and its bits count on from those of the middle. A subnormal
 * x is 0 in any mode of the processor. */
static inline int64_t tt_fixed_of(const tt_fixed *fixed, float x)
{
    union {
        double number;
        uint64_t bits;
    } sum = {(double)x + fixed->middle}, none = {fixed->middle};
    return (int64_t)(sum.bits - none.bits);
}

/* The float nearest to the double nearest to q * 2^-shift. */
static inline float tt_fixed_to(const tt_fixed *fixed, int64_t q)
{
    return (float)((double)q * fixed->unit);
}

#endif
