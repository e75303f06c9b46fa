/* step.h: one optimizer step, the page that everything else serves.
 *
 * Reads trainer, data; writes weights, optimizer state, progress and one record; next:
 * train/metrics.h. */
#ifndef TUTTI_TRAIN_STEP_H
#define TUTTI_TRAIN_STEP_H

#include <stdbool.h>
#include <stdint.h>

#include "tutti/base/status.h"
#include "tutti/train/blame.h"
#include "tutti/train/trainer.h"

/* What a step was: one line of metrics.jsonl. Times and rss are the largest over ranks. */
typedef struct tt_record {
    int64_t step;   /* number of this step, from 1 */
    double loss;    /* mean over the step's valid targets, nats */
    int64_t tokens; /* valid targets of the step, all ranks */
    int64_t tokens_seen;
    double lr, grad_norm; /* norm of the mean gradient before clipping; NaN: not finite */
    bool clipped, skipped;
    double mean_over;  /* what the sum of gradients was divided by: tokens, save by a fault */
    double loss_scale; /* of this step's backward */
    int64_t
        nonfinite; /* gradient elements that are not finite; in exact mode, summands that are not,
                          or out of range; all ranks */
    const char *nonfinite_in; /* name of the parameter with such that backward came to
                                 first, the trainer's; or NULL */
    tt_blame blame;           /* where that, or a loss that is not finite, came from */
    double step_ms, tokens_per_s, mfu, comm_ms, comm_exposed_ms, imbalance_ms, rss_mb;
    int64_t comm_calls, comm_bytes; /* of this rank */
    const tt_census *numerics; /* [TT_CENSUS_GROUPS] of all ranks, the trainer's; NULL: this step
                                       was not counted */
    bool stop;                 /* some rank was asked to stop; why is in the trainer's halt */
    bool left;      /* and some rank has left the step, which was not made: all is as before it, and
                    nothing here but `step`, the last that was made, `stop` and `saving` says anything */
    bool saving;    /* some rank was at work on a checkpoint */
    double data_ms; /* reading batches, on this rank */
} tt_record;

/* What a rank brings to a step: all learn of it in the step's own agreement. */
typedef struct tt_request {
    bool saving;  /* this rank is at work on a checkpoint (train/saver.h) */
    tt_code code; /* not TT_OK: something failed on this rank since the last agreement */
    tt_err err;   /* its sentence */
} tt_request;

/* Collective. Non-finite gradients skip the update on all ranks alike; how many in a row are too many
 * is the trainer's to say (optim.max_skips). A rank that failed, before the step or while reading its
 * data, takes part in every collective of the step, then all stop with its message. One that is asked
 * to stop (halt.h) computes no more micro-batches. */
tt_code tt_step(tt_trainer *trainer, const tt_request *request, tt_record *record, tt_err *err);

#endif
