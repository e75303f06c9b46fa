/* ledger.c: a plan as a page. See ledger.h.
 *
 * Owns nothing. Reads plan.c's numbers; next: cli/plan.c prints it. */
#include "tutti/train/ledger.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "tutti/base/memory.h"
#include "tutti/base/narrow.h"
#include "tutti/optim/scaler.h"

static const char *const keeping_names[TT_KEEPINGS] = {"whole", "pieces"};

/* From zero 2 on, a rank of several that plays more than one micro-batch may keep all sums, or its
 * own. */
static tt_code weigh_keepings(tt_ledger *ledger, tt_err *err)
{
    tt_code rc = TT_OK;
    const tt_blueprint *p = ledger->print;
    tt_blueprint other = {.act_bytes = 0};
    for (int i = 0; i < TT_KEEPINGS && p->scatters && p->split.accumulate > 1; i++) {
        tt_config config = p->config;
        TT_TRY(tt_config_set(&config, "keeping", "memory.gradients", keeping_names[i], err));
        TT_TRY(tt_blueprint_imagine(&other, &config, p->shape.vocab_used, p->neighbours,
                                    p->plan.ranks, p->plan.threads, p->ops.isa, err));
        ledger->keeping[ledger->keepings++] =
            (tt_keeping){.name = keeping_names[i],
                         .chosen = other.slices == p->slices,
                         .bytes = other.plan.bytes[TT_MEM_GRADIENTS],
                         .wire_calls = other.plan.wire_calls,
                         .wire_bytes = other.plan.wire_bytes};
        tt_blueprint_free(&other);
    }
out:
    return rc;
}

tt_code tt_ledger_make(tt_ledger *ledger, const tt_blueprint *print, int64_t limit,
                       const tt_price *price, const tt_outlook *outlook, tt_err *err)
{
    tt_code rc = TT_OK;
    *ledger = (tt_ledger){.print = print,
                          .limit = limit,
                          .price = price != NULL ? *price : (tt_price){.rounds = 0},
                          .outlook = outlook};
    TT_TRY(weigh_keepings(ledger, err));
    TT_TRY(tt_techniques_make(ledger->effect, &ledger->effects, print, err));
    if (limit > 0) {
        ledger->choices = tt_choices_make(ledger->choice, print, limit, price);
    }
out:
    return rc;
}

/* ---- memory ---- */

/* What a rank holds itself, what it holds together with those that share memory with it, and what all
 * ranks of the machine map. */
typedef struct held {
    size_t own, once, mapped;
} held;

static size_t of_rank(const tt_blueprint *p, held h)
{
    return h.own + (h.once + h.mapped + tt_size(p->node_ranks) - 1) / tt_size(p->node_ranks);
}

/* Of the fullest machine, whose ranks share among so many at a time. */
static size_t of_node(const tt_blueprint *p, held h)
{
    const int64_t sharing = tt_ceil_div(p->neighbours, p->node_ranks);
    return h.own * tt_size(p->neighbours) + h.once * tt_size(sharing) + h.mapped;
}

static held component(const tt_blueprint *p, int i)
{
    return (held){.own = p->plan.own[i], .once = p->plan.once[i]};
}

static void find_groups(const tt_blueprint *p, held group[TT_GROUPS])
{
    size_t own[TT_GROUPS], once[TT_GROUPS];
    const held all = {.mapped = p->plan.mapped};
    tt_group_bytes(p->plan.own, p->plan.libraries - of_rank(p, all), own);
    tt_group_bytes(p->plan.once, 0, once);
    for (int g = 0; g < TT_GROUPS; g++) {
        group[g] = (held){.own = own[g], .once = once[g]};
    }
    group[TT_GROUP_LIBRARIES].mapped = group[TT_GROUP_TOTAL].mapped = p->plan.mapped;
}

