/* dropout.h: the multipliers of dropout, 0 or scale, for a run of elements of one sample.
 *
 * The same function as tt_rng (tutti/base/rng.h), written over PHILOX lanes so that it vectorises;
 * a test compares them word for word. Being a function of (key, stream, element) it needs no state,
 * and backward asks again for what forward used. */
#ifndef TUTTI_KERNELS_GENERIC_DROPOUT_H
#define TUTTI_KERNELS_GENERIC_DROPOUT_H

#include "kernels/generic/act.h"

enum { PHILOX = BLOCK / 4 }; /* counters at a time; each gives four words */

/* word[BLOCK] out = the words of counters first .. first + PHILOX - 1, in order. */
static inline void philox_words(uint32_t *restrict word, tt_key key, uint64_t stream,
                                uint64_t first)
{
    const uint64_t m0 = 0xD2511F53u, m1 = 0xCD9E8D57u;
    uint32_t words[4][PHILOX];
    for (uint32_t l = 0; l < PHILOX; l++) {
        uint64_t counter = first + l;
        uint32_t c0 = (uint32_t)counter, c1 = (uint32_t)(counter >> 32);
        uint32_t c2 = (uint32_t)stream, c3 = (uint32_t)(stream >> 32);
        uint32_t k0 = key.k[0], k1 = key.k[1];
#pragma GCC unroll 10
        for (int round = 0; round < 10; round++) {
            uint64_t p0 = m0 * c0, p1 = m1 * c2;
            c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
            c1 = (uint32_t)p1;
            c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
            c3 = (uint32_t)p0;
            k0 += 0x9E3779B9u;
            k1 += 0xBB67AE85u;
        }
        words[0][l] = c0;
        words[1][l] = c1;
        words[2][l] = c2;
        words[3][l] = c3;
    }
    for (int l = 0; l < PHILOX; l++) {
        for (int w = 0; w < 4; w++) {
            word[4 * l + w] = words[w][l];
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
    uint64_t stream = tt_dropout_stream(drop->sample[b], drop->site);
    uint32_t word[BLOCK], threshold = drop->threshold;
    float scale = drop->scale;
    int64_t skip = first % 4; /* words of the first counter that come before `first` */
    uint64_t counter = (uint64_t)(first / 4);
    for (int64_t i = 0; i < n; counter += PHILOX) {
        philox_words(word, drop->key, stream, counter);
        int64_t count = tt_min(BLOCK - skip, n - i);
        for (int64_t j = 0; j < count; j++) {
            mask[i + j] = word[skip + j] >= threshold ? scale : 0;
        }
        i += count;
        skip = 0;
    }
}

/* f[BLOCK] inout *= multipliers of elements first .. first + n - 1; the padding becomes 0. */
static inline void dropout_block(float *restrict f, int64_t n, const tt_dropout *drop, int64_t b,
                                 int64_t first)
{
    float mask[BLOCK];
    dropout_mask(mask, tt_min(n, BLOCK), drop, b, first);
    block_clear(mask, n);
    for (int i = 0; i < BLOCK; i++) {
        f[i] *= mask[i];
    }
}

#endif
