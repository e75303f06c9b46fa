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
#include "tutti/train/trainer.h"

#include "cli/bench_impl.h"

enum { NORMAL, EXACT, MODES };

/* A second view of an open trainer in exact mode: the same weights, optimizer and scratch, a model of
 * its own over the same activations, accumulators in FP32. Owns the model alone. */
static tt_code normal_view(tt_trainer *view, const tt_trainer *exact, tt_err *err)
{
    const tt_blueprint *p = &exact->print;
    tt_arena activations = exact->arena[TT_MEM_ACTIVATIONS], packed = exact->arena[TT_MEM_PACKED];
    *view = *exact;
    view->print.config.run.exact = false;
    view->print.grad_bytes = sizeof(float);
    view->gradient = (tt_grad){.sum = (float *)(void *)exact->gradient.fixed};
    activations.used = packed.used = 0;
    return tt_model_open(&view->model, &p->shape, &p->params, &view->ctx, view->weights,
                         &view->gradient, tt_blueprint_fp8(&view->print), &view->wide,
                         &p->recompute, p->split.micro, p->shape.T, &activations,
                         p->config.memory.pack_weights ? &packed : NULL, err);
}

/* ms[MODES][n] and ratio[n] of n rounds; who goes first takes turns. Collective. */
static tt_code measure(tt_trainer trainer[MODES], int64_t n, double *ms[MODES], double *ratio,
                       tt_err *err)
{
    tt_code rc = TT_OK;
    for (int64_t round = -1; round < n; round++) { /* the first warms up and is written over */
        const int64_t at = tt_max(round, 0);
        for (int turn = 0; turn < MODES; turn++) {
            const int mode = (int)((round + 1 + turn) % MODES);
            TT_TRY(tt_bench_one_step(&trainer[mode], &ms[mode][at], err));
        }
        ratio[at] = ms[EXACT][at] / ms[NORMAL][at];
    }
out:
    return rc;
}

tt_code tt_bench_exact(tt_bench *bench, tt_err *err)
{
    tt_code rc = TT_OK;
    tt_trainer trainer[MODES] = {{0}};
    tt_noise noise = {0};
    tt_log log = tt_log_open(bench->world->rank);
    const int64_t n = bench->repeat;
    double *memory = tt_alloc(tt_mul(MODES + 1, n), sizeof *memory, err);
    TT_TRY(tt_agree(bench->world, memory != NULL ? TT_OK : err->code, err));
    double *ms[MODES] = {memory, memory + n}, *ratio = memory + 2 * n;
    TT_TRY(tt_noise_open(&noise, bench, err));
    bench->config.run.steps = 2 * (n + 1);
    bench->config.run.exact = true;
    TT_TRY(tt_trainer_open(&trainer[EXACT], &bench->config, bench->world, &log, err));
    tt_noise_close(&noise);
    TT_TRY(tt_agree(bench->world, normal_view(&trainer[NORMAL], &trainer[EXACT], err), err));
    TT_TRY(measure(trainer, n, ms, ratio, err));
    const tt_blueprint *print = &trainer[EXACT].print;
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
    tt_model_close(trainer[NORMAL].model);
    tt_trainer_close(&trainer[EXACT]);
    tt_noise_close(&noise);
    free(memory);
    return rc;
}
