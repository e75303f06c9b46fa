/* dropout.h: the multipliers of dropout, 0 or scale, for a run of elements of one sample.
 *
 * The same function as tt_rng (tutti/base/rng.h), BLOCK words at a time; a test compares them word
 * for word. Being a function of (key, stream, element) it needs no state, and backward asks again for
 * what forward used.
 *
 * Counters lie one to a 64-bit element, each of their four words in the lower half of one vector.
 * What is in the upper halves plays no part: a product takes the lower halves only. */
#ifndef TUTTI_KERNELS_GENERIC_DROPOUT_H
#define TUTTI_KERNELS_GENERIC_DROPOUT_H

#include "kernels/generic/act.h"

enum {
    COUNTERS = VEC / 2,                /* counters to a vector; each gives four words */
    GROUPS = BLOCK / (4 * COUNTERS),   /* vectors of counters to a block */
    TOGETHER = GROUPS < 2 ? GROUPS : 2 /* of them at a time: their rounds overlap */
};

/* words[TOGETHER][2] out = the words of counters first, first + 1, .. in order. */
static inline void philox(vec_words words[][2], tt_key key, uint64_t stream, uint64_t first)
{
    const vec_words m0 = (vec_words){0} + 0xD2511F53u, m1 = (vec_words){0} + 0xCD9E8D57u;
    vec_words c0[TOGETHER], c1[TOGETHER], c2[TOGETHER], c3[TOGETHER];
    vec_words k0 = (vec_words){0} + key.k[0], k1 = (vec_words){0} + key.k[1];
#pragma GCC unroll 4
    for (int g = 0; g < TOGETHER; g++) {
        /* in an order that pairs at the end undo */
        vec_words counter = vec_spread() + (first + (uint64_t)(g * COUNTERS));
        c0[g] = counter;
        c1[g] = counter >> 32;
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
        vec_words front = (c0[g] & 0xffffffffu) | c1[g] << 32;
        vec_words back = (c2[g] & 0xffffffffu) | c3[g] << 32;
        words[g][0] = vec_pairs_low(front, back);
        words[g][1] = vec_pairs_high(front, back);
    }
}

/* mask[BLOCK] out: the multipliers of the words of counters first .. first + BLOCK / 4 - 1. */
static inline void dropout_whole(float *mask, const tt_dropout *drop, uint64_t stream,
                                 uint64_t first)
{
    const vec scale = vec_all(drop->scale);
    for (int g = 0; g < GROUPS; g += TOGETHER) {
        vec_words words[TOGETHER][2];
        philox(words, drop->key, stream, first + (uint64_t)(g * COUNTERS));
#pragma GCC unroll 8
        for (int i = 0; i < 2 * TOGETHER; i++) {
            vec_bits word = (vec_bits)words[i / 2][i % 2];
            vec_store(mask + (2 * g + i) * VEC, vec_kept(word, drop->threshold, scale));
        }
    }
}

static inline bool dropout_on(const tt_dropout *drop)
{
    return drop != NULL && drop->threshold != 0;
}

/* mask[n] out: the multipliers of elements first .. first + n - 1 of sequence b. */
static inline void dropout_mask(float *restrict mask, int64_t n, const tt_dropout *drop, int64_t b,
                                int64_t first)
{
    const uint64_t stream = tt_dropout_stream(drop->sample[b], drop->site);
    int64_t skip = first % 4; /* words of the first counter that come before `first` */
    uint64_t counter = (uint64_t)(first / 4);
    for (int64_t i = 0; i < n; counter += BLOCK / 4) {
        if (skip == 0 && n - i >= BLOCK) {
            dropout_whole(mask + i, drop, stream, counter);
            i += BLOCK;
        } else {
            float whole[BLOCK];
            const int64_t count = tt_min(BLOCK - skip, n - i);
            dropout_whole(whole, drop, stream, counter);
            memcpy(mask + i, whole + skip, tt_bytes(count, sizeof *mask));
            i += count;
            skip = 0;
        }
    }
}

/* f[BLOCK] inout *= multipliers of elements first .. first + n - 1; the padding becomes 0. */
static inline void dropout_block(float *restrict f, int64_t n, const tt_dropout *drop, int64_t b,
                                 int64_t first)
{
    float mask[BLOCK];
    dropout_mask(mask, tt_min(n, BLOCK), drop, b, first);
    block_clear(mask, n);
    for (int i = 0; i < BLOCK; i += VEC) {
        vec_store(f + i, vec_load(f + i) * vec_load(mask + i));
    }
}

#endif
