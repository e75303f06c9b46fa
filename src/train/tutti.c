/* tutti.c: hooks of a pass lead to gathers, places and reductions. See tutti.h. */
#include "tutti/train/tutti.h"

#include <stdlib.h>
#include <string.h>

#include "tutti/base/memory.h"
#include "tutti/base/narrow.h"
#include "tutti/dist/poke.h"
#include "tutti/dist/stop.h"
#include "tutti/dist/trial.h"
#include "tutti/dist/watch.h"
#include "tutti/train/replay.h"

#include "train/train_impl.h"

/* ---- weights ---- */

/* The group is here, and packed by all who share it. */
static tt_code bring(tt_tutti *u, int group, tt_err *err)
{
    tt_code rc = TT_OK;
    bool fresh;
    const tt_group_of_stages *stages = &u->trainer->print.weight_ring.group[group];
    TT_TRY(tt_gather_need(&u->gather, group, &fresh, err));
    if (fresh) {
        for (int s = stages->first_stage; s < stages->end_stage; s++) {
            tt_model_pack_stage(u->trainer->model, s);
        }
        TT_TRY(tt_gather_packed(&u->gather, group, err));
    }
out:
    return rc;
}

/* The group that the pass will come to after this one; -1: none. */
static int next_group(tt_tutti *u, int group)
{
    const tt_ring *ring = &u->trainer->print.weight_ring;
    if (u->kind == TT_PASS_FORWARD) {
        return group + 1 < ring->count ? group + 1 : -1;
    }
    while (u->at < u->visits && u->visit[u->at] != group) {
        u->at++;
    }
    return u->at + 1 < u->visits ? u->visit[u->at + 1] : -1;
}

static void note_visit(void *user, int stage)
{
    tt_tutti *u = user;
    const int group = u->trainer->print.weight_ring.of_stage[stage];
    if (u->visits == 0 || u->visit[u->visits - 1] != group) {
        u->visit[u->visits++] = group;
    }
}

/* ---- gradients ---- */

static void clear_group(const tt_tutti *u, int group)
{
    tt_trainer *t = u->trainer;
    const tt_group_of_stages *stages = &t->print.gradient_ring.group[group];
    unsigned char *all = tt_grad_data(&t->gradient);
    memset(all + tt_bytes(stages->at, t->print.grad_bytes), 0,
           tt_bytes(stages->range.end - stages->range.first, t->print.grad_bytes));
}

/* A place for the group's gradient, empty. */
static tt_code make_place(tt_tutti *u, int group, tt_err *err)
{
    const tt_code rc = tt_reduce_free_place(&u->reduce, group, err);
    if (rc == TT_OK) {
        clear_group(u, group);
    }
    return rc;
}

/* ---- hooks ---- */

static void enter(void *user, int stage)
{
    tt_tutti *u = user;
    tt_err err;
    tt_code rc = TT_OK;
    const tt_blueprint *p = &u->trainer->print;
    const int group = p->weight_ring.of_stage[stage];
    if (u->first.code != TT_OK) {
        return;
    }
    TT_TRY(bring(u, 0, &err)); /* what a tied head reads, wherever the pass is */
    TT_TRY(bring(u, group, &err));
    const int next = p->rotates ? next_group(u, group) : -1;
    if (next >= 0) {
        TT_TRY(tt_gather_ahead(&u->gather, next, group, &err));
    }
out:
    tt_keep_first(&u->first, rc, &err);
}

/* The first group's place is there from the beginning: a tied head adds to it first. */
static void grad_begin(void *user, int stage)
{
    tt_tutti *u = user;
    tt_err err;
    const tt_blueprint *p = &u->trainer->print;
    const int group = p->gradient_ring.of_stage[stage];
    const bool last = stage == p->gradient_ring.group[group].end_stage - 1;
    if (u->first.code == TT_OK && p->slices && group > 0 && last) {
        tt_keep_first(&u->first, make_place(u, group, &err), &err);
    }
}

