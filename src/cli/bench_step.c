/* bench_step.c: whole optimizer steps on random tokens of the whole vocabulary, and where their time
 * goes. The peak is measured before and after every step, by all ranks at once. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tutti/base/clock.h"
#include "tutti/base/file.h"
#include "tutti/base/log.h"
#include "tutti/base/narrow.h"
#include "tutti/data/tokens.h"
#include "tutti/dist/share.h"
#include "tutti/train/step.h"
#include "tutti/train/trainer.h"

#include "cli/bench_impl.h"

/* A folder of rank 0's with a token file. */
typedef struct tt_scratch {
    char *folder, *tokens, *run; /* owned */
} tt_scratch;

static tt_code scratch_open(tt_scratch *scratch, int64_t vocab, int64_t tokens, tt_err *err)
{
    tt_code rc = TT_OK;
    const char *base = getenv("TMPDIR");
    scratch->folder = tt_join(base && base[0] ? base : "/tmp", "tutti-bench-XXXXXX", err);
    if (!scratch->folder) {
        return err->code;
    }
    if (!mkdtemp(scratch->folder)) {
        rc = tt_fail(err, TT_EWORLD, "cannot make a folder like %s: %s", scratch->folder,
                     strerror(errno));
        goto out;
    }
    scratch->tokens = tt_join(scratch->folder, "noise.h5", err);
    scratch->run = tt_join(scratch->folder, "run", err);
    if (!scratch->tokens || !scratch->run) {
        rc = err->code;
        goto out;
    }
    TT_TRY(tt_tokens_noise_file(scratch->tokens, vocab, tokens, 1, err));
out:
    return rc;
}

/* Best effort: what is left is in the system's folder for temporary files. */
static void scratch_close(tt_scratch *scratch)
{
    if (scratch->tokens) {
        unlink(scratch->tokens);
    }
    if (scratch->run) {
        rmdir(scratch->run);
    }
    if (scratch->folder) {
        rmdir(scratch->folder);
    }
    free(scratch->folder);
    free(scratch->tokens);
    free(scratch->run);
    *scratch = (tt_scratch){0};
}

/* Paths of rank 0's scratch into every rank's configuration. Collective. */
static tt_code share_paths(tt_bench *bench, const tt_scratch *scratch, tt_err *err)
{
    tt_code rc = TT_OK;
    tt_text path = {0};
    tt_config *config = &bench->config;
    if (bench->world->rank == 0) {
        tt_text_add(&path, "%s", scratch->folder);
    }
    TT_TRY(tt_share_text(bench->world, &path, err));
    if (strlen(path.data) + sizeof "/noise.h5" > sizeof config->data.train) { /* the same on all */
        rc = tt_fail(err, TT_EUSER, "TMPDIR: the path is longer than %zu bytes",
                     sizeof config->data.train - sizeof "/tutti-bench-XXXXXX/noise.h5");
        goto out;
    }
    snprintf(config->data.train, sizeof config->data.train, "%s/noise.h5", path.data);
    snprintf(config->run.dir, sizeof config->run.dir, "%s/run", path.data);
out:
    tt_text_free(&path);
    return rc;
}

/* Values of every measured step, and of the peak beside it. */
typedef struct tt_step_rounds {
    double *ms, *tokens_per_s, *mfu, *comm_ms, *rss_mb, *peak; /* [repeat] in `memory` */
    double *memory;                                            /* owned */
} tt_step_rounds;

enum { VALUES = 6 };