/* One row: bytes of a rank and of a node, and after it what they are made of. */
__attribute__((format(printf, 5, 6))) static void
row_text(const tt_ledger *ledger, tt_text *out, const char *name, held h, const char *why, ...)
{
    char rank[32], node[32], made[256];
    va_list args;
    va_start(args, why);
    vsnprintf(made, sizeof made, why, args);
    va_end(args);
    tt_human_bytes((double)of_rank(ledger->print, h), rank);
    tt_human_bytes((double)of_node(ledger->print, h), node);
    tt_text_add(out, "  %-14s %12s %12s%s%s\n", name, rank, node, made[0] != '\0' ? "   " : "",
                made);
}

/* " of N" where fewer than all N elements are held. */
static void part_text(const tt_blueprint *p, int64_t elements, char out[32])
{
    out[0] = '\0';
    if (elements < p->params.total) {
        snprintf(out, 32, " of %lld", (long long)p->params.total);
    }
}

static void weights_text(const tt_ledger *ledger, tt_text *out)
{
    const tt_blueprint *p = ledger->print;
    char part[32], once[48] = "";
    held stored = component(p, TT_MEM_WEIGHTS), wide = component(p, TT_MEM_WIDE),
         packed = component(p, TT_MEM_PACKED);
    if (p->shares) {
        snprintf(once, sizeof once, ", once for %d ranks", p->node_ranks);
    }
    if (p->rotates) {
        const held pieces = {.own = tt_arena_cost(tt_bytes(p->cut.elements, p->act_bytes))};
        stored.own -= pieces.own;
        part_text(p, p->cut.elements, part);
        row_text(ledger, out, "  pieces", pieces, "%lld%s x %zu bytes (%s)",
                 (long long)p->cut.elements, part, p->act_bytes, tt_formats[p->ops.format].name);
    }
    part_text(p, p->weight_ring.elements, part);
    row_text(ledger, out, p->rotates ? "  in turn" : "  stored", stored,
             "%lld%s x %zu bytes (%s)%s", (long long)p->weight_ring.elements, part, p->act_bytes,
             tt_formats[p->ops.format].name, once);
    if (of_rank(p, wide) > 0) {
        row_text(ledger, out, "  fp32 copies", wide, "%lld x 4 bytes (fp32_ops)",
                 (long long)p->params.wide);
    }
    if (of_rank(p, packed) > 0) {
        row_text(ledger, out, "  packed", packed, "as matmuls read them%s", once);
    }
}

static void gradients_text(const tt_ledger *ledger, tt_text *out)
{
    const tt_blueprint *p = ledger->print;
    const held all = component(p, TT_MEM_GRADIENTS);
    char size[32], exact[64] = "", part[32];
    if (p->config.run.exact) {
        tt_human_bytes((double)p->params.total * (sizeof(int64_t) - sizeof(float)), size);
        snprintf(exact, sizeof exact, " (exact mode: 8, not 4; %s more)", size);
    }
    if (!p->slices && p->staging == 0) {
        row_text(ledger, out, "gradients", all, "%lld x %zu bytes%s", (long long)p->params.total,
                 p->grad_bytes, exact);
        return;
    }
    row_text(ledger, out, "gradients", all, "%s", "");
    if (p->slices) {
        part_text(p, p->cut.elements, part);
        row_text(ledger, out, "  pieces",
                 (held){.own = tt_arena_cost(tt_bytes(p->cut.elements, p->grad_bytes))},
                 "%lld%s x %zu bytes%s", (long long)p->cut.elements, part, p->grad_bytes, exact);
    }
    part_text(p, p->gradient_ring.elements, part);
    row_text(ledger, out, p->slices ? "  in turn" : "  whole",
             (held){.own = tt_arena_cost(tt_bytes(p->gradient_ring.elements, p->grad_bytes))},
             "%lld%s x %zu bytes%s", (long long)p->gradient_ring.elements, part, p->grad_bytes,
             p->slices ? "" : exact);
    if (p->staging > 0) {
        row_text(ledger, out, "  staging", (held){.own = tt_arena_cost(p->staging)},
                 "pieces from and to %d other node%s", p->nodes - 1, p->nodes == 2 ? "" : "s");
    }
}

