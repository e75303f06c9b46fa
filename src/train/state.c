/* state.c: the state table, and what saving and resuming do with it. See state.h.
 *
 * Reads and writes trainer memory through rows of pieces; next: ckpt/ckpt.h. */
#include "tutti/train/state.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tutti/base/file.h"
#include "tutti/base/narrow.h"
#include "tutti/dist/share.h"
#include "tutti/train/arithmetic.h"
#include "tutti/train/masters.h"

#include "train/train_impl.h"

enum { GROUPS = TT_KEPT, SCALARS = 10 };
static const int64_t MOST_STEPS = (int64_t)1 << 40; /* times sequences stays in 64 bits */
static const char *const group_names[GROUPS] = {
    [TT_KEPT_MASTER] = "params", [TT_KEPT_M] = "adam_m", [TT_KEPT_V] = "adam_v"};

/* The scalars; `facts` are those that must be equal rather than loaded. */
typedef struct tt_facts {
    int64_t position, seed, data_tokens, data_digest;
} tt_facts;

static void scalar_rows(tt_trainer *t, tt_facts *facts, tt_scalar_row row[SCALARS])
{
    *facts = (tt_facts){.position = t->progress.step * t->print.split.sequences,
                        .seed = t->print.config.run.seed,
                        .data_tokens = t->data_tokens,
                        .data_digest = (int64_t)t->data_digest};
    row[0] = (tt_scalar_row){.name = "step", .i64 = &t->progress.step};
    row[1] = (tt_scalar_row){.name = "updates", .i64 = &t->progress.updates};
    row[2] = (tt_scalar_row){.name = "tokens_seen", .i64 = &t->progress.tokens_seen};
    row[3] = (tt_scalar_row){.name = "skips", .i64 = &t->progress.skips};
    row[4] = (tt_scalar_row){.name = "sampler_position", .i64 = &facts->position};
    row[5] = (tt_scalar_row){.name = "seed", .i64 = &facts->seed};
    row[6] = (tt_scalar_row){.name = "data_tokens", .i64 = &facts->data_tokens};
    /* Files of version 0.1 have no scaler, and runs of it no loss scale but none. */
    const bool none = strcmp(t->print.config.precision.loss_scale, "none") == 0;
    row[7] =
        (tt_scalar_row){.name = "loss_scale", .f64 = &t->progress.scaler.scale, .optional = none};
    row[8] =
        (tt_scalar_row){.name = "scaler_good", .i64 = &t->progress.scaler.good, .optional = none};
    /* Nor does a file of before know its data by more than its length. */
    row[9] = (tt_scalar_row){.name = "data_digest", .i64 = &facts->data_digest, .optional = true};
}

void tt_state_name(int64_t step, char out[TT_STEP_NAME])
{
    snprintf(out, TT_STEP_NAME, "step-%08lld.h5", (long long)step);
}

char *tt_state_path(const tt_trainer *t, int64_t step, tt_err *err)
{
    char name[TT_STEP_NAME];
    tt_state_name(step, name);
    return tt_join(t->print.config.run.dir, name, err);
}

const char *tt_state_kept(const tt_trainer *t)
{
    return t->kept ? "the last checkpoint is untouched" : "no checkpoint has been written";
}

/* What FP8's recipe delayed remembers: all ranks the same, so that one of them saves it. */
static void add_amax(tt_rows *rows, const tt_trainer *t, bool mine)
{
    const tt_fp8 *fp8 = &t->print.fp8;
    if (fp8->history > 0) {
        tt_rows_add(rows, "fp8/amax", fp8->history, fp8->sites, fp8->past, mine);
    }
}

tt_code tt_state_rows(tt_rows *rows, const tt_trainer *t, tt_err *err)
{
    tt_code rc = TT_OK;
    tt_form form[GROUPS];
    float *data[GROUPS];
    const tt_blueprint *p = &t->print;
    tt_masters_data(t, data, form);
    memset(rows, 0, sizeof *rows);
    /* With ZeRO 0 a rank holds more than its cut. */
    int64_t *local = tt_alloc(p->cut.count, sizeof *local, err);
    if (!local) {
        rc = err->code;
        goto out;
    }
    for (int i = 0; i < p->cut.count; i++) {
        local[i] = p->shard.local[i] + (p->cut.range[i].first - p->shard.range[i].first);
    }
    rc = tt_rows_make(rows, &p->params, &p->cut, local, GROUPS, group_names, data, form, err);
    if (rc == TT_OK) {
        add_amax(rows, t, t->world->rank == 0);
    }
out:
    free(local);
    return rc;
}

