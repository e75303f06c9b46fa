/* laps.h: how long each application of the model's programs takes, on the model's own memory: the same
 * kernels, formats, rounding and dropout as in training, because the tables are run as in training.
 *
 * Reads and writes an open model, as tt_model_train does; next: train/price.h. */
#ifndef TUTTI_MODEL_LAPS_H
#define TUTTI_MODEL_LAPS_H

#include <stdint.h>

#include "tutti/model/autocast.h"
#include "tutti/model/model.h"

/* An application of the stem, of a block or of the crown, in the order of their programs; after them
 * what backward may do again by itself, GELU (TT_ROW_GELU), in forward. */
typedef struct tt_lap {
    int program;              /* 0: stem, 1: block, 2: crown */
    tt_op_row row;            /* of the autocast table */
    double forward, backward; /* seconds; what the head does backward is in its forward */
} tt_lap;

enum { TT_LAPS = 16 };

/* One micro-batch through a model of a single block, with a clock around every application: adds to
 * lap[], whose names it sets, and returns how many there are. The arguments are tt_model_train's; what
 * becomes of loss and gradient is of no interest. */
int tt_model_laps(tt_model *model, const int32_t *token, const int32_t *target,
                  const int64_t *sample, int64_t B, int64_t T, tt_lap lap[TT_LAPS]);

#endif
