/* split.c: the batch arithmetic S = B * K * R.
 *
 * Invariant: a split that was resolved satisfies it exactly; nothing is rounded for the user.
 *
 * Reads the batch section of the config, writes tt_split; next: sampler.c. */
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>

#include "tutti/base/narrow.h"
#include "tutti/data/batch.h"

/* a * b * c, or false when it does not fit. */
static bool product(int64_t a, int64_t b, int64_t c, int64_t *out)
{
    return !__builtin_mul_overflow(a, b, out) && !__builtin_mul_overflow(*out, c, out);
}

/* The largest number up to `most` that divides n; 0 when looking for it would take long. */
static int64_t divisor(int64_t n, int64_t most)
{
    int64_t d = most < n ? most : n;
    if (d > 1 << 20) {
        return 0;
    }
    while (n % d != 0) {
        d--;
    }
    return d;
}

/* What a run may change and stay the same run, in words: B or K, named `other`, else the ranks. */
static void offer(int64_t sequences, int ranks, const char *other, int64_t value, char out[128])
{
    const int64_t fits = sequences % ranks == 0 ? divisor(sequences / ranks, value) : 0;
    int at = 0;
    out[0] = '\0';
    if (fits > 0) {
        snprintf(out, 128, " batch.%s %" PRId64 " fits;", other, fits);
    }
    for (int side = -1; side <= 1 && sequences % ranks != 0; side += 2) {
        int64_t near = ranks;
        while (near > 0 && near <= 2 * (int64_t)ranks && sequences % near != 0) {
            near += side;
        }
        const int64_t with = near <= 2 * (int64_t)ranks ? divisor(sequences / near, value) : 0;
        if (with > 0) {
            at += snprintf(out + at, tt_size(128 - at), "%s%" PRId64 " %s (batch.%s %" PRId64 ")",
                           at > 0 ? " or " : " it can over ", near, near == 1 ? "rank" : "ranks",
                           other, with);
        }
    }
    if (at > 0) {
        snprintf(out + at, tt_size(128 - at), ";");
    }
}

/* S does not divide by unit = R * (B or K, named `other`). What keeps the run as it is comes first. */
static tt_code refuse_division(int64_t sequences, int64_t unit, int ranks, const char *other,
                               int64_t value, tt_err *err)
{
    int64_t below = sequences / unit * unit, above;
    char nearest[64], layout[128];
    if (__builtin_add_overflow(below, unit, &above)) {
        snprintf(nearest, sizeof nearest, "%" PRId64, below);
    } else if (below == 0) {
        snprintf(nearest, sizeof nearest, "%" PRId64, above);
    } else {
        snprintf(nearest, sizeof nearest, "%" PRId64 ", %" PRId64, below, above);
    }
    offer(sequences, ranks, other, value, layout);
    return tt_fail(err, TT_EUSER,
                   "batch.sequences %" PRId64 " cannot be split over %d %s x batch.%s %" PRId64
                   " (multiples of %" PRId64 "):%s nearest batch.sequences: %s",
                   sequences, ranks, ranks == 1 ? "rank" : "ranks", other, value, unit, layout,
                   nearest);
}

/* All three were given and do not fit: name what would fit when one of them moves. */
static tt_code refuse_three(int64_t sequences, int64_t micro, int64_t accumulate, int ranks,
                            int64_t fit, tt_err *err)
{
    char more[128] = "";
    int64_t by_micro = micro * ranks, by_accumulate = accumulate * ranks; /* fit bounds both */
    if (sequences % by_micro == 0) {
        snprintf(more, sizeof more, " batch.accumulate %" PRId64 " fits;", sequences / by_micro);
    } else if (sequences % by_accumulate == 0) {
        snprintf(more, sizeof more, " batch.micro %" PRId64 " fits;", sequences / by_accumulate);
    }
    return tt_fail(err, TT_EUSER,
                   "batch.sequences %" PRId64 " is not %d %s x batch.micro %" PRId64
                   " x batch.accumulate %" PRId64 " = %" PRId64
                   ":%s nearest batch.sequences: %" PRId64 "; or leave one of the three out",
                   sequences, ranks, ranks == 1 ? "rank" : "ranks", micro, accumulate, fit, more,
                   fit);
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
