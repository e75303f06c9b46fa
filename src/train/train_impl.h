/* train_impl.h: what the files of the train layer share among themselves. */
#ifndef TUTTI_TRAIN_IMPL_H
#define TUTTI_TRAIN_IMPL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tutti/base/status.h"
#include "tutti/dist/watch.h"
#include "tutti/model/look.h"
#include "tutti/train/step.h"
#include "tutti/train/trainer.h"

/* Element `index` of a vector of act elements. */
static inline void *tt_act_at(void *vector, int64_t index, size_t act_bytes)
{
    return (unsigned char *)vector + (size_t)index * act_bytes;
}

/* Where this rank's element `local` of its shard, `flat` of the flat vector, is: as a weight, and as a
 * sum over all ranks, once the reduction is done. */
static inline void *tt_weight_own(const tt_trainer *t, int64_t flat, int64_t local)
{
    return t->own_weights != NULL ? tt_act_at(t->own_weights, local, t->print.act_bytes)
                                  : tt_act_at(t->weights, flat, t->print.act_bytes);
}

/* The accumulators themselves, of either kind; NULL: there are none. */
static inline void *tt_grad_data(const tt_grad *g)
{
    return g->fixed != NULL ? (void *)g->fixed : (void *)g->sum;
}

static inline tt_grad tt_sum_own(const tt_trainer *t, int64_t flat, int64_t local)
{
    return t->print.slices ? tt_grad_from(&t->pieces, local) : tt_grad_from(&t->gradient, flat);
}

/* What every rank must know before it may update, in one reduction of integers. */
typedef struct tt_tally {
    tt_exact loss, squares; /* sum of losses; ||G||^2 */
    int64_t count;          /* valid targets */
    int64_t nonfinite;      /* gradient elements; in exact mode, summands that were lost */
    int64_t failed, saving; /* ranks */
    tt_halted halted;
} tt_tally;
_Static_assert(sizeof(tt_tally) == TT_STEP_SUMS * sizeof(int64_t), "the plan counts them");

/* This rank's share of ||G||^2, and what is not finite in its gradient. Returns the last parameter of
 * the table that has such, which is the first that backward came to; or -1. Local. */
int tt_tally_gradient(tt_trainer *t, tt_tally *tally);

/* Step `number`, which begins: is it counted (run.numerics_every)? Tells the model. Local. */
bool tt_numerics_begin(tt_trainer *t, int64_t number);
/* Counts the rank's share of the gradient, after the reduction. Local. */
void tt_numerics_gradient(tt_trainer *t);
/* Where the update of step number progress.step counts the weights of a parameter; NULL: that step is
 * not counted, or another rank does it. */
tt_census *tt_numerics_weights(const tt_trainer *t, tt_role role);
/* All has been counted: sums over threads and ranks. *sum is the trainer's. Collective. */
tt_code tt_numerics_sum(tt_trainer *t, const tt_census **sum, tt_err *err);
/* Allocates and frees. Local. */
tt_code tt_numerics_open(tt_trainer *t, tt_err *err);
void tt_numerics_close(tt_trainer *t);

/* A step begins: this rank has seen nothing. */
void tt_blame_begin(tt_trainer *t);
/* The gradient of the stage is final in this pass, and if it `goes`, about to be reduced. Local. */
void tt_blame_look(tt_trainer *t, int stage, bool goes);
/* A pass of the step has ended; `loss` is that of all so far. Local. */
void tt_blame_pass(tt_trainer *t, const tt_loss *loss);
/* The step is not finite: record->blame and nonfinite_in. last: what tt_tally_gradient returned.
 * Collective. */
tt_code tt_blame_find(tt_trainer *t, int last, tt_record *record, tt_err *err);
/* "first on rank 1, micro-batch 2 of 4, samples 17 to 19", of a record whose step is bad. */
void tt_blame_text(const tt_trainer *t, const tt_record *record, tt_text *out);
/* The same as a line of nonfinite.jsonl. */
void tt_blame_line(const tt_trainer *t, const tt_record *record, tt_text *line);

/* Every accumulator that outlasts a pass becomes 0; what was lost is not forgotten. */
void tt_gradient_clear(tt_trainer *t);

/* What a bad step means for the run (nonfinite.c). */

/* Must the run end at this step (run.on_nonfinite)? */
bool tt_nonfinite_stops(const tt_trainer *t, const tt_record *record);
/* Its end: goes back to `before`, the progress before the step, and saves that unless it is `saved`.
 * Never TT_OK. Collective. */
tt_code tt_nonfinite_stop(tt_trainer *t, const tt_progress *before, bool saved,
                          const tt_record *record, tt_err *err);
