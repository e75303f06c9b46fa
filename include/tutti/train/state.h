/* state.h: the state table: every tensor and scalar that influences the next step. If it matters and
 * is not here, it is a bug.
 *
 * Reads and writes trainer memory; next: ckpt/ckpt.h. */
#ifndef TUTTI_TRAIN_STATE_H
#define TUTTI_TRAIN_STATE_H

#include <stdbool.h>
#include <stdint.h>

#include "tutti/base/status.h"
#include "tutti/ckpt/ckpt.h"
#include "tutti/train/rows.h"
#include "tutti/train/trainer.h"

/* Rows of params, adam_m and adam_v (in this order), and of what FP8 remembers, for the cut of this
 * rank: together the ranks hold
 * each element once, whatever the ZeRO stage. The pieces are trainer memory; the trainer stays where it
 * is as long as the rows are used. */
tt_code tt_state_rows(tt_rows *rows, const tt_trainer *trainer, tt_err *err);

/* "step-00000100.h5" */
enum { TT_STEP_NAME = 32 };
void tt_state_name(int64_t step, char out[TT_STEP_NAME]);
/* malloc'd "<run.dir>/step-00000100.h5"; NULL on failure, which fills err. Local. */
char *tt_state_path(const struct tt_trainer *trainer, int64_t step, tt_err *err);

/* Begins to save all of it to <run.dir>/step-%08d.h5. *rows is the caller's to free when *saving has
 * ended; after a failure there is nothing to free. Collective. */
tt_code tt_state_saving(tt_trainer *trainer, const tt_save_how *how, tt_saving **saving,
                        tt_rows *rows, tt_err *err);

/* Continues from the newest good checkpoint of run.dir, from run.init_from, or from the initial
 * values, as run.resume says; leaves weights gathered. Checkpoints of which none can be used are an
 * error, not a fresh start. Collective. */
tt_code tt_state_begin(tt_trainer *trainer, tt_err *err);

/* Mean gradient of the step just made, true sum * scale, to run.dump_gradients: what the loss scale did
 * to the sum is undone. Collective. */
tt_code tt_state_dump_gradients(tt_trainer *trainer, double scale, tt_err *err);

#endif
