/* step.c: one optimizer step, in execution order, with the algebra in the right margin.
 *
 * Invariants: micro-batches 1..K-1 communicate nothing. Every rank makes the same collective calls
 * in every step, whatever happens to it: a rank that failed still reduces, and its failure rides in
 * the agreement; so does one that was asked to stop and leaves. Nothing is allocated here.
 *
 * Reads trainer memory and data/batch.h; writes weights, optimizer state, progress, one record;
 * next: metrics.c. */
#include "tutti/train/step.h"

#include <math.h>
#include <string.h>

#include "tutti/base/clock.h"
#include "tutti/base/file.h"
#include "tutti/base/narrow.h"
#include "tutti/optim/optim.h"
#include "tutti/optim/scaler.h"
#include "tutti/train/update.h"

#include "train/train_impl.h"

void tt_gradient_clear(tt_trainer *t)
{
    if (!t->print.slices) { /* else places are cleared when a pass comes to them */
        memset(tt_grad_data(&t->gradient), 0, tt_bytes(t->print.params.total, t->print.grad_bytes));
    }
}

/* A gradient of nothing, and what scales it in this step: the seed of backward, and with it the unit of
 * fixed point. */
static void begin_gradient(tt_trainer *t)
{
    const tt_blueprint *print = &t->print;
    t->seed = tt_scaler_seed(&t->progress.scaler, print->plan.tokens_per_step);
    tt_gradient_clear(t);
    tt_blame_begin(t);
    if (t->gradient.fixed != NULL) {
        t->point = tt_fixed_make(print->split.sequences, print->shape.T, t->seed);
        memset(t->gradient.lost, 0, tt_bytes(print->params.count, sizeof(int64_t)));
    }
    if (print->fp8.sites > 0) {
        tt_fp8_clear(&t->print.fp8);
    }
}

/* t->maxima[TT_STEP_MAXIMA] inout, and FP8's largest magnitudes of the step: the largest over ranks. */
static tt_code share_maxima(tt_trainer *t, tt_err *err)
{
    const tt_fp8 *fp8 = &t->print.fp8;
    double *amax = t->maxima + TT_STEP_MAXIMA;
    for (int i = 0; i < fp8->sites; i++) {
        amax[i] = (double)fp8->amax[i];
    }
    tt_code rc = tt_max_f64(t->world, t->maxima, TT_STEP_MAXIMA + fp8->sites, err);
    for (int i = 0; i < fp8->sites; i++) {
        fp8->amax[i] = (float)amax[i];
    }
    return rc;
}

/* Do ranks meet in every micro-batch? */
static bool meets(const tt_trainer *t, const tt_mistakes *mistakes)
{
    return t->print.slices || t->print.rotates || mistakes->sync_every;
}

/* Before micro-batch *k: a rank that is asked to stop leaves the step, *left, and goes on, idle, with
 * the last one, where others may be waiting. Where ranks meet in every micro-batch all leave together:
 * *over. Collective there. */
static tt_code leave(tt_trainer *t, const tt_mistakes *mistakes, int64_t *k, bool *left, bool *over,
                     tt_err *err)
{
    tt_code rc = TT_OK;
    *left = *left || tt_halt_asked(&t->halt, *k == 0);
    if (!meets(t, mistakes)) {
        *k = *left ? t->print.split.accumulate - 1 : *k;
    } else if (*k > 0) {
        rc = tt_halt_together(&t->halt, left, err);
        *over = *left;
    }
    return rc;
}

/* Masters or moments of some rank could not be read or written in this step. Collective. */
static tt_code lost_state(tt_trainer *t, tt_err *err)
{
    tt_err why = {TT_OK, ""};
    tt_code rc = tt_optimizer_check(&t->optimizer, &why);
    if (rc != TT_OK) {
        tt_fail(err, rc, "step %lld: %s; stopped, %s", (long long)t->progress.step, why.text,
                tt_state_kept(t));
    }
    return tt_agree(t->world, rc, err);
}

/* Times and memory of the slowest and largest rank, and whether one has lost its state; what went over
 * the wire since `wire`. */
