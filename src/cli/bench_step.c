/* bench_step.c: whole optimizer steps, and the reduction alone. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tutti/base/clock.h"
#include "tutti/base/file.h"
#include "tutti/base/log.h"
#include "tutti/base/narrow.h"
#include "tutti/base/rng.h"
#include "tutti/data/tokens.h"
#include "tutti/dist/reduce.h"
#include "tutti/dist/share.h"
#include "tutti/train/step.h"
#include "tutti/train/trainer.h"

#include "cli/bench_impl.h"

/* A folder of rank 0's with a token file of random text, enough for one epoch of `tokens`. */
typedef struct tt_scratch {
    char *folder, *text, *tokens, *run; /* owned */
} tt_scratch;

static tt_code write_noise(const char *path, int64_t bytes, tt_err *err)
{
    tt_code rc = TT_OK;
    const tt_key key = tt_rng_key(1, TT_RNG_TEST, 0);
    FILE *file = fopen(path, "w");
    bool good = file != NULL;
    for (int64_t i = 0; i < bytes && good; i++) {
        good = fputc('a' + (int)(tt_rng(key, 0, (uint64_t)i).v[0] % 26), file) != EOF;
    }
    if (file && fclose(file) != 0) {
        good = false;
    }
    if (!good) {
        rc = tt_fail(err, TT_EWORLD, "cannot write %s: %s", path, strerror(errno));
    }
    return rc;
}

static tt_code scratch_open(tt_scratch *scratch, int64_t tokens, tt_err *err)
{
    tt_code rc = TT_OK;
    tt_tokens_summary summary;
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
    scratch->text = tt_join(scratch->folder, "noise.txt", err);
    scratch->tokens = tt_join(scratch->folder, "noise.h5", err);
    scratch->run = tt_join(scratch->folder, "run", err);
    if (!scratch->text || !scratch->tokens || !scratch->run) {
        rc = err->code;
        goto out;
    }
    TT_TRY(write_noise(scratch->text, tokens, err));
    const tt_tokens_build build = {
        .out = scratch->tokens, .tokenizer = "bytes", .inputs = 1, .input = &scratch->text};
    TT_TRY(tt_tokens_build_file(&build, &summary, err));
out:
    return rc;
}

/* Best effort: what is left is in the system's folder for temporary files. */
static void scratch_close(tt_scratch *scratch)
{
    if (scratch->text) {
        unlink(scratch->text);
    }
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
    free(scratch->text);
    free(scratch->tokens);
    free(scratch->run);
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
    snprintf(config->data.train, sizeof config->data.train, "%s/noise.h5", path.data);
    snprintf(config->run.dir, sizeof config->run.dir, "%s/run", path.data);
out:
    tt_text_free(&path);
    return rc;
}

tt_code tt_bench_step(tt_bench *bench, tt_err *err)
{
    tt_code rc = TT_OK;
    tt_trainer trainer = {0};
    tt_scratch scratch = {0};
    tt_log log = tt_log_open(bench->world->rank);
    tt_record record = {0};
    const tt_request request = {false, TT_OK, {TT_OK, ""}};
    const int64_t rows = 5, n = bench->repeat;
    double *value = tt_alloc(tt_mul(rows, n), sizeof *value, err);
    rc = value ? TT_OK : err->code;
    if (rc == TT_OK && bench->world->rank == 0) {
        rc = scratch_open(&scratch, bench->config.model.context * 64, err);
    }
    TT_TRY(tt_agree(bench->world, rc, err));
    TT_TRY(share_paths(bench, &scratch, err));
    bench->config.run.steps = n + 1;
    TT_TRY(tt_trainer_open(&trainer, &bench->config, bench->world, &log, err));
    for (int64_t i = -1; i < n; i++) { /* -1: not counted */
        int64_t at = tt_max(i, 0);
        TT_TRY(tt_step(&trainer, &request, &record, err));
        value[at] = record.step_ms;
        value[n + at] = record.tokens_per_s;
        value[2 * n + at] = record.mfu;
        value[3 * n + at] = record.comm_ms;
        value[4 * n + at] = record.rss_mb;
    }
    const tt_plan *plan = &trainer.print.plan;
    tt_text_add(&bench->out,
                bench->json
                    ? "{\"step_ms\": %.2f, \"tokens_per_s\": %.1f, \"mfu\": %.4f, "
                      "\"comm_ms\": %.2f, \"rss_mb\": %.1f, "
                    : "step %.1f ms, %.1f tokens/s, mfu %.3f, communication %.1f ms, resident "
                      "%.0f MiB a rank\n",
                tt_median(value, n), tt_median(value + n, n), tt_median(value + 2 * n, n),
                tt_median(value + 3 * n, n), tt_median(value + 4 * n, n));
    tt_text_add(&bench->out,
                bench->json ? "\"peak_gflops\": %.1f, \"ranks\": %d, \"threads\": %d, "
                              "\"tokens_per_step\": %lld, \"planned_mb\": %.1f, \"isa\": \"%s\"}\n"
                            : "peak %.1f GFLOP/s over %d ranks of %d threads, %lld tokens a step, "
                              "planned %.0f MiB a rank, %s\n",
                trainer.peak_flops / 1e9, plan->ranks, plan->threads,
                (long long)plan->tokens_per_step, (double)plan->total / 1048576.0,
                trainer.print.ops.isa);
out:
    tt_trainer_close(&trainer);
    scratch_close(&scratch);
    free(value);
    return rc;
}

