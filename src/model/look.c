/* look.c: what a pass shows to the hook `wrote`, and what of it is not finite. See
 * tutti/model/look.h. */
#include "tutti/model/look.h"

#include "model_impl.h"
#include "tutti/base/narrow.h"

/* ---- what is shown ---- */

static bool shows(const tt_pass *pass)
{
    return pass->hooks != NULL && pass->hooks->wrote != NULL;
}

static void show(const tt_pass *pass, tt_wrote *wrote)
{
    wrote->again = pass->again;
    wrote->format = pass->model->ctx->ops->format;
    pass->hooks->wrote(pass->hooks->user, wrote);
}

/* Of the slot, its value or its gradient. */
static void show_slot(const tt_pass *pass, const tt_apply *a, int stage, tt_slot slot,
                      bool gradient)
{
    tt_wrote wrote = {.kind = gradient ? TT_WROTE_GRADIENT : TT_WROTE_ACTIVATION,
                      .stage = stage,
                      .layer = a->op,
                      .tensor = tt_slots[slot == TT_NEXT ? TT_X : slot].name,
                      .rows = pass->M,
                      .columns = tt_slot_width(&pass->model->shape, slot),
                      .act = gradient ? tt_pass_gradient(pass, slot)
                                      : tt_pass_slot(pass, slot, stage)};
    show(pass, &wrote);
}

static void show_param(const tt_pass *pass, const tt_apply *a, int stage, tt_role role, bool sum)
{
    const tt_home *home = role == TT_ROLES ? NULL : tt_home_of(pass->model, role, stage);
    if (home == NULL || home->offset < 0) {
        return;
    }
    tt_wrote wrote = {.kind = sum ? TT_WROTE_SUM : TT_WROTE_WEIGHT,
                      .stage = stage,
                      .layer = a->op,
                      .tensor = tt_role_name(home->role),
                      .rows = home->dim[0],
                      .columns = home->dim[1]};
    if (sum) {
        const tt_grad g = tt_pass_weight_gradient(pass, role, stage);
        wrote.sum = g.sum;
        wrote.lost = g.lost != NULL ? *g.lost : 0;
    } else {
        wrote.act = pass->model->weights + tt_bytes(home->offset, pass->model->act_bytes);
    }
    show(pass, &wrote);
}

void tt_look_weights(const tt_pass *pass, int stage)
{
    const tt_program *program = tt_stage_program(pass->model->shape.L, stage);
    for (int i = 0; shows(pass) && i < program->length; i++) {
        const tt_apply *a = &program->apply[i];
        show_param(pass, a, stage, a->weight, false);
        show_param(pass, a, stage, a->bias, false);
    }
}

/* A layer without a backward has done it in forward. */
static void show_backward(const tt_pass *pass, const tt_apply *a, int stage)
{
    if (a->in < TT_SLOTS) { /* else there is none: the input is tokens */
        const tt_slot source = tt_slots[a->in].gelu_of;
        show_slot(pass, a, stage, source != TT_NO_SLOT ? source : a->in, true);
    }
    show_param(pass, a, stage, a->weight, true);
    show_param(pass, a, stage, a->bias, true);
}

void tt_look_forward(const tt_pass *pass, const tt_apply *a, int stage)
{
    if (!shows(pass)) {
        return;
    }
    if (a->out < TT_SLOTS && tt_slots[a->out].gelu_of != TT_NO_SLOT) {
        show_slot(pass, a, stage, tt_slots[a->out].gelu_of, false);
    }
    if (a->out != TT_NO_SLOT) {
        show_slot(pass, a, stage, a->out, false);
    } else {
        tt_wrote loss = {.kind = TT_WROTE_LOSS,
                         .stage = stage,
                         .layer = a->op,
                         .tensor = "loss",
                         .rows = pass->M,
                         .columns = 1,
                         .loss_nonfinite = pass->loss->sum.nonfinite};
        show(pass, &loss);
    }
    if (pass->train && tt_layers[a->layer].backward == NULL) {
        show_backward(pass, a, stage);
    }
}

void tt_look_backward(const tt_pass *pass, const tt_apply *a, int stage)
{
    if (shows(pass)) {
        show_backward(pass, a, stage);
    }
}

/* ---- what is not finite ---- */

/* Bits of the exponent, and all but the sign, of a number of `format`. */
static uint32_t exponent_of(tt_format format)
{
    return format == TT_FP16 ? 0x7c00u : format == TT_BF16 ? 0x7f80u : 0x7f800000u;
}

static uint32_t bits_at(const tt_wrote *wrote, int64_t i)
{
    if (wrote->sum != NULL) {
        return tt_bits_of_f32(wrote->sum[i]) & 0x7fffffffu;
    }
    return tt_formats[wrote->format].bytes == 2 ? ((const uint16_t *)wrote->act)[i] & 0x7fffu
                                                : ((const uint32_t *)wrote->act)[i] & 0x7fffffffu;
}

tt_wrote_bad tt_wrote_scan(const tt_wrote *wrote, int threads)
{
    tt_wrote_bad bad = {.other = wrote->lost + wrote->loss_nonfinite, .first = -1};
    const bool elements = wrote->act != NULL || wrote->sum != NULL;
    const int64_t count = elements ? tt_mul(wrote->rows, wrote->columns) : 0;
    const uint32_t infinite = exponent_of(wrote->sum != NULL ? TT_FP32 : wrote->format);
    int64_t inf = 0, nan = 0, first = INT64_MAX;
#pragma omp parallel for num_threads(threads) reduction(+ : inf, nan) reduction(min : first)
    for (int64_t i = 0; i < count; i++) {
        const uint32_t bits = bits_at(wrote, i);
        inf += bits == infinite;
        nan += bits > infinite;
        first = bits >= infinite ? tt_min(first, i) : first;
    }
    bad.inf = inf;
    bad.nan = nan;
    bad.first = first < INT64_MAX ? first : -1;
    return bad;
}
