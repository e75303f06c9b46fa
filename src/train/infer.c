/* infer.c: a checkpoint as a model that reads. See infer.h. */
#include "tutti/train/infer.h"

#include <stdlib.h>
#include <string.h>

#include "tutti/base/narrow.h"
#include "tutti/base/threads.h"
#include "tutti/ckpt/ckpt.h"
#include "tutti/numerics/bf16_weight.h"
#include "tutti/train/state.h"

#include "train/train_impl.h"

/* The stored configuration with the overrides, for one process however many wrote the file. */
static tt_code read_config(tt_infer *infer, const char *checkpoint, int overrides,
                           char *const *override, tt_config *config, tt_err *err)
{
    tt_code rc = TT_OK;
    tt_text text = {0}, tokenizer = {0};
    TT_TRY(tt_ckpt_texts(checkpoint, &text, &tokenizer, err));
    tt_config_preset(config);
    TT_TRY(tt_config_parse(config, checkpoint, text.data, err));
    TT_TRY(tt_config_load(config, NULL, overrides, override, err));
    TT_TRY(tt_tokenizer_open(&infer->tokenizer, tokenizer.data, err));
    config->batch.micro = infer->B;
    config->batch.accumulate = 1;
    config->batch.sequences = 0;
    config->memory.zero = 0;
    const bool bf16 = strcmp(config->precision.compute, "bf16") == 0;
    if (!bf16) { /* read in another format than trained in */
        strcpy(config->precision.master, "fp32");
        strcpy(config->precision.rounding, "nearest");
    }
out:
    tt_text_free(&text);
    tt_text_free(&tokenizer);
    return rc;
}

/* Weights of the file in the compute format. FP32 values pass through memory that is given back. */
static tt_code load_weights(tt_infer *infer, tt_world *world, const char *checkpoint, tt_err *err)
{
    tt_code rc = TT_OK;
    static const char *const group[] = {"params"};
    const tt_blueprint *p = &infer->print;
    tt_rows rows = {0};
    tt_arena full = {0};
    float *value = NULL;
    rc = tt_arena_open(&full, "weights in FP32", tt_bytes(p->params.total, sizeof(float)), err);
    if (rc == TT_OK) {
        value = tt_arena_take(&full, tt_bytes(p->params.total, sizeof(float)));
        rc =
            tt_rows_make(&rows, &p->params, &p->shard, p->shard.local, 1, group, &value, NULL, err);
    }
    TT_TRY(tt_agree(world, rc, err));
    tt_state state = {.tensors = rows.rows, .tensor = rows.row};
    TT_TRY(tt_ckpt_load(world, checkpoint, &state, true, err));
    if (p->master == TT_MASTER_SPLIT) { /* what training reads */
        tt_bf16 *weight = infer->weights;
        for (int64_t e = 0; e < p->params.total; e++) {
            weight[e] = tt_split_of_f32(value[e]).high;
        }
    } else {
        infer->ctx.ops->to_act(&infer->ctx, infer->weights, value, p->params.total);
    }
    for (int i = 0; i < p->wide.count; i++) {
        const tt_range r = p->wide.range[i];
        memcpy(infer->wide + p->wide.local[i], value + r.first,
               tt_bytes(r.end - r.first, sizeof(float)));
    }
    tt_model_pack(infer->model);
out:
    tt_rows_free(&rows);
    tt_arena_close(&full);
    return rc;
}

/* One arena for all that lives as long as the model. Local. */
static tt_code allocate(tt_infer *infer, int threads, tt_err *err)
{
    tt_code rc = TT_OK;
    const tt_blueprint *p = &infer->print;
    const int64_t T = p->shape.T;
    const size_t weights = tt_bytes(p->params.total, p->act_bytes);
    const size_t acts = tt_model_activation_bytes(&p->shape, infer->B, T, p->act_bytes, false,
                                                  tt_blueprint_fp8(&infer->print), NULL, NULL);
    const size_t scratch = p->plan.bytes[TT_MEM_WORKSPACE], packed = p->plan.bytes[TT_MEM_PACKED];
    const size_t wide = tt_bytes(p->params.wide, sizeof(float));
    TT_TRY(tt_arena_open(&infer->arena, "model",
                         tt_arena_cost(weights) + tt_arena_cost(wide) + acts +
                             tt_arena_cost(scratch) + packed,
                         err));
    infer->weights = tt_arena_take(&infer->arena, weights);
    infer->ctx = tt_kernels_ctx(&infer->print.ops, &infer->print.guarded, threads,
                                tt_arena_take(&infer->arena, scratch), scratch);
    infer->wide = tt_arena_take(&infer->arena, wide);
    const tt_wide up = tt_wide_of(p, &infer->wide_ctx, infer->ctx.workspace, scratch, infer->wide);
    TT_TRY(tt_model_open(&infer->model, &p->shape, &p->params, &infer->ctx, infer->weights, NULL,
                         NULL, tt_blueprint_fp8(&infer->print), &up, NULL, infer->B, T,
                         &infer->arena, packed > 0 ? &infer->arena : NULL, err));
out:
    return rc;
}

tt_code tt_infer_open(tt_infer *infer, tt_world *world, const char *checkpoint, int overrides,
                      char *const *override, int64_t B, tt_err *err)
{
    tt_code rc = TT_OK;
    tt_config config;
    memset(infer, 0, sizeof *infer);
    infer->B = B;
    TT_TRY(tt_agree(world, read_config(infer, checkpoint, overrides, override, &config, err), err));
    if (world != NULL) {
        tt_log log = tt_log_open(world->rank);
        const double timeout = world->size > 1 ? (double)config.dist.timeout : 0;
        TT_TRY(tt_watch_open(world, timeout, &log, err));
    }
    const int threads = tt_threads_choose(&config, tt_world_threads(world));
    tt_threads_set(threads);
    tt_flush_denormals(threads);
    TT_TRY(tt_agree(world,
                    tt_blueprint_make(&infer->print, &config, infer->tokenizer.vocab, 0, 1, threads,
                                      getenv("TUTTI_ISA"), err),
                    err));
    TT_TRY(tt_agree(world, allocate(infer, threads, err), err));
    TT_TRY(tt_agree(world, tt_kernels_self_test(&infer->ctx, err), err));
    if (infer->print.autocast.up != 0) {
        TT_TRY(tt_agree(world, tt_kernels_self_test(&infer->wide_ctx, err), err));
    }
    TT_TRY(load_weights(infer, world, checkpoint, err));
out:
    if (rc != TT_OK) {
        tt_infer_close(infer);
    }
    return rc;
}

void tt_infer_close(tt_infer *infer)
{
    tt_model_close(infer->model);
    tt_arena_close(&infer->arena);
    tt_blueprint_free(&infer->print);
    memset(infer, 0, sizeof *infer);
}
