/* model_impl.h: the inside of the model: slots, layers, programs, layout.
 *
 * A *slot* is a named activation of a stage. A *layer* is a kind of computation with a forward and
 * a backward. An *application* applies a layer to slots and parameters. A *program* is a list of
 * applications; a stage of the model is one run of a program:
 *
 *     stage 0       stem     embed
 *     stage 1..L    block    norm, qkv, attention, proj + residual, norm, fc + gelu, down + residual
 *     stage L+1     crown    norm, head_loss
 *
 * Everything else follows from these tables: which slots live until backward (those that some
 * backward reads), the memory layout, which matrices are packed, the bytes, the FLOPs, and the
 * gradient tests.
 *
 * Reads model/model.h; next: program.c (tables), layout.c (memory), layers.c (what a layer
 * does), model.c (runs). */
#ifndef TUTTI_MODEL_IMPL_H
#define TUTTI_MODEL_IMPL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tutti/model/census.h"
#include "tutti/model/fp8.h"
#include "tutti/model/model.h"
#include "tutti/model/recompute.h"

/* Dropout sites are stage * 8 + place, and tt_dropout_stream has room for 4096 of them. */
enum { TT_SITES_PER_STAGE = 8, TT_MAX_LAYERS = 4096 / TT_SITES_PER_STAGE - 2 };

/* ---- slots ---- */

typedef enum tt_slot {
    TT_X,   /* the residual stream as it enters the stage */
    TT_N1,  /* normed, into qkv */
    TT_QKV, /* queries, keys, values */
    TT_ATT, /* attention's output */
    TT_X1,  /* the stream between attention and mlp */
    TT_N2,  /* normed, into fc */
    TT_FC,  /* before gelu */
    TT_ACT, /* after gelu */
    TT_NF,  /* normed, into the head */
    TT_SLOTS,
    TT_NEXT, /* the next stage's TT_X */
    TT_NO_SLOT
} tt_slot;

typedef enum tt_width { TT_WIDE_C, TT_WIDE_QKV, TT_WIDE_F } tt_width;

/* The gradient of a slot is needed only from the layer after it to the layer before it, so all
 * slots and all blocks share these four buffers. A slot that is GELU of another has no gradient of
 * its own: the matmul that would make it multiplies by GELU' and makes the other's. */
typedef enum tt_buffer {
    TT_BUF_STREAM, /* [M,C] the residual stream's, alive through all of backward */
    TT_BUF_NARROW, /* [M,C] of what leaves a norm, and of a branch before it is dropped */
    TT_BUF_HEADS,  /* [M,C] of attention's output */
    TT_BUF_WIDE,   /* [M,max(F,(H+2G)*D)] of the wide slots */
    TT_BUFFERS,
    TT_NO_BUFFER
} tt_buffer;

typedef struct tt_slot_row {
    const char *name;
    tt_width width;
    tt_buffer gradient;
    tt_slot gelu_of; /* the slot it is GELU of, written and saved with it; TT_NO_SLOT: none */
} tt_slot_row;

extern const tt_slot_row tt_slots[TT_SLOTS];

/* ---- layers ---- */

typedef struct tt_pass tt_pass;
typedef struct tt_apply tt_apply;

typedef enum tt_layer_kind {
    TT_EMBED,
    TT_NORM,
    TT_LINEAR,
    TT_LINEAR_GELU,
    TT_LINEAR_RESIDUAL,
    TT_ATTENTION,
    TT_HEAD_LOSS,
    TT_LAYERS
} tt_layer_kind;

typedef struct tt_layer {
    const char *name;
    void (*forward)(tt_pass *pass, const tt_apply *a, int stage);
    void (*backward)(tt_pass *pass, const tt_apply *a, int stage); /* NULL: forward did it */
    bool matmul;              /* its weight is a matrix that matmuls read: packed, and counted */
    bool reads_in, reads_out; /* does backward read the input, the output? Then they are saved */
    bool cheap; /* no product in forward, and all that it reads is saved: it can be made again */
    /* FP32 statistics beside the output, saved too: their number per micro-batch. NULL: none. */
    int64_t (*stats)(const tt_shape *shape, int64_t B, int64_t T);
    /* Forward FLOPs of one token beside those of the matrix. NULL: not counted. Backward has twice
     * as many. */
    double (*flops)(const tt_shape *shape);
} tt_layer;

extern const tt_layer tt_layers[TT_LAYERS];

/* ---- programs ---- */

/* Which dropout of the stage. */
typedef enum tt_place {
    TT_PLACE_EMBED,
    TT_PLACE_PROBABILITIES,
    TT_PLACE_ATTENTION,
    TT_PLACE_MLP,
    TT_NO_DROPOUT
} tt_place;

struct tt_apply {
    tt_op_row op; /* its row of the autocast table */
    tt_layer_kind layer;
    tt_slot in, add, out; /* add: what a residual adds its result to */
    tt_role weight, bias; /* TT_ROLES: none. embed: wte, wpe. norm: gain, bias. */
    tt_place dropout;
};

typedef struct tt_program {
    const char *name;
    int length;
    const tt_apply *apply; /* [length], static */
} tt_program;

