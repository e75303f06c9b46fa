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
static inline vec_words dropout_zip(vec_words a, vec_words b)
{
    return (a & 0xffffffffu) | b << 32;
}

/* mask[BLOCK] out: the multipliers of the words of counters first .. first + BLOCK / 4 - 1. */
static inline void dropout_whole(float *mask, const tt_dropout *drop, uint64_t stream,
                                 uint64_t first)
{
    const vec scale = vec_all(drop->scale);
    for (int g = 0; g < GROUPS; g += TOGETHER) {
        vec_words counter[TOGETHER];
#pragma GCC unroll 4
        for (int i = 0; i < TOGETHER; i++) { /* in an order that pairs at the end undo */
            counter[i] = vec_spread() + (first + (uint64_t)((g + i) * COUNTERS));
        }
        const philox_words w = philox(drop->key, stream, counter);
#pragma GCC unroll 4
        for (int i = 0; i < TOGETHER; i++, mask += 2 * VEC) {
            vec_words front = dropout_zip(w.word[0][i], w.word[1][i]);
            vec_words back = dropout_zip(w.word[2][i], w.word[3][i]);
            vec_bits low = (vec_bits)vec_pairs_low(front, back);
            vec_bits high = (vec_bits)vec_pairs_high(front, back);
            vec_store(mask, vec_kept(low, drop->threshold, scale));
            vec_store(mask + VEC, vec_kept(high, drop->threshold, scale));
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

/* mask[n, stride] out, VEC columns of it: column l has the multipliers of elements first + l * apart ..
 * first + l * apart + n - 1 of sequence b. first, apart and n are multiples of 4. Lanes are counters of
 * different columns, so that their words come out turned. */
static inline void dropout_columns(float *restrict mask, int64_t stride, int64_t n,
                                   const tt_dropout *drop, int64_t b, int64_t first, int64_t apart)
{
    _Static_assert(TOGETHER == 2, "even columns and odd ones");
    const uint64_t stream = tt_dropout_stream(drop->sample[b], drop->site);
    const vec scale = vec_all(drop->scale);
    uint64_t lane[TOGETHER][COUNTERS];
    for (int l = 0; l < VEC; l++) {
        lane[l % 2][l / 2] = (uint64_t)(first + l * apart) / 4;
    }
    vec_words counter[TOGETHER];
    memcpy(counter, lane, sizeof counter);
    for (int64_t r = 0; r < n; r += 4) {
        const philox_words w = philox(drop->key, stream, counter);
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++, mask += stride) {
            vec_bits row = (vec_bits)dropout_zip(w.word[i][0], w.word[i][1]);
            vec_store(mask, vec_kept(row, drop->threshold, scale));
        }
        counter[0] += 1;
        counter[1] += 1;
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