tt_code tt_state_saving(tt_trainer *t, const tt_save_how *how, tt_saving **saving, tt_rows *rows,
                        tt_err *err)
{
    tt_code rc = TT_OK;
    const tt_blueprint *p = &t->print;
    tt_scalar_row scalar[SCALARS];
    tt_facts facts;
    tt_text config = {0}, arithmetic = {0};
    char *path = NULL;
    tt_config_text(&p->config, false, &config);
    tt_arithmetic_history(t, &arithmetic);
    if (config.failed || arithmetic.failed) {
        rc = tt_fail(err, TT_EWORLD, "out of memory");
    }
    if (rc == TT_OK) {
        rc = tt_state_rows(rows, t, err);
    }
    if (rc == TT_OK) {
        path = tt_state_path(t, t->progress.step, err);
        rc = path ? TT_OK : err->code;
    }
    TT_TRY(tt_agree(t->world, rc, err));
    scalar_rows(t, &facts, scalar);
    const tt_state state = {.tensors = rows->rows,
                            .tensor = rows->row,
                            .scalars = SCALARS,
                            .scalar = scalar,
                            .config = config.data,
                            .arithmetic = arithmetic.data,
                            .tokenizer = tt_tokens_tokenizer(t->train_tokens)};
    TT_TRY(tt_saving_begin(saving, t->world, path, &state, how, err));
out:
    if (rc != TT_OK) {
        tt_rows_free(rows);
    }
    free(path);
    tt_text_free(&config);
    tt_text_free(&arithmetic);
    return rc;
}

/* After the masters are in place: the act weights of the shard, which all kinds of masters but FP32 are
 * made of, then everybody's, then packed. */
static tt_code weights_from_masters(tt_trainer *t, tt_err *err)
{
    enum { SOME = 1 << 14 };
    const tt_blueprint *p = &t->print;
    tt_code rc = TT_OK;
    float value[SOME];
    for (int i = 0; i < p->shard.count && p->master == TT_MASTER_FP32; i++) {
        const tt_range r = p->shard.range[i];
        tt_beat(t->world, "rounding the weights");
        for (int64_t at = r.first; at < r.end; at += SOME) {
            const int64_t count = tt_min(SOME, r.end - at);
            tt_masters_get(t, at, count, value);
            t->ctx.ops->to_act(&t->ctx, tt_weight_own(t, at, p->shard.local[i] + (at - r.first)),
                               value, count);
        }
    }
    TT_TRY(tt_agree(t->world, tt_optimizer_check(&t->optimizer, err), err));
    TT_TRY(tt_tutti_publish(&t->tutti, err));
    TT_TRY(tt_wide_refresh(t, err));
    TT_TRY(tt_tutti_settle(&t->tutti, err));
out:
    return rc;
}

/* A run goes on with the tokens that it began with, unless it is told that they may change. */
static tt_code check_data(const tt_trainer *t, const char *path, const tt_facts *was, tt_err *err)
{
    static const char remedy[] =
        "a run is continued with the same data, or with run.allow_change=data.train";
    const tt_config *config = &t->print.config;
    const bool longer = was->data_tokens != t->data_tokens;
    const bool other = (uint64_t)was->data_digest != t->data_digest;
    if (!longer && !other) {
        return TT_OK;
    }
    if (tt_config_may_change(config, "data.train")) {
        tt_info(t->log, "data.train %s holds other tokens than before", config->data.train);
        return TT_OK;
    }
    if (longer) {
        return tt_fail(
            err, TT_EUSER,
            "%s was trained on a token file of %lld tokens, but data.train %s has %lld; %s", path,
            (long long)was->data_tokens, config->data.train, (long long)t->data_tokens, remedy);
    }
    return tt_fail(err, TT_EUSER,
                   "%s was trained on other tokens than those of data.train %s, though as many; %s",
                   path, config->data.train, remedy);
}

