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
#include "tutti/train/optimizer.h"

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

/* What an optimizer holds of so many elements. */
static size_t optimizer_bytes(const tt_blueprint *p, int64_t elements)
{
    return tt_optimizer_memory(p->master, elements, p->config.memory.optimizer_file[0] != '\0');
}

void tt_plan_memory(const tt_blueprint *p, int64_t B, const tt_recompute *recompute, size_t *bytes,
                    size_t *kept)
{
    const int64_t N = p->params.total, T = p->shape.T;
    const int threads = p->plan.threads;
    const bool packed = p->config.memory.pack_weights;
    const tt_extents extents = tt_model_extents(&p->shape, B, T, packed);
    const tt_fp8 *fp8 = p->fp8.sites > 0 ? &p->fp8 : NULL;

    bytes[TT_MEM_WEIGHTS] = tt_arena_cost(tt_bytes(N, p->act_bytes));
    bytes[TT_MEM_WIDE] = tt_arena_cost(tt_bytes(p->params.wide, sizeof(float)));
    bytes[TT_MEM_PACKED] = packed ? tt_model_packed_bytes(&p->shape, &p->params, &p->ops) : 0;
    bytes[TT_MEM_GRADIENTS] = tt_arena_cost(tt_bytes(N, p->grad_bytes));
    if (p->config.run.exact) { /* and the count of what was lost */
        bytes[TT_MEM_GRADIENTS] += tt_arena_cost(tt_bytes(p->params.count, sizeof(int64_t)));
    }
    bytes[TT_MEM_OPTIMIZER] = optimizer_bytes(p, p->shard.elements);
    bytes[TT_MEM_ACTIVATIONS] =
        tt_model_activation_bytes(&p->shape, B, T, p->act_bytes, true, fp8, recompute, kept) +
        (fp8 != NULL ? tt_arena_cost(tt_fp8_bytes(fp8)) : 0);
    size_t scratch = tt_kernels_workspace(&p->ops, &p->guarded, &extents, threads);
    if (p->autocast.up != 0) { /* both kinds of tables share it */
        const size_t wide = tt_kernels_wide_workspace(&p->wide_ops, &extents, threads);
        scratch = wide > scratch ? wide : scratch;
    }
    bytes[TT_MEM_WORKSPACE] = tt_arena_cost(scratch);
    bytes[TT_MEM_BATCH] = tt_arena_cost(tt_batch_bytes(B, T));
}

static size_t sum_of(const size_t *bytes)
{
    size_t total = 0;
    for (int i = 0; i < TT_MEM_COMPONENTS; i++) {
        total += bytes[i];
    }
    return total;
}

/* Of the rank that holds most, which is rank 0, so that all ranks come to the same choice. */
static size_t largest_total(const tt_blueprint *p, int64_t most, const tt_recompute *recompute,
                            int ranks)
{
    size_t bytes[TT_MEM_COMPONENTS];
    tt_plan_memory(p, p->split.micro, recompute, bytes, NULL);
    bytes[TT_MEM_OPTIMIZER] = optimizer_bytes(p, most);
    return sum_of(bytes) + tt_plan_libraries(p, ranks, p->plan.threads);
}

/* memory.recompute: auto:SIZE. Goes back into the configuration as what was chosen. */
static tt_code choose_recompute(tt_blueprint *p, size_t room, int ranks, tt_err *err)
{
    tt_code rc = TT_OK;
    const int64_t L = p->shape.L;
    const bool fp8 = p->fp8.sites > 0;
    size_t least = SIZE_MAX;
    tt_shard first = {0};
    TT_TRY(tt_shard_make(&first, &p->buckets, tt_int(p->config.memory.zero), 0, ranks, err));
    /* From the cheapest in time on. What is computed again grows from each to the next, except that sqrt
     * comes last: it takes as long as block, and less memory in models of hundreds of blocks alone. */
    const int64_t choices = L + 2;
    for (int64_t i = 0; i < choices; i++) {
        const tt_recompute_kind kind = i == 0   ? TT_RECOMPUTE_NONE
                                       : i == 1 ? TT_RECOMPUTE_SELECTIVE
                                       : i <= L ? TT_RECOMPUTE_BLOCK
                                                : TT_RECOMPUTE_SQRT;
        const int64_t blocks = kind == TT_RECOMPUTE_BLOCK ? i - 1 : 0;
        p->recompute = tt_recompute_make(kind, L, blocks, fp8);
        const size_t total = largest_total(p, first.elements, &p->recompute, ranks);
        least = total < least ? total : least;
        if (total <= room) {
            snprintf(p->config.memory.recompute, sizeof p->config.memory.recompute, "%s",
                     tt_recompute_names[kind]);
            p->config.memory.recompute_blocks = blocks;
            goto out;
        }
    }
    rc =
        tt_fail(err, TT_EUSER,
                "memory.recompute: %s: a rank takes %.1f MiB at least, with everything that can be "
                "computed again; a smaller batch.micro, memory.optimizer_file, precision.master "
                "split, memory.pack_weights false, or more ranks with memory.zero 1, need less",
                p->config.memory.recompute, (double)least / 1048576.0);
out:
    tt_shard_free(&first);
    return rc;
}

