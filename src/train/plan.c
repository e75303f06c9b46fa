/* plan.c: from a configuration to everything a run will allocate, send and compute. See plan.h. */
#include "tutti/train/plan.h"

#include <stdio.h>
#include <string.h>

#include "tutti/base/memory.h"
#include "tutti/base/narrow.h"
#include "tutti/base/threads.h"
#include "tutti/model/model.h"
#include "tutti/optim/optim.h"
#include "tutti/optim/scaler.h"
#include "tutti/train/masters.h"

#include "train/train_impl.h"

const char *const tt_component_names[TT_MEM_COMPONENTS] = {
    "weights",   "fp32_weights", "packed_weights", "gradients",
    "optimizer", "activations",  "workspace",      "batch"};

tt_format tt_kernel_format(const tt_config *config)
{
    const char *compute = config->precision.compute;
    return strcmp(compute, "fp8") == 0 ? TT_BF16 : (tt_format)tt_format_find(compute);
}

/* Derived values go back into the configuration, so that what is stored in a checkpoint says what
 * was run, and a resumed run compares like with like. */
static void fill_in(tt_blueprint *p)
{
    p->config.model.kv_heads = p->shape.G;
    p->config.model.ffn = p->shape.F;
    p->config.model.vocab = p->shape.V;
    p->config.batch.sequences = p->split.sequences;
    p->config.batch.micro = p->split.micro;
    p->config.batch.accumulate = p->split.accumulate;
}

static void make_plan(tt_blueprint *p, int ranks, int threads)
{
    tt_plan *plan = &p->plan;
    const int64_t N = p->params.total, B = p->split.micro, T = p->shape.T;
    const bool packed = p->config.memory.pack_weights;
    const tt_extents extents = tt_model_extents(&p->shape, B, T, packed);
    const bool gather = p->config.memory.zero > 0;

    plan->bytes[TT_MEM_WEIGHTS] = tt_arena_cost(tt_bytes(N, p->act_bytes));
    plan->bytes[TT_MEM_WIDE] = tt_arena_cost(tt_bytes(p->params.wide, sizeof(float)));
    plan->bytes[TT_MEM_PACKED] = packed ? tt_model_packed_bytes(&p->shape, &p->params, &p->ops) : 0;
    plan->bytes[TT_MEM_GRADIENTS] = tt_arena_cost(tt_bytes(N, p->grad_bytes));
    if (p->config.run.exact) { /* and the count of what was lost */
        plan->bytes[TT_MEM_GRADIENTS] += tt_arena_cost(tt_bytes(p->params.count, sizeof(int64_t)));
    }
    plan->bytes[TT_MEM_OPTIMIZER] = tt_masters_cost(p->master, p->shard.elements) +
                                    2 * tt_arena_cost(tt_bytes(p->shard.elements, sizeof(float)));
    const tt_fp8 *fp8 = tt_blueprint_fp8(p);
    plan->bytes[TT_MEM_ACTIVATIONS] =
        tt_model_activation_bytes(&p->shape, B, T, p->act_bytes, true, fp8, &plan->kept) +
        (fp8 != NULL ? tt_arena_cost(tt_fp8_bytes(fp8)) : 0);
    size_t scratch = tt_kernels_workspace(&p->ops, &p->guarded, &extents, threads);
    if (p->autocast.up != 0) { /* both kinds of tables share it */
        const size_t wide = tt_kernels_wide_workspace(&p->wide_ops, &extents, threads);
        scratch = wide > scratch ? wide : scratch;
    }
    plan->bytes[TT_MEM_WORKSPACE] = tt_arena_cost(scratch);
    plan->bytes[TT_MEM_BATCH] = tt_arena_cost(tt_batch_bytes(B, T));
    plan->total = 0;
    for (int i = 0; i < TT_MEM_COMPONENTS; i++) {
        plan->total += plan->bytes[i];
    }
    plan->ranks = ranks;
    plan->threads = threads;
    plan->parameters = p->params.trained;
    plan->tokens_per_step = tt_mul(p->split.sequences, T);
    plan->flops_per_step =
        tt_model_flops_per_token(&p->shape, &p->params) * (double)plan->tokens_per_step;
    plan->wire_calls = 0;
    plan->wire_bytes = 0;
    if (ranks > 1) { /* one call a bucket each way, the agreement and the record's times */
        plan->wire_calls =
            tt_mul(p->buckets.count, gather ? 2 : 1) + (gather ? tt_wide_calls(p) : 0) + 2;
        plan->wire_bytes =
            tt_count(tt_bytes(N, p->grad_bytes) + (gather ? tt_bytes(N, p->act_bytes) : 0) +
                     (gather ? tt_bytes(p->params.wide, sizeof(float)) : 0) +
                     tt_bytes(TT_STEP_SUMS + TT_STEP_MAXIMA + p->fp8.sites, sizeof(double)));
    }
}