/* Fills the shard from a file: weights only, or all of the state. */
static tt_code load(tt_trainer *t, const char *path, bool params_only, tt_err *err)
{
    tt_code rc = TT_OK;
    tt_form form[GROUPS];
    float *data[GROUPS];
    const tt_blueprint *p = &t->print;
    tt_scalar_row scalar[SCALARS];
    tt_facts facts;
    tt_rows rows = {0};
    tt_masters_data(t, data, form);
    TT_TRY(tt_agree(t->world,
                    tt_rows_make(&rows, &p->params, &p->shard, p->shard.local,
                                 params_only ? 1 : GROUPS, group_names, data, form, err),
                    err));
    if (!params_only) {
        add_amax(&rows, t, true);
    }
    t->progress.scaler = tt_scaler_begin(&p->config); /* stays when the file has none */
    scalar_rows(t, &facts, scalar);
    tt_state state = {.tensors = rows.rows,
                      .tensor = rows.row,
                      .scalars = params_only ? 0 : SCALARS,
                      .scalar = scalar};
    TT_TRY(tt_ckpt_load(t->world, path, &state, params_only, err));
    tt_fault_strike(&t->fault, "in_load", t->world->rank, t->progress.step);
    if (!params_only && (t->progress.step < 0 || t->progress.step > MOST_STEPS ||
                         t->progress.updates < 0 || t->progress.updates > t->progress.step)) {
        rc = tt_fail(err, TT_EWORLD, "%s is damaged: step %lld with %lld updates cannot be", path,
                     (long long)t->progress.step, (long long)t->progress.updates);
        goto out;
    }
    if (!params_only && !tt_scaler_may_be(&p->config, &t->progress.scaler)) {
        rc = tt_fail(err, TT_EWORLD,
                     "%s is damaged: a loss scale of %.9g after %lld good steps cannot be", path,
                     t->progress.scaler.scale, (long long)t->progress.scaler.good);
        goto out;
    }
    rc = params_only ? TT_OK : check_data(t, path, &facts, err);
out:
    tt_rows_free(&rows);
    return rc;
}

/* The stored configuration must lead down the same path as the one given now, but for what may change.
 * *changed: what has, a line each; the caller's. */
static tt_code check_trajectory(tt_trainer *t, const char *path, tt_text *changed, tt_err *err)
{
    tt_code rc = TT_OK;
    tt_text text = {0};
    tt_config stored;
    changed->length = 0;
    TT_TRY(tt_ckpt_texts(path, &text, NULL, err));
    tt_config_preset(&stored);
    TT_TRY(tt_config_parse(&stored, path, text.data, err));
    TT_TRY(tt_config_same_trajectory(&stored, &t->print.config, changed, err));
    if (stored.run.steps != t->print.config.run.steps &&
        strcmp(stored.optim.schedule, "constant") != 0) {
        tt_text_add(changed,
                    "run.steps was %lld and is %lld: the learning rate follows the new one\n",
                    (long long)stored.run.steps, (long long)t->print.config.run.steps);
    }
    rc = changed->failed ? tt_fail(err, TT_EWORLD, "out of memory") : TT_OK;
out:
    tt_text_free(&text);
    return rc;
}

/* Newest complete checkpoint of run.dir older than `before`, which cannot be used because of `why`
 * (both NULL: of all), as rank 0 sees it, the same on all ranks; *path is malloc'd. Files passed over
 * are warned of; when nothing is left but such files they end the run: to begin anew beside them would
 * overwrite them. Collective. */
static tt_code latest(tt_trainer *t, const char *before, const char *why, char **path, tt_err *err)
{
    tt_code rc = TT_OK;
    tt_text skipped = {0}, shared = {0};
    const char *dir = t->print.config.run.dir;
    *path = NULL;
    if (t->world->rank == 0) {
        rc = tt_ckpt_latest(t->world, dir, before, path, &skipped, err);
        const bool passed = why || skipped.length > 0;
        if (rc == TT_OK && passed && *path) {
            tt_warn(t->log, "passed over: %s%s%s", why ? why : "",
                    why && skipped.length ? "; " : "", skipped.data ? skipped.data : "");
        } else if (rc == TT_OK && passed) {
            const char *reason = why ? why : skipped.data;
            rc = tt_fail(err, TT_EWORLD,
                         "%.*s; no other checkpoint in %s can be used; mend or move them, or set "
                         "run.resume=never to begin anew",
                         (int)strcspn(reason, "\n"), reason, dir);
        }
        if (rc == TT_OK && *path) {
            tt_text_add(&shared, "%s", *path);
        }
    }
    TT_TRY(tt_agree(t->world, rc, err));
    TT_TRY(tt_share_text(t->world, &shared, err));
    if (t->world->rank != 0 && shared.length > 0) {
        *path = tt_strdup(shared.data, err);
        rc = *path ? TT_OK : err->code;
    }
    TT_TRY(tt_agree(t->world, rc, err));
    if (shared.length > 0) {
        TT_TRY(tt_ckpt_await(t->world, *path, err));
        /* What rank 0 can open and another cannot is not damaged. */
        rc = tt_agree(t->world, tt_ckpt_access(*path, err), err);
    }
out:
    tt_text_free(&skipped);
    tt_text_free(&shared);
    return rc;
}

