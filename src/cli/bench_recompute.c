/* bench_recompute.c: what computing activations again costs, and what it saves: one trainer makes
 * whole steps with each choice of memory.recompute in turn, so that a machine that speeds up or slows
 * down does it to all, in the same memory: that of `none`, which is enough for each of them. */
#include <stdlib.h>
#include <string.h>

#include "tutti/base/clock.h"
#include "tutti/base/log.h"
#include "tutti/base/narrow.h"
#include "tutti/train/storage.h"
#include "tutti/train/techniques.h"
#include "tutti/train/trainer.h"

#include "cli/bench_impl.h"

enum { KINDS = TT_RECOMPUTE_KINDS };

/* From now on the trainer goes by this choice. Local. */
static tt_code choose(tt_trainer *t, tt_recompute_kind kind, tt_err *err)
{
    tt_blueprint *p = &t->print;
    tt_model_close(t->model);
    t->model = NULL;
    p->recompute = tt_recompute_make(kind, p->shape.L, 0, tt_blueprint_fp8(p) != NULL);
    return tt_storage_remodel(t, err);
}

/* ms[KINDS][n] of n rounds, and ratio[KINDS][n] to none in the same round; who goes first takes turns.
 * Collective. */
static tt_code measure(tt_trainer *t, int64_t n, double *ms[KINDS], double *ratio[KINDS],
                       tt_err *err)
{
    tt_code rc = TT_OK;
    for (int64_t round = -1; round < n; round++) { /* the first warms up and is written over */
        const int64_t at = tt_max(round, 0);
        for (int turn = 0; turn < KINDS; turn++) {
            const int kind = (int)((round + 1 + turn) % KINDS);
            TT_TRY(tt_agree(t->world, choose(t, (tt_recompute_kind)kind, err), err));
            TT_TRY(tt_bench_one_step(t, &ms[kind][at], err));
        }
        for (int kind = 0; kind < KINDS; kind++) {
            ratio[kind][at] = ms[kind][at] / ms[TT_RECOMPUTE_NONE][at];
        }
    }
out:
    return rc;
}

static void add_row(tt_bench *bench, const tt_blueprint *p, int kind, double *ms, double *ratio)
{
    const int64_t n = bench->repeat;
    const tt_recompute r =
        tt_recompute_make((tt_recompute_kind)kind, p->shape.L, 0, p->fp8.sites > 0);
    size_t bytes[TT_MEM_COMPONENTS], group[TT_GROUPS], kept;
    tt_plan_memory(p, p->split.micro, &r, bytes, &kept);
    tt_group_bytes(bytes, p->plan.libraries, group);
    const double again = tt_recompute_flops_per_token(&r, &p->shape, &p->params);
    const double middle = tt_median(ratio, n); /* which sorts them */
    tt_text_add(&bench->out,
                bench->json
                    ? "{\"recompute\": \"%s\", \"ms\": %.2f, \"over_none\": %.4f, "
                      "\"lower_quartile\": %.4f, \"upper_quartile\": %.4f, \"flops_over_none\": "
                      "%.4f, \"activations_mb\": %.4f, \"kept_mb\": %.4f, \"planned_mb\": %.1f}\n"
                    : "%-10s %10.1f %8.3f  %.3f to %.3f %8.3f %10.1f %10.1f %10.1f\n",
                tt_recompute_names[kind], tt_median(ms, n), middle, ratio[n / 4],
                ratio[n - 1 - n / 4], 1 + again / tt_model_flops_per_token(&p->shape, &p->params),
                (double)group[TT_GROUP_ACTIVATIONS] / 1048576.0, (double)kept / 1048576.0,
                (double)group[TT_GROUP_TOTAL] / 1048576.0);
}

tt_code tt_bench_recompute(tt_bench *bench, tt_err *err)
{
    tt_code rc = TT_OK;
    tt_trainer trainer = {0};
    tt_noise noise = {0};
    tt_log log = tt_log_open(bench->world->rank);
    const int64_t n = bench->repeat;
    double *memory = tt_alloc(tt_mul(2 * KINDS, n), sizeof *memory, err);
    TT_TRY(tt_agree(bench->world, memory != NULL ? TT_OK : err->code, err));
    double *ms[KINDS], *ratio[KINDS];
    for (int kind = 0; kind < KINDS; kind++) {
        ms[kind] = memory + kind * n;
        ratio[kind] = memory + (KINDS + kind) * n;
    }
    if (strcmp(bench->config.memory.recompute, "none") != 0) {
        rc = tt_fail(err, TT_EUSER,
                     "memory.recompute: %s has no meaning in tutti bench recompute, which measures "
                     "all of them",
                     bench->config.memory.recompute);
    }
    TT_TRY(tt_agree(bench->world, rc, err));
    TT_TRY(tt_noise_open(&noise, bench, err));
    bench->config.run.steps = KINDS * (n + 1);
    TT_TRY(tt_trainer_open(&trainer, &bench->config, bench->world, &log, err));
    tt_noise_close(&noise);
    TT_TRY(measure(&trainer, n, ms, ratio, err));
    if (!bench->json) {
        tt_text_add(&bench->out, "%-10s %10s %8s  %14s %8s %10s %10s %10s\n", "recompute", "ms",
                    "x none", "quartiles", "FLOPs", "act. MiB", "kept MiB", "total MiB");
    }
    const tt_blueprint *print = &trainer.print;
    for (int kind = 0; kind < KINDS; kind++) {
        add_row(bench, print, kind, ms[kind], ratio[kind]);
    }
    if (!bench->json) {
        tt_text_add(&bench->out,
                    "\n%lld rounds, of which the medians; %d rank%s of %d thread%s, %lld blocks, "
                    "micro %lld, %lld tokens a "
                    "step, %s, %s; memory as planned, a rank\n",
                    (long long)n, print->plan.ranks, print->plan.ranks == 1 ? "" : "s",
                    print->plan.threads, print->plan.threads == 1 ? "" : "s",
                    (long long)print->shape.L, (long long)print->split.micro,
                    (long long)print->plan.tokens_per_step, print->ops.isa,
                    print->config.precision.compute);
    }
out:
    tt_trainer_close(&trainer);
    tt_noise_close(&noise);
    free(memory);
    return rc;
}
