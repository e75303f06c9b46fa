/* fp8.c: what FP8 adds to a pass: rounding what products read, keeping codes, remembering amax.
 *
 * Layers and kernels know nothing of it: they read and write slots in BF16, and between them this
 * file rounds a slot to numbers that E4M3 has. See tutti/model/fp8.h. */
#include "tutti/model/fp8.h"

#include <math.h>
#include <string.h>

#include "model_impl.h"
#include "tutti/base/narrow.h"
#include "tutti/numerics/fp8.h"

/* Sites of a block: its slots, then the gradients of what linear layers write into slots. */
enum { SITES = 2 * TT_SLOTS };

static int site_of(tt_slot slot, bool gradient, int stage)
{
    return (stage - 1) * SITES + (gradient ? TT_SLOTS : 0) + (int)slot;
}

/* ---- what is remembered ---- */

void tt_fp8_make(tt_fp8 *fp8, const tt_config *config, const tt_autocast *autocast,
                 const tt_shape *shape)
{
    const char *recipe = config->fp8.recipe;
    *fp8 = (tt_fp8){
        .autocast = *autocast,
        .recipe = strcmp(recipe, "delayed") == 0 ? TT_FP8_DELAYED
                  : strcmp(recipe, "mxfp8") == 0 ? TT_FP8_MXFP8
                                                 : TT_FP8_CURRENT,
        .backward = strcmp(config->fp8.backward, "e5m2") == 0 ? TT_E5M2 : TT_BF16,
        .margin = tt_int(config->fp8.margin),
        .sites = tt_int(shape->L) * SITES,
    };
    fp8->history = fp8->recipe == TT_FP8_DELAYED ? config->fp8.history : 0;
}

size_t tt_fp8_bytes(const tt_fp8 *fp8)
{
    return tt_bytes(tt_mul(fp8->history + 1, fp8->sites), sizeof(float));
}

void tt_fp8_place(tt_fp8 *fp8, void *memory)
{
    memset(memory, 0, tt_fp8_bytes(fp8));
    fp8->amax = memory;
    fp8->past = fp8->amax + fp8->sites;
}

void tt_fp8_clear(tt_fp8 *fp8)
{
    memset(fp8->amax, 0, tt_bytes(fp8->sites, sizeof *fp8->amax));
}

void tt_fp8_push(tt_fp8 *fp8, int64_t update)
{
    if (fp8->history > 0) {
        float *row = fp8->past + update % fp8->history * fp8->sites;
        memcpy(row, fp8->amax, tt_bytes(fp8->sites, sizeof *row));
    }
}

float tt_fp8_expected(const tt_fp8 *fp8, int site)
{
    float most = 0;
    for (int64_t i = 0; i < fp8->history; i++) {
        most = fmaxf(most, fp8->past[i * fp8->sites + site]);
    }
    return most;
}

void tt_fp8_text(const tt_fp8 *fp8, double mean_over, tt_text *out)
{
    const char *between = "{";
    for (int i = 0; i < SITES; i++) {
        float most = 0;
        for (int site = i; site < fp8->sites; site += SITES) {
            most = fmaxf(most, fp8->amax[site]);
        }
        if (most > 0) {
            tt_text_add(out, "%s\"%s%s\": ", between, i < TT_SLOTS ? "" : "grad_",
                        tt_slots[i % TT_SLOTS].name);
            tt_text_add_double(out, i < TT_SLOTS ? (double)most : (double)most / mean_over);
            between = ", ";
        }
    }
    tt_text_add(out, "%s", between[0] == '{' ? "{}" : "}");
}

/* ---- blocks and their scales ---- */

/* x[rows, width] in blocks of `size`. */
typedef struct blocks {
    int64_t rows, width, size;
} blocks;

static blocks blocks_of(const tt_pass *pass, int64_t width)
{
    if (pass->model->fp8->recipe == TT_FP8_MXFP8) {
        return (blocks){pass->M, width, TT_FP8_MX};
    }
    const int64_t sequence = tt_mul(pass->T, width);
    return (blocks){pass->B, sequence, sequence};
}

/* exponent out: the recipe's scales for x. `unit` is what x carries as a factor. */
static void find_scales(tt_pass *pass, int8_t *exponent, const void *x, blocks b, tt_format format,
                        int site, float unit)
{
    tt_fp8 *fp8 = pass->model->fp8;
    tt_ctx *ctx = pass->model->ctx;
    float amax = 0;
    ctx->ops->fp8_scale(ctx, exponent, &amax, x, b.rows, b.width, b.size, format);
    if (!pass->train) {
        return;
    }
    fp8->amax[site] = fmaxf(fp8->amax[site], amax / unit);
    const float expected = tt_fp8_expected(fp8, site); /* 0 unless delayed */
    if (expected > 0) {
        const int8_t all = tt_fp8_exponent(format, expected * unit, fp8->margin);
        for (int64_t i = 0; i < b.rows; i++) { /* a sequence that is not finite has no scale */
            exponent[i] = exponent[i] == TT_FP8_NAN ? exponent[i] : all;
        }
    }
}

