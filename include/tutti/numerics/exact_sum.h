/* exact_sum.h: sums of doubles without rounding, so that neither order nor grouping can matter.
 *
 * The sum is kept as one wide fixed-point number that holds every finite double: limb i counts units
 * of 2^(32 i - 1088). A limb takes 32 bits of each summand and has room for 2^31 of them before it
 * must be carried, which tt_exact_add does by itself. Adding the TT_EXACT_WORDS words of two sums
 * adds the sums, which is what ranks do by a reduction of integers, up to 2^20 of them after
 * tt_exact_carry.
 *
 * Invariant: tt_exact_value depends on the multiset of summands alone, and is the double nearest to
 * their true sum (ties to even). A summand that is not finite makes it NaN, whatever else is added.
 *
 * (Kulisch's long accumulator; U. Kulisch, Computer Arithmetic and Validity, 2008.)
 *
 * Plain memory without owner: zero bytes are the empty sum, assignment copies. Local. */
#ifndef TUTTI_NUMERICS_EXACT_SUM_H
#define TUTTI_NUMERICS_EXACT_SUM_H

#include <stdint.h>

enum {
    TT_EXACT_LIMBS = 68, /* 2^-1088 to 2^1088 */
    TT_EXACT_WORDS = TT_EXACT_LIMBS + 2
};

typedef struct tt_exact {
    int64_t limb[TT_EXACT_LIMBS];
    int64_t nonfinite; /* summands that are not finite */
    int64_t pending;   /* summands since the last carry; what was carried counts as one */
} tt_exact;

void tt_exact_add(tt_exact *sum, double x);

/* sum += other. */
void tt_exact_merge(tt_exact *sum, const tt_exact *other);

/* Brings every limb but the last into [0, 2^32), so that sums can be added word by word; equal sums
 * then have equal limbs. */
void tt_exact_carry(tt_exact *sum);

/* The nearest double; infinite beyond the range of doubles; a sum of zero is +0. */
double tt_exact_value(const tt_exact *sum);

#endif