/* Initial values are functions of the element, so any division of the work gives the same. */
static void initial_masters(tt_trainer *t)
{
    enum { PIECE = 1 << 12 };
    const tt_blueprint *p = &t->print;
    const uint64_t seed = (uint64_t)p->config.run.seed;
    for (int i = 0; i < p->shard.count; i++) {
        const tt_range r = p->shard.range[i];
        tt_beat(t->world, "making initial weights");
        /* Neighbours at a time, so that a file is written in order whoever writes. */
#pragma omp parallel for num_threads(t->ctx.threads) schedule(dynamic)
        for (int64_t first = r.first; first < r.end; first += PIECE) {
            const int64_t count = tt_min(PIECE, r.end - first);
            float value[PIECE];
            tt_params_init(&p->params, seed, first, count, value);
            tt_masters_put(t, first, count, value);
        }
    }
}

/* Each line of the text for itself. */
static void say_lines(tt_log *log, const tt_text *text)
{
    for (const char *at = text->length > 0 ? text->data : "", *end;
         (end = strchr(at, '\n')) != NULL; at = end + 1) {
        tt_info(log, "%.*s", (int)(end - at), at);
    }
}

/* The checkpoint to begin with: a replay takes one from before its step, and no other run's. */
static tt_code newest(tt_trainer *t, char **path, tt_err *err)
{
    tt_code rc = TT_OK;
    const int64_t replay = t->print.config.run.replay;
    char *before = NULL;
    tt_text changed = {0};
    *path = NULL;
    if (replay == 0) {
        return latest(t, NULL, NULL, path, err);
    }
    before = tt_state_path(t, replay, err);
    TT_TRY(tt_agree(t->world, before != NULL ? TT_OK : err->code, err));
    TT_TRY(latest(t, before, NULL, path, err));
    if (*path == NULL) { /* from the start; a later one says whether that is the run's */
        TT_TRY(latest(t, NULL, NULL, path, err));
        if (*path != NULL) {
            rc = tt_agree(t->world, check_trajectory(t, *path, &changed, err), err);
        }
        free(*path);
        *path = NULL;
    }
out:
    free(before);
    tt_text_free(&changed);
    return rc;
}

/* By its name a checkpoint is newer or older than others, and is overwritten or deleted: what holds
 * another step, such as a copy, would be taken for the newest at every start. */
static tt_code check_name(const tt_trainer *t, const char *path, tt_err *err)
{
    int64_t named = 0;
    const tt_code rc = tt_ckpt_step(path, &named, err);
    return rc != TT_OK || named == t->progress.step
               ? rc
               : tt_fail(err, TT_EWORLD, "%s holds step %lld, not the one it is named for", path,
                         (long long)t->progress.step);
}

/* From the newest checkpoint whose data is whole, going back over damaged ones; *found false: there
 * is none at all. A configuration that leads elsewhere is refused, not passed over. */
static tt_code resume(tt_trainer *t, bool *found, tt_err *err)
{
    tt_code rc = TT_OK;
    char *path = NULL, *older = NULL;
    tt_text changed = {0};
    *found = false;
    TT_TRY(newest(t, &path, err));
    while (path && !*found) {
        rc = tt_agree(t->world, check_trajectory(t, path, &changed, err), err);
        if (rc == TT_OK) {
            rc = load(t, path, false, err);
        }
        if (rc == TT_OK) {
            rc = tt_agree(t->world, check_name(t, path, err), err);
        }
        if (rc == TT_OK) {
            rc = tt_arithmetic_resume(t, path, err);
        }
        if (rc == TT_EWORLD) {
            const tt_err why = *err;
            TT_TRY(latest(t, path, why.text, &older, err));
            free(path);
            path = older;
            older = NULL;
            continue;
        }
        TT_TRY(rc);
        *found = t->kept = true;
        tt_watch_left(t->world, tt_state_kept(t));
        tt_info(t->log, "continuing from %s (step %lld)", path, (long long)t->progress.step);
        say_lines(t->log, &changed);
    }
out:
    tt_text_free(&changed);
    free(path);
    return rc;
}

