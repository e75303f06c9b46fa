/* saver.h: the run's checkpoints: when one is begun, when it is there, and which old ones go.
 *
 * With run.save_async a save begins with a snapshot, and a thread writes it while steps go on; how
 * far the ranks are rides in each step's agreement (tt_record.saving). Otherwise a save ends where
 * it began.
 *
 * Invariant: at most one save is under way; old checkpoints go when the new one has its name, and not
 * before.
 *
 * The trainer owns it. Reads the state table (state.h); next: ckpt/ckpt.h. */
#ifndef TUTTI_TRAIN_SAVER_H
#define TUTTI_TRAIN_SAVER_H

#include <stdbool.h>
#include <stdint.h>

#include "tutti/base/status.h"
#include "tutti/ckpt/ckpt.h"
#include "tutti/train/plan.h"
#include "tutti/train/rows.h"

struct tt_trainer;
struct tt_metrics;

typedef struct tt_saver {
    tt_saving *saving; /* owned; NULL: none is under way */
    tt_rows rows;      /* owned: of that save */
    int64_t step;      /* of that save */
    bool prune;        /* old ones go after it */
    double began;      /* tt_seconds() */
    double held;       /* seconds during which the run waited for it */
    double longest;    /* seconds that a save held the run up */
    tt_save_times times;
    int64_t *doubtful; /* [doubts] owned, rank 0's: steps of files passed over at the start */
    int doubts;
} tt_saver;

/* FP32 numbers that a snapshot of this rank takes; 0 without run.save_async. */
int64_t tt_saver_elements(const tt_blueprint *print);

/* To be called once the run has its first step: checkpoints of later ones that are in run.dir are not
 * this run's. Collective. */
tt_code tt_saver_open(struct tt_trainer *trainer, tt_err *err);
/* Saves the state to <run.dir>/step-%08d.h5, after the save under way, if there is one, has ended.
 * `wait`: it is there on return, whatever run.save_async says. prune: then old ones go. Weights
 * that are not finite are TT_EWORLD and not saved. metrics may be NULL. Collective. */
tt_code tt_saver_save(struct tt_trainer *trainer, struct tt_metrics *metrics, bool wait, bool prune,
                      tt_err *err);
/* The save under way, if there is one, goes on. No rank should be at work on it: it is waited for.
 * Collective. */
tt_code tt_saver_next(struct tt_trainer *trainer, struct tt_metrics *metrics, tt_err *err);
/* Is this rank at work on a save? Local. */
bool tt_saver_busy(const struct tt_trainer *trainer);
/* The save under way ends, if there is one. Collective. */
tt_code tt_saver_finish(struct tt_trainer *trainer, struct tt_metrics *metrics, tt_err *err);
/* The save under way ends, if there is one. Is the checkpoint of `step` then in its place? Somebody may
 * have moved or removed it. metrics may be NULL. Collective. */
tt_code tt_saver_there(struct tt_trainer *trainer, struct tt_metrics *metrics, int64_t step,
                       bool *there, tt_err *err);
/* Gives the save under way up, if there is one. Local. */
void tt_saver_close(struct tt_trainer *trainer);

#endif
