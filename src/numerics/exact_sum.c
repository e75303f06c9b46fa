/* exact_sum.c: a sum of doubles as one wide integer, in limbs of 32 bits.
 *
 * A double is m * 2^p, m an integer of 53 bits. Counted from the lowest limb's unit, m begins at bit
 * p + 1088 and touches at most three limbs; each gets its 32 bits of m with the sign of the double.
 * So limbs drift up and down independently, and a carry is due only when one could overflow.
 *
 * Bits are taken and put together as integers: no mode of the floating-point unit can change them.
 *
 * Invariant: |limb[i]| <= pending * (2^32 - 1), where what has been carried counts as one summand.
 * Ranks that add all TT_EXACT_WORDS of their sums keep it. */
#include "tutti/numerics/exact_sum.h"

#include <string.h>

/* Two sums just below it still fit 63 bits, with what a carry brings. */
static const int64_t most_pending = INT64_C(1) << 30;
static const int64_t limb_mask = 0xffffffff;

enum {
    FRACTION_BITS = 52,
    INFINITE = 0x7ff, /* exponent field of what is not finite */
    LIMB_BITS = 32,
    LOWEST = 1088 - 1074 /* where the smallest subnormal has its bit */
};

void tt_exact_add(tt_exact *sum, double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    const int64_t sign = -(int64_t)(bits >> 63); /* 0 or -1 */
    const unsigned field = (unsigned)(bits >> FRACTION_BITS) & INFINITE;
    uint64_t m = bits & ((UINT64_C(1) << FRACTION_BITS) - 1);
    if (field == INFINITE) {
        sum->nonfinite++;
        return;
    }
    m |= (uint64_t)(field != 0) << FRACTION_BITS;
    const unsigned at = LOWEST + field - (field != 0), shift = at % LIMB_BITS;
    int64_t *limb = sum->limb + at / LIMB_BITS;
    const int64_t low = (int64_t)(m << shift) & limb_mask;
    const int64_t middle = (int64_t)(m >> (LIMB_BITS - shift)) & limb_mask;
    const int64_t high = (int64_t)((m >> LIMB_BITS) >> (LIMB_BITS - shift));
    limb[0] += (low ^ sign) - sign;
    limb[1] += (middle ^ sign) - sign;
    limb[2] += (high ^ sign) - sign;
    if (++sum->pending >= most_pending) {
        tt_exact_carry(sum);
    }
}

void tt_exact_merge(tt_exact *sum, const tt_exact *other)
{
    for (int i = 0; i < TT_EXACT_LIMBS; i++) {
        sum->limb[i] += other->limb[i];
    }
    sum->nonfinite += other->nonfinite;
    sum->pending += other->pending;
    if (sum->pending >= most_pending) {
        tt_exact_carry(sum);
    }
}

void tt_exact_carry(tt_exact *sum)
{
    int64_t carry = 0;
    for (int i = 0; i < TT_EXACT_LIMBS - 1; i++) {
        const int64_t all = sum->limb[i] + carry;
        carry = all >> LIMB_BITS; /* rounds down: what remains is not negative */
        sum->limb[i] = all & limb_mask;
    }
    sum->limb[TT_EXACT_LIMBS - 1] += carry;
    sum->pending = 1;
}

/* The top bit of a carried sum that is not negative; -1 when it is zero. */
static int top_bit(const tt_exact *sum)
{
    for (int i = TT_EXACT_LIMBS - 1; i >= 0; i--) {
        if (sum->limb[i] != 0) {
            return LIMB_BITS * i + 63 - __builtin_clzll((uint64_t)sum->limb[i]);
        }
    }
    return -1;
}

/* Whether any bit below `at` is set. */
static int any_below(const tt_exact *sum, int at)
{
    const int whole = at / LIMB_BITS;
    int64_t any = sum->limb[whole] & ((INT64_C(1) << at % LIMB_BITS) - 1);
    for (int i = 0; i < whole; i++) {
        any |= sum->limb[i];
    }
    return any != 0;
}

/* The bits of the double nearest to a carried sum that is not negative. */
static uint64_t round_bits(const tt_exact *sum)
{
    const uint64_t infinity = (uint64_t)INFINITE << FRACTION_BITS;
    const int top = top_bit(sum);
    const int low = top - FRACTION_BITS > LOWEST ? top - FRACTION_BITS : LOWEST;
    if (low - LOWEST >= INFINITE - 1) {
        return infinity;
    }
    const int64_t *limb = sum->limb + low / LIMB_BITS;
    const unsigned shift = (unsigned)low % LIMB_BITS;
    const uint64_t m = (uint64_t)limb[0] >> shift | (uint64_t)limb[1] << (LIMB_BITS - shift) |
                       (uint64_t)limb[2] << LIMB_BITS << (LIMB_BITS - shift);
    /* The leading 1 of m, if there is one, counts the exponent up; so does a carry by rounding, up to
     * infinity. No summand has a bit below LOWEST. */
    uint64_t bits = ((uint64_t)(low - LOWEST) << FRACTION_BITS) + m;
    if (low > LOWEST) {
        const int half = low - 1;
        if ((sum->limb[half / LIMB_BITS] >> half % LIMB_BITS & 1) != 0) {
            bits += any_below(sum, half) ? 1 : bits & 1;
        }
    }
    return bits;
}

double tt_exact_value(const tt_exact *sum)
{
    tt_exact all = *sum;
    uint64_t bits = 0, sign = 0;
    double value;
    tt_exact_carry(&all);
    if (all.limb[TT_EXACT_LIMBS - 1] < 0) {
        sign = UINT64_C(1) << 63;
        for (int i = 0; i < TT_EXACT_LIMBS; i++) {
            all.limb[i] = -all.limb[i];
        }
        tt_exact_carry(&all);
    }
    if (sum->nonfinite != 0) {
        bits = (uint64_t)(2 * INFINITE + 1) << (FRACTION_BITS - 1); /* quiet NaN */
    } else {
        bits = sign | round_bits(&all);
    }
    memcpy(&value, &bits, sizeof value);
    return value;
}
