/* model.c: one micro-batch through the programs: forward, backward, evaluation, the next token.
 *
 *     for stage = 0 .. L+1:   forward of its applications, in order
 *     for stage = L+1 .. 0:   forward again of what was not kept (recompute.h);
 *                             backward of its applications, in reverse; then the stage is ready
 *
 * Invariants: after tt_model_open nothing is allocated; the layout is made for the largest
 * micro-batch, and a smaller one uses the front of each slot; a stage is reported ready exactly
 * once per call, in descending order, when nothing will add to its gradient any more (the head of
 * a tied model adds to wte in stage L+1, and wte's stage 0 comes last).
 *
 * The model owns its table of parameters; activations and packed weights are the arenas'; weights,
 * gradient and ctx the caller's. Reads the tables of program.c and layers.c; next: train/step.c calls
 * this. */
#include "tutti/model/model.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "model_impl.h"
#include "tutti/base/narrow.h"
#include "tutti/base/rng.h"

/* ---- open ---- */

static int64_t shift_of(const int64_t *shift, const tt_param *param)
{
    return shift != NULL ? shift[param->stage] : 0;
}

tt_home *tt_home_of(const tt_model *model, tt_role role, int stage)
{
    return &model->home[stage * TT_ROLES + (int)role];
}

/* The extents of every matrix that a matmul reads, and with an arena room for its packed form: one of
 * its own, or a part of what groups of one place use in turn. */
static void place_matrices(tt_model *model, const tt_params *params, tt_arena *arena)
{
    const tt_held *held = &model->held;
    unsigned char *place[TT_HELD_PLACES] = {NULL};
    size_t used[TT_HELD_PLACES] = {0};
    size_t bytes[TT_HELD_PLACES];
    int group[TT_HELD_PLACES];
    tt_packed_places(bytes, &model->shape, params, model->ctx->ops, held);
    for (int p = 0; arena != NULL && held->place != NULL && p < held->places; p++) {
        place[p] = tt_arena_take(arena, bytes[p]);
        group[p] = -1;
    }
    for (int stage = 0; stage < model->stages; stage++) {
        const tt_program *program = tt_stage_program(model->shape.L, stage);
        for (int i = 0; i < program->length; i++) {
            const tt_apply *a = &program->apply[i];
            const tt_param *matrix = tt_apply_matrix(params, a, stage);
            if (matrix == NULL) {
                continue;
            }
            tt_home *home = tt_home_of(model, a->weight, stage);
            home->rows = matrix->dim[0];
            home->columns = matrix->dim[1];
            home->wide = matrix->wide;
            if (arena == NULL || matrix->up) {
                continue;
            }
            const size_t packed = model->ctx->ops->packed_bytes(home->rows, home->columns);
            if (held->place == NULL) {
                home->packed = tt_arena_take(arena, packed);
                continue;
            }
            const int p = held->place[matrix->stage];
            if (group[p] != held->group[matrix->stage]) {
                group[p] = held->group[matrix->stage];
                used[p] = 0;
            }
            home->packed = place[p] + used[p];
            used[p] += tt_arena_cost(packed);
        }
    }
}

/* Deals the matrices of each stage among the ranks that make packed forms together: each goes to the
 * rank that has least. */
static tt_code deal_matrices(tt_model *model, tt_err *err)
{
    const int shares = model->held.shares > 1 ? model->held.shares : 1;
    int64_t *load = tt_alloc(shares, sizeof *load, err);
    if (load == NULL) {
        return err->code;
    }
    for (int stage = 0; stage < model->stages; stage++) {
        memset(load, 0, tt_bytes(shares, sizeof *load));
        for (int i = 0; i < model->stages * TT_ROLES; i++) {
            tt_home *home = &model->home[i];
            if (home->offset < 0 || home->rows == 0 || home->stage != stage) {
                continue;
            }
            int least = 0;
            for (int s = 1; s < shares; s++) {
                least = load[s] < load[least] ? s : least;
            }
            load[least] += tt_mul(home->rows, home->columns);
            home->mine = shares == 1 || least == model->held.share;
        }
    }
    free(load);
    return TT_OK;
}

