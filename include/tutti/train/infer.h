/* infer.h: a model read from a checkpoint, for evaluation and generation.
 *
 * Needs only /params and /config of the file. Owns all it opens. */
#ifndef TUTTI_TRAIN_INFER_H
#define TUTTI_TRAIN_INFER_H

#include "tutti/base/memory.h"
#include "tutti/base/options.h"
#include "tutti/base/status.h"
#include "tutti/data/tokenizer.h"
#include "tutti/dist/world.h"
#include "tutti/model/model.h"
#include "tutti/train/plan.h"

typedef struct tt_infer {
    tt_blueprint print;
    tt_ctx ctx, wide_ctx;
    tt_tokenizer tokenizer;
    tt_arena arena;
    void *weights;   /* [N] act */
    float *wide;     /* [params.wide] FP32 copies of matrices (precision.fp32_ops) */
    tt_model *model; /* for B sequences of T = context tokens */
    int64_t B;
} tt_infer;

/* Reads the configuration of the checkpoint, applies overrides "section.key=value", then the weights.
 * B sequences at a time. Collective over world (NULL: one process). */
tt_code tt_infer_open(tt_infer *infer, tt_world *world, const char *checkpoint, int overrides,
                      char *const *override, int64_t B, tt_err *err);
void tt_infer_close(tt_infer *infer);

#endif
