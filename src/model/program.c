/* program.c: the model as tables, and what follows from them: matrices, extents, FLOPs.
 *
 * Invariant: in a program, in execution order, each slot is written once, by the application that
 * names it, or what is GELU of it, as `out`, before it is read; read backwards, each slot's gradient
 * is complete before the application that wrote the slot runs its backward.
 *
 * Owns nothing. Reads the layer table; next: layout.c, model.c. */
#include <assert.h>

#include "model_impl.h"
#include "tutti/base/narrow.h"

#define NO_SLOT TT_NO_SLOT
#define NO_ROLE TT_ROLES, TT_ROLES

/* name, width, gradient's buffer, GELU of */
const tt_slot_row tt_slots[TT_SLOTS] = {
    [TT_X] = {"x", TT_WIDE_C, TT_BUF_STREAM, NO_SLOT},
    [TT_N1] = {"norm_1", TT_WIDE_C, TT_BUF_NARROW, NO_SLOT},
    [TT_QKV] = {"qkv", TT_WIDE_QKV, TT_BUF_WIDE, NO_SLOT},
    [TT_ATT] = {"attention", TT_WIDE_C, TT_BUF_HEADS, NO_SLOT},
    [TT_X1] = {"x_mid", TT_WIDE_C, TT_BUF_STREAM, NO_SLOT},
    [TT_N2] = {"norm_2", TT_WIDE_C, TT_BUF_NARROW, NO_SLOT},
    [TT_FC] = {"fc", TT_WIDE_F, TT_BUF_WIDE, NO_SLOT},
    [TT_ACT] = {"gelu", TT_WIDE_F, TT_NO_BUFFER, TT_FC},
    [TT_NF] = {"norm_f", TT_WIDE_C, TT_BUF_NARROW, NO_SLOT},
};

/* clang-format off */
/*   row of the autocast table, layer     in       add      out
 *   weight, bias                         dropout */
static const tt_apply stem[] = {
    {TT_ROW_EMBED,     TT_EMBED,           NO_SLOT, NO_SLOT, TT_NEXT,
     TT_WTE, TT_WPE,                       TT_PLACE_EMBED},
};

static const tt_apply block[] = {
    {TT_ROW_NORM,      TT_NORM,            TT_X,    NO_SLOT, TT_N1,
     TT_NORM_1_GAIN, TT_NORM_1_BIAS,       TT_NO_DROPOUT},
    {TT_ROW_QKV,       TT_LINEAR,          TT_N1,   NO_SLOT, TT_QKV,
     TT_QKV_WEIGHT, TT_QKV_BIAS,           TT_NO_DROPOUT},
    {TT_ROW_ATTENTION, TT_ATTENTION,       TT_QKV,  NO_SLOT, TT_ATT,
     NO_ROLE,                              TT_PLACE_PROBABILITIES},
    {TT_ROW_PROJ,      TT_LINEAR_RESIDUAL, TT_ATT,  TT_X,    TT_X1,
     TT_PROJ_WEIGHT, TT_PROJ_BIAS,         TT_PLACE_ATTENTION},
    {TT_ROW_NORM,      TT_NORM,            TT_X1,   NO_SLOT, TT_N2,
     TT_NORM_2_GAIN, TT_NORM_2_BIAS,       TT_NO_DROPOUT},
    {TT_ROW_FC,        TT_LINEAR_GELU,     TT_N2,   NO_SLOT, TT_ACT,
     TT_FC_WEIGHT, TT_FC_BIAS,             TT_NO_DROPOUT},
    {TT_ROW_DOWN,      TT_LINEAR_RESIDUAL, TT_ACT,  TT_X1,   TT_NEXT,
     TT_DOWN_WEIGHT, TT_DOWN_BIAS,         TT_PLACE_MLP},
};

static const tt_apply crown[] = {
    {TT_ROW_NORM,      TT_NORM,            TT_X,    NO_SLOT, TT_NF,
     TT_NORM_F_GAIN, TT_NORM_F_BIAS,       TT_NO_DROPOUT},
    {TT_ROW_HEAD,      TT_HEAD_LOSS,       TT_NF,   NO_SLOT, NO_SLOT,
     TT_HEAD_WEIGHT, TT_ROLES,             TT_NO_DROPOUT},
};
/* clang-format on */

#define PROGRAM(list)                             \
    {                                             \
#list, sizeof list / sizeof list[0], list \
    }
const tt_program tt_programs[TT_PROGRAMS] = {PROGRAM(stem), PROGRAM(block), PROGRAM(crown)};

const tt_program *tt_stage_program(int64_t L, int stage)
{
    assert(stage >= 0 && stage <= L + 1);
    return &tt_programs[stage == 0 ? 0 : stage <= L ? 1 : 2];
}

/* (H+2G)*D: the width of queries, keys and values side by side. */
static int64_t qkv_width(const tt_shape *shape)
{
    return (shape->H + 2 * shape->G) * shape->D;
}

int64_t tt_slot_width(const tt_shape *shape, tt_slot slot)
{
    assert(slot < TT_SLOTS || slot == TT_NEXT);
    switch (tt_slots[slot == TT_NEXT ? TT_X : slot].width) {
    case TT_WIDE_QKV:
        return qkv_width(shape);
    case TT_WIDE_F:
        return shape->F;
    case TT_WIDE_C:
        break;
    }
    return shape->C;
}

