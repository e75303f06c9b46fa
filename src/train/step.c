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
    tt_trainer *trainer;
    bool flip; /* the fault flip_grad is due */
    tt_code code;
    tt_err *err;
} tt_tutti;

/* The fault flip_grad: the bit below the highest one of the first element. */
static void flip_bit(const tt_grad *g)
{
    if (g->fixed != NULL) {
        uint64_t size = (uint64_t)(g->fixed[0] < 0 ? -g->fixed[0] : g->fixed[0]), bit = 1;
        while (bit < size >> 2) {
            bit <<= 1;
        }
        g->fixed[0] = (int64_t)((uint64_t)g->fixed[0] ^ bit);
    } else {
        uint32_t bits;
        memcpy(&bits, g->sum, sizeof bits);
        bits ^= 1u << 22;
        memcpy(g->sum, &bits, sizeof bits);
    }
}

static void stage_ready(void *user, int stage)
{
    tt_tutti *tutti = user;
    if (tutti->flip && stage == 0) {
        flip_bit(&tutti->trainer->gradient);
    }
    if (tutti->code == TT_OK) {
        tutti->code = tt_reduce_ready(&tutti->trainer->reduce, stage, tutti->err);
    }
}

/* Faults on demand: a poisoned accumulator stays poisoned whatever is added to it. */
static void inject_faults(tt_trainer *t, int64_t number)
{
    const bool nan = tt_fault_due(&t->fault, TT_FAULT_NAN_GRAD, t->world->rank, number);
    const bool inf = tt_fault_due(&t->fault, TT_FAULT_INF_GRAD, t->world->rank, number);
    tt_fault_crash(&t->fault, "in_step", t->world->rank, number);
    if ((nan || inf) && t->gradient.fixed != NULL) {
        t->gradient.lost[0]++;
    } else if (nan || inf) {
        t->gradient.sum[0] = nan ? NAN : INFINITY;
    }
}

