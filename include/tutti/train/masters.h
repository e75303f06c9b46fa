/* masters.h: what the optimizer keeps of the weights: precision.master.
 *
 *     fp32   an FP32 number for each weight of the shard; the weight is its rounding
 *     split  the lower 16 bits of that number; the weight is the upper ones (numerics/bf16_weight.h)
 *     none   nothing; the weight is what is updated, and rounded each time
 *
 * Invariant: the masters of a shard are FP32 numbers whatever the kind, and what is saved, digested or
 * dumped of a weight is its master. In split and none the BF16 weights of the shard are part of the
 * state: between updates nothing else may write there (a gather writes only what others own).
 *
 * Memory: the trainer's optimizer (train/optimizer.h) and its weights. Reads and writes these; next:
 * train/state.h, train/step.c. */
#ifndef TUTTI_TRAIN_MASTERS_H
#define TUTTI_TRAIN_MASTERS_H

#include <stddef.h>
#include <stdint.h>

#include "tutti/base/options.h"
#include "tutti/base/status.h"
#include "tutti/ckpt/ckpt.h"
#include "tutti/kernels/kernels.h"
#include "tutti/train/trainer.h"

/* precision.master and .rounding; TT_EUSER for what cannot be, with the reason. */
tt_code tt_masters_resolve(const tt_config *config, tt_master_kind *kind, bool *stochastic,
                           tt_err *err);

/* What the kernel adamw is told of a segment within a window, in the update that is progress.updates. */
tt_master tt_masters_of(const tt_trainer *trainer, const tt_window *window,
                        const tt_segment *segment);

/* Flat elements first .. first + count - 1 as far as they are in the shard: out[count] = masters; the
 * others are left alone. */
void tt_masters_get(const tt_trainer *trainer, int64_t first, int64_t count, float *out);
/* The other way. Without a master a weight becomes the nearest BF16. The weights of kind fp32 do not
 * follow. */
void tt_masters_put(const tt_trainer *trainer, int64_t first, int64_t count, const float *in);

/* How many masters of the shard are infinite or NaN. What a file has lost counts as finite: who calls
 * asks tt_optimizer_check too. */
int64_t tt_masters_nonfinite(const tt_trainer *trainer);

/* For the rows of a state table: data[what] where an array lies in memory as floats, else NULL and
 * form[what], which counts flat elements; the trainer must stay where it is. */
void tt_masters_data(const tt_trainer *trainer, float *data[TT_KEPT], tt_form form[TT_KEPT]);

#endif
