/* price.c: measures the parts of a step on a model of one block. See price.h.
 *
 * Owns one arena, of the size that the plan of the small model says. Reads model/laps.h; next:
 * train/ledger.c. */
#include "tutti/train/price.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tutti/base/clock.h"
#include "tutti/base/memory.h"
#include "tutti/base/narrow.h"
#include "tutti/base/threads.h"
#include "tutti/model/laps.h"
#include "tutti/optim/optim.h"
#include "tutti/train/optimizer.h"

#include "train/train_impl.h"

enum {
    ROWS = 512,       /* tokens at once: enough for matmuls at full speed */
    FEWER_ROWS = 128, /* of models whose blocks are so large that ROWS would take long */
    PIECE = 1 << 19,  /* elements added under one clock: more than a core's own caches hold */
    VOCAB = 4096,     /* of the head, whose cost is proportional to it */
    LEAST_ROUNDS = 3, /* and as many more as there is time for, but at most */
    ROUNDS = 9
};
static const double enough_seconds = 1.0; /* after which no other round begins */
static const double much_flops = 4e10;    /* of a block on ROWS tokens */

/* What is timed in a round: the applications at full length and at half of it, the update, and
 * a sum as MPI does it. */
typedef struct round_times {
    tt_lap whole[TT_LAPS], half[TT_LAPS];
    double squares, adamw, pack, add;
} round_times;

typedef struct probe {
    size_t wanted;      /* bytes that are not there: nothing is open */
    tt_blueprint print; /* of the small model */
    tt_arena arena;     /* all that it needs */
    tt_ctx ctx, wide_ctx;
    tt_wide wide;
    tt_grad gradient;
    tt_fixed point;
    tt_master master;
    tt_optimizer optimizer;
    void *weights;
    int32_t *token, *target; /* [B,T] in the batch's memory */
    tt_batch batch;
    tt_model *model; /* owned */
    int laps;
} probe;

/* The same run with one block, a short context and a part of the vocabulary, alone. */
static tt_config small_config(const tt_blueprint *print)
{
    tt_config c = print->config;
    const tt_shape *s = &print->shape;
    const double weights = 4.0 * (double)s->C * (double)s->C + 2.0 * (double)s->C * (double)s->F;
    const int64_t rows = 6 * weights * ROWS > much_flops ? FEWER_ROWS : ROWS;
    c.model.layers = 1;
    strcpy(c.memory.recompute, tt_recompute_names[TT_RECOMPUTE_NONE]);
    c.memory.recompute_blocks = 0;
    c.memory.optimizer_file[0] = '\0';
    c.model.context = tt_min(s->T, rows);
    c.model.vocab = tt_min(s->V, VOCAB);
    c.batch.micro = tt_max(1, tt_min(print->split.micro, rows / c.model.context));
    c.batch.sequences = c.batch.micro;
    c.batch.accumulate = 1;
    return c;
}

static void *take(probe *p, int64_t count, size_t size)
{
    return tt_arena_take(&p->arena, tt_bytes(count, size));
}

/* Small numbers everywhere: zeros would be faster than what training has. */
static void fill(probe *p)
{
    const tt_blueprint *print = &p->print;
    const int64_t N = print->params.total;
    float value[1024];
    for (int64_t i = 0; i < 1024; i++) {
        value[i] = (float)((i * 37 + 11) % 101 - 50) / 2048.0f;
    }
    for (int64_t at = 0; at < N; at += 1024) {
        p->ctx.ops->to_act(&p->ctx, tt_act_at(p->weights, at, print->act_bytes), value,
                           tt_min(1024, N - at));
    }
    for (int64_t i = 0; i < print->params.wide; i++) {
        ((float *)(uintptr_t)p->wide.weights)[i] = value[i % 1024];
    }
    for (int64_t i = 0; i < tt_mul(p->batch.B, p->batch.T); i++) {
        p->batch.token[i] = (int32_t)(i * 7919 % print->shape.vocab_used);
        p->batch.target[i] = (int32_t)(i * 104729 % print->shape.vocab_used);
    }
    for (int64_t b = 0; b < p->batch.B; b++) {
        p->batch.sample[b] = b;
    }
}