/* Seconds of one sum of `elements` FP32 numbers over all ranks, the slowest rank's. Collective. */
static tt_code time_sum(tt_bench *bench, float *data, int64_t elements, double *seconds,
                        tt_err *err)
{
    tt_code rc = TT_OK;
    tt_buckets buckets = {0};
    tt_reduce reduce;
    TT_TRY(tt_agree(
        bench->world,
        tt_buckets_make(&buckets, &elements, 1, bench->config.dist.bucket_mb * 1000000 / 4, err),
        err));
    TT_TRY(tt_barrier(bench->world, err));
    double start = tt_seconds();
    tt_reduce_begin(&reduce, bench->world, &buckets, data);
    TT_TRY(tt_reduce_finish(&reduce, err));
    *seconds = tt_seconds() - start;
    TT_TRY(tt_max_f64(bench->world, seconds, 1, err));
out:
    tt_buckets_free(&buckets);
    return rc;
}

tt_code tt_bench_allreduce(tt_bench *bench, tt_err *err)
{
    tt_code rc = TT_OK;
    enum { SMALLEST = 1 << 14, LARGEST = 1 << 26 }; /* elements: 64 KiB to 256 MiB */
    const double R = bench->world->size;
    tt_arena arena = {0};
    double *value = tt_alloc(bench->repeat, sizeof *value, err);
    rc = value ? TT_OK : err->code;
    if (rc == TT_OK && bench->world->size < 2) {
        rc = tt_fail(err, TT_EUSER,
                     "tutti bench allreduce needs at least 2 ranks: mpirun -n 2 tutti "
                     "bench allreduce");
    }
    if (rc == TT_OK) {
        rc = tt_arena_open(&arena, "vector", 2 * tt_bytes(LARGEST, sizeof(float)), err);
    }
    TT_TRY(tt_agree(bench->world, rc, err));
    float *data = tt_arena_take(&arena, tt_bytes(LARGEST, sizeof(float)));
    float *copy = tt_arena_take(&arena, tt_bytes(LARGEST, sizeof(float)));
    memset(data, 0, tt_bytes(LARGEST, sizeof(float))); /* zeros stay zeros however often summed */
    memset(copy, 0, tt_bytes(LARGEST, sizeof(float)));
    if (!bench->json) {
        tt_text_add(&bench->out, "%12s %10s %12s %12s %14s\n", "bytes", "ms", "algbw GB/s",
                    "busbw GB/s", "memcpy GB/s");
    }
    for (int64_t n = SMALLEST; n <= LARGEST; n *= 4) {
        double seconds = 0, start;
        for (int64_t i = -1; i < bench->repeat; i++) { /* -1: not counted */
            TT_TRY(time_sum(bench, data, n, &seconds, err));
            value[tt_max(i, 0)] = seconds;
        }
        seconds = tt_median(value, bench->repeat);
        for (int64_t i = 0; i < bench->repeat; i++) {
            TT_TRY(tt_barrier(bench->world, err));
            start = tt_seconds();
            memcpy(copy, data, tt_bytes(n, sizeof(float)));
            value[i] = tt_seconds() - start;
        }
        double bytes = 4.0 * (double)n, memory = tt_median(value, bench->repeat);
        tt_text_add(&bench->out,
                    bench->json ? "{\"bytes\": %.0f, \"ms\": %.4f, \"algbw_gb_s\": %.3f, "
                                  "\"busbw_gb_s\": %.3f, \"memcpy_gb_s\": %.3f}\n"
                                : "%12.0f %10.3f %12.3f %12.3f %14.3f\n",
                    bytes, 1e3 * seconds, bytes / seconds / 1e9,
                    bytes / seconds / 1e9 * 2 * (R - 1) / R, bytes / memory / 1e9);
    }
out:
    tt_arena_close(&arena);
    free(value);
    return rc;
}