tt_code tt_model_open(tt_model **out_model, const tt_shape *shape, const tt_params *params,
                      tt_ctx *ctx, void *weights, const tt_grad *gradient, const tt_held *held,
                      tt_fp8 *fp8, const tt_wide *wide, const tt_recompute *recompute, int64_t B,
                      int64_t T, tt_arena *arena, tt_arena *packed, tt_err *err)
{
    assert(B >= 1 && T >= 1 && T <= shape->T && params->stages == shape->L + 2);
    tt_code rc = TT_OK;
    tt_model *model = tt_alloc(1, sizeof *model, err);
    if (model == NULL) {
        rc = err->code;
        goto out;
    }
    *model = (tt_model){
        .shape = *shape,
        .ctx = ctx,
        .wide = wide != NULL ? *wide : (tt_wide){.ctx = NULL},
        .act_bytes = tt_formats[ctx->ops->format].bytes,
        .fp8 = fp8,
        .weights = weights,
        .gradient = gradient != NULL ? *gradient : (tt_grad){.sum = NULL},
        .held = held != NULL ? *held : (tt_held){.places = 0},
        .B = B,
        .T = T,
        .stages = params->stages,
    };
    model->home = tt_alloc(tt_mul(model->stages, TT_ROLES), sizeof *model->home, err);
    if (model->home == NULL) {
        rc = err->code;
        goto out;
    }
    for (int stage = 0; stage < model->stages; stage++) {
        for (int role = 0; role < TT_ROLES; role++) {
            const tt_param *param = tt_params_role(params, role, stage);
            tt_home *home = tt_home_of(model, role, stage);
            home->offset =
                param != NULL ? param->offset - shift_of(model->held.weight_shift, param) : -1;
            home->gradient =
                param != NULL ? param->offset - shift_of(model->held.gradient_shift, param) : -1;
            home->stage = param != NULL ? param->stage : -1;
            home->index = param != NULL ? param - params->param : -1;
            home->role = param != NULL ? param->role : TT_ROLES;
            home->dim[0] = param != NULL ? param->dim[0] : 0;
            home->dim[1] = param != NULL ? param->dim[1] : 0;
            home->wide = -1;
        }
    }
    const bool packs = packed != NULL && tt_model_packed_bytes(shape, params, ctx->ops, held) > 0;
    place_matrices(model, params, packs ? packed : NULL);
    TT_TRY(deal_matrices(model, err));
    tt_layout_make(&model->layout, shape, B, T, model->act_bytes, gradient != NULL, fp8, recompute);
    model->memory = tt_arena_take(arena, model->layout.bytes);
    tt_model_settle(model);
out:
    if (rc != TT_OK) {
        tt_model_close(model);
        model = NULL;
    }
    *out_model = model;
    return rc;
}

void tt_model_close(tt_model *model)
{
    if (model != NULL) {
        free(model->home);
        free(model);
    }
}

/* Of the stage's own applications, or of those of the last stage, the matrices of stage `of`. */
static void pack_matrices(tt_model *model, int stage, int of)
{
    const tt_program *program = tt_stage_program(model->shape.L, stage);
    for (int i = 0; model->fp8 != NULL && i < program->length; i++) {
        const tt_home *home = tt_home_of(model, program->apply[i].weight, stage);
        if (home->mine && home->stage == of) {
            tt_model_round_weights(model, &program->apply[i], stage);
        }
    }
    for (int role = 0; role < TT_ROLES; role++) {
        const tt_home *home = tt_home_of(model, (tt_role)role, stage);
        if (home->packed != NULL && home->mine && home->stage == of) {
            const void *w = model->weights + tt_bytes(home->offset, model->act_bytes);
            model->ctx->ops->pack(model->ctx, home->packed, w, home->rows, home->columns);
        }
    }
}

void tt_model_pack_stage(tt_model *model, int stage)
{
    const int crown = model->stages - 1;
    pack_matrices(model, stage, stage);
    if (stage == 0) { /* the head of a tied model */
        pack_matrices(model, crown, stage);
    }
}

void tt_model_pack(tt_model *model)
{
    for (int stage = 0; stage < model->stages; stage++) {
        tt_model_pack_stage(model, stage);
    }
}

void tt_model_count(tt_model *model, const tt_numerics *passes, const tt_numerics *packing)
{
    const tt_numerics none = {.group = NULL};
    model->numerics = passes != NULL ? *passes : none;
    model->packing = packing != NULL ? *packing : none;
}

/* ---- addresses ---- */

void *tt_pass_slot(const tt_pass *pass, tt_slot slot, int stage)
{
    if (slot == TT_NEXT) {
        slot = TT_X;
        stage++;
    }
    const tt_layout *layout = &pass->model->layout;
    return pass->model->memory + tt_layout_at(layout, &layout->slot[slot], stage);
}

float *tt_pass_stats(const tt_pass *pass, tt_slot slot, int stage)
{
    const tt_layout *layout = &pass->model->layout;
    return (float *)(void *)(pass->model->memory +
                             tt_layout_at(layout, &layout->stats[slot], stage));
}

void *tt_pass_buffer(const tt_pass *pass, tt_buffer buffer)
{
    assert(pass->train && buffer < TT_BUFFERS);
    return pass->model->memory + pass->model->layout.gradient[buffer].first;
}