static void optimizer_text(const tt_ledger *ledger, tt_text *out)
{
    static const struct {
        int bytes;
        const char *of;
    } kinds[] = {[TT_MASTER_FP32] = {12, "master 4, m 4, v 4"},
                 [TT_MASTER_SPLIT] = {10, "half of the master 2, m 4, v 4"},
                 [TT_MASTER_NONE] = {8, "m 4, v 4"}};
    const tt_blueprint *p = ledger->print;
    char part[32];
    part_text(p, p->shard.elements, part);
    const bool in_file = p->plan.file_bytes > 0;
    const held disk = {.own = p->plan.file_bytes};
    if (in_file) {
        row_text(ledger, out, "optimizer", component(p, TT_MEM_OPTIMIZER),
                 "on its way between the disk and the update");
    }
    row_text(ledger, out, in_file ? "  on disk" : "optimizer",
             in_file ? disk : component(p, TT_MEM_OPTIMIZER), "%lld%s x %d bytes (%s)%s%s%s",
             (long long)p->shard.elements, part, kinds[p->master].bytes, kinds[p->master].of,
             in_file ? ", in " : "", p->config.memory.optimizer_file, in_file ? ".RANK" : "");
}

static void memory_text(const tt_ledger *ledger, tt_text *out)
{
    const tt_blueprint *p = ledger->print;
    const tt_plan *plan = &p->plan;
    held group[TT_GROUPS];
    char size[32], kept[32], sharing[48] = "";
    find_groups(p, group);
    tt_text_add(out, "%-16s %12s %12s\n", "Memory", "a rank", "a node");
    row_text(ledger, out, "weights", group[TT_GROUP_WEIGHTS], "%s", "");
    weights_text(ledger, out);
    gradients_text(ledger, out);
    optimizer_text(ledger, out);
    if (p->plan.bytes[TT_MEM_SNAPSHOT] > 0) {
        row_text(ledger, out, "  snapshot", component(p, TT_MEM_SNAPSHOT),
                 "%lld x 12 bytes (master 4, m 4, v 4), while a checkpoint is written",
                 (long long)p->cut.elements);
    }
    const tt_recompute *again = &p->recompute;
    char blocks[96] = "";
    if (again->blocks > 0) {
        snprintf(blocks, sizeof blocks, ", %lld of %lld blocks computed again, %lld at a time",
                 (long long)again->blocks, (long long)p->shape.L, (long long)again->segment);
    } else if (again->selective) {
        snprintf(blocks, sizeof blocks, ", norms and GELU computed again");
    }
    const int64_t tokens = tt_mul(p->split.micro, p->shape.T);
    tt_human_bytes((double)of_rank(p, group[TT_GROUP_ACTIVATIONS]) / (double)tokens, size);
    tt_human_bytes((double)plan->kept, kept);
    row_text(ledger, out, "activations", group[TT_GROUP_ACTIVATIONS],
             "%lld tokens x %s%s (%s of them wait for backward)", (long long)tokens, size, blocks,
             kept);
    tt_human_bytes((double)plan->bytes[TT_MEM_BATCH], size);
    row_text(ledger, out, "workspace", group[TT_GROUP_WORKSPACE],
             "scratch of %d thread%s; the batch %s", plan->threads, plan->threads == 1 ? "" : "s",
             size);
    row_text(ledger, out, "libraries", group[TT_GROUP_LIBRARIES],
             "MPI, HDF5, OpenBLAS, the program; an estimate");
    if (p->node_ranks > 1) {
        snprintf(sharing, sizeof sharing, "; %d share memory", p->node_ranks);
    }
    row_text(ledger, out, "total", group[TT_GROUP_TOTAL], "%d rank%s on a node, %d in all%s",
             p->neighbours, p->neighbours == 1 ? "" : "s", plan->ranks, sharing);
    tt_text_add(out, "\n");
}

