/* trial.h: what of a reduction is hidden, by trying.
 *
 * A blocking call may be so much faster than a nonblocking one, on one machine above all, that waiting
 * for it costs less than what a nonblocking one leaves over after it went on beside the computation. So
 * both are tried before the first step, on the gradient's own memory, and each bucket gets the one that
 * holds its rank up less: those that become ready while backward goes on, and those that come last.
 *
 * Invariant: all ranks choose alike. Reads and writes a tt_reduce; next: train/tutti.h. */
#ifndef TUTTI_DIST_TRIAL_H
#define TUTTI_DIST_TRIAL_H

#include "tutti/base/status.h"
#include "tutti/dist/reduce.h"

/* Of a bucket: what it holds a rank up by, the slowest rank's. */
typedef struct tt_held_up {
    int64_t elements; /* 0: there is no such bucket */
    double blocking,
        overlap; /* seconds; overlap counts calls alone, not what is computed meanwhile */
} tt_held_up;

typedef struct tt_trial {
    tt_held_up early,
        last;   /* the largest that has layers left to hide behind; the largest that has none */
    int blocks; /* buckets that will be reduced by blocking calls */
} tt_trial;

/* The gradient that `reduce` holds must be zeros, and stays so. seconds: that backward takes on this
 * rank for an element of a bucket. Only where tt_reduce_may_block. Collective. */
tt_code tt_reduce_try(tt_reduce *reduce, double seconds, tt_trial *trial, tt_err *err);

#endif
