/* bench_exact.c: what exact mode costs: one trainer makes whole steps in both modes in turn, so that a
 * machine that speeds up or slows down does it to both, and where memory came to lie is the same for
 * both. (Two trainers side by side differ by more than the modes do, either way: some get better
 * pages.) Normal mode uses the front half of the accumulators. Buckets are exact mode's: of as many
 * elements, so half the bytes, in normal mode. */
#include <stdlib.h>

#include "tutti/base/clock.h"
#include "tutti/base/log.h"
#include "tutti/base/narrow.h"
#include "tutti/train/step.h"
#include "tutti/train/storage.h"
#include "tutti/train/trainer.h"

#include "cli/bench_impl.h"

enum { NORMAL, EXACT, MODES };

/* What differs between the modes of one trainer: the same weights, optimizer and scratch, a model of its
 * own over the same activations, accumulators of another kind in the same memory. */
typedef struct tt_view {
    bool exact;
    size_t grad_bytes;
    tt_grad gradient, pieces;
    tt_model *model;
    tt_reduce reduce;
} tt_view;

static tt_view view_of(const tt_trainer *t)
{
    return (tt_view){.exact = t->print.config.run.exact,
                     .grad_bytes = t->print.grad_bytes,
                     .gradient = t->gradient,
                     .pieces = t->pieces,
                     .model = t->model,
                     .reduce = t->tutti.reduce};
}

/* What the trainer counted since is the view's that it leaves. */
static void become(tt_trainer *t, tt_view *leave, const tt_view *view)
{
    *leave = view_of(t);
    t->print.config.run.exact = view->exact;
    t->print.grad_bytes = view->grad_bytes;
    t->gradient = view->gradient;
    t->pieces = view->pieces;
    t->model = view->model;
    t->tutti.reduce = view->reduce;
}

static tt_grad in_floats(const tt_grad *fixed)
{
    return (tt_grad){.sum = (float *)(void *)fixed->fixed};
}

/* The trainer, which is in exact mode, becomes one in normal mode. Collective. */
static tt_code normal_view(tt_trainer *t, tt_err *err)
{
    tt_code rc = TT_OK;
    tt_reduce_spec spec = t->tutti.reduce.spec;
    spec.fixed = false;
    t->print.config.run.exact = false;
    t->print.grad_bytes = sizeof(float);
    t->gradient = in_floats(&t->gradient);
    t->pieces = in_floats(&t->pieces);
    TT_TRY(tt_agree(t->world, tt_storage_remodel(t, err), err));
    rc = tt_reduce_open(&t->tutti.reduce, &spec, err);
out:
    return rc;
}

/* ms[MODES][n] and ratio[n] of n rounds; who goes first takes turns. Collective. */
static tt_code measure(tt_trainer *t, tt_view view[MODES], int64_t n, double *ms[MODES],
                       double *ratio, tt_err *err)
{
    tt_code rc = TT_OK;
    int now = NORMAL;
    for (int64_t round = -1; round < n; round++) { /* the first warms up and is written over */
        const int64_t at = tt_max(round, 0);
        for (int turn = 0; turn < MODES; turn++) {
            const int mode = (int)((round + 1 + turn) % MODES);
            if (mode != now) {
                become(t, &view[now], &view[mode]);
                now = mode;
            }
            TT_TRY(tt_bench_one_step(t, &ms[mode][at], err));
        }
        ratio[at] = ms[EXACT][at] / ms[NORMAL][at];
    }
out:
    return rc;
}

/* The trainer owns what is in it now, each view what it was left with. */
static void close_views(tt_trainer *t, tt_view view[MODES])
{
    for (int mode = 0; mode < MODES; mode++) {
        if (view[mode].model != t->model) {
            tt_reduce_close(&view[mode].reduce);
            tt_model_close(view[mode].model);
        }
    }
    tt_trainer_close(t);
}

tt_code tt_bench_exact(tt_bench *bench, tt_err *err)
{
    tt_code rc = TT_OK;
    tt_trainer trainer = {0};
    tt_view view[MODES] = {{0}};
    tt_noise noise = {0};
    tt_log log = tt_log_open(bench->world->rank);
    const int64_t n = bench->repeat;
    double *memory = tt_alloc(tt_mul(MODES + 1, n), sizeof *memory, err);
    TT_TRY(tt_agree(bench->world, memory != NULL ? TT_OK : err->code, err));
    double *ms[MODES] = {memory, memory + n}, *ratio = memory + 2 * n;
    TT_TRY(tt_noise_open(&noise, bench, err));
    bench->config.run.steps = 2 * (n + 1);
    bench->config.run.exact = true;
    TT_TRY(tt_trainer_open(&trainer, &bench->config, bench->world, &log, err));
    tt_noise_close(&noise);
    view[EXACT] = view_of(&trainer);
    TT_TRY(normal_view(&trainer, err));
    view[NORMAL] = view_of(&trainer);
    TT_TRY(measure(&trainer, view, n, ms, ratio, err));
    const tt_blueprint *print = &trainer.print;
    const double planned = (double)print->plan.total / 1048576.0;
    const double wider = (double)tt_bytes(print->params.total, sizeof(int64_t) - sizeof(float));
    const double middle = tt_median(ratio, n); /* which sorts them */
    tt_text_add(&bench->out,
                bench->json
                    ? "{\"normal_ms\": %.2f, \"exact_ms\": %.2f, \"exact_over_normal\": %.4f, "
                      "\"lower_quartile\": %.4f, \"upper_quartile\": %.4f, "
                    : "normal %.1f ms a step, exact %.1f ms (medians); exact takes %.4f times as "
                      "long (median of rounds; half of them between %.4f and %.4f)\n",
                tt_median(ms[NORMAL], n), tt_median(ms[EXACT], n), middle, ratio[n / 4],
                ratio[n - 1 - n / 4]);
    tt_text_add(&bench->out,
                bench->json ? "\"normal_planned_mb\": %.1f, \"exact_planned_mb\": %.1f, "
                            : "planned %.0f MiB a rank, exact %.0f MiB; ",
                planned - wider / 1048576.0, planned);
    tt_text_add(&bench->out,
                bench->json ? "\"rounds\": %lld, \"ranks\": %d, \"threads\": %d, "
                              "\"tokens_per_step\": %lld, \"isa\": \"%s\"}\n"
                            : "%lld rounds, %d ranks of %d threads, %lld tokens a step, %s\n",
                (long long)n, print->plan.ranks, print->plan.threads,
                (long long)print->plan.tokens_per_step, print->ops.isa);
out:
    close_views(&trainer, view);
    tt_noise_close(&noise);
    free(memory);
    return rc;
}