/* ---- the ways to recompute ---- */

/* Where sizes are compared with a limit, a tenth of a GiB is too coarse. */
static void fine_bytes(size_t bytes, char out[32])
{
    snprintf(out, 32, "%.1f MiB", (double)bytes / 1048576.0);
}

static void duration(double seconds, char out[32])
{
    if (seconds < 120) {
        snprintf(out, 32, "%.3g s", seconds);
    } else if (seconds < 7200) {
        snprintf(out, 32, "%.1f min", seconds / 60);
    } else {
        snprintf(out, 32, "%.1f h", seconds / 3600);
    }
}

static void choices_text(const tt_ledger *ledger, tt_text *out)
{
    const tt_price *price = &ledger->price;
    char size[32], total[32];
    fine_bytes(ledger->limit, size);
    tt_text_add(out, "In %s a rank, micro-batches of %lld sequence%s\n", size,
                (long long)ledger->print->split.micro, ledger->print->split.micro == 1 ? "" : "s");
    tt_text_add(out, "  %-14s %12s %12s %6s %14s", "recompute", "activations", "total", "fits",
                "largest micro");
    tt_text_add(out, "%s\n", price->rounds > 0 ? "   time of a step" : "");
    for (int i = 0; i < ledger->choices; i++) {
        const tt_choice *c = &ledger->choice[i];
        char largest[32] = "none fits";
        fine_bytes(c->bytes[TT_GROUP_ACTIVATIONS], size);
        fine_bytes(c->bytes[TT_GROUP_TOTAL], total);
        if (c->largest > 0) {
            snprintf(largest, sizeof largest, "%lld%s", (long long)c->largest,
                     c->largest == TT_LARGEST_MICRO ? " and on" : "");
        }
        tt_text_add(out, "  %-14s %12s %12s %6s %14s", c->name, size, total, c->fits ? "yes" : "no",
                    largest);
        if (price->rounds > 0 && i == 0) {
            duration(price->step, size);
            tt_text_add(out, "   %s", size);
        } else if (price->rounds > 0) {
            tt_text_add(out, "   %+.1f %%", 100 * c->slower);
        }
        tt_text_add(out, "\n");
    }
    if (price->wanted > 0) {
        tt_human_bytes((double)price->wanted, size);
        tt_text_add(out, "  times are not measured: one block of this model takes %s to run\n",
                    size);
    }
    if (price->rounds > 0) {
        tt_text_add(out,
                    "  largest micro: of any batch.sequences; times by the speed of the kernels "
                    "now: %d thread%s, %lld tokens at once, "
                    "median of %lld; without waiting for ranks or disks\n",
                    ledger->print->plan.threads, ledger->print->plan.threads == 1 ? "" : "s",
                    (long long)price->rows, (long long)price->rounds);
    }
    tt_text_add(out, "\n");
}

/* ---- the rest of the page ---- */

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

/* Weights of ZeRO 3 come, and pieces of gradients go, in every micro-batch. */
static void wire_text(const tt_ledger *ledger, tt_text *out)
{
    const tt_blueprint *p = ledger->print;
    const tt_plan *plan = &p->plan;
    const long long K = p->split.accumulate;
    char size[32], sums[32];
    tt_text_add(out, "Wire per step and rank");
    if (K > 1 && (p->rotates || p->slices)) {
        tt_text_add(out, ", with accumulate %lld\n", K);
    } else {
        tt_text_add(out, "%s\n", p->rotates ? "" : " (whatever accumulate is)");
    }
    tt_human_bytes((double)plan->wire_bytes, size);
    tt_text_add(out, "  collectives    %12lld\n", (long long)plan->wire_calls);
    tt_text_add(out, "  payload        %12s   (%d bucket%s of at most %g MB)\n", size,
                p->buckets.count, p->buckets.count == 1 ? "" : "s", p->config.dist.bucket_mb);
    for (int i = 0; i < ledger->keepings; i++) {
        const tt_keeping *k = &ledger->keeping[i];
        tt_human_bytes((double)k->wire_bytes, size);
        tt_human_bytes((double)k->bytes, sums);
        tt_text_add(out, "  gradients %-6s %10s   with %lld collectives; %s in memory%s\n", k->name,
                    size, (long long)k->wire_calls, sums, k->chosen ? " (chosen)" : "");
    }
    tt_text_add(out, "\n");
}

