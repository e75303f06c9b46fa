/* bench_step.c: whole optimizer steps on random tokens of the whole vocabulary, and where their time
 * goes. The peak is measured before and after every step, by all ranks at once. */
#include <stdlib.h>

#include "tutti/base/clock.h"
#include "tutti/base/log.h"
#include "tutti/base/narrow.h"
#include "tutti/train/step.h"
#include "tutti/train/trainer.h"

#include "cli/bench_impl.h"

/* Values of every measured step, and of the peak beside it. */
typedef struct tt_step_rounds {
    double *ms, *tokens_per_s, *mfu, *comm_ms, *exposed_ms, *imbalance_ms, *rss_mb,
        *peak;      /* [repeat] in `memory` */
    double *memory; /* owned */
} tt_step_rounds;

enum { VALUES = 8 };

static tt_code rounds_open(tt_step_rounds *r, int64_t n, tt_err *err)
{
    double *at = tt_alloc(tt_mul(VALUES, n), sizeof *at, err);
    if (!at) {
        return err->code;
    }
    *r = (tt_step_rounds){at,         at + n,     at + 2 * n, at + 3 * n, at + 4 * n,
                          at + 5 * n, at + 6 * n, at + 7 * n, at};
    return TT_OK;
}

/* FLOP/s of all ranks at once. Collective. */
static tt_code measure_peak(tt_trainer *t, const tt_ops *ops, double *peak, tt_err *err)
{
    *peak = ops->peak(&t->ctx, 0.05) * tt_world_processor_share(t->world, t->ctx.threads);
    return tt_sum_f64(t->world, peak, 1, err);
}

/* One step that is not counted, then `n`. Collective. */
static tt_code measure(tt_trainer *t, int64_t n, tt_step_rounds *r, tt_times *times,
                       tt_step_cost *cost, tt_err *err)
{
    tt_code rc = TT_OK;
    const tt_request request = {.code = TT_OK};
    const tt_ops *untimed = t->ctx.ops, *untimed_wide = t->wide_ctx.ops;
    tt_ops timed, timed_wide;
    tt_record record = {0};
    double before = 0, after = 0;
    TT_TRY(tt_agree(t->world, tt_kernels_time(&t->ctx, &timed, times, err), err));
    if (t->wide.ctx != NULL) { /* both count into the same rows */
        TT_TRY(tt_agree(t->world, tt_kernels_time(&t->wide_ctx, &timed_wide, times, err), err));
    }
    TT_TRY(tt_step(t, &request, &record, err));
    *times = (tt_times){.depth = 0};
    TT_TRY(measure_peak(t, untimed, &after, err));
    for (int64_t i = 0; i < n; i++) {
        const tt_wire wire = tt_world_wire(t->world);
        const double start = tt_seconds();
        TT_TRY(tt_step(t, &request, &record, err));
        cost->seconds += tt_seconds() - start;
        cost->wire += tt_world_wire(t->world).exposed - wire.exposed;
        cost->wire_calls += t->world->wire.calls - wire.calls;
        cost->data += record.data_ms / 1e3;
        before = after;
        TT_TRY(measure_peak(t, untimed, &after, err));
        r->peak[i] = (before + after) / 2;
        r->ms[i] = record.step_ms;
        r->tokens_per_s[i] = record.tokens_per_s;
        r->mfu[i] = t->print.plan.flops_per_step / (record.step_ms / 1e3) / r->peak[i];
        r->comm_ms[i] = record.comm_ms;
        r->exposed_ms[i] = record.comm_exposed_ms;
        r->imbalance_ms[i] = record.imbalance_ms;
        r->rss_mb[i] = record.rss_mb;
    }
    cost->steps = n;
    cost->ops = times;
out:
    t->ctx.ops = untimed; /* the clocks end with this function */
    t->ctx.base = NULL;
    t->ctx.times = NULL;
    t->wide_ctx.ops = untimed_wide;
    t->wide_ctx.base = NULL;
    t->wide_ctx.times = NULL;
    return rc;
}

tt_code tt_bench_one_step(tt_trainer *t, double *ms, tt_err *err)
{
    const tt_request request = {.code = TT_OK};
    tt_record record = {0};
    tt_code rc = tt_step(t, &request, &record, err);
    *ms = record.step_ms;
    return rc;
}

tt_code tt_bench_step(tt_bench *bench, tt_err *err)
{
    tt_code rc = TT_OK;
    tt_trainer trainer = {0};
    tt_noise noise = {0};
    tt_log log = tt_log_open(bench->world->rank);
    tt_step_rounds r = {0};
    tt_times times;
    tt_step_cost cost = {0};
    const int64_t n = bench->repeat;
    TT_TRY(tt_agree(bench->world, rounds_open(&r, n, err), err));
    TT_TRY(tt_noise_open(&noise, bench, err));
    bench->config.run.steps = n + 1;
    TT_TRY(tt_trainer_open(&trainer, &bench->config, bench->world, &log, err));
    tt_noise_close(&noise); /* all have the file open: whatever ends the bench, nothing is left */
    TT_TRY(measure(&trainer, n, &r, &times, &cost, err));
    const tt_plan *plan = &trainer.print.plan;
    const double peak = tt_median(r.peak, n);
    cost.peak = peak / plan->ranks;
    tt_text_add(&bench->out,
                bench->json
                    ? "{\"step_ms\": %.2f, \"tokens_per_s\": %.1f, \"mfu\": %.4f, "
                      "\"comm_ms\": %.2f, \"comm_exposed_ms\": %.2f, \"imbalance_ms\": %.2f, "
                      "\"rss_mb\": %.1f, "
                    : "step %.1f ms, %.1f tokens/s, mfu %.3f, communication %.1f ms of which %.1f "
                      "exposed, imbalance %.1f ms, resident %.0f MiB a rank (medians)\n",
                tt_median(r.ms, n), tt_median(r.tokens_per_s, n), tt_median(r.mfu, n),
                tt_median(r.comm_ms, n), tt_median(r.exposed_ms, n), tt_median(r.imbalance_ms, n),
                tt_median(r.rss_mb, n));
    tt_text_add(&bench->out,
                bench->json ? "\"peak_gflops\": %.1f, \"ranks\": %d, \"threads\": %d, "
                              "\"tokens_per_step\": %lld, \"planned_mb\": %.1f, \"isa\": \"%s\", "
                              "\"compute\": \"%s\"}\n"
                            : "peak %.1f GFLOP/s over %d ranks of %d threads, %lld tokens a step, "
                              "planned %.0f MiB a rank, %s, %s\n\n",
                peak / 1e9, plan->ranks, plan->threads, (long long)plan->tokens_per_step,
                (double)plan->total / 1048576.0, trainer.print.ops.isa,
                trainer.print.config.precision.compute);
    tt_phases_print(&cost, bench->json, &bench->out);
out:
    tt_trainer_close(&trainer);
    tt_noise_close(&noise);
    free(r.memory);
    return rc;
}