static tt_code rounds_open(tt_step_rounds *r, int64_t n, tt_err *err)
{
    double *at = tt_alloc(tt_mul(VALUES, n), sizeof *at, err);
    if (!at) {
        return err->code;
    }
    *r = (tt_step_rounds){at, at + n, at + 2 * n, at + 3 * n, at + 4 * n, at + 5 * n, at};
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
    const tt_request request = {false, TT_OK, {TT_OK, ""}};
    const tt_ops *untimed = t->ctx.ops;
    tt_ops timed;
    tt_record record = {0};
    double before = 0, after = 0;
    TT_TRY(tt_agree(t->world, tt_kernels_time(&t->ctx, &timed, times, err), err));
    TT_TRY(tt_step(t, &request, &record, err));
    *times = (tt_times){.depth = 0};
    TT_TRY(measure_peak(t, untimed, &after, err));
    for (int64_t i = 0; i < n; i++) {
        const tt_wire wire = t->world->wire;
        const double start = tt_seconds();
        TT_TRY(tt_step(t, &request, &record, err));
        cost->seconds += tt_seconds() - start;
        cost->wire += t->world->wire.seconds - wire.seconds;
        cost->wire_calls += t->world->wire.calls - wire.calls;
        cost->data += record.data_ms / 1e3;
        before = after;
        TT_TRY(measure_peak(t, untimed, &after, err));
        r->peak[i] = (before + after) / 2;
        r->ms[i] = record.step_ms;
        r->tokens_per_s[i] = record.tokens_per_s;
        r->mfu[i] = t->print.plan.flops_per_step / (record.step_ms / 1e3) / r->peak[i];
        r->comm_ms[i] = record.comm_ms;
        r->rss_mb[i] = record.rss_mb;
    }
    cost->steps = n;
    cost->ops = times;
out:
    t->ctx.ops = untimed; /* the clocks end with this function */
    t->ctx.base = NULL;
    t->ctx.times = NULL;
    return rc;
}

tt_code tt_bench_step(tt_bench *bench, tt_err *err)
{
    tt_code rc = TT_OK;
    tt_trainer trainer = {0};
    tt_scratch scratch = {0};
    tt_log log = tt_log_open(bench->world->rank);
    tt_step_rounds r = {0};
    tt_times times;
    tt_step_cost cost = {0};
    const int64_t n = bench->repeat;
    tt_shape shape;
    rc = rounds_open(&r, n, err);
    if (rc == TT_OK) {
        rc = tt_shape_resolve(&shape, &bench->config, 0, err);
    }
    if (rc == TT_OK && bench->world->rank == 0) {
        rc = scratch_open(&scratch, bench->config.model.vocab, bench->config.model.context * 64,
                          err);
    }
    TT_TRY(tt_agree(bench->world, rc, err));
    TT_TRY(share_paths(bench, &scratch, err));
    bench->config.run.steps = n + 1;
    TT_TRY(tt_trainer_open(&trainer, &bench->config, bench->world, &log, err));
    scratch_close(&scratch); /* all have the file open: whatever ends the bench, nothing is left */
    TT_TRY(measure(&trainer, n, &r, &times, &cost, err));
    const tt_plan *plan = &trainer.print.plan;
    const double peak = tt_median(r.peak, n);
    cost.peak = peak / plan->ranks;
    tt_text_add(&bench->out,
                bench->json
                    ? "{\"step_ms\": %.2f, \"tokens_per_s\": %.1f, \"mfu\": %.4f, "
                      "\"comm_ms\": %.2f, \"rss_mb\": %.1f, "
                    : "step %.1f ms, %.1f tokens/s, mfu %.3f, communication %.1f ms, resident "
                      "%.0f MiB a rank (medians)\n",
                tt_median(r.ms, n), tt_median(r.tokens_per_s, n), tt_median(r.mfu, n),
                tt_median(r.comm_ms, n), tt_median(r.rss_mb, n));
    tt_text_add(&bench->out,
                bench->json ? "\"peak_gflops\": %.1f, \"ranks\": %d, \"threads\": %d, "
                              "\"tokens_per_step\": %lld, \"planned_mb\": %.1f, \"isa\": \"%s\"}\n"
                            : "peak %.1f GFLOP/s over %d ranks of %d threads, %lld tokens a step, "
                              "planned %.0f MiB a rank, %s\n\n",
                peak / 1e9, plan->ranks, plan->threads, (long long)plan->tokens_per_step,
                (double)plan->total / 1048576.0, trainer.print.ops.isa);
    tt_phases_print(&cost, bench->json, &bench->out);
out:
    tt_trainer_close(&trainer);
    scratch_close(&scratch);
    free(r.memory);
    return rc;
}