void tt_ledger_text(const tt_ledger *ledger, tt_text *out)
{
    const tt_blueprint *p = ledger->print;
    const tt_plan *plan = &p->plan;
    const tt_shape *s = &p->shape;
    const tt_split *b = &p->split;
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
    memory_text(ledger, out);
    tt_techniques_text(ledger->effect, ledger->effects, out);
    if (ledger->limit > 0) {
        choices_text(ledger, out);
    }
    tt_autocast_text(&p->autocast, out);
    scales_text(p, out);
    wire_text(ledger, out);
    if (ledger->outlook != NULL) {
        tt_outlook_text(ledger->outlook, out);
    }
    tt_text_add(out, "Compute per step\n");
    tt_text_add(out, "  %.3g GFLOP over all ranks (%.3g MFLOP a token)\n",
                plan->flops_per_step / 1e9,
                plan->flops_per_step / (double)plan->tokens_per_step / 1e6);
    const double again = tt_recompute_flops_per_token(&p->recompute, s, &p->params);
    if (again > 0) {
        tt_text_add(out, "  %.3g GFLOP more are computed again (%.3g MFLOP a token)\n",
                    again * (double)plan->tokens_per_step / 1e9, again / 1e6);
    }
}

/* ---- the same as JSON ---- */

static void groups_json(const size_t group[TT_GROUPS], tt_text *out)
{
    tt_text_add(out, "{");
    for (int g = 0; g < TT_GROUPS; g++) {
        tt_text_add(out, "%s\"%s\": %zu", g > 0 ? ", " : "", tt_group_names[g], group[g]);
    }
    tt_text_add(out, "}");
}

static void components_json(const char *name, const size_t *bytes, tt_text *out)
{
    tt_text_add(out, ", \"%s\": {", name);
    for (int i = 0; i < TT_MEM_COMPONENTS; i++) {
        tt_text_add(out, "%s\"%s\": %zu", i > 0 ? ", " : "", tt_component_names[i], bytes[i]);
    }
    tt_text_add(out, "}");
}

static void memory_json(const tt_ledger *ledger, tt_text *out)
{
    const tt_blueprint *p = ledger->print;
    const tt_plan *plan = &p->plan;
    held group[TT_GROUPS];
    size_t rank[TT_GROUPS], node[TT_GROUPS];
    find_groups(p, group);
    tt_group_bytes(plan->bytes, plan->libraries, rank);
    for (int g = 0; g < TT_GROUPS; g++) {
        node[g] = of_node(p, group[g]);
    }
    tt_text_add(out, "{\"rank_bytes\": ");
    groups_json(rank, out);
    tt_text_add(out, ", \"node_ranks\": %d, \"sharing_ranks\": %d, \"node_bytes\": ", p->neighbours,
                p->node_ranks);
    groups_json(node, out);
    components_json("component_bytes", plan->bytes, out);
    components_json("shared_bytes", plan->once, out);
    tt_text_add(out, ", \"mapped_bytes\": %zu, \"kept_bytes\": %zu}", plan->mapped, plan->kept);
}

static void keepings_json(const tt_ledger *ledger, tt_text *out)
{
    tt_text_add(out, ", \"gradients\": [");
    for (int i = 0; i < ledger->keepings; i++) {
        const tt_keeping *k = &ledger->keeping[i];
        tt_text_add(out,
                    "%s{\"name\": \"%s\", \"chosen\": %s, \"gradient_bytes\": %zu, "
                    "\"wire_calls\": %lld, \"wire_bytes\": %lld}",
                    i > 0 ? ", " : "", k->name, k->chosen ? "true" : "false", k->bytes,
                    (long long)k->wire_calls, (long long)k->wire_bytes);
    }
    tt_text_add(out, "]");
}

