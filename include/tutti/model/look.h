/* look.h: what stands in memory right after a layer wrote it, for whoever looks for what is not finite.
 *
 * A pass shows, through the hook `wrote` (hooks.h):
 *
 *     weights      of a stage, when forward enters it: what its layers are about to read
 *     activations  a layer's output, and what it keeps beside it (the input of a GELU)
 *     loss         after the head
 *     gradients    of the layer's input, after its backward; the head's as it goes forward
 *     sums         the gradient of the layer's parameters, with all that was added to it before
 *
 * in the order of execution; what is computed again for backward (recompute.h) is shown again.
 *
 * Invariant: with no hook nothing is looked at, and a hook that changes nothing changes no bit.
 *
 * All memory is the model's, for the time of the call. Reads nothing; next: train/replay.h. */
#ifndef TUTTI_MODEL_LOOK_H
#define TUTTI_MODEL_LOOK_H

#include <stdbool.h>
#include <stdint.h>

#include "tutti/kernels/kernels.h"
#include "tutti/model/autocast.h"

typedef enum tt_wrote_kind {
    TT_WROTE_WEIGHT,
    TT_WROTE_ACTIVATION,
    TT_WROTE_LOSS,
    TT_WROTE_GRADIENT, /* of an activation */
    TT_WROTE_SUM       /* gradient of a parameter */
} tt_wrote_kind;

typedef struct tt_wrote {
    tt_wrote_kind kind;
    bool again;         /* forward, computed again for backward */
    int stage;          /* that runs */
    tt_op_row layer;    /* that wrote it, or is about to read a weight */
    const char *tensor; /* static: a slot ("x_mid"), a parameter without its block's number
                           ("attn.proj.weight"), or "loss" */
    int64_t rows, columns;
    void *act;        /* [rows, columns] act of `format`; NULL: a sum or the loss */
    tt_format format; /* of act */
    const float *sum; /* [rows, columns]; NULL: it is in fixed point, or no sum */
    int64_t lost;     /* of a sum in fixed point: summands that were lost, so far in the step */
    int64_t loss_nonfinite; /* of the loss: summands that are not finite, so far in the step */
} tt_wrote;

/* What is not finite in it. */
typedef struct tt_wrote_bad {
    int64_t inf, nan; /* elements */
    int64_t other;    /* summands, of a sum in fixed point or of the loss */
    int64_t first;    /* element; -1: none, or not known */
} tt_wrote_bad;

tt_wrote_bad tt_wrote_scan(const tt_wrote *wrote, int threads);

#endif
