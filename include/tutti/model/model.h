/* model.h: the gpt2 transformer: forward and backward of one micro-batch. Never sees MPI.
 *
 *     x_0 = dropout(wte[token] + wpe[t])
 *     x'_l = x_l + dropout(proj(attention(qkv(norm_1(x_l)))))
 *     x_{l+1} = x'_l + dropout(proj(gelu(fc(norm_2(x'_l)))))
 *     loss = sum over valid targets of -log softmax(norm_f(x_L) wte^T)[target]
 *
 * Weights, activations and their gradients are in the compute format (act); parameter gradients are
 * FP32 or fixed point (tt_grad) and are added to, un-normalised. The matrices that matmuls read may be
 * kept in a packed form beside the weights, made anew by tt_model_pack whenever the weights have
 * changed.
 *
 * Invariant: after tt_model_open nothing is allocated; results do not depend on threads.
 *
 * What passes need from others, weights that come and gradients that go, they ask for through hooks:
 * the model knows stages, not ranks.
 *
 * Reads tt_batch-shaped pointers and weights, writes gradients and the loss pair; next:
 * train/tutti.h through the hooks. */
#ifndef TUTTI_MODEL_MODEL_H
#define TUTTI_MODEL_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tutti/base/memory.h"
#include "tutti/base/status.h"
#include "tutti/kernels/kernels.h"
#include "tutti/model/autocast.h"
#include "tutti/model/census.h"
#include "tutti/model/fp8.h"
#include "tutti/model/hooks.h"
#include "tutti/model/params.h"
#include "tutti/model/recompute.h"

typedef struct tt_loss { /* a pair until printed */
    tt_exact sum;        /* nats over valid targets, without rounding: whoever adds them up */
    int64_t count;       /* valid targets */
} tt_loss;

/* Nats per valid target; 0 when there is none. */
double tt_loss_mean(const tt_loss *loss);

typedef struct tt_model tt_model;

/* Bytes of activations for micro-batches of B sequences of T tokens, with and without backward; fp8
 * NULL: in another format; recompute NULL: none. *kept (NULL: not wanted) is what of it waits for
 * backward. */
size_t tt_model_activation_bytes(const tt_shape *shape, int64_t B, int64_t T, size_t act_bytes,
                                 bool backward, const tt_fp8 *fp8, const tt_recompute *recompute,
                                 size_t *kept);
/* Marks the matrices of operations that are up and, where act is narrower than FP32, gives each its
 * place in an array of FP32 copies, params->wide elements long. Before what follows here. */
void tt_model_place_wide(tt_params *params, const tt_shape *shape, const tt_autocast *autocast);

/* What operations that are up run in, beside the model's context and weights. */
typedef struct tt_wide {
    tt_autocast autocast;
    tt_ctx *ctx;          /* of a wide selection (kernels/wide.h), borrowed */
    const float *weights; /* [params->wide] unrounded, borrowed; NULL: act is FP32 */
} tt_wide;

/* Where the vectors of stages are. A stage's lie together, but may have been moved from where they are
 * in the flat vector, and stages of different groups with the same place are never there together. All
 * borrowed; zeroed: the flat vectors as they are. */
typedef struct tt_held {
    const int64_t *weight_shift;   /* [stages] flat element e is weights[e - shift]; NULL: none */
    const int64_t *gradient_shift; /* the same of the gradient */
    const int *group, *place;      /* [stages] of weights; NULL: every stage has its own */
    int places;
    int share, shares; /* this rank makes packed forms as number `share` of so many; 0: alone */
} tt_held;

/* Bytes of the packed forms of the matrices that matmuls read; 0: these kernels have none. held NULL:
 * zeroed. */
size_t tt_model_packed_bytes(const tt_shape *shape, const tt_params *params, const tt_ops *ops,
                             const tt_held *held);
/* Scratch extents for tt_kernels_workspace; packed: the model will keep weights packed. */
tt_extents tt_model_extents(const tt_shape *shape, int64_t B, int64_t T, bool packed);

/* Multiply-add FLOPs (2 per pair) of one token, forward plus backward: 6 * matmul weights (head
 * included) + 6 * L * C * T. */
double tt_model_flops_per_token(const tt_shape *shape, const tt_params *params);

/* weights[N] act, borrowed, and in FP8 rounded in place by tt_model_pack; gradient[N], with
 * lost[params->count], borrowed, NULL for evaluation only; ctx borrowed; activations are taken from
 * arena. With `packed`, an arena too, packed forms are kept and taken from it, and tt_model_pack comes
 * before the first pass; NULL: each matmul packs for itself. fp8 is borrowed; NULL: the format is not
 * FP8. `wide` is copied; NULL: no operation is up. recompute NULL: none. held is copied; NULL: a zeroed
 * one. */
tt_code tt_model_open(tt_model **model, const tt_shape *shape, const tt_params *params, tt_ctx *ctx,
                      void *weights, const tt_grad *gradient, const tt_held *held, tt_fp8 *fp8,
                      const tt_wide *wide, const tt_recompute *recompute, int64_t B, int64_t T,
                      tt_arena *arena, tt_arena *packed, tt_err *err);
void tt_model_close(tt_model *model);

/* From now on training passes count there, and packing, which may round weights, in `packing`; NULL:
 * they do not. Copied. */
void tt_model_count(tt_model *model, const tt_numerics *passes, const tt_numerics *packing);

/* Makes of the weights as they are now what the matmuls read: in FP8 rounds them, then packs those that
 * are kept packed. */
void tt_model_pack(tt_model *model);
/* The same of the parameters of one stage, as far as they are this rank's to make. */
void tt_model_pack_stage(tt_model *model, int stage);

/* One micro-batch: loss += (sum, count), gradient += d(sum)/d(weights). token[B,T], target[B,T]
 * (-1: masked), sample[B]. Dropout is keyed by (seed, step, sample). hooks may be NULL. `scale`
 * multiplies the gradient of the loss sum (optim/scaler.h). */
void tt_model_train(tt_model *model, const int32_t *token, const int32_t *target,
                    const int64_t *sample, int64_t B, int64_t T, uint64_t seed, int64_t step,
                    float scale, tt_loss *loss, const tt_hooks *hooks);

/* Loss without dropout and without gradient; loss += (sum, count). */
void tt_model_eval(tt_model *model, const int32_t *token, const int32_t *target, int64_t B,
                   int64_t T, tt_loss *loss, const tt_hooks *hooks);

/* Logits of the token after token[n], n <= T of open: logits[V] float, of which the first vocab_used
 * belong to ids that exist. */
void tt_model_next(tt_model *model, const int32_t *token, int64_t n, float *logits);

#endif
