/* storage.c: arenas and windows are opened, and every array gets its place. See storage.h. */
#include "tutti/train/storage.h"

#include <stdlib.h>

#include "tutti/base/narrow.h"
#include "tutti/train/memory.h"

#include "train/train_impl.h"

/* ---- arenas and windows ---- */

/* Bytes of this rank's own memory that lie in a window, for the node to read: the gradient that the
 * model adds to. */
static size_t window_bytes(const tt_blueprint *p, int component)
{
    return component == TT_MEM_GRADIENTS && p->node_ranks > 1
               ? tt_arena_cost(tt_bytes(p->gradient_ring.elements, p->grad_bytes))
               : 0;
}

void tt_storage_windows(const tt_blueprint *print, size_t *own, size_t *once)
{
    *own = *once = 0;
    for (int i = 0; i < TT_MEM_COMPONENTS; i++) {
        *own += window_bytes(print, i);
        *once += print->plan.once[i];
    }
}

/* A window over which the ranks of the node lay the same arena (once), or each its own. Collective. */
static tt_code open_window(tt_trainer *t, int component, size_t bytes, bool once, void **of,
                           tt_err *err)
{
    tt_code rc = TT_OK;
    tt_node *node = &t->tutti.node;
    if (bytes > 0) {
        TT_TRY(tt_node_window(node, bytes, once, of, err));
        tt_arena_lend(&t->window[component], tt_component_names[component], of[node->rank], bytes);
    }
out:
    return rc;
}

/* Opens every arena and window with the plan's number. Collective. */
static tt_code open_memory(tt_trainer *t, tt_err *err)
{
    tt_code rc = TT_OK;
    const tt_blueprint *p = &t->print;
    const int n = p->node_ranks;
    void **once = tt_alloc(n, sizeof *once, err); /* each the same */
    t->gradients = tt_alloc(n, sizeof *t->gradients, err);
    rc = once && t->gradients ? TT_OK : err->code;
    for (int i = 0; i < TT_MEM_COMPONENTS && rc == TT_OK; i++) {
        rc = tt_arena_open(&t->arena[i], tt_component_names[i], p->plan.own[i] - window_bytes(p, i),
                           err);
    }
    TT_TRY(tt_agree(t->world, rc, err));
    for (int i = 0; i < TT_MEM_COMPONENTS; i++) {
        TT_TRY(open_window(t, i, p->plan.once[i], true, once, err));
        TT_TRY(open_window(t, i, window_bytes(p, i), false, t->gradients, err));
    }
out:
    free(once);
    return rc;
}

/* The window of a component, or its arena where none is open. */
static tt_arena *outer(tt_trainer *t, int component)
{
    return t->window[component].base != NULL ? &t->window[component] : &t->arena[component];
}

/* ---- places ---- */

/* Weights and gradients. Local. */
static void place_vectors(tt_trainer *t)
{
    const tt_blueprint *p = &t->print;
    tt_arena *own = &t->arena[TT_MEM_GRADIENTS];
    t->weights =
        tt_arena_take(outer(t, TT_MEM_WEIGHTS), tt_bytes(p->weight_ring.elements, p->act_bytes));
    if (p->rotates) {
        t->own_weights =
            tt_arena_take(&t->arena[TT_MEM_WEIGHTS], tt_bytes(p->cut.elements, p->act_bytes));
    }
    void *gradient = tt_arena_take(outer(t, TT_MEM_GRADIENTS),
                                   tt_bytes(p->gradient_ring.elements, p->grad_bytes));
    if (p->node_ranks == 1) {
        t->gradients[0] = gradient;
    }
    t->staging = p->staging > 0 ? tt_arena_take(own, p->staging) : NULL;
    void *pieces = p->slices ? tt_arena_take(own, tt_bytes(p->cut.elements, p->grad_bytes)) : NULL;
    if (p->config.run.exact) {
        t->gradient =
            (tt_grad){.fixed = gradient,
                      .point = &t->point,
                      .lost = tt_arena_take(own, tt_bytes(p->params.count, sizeof(int64_t)))};
        t->pieces = (tt_grad){.fixed = pieces, .point = &t->point, .lost = t->gradient.lost};
    } else {
        t->gradient = (tt_grad){.sum = gradient};
        t->pieces = (tt_grad){.sum = pieces};
    }
}

/* Masters, m and v, in memory or in this rank's file. Local. */
static tt_code open_optimizer(tt_trainer *t, tt_err *err)
{
    tt_code rc = TT_OK;
    const tt_blueprint *p = &t->print;
    const char *file = p->config.memory.optimizer_file;
    tt_text path = {0};
    tt_text_add(&path, "%s.%d", file, t->world->rank);
    TT_TRY(path.failed ? tt_fail(err, TT_EWORLD, "out of memory") : TT_OK);
    rc = tt_optimizer_open(&t->optimizer, p->master, p->shard.elements,
                           file[0] != '\0' ? path.data : NULL, &t->arena[TT_MEM_OPTIMIZER], err);
out:
    tt_text_free(&path);
    return rc;
}