void *tt_pass_gradient(const tt_pass *pass, tt_slot slot)
{
    return tt_pass_buffer(pass, tt_slots[slot == TT_NEXT ? TT_X : slot].gradient);
}

static int64_t weight_offset(const tt_pass *pass, tt_role role, int stage)
{
    int64_t offset = tt_home_of(pass->model, role, stage)->offset;
    assert(offset >= 0);
    return offset;
}

const void *tt_pass_weight(const tt_pass *pass, tt_role role, int stage)
{
    return pass->model->weights +
           tt_bytes(weight_offset(pass, role, stage), pass->model->act_bytes);
}

tt_ctx *tt_pass_ctx(const tt_pass *pass, const tt_apply *a)
{
    const tt_model *model = pass->model;
    return tt_autocast_up(&model->wide.autocast, a->op) ? model->wide.ctx : model->ctx;
}

tt_weight tt_pass_matrix(const tt_pass *pass, const tt_apply *a, int stage)
{
    const tt_home *home = tt_home_of(pass->model, a->weight, stage);
    if (home->wide >= 0) {
        return (tt_weight){.w = pass->model->wide.weights + home->wide};
    }
    return (tt_weight){.w = tt_pass_weight(pass, a->weight, stage), .packed = home->packed};
}

tt_grad tt_pass_weight_gradient(const tt_pass *pass, tt_role role, int stage)
{
    const tt_home *home = tt_home_of(pass->model, role, stage);
    assert(home->offset >= 0);
    tt_grad g = tt_grad_from(&pass->model->gradient, home->gradient);
    g.lost = g.lost != NULL ? g.lost + home->index : NULL;
    return g;
}

/* ---- a pass ---- */

tt_pass tt_pass_make(const tt_model *model, const int32_t *token, int64_t B, int64_t T)
{
    assert(B >= 1 && B <= model->B && T >= 1 && T <= model->T);
    return (tt_pass){.model = model, .B = B, .T = T, .M = tt_mul(B, T), .token = token};
}

void tt_pass_train(tt_pass *pass, const int32_t *target, const int64_t *sample, uint64_t seed,
                   int64_t step, float scale, tt_loss *loss)
{
    assert((pass->model->gradient.sum != NULL || pass->model->gradient.fixed != NULL) && step >= 0);
    pass->target = target;
    pass->sample = sample;
    pass->train = true;
    pass->key = tt_rng_key(seed, TT_RNG_DROPOUT, (uint64_t)step);
    pass->scale = scale;
    pass->loss = loss;
}

void tt_apply_forward(tt_pass *pass, const tt_apply *a, int stage)
{
    tt_layers[a->layer].forward(pass, a, stage);
    if (a->out != TT_NO_SLOT) {
        tt_pass_keep(pass, a->out, stage);
    }
    if (a->out < TT_SLOTS && tt_slots[a->out].gelu_of != TT_NO_SLOT) {
        tt_pass_keep(pass, tt_slots[a->out].gelu_of, stage);
    }
}

static void between(const tt_pass *pass)
{
    if (pass->hooks != NULL && pass->hooks->between != NULL) {
        pass->hooks->between(pass->hooks->user);
    }
}

static void stage_forward(tt_pass *pass, int stage)
{
    const tt_program *program = tt_stage_program(pass->model->shape.L, stage);
    tt_hooks_enter(pass->hooks, stage);
    tt_look_weights(pass, stage);
    for (int i = 0; i < program->length; i++) {
        tt_apply_forward(pass, &program->apply[i], stage);
        tt_look_forward(pass, &program->apply[i], stage);
        between(pass);
    }
}

static void stage_backward(tt_pass *pass, int stage)
{
    const tt_program *program = tt_stage_program(pass->model->shape.L, stage);
    tt_pass_restore(pass, stage);
    for (int i = program->length - 1; i >= 0; i--) {
        const tt_apply *a = &program->apply[i];
        if (tt_layers[a->layer].backward != NULL) {
            tt_layers[a->layer].backward(pass, a, stage);
            tt_look_backward(pass, a, stage);
            between(pass);
        }
    }
}

/* ---- again: what was not kept, before backward reads it ---- */

void tt_apply_gelu_again(tt_pass *pass, const tt_apply *a, int stage)
{
    tt_ctx *ctx = pass->model->ctx;
    void *y = tt_pass_slot(pass, a->out, stage);                         /* [M,F] */
    const void *x = tt_pass_slot(pass, tt_slots[a->out].gelu_of, stage); /* [M,F] */
    tt_pass_count(pass, ctx, TT_PART_FORWARD, tt_seen_slot(a->out), 0);
    ctx->ops->gelu(ctx, y, x, tt_mul(pass->M, tt_slot_width(&pass->model->shape, a->out)));
}