static void *copy_of(const tt_model *model, const tt_span *span, int stage)
{
    return model->memory + tt_layout_at(&model->layout, span, stage);
}

/* ---- a pass ---- */

void tt_pass_keep(tt_pass *pass, tt_slot slot, int stage)
{
    const tt_model *model = pass->model;
    if (slot == TT_NEXT) {
        slot = TT_X;
        stage++;
    }
    if (model->fp8 == NULL || stage > model->shape.L) {
        return;
    }
    const tt_layout *layout = &model->layout;
    const bool rounds = tt_slot_rounded(slot, model->fp8),
               keeps = pass->train && layout->code[slot].bytes > 0;
    if (!rounds && !keeps) {
        return;
    }
    void *x = tt_pass_slot(pass, slot, stage);
    const blocks b = blocks_of(pass, tt_slot_width(&model->shape, slot));
    int8_t *exponent = copy_of(model, &layout->exponent[slot], stage);
    uint8_t *code = keeps ? copy_of(model, &layout->code[slot], stage) : NULL;
    find_scales(pass, exponent, x, b, TT_E4M3, site_of(slot, false, stage), 1);
    tt_pass_count(pass, model->ctx, TT_PART_FORWARD_FP8, tt_seen_slot(slot), 0);
    model->ctx->ops->fp8_round(model->ctx, code, x, exponent, b.rows, b.width, b.size, TT_E4M3,
                               rounds);
}

void tt_pass_restore(tt_pass *pass, int stage)
{
    const tt_model *model = pass->model;
    const tt_layout *layout = &model->layout;
    if (model->fp8 == NULL || stage < 1 || stage > model->shape.L) {
        return;
    }
    for (tt_slot slot = 0; slot < TT_SLOTS; slot++) {
        if (layout->code[slot].bytes > 0) {
            const blocks b = blocks_of(pass, tt_slot_width(&model->shape, slot));
            model->ctx->ops->fp8_value(model->ctx, tt_pass_slot(pass, slot, stage),
                                       copy_of(model, &layout->code[slot], stage),
                                       copy_of(model, &layout->exponent[slot], stage), b.rows,
                                       b.width, b.size, TT_E4M3);
        }
    }
}

bool tt_pass_rounds_gradient(const tt_pass *pass, const tt_apply *a)
{
    const tt_fp8 *fp8 = pass->model->fp8;
    return fp8 != NULL && fp8->backward == TT_E5M2 && tt_autocast_e4m3(&fp8->autocast, a->op);
}

void tt_pass_round_gradient(tt_pass *pass, void *dy, const tt_apply *a, int stage)
{
    const tt_model *model = pass->model;
    if (!tt_pass_rounds_gradient(pass, a)) {
        return;
    }
    const blocks b = blocks_of(pass, tt_slot_width(&model->shape, a->out));
    int8_t *exponent = copy_of(model, &model->layout.spare, 1);
    const int site = site_of(a->out == TT_NEXT ? TT_X : a->out, true, stage);
    find_scales(pass, exponent, dy, b, TT_E5M2, site, pass->scale);
    tt_pass_count(pass, model->ctx, TT_PART_BACKWARD_FP8, tt_seen_gradient(a), 0);
    model->ctx->ops->fp8_round(model->ctx, NULL, dy, exponent, b.rows, b.width, b.size, TT_E5M2,
                               true);
}

void tt_model_round_weights(tt_model *model, const tt_apply *a, int stage)
{
    if (!tt_autocast_e4m3(&model->fp8->autocast, a->op) || !tt_layers[a->layer].matmul) {
        return;
    }
    const tt_home *home = &model->home[stage * TT_ROLES + (int)a->weight];
    const bool mx = model->fp8->recipe == TT_FP8_MXFP8;
    const int64_t rows = mx ? home->rows : 1;
    const int64_t width = mx ? home->columns : tt_mul(home->rows, home->columns);
    const int64_t size = mx ? TT_FP8_MX : width;
    void *w = model->weights + tt_bytes(home->offset, model->act_bytes);
    int8_t *exponent = copy_of(model, &model->layout.spare, 1);
    model->ctx->ops->fp8_scale(model->ctx, exponent, NULL, w, rows, width, size, TT_E4M3);
    model->ctx->count.result =
        tt_numerics_group(&model->packing, TT_PART_WEIGHTS_FP8, (int)a->weight);
    model->ctx->ops->fp8_round(model->ctx, NULL, w, exponent, rows, width, size, TT_E4M3, true);
    model->ctx->count.result = NULL;
}
