/* step.c: one optimizer step, in execution order, with the algebra in the right margin.
 *
 * Invariants: micro-batches 1..K-1 communicate nothing. Every rank makes the same collective calls
 * in every step, whatever happens to it: a rank that failed still reduces, and its failure rides in
 * the agreement. Nothing is allocated here.
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

#include "train/train_impl.h"

/* The final micro-batch's gradient of a stage is complete: its buckets can go. A reduction that
 * fails on one rank has failed on all (dist/reduce.h); the first error is kept. */
typedef struct tt_tutti {
    tt_reduce *reduce;
    tt_code code;
    tt_err *err;
} tt_tutti;

static void stage_ready(void *user, int stage)
{
    tt_tutti *tutti = user;
    if (tutti->code == TT_OK) {
        tutti->code = tt_reduce_ready(tutti->reduce, stage, tutti->err);
    }
}

/* Faults on demand: a poisoned accumulator stays poisoned whatever is added to it. */
static void inject_faults(tt_trainer *t, int64_t number)
{
    tt_fault_crash(&t->fault, "in_step", t->world->rank, number);
    if (tt_fault_due(&t->fault, TT_FAULT_NAN_GRAD, t->world->rank, number)) {
        t->gradient[0] = NAN;
    }
    if (tt_fault_due(&t->fault, TT_FAULT_INF_GRAD, t->world->rank, number)) {
        t->gradient[0] = INFINITY;
    }
}

/* 1, or with the fault bad_norm the classic mistake: each micro-batch divided by its own count. */
static float micro_scale(const tt_batch *batch, bool bad_norm)
{
    int64_t valid = 0;
    for (int64_t i = 0; bad_norm && i < batch->B * batch->T; i++) {
        valid += batch->target[i] >= 0;
    }
    return valid > 0 ? 1.0f / (float)valid : 1.0f;
}

/* This rank's share of ||G||^2, and how many of its elements are not finite. */
static void measure_gradient(tt_trainer *t, double *sum_squares, double *nonfinite)
{
    const tt_shard *cut = &t->print.cut;
    *sum_squares = 0;
    *nonfinite = 0;
    for (int i = 0; i < cut->count; i++) {
        const float *g = t->gradient + cut->range[i].first;
        int64_t n = cut->range[i].end - cut->range[i].first;
        double piece = t->ctx.ops->sum_squares(&t->ctx, g, n);
        if (isfinite(piece)) {
            *sum_squares += piece;
            continue;
        }
        for (int64_t j = 0; j < n; j++) {
            *nonfinite += isfinite(g[j]) ? 0 : 1;
        }
    }
}

static void update_shard(tt_trainer *t, double lr, double grad_scale)
{
    const tt_config *config = &t->print.config;
    const tt_adamw decayed = tt_adamw_step(config, lr, t->progress.updates, true, grad_scale);
    const tt_adamw plain = tt_adamw_step(config, lr, t->progress.updates, false, grad_scale);
    for (int i = 0; i < t->segments; i++) {
        const tt_segment *s = &t->segment[i];
        t->ctx.ops->adamw(&t->ctx, t->master + s->local, t->m + s->local, t->v + s->local,
                          tt_act_at(t->weights, s->flat, t->print.act_bytes), t->gradient + s->flat,
                          s->count, s->decay ? &decayed : &plain);
    }
}

/* Times and memory of the slowest and largest rank; what went over the wire since `wire`. */
static tt_code finish_record(tt_trainer *t, double start, const tt_wire *wire, tt_record *record,
                             tt_err *err)
{
    const tt_plan *plan = &t->print.plan;
    double most[TT_STEP_MAXIMA] = {tt_seconds() - start, t->world->wire.seconds - wire->seconds,
                                   (double)tt_rss()};
    tt_code rc = tt_max_f64(t->world, most, TT_STEP_MAXIMA, err);
    double seconds = fmax(most[0], 1e-9);
    record->step_ms = 1e3 * seconds;
    record->tokens_per_s = (double)record->tokens / seconds;
    record->mfu = t->peak_flops > 0 ? plan->flops_per_step / seconds / t->peak_flops : 0;
    record->comm_ms = 1e3 * most[1];
    record->comm_exposed_ms = record->comm_ms; /* the reduction blocks: nothing is hidden */
    record->rss_mb = most[2] / (1024.0 * 1024.0);
    record->comm_calls = t->world->wire.calls - wire->calls;
    record->comm_bytes = t->world->wire.bytes - wire->bytes;
    return rc;
}