int tt_threads_choose(const tt_config *config, int fill)
{
    const int environment = tt_threads_env();
    if (config->run.threads > 0) {
        return tt_int(config->run.threads);
    }
    return environment > 0 ? environment : fill;
}

tt_code tt_blueprint_make(tt_blueprint *p, const tt_config *config, int64_t data_vocab, int rank,
                          int ranks, int threads, const char *isa, tt_err *err)
{
    tt_code rc = TT_OK;
    const bool fp8 = strcmp(config->precision.compute, "fp8") == 0;
    const tt_format compute = tt_kernel_format(config);
    memset(p, 0, sizeof *p);
    p->config = *config;
    p->grad_bytes = config->run.exact ? sizeof(int64_t) : sizeof(float);
    TT_TRY(tt_shape_resolve(&p->shape, config, data_vocab, err));
    TT_TRY(tt_split_resolve(&p->split, config->batch.sequences, config->batch.micro,
                            config->batch.accumulate, ranks, err));
    fill_in(p);
    TT_TRY(tt_optim_check(&p->config, err));
    TT_TRY(tt_scaler_check(&p->config, err));
    TT_TRY(tt_masters_resolve(&p->config, &p->master, &p->stochastic, err));
    TT_TRY(tt_params_make(&p->params, &p->shape, err));
    TT_TRY(tt_buckets_make(&p->buckets, p->params.stage_end, p->params.stages,
                           config->dist.bucket_mb * 1000000 / tt_count(p->grad_bytes), err));
    TT_TRY(tt_shard_make(&p->shard, &p->buckets, tt_int(config->memory.zero), rank, ranks, err));
    TT_TRY(tt_shard_make(&p->cut, &p->buckets, 1, rank, ranks, err));
    TT_TRY(tt_kernels_select(&p->ops, &p->guarded, compute, isa, err));
    p->act_bytes = tt_formats[p->ops.format].bytes;
    tt_autocast_make(&p->autocast, &p->config, &p->ops, p->master);
    TT_TRY(tt_autocast_check(&p->autocast, &p->config, err));
    tt_model_place_wide(&p->params, &p->shape, &p->autocast);
    TT_TRY(tt_wide_check(p, err));
    TT_TRY(tt_wide_held(&p->wide, &p->params, err));
    if (p->autocast.up != 0) {
        TT_TRY(tt_kernels_select_wide(&p->wide_ops, compute, isa, err));
    }
    if (fp8) {
        tt_fp8_make(&p->fp8, &p->config, &p->autocast, &p->shape);
    }
    make_plan(p, ranks, threads);
out:
    if (rc != TT_OK) {
        tt_blueprint_free(p);
    }
    return rc;
}

void tt_blueprint_free(tt_blueprint *p)
{
    tt_params_free(&p->params);
    tt_buckets_free(&p->buckets);
    tt_shard_free(&p->shard);
    tt_shard_free(&p->cut);
    tt_shard_free(&p->wide);
}

