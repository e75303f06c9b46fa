/* evaluate.h: loss on samples first .. first+count-1 in order, without dropout.
 *
 * Micro-batch j goes to rank j mod R; sums are added over ranks. Reads weights and samples. */
#ifndef TUTTI_TRAIN_EVALUATE_H
#define TUTTI_TRAIN_EVALUATE_H

#include <stdint.h>

#include "tutti/base/status.h"
#include "tutti/data/batch.h"
#include "tutti/dist/world.h"
#include "tutti/model/model.h"

/* Collective over world (NULL: one process). batch: memory for one micro-batch. *loss is
 * overwritten with the pair over all ranks. */
tt_code tt_evaluate(tt_world *world, tt_model *model, tt_sampler *sampler, tt_batch *batch,
                    int64_t count, tt_loss *loss, tt_err *err);

#endif
