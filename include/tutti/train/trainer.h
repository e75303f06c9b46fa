/* trainer.h: everything a run holds, from start-up to the last step.
 *
 * Invariant: between steps, weights[] on every rank are the rounded masters (masters.h says which
 * there are), wide_weights[] the masters themselves, the model's packed forms are those of weights[],
 * and (config, tensors, progress) determine all later steps; that is what the state table (state.h)
 * saves.
 *
 * Reads the configuration and the token files; next: train/step.h. */
#ifndef TUTTI_TRAIN_TRAINER_H
#define TUTTI_TRAIN_TRAINER_H

#include <stdbool.h>
#include <stdint.h>

#include "tutti/base/fault.h"
#include "tutti/base/lock.h"
#include "tutti/base/log.h"
#include "tutti/base/memory.h"
#include "tutti/base/status.h"
#include "tutti/data/batch.h"
#include "tutti/data/tokens.h"
#include "tutti/dist/world.h"
#include "tutti/model/model.h"
#include "tutti/optim/scaler.h"
#include "tutti/train/blame.h"
#include "tutti/train/halt.h"
#include "tutti/train/optimizer.h"
#include "tutti/train/plan.h"
#include "tutti/train/saver.h"
#include "tutti/train/tutti.h"

/* The scalars that influence the next step. */
typedef struct tt_progress {
    int64_t step;        /* optimizer steps done, skipped ones included */
    int64_t updates;     /* updates applied: AdamW's t */
    int64_t tokens_seen; /* valid targets */
    int64_t skips;       /* skipped steps in a row */
    tt_scaler scaler;    /* of the loss */
} tt_progress;

/* One run of consecutive elements that share an optimizer group. */
typedef struct tt_segment {
    int64_t flat, local, count; /* in the flat vector, in the shard's arrays */
    bool decay;
    tt_role role;
    int64_t gap; /* elements at its end that belong to no parameter */
} tt_segment;

typedef struct tt_trainer {
    tt_world *world; /* borrowed */
    tt_log *log;     /* borrowed */
    tt_fault fault;
    tt_blueprint print;
    tt_ctx ctx;
    size_t began;      /* bytes resident before the arenas were opened */
    size_t began_part; /* of them this rank's part, of a page that several map; 0: unknown */
    tt_arena arena[TT_MEM_COMPONENTS];
    tt_arena window[TT_MEM_COMPONENTS]; /* over the node's windows; empty: it has none */
    void *weights;                      /* act, as print.weight_ring holds them */
    void *own_weights;   /* [cut.elements] act, of this rank in ZeRO 3; NULL: they are in weights */
    float *wide_weights; /* [params.wide] masters of matrices that FP32 operations read */
    tt_ctx wide_ctx;     /* those operations run in it */
    tt_wide wide;        /* what the model is told of them */
    tt_grad gradient;    /* un-normalised sum times seed, as print.gradient_ring holds it; lost:
                             * [params.count] */
    tt_grad pieces;      /* [cut.elements] of the sum over ranks, when print.slices; else empty: in
                             * gradient */
    void **gradients;    /* [node ranks] owned array: each one's `gradient` */
    void *staging;       /* of the reduction */
    bool overlap;        /* nonblocking calls */
    float seed;          /* of the last step's backward, from the loss scale (optim/scaler.h) */
    tt_fixed point;      /* of fixed-point gradients, made anew for each seed */
    tt_optimizer optimizer; /* owned: masters, m and v of the shard */
    tt_segment *segment;    /* [segments] owned: the shard, by optimizer group */
    int segments;
    tt_tokens *train_tokens, *valid_tokens; /* owned; valid_tokens NULL: no evaluation */
    tt_sampler sampler, valid_sampler;
    tt_batch batch;
    tt_model *model; /* owned */
    tt_tutti tutti;
    tt_progress progress;
    tt_suspect suspect; /* of the step under way */
    tt_halt halt;
    tt_numerics
        numerics;      /* owned array: where a step is counted; NULL without run.numerics_every */
    double *maxima;    /* [TT_STEP_MAXIMA + fp8.sites] owned: what ranks compare in a step */
    tt_lock lock;      /* of run.dir, held by rank 0 */
    bool kept;         /* this run has a checkpoint in run.dir */
    tt_saver saver;    /* owned */
    float *snapshot;   /* [tt_saver_elements] of a save under way; NULL: none is made */
    tt_text past;      /* owned: arithmetics before that of now (train/arithmetic.h) */
    double peak_flops; /* measured at start, all ranks together */
    int64_t
        data_tokens; /* of the training part: part of the state, so that the file cannot change */
    uint64_t data_digest; /* of its ids (tt_tokens_sample): likewise */
} tt_trainer;

/* Opens data, plans, allocates, measures the peak, initialises or loads the state. Collective. */
tt_code tt_trainer_open(tt_trainer *trainer, const tt_config *config, tt_world *world, tt_log *log,
                        tt_err *err);

/* Safe on a zeroed trainer. Collective where memory is shared, as windows are freed together. */
void tt_trainer_close(tt_trainer *trainer);

/* Runs to run.steps: steps, evaluations, checkpoints, metrics. TT_ESTOP when a signal or run.max_seconds
 * stopped it, after saving; an evaluation that this cost is made when the run goes on. Collective. */
tt_code tt_trainer_run(tt_trainer *trainer, tt_err *err);

#endif
