/* fp8.h: training in FP8: which tensors, scaled by what, and what is remembered of them.
 *
 * Forward, the inputs of the blocks' products (linear layers and attention) and their weights are
 * rounded to E4M3; the head, the embeddings and the stream between the layers stay BF16. Backward,
 * products take BF16, or gradients rounded to E5M2. The rounded numbers are BF16 numbers
 * (numerics/fp8.h), so the kernels are BF16's.
 *
 * What backward needs of a block is kept as E4M3 codes, a byte an element where BF16 keeps two: of
 * the inputs of products the very numbers that forward used; of the stream before a norm and of the
 * input of GELU, which forward uses unrounded, the nearest. What an operation that precision.fp32_ops
 * has moved up to FP32 reads is neither rounded nor coded.
 *
 * Scales. A weight matrix has one scale, of its largest magnitude, made when the weights change. For
 * the rest it is the recipe's to say:
 *     current  one scale for each sequence, of its own largest magnitude. Whoever computes the sequence
 *              knows it, so that neither ranks nor micro-batches can matter and nobody communicates.
 *     delayed  one scale for all sequences of a step, of the largest magnitude that the tensor had in
 *              the last `history` steps, over all ranks. It is known before the tensor is; numbers
 *              beyond it saturate, `margin` leaves them room. As long as nothing is remembered (a new
 *              run, weights imported), and in evaluation, `current` serves.
 *     mxfp8    one scale for 32 neighbours in a row.
 *
 * A site is a tensor whose largest magnitude (amax) is followed: a slot of a block, or the gradient
 * that enters a linear layer of it. Gradients count without the factor that the loss carries: they are
 * of the sum of losses over the step's targets, whose number is not known while they are seen.
 *
 * Invariant: nothing here depends on how the batch is split. amax[] is the maximum over this rank's
 * micro-batches until the trainer has made it that of all ranks; `past` is state.
 *
 * Memory: the arrays are the caller's. Reads tt_config; next: model.h. */
#ifndef TUTTI_MODEL_FP8_H
#define TUTTI_MODEL_FP8_H

#include <stdint.h>

#include "tutti/base/options.h"
#include "tutti/base/text.h"
#include "tutti/model/autocast.h"
#include "tutti/model/params.h"
#include "tutti/numerics/format.h"

typedef enum tt_recipe { TT_FP8_CURRENT, TT_FP8_DELAYED, TT_FP8_MXFP8 } tt_recipe;

typedef struct tt_fp8 {
    tt_autocast autocast; /* which operations are up, and take no part */
    tt_recipe recipe;
    tt_format backward; /* of the gradients that enter products: TT_BF16, as they are, or TT_E5M2 */
    int margin;
    int64_t history; /* steps that are remembered; 0 unless delayed */
    int sites;
    float *amax; /* [sites] borrowed: largest magnitudes of the step so far; infinite: not finite */
    float *past; /* [history, sites] borrowed: those of earlier steps; 0: none */
} tt_fp8;

/* From the configuration and its table, without memory. */
void tt_fp8_make(tt_fp8 *fp8, const tt_config *config, const tt_autocast *autocast,
                 const tt_shape *shape);

/* Bytes of amax and past, which follow each other. */
size_t tt_fp8_bytes(const tt_fp8 *fp8);
/* Gives it tt_fp8_bytes of memory, cleared. */
void tt_fp8_place(tt_fp8 *fp8, void *memory);

/* Forgets the amax of the step. */
void tt_fp8_clear(tt_fp8 *fp8);
/* Remembers it as that of update number `update`, from 1. */
void tt_fp8_push(tt_fp8 *fp8, int64_t update);
/* The largest magnitude remembered of a site; 0: nothing is. */
float tt_fp8_expected(const tt_fp8 *fp8, int site);

/* {"norm_1": 4.1, "grad_qkv": 3e-4, ..}: the largest amax of each kind of tensor over all blocks, as
 * JSON; of gradients as those of the mean loss, which is the sum over `mean_over` targets divided by
 * them. */
void tt_fp8_text(const tt_fp8 *fp8, double mean_over, tt_text *out);

#endif