enum { TT_PROGRAMS = 3 }; /* stem, block, crown */
extern const tt_program tt_programs[TT_PROGRAMS];

/* The program of a stage of a model of L blocks. */
const tt_program *tt_stage_program(int64_t L, int stage);

/* ---- layout ---- */

/* Which copies a span has. */
typedef enum tt_order {
    TT_ONE,       /* one, for all stages */
    TT_OF_BLOCK,  /* one for each block that waits for backward at a time */
    TT_OF_STREAM, /* of the stream: one for each segment's input, and for each block within one */
    TT_OF_EDGE    /* of the stream: one for each segment's input, and one for all else */
} tt_order;

/* Where a slot is. In FP8 a block's saved slots have one copy, and codes of each block; backward decodes
 * them into it. */
typedef struct tt_span {
    size_t first, bytes; /* offset of copy 0; from one copy to the next */
    size_t used;         /* of a copy; the rest is gap */
    int64_t copies;
    tt_order order;
} tt_span;

typedef struct tt_layout {
    int64_t blocks; /* L */
    tt_recompute recompute;
    tt_span slot[TT_SLOTS];
    tt_span stats[TT_SLOTS];    /* of the layer whose output the slot is */
    tt_span code[TT_SLOTS];     /* FP8 codes of what is kept of blocks; no bytes: none are */
    tt_span exponent[TT_SLOTS]; /* of the blocks of FP8 */
    tt_span spare;              /* exponents of a gradient or a weight, while it is rounded */
    tt_span gradient[TT_BUFFERS];
    size_t bytes;
    size_t kept; /* of them, what waits for backward, a copy for each stage */
} tt_layout;

/* fp8 NULL: everything is kept in act. recompute NULL: none; without backward it does not matter. */
void tt_layout_make(tt_layout *layout, const tt_shape *shape, int64_t B, int64_t T,
                    size_t act_bytes, bool backward, const tt_fp8 *fp8,
                    const tt_recompute *recompute);

/* Offset of the copy that a stage has of a span. */
size_t tt_layout_at(const tt_layout *layout, const tt_span *span, int stage);

/* Can the slot be made again from saved ones, without a product? */
bool tt_slot_cheap(tt_slot slot);

/* Does some layer's product read the slot as E4M3, when FP8 is the format? */
bool tt_slot_rounded(tt_slot slot, const tt_fp8 *fp8);

/* Elements of one row of a slot, of a buffer. */
int64_t tt_slot_width(const tt_shape *shape, tt_slot slot);
int64_t tt_buffer_width(const tt_shape *shape, tt_buffer buffer);

/* Once, when memory and packed matrices have their places: the team touches them, and between copies
 * there are red zones. */
void tt_model_settle(const tt_model *model);

/* The matrix that an application's matmuls read; NULL: they read none. */
const tt_param *tt_apply_matrix(const tt_params *params, const tt_apply *a, int stage);

/* Forward FLOPs of one token in an application. */
double tt_apply_flops(const tt_apply *a, const tt_shape *shape, const tt_params *params, int stage);

/* ---- again ---- */

/* What goes forward again before backward of a stage. */
typedef enum tt_again {
    TT_AGAIN_NOTHING,
    TT_AGAIN_CHEAP,  /* the cheap slots of the stage */
    TT_AGAIN_SEGMENT /* the segment that ends with the stage */
} tt_again;

tt_again tt_again_of(const tt_recompute *recompute, int64_t L, int stage);

/* The first stage that goes forward again before backward of `stage`, which is the last; stage + 1: none
 * does. */
int tt_again_first(const tt_recompute *recompute, int64_t L, int stage);

/* hooks NULL: nothing. */
void tt_hooks_enter(const tt_hooks *hooks, int stage);
void tt_hooks_grad_begin(const tt_hooks *hooks, int stage);
void tt_hooks_grad_ready(const tt_hooks *hooks, int stage);

/* Does the application run again when its stage does? `last`: of the segment, so that nobody reads its
 * output any more when that is the next stage's input. */
bool tt_again_runs(const tt_apply *a, bool last);

/* ---- the model and one pass through it ---- */

/* Where a parameter is that a stage uses. */
typedef struct tt_home {
    int64_t offset;        /* into the weights; -1: the stage has no such parameter */
    int64_t gradient;      /* into the gradient */
    int stage;             /* of the parameter */
    bool mine;             /* this rank makes what matmuls read of it */
    int64_t index;         /* in the table of parameters */
    tt_role role;          /* its own: a tied head's is that of wte */
    int64_t dim[2];        /* of the parameter */
    int64_t rows, columns; /* of a matrix that a matmul reads */
    int64_t wide;          /* where its FP32 copy is, among such; -1: it has none */
    void *packed;          /* its packed form, the arena's; NULL: none is kept */
} tt_home;

enum { TT_HELD_PLACES = 8 }; /* at most so many that are used in turn */

/* bytes[held->places] out: room for the packed forms of the largest group of each place. */
void tt_packed_places(size_t *bytes, const tt_shape *shape, const tt_params *params,
                      const tt_ops *ops, const tt_held *held);