static tt_code probe_open(probe *p, const tt_blueprint *of, tt_err *err)
{
    tt_code rc = TT_OK;
    const tt_config config = small_config(of);
    const bool exact = config.run.exact, packs = config.memory.pack_weights;
    TT_TRY(tt_blueprint_make(&p->print, &config, 0, 0, 1, of->plan.threads, of->ops.isa, err));
    tt_blueprint *print = &p->print;
    const size_t node = tt_memory_available(""), process = tt_memory_allowed();
    if (print->plan.total > (node < process ? node : process)) {
        p->wanted = print->plan.total;
        goto out;
    }
    const int64_t N = print->params.total;
    TT_TRY(tt_arena_open(&p->arena, "price", print->plan.total, err));
    tt_threads_set(print->plan.threads);
    tt_flush_denormals(print->plan.threads);
    p->weights = take(p, N, print->act_bytes);
    void *gradient = take(p, N, print->grad_bytes);
    if (exact) {
        p->point = tt_fixed_make(print->split.sequences, print->shape.T, 1.0f);
        p->gradient = (tt_grad){.fixed = gradient,
                                .point = &p->point,
                                .lost = take(p, print->params.count, sizeof(int64_t))};
    } else {
        p->gradient = (tt_grad){.sum = gradient};
    }
    TT_TRY(tt_optimizer_open(&p->optimizer, print->master, N, NULL, &p->arena, err));
    p->master = (tt_master){.kind = print->master,
                            .full = p->optimizer.all.master,
                            .low = p->optimizer.all.low,
                            .stochastic = print->stochastic};
    const size_t scratch = print->plan.bytes[TT_MEM_WORKSPACE] - TT_REDZONE;
    void *workspace = tt_arena_take(&p->arena, scratch);
    p->ctx = tt_kernels_ctx(&print->ops, &print->guarded, print->plan.threads, workspace, scratch);
    float *wide = take(p, print->params.wide, sizeof(float));
    p->wide = tt_wide_of(print, &p->wide_ctx, workspace, scratch, wide);
    const int64_t B = print->split.micro, T = print->shape.T;
    tt_batch_place(&p->batch, B, T, tt_arena_take(&p->arena, tt_batch_bytes(B, T)));
    tt_fp8 *fp8 = tt_blueprint_fp8(print);
    if (fp8 != NULL) {
        tt_fp8_place(fp8, tt_arena_take(&p->arena, tt_fp8_bytes(fp8)));
    }
    TT_TRY(tt_model_open(&p->model, &print->shape, &print->params, &p->ctx, p->weights,
                         &p->gradient, NULL, fp8, &p->wide, NULL, B, T, &p->arena,
                         packs ? &p->arena : NULL, err));
    fill(p);
out:
    return rc;
}

static void probe_close(probe *p)
{
    tt_model_close(p->model);
    tt_optimizer_close(&p->optimizer);
    tt_arena_close(&p->arena);
    tt_blueprint_free(&p->print);
}

/* The update, as the step does it. */
static void time_update(probe *p, round_times *r)
{
    const tt_blueprint *print = &p->print;
    const tt_adamw step = tt_adamw_step(&print->config, print->config.optim.lr, 1, true, 1.0);
    tt_exact squares = {0};
    double start = tt_seconds();
    p->ctx.ops->sum_squares(&p->ctx, &squares, &p->gradient, print->params.total);
    double now = tt_seconds();
    r->squares = now - start;
    start = now;
    p->ctx.ops->adamw(&p->ctx, &p->master, p->optimizer.all.m, p->optimizer.all.v, p->weights,
                      &p->gradient, print->params.total, &step);
    now = tt_seconds();
    r->adamw = now - start;
    tt_model_pack(p->model);
    r->pack = tt_seconds() - now;
}

/* One thread adds a vector to another: seconds a byte of its fastest piece, because in so short a time
 * others take much or nothing. Moments will do: what becomes of them is of no interest. */
static void time_add(probe *p, round_times *r)
{
    const int64_t N = p->print.params.total;
    float *restrict sum = p->optimizer.all.m;
    const float *restrict more = p->optimizer.all.v;
    for (int64_t at = 0; at == 0 || at + PIECE <= N; at += PIECE) { /* whole ones, if there are */
        const int64_t end = tt_min(N, at + PIECE);
        const double start = tt_seconds();
        for (int64_t i = at; i < end; i++) {
            sum[i] += more[i];
        }
        const double each = (tt_seconds() - start) / (sizeof(float) * (double)(end - at));
        r->add = at == 0 || each < r->add ? each : r->add;
    }
}

static void time_round(probe *p, round_times *r)
{
    const tt_batch *b = &p->batch;
    *r = (round_times){.squares = 0};
    time_update(p, r);
    time_add(p, r);
    p->laps = tt_model_laps(p->model, b->token, b->target, b->sample, b->B, b->T, r->whole);
    tt_model_laps(p->model, b->token, b->target, b->sample, b->B, tt_max(1, b->T / 2), r->half);
}

/* Median over the rounds of the number `at` bytes into each. */
static double median(const round_times *r, int64_t rounds, size_t at)
{
    double value[ROUNDS] = {0};
    for (int64_t i = 0; i < rounds; i++) {
        memcpy(&value[i], (const char *)&r[i] + at, sizeof *value);
    }
    return tt_median(value, rounds);
}