/* What every rank must know before it may update: one reduction of a few doubles. */
enum { SUM_LOSS, SUM_COUNT, SUM_SQUARES, SUM_NONFINITE, SUM_FAILED, SUM_STOP, SUMS };
_Static_assert((int)SUMS == (int)TT_STEP_SUMS, "the plan counts them");

/* clang-format off */
tt_code tt_step(tt_trainer *t, const tt_request *request, tt_record *record, tt_err *err)
{
    tt_code rc = TT_OK, mine = request->code;
    const tt_blueprint *print = &t->print;
    const tt_config *config = &print->config;
    const int64_t K = print->split.accumulate, step = t->progress.step;
    const int rank = t->world->rank;
    const bool bad_norm = tt_fault_due(&t->fault, TT_FAULT_BAD_NORM, rank, step + 1);
    const double lr = tt_learning_rate(config, print->split.sequences, step);
    const double start = tt_seconds();
    const tt_wire wire = t->world->wire;
    tt_tutti tutti = {.reduce = &t->reduce, .code = TT_OK, .err = err};
    tt_loss loss = {0, 0};
    tt_err own = request->err;
    double data_ms = 0;

    memset(t->gradient, 0, tt_bytes(print->params.total, sizeof(float))); /* g <- 0               */
    inject_faults(t, step + 1);
    tt_reduce_begin(&t->reduce, t->world, &print->buckets, t->gradient);

    for (int64_t k = 0; k < K && mine == TT_OK; k++) {                    /* for m in 1..K:       */
        tt_batch *b = &t->batch;
        const double fill = tt_seconds();
        mine = tt_batch_fill(b, &t->sampler, &print->split, step,         /* x, y <- D(m)         */
                             k, rank, &own);
        data_ms += 1e3 * (tt_seconds() - fill);
        if (mine == TT_OK) {
            tt_model_train(t->model, b->token, b->target,                 /* l <- l + sum nll     */
                           b->sample, b->B, b->T,                         /* g <- g + dl/dtheta   */
                           (uint64_t)config->run.seed, step, micro_scale(b, bad_norm),
                           &loss, k == K - 1 ? stage_ready : NULL,        /* last m: tutti        */
                           &tutti);
        }
    }
    TT_TRY(tutti.code);
    TT_TRY(tt_reduce_finish(&t->reduce, err));                            /* G <- sum over ranks  */

    double sum[SUMS] = {[SUM_LOSS] = loss.sum,
                        [SUM_COUNT] = (double)loss.count,
                        [SUM_FAILED] = mine != TT_OK,
                        [SUM_STOP] = request->stop};
    measure_gradient(t, &sum[SUM_SQUARES], &sum[SUM_NONFINITE]);          /* ||G_r||^2, finite?   */
    TT_TRY(tt_sum_f64(t->world, sum, SUMS, err));                         /* one agreement        */
    if (sum[SUM_FAILED] > 0) {
        *err = own;
        rc = tt_agree(t->world, mine, err);
        goto out;
    }

    const double count = sum[SUM_COUNT], divisor = bad_norm || count == 0 ? 1 : count;
    const bool finite = sum[SUM_NONFINITE] == 0 && isfinite(sum[SUM_LOSS]);
    const double norm = finite ? sqrt(sum[SUM_SQUARES]) / divisor : NAN;  /* ||G / tokens||       */
    const double clip = tt_clip_factor(norm, config->optim.clip);
    const bool update = finite && count > 0;
    t->progress.step++;
    t->progress.tokens_seen += (int64_t)count;
    t->progress.skips = finite ? 0 : t->progress.skips + 1;
    if (update) {
        t->progress.updates++;
        update_shard(t, lr, clip / divisor);                              /* theta_r <- AdamW     */
        if (config->memory.zero > 0) {
            TT_TRY(tt_gather(t->world, &print->buckets, t->weights,       /* theta <- all theta_r */
                             print->act_bytes, err));
        }
        tt_model_pack(t->model);                                          /* once, for all m      */
    }

    *record = (tt_record){.step = t->progress.step,                       /* one record           */
                          .loss = count > 0 ? sum[SUM_LOSS] / count : 0,
                          .tokens = (int64_t)count,
                          .tokens_seen = t->progress.tokens_seen,
                          .lr = lr,
                          .grad_norm = norm,
                          .clipped = update && clip < 1,
                          .skipped = !update,
                          .loss_scale = 1,
                          .nonfinite = (int64_t)sum[SUM_NONFINITE],
                          .stop = sum[SUM_STOP] > 0,
                          .data_ms = data_ms};
    rc = finish_record(t, start, &wire, record, err);
out:
    return rc;
}
/* clang-format on */
