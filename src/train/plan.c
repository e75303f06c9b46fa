/* plan.c: from a configuration to everything a run will allocate, send and compute. See plan.h. */
#include "tutti/train/plan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tutti/base/memory.h"
#include "tutti/base/narrow.h"
#include "tutti/base/threads.h"
#include "tutti/model/model.h"
#include "tutti/optim/optim.h"
#include "tutti/optim/scaler.h"
#include "tutti/train/masters.h"
#include "tutti/train/optimizer.h"
#include "tutti/train/saver.h"

#include "train/train_impl.h"

const char *const tt_component_names[TT_MEM_COMPONENTS] = {
    "weights",     "fp32_weights", "packed_weights", "gradients", "optimizer",
    "activations", "workspace",    "snapshot",       "batch"};

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

int tt_plan_sharers(const tt_config *config, int neighbours)
{
    const int64_t most = config->dist.node_ranks;
    const bool shares = strcmp(config->dist.node_shared, "false") != 0;
    return !shares ? 1 : most > 0 ? (int)tt_min(most, neighbours) : neighbours;
}

tt_held tt_blueprint_held(const tt_blueprint *p, int share)
{
    /* Group and place of each stage are arrays of the ring only where they matter. */
    return (tt_held){.weight_shift = p->weight_ring.shift,
                     .gradient_shift = p->gradient_ring.shift,
                     .group = p->rotates ? p->weight_ring.of_stage : NULL,
                     .place = p->rotates ? p->weight_ring.place : NULL,
                     .places = p->rotates ? p->weight_ring.places : 0,
                     .share = share,
                     .shares = p->shares ? p->node_ranks : 1};
}

/* own and once of a plan, if micro-batches had B sequences. */
static void parts_of(const tt_blueprint *p, int64_t B, const tt_recompute *recompute, size_t *own,
                     size_t *once, size_t *kept)
{
    const int64_t T = p->shape.T;
    const int threads = p->plan.threads;
    const bool packed = p->config.memory.pack_weights;
    const tt_extents extents = tt_model_extents(&p->shape, B, T, packed);
    const tt_fp8 *fp8 = p->fp8.sites > 0 ? &p->fp8 : NULL;
    const tt_held held = tt_blueprint_held(p, 0);
    size_t *weights = p->shares ? once : own;

    memset(own, 0, TT_MEM_COMPONENTS * sizeof *own);
    memset(once, 0, TT_MEM_COMPONENTS * sizeof *once);
    if (p->rotates) {
        own[TT_MEM_WEIGHTS] = tt_arena_cost(tt_bytes(p->cut.elements, p->act_bytes));
    }
    weights[TT_MEM_WEIGHTS] += tt_arena_cost(tt_bytes(p->weight_ring.elements, p->act_bytes));
    own[TT_MEM_WIDE] = tt_arena_cost(tt_bytes(p->params.wide, sizeof(float)));
    weights[TT_MEM_PACKED] =
        packed ? tt_model_packed_bytes(&p->shape, &p->params, &p->ops, &held) : 0;
    own[TT_MEM_GRADIENTS] = tt_arena_cost(tt_bytes(p->gradient_ring.elements, p->grad_bytes)) +
                            tt_arena_cost(p->staging);
    if (p->slices) {
        own[TT_MEM_GRADIENTS] += tt_arena_cost(tt_bytes(p->cut.elements, p->grad_bytes));
    }
    if (p->config.run.exact) { /* and the count of what was lost */
        own[TT_MEM_GRADIENTS] += tt_arena_cost(tt_bytes(p->params.count, sizeof(int64_t)));
    }
    own[TT_MEM_OPTIMIZER] = optimizer_bytes(p, p->shard.elements);
    own[TT_MEM_ACTIVATIONS] =
        tt_model_activation_bytes(&p->shape, B, T, p->act_bytes, true, fp8, recompute, kept) +
        (fp8 != NULL ? tt_arena_cost(tt_fp8_bytes(fp8)) : 0);
    size_t scratch = tt_kernels_workspace(&p->ops, &p->guarded, &extents, threads);
    if (p->autocast.up != 0) { /* both kinds of tables share it */
        const size_t wide = tt_kernels_wide_workspace(&p->wide_ops, &extents, threads);
        scratch = wide > scratch ? wide : scratch;
    }
    own[TT_MEM_WORKSPACE] = tt_arena_cost(scratch);
    own[TT_MEM_SNAPSHOT] = tt_arena_cost(tt_bytes(tt_saver_elements(p), sizeof(float)));
    own[TT_MEM_BATCH] = tt_arena_cost(tt_batch_bytes(B, T));
}