struct tt_model {
    tt_shape shape;
    tt_ctx *ctx;  /* borrowed */
    tt_wide wide; /* ctx NULL: nothing is up */
    size_t act_bytes;
    tt_fp8 *fp8;            /* borrowed; NULL: not in FP8 */
    unsigned char *weights; /* act, borrowed */
    tt_grad gradient;       /* borrowed; empty: evaluation only */
    tt_held held;           /* where in them stages are */
    int64_t B, T;           /* largest micro-batch */
    int stages;             /* L + 2 */
    tt_home *home;          /* [stages * TT_ROLES] owned */
    tt_layout layout;
    unsigned char *memory; /* [layout.bytes], the arena's */
    tt_numerics numerics;  /* where passes count */
    tt_numerics packing;   /* and where packing does */
};

/* One pass: what layers may see. Lives on the stack of the call. */
struct tt_pass {
    const tt_model *model;
    int64_t B, T, M;       /* M = B*T rows */
    const int32_t *token;  /* [B,T] */
    const int32_t *target; /* [B,T] */
    const int64_t *sample; /* [B]; NULL without dropout */
    bool train;            /* with dropout and gradients */
    bool again;            /* what runs now has run before, and has been counted */
    const tt_hooks *hooks; /* NULL: none */
    tt_key key;            /* of this step's dropout */
    float scale;           /* of the loss's gradient */
    tt_loss *loss;
};

/* A pass without dropout and gradient. */
tt_pass tt_pass_make(const tt_model *model, const int32_t *token, int64_t B, int64_t T);
/* Makes it a training pass. */
void tt_pass_train(tt_pass *pass, const int32_t *target, const int64_t *sample, uint64_t seed,
                   int64_t step, float scale, tt_loss *loss);

/* One application forward, and what FP8 does with what it wrote. */
void tt_apply_forward(tt_pass *pass, const tt_apply *a, int stage);
/* What it wrote is GELU of a slot: that alone, again. */
void tt_apply_gelu_again(tt_pass *pass, const tt_apply *a, int stage);

/* What a stage uses as `role`. */
tt_home *tt_home_of(const tt_model *model, tt_role role, int stage);

/* ---- what is looked at: each does nothing where nobody looks ---- */

/* The weights that a stage is about to read; what an application has just written forward; backward. */
void tt_look_weights(const tt_pass *pass, int stage);
void tt_look_forward(const tt_pass *pass, const tt_apply *a, int stage);
void tt_look_backward(const tt_pass *pass, const tt_apply *a, int stage);

/* ---- the census ---- */

/* Rows of the parts forward and backward: slots, and gradients that belong to none. */
enum {
    TT_SEEN_LOGITS = (int)TT_SLOTS,
    TT_SEEN_PROJ, /* the branch that proj made, before it is dropped; the same of down */
    TT_SEEN_DOWN,
    TT_SEEN_ROWS
};

/* The row of a slot; of the gradient that the products of a linear layer read. */
int tt_seen_slot(tt_slot slot);
int tt_seen_gradient(const tt_apply *a);
/* Where the next kernels of ctx count: their result, and what they store beside it; nowhere when the
 * pass goes over something again. Comes before every kernel that stores act, so that what an earlier
 * pass has set cannot last. */
void tt_pass_count(const tt_pass *pass, tt_ctx *ctx, tt_part part, int result, int beside);

/* ---- FP8: each does nothing where it is not the format ---- */

/* After a layer has written a slot: keeps it for backward, and rounds it for the products. */
void tt_pass_keep(tt_pass *pass, tt_slot slot, int stage);
/* Before backward of a stage: what was kept, as act again. */
void tt_pass_restore(tt_pass *pass, int stage);
/* Will products of the application round the gradient of what it wrote? Then they need one of their
 * own. */
bool tt_pass_rounds_gradient(const tt_pass *pass, const tt_apply *a);
/* dy[M,width] act inout, of what a linear layer wrote: rounded for its products. */
void tt_pass_round_gradient(tt_pass *pass, void *dy, const tt_apply *a, int stage);
/* After the weights have changed: rounds those that products of blocks read. */
void tt_model_round_weights(tt_model *model, const tt_apply *a, int stage);

/* What the application's kernels run in: the model's context, or, when it is up, the wide one. */
tt_ctx *tt_pass_ctx(const tt_pass *pass, const tt_apply *a);

/* Addresses. */
void *tt_pass_slot(const tt_pass *pass, tt_slot slot, int stage);         /* [M,width] act */
float *tt_pass_stats(const tt_pass *pass, tt_slot slot, int stage);       /* see tt_layer.stats */
void *tt_pass_gradient(const tt_pass *pass, tt_slot slot);                /* [M,width] act */
void *tt_pass_buffer(const tt_pass *pass, tt_buffer buffer);              /* act */
const void *tt_pass_weight(const tt_pass *pass, tt_role role, int stage); /* act */
tt_weight tt_pass_matrix(const tt_pass *pass, const tt_apply *a, int stage); /* for a matmul */
tt_grad tt_pass_weight_gradient(const tt_pass *pass, tt_role role, int stage);

#endif
