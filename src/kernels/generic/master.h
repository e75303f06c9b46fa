/* master.h: what stands behind the weights, read as FP32 and written back; see tt_master.
 *
 * numerics/bf16_weight.h defines both forms; here they are vectors, without a branch for the few
 * numbers that are special. What comes here is the result of arithmetic, so a NaN is quiet already.
 *
 * Random bits are made for MASTER_RUN elements at a time: a counter gives four words, a word two
 * elements their 16 bits.
 *
 * Reads philox.h; next: adamw.h. */
#ifndef TUTTI_KERNELS_GENERIC_MASTER_H
#define TUTTI_KERNELS_GENERIC_MASTER_H

#include <assert.h>

#include "kernels/generic/philox.h"

enum { MASTER_RUN = 2 * BLOCK, PER_COUNTER = 8 };

/* The masters at .. at + n - 1, n or LANES of them; 0 in the other lanes. */
static inline wide master_load(const tt_master *master, const act *w, int64_t at, int64_t n)
{
#if defined(TT_ACT_BF16)
    if (master->kind == TT_MASTER_NONE) {
        return wide_load_act(w + at, n);
    }
    if (master->kind == TT_MASTER_SPLIT) {
        uint16_t few[LANES] = {0};
        const uint16_t *low = master->low + at;
        wide p = wide_load_act(w + at, n);
        if (n < LANES) {
            COPY_FEW(uint16_t, few, low, n);
            low = few;
        }
        EACH_PART(k)
        {
            p.part[k] = (vec)((vec_bits)p.part[k] + vec_of_halves(low + k * VEC));
        }
        return p;
    }
#endif
    (void)w;
    assert(master->kind == TT_MASTER_FP32);
    return wide_load(master->full + at, n);
}

#if defined(TT_ACT_BF16)
/* y[n] = the first n of LANES words below 2^16, or all. */
static inline void halves_store(uint16_t *y, const vec_bits *part, int64_t n)
{
    if (n >= LANES) {
        vec_to_halves(y, part);
    } else {
        uint16_t few[LANES];
        vec_to_halves(few, part);
        COPY_FEW(uint16_t, y, few, n);
    }
}

/* tt_split_of_f32. */
static inline void split_store(uint16_t *high, uint16_t *low, wide p, int64_t n)
{
    vec_bits upper[PARTS], lower[PARTS];
    EACH_PART(k)
    {
        const vec_bits nan = (vec_bits)(p.part[k] != p.part[k]);
        const vec_bits bits = (vec_bits)p.part[k] & ~(nan & 0xffffu);
        upper[k] = (bits + 0x8000u) >> 16;
        lower[k] = bits & 0xffffu;
    }
    halves_store(high, upper, n);
    halves_store(low, lower, n);
}

/* tt_bf16_random, by random[LANES]. From the greatest BF16 on, words order as numbers do, NaN behind
 * infinity; what rounding to nearest adds to a NaN is nothing. */
static inline void random_store(act *w, wide p, int64_t n, const uint16_t *random)
{
    vec_bits code[PARTS];
    EACH_PART(k)
    {
        const vec_bits bits = (vec_bits)p.part[k], nan = (vec_bits)(p.part[k] != p.part[k]);
        const vec_bits top = (vec_bits)((vec_ints)(bits & 0x7fffffffu) > 0x7f7effff);
        const vec_bits nearest = (0x7fffu + ((bits >> 16) & 1u)) & ~nan;
        const vec_bits any = vec_of_halves(random + k * VEC) & 0xffffu;
        code[k] = (bits + vec_where(top, nearest, any)) >> 16;
    }
    halves_store(w, code, n);
}
#endif

/* Writes masters and weights; random[LANES] is read where rounding is stochastic. */
static inline void master_store(const tt_master *master, act *w, int64_t at, int64_t n, wide p,
                                const uint16_t *random)
{
#if defined(TT_ACT_BF16)
    if (master->kind == TT_MASTER_SPLIT) {
        split_store(w + at, master->low + at, p, n);
        return;
    }
    if (master->kind == TT_MASTER_NONE && master->stochastic) {
        random_store(w + at, p, n, random);
        return;
    }
#endif
    (void)random;
    if (master->kind == TT_MASTER_FP32) {
        wide_store(master->full + at, p, n);
    }
    wide_store_act(w + at, p, n);
}

/* random[MASTER_RUN] out: those of the elements from `at` on. */
static inline void master_random(uint16_t *random, const tt_master *master, int64_t at)
{
    enum { STEP = 2 * TOGETHER * VEC }; /* words */
    _Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the lower half of a word is first");
    const int64_t first = master->first + at, skip = first % PER_COUNTER;
    const int64_t words = MASTER_RUN / 2 + (skip != 0 ? STEP : 0);
    uint64_t counter = (uint64_t)(first / PER_COUNTER);
    uint16_t more[MASTER_RUN + 2 * STEP], *out = skip != 0 ? more : random;
    for (int64_t i = 0; i < words; i += STEP, counter += STEP / 4) {
        vec_bits word[2 * TOGETHER];
        philox_in_order(word, master->key, 0, counter);
        memcpy(out + 2 * i, word, sizeof word);
    }
    if (skip != 0) { /* `at` is in the midst of a counter's */
        memcpy(random, more + skip, MASTER_RUN * sizeof *random);
    }
}

#endif
