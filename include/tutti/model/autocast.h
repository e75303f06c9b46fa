/* autocast.h: which operation runs in which format: one row per operation, in order of execution.
 *
 * precision.compute says what products read; precision.fp32_ops moves single operations up to FP32.
 * An operation that is up reads act as it is stored, without rounding it further (to E4M3, to TF32),
 * multiplies it by the FP32 weights, not their rounded copy, in FP32 throughout, and rounds what it
 * writes once, to act; backward likewise. Norms, softmax, GELU, loss and optimizer compute in FP32 in
 * any case, as do sums and reduction unless run.exact adds in fixed point: naming them changes nothing.
 * What cannot be moved is refused.
 *
 * The applications of the model's programs name their rows, so the table and what runs are one: the
 * model asks tt_autocast_up, the plan prints tt_autocast_row. Vectors (biases, gains) are read as act,
 * also by an operation that is up.
 *
 * Memory: plain values. Reads tt_config and the kernels' table; next: model/model.h, train/plan.h. */
#ifndef TUTTI_MODEL_AUTOCAST_H
#define TUTTI_MODEL_AUTOCAST_H

#include <stdbool.h>
#include <stdint.h>

#include "tutti/base/options.h"
#include "tutti/base/status.h"
#include "tutti/base/text.h"
#include "tutti/kernels/kernels.h"
#include "tutti/model/params.h"

typedef enum tt_op_row {
    TT_ROW_EMBED,
    TT_ROW_NORM,
    TT_ROW_QKV,
    TT_ROW_ATTENTION,
    TT_ROW_SOFTMAX,
    TT_ROW_PROJ,
    TT_ROW_RESIDUAL,
    TT_ROW_FC,
    TT_ROW_GELU,
    TT_ROW_DOWN,
    TT_ROW_HEAD,
    TT_ROW_LOSS,
    TT_ROW_WEIGHT_GRADIENTS,
    TT_ROW_REDUCTION,
    TT_ROW_OPTIMIZER,
    TT_ROWS
} tt_op_row;

typedef struct tt_autocast {
    tt_format compute;       /* what products read where nothing else is said; FP8: TT_E4M3 */
    tt_format storage;       /* of act */
    tt_format backward;      /* FP8: of gradients that enter linear layers; else storage */
    tt_format probabilities; /* as they enter attention's second product */
    tt_master_kind master;
    bool stochastic; /* rounding of weights without a master */
    bool exact;      /* sums over the batch in fixed point */
    uint32_t up;     /* bit `row`: fp32_ops has moved it up from a narrower format */
} tt_autocast;

/* The table of a configuration that runs on `ops`. `master`: what the optimizer keeps. */
void tt_autocast_make(tt_autocast *autocast, const tt_config *config, const tt_ops *ops,
                      tt_master_kind master);

/* TT_EUSER when fp32_ops names a row that is not FP32 and cannot be moved, with the reason: what stores
 * the stream, where that is narrower; sums in fixed point. */
tt_code tt_autocast_check(const tt_autocast *autocast, const tt_config *config, tt_err *err);

/* Does the row run in FP32 because fp32_ops says so? */
static inline bool tt_autocast_up(const tt_autocast *autocast, tt_op_row row)
{
    return autocast != NULL && (autocast->up >> row & 1) != 0;
}

/* Does the row's product read E4M3 in forward? */
bool tt_autocast_e4m3(const tt_autocast *autocast, tt_op_row row);

/* One row for people: formats, "-" where there is nothing of the kind. */
typedef struct tt_autocast_cells {
    const char *name;
    const char *reads;        /* what of act the operation computes with, in forward */
    const char *weights;      /* the same of its weights, forward and backward */
    const char *computes;     /* in what it multiplies and adds */
    const char *writes;       /* what its result is rounded to */
    const char *kept;         /* what backward computes with of what forward read */
    const char *gradient_in;  /* the gradient of the result, as backward computes with it */
    const char *gradient_out; /* the gradient of what was read, as backward writes it */
    const char *note;         /* a static text, or "" */
} tt_autocast_cells;

tt_autocast_cells tt_autocast_row(const tt_autocast *autocast, tt_op_row row);

/* The whole table, as `tutti plan` prints it. */
void tt_autocast_text(const tt_autocast *autocast, tt_text *out);

extern const char *const tt_op_row_names[TT_ROWS];

#endif