static void cheap_again(tt_pass *pass, int stage)
{
    const tt_program *program = tt_stage_program(pass->model->shape.L, stage);
    for (int i = 0; i < program->length; i++) {
        const tt_apply *a = &program->apply[i];
        if (!tt_slot_cheap(a->out)) {
            continue;
        }
        if (tt_slots[a->out].gelu_of != TT_NO_SLOT) {
            tt_apply_gelu_again(pass, a, stage);
        } else {
            tt_layers[a->layer].forward(pass, a, stage);
        }
        tt_look_forward(pass, a, stage);
    }
}

/* Stages first .. last from the input of the first, which is all that was kept. */
static void segment_again(tt_pass *pass, int first, int last)
{
    tt_pass_keep(pass, TT_X, first);
    for (int stage = first; stage <= last; stage++) {
        const tt_program *program = tt_stage_program(pass->model->shape.L, stage);
        tt_hooks_enter(pass->hooks, stage);
        for (int i = 0; i < program->length; i++) {
            const tt_apply *a = &program->apply[i];
            if (tt_again_runs(a, stage == last)) {
                tt_apply_forward(pass, a, stage);
                tt_look_forward(pass, a, stage);
                between(pass);
            }
        }
    }
}

static void stage_again(tt_pass *pass, int stage)
{
    const tt_recompute *r = &pass->model->layout.recompute;
    pass->again = true;
    switch (tt_again_of(r, pass->model->shape.L, stage)) {
    case TT_AGAIN_NOTHING:
        break;
    case TT_AGAIN_CHEAP:
        tt_hooks_enter(pass->hooks, stage);
        cheap_again(pass, stage);
        break;
    case TT_AGAIN_SEGMENT:
        segment_again(pass, tt_again_first(r, pass->model->shape.L, stage), stage);
        break;
    }
    pass->again = false;
}

/* ---- what callers see ---- */

void tt_model_train(tt_model *model, const int32_t *token, const int32_t *target,
                    const int64_t *sample, int64_t B, int64_t T, uint64_t seed, int64_t step,
                    float scale, tt_loss *loss, const tt_hooks *hooks)
{
    tt_pass pass = tt_pass_make(model, token, B, T);
    tt_pass_train(&pass, target, sample, seed, step, scale, loss);
    pass.hooks = hooks;

    /* The stream's gradient starts at zero, as every reader of the stream adds to it. */
    memset(tt_pass_gradient(&pass, TT_X), 0,
           tt_bytes(tt_mul(pass.M, model->shape.C), model->act_bytes));

    const int crown = model->stages - 1;
    for (int stage = 0; stage < crown; stage++) {
        stage_forward(&pass, stage);
    }
    tt_hooks_grad_begin(hooks, crown); /* its head goes both ways at once */
    stage_forward(&pass, crown);
    for (int stage = crown; stage >= 0; stage--) {
        stage_again(&pass, stage);
        tt_hooks_enter(hooks, stage);
        if (stage < crown) {
            tt_hooks_grad_begin(hooks, stage);
        }
        stage_backward(&pass, stage);
        tt_hooks_grad_ready(hooks, stage);
    }
    model->ctx->count = (tt_counts){.result = NULL};
}

void tt_model_eval(tt_model *model, const int32_t *token, const int32_t *target, int64_t B,
                   int64_t T, tt_loss *loss, const tt_hooks *hooks)
{
    tt_pass pass = tt_pass_make(model, token, B, T);
    pass.hooks = hooks;
    pass.target = target;
    pass.loss = loss;
    for (int stage = 0; stage < model->stages; stage++) {
        stage_forward(&pass, stage);
    }
}

void tt_model_next(tt_model *model, const int32_t *token, int64_t n, float *logits)
{
    tt_pass pass = tt_pass_make(model, token, 1, n);
    int crown = model->stages - 1;
    for (int stage = 0; stage < crown; stage++) {
        stage_forward(&pass, stage);
    }
    const tt_program *program = tt_stage_program(model->shape.L, crown);
    const tt_apply *head = &program->apply[program->length - 1];
    for (const tt_apply *a = program->apply; a < head; a++) {
        tt_layers[a->layer].forward(&pass, a, crown);
    }

    tt_ctx *ctx = tt_pass_ctx(&pass, head);
    int64_t C = model->shape.C;
    const unsigned char *x = tt_pass_slot(&pass, head->in, crown); /* [n,C] */
    const tt_weight w = tt_pass_matrix(&pass, head, crown);        /* [V,C] */
    ctx->ops->gemm_nt_f32(ctx, logits, x + tt_bytes(tt_mul(n - 1, C), model->act_bytes), &w, 1,
                          model->shape.V, C, 1);
}

double tt_loss_mean(const tt_loss *loss)
{
    return loss->count > 0 ? tt_exact_value(&loss->sum) / (double)loss->count : 0;
}
