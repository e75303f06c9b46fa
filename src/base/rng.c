/* rng.c: Philox4x32-10, the numbers made from it, and a keyed permutation.
 *
 * Everything here is a pure function of its arguments, in integers wherever bits matter. */
#include "tutti/base/rng.h"

#include <assert.h>
#include <math.h>

tt_u32x4 tt_philox(tt_u32x4 counter, tt_key key)
{
    const uint64_t m0 = 0xD2511F53u, m1 = 0xCD9E8D57u;       /* the paper's multipliers */
    const uint32_t weyl0 = 0x9E3779B9u, weyl1 = 0xBB67AE85u; /* golden ratio, sqrt(3) - 1 */
    uint32_t c0 = counter.v[0], c1 = counter.v[1], c2 = counter.v[2], c3 = counter.v[3];
    uint32_t k0 = key.k[0], k1 = key.k[1];
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = m0 * c0, p1 = m1 * c2;
        c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)p1;
        c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)p0;
        k0 += weyl0;
        k1 += weyl1;
    }
    return (tt_u32x4){{c0, c1, c2, c3}};
}

/* Philox once more: a key of our own per purpose, (seed, step) as the counter. */
tt_key tt_rng_key(uint64_t seed, tt_purpose purpose, uint64_t step)
{
    tt_u32x4 counter = {
        {(uint32_t)seed, (uint32_t)(seed >> 32), (uint32_t)step, (uint32_t)(step >> 32)}};
    tt_u32x4 block = tt_philox(counter, (tt_key){{(uint32_t)purpose, 0x74757474u}});
    return (tt_key){{block.v[0], block.v[1]}};
}

tt_u32x4 tt_rng(tt_key key, uint64_t stream, uint64_t index)
{
    tt_u32x4 counter = {
        {(uint32_t)index, (uint32_t)(index >> 32), (uint32_t)stream, (uint32_t)(stream >> 32)}};
    return tt_philox(counter, key);
}

/* 53 bits of two words, in [0, 1). */
static double fraction53(uint32_t high, uint32_t low)
{
    return (double)((((uint64_t)high << 32) | low) >> 11) * 0x1p-53;
}

float tt_rng_normal(tt_key key, uint64_t stream, uint64_t index)
{
    const double two_pi = 6.283185307179586476925;
    tt_u32x4 block = tt_rng(key, stream, index);
    double u = 1.0 - fraction53(block.v[0], block.v[1]); /* (0, 1]: the logarithm is finite */
    double angle = two_pi * fraction53(block.v[2], block.v[3]);
    return (float)(sqrt(-2.0 * log(u)) * cos(angle));
}

double tt_rng_uniform(tt_key key, uint64_t stream, uint64_t index)
{
    return (double)tt_rng(key, stream, index).v[0] * 0x1p-32;
}

/* One pass of the Feistel network over [0, 2^(2 half)): a bijection whatever the round function.
 * Eight rounds, because on the few bits of a small n four leave visible structure. */
static uint64_t feistel(tt_key key, int half, uint64_t value)
{
    uint64_t mask = ((uint64_t)1 << half) - 1;
    uint64_t left = value >> half, right = value & mask;
    for (uint32_t round = 0; round < 8; round++) {
        tt_u32x4 block = tt_philox((tt_u32x4){{(uint32_t)right, round, 0, 0}}, key);
        uint64_t next = left ^ (block.v[0] & mask);
        left = right;
        right = next;
    }
    return left << half | right;
}

int64_t tt_permute(tt_key key, int64_t n, int64_t index)
{
    assert(n >= 1 && index >= 0 && index < n);
    int half = 1;
    while (half < 32 && (uint64_t)1 << (2 * half) < (uint64_t)n) {
        half++;
    }
    /* Cycle walking: the network permutes the larger power; following the cycle of `index` until it
     * is back below n gives a bijection of [0, n). Less than four passes on average. */
    uint64_t image = (uint64_t)index;
    do {
        image = feistel(key, half, image);
    } while (image >= (uint64_t)n);
    return (int64_t)image;
}