static tt_code finish_record(tt_trainer *t, double start, const tt_wire *wire, tt_record *record,
                             tt_err *err)
{
    const tt_plan *plan = &t->print.plan;
    double *most = t->maxima;
    most[0] = tt_seconds() - start;
    const tt_wire now = tt_world_wire(t->world);
    most[1] = now.seconds - wire->seconds;
    most[2] = (double)tt_rss();
    most[3] = tt_optimizer_check(&t->optimizer, err) != TT_OK;
    const double exposed = now.exposed - wire->exposed;
    most[4] = exposed;
    most[5] = -exposed;
    tt_code rc = share_maxima(t, err);
    if (rc == TT_OK && most[3] > 0) { /* of some rank: none goes on */
        rc = lost_state(t, err);
    }
    double seconds = fmax(most[0], 1e-9);
    record->step_ms = 1e3 * seconds;
    record->tokens_per_s = (double)record->tokens / seconds;
    record->mfu = t->peak_flops > 0 ? plan->flops_per_step / seconds / t->peak_flops : 0;
    record->comm_ms = 1e3 * most[1];
    /* All ranks take as long for a step. The one that computes longest waits for nobody: what is exposed
     * of it is what communication adds to the step. The others wait for it as well. */
    record->comm_exposed_ms = 1e3 * -most[5];
    record->imbalance_ms = 1e3 * (most[4] + most[5]);
    record->rss_mb = most[2] / (1024.0 * 1024.0);
    record->comm_calls = t->world->wire.calls - wire->calls;
    record->comm_bytes = t->world->wire.bytes - wire->bytes;
    return rc;
}