static void grad_ready(void *user, int stage)
{
    tt_tutti *u = user;
    tt_err err;
    const bool goes = u->kind == TT_PASS_REDUCES;
    if (u->first.code == TT_OK && goes && stage == 0) {
        tt_inject_spoil(u);
    }
    if (u->first.code == TT_OK) {
        tt_blame_look(u->trainer, stage, goes);
    }
    if (u->first.code == TT_OK && goes) {
        tt_keep_first(&u->first, tt_reduce_ready(&u->reduce, stage, &err), &err);
    }
}

/* While one waits, the other goes on: whoever is awaited may wait for that. */
static void carry_weights(void *user)
{
    tt_tutti *u = user;
    tt_err err;
    tt_keep_first(&u->first, tt_gather_progress(&u->gather, &err), &err);
}

static void carry_gradients(void *user)
{
    tt_tutti *u = user;
    tt_err err;
    tt_keep_first(&u->first, tt_reduce_progress(&u->reduce, &err), &err);
}

static void between(void *user)
{
    tt_tutti *u = user;
    tt_beat(u->trainer->world, NULL);
    (void)tt_stop_look(u->trainer->world); /* what one rank has heard the next learns at once */
    if (u->first.code == TT_OK) {
        carry_weights(u);
        carry_gradients(u);
    }
}

static void wrote(void *user, const tt_wrote *what)
{
    tt_tutti *u = user;
    tt_inject_wrote(u, what);
    if (u->replay != NULL) {
        tt_replay_look(u->replay, what);
    }
}

/* Where a thread that calls MPI is worth its time: data crosses a network, or a processor is free. */
static bool wants_poke(const tt_trainer *t)
{
    const char *choice = t->print.config.dist.progress_thread;
    const bool helps = t->world->nodes > 1 || t->ctx.threads < tt_world_threads(t->world);
    return strcmp(choice, "true") == 0 || (strcmp(choice, "auto") == 0 && helps);
}

static tt_code open_poke(tt_tutti *u, tt_err *err)
{
    tt_code rc = TT_OK;
    const tt_trainer *t = u->trainer;
    int64_t wanted = wants_poke(t) && u->node.count > 1;
    TT_TRY(tt_sum_i64(t->world, &wanted, 1, err)); /* all or none, as opening is collective */
    if (wanted < t->world->size || t->world->poke != NULL) {
        goto out;
    }
    if (!tt_world_threaded(t->world)) {
        if (strcmp(t->print.config.dist.progress_thread, "true") == 0) {
            tt_warn(t->log, "dist.progress_thread: this MPI library allows no threads "
                            "(MPI_THREAD_MULTIPLE); reductions go on between layers alone");
        }
        goto out;
    }
    TT_TRY(tt_poke_open(t->world, err));
    u->pokes = t->world->poke != NULL;
out:
    return rc;
}

/* ---- what callers see ---- */

tt_code tt_tutti_open(tt_tutti *u, tt_trainer *t, tt_err *err)
{
    tt_code rc = TT_OK;
    const tt_blueprint *p = &t->print;
    const bool fixed = p->config.run.exact, overlap = t->overlap;
    const tt_reduce_spec reduce = {.node = &u->node,
                                   .buckets = &p->buckets,
                                   .ring = &p->gradient_ring,
                                   .cut = &p->cut,
                                   .fixed = fixed,
                                   .scatter = p->scatters,
                                   .all = p->config.memory.zero == 0,
                                   .held = t->gradients,
                                   .piece = tt_grad_data(&t->pieces),
                                   .staging = t->staging,
                                   .threads = t->ctx.threads,
                                   .overlap = overlap,
                                   .meanwhile = {carry_weights, u}};
    const tt_gather_spec gather = {.node = &u->node,
                                   .buckets = &p->buckets,
                                   .ring = &p->weight_ring,
                                   .cut = &p->cut,
                                   .size = p->act_bytes,
                                   .held = t->weights,
                                   .piece = t->own_weights,
                                   .exchange = p->config.memory.zero > 0,
                                   .overlap = overlap,
                                   .meanwhile = {carry_gradients, u}};
    u->trainer = t;
    u->hooks = (tt_hooks){.enter = enter,
                          .grad_begin = grad_begin,
                          .grad_ready = grad_ready,
                          .between = between,
                          .user = u};
    /* forward, and in backward each stage once more and once again */
    u->visit = tt_alloc(3 * (int64_t)p->params.stages, sizeof *u->visit, err);
    TT_TRY(tt_agree(t->world, u->visit != NULL ? TT_OK : err->code, err));
    TT_TRY(tt_reduce_open(&u->reduce, &reduce, err));
    TT_TRY(tt_gather_open(&u->gather, &gather, err));
    TT_TRY(open_poke(u, err));
out:
    return rc;
}