tt_code tt_state_begin(tt_trainer *t, tt_err *err)
{
    tt_code rc = TT_OK;
    const tt_config *config = &t->print.config;
    /* A replay is of the run that is there. */
    const bool never = strcmp(config->run.resume, "never") == 0 && config->run.replay == 0;
    bool found = false;

    if (!never) {
        TT_TRY(resume(t, &found, err));
    }
    if (!found && strcmp(config->run.resume, "must") == 0) {
        rc = tt_fail(err, TT_EUSER, "run.resume is must, but %s holds no complete checkpoint",
                     config->run.dir);
        goto out;
    }
    if (!found && config->run.init_from[0] != '\0') {
        TT_TRY(load(t, config->run.init_from, true, err));
        tt_info(t->log, "initial weights from %s", config->run.init_from);
    } else if (!found) {
        t->progress.scaler = tt_scaler_begin(config);
        initial_masters(t);
    }
    TT_TRY(weights_from_masters(t, err));
    if (never) { /* last, so that a start that fails moves nothing */
        rc = t->world->rank == 0 ? tt_run_set_aside(config->run.dir, t->log, err) : TT_OK;
        TT_TRY(tt_agree(t->world, rc, err));
    }
out:
    return rc;
}

/* The sum at element e. */
static float gradient_at(const tt_grad *g, int64_t e)
{
    return g->sum != NULL ? g->sum[e] : tt_fixed_to(g->point, g->fixed[e]);
}

/* The mean gradient as a file sees it: the accumulators keep the sum, and no copy is made. */
typedef struct mean_gradient {
    const tt_trainer *trainer;
    const tt_params *params;
    double scale;
} mean_gradient;

/* What lost summands left in the integers means nothing, and where they were is not known. */
static bool is_lost(const mean_gradient *mean, int64_t flat)
{
    int i = 0;
    while (i + 1 < mean->params->count && mean->params->param[i + 1].offset <= flat) {
        i++;
    }
    const int64_t *lost = mean->trainer->gradient.lost;
    return lost != NULL && lost[i] > 0;
}

/* Of one tensor. */
static tt_code get_mean(const void *owner, int64_t at, int64_t count, float *out, tt_err *err)
{
    (void)err;
    const mean_gradient *mean = owner;
    const bool lost = is_lost(mean, at);
    const int64_t local = tt_shard_before(&mean->trainer->print.cut, at);
    const tt_grad g = tt_sum_own(mean->trainer, at, local);
    for (int64_t e = 0; e < count; e++) {
        const double sum = (double)gradient_at(&g, e);
        out[e] = lost ? NAN : (float)(sum * mean->scale);
    }
    return TT_OK;
}

static tt_code put_mean(const void *owner, int64_t at, int64_t count, const float *in, tt_err *err)
{
    (void)owner, (void)at, (void)count, (void)in;
    return tt_fail(err, TT_EWORLD, "a mean gradient is not read back");
}

tt_code tt_state_dump_gradients(tt_trainer *t, double scale, tt_err *err)
{
    tt_code rc = TT_OK;
    static const char *const group[] = {"grads"};
    const tt_blueprint *p = &t->print;
    tt_rows rows = {0};
    const mean_gradient mean = {t, &p->params, scale / (double)t->seed};
    const tt_form form = {.owner = &mean, .get = get_mean, .put = put_mean};
    float *const data = NULL;
    if (t->gradient.lost != NULL) { /* of this rank; now of all: the next step counts anew */
        TT_TRY(tt_sum_i64(t->world, t->gradient.lost, p->params.count, err));
    }
    rc = tt_rows_make(&rows, &p->params, &p->cut, p->cut.local, 1, group, &data, &form, err);
    TT_TRY(tt_agree(t->world, rc, err));
    tt_state state = {.tensors = rows.rows, .tensor = rows.row};
    TT_TRY(tt_ckpt_save(t->world, p->config.run.dump_gradients, &state, &t->fault, t->progress.step,
                        err));
out:
    tt_rows_free(&rows);
    return rc;
}
