/* evaluate.h: loss on held-out samples, without dropout.
 *
 * Samples are taken in a fixed permutation, so that the first `count` of them are a fair sample of the
 * whole part, the same in every run and command. Micro-batch j goes to rank j mod R; losses are added
 * without rounding, so the same weights give the same bits on any ranks, in any micro-batches. Reads
 * weights and samples. */
#ifndef TUTTI_TRAIN_EVALUATE_H
#define TUTTI_TRAIN_EVALUATE_H

#include <stdint.h>

#include "tutti/base/status.h"
#include "tutti/data/batch.h"
#include "tutti/dist/world.h"
#include "tutti/model/model.h"
#include "tutti/train/halt.h"
#include "tutti/train/tutti.h"

/* Opens the held-out part of a token file, or all of it when nothing is held out. Local; close with
 * tt_tokens_close, also after a failure. */
tt_code tt_evaluate_open(tt_tokens **tokens, const char *path, tt_err *err);

/* The sampler of held-out samples of a part, for tt_evaluate. Local. */
tt_code tt_evaluate_sampler(tt_sampler *sampler, tt_tokens *tokens, const char *mode,
                            int64_t context, tt_err *err);

/* Loss over the first `count` samples. Collective over world (NULL: one process). batch: memory for
 * one micro-batch; tutti NULL: the model's weights are all there. halt: with it a rank that is asked to
 * stop computes no more, and halt->all says whether one was, and whether any has left before the end
 * (NULL: none does). *loss is overwritten with the pair over all ranks; it means nothing when one has
 * left. */
tt_code tt_evaluate(tt_world *world, tt_model *model, tt_sampler *sampler, tt_batch *batch,
                    int64_t count, tt_tutti *tutti, tt_halt *halt, tt_loss *loss, tt_err *err);

#endif
