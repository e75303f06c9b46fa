/* philox.h: random words in vectors.
 *
 * The same function as tt_rng (tutti/base/rng.h); a test compares them word for word.
 *
 * Counters lie one to a 64-bit element, each of their four words in the lower half of one vector.
 * What is in the upper halves plays no part: a product takes the lower halves only.
 *
 * Reads act.h; next: dropout.h, adamw.h. */
#ifndef TUTTI_KERNELS_GENERIC_PHILOX_H
#define TUTTI_KERNELS_GENERIC_PHILOX_H

#include "kernels/generic/act.h"

enum {
    COUNTERS = VEC / 2,                /* counters to a vector; each gives four words */
    GROUPS = BLOCK / (4 * COUNTERS),   /* vectors of counters to a block */
    TOGETHER = GROUPS < 2 ? GROUPS : 2 /* of them at a time: their rounds overlap */
};

/* Counters, and then the four words that each of them gives. */
typedef struct philox_words {
    vec_words word[4][TOGETHER];
} philox_words;

/* Of counters first[TOGETHER]. */
static inline philox_words philox(tt_key key, uint64_t stream, const vec_words *first)
{
    const vec_words m0 = (vec_words){0} + 0xD2511F53u, m1 = (vec_words){0} + 0xCD9E8D57u;
    vec_words c0[TOGETHER], c1[TOGETHER], c2[TOGETHER], c3[TOGETHER];
    vec_words k0 = (vec_words){0} + key.k[0], k1 = (vec_words){0} + key.k[1];
    philox_words w;
#pragma GCC unroll 4
    for (int g = 0; g < TOGETHER; g++) {
        c0[g] = first[g];
        c1[g] = first[g] >> 32;
        c2[g] = (vec_words){0} + stream;
        c3[g] = (vec_words){0} + (stream >> 32);
    }
#pragma GCC unroll 10
    for (int round = 0; round < 10; round++) {
#pragma GCC unroll 4
        for (int g = 0; g < TOGETHER; g++) {
            vec_words p0 = vec_multiply(c0[g], m0), p1 = vec_multiply(c2[g], m1);
            c0[g] = (p1 >> 32) ^ c1[g] ^ k0;
            c1[g] = p1;
            c2[g] = (p0 >> 32) ^ c3[g] ^ k1;
            c3[g] = p0;
        }
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
#pragma GCC unroll 4
    for (int g = 0; g < TOGETHER; g++) {
        w.word[0][g] = c0[g];
        w.word[1][g] = c1[g];
        w.word[2][g] = c2[g];
        w.word[3][g] = c3[g];
    }
    return w;
}

/* The lower halves of a and b, alternating. */
static inline vec_words philox_zip(vec_words a, vec_words b)
{
    return (a & 0xffffffffu) | b << 32;
}

/* word[2 * TOGETHER] out: the words of counters first .. first + TOGETHER * COUNTERS - 1, in order. */
static inline void philox_in_order(vec_bits *word, tt_key key, uint64_t stream, uint64_t first)
{
    vec_words counter[TOGETHER];
#pragma GCC unroll 4
    for (int i = 0; i < TOGETHER; i++) { /* in an order that pairs at the end undo */
        counter[i] = vec_spread() + (first + (uint64_t)(i * COUNTERS));
    }
    const philox_words w = philox(key, stream, counter);
#pragma GCC unroll 4
    for (int i = 0; i < TOGETHER; i++) {
        vec_words front = philox_zip(w.word[0][i], w.word[1][i]);
        vec_words back = philox_zip(w.word[2][i], w.word[3][i]);
        word[2 * i] = (vec_bits)vec_pairs_low(front, back);
        word[2 * i + 1] = (vec_bits)vec_pairs_high(front, back);
    }
}

#endif