int64_t tt_buffer_width(const tt_shape *shape, tt_buffer buffer)
{
    return buffer == TT_BUF_WIDE ? tt_max(shape->F, qkv_width(shape)) : shape->C;
}

const tt_param *tt_apply_matrix(const tt_params *params, const tt_apply *a, int stage)
{
    return tt_layers[a->layer].matmul ? tt_params_role(params, a->weight, stage) : NULL;
}

/* In the order of the flat vector, so that what lies side by side there does here. */
void tt_model_place_wide(tt_params *params, const tt_shape *shape, const tt_autocast *autocast)
{
    for (int i = 0; i < params->count; i++) {
        params->param[i].up = false;
        params->param[i].wide = -1;
    }
    for (int stage = 0; stage < params->stages; stage++) {
        const tt_program *program = tt_stage_program(shape->L, stage);
        for (int i = 0; i < program->length; i++) {
            const tt_param *matrix = tt_apply_matrix(params, &program->apply[i], stage);
            if (matrix != NULL && tt_autocast_up(autocast, program->apply[i].op)) {
                params->param[matrix - params->param].up = true;
            }
        }
    }
    params->wide = 0;
    for (int i = 0; i < params->count && autocast->storage != TT_FP32; i++) {
        tt_param *param = &params->param[i];
        if (param->up) {
            param->wide = params->wide;
            params->wide += tt_params_room(param);
        }
    }
}

/* Room for the packed form of what an application of a stage reads, and the stage whose it is. */
static size_t packed_of_apply(const tt_params *params, const tt_ops *ops, const tt_apply *apply,
                              int stage, int *owner)
{
    const tt_param *matrix = tt_apply_matrix(params, apply, stage);
    if (matrix == NULL || matrix->up) { /* FP32's matmuls have no packed form */
        return 0;
    }
    *owner = matrix->stage;
    return tt_arena_cost(ops->packed_bytes(matrix->dim[0], matrix->dim[1]));
}

void tt_packed_places(size_t *bytes, const tt_shape *shape, const tt_params *params,
                      const tt_ops *ops, const tt_held *held)
{
    size_t group[TT_MAX_LAYERS + 2] = {0};
    assert(params->stages <= TT_MAX_LAYERS + 2);
    assert(held->places <= TT_HELD_PLACES || held->place == NULL);
    for (int p = 0; held->place != NULL && p < held->places; p++) {
        bytes[p] = 0;
    }
    for (int s = 0; held->place != NULL && s < params->stages; s++) {
        const tt_program *program = tt_stage_program(shape->L, s);
        for (int i = 0; i < program->length; i++) {
            int owner = s; /* a tied head's is the first stage */
            const size_t packed = packed_of_apply(params, ops, &program->apply[i], s, &owner);
            group[held->group[owner]] += packed;
        }
    }
    for (int s = 0; held->place != NULL && s < params->stages; s++) {
        const size_t sum = group[held->group[s]];
        bytes[held->place[s]] = sum > bytes[held->place[s]] ? sum : bytes[held->place[s]];
    }
}

size_t tt_model_packed_bytes(const tt_shape *shape, const tt_params *params, const tt_ops *ops,
                             const tt_held *held)
{
    size_t bytes = 0, place[TT_HELD_PLACES];
    if (held != NULL && held->place != NULL) {
        tt_packed_places(place, shape, params, ops, held);
        for (int p = 0; p < held->places; p++) {
            bytes += tt_arena_cost(place[p]);
        }
        return bytes;
    }
    for (int stage = 0; stage < params->stages; stage++) {
        const tt_program *program = tt_stage_program(shape->L, stage);
        for (int i = 0; i < program->length; i++) {
            int owner = stage;
            bytes += packed_of_apply(params, ops, &program->apply[i], stage, &owner);
        }
    }
    return bytes;
}

tt_extents tt_model_extents(const tt_shape *shape, int64_t B, int64_t T, bool packed)
{
    return (tt_extents){
        .rows = tt_mul(B, T),
        .tokens = T,
        .channels = shape->C,
        .ffn = tt_buffer_width(shape, TT_BUF_WIDE), /* the widest matrix inside a block */
        .vocab = shape->V,
        .heads = shape->H,
        .head_size = shape->D,
        .packed = packed,
    };
}

double tt_apply_flops(const tt_apply *a, const tt_shape *shape, const tt_params *params, int stage)
{
    const tt_param *matrix = tt_apply_matrix(params, a, stage);
    const double products = matrix != NULL ? 2.0 * (double)matrix->count : 0.0;
    return products + (tt_layers[a->layer].flops != NULL ? tt_layers[a->layer].flops(shape) : 0.0);
}

double tt_model_flops_per_token(const tt_shape *shape, const tt_params *params)
{
    double forward = 0.0;
    for (int stage = 0; stage < params->stages; stage++) {
        const tt_program *program = tt_stage_program(shape->L, stage);
        for (int i = 0; i < program->length; i++) {
            forward += tt_apply_flops(&program->apply[i], shape, params, stage);
        }
    }
    return 3.0 * forward; /* backward: the gradients of input and weight, each as much again */
}
