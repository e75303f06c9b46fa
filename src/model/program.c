/* program.c: the model as tables, and what follows from them: layout, bytes, FLOPs.
 *
 * Invariant: in a program, in execution order, each slot is written once, by the application that
 * names it, or what is GELU of it, as `out`, before it is read; read backwards, each slot's gradient
 * is complete before the application that wrote the slot runs its backward.
 *
 * Owns nothing. Reads the layer table; next: model.c. */
#include <assert.h>

#include "model_impl.h"
#include "tutti/base/narrow.h"
#include "tutti/numerics/fp8.h"

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
static const tt_program programs[] = {PROGRAM(stem), PROGRAM(block), PROGRAM(crown)};
enum { PROGRAMS = sizeof programs / sizeof programs[0] };

const tt_program *tt_stage_program(int64_t L, int stage)
{
    assert(stage >= 0 && stage <= L + 1);
    return &programs[stage == 0 ? 0 : stage <= L ? 1 : 2];
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

static int64_t buffer_width(const tt_shape *shape, tt_buffer buffer)
{
    return buffer == TT_BUF_WIDE ? tt_max(shape->F, qkv_width(shape)) : shape->C;
}

/* Is it this slot, or GELU of it? */
static bool covers(tt_slot named, tt_slot slot)
{
    return named == slot || (named < TT_SLOTS && tt_slots[named].gelu_of == slot);
}

/* Does some backward of the programs read the slot? Then it must live until then. */
static bool slot_saved(tt_slot slot)
{
    for (int p = 0; p < PROGRAMS; p++) {
        for (int i = 0; i < programs[p].length; i++) {
            const tt_apply *a = &programs[p].apply[i];
            const tt_layer *layer = &tt_layers[a->layer];
            if ((layer->reads_in && covers(a->in, slot)) ||
                (layer->reads_out && covers(a->out, slot))) {
                return true;
            }
        }
    }
    return false;
}

bool tt_slot_rounded(tt_slot slot, const tt_fp8 *fp8)
{
    for (int p = 0; p < PROGRAMS; p++) {
        for (int i = 0; i < programs[p].length; i++) {
            const tt_apply *a = &programs[p].apply[i];
            if (a->in == slot && tt_autocast_e4m3(&fp8->autocast, a->op)) {
                return true;
            }
        }
    }
    return false;
}

/* Does an operation that is up multiply the slot in backward? Then it must live as act. */
static bool slot_up(tt_slot slot, const tt_fp8 *fp8)
{
    for (int p = 0; p < PROGRAMS; p++) {
        for (int i = 0; i < programs[p].length; i++) {
            const tt_apply *a = &programs[p].apply[i];
            if (a->in == slot && tt_autocast_up(&fp8->autocast, a->op)) {
                return true;
            }
        }
    }
    return false;
}

/* The layer that writes the slot within a block or the crown; NULL: the slot comes from outside. */
static const tt_layer *slot_writer(tt_slot slot)
{
    for (int p = 0; p < PROGRAMS; p++) {
        for (int i = 0; i < programs[p].length; i++) {
            if (programs[p].apply[i].out == slot) {
                return &tt_layers[programs[p].apply[i].layer];
            }
        }
    }
    return NULL;
}

/* The next `copies` pieces of `bytes` each, at the end of the layout. */
static tt_span place(tt_layout *layout, size_t bytes, int64_t copies)
{
    tt_span span = {.first = layout->bytes, .bytes = tt_arena_cost(bytes), .copies = copies};
    layout->bytes += tt_bytes(copies, span.bytes);
    return span;
}

/* Exponents of x[B*T, width] in FP8. */
static int64_t exponents(const tt_fp8 *fp8, int64_t B, int64_t T, int64_t width)
{
    return fp8->recipe == TT_FP8_MXFP8 ? tt_mul(tt_mul(B, T), tt_fp8_blocks(width, TT_FP8_MX)) : B;
}

/* In FP8: codes for backward, exponents for whoever rounds. */
static void place_fp8(tt_layout *layout, const tt_shape *shape, tt_slot slot, int64_t B, int64_t T,
                      bool kept, const tt_fp8 *fp8)
{
    const int64_t width = tt_slot_width(shape, slot), copies = kept ? shape->L : 1;
    if (kept) {
        layout->code[slot] = place(layout, tt_bytes(tt_mul(tt_mul(B, T), width), 1), copies);
    }
    if (kept || tt_slot_rounded(slot, fp8)) {
        layout->exponent[slot] = place(layout, tt_bytes(exponents(fp8, B, T, width), 1), copies);
    }
}

/* Exponents of the largest weight of a block, or of the widest gradient. */
static int64_t spare_exponents(const tt_shape *shape, int64_t B, int64_t T, const tt_fp8 *fp8)
{
    const int64_t wide = buffer_width(shape, TT_BUF_WIDE);
    const int64_t weight = tt_mul(tt_max(wide, shape->C), tt_fp8_blocks(shape->C, TT_FP8_MX));
    const int64_t turned = tt_mul(shape->C, tt_fp8_blocks(wide, TT_FP8_MX));
    return tt_max(tt_max(weight, turned), exponents(fp8, B, T, tt_max(wide, shape->C)));
}

void tt_layout_make(tt_layout *layout, const tt_shape *shape, int64_t B, int64_t T,
                    size_t act_bytes, bool backward, const tt_fp8 *fp8)
{
    int64_t M = tt_mul(B, T);
    *layout = (tt_layout){0};
    for (int slot = 0; slot < TT_SLOTS; slot++) {
        /* One copy per stage that reads it; the stream is read by the blocks and the crown. */
        int64_t readers = slot == TT_X ? shape->L + 1 : shape->L;
        const bool saved = backward && slot_saved(slot);
        const size_t before = layout->bytes;
        int64_t copies = saved ? readers : 1;
        const tt_layer *writer = slot_writer(slot);
        int64_t stats = writer != NULL && writer->stats != NULL ? writer->stats(shape, B, T) : 0;
        const bool coded = fp8 != NULL && !slot_up(slot, fp8);
        layout->slot[slot] = place(
            layout, tt_bytes(tt_mul(M, tt_slot_width(shape, slot)), act_bytes), coded ? 1 : copies);
        const size_t open = coded ? layout->bytes - before : 0; /* the copy to work in */
        layout->stats[slot] = place(layout, tt_bytes(stats, sizeof(float)), copies);
        if (fp8 != NULL) {
            place_fp8(layout, shape, slot, B, T, saved && coded, fp8);
        }
        layout->kept += saved ? layout->bytes - before - open : 0;
    }
    for (int buffer = 0; backward && buffer < TT_BUFFERS; buffer++) {
        int64_t count = tt_mul(M, buffer_width(shape, buffer));
        layout->gradient[buffer] = place(layout, tt_bytes(count, act_bytes), 1);
    }
    if (fp8 != NULL) {
        layout->spare = place(layout, tt_bytes(spare_exponents(shape, B, T, fp8), 1), 1);
    }
}

size_t tt_model_activation_bytes(const tt_shape *shape, int64_t B, int64_t T, size_t act_bytes,
                                 bool backward, const tt_fp8 *fp8, size_t *kept)
{
    tt_layout layout;
    tt_layout_make(&layout, shape, B, T, act_bytes, backward, fp8);
    if (kept != NULL) {
        *kept = layout.kept;
    }
    return layout.bytes;
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

size_t tt_model_packed_bytes(const tt_shape *shape, const tt_params *params, const tt_ops *ops)
{
    size_t bytes = 0;
    for (int stage = 0; stage < params->stages; stage++) {
        const tt_program *program = tt_stage_program(shape->L, stage);
        for (int i = 0; i < program->length; i++) {
            const tt_param *matrix = tt_apply_matrix(params, &program->apply[i], stage);
            if (matrix != NULL && !matrix->up) { /* FP32's matmuls have no packed form */
                bytes += tt_arena_cost(ops->packed_bytes(matrix->dim[0], matrix->dim[1]));
            }
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
        .ffn = buffer_width(shape, TT_BUF_WIDE), /* the widest matrix inside a block */
        .vocab = shape->V,
        .heads = shape->H,
        .head_size = shape->D,
        .packed = packed,
    };
}

double tt_model_flops_per_token(const tt_shape *shape, const tt_params *params)
{
    double forward = 0.0;
    for (int stage = 0; stage < params->stages; stage++) {
        const tt_program *program = tt_stage_program(shape->L, stage);
        for (int i = 0; i < program->length; i++) {
            const tt_apply *a = &program->apply[i];
            const tt_param *matrix = tt_apply_matrix(params, a, stage);
            if (matrix != NULL) {
                forward += 2.0 * (double)matrix->count;
            }
            if (tt_layers[a->layer].flops != NULL) {
                forward += tt_layers[a->layer].flops(shape);
            }
        }
    }
    return 3.0 * forward; /* backward: the gradients of input and weight, each as much again */
}