/* Says what made a step be skipped. A run that learns nothing any more stops, after its last step has
 * been recorded. Local: every rank comes to the same. */
tt_code tt_nonfinite_check(const tt_trainer *t, const tt_record *record, tt_err *err);

/* A layer wrote something, in a pass of a step that is replayed. Local. */
struct tt_replay;
void tt_replay_look(struct tt_replay *replay, const tt_wrote *wrote);

/* Mistakes that are due in a step; those of all ranks are the same on all (inject.c). */
typedef struct tt_mistakes {
    bool bad_norm, clip_scaled, sync_every; /* of all ranks */
} tt_mistakes;

/* Faults that are due in step `number`, at its start; *mistakes are those that the step itself makes. */
void tt_inject_start(tt_trainer *t, int64_t number, tt_mistakes *mistakes);
/* Faults that are due in the update of step number progress.step, before it begins. */
void tt_inject_update(const tt_trainer *t);
/* Those that are due in a pass and spoil its gradient, once, before it goes. */
void tt_inject_spoil(tt_tutti *tutti);
/* nan_forward: spoils what a layer wrote, once. */
void tt_inject_wrote(tt_tutti *tutti, const tt_wrote *wrote);
/* flip_weight: one bit of the weight in the middle, after step number progress.step. Collective. */
tt_code tt_inject_weight(tt_trainer *t, tt_err *err);
/* 1, or with bad_norm the classic mistake: each micro-batch divided by its own count. */
float tt_inject_scale(const tt_batch *batch, const tt_mistakes *mistakes);
/* What the sum is divided by: the count, at least 1, or with bad_norm the number of micro-batches. */
double tt_inject_count(int64_t count, const tt_split *split, const tt_mistakes *mistakes);
/* The norm that clipping sees: with clip_scaled that of the gradient as backward left it. */
double tt_inject_norm(double norm, double loss_scale, const tt_mistakes *mistakes);
/* After a micro-batch that is not the last: with sync_every the gradient so far is reduced, and rank 0
 * alone goes on with the sum. Collective then. */
tt_code tt_inject_sync(tt_trainer *t, const tt_mistakes *mistakes, tt_err *err);

/* Which ranges of the flat vector have FP32 copies, and where they lie; free with tt_shard_free. */
tt_code tt_wide_held(tt_shard *held, const tt_params *params, tt_err *err);
/* TT_EUSER when there would be nothing to copy. */
tt_code tt_wide_check(const tt_blueprint *print, tt_err *err);
/* What the model is told: *ctx out, which must stay; the rest is borrowed. */
tt_wide tt_wide_of(const tt_blueprint *print, tt_ctx *ctx, void *scratch, size_t bytes,
                   float *weights);
/* After the masters have changed: copies those of the shard, then gathers those of all. Collective. */
tt_code tt_wide_refresh(tt_trainer *t, tt_err *err);
/* Calls of that gather, where there are ranks to gather from. */
int64_t tt_wide_calls(const tt_blueprint *print);

/* What a run that stops leaves in run.dir: "the last checkpoint is untouched", or that there is none. */
const char *tt_state_kept(const tt_trainer *t);

/* Makes run.dir when it is not there, and takes its lock for this job, before anything in it is read or
 * changed: rank 0 holds it until tt_lock_release(&t->lock). Another job that has it is waited for, as it
 * may just be ending, and after TT_LOCK_PATIENCE seconds named: TT_EUSER. Where the file system refuses
 * locks the run goes on with a warning. Collective. */
enum { TT_LOCK_PATIENCE = 10 };
tt_code tt_run_lock(tt_trainer *t, const char *dir, tt_err *err);
/* Before a save: where somebody has moved or removed the folder or its lock file, other jobs no longer
 * see the lock. Makes and takes both again, with a warning; TT_EUSER when another job has come
 * meanwhile. Rank 0's work; without a lock only the folder is made. Local. */
tt_code tt_run_lock_again(tt_trainer *t, tt_err *err);

/* Of a file of lines, {"step": N, ...} or others, drops those of later steps than `last`, a half line at
 * the end, and damaged ones; nothing where there is no such file. *valid out (NULL: not wanted): the
 * evaluation after that step is among the others. Memory is bounded by the longest line. Local. */
tt_code tt_lines_cut(const char *path, int64_t last, bool *valid, tt_err *err);

/* Moves what an earlier run left in run.dir into a new folder below it (run.resume: never). Local. */
tt_code tt_run_set_aside(const char *dir, tt_log *log, tt_err *err);

#endif
