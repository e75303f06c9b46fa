/* split.c: the batch arithmetic S = B * K * R.
 *
 * Invariant: a split that was resolved satisfies it exactly; nothing is rounded for the user.
 *
 * Reads the batch section of the config, writes tt_split; next: sampler.c. */
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>

#include "tutti/data/batch.h"

/* a * b * c, or false when it does not fit. */
static bool product(int64_t a, int64_t b, int64_t c, int64_t *out)
{
    return !__builtin_mul_overflow(a, b, out) && !__builtin_mul_overflow(*out, c, out);
}

/* S does not divide by unit = R * (B or K, named `other`). */
static tt_code refuse_division(int64_t sequences, int64_t unit, int ranks, const char *other,
                               int64_t value, tt_err *err)
{
    int64_t below = sequences / unit * unit, above;
    char nearest[64];
    if (__builtin_add_overflow(below, unit, &above)) {
        snprintf(nearest, sizeof nearest, "%" PRId64, below);
    } else if (below == 0) {
        snprintf(nearest, sizeof nearest, "%" PRId64, above);
    } else {
        snprintf(nearest, sizeof nearest, "%" PRId64 ", %" PRId64, below, above);
    }
    return tt_fail(err, TT_EUSER,
                   "batch.sequences %" PRId64 " cannot be split over %d %s x batch.%s %" PRId64
                   " (multiples of %" PRId64 "); nearest: %s",
                   sequences, ranks, ranks == 1 ? "rank" : "ranks", other, value, unit, nearest);
}

/* All three were given and do not fit: name what would fit when one of them moves. */
static tt_code refuse_three(int64_t sequences, int64_t micro, int64_t accumulate, int ranks,
                            int64_t fit, tt_err *err)
{
    char more[128] = "";
    int64_t by_micro = micro * ranks, by_accumulate = accumulate * ranks; /* fit bounds both */
    if (sequences % by_micro == 0) {
        snprintf(more, sizeof more, ", or batch.accumulate %" PRId64, sequences / by_micro);
    } else if (sequences % by_accumulate == 0) {
        snprintf(more, sizeof more, ", or batch.micro %" PRId64, sequences / by_accumulate);
    }
    return tt_fail(err, TT_EUSER,
                   "batch.sequences %" PRId64 " is not %d %s x batch.micro %" PRId64
                   " x batch.accumulate %" PRId64 " = %" PRId64
                   "; nearest: batch.sequences %" PRId64 "%s; or leave one of the three out",
                   sequences, ranks, ranks == 1 ? "rank" : "ranks", micro, accumulate, fit, fit,
                   more);
}

tt_code tt_split_resolve(tt_split *split, int64_t sequences, int64_t micro, int64_t accumulate,
                         int ranks, tt_err *err)
{
    assert(sequences >= 0 && micro >= 0 && accumulate >= 0 && ranks >= 1);
    if (sequences == 0 && micro == 0) {
        return tt_fail(err, TT_EUSER,
                       "the batch is not known: give two of batch.sequences, batch.micro and "
                       "batch.accumulate (with one of the first two alone, batch.accumulate is 1)");
    }
    if (accumulate == 0 && (sequences == 0 || micro == 0)) {
        accumulate = 1;
    }
    /* Now one at most is unknown. `unit` is the product of the known without S. */
    int64_t unit;
    if (!product(micro ? micro : 1, accumulate ? accumulate : 1, ranks, &unit)) {
        return tt_fail(err, TT_EUSER,
                       "batch.micro %" PRId64 " x batch.accumulate %" PRId64
                       " x %d ranks is more sequences than can be counted",
                       micro, accumulate, ranks);
    }
    if (sequences == 0) {
        sequences = unit;
    } else if (micro != 0 && accumulate != 0) {
        if (sequences != unit) {
            return refuse_three(sequences, micro, accumulate, ranks, unit, err);
        }
    } else {
        if (sequences % unit != 0) {
            return micro != 0
                       ? refuse_division(sequences, unit, ranks, "micro", micro, err)
                       : refuse_division(sequences, unit, ranks, "accumulate", accumulate, err);
        }
        if (micro != 0) {
            accumulate = sequences / unit;
        } else {
            micro = sequences / unit;
        }
    }
    *split = (tt_split){
        .sequences = sequences, .micro = micro, .accumulate = accumulate, .ranks = ranks};
    return TT_OK;
}