tt_code tt_tutti_try(tt_tutti *u, double rank_flops, tt_err *err)
{
    tt_code rc = TT_OK;
    const tt_trainer *t = u->trainer;
    const tt_split *split = &t->print.split;
    const bool open = strcmp(t->print.config.dist.overlap, "auto") == 0;
    tt_trial trial;
    if (!open || !tt_reduce_may_block(&u->reduce) || rank_flops <= 0) {
        goto out;
    }
    /* Four FLOPs an element and token go backward, where matmuls are most of it. */
    const double tokens = (double)split->micro * (double)t->print.shape.T;
    TT_TRY(tt_reduce_try(&u->reduce, 4 * tokens / rank_flops, &trial, err));
    u->gather.spec.overlap =
        trial.early.elements > 0 && trial.early.overlap <= trial.early.blocking;
    if (trial.early.elements > 0) {
        tt_info(t->log,
                "dist.overlap: %d of %d buckets are reduced while layers are computed; one of %.1f "
                "MB holds a rank up %.2f ms, and %.2f ms in a blocking call",
                t->print.buckets.count - trial.blocks, t->print.buckets.count,
                1e-6 * (double)tt_bytes(trial.early.elements, t->print.grad_bytes),
                1e3 * trial.early.overlap, 1e3 * trial.early.blocking);
    }
out:
    return rc;
}

void tt_tutti_close(tt_tutti *u)
{
    if (u->pokes) {
        tt_poke_close(u->trainer->world);
        u->pokes = false;
    }
    if (u->gather.place != NULL) {
        tt_gather_close(&u->gather);
    }
    tt_reduce_close(&u->reduce);
    free(u->visit);
    u->visit = NULL;
}

void tt_tutti_begin(tt_tutti *u, tt_pass_kind kind, bool add)
{
    tt_err err;
    const tt_blueprint *p = &u->trainer->print;
    u->kind = kind;
    u->at = u->visits = 0;
    const bool shows = u->poison_forward || u->replay != NULL;
    u->hooks.wrote = shows && kind != TT_PASS_FORWARD ? wrote : NULL;
    if (p->rotates && kind != TT_PASS_FORWARD) {
        const tt_hooks note = {.enter = note_visit, .user = u};
        tt_hooks_walk(&note, &p->recompute, p->shape.L, true);
    }
    if (kind == TT_PASS_REDUCES && u->first.code == TT_OK) {
        tt_reduce_begin(&u->reduce, add && p->slices);
        if (p->slices) {
            tt_keep_first(&u->first, make_place(u, 0, &err), &err);
        }
    }
}

void tt_tutti_idle(tt_tutti *u)
{
    const tt_blueprint *p = &u->trainer->print;
    tt_hooks_walk(&u->hooks, &p->recompute, p->shape.L, u->kind != TT_PASS_FORWARD);
}

tt_code tt_tutti_end(tt_tutti *u, tt_err *err)
{
    const bool reduces = u->first.code == TT_OK && u->kind == TT_PASS_REDUCES;
    const tt_code rc = reduces ? tt_reduce_finish(&u->reduce, err) : TT_OK;
    return tt_keep_first(&u->first, rc, err);
}

tt_code tt_tutti_publish(tt_tutti *u, tt_err *err)
{
    return tt_gather_begin(&u->gather, err);
}

tt_code tt_tutti_settle(tt_tutti *u, tt_err *err)
{
    tt_code rc = TT_OK;
    const tt_ring *ring = &u->trainer->print.weight_ring;
    for (int g = 0; g < ring->count && ring->whole; g++) {
        TT_TRY(bring(u, g, err));
    }
out:
    return rc;
}