static void clear_gradient(tt_trainer *t)
{
    const tt_params *params = &t->print.params;
    void *all = t->gradient.fixed != NULL ? (void *)t->gradient.fixed : t->gradient.sum;
    memset(all, 0, tt_bytes(params->total, t->print.grad_bytes));
    if (t->gradient.lost != NULL) {
        memset(t->gradient.lost, 0, tt_bytes(params->count, sizeof(int64_t)));
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

/* What every rank must know before it may update, in one reduction of integers. */
typedef struct tt_tally {
    tt_exact loss, squares; /* sum of losses; ||G||^2 */
    int64_t count;          /* valid targets */
    int64_t nonfinite;      /* gradient elements; in exact mode, summands that were lost */
    int64_t failed, stop;   /* ranks */
} tt_tally;
_Static_assert(sizeof(tt_tally) == TT_STEP_SUMS * sizeof(int64_t), "the plan counts them");

/* This rank's share of ||G||^2, and what is not finite in its gradient. Returns the first parameter
 * that has such, or the number of parameters. */
static int measure_gradient(tt_trainer *t, tt_tally *tally)
{
    const tt_params *params = &t->print.params;
    const tt_shard *cut = &t->print.cut;
    int64_t flat = params->total; /* first element that is not finite */
    for (int i = 0; i < cut->count; i++) {
        const tt_range range = cut->range[i];
        const tt_grad g = tt_grad_from(&t->gradient, range.first);
        const int64_t before = tally->squares.nonfinite;
        t->ctx.ops->sum_squares(&t->ctx, &tally->squares, &g, range.end - range.first);
        for (int64_t j = range.first; tally->squares.nonfinite > before && j < range.end; j++) {
            const bool finite = isfinite(t->gradient.sum[j]); /* integers always are */
            tally->nonfinite += !finite;
            flat = finite ? flat : tt_min(flat, j);
        }
    }
    int first = 0;
    while (first < params->count &&
           params->param[first].offset + params->param[first].count <= flat) {
        first++;
    }
    for (int p = params->count - 1; t->gradient.fixed != NULL && p >= 0; p--) {
        tally->nonfinite += t->gradient.lost[p];
        first = t->gradient.lost[p] > 0 ? p : first;
    }
    return first;
}

/* Which parameter it was, by the first rank and position. Collective. */
static tt_code name_nonfinite(tt_trainer *t, int first, tt_record *record, tt_err *err)
{
    double least = -first; /* the largest of these is the lowest number */
    tt_code rc = tt_max_f64(t->world, &least, 1, err);
    if (rc == TT_OK && -least < t->print.params.count) {
        record->nonfinite_in = t->print.params.param[(int)-least].name;
    }
    return rc;
}

static void update_shard(tt_trainer *t, double lr, double grad_scale)
{
    const tt_config *config = &t->print.config;
    const tt_adamw decayed = tt_adamw_step(config, lr, t->progress.updates, true, grad_scale);
    const tt_adamw plain = tt_adamw_step(config, lr, t->progress.updates, false, grad_scale);
    for (int i = 0; i < t->segments; i++) {
        const tt_segment *s = &t->segment[i];
        const tt_grad g = tt_grad_from(&t->gradient, s->flat);
        t->ctx.ops->adamw(&t->ctx, t->master + s->local, t->m + s->local, t->v + s->local,
                          tt_act_at(t->weights, s->flat, t->print.act_bytes), &g, s->count,
                          s->decay ? &decayed : &plain);
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
    const bool flip = tt_fault_due(&t->fault, TT_FAULT_FLIP_GRAD, rank, step + 1);
    tt_tutti tutti = {.trainer = t, .flip = flip, .code = TT_OK, .err = err};
    tt_tally tally = {.stop = request->stop};
    tt_loss loss = {.count = 0};
    tt_err own = request->err;
    double data_ms = 0;

    clear_gradient(t);                                                    /* g <- 0               */
    inject_faults(t, step + 1);
    tt_reduce_begin(&t->reduce, t->world, &print->buckets, t->gradient.sum, t->gradient.fixed);

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

    const int first = measure_gradient(t, &tally);                        /* ||G_r||^2, finite?   */
    tally.loss = loss.sum;
    tally.count = loss.count;
    tally.failed = mine != TT_OK;
    tt_exact_carry(&tally.loss);
    tt_exact_carry(&tally.squares);
    TT_TRY(tt_sum_i64(t->world, (int64_t *)&tally, TT_STEP_SUMS, err));   /* one agreement        */
    if (tally.failed > 0) {
        *err = own;
        rc = tt_agree(t->world, mine, err);
        goto out;
    }

    const double count = (double)tally.count, divisor = bad_norm || tally.count == 0 ? 1 : count;
    const bool finite = tally.nonfinite == 0 && tally.loss.nonfinite == 0;
    const double norm =
        finite ? sqrt(tt_exact_value(&tally.squares)) / divisor : NAN;    /* ||G / tokens||       */
    const double clip = tt_clip_factor(norm, config->optim.clip);
    const bool update = finite && tally.count > 0;
    t->progress.step++;
    t->progress.tokens_seen += tally.count;
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
                          .loss = tally.count > 0 ? tt_exact_value(&tally.loss) / count : 0,
                          .tokens = tally.count,
                          .tokens_seen = t->progress.tokens_seen,
                          .lr = lr,
                          .grad_norm = norm,
                          .clipped = update && clip < 1,
                          .skipped = !update,
                          .loss_scale = 1,
                          .nonfinite = tally.nonfinite,
                          .stop = tally.stop > 0,
                          .data_ms = data_ms};
    if (tally.nonfinite > 0) {
        TT_TRY(name_nonfinite(t, first, record, err));
    }
    rc = finish_record(t, start, &wire, record, err);
out:
    return rc;
}
/* clang-format on */