static void memory_text(const tt_blueprint *p, tt_text *out)
{
    char size[32];
    tt_text_add(out, "Memory per rank\n");
    for (int i = 0; i < TT_MEM_COMPONENTS; i++) {
        tt_human_bytes((double)p->plan.bytes[i], size);
        tt_text_add(out, "  %-14s %12s", tt_component_names[i], size);
        if (i == TT_MEM_GRADIENTS && p->config.run.exact) {
            tt_human_bytes((double)p->params.total * (sizeof(int64_t) - sizeof(float)), size);
            tt_text_add(out, "   (exact mode: 8 bytes a parameter, not 4; %s more)", size);
        }
        if (i == TT_MEM_ACTIVATIONS) {
            tt_human_bytes((double)p->plan.kept, size);
            tt_text_add(out, "   (%s of them wait for backward)", size);
        }
        tt_text_add(out, "\n");
    }
    tt_human_bytes((double)p->plan.total, size);
    tt_text_add(out, "  %-14s %12s\n", "total", size);
    tt_human_bytes((double)p->plan.total * p->plan.ranks, size);
    tt_text_add(out, "  %-14s %12s   (%d rank%s; libraries come on top)\n\n", "all ranks", size,
                p->plan.ranks, p->plan.ranks == 1 ? "" : "s");
}

/* What keeps numbers within reach of a narrow format, where something does. */
static void scales_text(const tt_blueprint *p, tt_text *out)
{
    const tt_config *c = &p->config;
    const bool fp8 = p->fp8.sites > 0, loss = strcmp(c->precision.loss_scale, "none") != 0;
    if (!fp8 && !loss) {
        return;
    }
    tt_text_add(out, "Scales\n");
    if (fp8) {
        tt_text_add(out, "  fp8            %s", c->fp8.recipe);
        if (p->fp8.recipe == TT_FP8_DELAYED) {
            tt_text_add(out, ", of %lld steps, margin %lld", (long long)c->fp8.history,
                        (long long)c->fp8.margin);
        }
        tt_text_add(out, "; gradients %s\n", c->fp8.backward);
    }
    if (loss) {
        tt_text_add(out, "  loss           %s", c->precision.loss_scale);
        if (tt_scaler_is_dynamic(c)) {
            tt_text_add(out, ", from %.9g, within %.9g and %.9g", c->scaler.start, c->scaler.floor,
                        c->scaler.cap);
        }
        tt_text_add(out, "\n");
    }
    tt_text_add(out, "\n");
}

void tt_plan_text(const tt_blueprint *p, tt_text *out)
{
    const tt_plan *plan = &p->plan;
    const tt_shape *s = &p->shape;
    const tt_split *b = &p->split;
    char size[32];
    tt_text_add(out,
                "Model: gpt2, %lld blocks, %lld heads (%lld key-value), %lld channels, ffn %lld, "
                "context %lld, vocabulary %lld%s\n",
                (long long)s->L, (long long)s->H, (long long)s->G, (long long)s->C, (long long)s->F,
                (long long)s->T, (long long)s->V, s->tied ? ", tied head" : "");
    tt_text_add(out, "       %lld parameters in %d tensors\n\n", (long long)plan->parameters,
                p->params.count);
    tt_text_add(out,
                "Batch: sequences %lld = micro %lld x accumulate %lld x ranks %d; %lld tokens "
                "a step\n\n",
                (long long)b->sequences, (long long)b->micro, (long long)b->accumulate, b->ranks,
                (long long)plan->tokens_per_step);
    memory_text(p, out);
    tt_autocast_text(&p->autocast, out);
    scales_text(p, out);
    tt_human_bytes((double)plan->wire_bytes, size);
    tt_text_add(out, "Wire per step and rank (whatever accumulate is)\n");
    tt_text_add(out, "  collectives    %12lld\n", (long long)plan->wire_calls);
    tt_text_add(out, "  payload        %12s   (%d bucket%s of at most %lld MB)\n\n", size,
                p->buckets.count, p->buckets.count == 1 ? "" : "s",
                (long long)p->config.dist.bucket_mb);
    tt_text_add(out, "Compute per step\n");
    tt_text_add(out, "  %.3g GFLOP over all ranks (%.3g MFLOP a token)\n",
                plan->flops_per_step / 1e9,
                plan->flops_per_step / (double)plan->tokens_per_step / 1e6);
}
