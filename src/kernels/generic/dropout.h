/* dropout.h: the multipliers of dropout, 0 or scale, for a run of elements of one sample.
 *
 * Being a function of (key, stream, element) it needs no state, and backward asks again for what
 * forward used. Reads philox.h; next: attention.h, embed.h, epilogue.h. */
#ifndef TUTTI_KERNELS_GENERIC_DROPOUT_H
#define TUTTI_KERNELS_GENERIC_DROPOUT_H

#include "kernels/generic/philox.h"

/* mask[BLOCK] out: the multipliers of the words of counters first .. first + BLOCK / 4 - 1. */
static inline void dropout_whole(float *mask, const tt_dropout *drop, uint64_t stream,
                                 uint64_t first)
{
    const vec scale = vec_all(drop->scale);
    for (int i = 0; i < BLOCK; i += TOGETHER * 2 * VEC) {
        vec_bits word[2 * TOGETHER];
        philox_in_order(word, drop->key, stream, first + (uint64_t)i / 4);
#pragma GCC unroll 4
        for (int k = 0; k < 2 * TOGETHER; k++, mask += VEC) {
            vec_store(mask, vec_kept(word[k], drop->threshold, scale));
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
            vec_bits row = (vec_bits)philox_zip(w.word[i][0], w.word[i][1]);
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