static void choices_json(const tt_ledger *ledger, tt_text *out)
{
    tt_text_add(out, ", \"memory_limit\": %lld, \"recompute\": [", (long long)ledger->limit);
    for (int i = 0; i < ledger->choices; i++) {
        const tt_choice *c = &ledger->choice[i];
        tt_text_add(out, "%s{\"name\": \"%s\", \"rank_bytes\": ", i > 0 ? ", " : "", c->name);
        groups_json(c->bytes, out);
        tt_text_add(out, ", \"fits\": %s, \"largest_micro\": %lld", c->fits ? "true" : "false",
                    (long long)c->largest);
        if (ledger->price.rounds > 0) {
            tt_text_add(out, ", \"step_s\": ");
            tt_text_add_double(out, ledger->price.step * (1 + c->slower));
            tt_text_add(out, ", \"slower\": ");
            tt_text_add_double(out, c->slower);
        }
        tt_text_add(out, "}");
    }
    tt_text_add(out, "]");
}

/* What the times above are made of. */
static void price_json(const tt_price *price, tt_text *out)
{
    const struct {
        const char *name;
        double seconds;
    } row[] = {{"step_s", price->step},
               {"update_s", price->update},
               {"stem_s_per_token", price->stem},
               {"block_forward_s_per_token", price->forward},
               {"block_backward_s_per_token", price->backward},
               {"crown_s_per_token", price->crown}};
    tt_text_add(out, ", \"price\": {\"rows\": %lld, \"rounds\": %lld", (long long)price->rows,
                (long long)price->rounds);
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        tt_text_add(out, ", \"%s\": ", row[i].name);
        tt_text_add_double(out, row[i].seconds);
    }
    tt_text_add(out, "}");
}

void tt_ledger_json(const tt_ledger *ledger, tt_text *out)
{
    const tt_blueprint *p = ledger->print;
    const tt_plan *plan = &p->plan;
    const tt_split *b = &p->split;
    tt_text_add(out, "{\"config\": {");
    for (int i = 0; i < tt_option_count; i++) {
        tt_text_add(out, "%s\"%s\": ", i > 0 ? ", " : "", tt_options[i].path);
        tt_config_value_json(&p->config, &tt_options[i], out);
    }
    tt_text_add(out,
                "}, \"ranks\": %d, \"threads\": %d, \"isa\": \"%s\", \"parameters\": %lld, "
                "\"sequences\": %lld, \"micro\": %lld, \"accumulate\": %lld, "
                "\"tokens_per_step\": %lld, \"flops_per_step\": ",
                plan->ranks, plan->threads, p->ops.isa, (long long)plan->parameters,
                (long long)b->sequences, (long long)b->micro, (long long)b->accumulate,
                (long long)plan->tokens_per_step);
    tt_text_add_double(out, plan->flops_per_step);
    tt_text_add(out, ", \"wire_calls\": %lld, \"wire_bytes\": %lld, \"memory\": ",
                (long long)plan->wire_calls, (long long)plan->wire_bytes);
    memory_json(ledger, out);
    tt_text_add(out, ", \"techniques\": ");
    tt_techniques_json(ledger->effect, ledger->effects, out);
    if (ledger->keepings > 0) {
        keepings_json(ledger, out);
    }
    if (ledger->limit > 0) {
        choices_json(ledger, out);
    }
    if (ledger->price.rounds > 0) {
        price_json(&ledger->price, out);
    }
    if (ledger->outlook != NULL) {
        tt_text_add(out, ", \"wire\": ");
        tt_outlook_json(ledger->outlook, out);
    }
    tt_text_add(out, "}\n");
}