void tt_plan_memory(const tt_blueprint *p, int64_t B, const tt_recompute *recompute, size_t *bytes,
                    size_t *kept)
{
    size_t once[TT_MEM_COMPONENTS];
    parts_of(p, B, recompute, bytes, once, kept);
    for (int i = 0; i < TT_MEM_COMPONENTS; i++) {
        bytes[i] += (once[i] + (size_t)p->node_ranks - 1) / (size_t)p->node_ranks;
    }
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
    return sum_of(bytes) + tt_plan_libraries(p, ranks, p->plan.threads, NULL);
}

/* memory.recompute: auto:SIZE. Goes back into the configuration as what was chosen. */
static tt_code choose_recompute(tt_blueprint *p, size_t room, int ranks, tt_err *err)
{
    tt_code rc = TT_OK;
    const int64_t L = p->shape.L;
    const bool fp8 = p->fp8.sites > 0;
    size_t least = SIZE_MAX;
    tt_shard first = {0};
    TT_TRY(tt_shard_make(&first, &p->buckets, p->config.memory.zero > 0, 0, ranks, err));
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

/* ---- the wire ---- */

/* The groups that a step's passes load, counted as dist/gather.c holds them. */
typedef struct loads {
    const tt_blueprint *print;
    int *at; /* [places] the group at each; -1: none */
    int64_t calls, bytes;
} loads;

static void load_group(loads *l, int g)
{
    const tt_group_of_stages *group = &l->print->weight_ring.group[g];
    if (l->at[group->place] != g) {
        l->at[group->place] = g;
        l->calls += group->end_bucket - group->first_bucket;
        l->bytes += group->range.end - group->range.first;
    }
}

static void load_stage(void *user, int stage)
{
    loads *l = user;
    load_group(l, 0);
    load_group(l, l->print->weight_ring.of_stage[stage]);
}

/* Weights that come to a rank in a step. */
static tt_code count_loads(const tt_blueprint *p, int64_t *calls, int64_t *bytes, tt_err *err)
{
    loads l = {.print = p};
    const tt_hooks hooks = {.enter = load_stage, .user = &l};
    l.at = tt_alloc(p->weight_ring.places, sizeof *l.at, err);
    if (l.at == NULL) {
        return err->code;
    }
    for (int i = 0; i < p->weight_ring.places; i++) {
        l.at[i] = -1;
    }
    for (int64_t k = 0; k < (p->rotates ? p->split.accumulate : 1); k++) {
        tt_hooks_walk(&hooks, &p->recompute, p->shape.L, true);
    }
    *calls = l.calls;
    *bytes = tt_mul(l.bytes, tt_count(p->act_bytes));
    free(l.at);
    return TT_OK;
}

/* One call a bucket and reduction, one a bucket and load, the agreement and the record's times; and
 * where ranks meet between micro-batches, one there. */
static tt_code plan_wire(tt_blueprint *p, int ranks, tt_err *err)
{
    tt_code rc = TT_OK;
    tt_plan *plan = &p->plan;
    const int64_t K = p->split.accumulate, reductions = p->slices ? K : 1;
    const int64_t meetings = p->slices || p->rotates ? K - 1 : 0; /* whether one leaves (step.c) */
    int64_t calls = 0, bytes = 0;
    plan->wire_calls = 0;
    plan->wire_bytes = 0;
    if (ranks == 1) {
        goto out;
    }
    if (p->config.memory.zero > 0) {
        if (p->nodes > 1 || p->rotates) { /* else they are where they are needed */
            TT_TRY(count_loads(p, &calls, &bytes, err));
        }
        calls += tt_wide_calls(p);
        bytes += tt_count(tt_bytes(p->params.wide, sizeof(float)));
    }
    plan->wire_calls = tt_mul(p->buckets.count, reductions) + calls + meetings + 2;
    plan->wire_bytes =
        tt_mul(tt_count(tt_bytes(p->params.total, p->grad_bytes)), reductions) + bytes +
        tt_count(tt_bytes(meetings + TT_STEP_SUMS + TT_STEP_MAXIMA + p->fp8.sites, sizeof(double)));
out:
    return rc;
}

static tt_code make_plan(tt_blueprint *p, int ranks, tt_err *err)
{
    tt_plan *plan = &p->plan;
    tt_plan_memory(p, p->split.micro, &p->recompute, plan->bytes, &plan->kept);
    parts_of(p, p->split.micro, &p->recompute, plan->own, plan->once, NULL);
    plan->total = sum_of(plan->bytes);
    plan->file_bytes =
        tt_optimizer_file(p->master, p->shard.elements, p->config.memory.optimizer_file[0] != '\0');
    plan->libraries = tt_plan_libraries(p, ranks, plan->threads, &plan->mapped);
    plan->ranks = ranks;
    plan->parameters = p->params.trained;
    plan->tokens_per_step = tt_mul(p->split.sequences, p->shape.T);
    plan->flops_per_step =
        tt_model_flops_per_token(&p->shape, &p->params) * (double)plan->tokens_per_step;
    return plan_wire(p, ranks, err);
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

/* Who holds what of weights and gradients, after buckets, pieces and the split. */
static tt_code resolve_holding(tt_blueprint *p, const tt_node *node, tt_err *err)
{
    tt_code rc = TT_OK;
    const int64_t zero = p->config.memory.zero;
    const char *gradients = p->config.memory.gradients;
    const bool several = node->world_size > 1;
    if (zero < 2 && strcmp(gradients, "pieces") == 0) {
        rc = tt_fail(err, TT_EUSER,
                     "memory.gradients: pieces goes with memory.zero 2 or 3, but that is %lld",
                     (long long)zero);
        goto out;
    }
    p->scatters = several && zero >= 2;
    p->slices = p->scatters && (strcmp(gradients, "pieces") == 0 ||
                                (strcmp(gradients, "auto") == 0 && p->split.accumulate == 1));
    p->rotates = several && zero == 3;
    p->node_ranks = node->size;
    p->nodes = node->count;
    p->neighbours = node->size;
    p->shares = node->size > 1 && zero >= 1;
    TT_TRY(tt_ring_make(&p->weight_ring, &p->buckets, p->params.stage_end, p->params.stages,
                        !p->rotates, err));
    TT_TRY(tt_ring_make(&p->gradient_ring, &p->buckets, p->params.stage_end, p->params.stages,
                        !p->slices, err));
    TT_TRY(tt_reduce_staging(&p->staging, node, &p->buckets, p->scatters, p->grad_bytes, err));
out:
    return rc;
}

tt_code tt_blueprint_imagine(tt_blueprint *p, const tt_config *config, int64_t data_vocab,
                             int neighbours, int ranks, int threads, const char *isa, tt_err *err)
{
    tt_node node;
    const int there = (int)tt_min(neighbours, ranks);
    tt_code rc = tt_node_imagine(&node, 0, ranks, tt_plan_sharers(config, there), err);
    if (rc == TT_OK) {
        rc = tt_blueprint_make_on(p, config, data_vocab, &node, threads, isa, err);
    }
    if (rc == TT_OK) {
        p->neighbours = there;
    }
    tt_node_close(&node);
    return rc;
}

tt_code tt_blueprint_make(tt_blueprint *p, const tt_config *config, int64_t data_vocab, int rank,
                          int ranks, int threads, const char *isa, tt_err *err)
{
    tt_node node;
    tt_code rc = tt_node_imagine(&node, rank, ranks, 1, err);
    if (rc == TT_OK) {
        rc = tt_blueprint_make_on(p, config, data_vocab, &node, threads, isa, err);
    }
    tt_node_close(&node);
    return rc;
}

tt_code tt_blueprint_make_on(tt_blueprint *p, const tt_config *config, int64_t data_vocab,
                             const tt_node *node, int threads, const char *isa, tt_err *err)
{
    tt_code rc = TT_OK;
    const int rank = node->world_rank, ranks = node->world_size;
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
                           tt_bucket_elements(config->dist.bucket_mb, p->grad_bytes), err));
    TT_TRY(tt_shard_make(&p->shard, &p->buckets, config->memory.zero > 0, rank, ranks, err));
    TT_TRY(tt_shard_make(&p->cut, &p->buckets, 1, rank, ranks, err));
    TT_TRY(resolve_holding(p, node, err));
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
    TT_TRY(make_plan(p, ranks, err));
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
    tt_ring_free(&p->weight_ring);
    tt_ring_free(&p->gradient_ring);
}