/* The shard as runs of one optimizer group each: parameters' ends (gaps included) against ranges. */
static tt_code make_segments(tt_trainer *t, tt_err *err)
{
    tt_code rc = TT_OK;
    const tt_params *params = &t->print.params;
    const tt_shard *shard = &t->print.shard;
    t->segment = tt_alloc((int64_t)params->count + shard->count, sizeof *t->segment, err);
    if (!t->segment) {
        rc = err->code;
        goto out;
    }
    for (int r = 0, i = 0; r < shard->count; r++) {
        int64_t at = shard->range[r].first;
        while (at < shard->range[r].end) {
            while (i + 1 < params->count && params->param[i + 1].offset <= at) {
                i++;
            }
            int64_t next = i + 1 < params->count ? params->param[i + 1].offset : params->total;
            int64_t end = tt_min(next, shard->range[r].end);
            int64_t held = params->param[i].offset + params->param[i].count;
            t->segment[t->segments++] =
                (tt_segment){.flat = at,
                             .local = shard->local[r] + (at - shard->range[r].first),
                             .count = end - at,
                             .decay = params->param[i].decay,
                             .role = params->param[i].role,
                             .gap = tt_min(tt_max(0, end - held), end - at)};
            at = end;
        }
    }
out:
    return rc;
}

/* Local. */
static tt_code open_model(tt_trainer *t, tt_arena *activations, tt_arena *packed, tt_err *err)
{
    const tt_blueprint *p = &t->print;
    const tt_held held = tt_blueprint_held(p, t->tutti.node.rank);
    return tt_model_open(&t->model, &p->shape, &p->params, &t->ctx, t->weights, &t->gradient, &held,
                         tt_blueprint_fp8(&t->print), &t->wide, &p->recompute, p->split.micro,
                         p->shape.T, activations, p->config.memory.pack_weights ? packed : NULL,
                         err);
}

/* Gives out all memory, and has it come. Local. */
static tt_code place(tt_trainer *t, tt_err *err)
{
    tt_code rc = TT_OK;
    const tt_blueprint *p = &t->print;
    place_vectors(t);
    TT_TRY(open_optimizer(t, err));
    const size_t scratch = p->plan.bytes[TT_MEM_WORKSPACE] - TT_REDZONE; /* one piece, all of it */
    t->ctx = tt_kernels_ctx(&p->ops, &p->guarded, p->plan.threads,
                            tt_arena_take(&t->arena[TT_MEM_WORKSPACE], scratch), scratch);
    t->wide_weights =
        tt_arena_take(&t->arena[TT_MEM_WIDE], tt_bytes(p->params.wide, sizeof(float)));
    t->wide = tt_wide_of(p, &t->wide_ctx, t->ctx.workspace, scratch, t->wide_weights);
    const int64_t snapshot = tt_saver_elements(p);
    if (snapshot > 0) {
        t->snapshot = tt_arena_take(&t->arena[TT_MEM_SNAPSHOT], tt_bytes(snapshot, sizeof(float)));
    }
    tt_batch_place(
        &t->batch, p->split.micro, p->shape.T,
        tt_arena_take(&t->arena[TT_MEM_BATCH], tt_batch_bytes(p->split.micro, p->shape.T)));
    tt_fp8 *fp8 = tt_blueprint_fp8(&t->print);
    if (fp8 != NULL) {
        tt_fp8_place(fp8, tt_arena_take(&t->arena[TT_MEM_ACTIVATIONS], tt_fp8_bytes(fp8)));
    }
    t->maxima = tt_alloc(TT_STEP_MAXIMA + p->fp8.sites, sizeof *t->maxima, err);
    if (t->maxima == NULL) {
        rc = err->code;
        goto out;
    }
    TT_TRY(open_model(t, &t->arena[TT_MEM_ACTIVATIONS], outer(t, TT_MEM_PACKED), err));
    TT_TRY(make_segments(t, err));
    TT_TRY(tt_numerics_open(t, err));
    TT_TRY(tt_memory_check(&p->plan, t->arena, t->window, err));
    tt_memory_touch(t);
out:
    return rc;
}

/* ---- what callers see ---- */

tt_code tt_storage_open(tt_trainer *t, tt_err *err)
{
    tt_code rc = TT_OK;
    TT_TRY(open_memory(t, err));
    rc = tt_agree(t->world, place(t, err), err);
out:
    return rc;
}

void tt_storage_close(tt_trainer *t)
{
    tt_model_close(t->model);
    tt_optimizer_close(&t->optimizer);
    tt_numerics_close(t);
    free(t->segment);
    free(t->maxima);
    for (int i = 0; i < TT_MEM_COMPONENTS; i++) {
        tt_arena_close(&t->arena[i]);
        tt_arena_close(&t->window[i]);
    }
    free(t->gradients);
}

tt_code tt_storage_remodel(tt_trainer *t, tt_err *err)
{
    tt_arena activations = t->arena[TT_MEM_ACTIVATIONS], packed = *outer(t, TT_MEM_PACKED);
    const tt_fp8 *fp8 = tt_blueprint_fp8(&t->print);
    activations.used = packed.used = 0;
    if (fp8 != NULL) { /* what it remembers stays where it was placed */
        (void)tt_arena_take(&activations, tt_fp8_bytes(fp8));
    }
    return open_model(t, &activations, &packed, err);
}