/* clang-format off */
tt_code tt_step(tt_trainer *t, const tt_request *request, tt_record *record, tt_err *err)
{
    tt_code rc = TT_OK, mine = request->code;
    const tt_blueprint *print = &t->print;
    const tt_config *config = &print->config;
    const int64_t K = print->split.accumulate, step = t->progress.step;
    const int rank = t->world->rank;
    const double lr = tt_learning_rate(config, print->split.sequences, step);
    const double scale = t->progress.scaler.scale; /* of the loss */
    const double start = tt_seconds();
    const tt_wire wire = tt_world_wire(t->world);
    tt_mistakes mistakes;
    tt_tally tally = {.saving = request->saving};
    tt_loss loss = {.count = 0};
    tt_err own = request->err;
    double data_ms = 0;
    bool left = false, over = false;

    tt_halt_begin(&t->halt);
    tt_beat(t->world, "beginning a step");
    const bool counts = tt_numerics_begin(t, step + 1);
    const tt_census *census = NULL;
    begin_gradient(t);                                                    /* g <- 0, seed         */
    tt_inject_start(t, step + 1, &mistakes);

    for (int64_t k = 0; k < K; k++) {                                     /* for m in 1..K:       */
        tt_batch *b = &t->batch;
        TT_TRY(leave(t, &mistakes, &k, &left, &over, err));               /* asked to stop?       */
        if (over) {
            break;
        }
        if (!left) {
            tt_fault_strike(&t->fault, "in_micro", rank, step + 1);
        }
        const double fill = tt_seconds();
        tt_beat(t->world, "reading data");
        if (mine == TT_OK && !left) {
            mine = tt_batch_fill(b, &t->sampler, &print->split, step,     /* x, y <- D(m)         */
                                 k, rank, &own);
        }
        data_ms += 1e3 * (tt_seconds() - fill);
        tt_tutti_begin(&t->tutti, k == K - 1 || print->slices             /* last m: tutti        */
                                      ? TT_PASS_REDUCES : TT_PASS_KEEPS, k > 0);
        tt_beat(t->world, "computing forward and backward");
        if (mine == TT_OK && !left) {
            tt_model_train(t->model, b->token, b->target,                 /* l <- l + sum nll     */
                           b->sample, b->B, b->T,                         /* g <- g +             */
                           (uint64_t)config->run.seed, step,              /*   seed dl/dtheta     */
                           t->seed * tt_inject_scale(b, &mistakes),
                           &loss, &t->tutti.hooks);
        } else {
            tt_tutti_idle(&t->tutti);
        }
        TT_TRY(tt_tutti_end(&t->tutti, err));                             /* G <- sum over ranks  */
        tt_blame_pass(t, &loss);
        if (k < K - 1) {
            TT_TRY(tt_inject_sync(t, &mistakes, err));
        }
    }
    tt_beat(t->world, "looking at the gradient");

    const int bad = left ? -1 : tt_tally_gradient(t, &tally);             /* ||G_r||^2, finite?   */
    if (counts) {
        tt_numerics_gradient(t);
    }
    tally.loss = loss.sum;
    tally.count = loss.count;
    if (mine == TT_OK) {
        mine = tt_optimizer_check(&t->optimizer, &own);                   /* read ahead since     */
    }
    tally.failed = mine != TT_OK;
    tally.halted = tt_halt_mine(&t->halt, left);
    tt_exact_carry(&tally.loss);
    tt_exact_carry(&tally.squares);
    TT_TRY(tt_sum_i64(t->world, (int64_t *)&tally, TT_STEP_SUMS, err));   /* one agreement        */
    if (tally.failed > 0) {
        *err = own;
        rc = tt_agree(t->world, mine, err);
        goto out;
    }
    t->halt.all = tally.halted;
    const bool stop = tt_halt_stops(&t->halt);
    if (tally.halted.left > 0) {
        *record = (tt_record){.step = step, .stop = stop, .left = true};  /* it was never made    */
        goto out;
    }

    const double count = (double)tally.count;
    const double mean_over = tt_inject_count(tally.count, &print->split, &mistakes);
    const double divisor = (double)t->seed * mean_over;                   /* unscale, then mean   */
    const bool finite = tally.nonfinite == 0 && tally.loss.nonfinite == 0;
    const double norm =
        finite ? sqrt(tt_exact_value(&tally.squares)) / divisor : NAN;    /* ||G / (seed tokens)|| */
    const double clip =
        tt_clip_factor(tt_inject_norm(norm, scale, &mistakes), config->optim.clip);
    const bool update = finite && tally.count > 0;
    t->progress.step++;
    t->progress.tokens_seen += tally.count;
    t->progress.skips = finite ? 0 : t->progress.skips + 1;
    if (tally.count > 0 || !finite) {
        tt_scaler_next(config, &t->progress.scaler, finite);              /* scale of the next    */
    }
    if (update) {
        t->progress.updates++;
        tt_inject_update(t);
        tt_update_shard(t, lr, clip / divisor);                           /* theta_r <- AdamW     */
        TT_TRY(tt_tutti_publish(&t->tutti, err));                         /* theta <- all theta_r */
        TT_TRY(tt_wide_refresh(t, err));                                  /* those kept in FP32   */
    }
    tt_fault_strike(&t->fault, "after_update", rank, step + 1);

    if (counts) {                                                         /* inf, NaN, .. so far  */
        TT_TRY(tt_tutti_settle(&t->tutti, err));                          /* rounded and packed   */
        TT_TRY(tt_numerics_sum(t, &census, err));
    }
    *record = (tt_record){.step = t->progress.step,                       /* one record           */
                          .loss = tally.count > 0 ? tt_exact_value(&tally.loss) / count : 0,
                          .tokens = tally.count,
                          .tokens_seen = t->progress.tokens_seen,
                          .lr = lr,
                          .grad_norm = norm,
                          .mean_over = mean_over,
                          .clipped = update && clip < 1,
                          .skipped = !update,
                          .loss_scale = scale,
                          .nonfinite = tally.nonfinite,
                          .numerics = census,
                          .stop = stop,
                          .saving = tally.saving > 0,
                          .data_ms = data_ms};
    if (!finite) {
        TT_TRY(tt_blame_find(t, bad, record, err));                       /* which rank, where    */
    }
    TT_TRY(finish_record(t, start, &wire, record, err));
    if (update) {
        tt_fp8_push(&t->print.fp8, t->progress.updates);                  /* nothing unless delayed */
    }
    tt_halt_end(&t->halt);
out:
    return rc;
}
/* clang-format on */
