/* replay.h: a step made again, with a look at all that its layers write (run.replay).
 *
 * The run is opened from the newest checkpoint before the step, or from its start where there is none,
 * and the steps between are made as they were. Then the step itself, in which each rank looks for what
 * is not finite, after every layer, forward and backward, and remembers where it was first. What is
 * computed is what the run computed: in exact mode the same bits on any layout.
 *
 * Invariant: no file is written, in run.dir or elsewhere; memory.optimizer_file has no name.
 *
 * Memory: a replay lives on the stack of the call; tutti borrows it for the step. Reads the trainer;
 * next: cli/train.c prints the report. */
#ifndef TUTTI_TRAIN_REPLAY_H
#define TUTTI_TRAIN_REPLAY_H

#include <stdbool.h>
#include <stdint.h>

#include "tutti/base/status.h"
#include "tutti/base/text.h"
#include "tutti/model/look.h"
#include "tutti/train/trainer.h"

/* Where a rank first met what is not finite: a row of the report. Whole numbers and a text, which go
 * over the wire as int64_t. */
typedef struct tt_sighting {
    int64_t found;         /* 1; 0: nothing was met, and the rest is 0 */
    int64_t micro;         /* micro-batch, from 0 */
    int64_t kind, again;   /* of tt_wrote */
    int64_t stage, layer;  /* of tt_wrote */
    int64_t inf, nan;      /* elements */
    int64_t other;         /* summands, of a sum in fixed point or of the loss */
    int64_t first;         /* element; -1: not known */
    int64_t rows, columns; /* of what was looked at */
    char tensor[TT_NAME];
} tt_sighting;
_Static_assert(sizeof(tt_sighting) % sizeof(int64_t) == 0, "it goes as int64_t");

typedef struct tt_replay {
    tt_trainer *trainer; /* borrowed */
    tt_sighting mine;    /* of this rank */
    int64_t looks;       /* at tensors */
} tt_replay;

/* TT_EUSER when run.replay names a step that the run does not have, or there is no run. Local. */
tt_code tt_replay_check(const tt_config *config, tt_err *err);

/* Of a trainer that was opened with run.replay. *report is rank 0's: sentences and a table for people.
 * What is met is no error. TT_ESTOP when a signal came. Collective. */
tt_code tt_replay_run(tt_trainer *trainer, tt_text *report, tt_err *err);

#endif