/* After all else that memory follows from. */
static tt_code resolve_recompute(tt_blueprint *p, int ranks, tt_err *err)
{
    const char *chosen = p->config.memory.recompute, *size = tt_option_auto(chosen);
    int64_t room = 0;
    if (p->config.memory.recompute_blocks > 0 && strcmp(chosen, "block") != 0) {
        return tt_fail(
            err, TT_EUSER,
            "memory.recompute_blocks: %lld goes with memory.recompute block, but that is %s",
            (long long)p->config.memory.recompute_blocks, chosen);
    }
    if (p->config.memory.recompute_blocks > p->shape.L) {
        return tt_fail(err, TT_EUSER,
                       "memory.recompute_blocks: %lld is more than model.layers, which is %lld",
                       (long long)p->config.memory.recompute_blocks, (long long)p->shape.L);
    }
    if (size != NULL && tt_parse_bytes(size, &room)) {
        p->asked = tt_size(room);
        return choose_recompute(p, tt_size(room), ranks, err);
    }
    tt_recompute_kind kind = TT_RECOMPUTE_NONE;
    while (kind < TT_RECOMPUTE_KINDS - 1 && strcmp(chosen, tt_recompute_names[kind]) != 0) {
        kind++;
    }
    p->recompute =
        tt_recompute_make(kind, p->shape.L, p->config.memory.recompute_blocks, p->fp8.sites > 0);
    return TT_OK;
}

static void make_plan(tt_blueprint *p, int ranks)
{
    tt_plan *plan = &p->plan;
    const int64_t N = p->params.total, T = p->shape.T;
    const bool gather = p->config.memory.zero > 0;
    tt_plan_memory(p, p->split.micro, &p->recompute, plan->bytes, &plan->kept);
    plan->total = sum_of(plan->bytes);
    plan->file_bytes =
        tt_optimizer_file(p->master, p->shard.elements, p->config.memory.optimizer_file[0] != '\0');
    plan->libraries = tt_plan_libraries(p, ranks, plan->threads);
    plan->ranks = ranks;
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

/* The rank's number is put behind it. */
static tt_code check_file(const char *path, tt_err *err)
{
    const size_t length = strlen(path);
    if (length > 0 && (strspn(path, " ") == length || path[length - 1] == '/')) {
        return tt_fail(
            err, TT_EUSER,
            "memory.optimizer_file: '%s' names no file; give a path such as /scratch/opt, "
            "to which each rank adds .RANK",
            path);
    }
    return TT_OK;
}

/* Sizes whose products stay within 64 bits, and numbers of pieces within 32: more than any machine. */
static tt_code check_sizes(const tt_blueprint *p, tt_err *err)
{
    const tt_shape *s = &p->shape;
    const double widest = (double)tt_max(s->F, (s->H + 2 * s->G) * s->D);
    const double parameters =
        (double)s->L * (double)s->C * (2.0 * widest + 2.0 * (double)(s->C + s->F)) +
        (double)s->C * (2.0 * (double)s->V + (double)s->T);
    const double tokens = (double)p->split.micro * (double)s->T;
    const double kept = tokens * (double)(s->L + 2) * 8 * (widest + (double)s->C) * sizeof(float);
    if (parameters > 0x1p44) {
        return tt_fail(
            err, TT_EUSER,
            "model.layers, channels, ffn and vocab make %.3g parameters; at most %.3g are "
            "possible",
            parameters, 0x1p44);
    }
    if (kept > 0x1p58 || (double)p->split.sequences * (double)s->T > 0x1p50) {
        return tt_fail(
            err, TT_EUSER,
            "batch.micro %lld and batch.sequences %lld of %lld tokens are more than can be "
            "counted; use fewer",
            (long long)p->split.micro, (long long)p->split.sequences, (long long)s->T);
    }
    return TT_OK;
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
    TT_TRY(check_sizes(p, err));
    TT_TRY(check_file(config->memory.optimizer_file, err));
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
    p->plan.threads = threads;
    TT_TRY(resolve_recompute(p, ranks, err));
    make_plan(p, ranks);
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
