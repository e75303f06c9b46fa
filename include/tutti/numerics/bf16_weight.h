/* bf16_weight.h: what can stand behind a weight that the model reads as BF16.
 *
 * Split. An FP32 master in two halves of 16 bits: the BF16 weight itself, and a rest that only the
 * optimizer sees. Beside the weight, which is there anyway, that is 2 bytes where a master is 4.
 *
 *     high = (bits + 0x8000) >> 16;  low = the lower 16 bits;  bits = high * 2^16 + (signed) low
 *
 * The rest counts as a signed number of units in the last place of FP32, -2^15 .. 2^15 - 1, so what is
 * halfway between two BF16 goes to the one further from zero, and to no other: every pair (high, low)
 * is the image of one bit pattern, modulo 2^32, and the master comes back bit for bit. Rounding ties to
 * even would not do: the master halfway above an even h and the one halfway below it both become h,
 * with rests +2^15 and -2^15, which are the same 16 bits; the pair could not say which it was. And a
 * high half that was just cut off would be no nearest BF16: a bias towards zero in every weight.
 *
 * The top. Masters beyond the greatest BF16 by half a unit or more read as infinite, as they do in any
 * rounding to nearest, and come back exact. Infinities are their own pair. Only NaN needs care: its
 * payload could carry over into the sign, and the model would read a zero. So a NaN is made quiet and
 * its lower half cleared first: it stays a NaN on both sides.
 *
 * Stochastic. Without a master, an update smaller than half a unit of BF16 is lost whenever the weight
 * is rounded to nearest. Rounded up with a probability that is the distance to the lower neighbour, in
 * units of the gap, it is kept on average. Bit patterns between two neighbours are evenly spaced, so
 * adding 16 random bits to the pattern and cutting off the lower half does that, for subnormals and
 * across powers of two as well. From the greatest BF16 on, where the upper neighbour is infinity, and
 * for infinities and NaN, it is the rounding to nearest.
 *
 * These are the definitions; kernels/generic/adamw.h says the same in vectors. Plain functions. Reads
 * format.h; next: kernels/kernels.h (tt_master), train/masters.c. */
#ifndef TUTTI_NUMERICS_BF16_WEIGHT_H
#define TUTTI_NUMERICS_BF16_WEIGHT_H

#include <stdbool.h>
#include <stdint.h>

#include "tutti/numerics/format.h"

typedef struct tt_split_f32 {
    tt_bf16 high; /* the BF16 nearest to the master, ties away from zero */
    uint16_t low; /* the rest, in two's complement */
} tt_split_f32;

static inline tt_split_f32 tt_split_of_f32(float value)
{
    uint32_t bits = tt_bits_of_f32(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u) {
        bits = (bits | 0x00400000u) & 0xffff0000u;
    }
    return (tt_split_f32){(tt_bf16)((bits + 0x8000u) >> 16), (uint16_t)bits};
}

static inline float tt_f32_of_split(tt_bf16 high, uint16_t low)
{
    return tt_f32_of_bits((((uint32_t)high - (low >> 15)) << 16) | low);
}

/* Stochastic rounding by 16 random bits. */
static inline tt_bf16 tt_bf16_random(float value, uint16_t random)
{
    uint32_t bits = tt_bits_of_f32(value);
    if ((bits & 0x7fffffffu) >= 0x7f7f0000u) {
        return tt_bf16_of_f32(value);
    }
    return (tt_bf16)((bits + random) >> 16);
}

#endif