/* Seconds a token of one direction of an application, at the context of the whole model. */
static double lap_price(const probe *p, const tt_blueprint *of, const round_times *r,
                        int64_t rounds, int lap, bool forward)
{
    const tt_batch *b = &p->batch;
    const size_t inside = (size_t)lap * sizeof(tt_lap) +
                          (forward ? offsetof(tt_lap, forward) : offsetof(tt_lap, backward));
    const double whole =
        median(r, rounds, offsetof(round_times, whole) + inside) / (double)tt_mul(b->B, b->T);
    const tt_op_row row = r->whole[lap].row;
    if (row == TT_ROW_HEAD) {
        return whole * (double)of->shape.V / (double)p->print.shape.V;
    }
    if (row == TT_ROW_ATTENTION && of->shape.T > b->T) {
        const int64_t T = tt_max(1, b->T / 2);
        const double half =
            median(r, rounds, offsetof(round_times, half) + inside) / (double)tt_mul(b->B, T);
        const double slope = (whole - half) / (double)(b->T - T);
        return whole + (slope > 0 ? slope : 0) * (double)(of->shape.T - b->T);
    }
    return whole;
}

/* Of a step, of this rank. */
static double rank_tokens(const tt_blueprint *print)
{
    return (double)tt_mul(tt_mul(print->split.micro, print->split.accumulate), print->shape.T);
}

static void add_up(tt_price *price, const probe *p, const tt_blueprint *of, const round_times *r)
{
    const int64_t n = price->rounds;
    int applications[TT_ROWS] = {0};
    for (int i = 0; i < p->laps; i++) {
        const tt_op_row row = r->whole[i].row;
        const double forward = lap_price(p, of, r, n, i, true);
        const double backward = lap_price(p, of, r, n, i, false);
        if (r->whole[i].program == 1) {
            price->again[row] += forward;
            applications[row]++;
            price->forward += row == TT_ROW_GELU ? 0 : forward; /* it is part of another's */
            price->backward += backward;
        } else {
            *(r->whole[i].program == 0 ? &price->stem : &price->crown) += forward + backward;
            price->stem_backward += r->whole[i].program == 0 ? backward : 0;
        }
    }
    for (int row = 0; row < TT_ROWS; row++) {
        price->again[row] /= applications[row] > 0 ? applications[row] : 1;
    }
    const double element = 1.0 / (double)p->print.params.total;
    price->squares = element * median(r, n, offsetof(round_times, squares));
    price->adamw = element * median(r, n, offsetof(round_times, adamw));
    price->pack = element * median(r, n, offsetof(round_times, pack));
    price->add = r[0].add;
    for (int64_t i = 1; i < n; i++) {
        price->add = fmin(price->add, r[i].add);
    }
    price->update = price->squares * (double)of->cut.elements +
                    price->adamw * (double)of->shard.elements +
                    price->pack * (double)of->params.total;
    price->step = price->update +
                  rank_tokens(of) * (price->stem + price->crown +
                                     (double)of->shape.L * (price->forward + price->backward));
}

double tt_price_again(const tt_price *price, const tt_blueprint *print,
                      const tt_recompute *recompute)
{
    int64_t runs[TT_ROWS];
    double token = 0;
    tt_recompute_runs(recompute, print->shape.L, runs);
    for (int row = 0; row < TT_ROWS; row++) {
        token += (double)runs[row] * price->again[row];
    }
    return token * rank_tokens(print);
}

tt_code tt_price_measure(tt_price *price, const tt_blueprint *print, tt_err *err)
{
    tt_code rc = TT_OK;
    probe p = {.wanted = 0};
    *price = (tt_price){.rounds = 0};
    round_times *r = tt_alloc(ROUNDS, sizeof *r, err);
    if (r == NULL) {
        rc = err->code;
        goto out;
    }
    TT_TRY(probe_open(&p, print, err));
    if (p.wanted > 0) {
        price->wanted = p.wanted;
        goto out;
    }
    TT_TRY(tt_kernels_self_test(p.wide.ctx != NULL ? p.wide.ctx : &p.ctx, err));
    time_round(&p, &r[0]); /* not counted: pages are touched, caches filled */
    if (p.print.fp8.sites > 0) {
        tt_fp8_push(&p.print.fp8, 1);
    }
    const double start = tt_seconds();
    do {
        time_round(&p, &r[price->rounds++]);
    } while (price->rounds < LEAST_ROUNDS ||
             (price->rounds < ROUNDS && tt_seconds() - start < enough_seconds));
    price->rows = tt_mul(p.batch.B, p.batch.T);
    add_up(price, &p, print, r);
out:
    probe_close(&p);
    free(r);
    return rc;
}
