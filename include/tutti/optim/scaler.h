/* scaler.h: the loss scale: a factor on the mean loss that keeps small gradients above a narrow format's
 * least number on their way back, undone before clipping.
 *
 * Backward is seeded with scale * 2^-n, where 2^n is the first power of two that is no less than the
 * targets a step can have. So the scale is on the nominal mean of the loss, as other trainers count it,
 * and the seed is known before the step and equal for every split of the batch; gradients still add up
 * un-normalised, and the update divides by targets * seed.
 *
 * A static scale never moves. A dynamic one looks for the largest that the format bears: after
 * scaler.interval good steps in a row it grows, to scaler.cap at most; after a step that was skipped
 * because something was not finite it backs off, to scaler.floor at least. A step without a target,
 * which has no gradient, is neither.
 *
 * Invariant: the scale after a step is a function of the configuration, the scale before and whether
 * the step was finite, which all ranks know alike.
 *
 * Plain memory, part of the state table. Reads tt_config; next: train/step.h. */
#ifndef TUTTI_OPTIM_SCALER_H
#define TUTTI_OPTIM_SCALER_H

#include <stdbool.h>
#include <stdint.h>

#include "tutti/base/options.h"
#include "tutti/base/status.h"

typedef struct tt_scaler {
    double scale; /* of the next step */
    int64_t good; /* steps in a row since the scale moved */
} tt_scaler;

/* Checks what single rows cannot: floor <= start <= cap. TT_EUSER naming the key. */
tt_code tt_scaler_check(const tt_config *config, tt_err *err);

bool tt_scaler_is_dynamic(const tt_config *config);

/* Does the compute format lose gradients for want of a scale? A static one of 1 is none, and below it
 * worse than none. */
bool tt_scaler_is_missed(const tt_config *config);

/* The scale of a fresh run: 1 when there is none. */
tt_scaler tt_scaler_begin(const tt_config *config);

/* Can a run of this configuration have come to this scale? */
bool tt_scaler_may_be(const tt_config *config, const tt_scaler *scaler);

/* After a step. */
void tt_scaler_next(const tt_config *config, tt_scaler *scaler, bool finite);

/* What seeds backward in a step of at most `targets` targets: scale * 2^-ceil(log2(targets)). */
float tt_scaler_seed(const tt_scaler *scaler, int64_t targets);

#endif
