/* bench.c: `tutti bench WHAT [key=value ...]`: measurements, by the same kernels that train. */
#include <stdio.h>
#include <string.h>

#include "cli/bench_impl.h"
#include "cli/cli_impl.h"

static const char usage[] =
    "usage: tutti bench peak|gemm|attention|step|exact|recompute|allreduce|optimizer_file\n"
    "                   |checkpoint [key=value ...] [--repeat N] [--shape MxNxK] [--from SIZE] "
    "[--to SIZE]\n"
    "                   [--json]\n\n"
    "peak       FLOP/s of the units, FMA and BF16's, and the speed of memory\n"
    "gemm       every matmul shape of the model and eight others, or the one of --shape, in three\n"
    "           variants\n"
    "attention  forward and backward, the model's shape and others\n"
    "step       whole optimizer steps on random tokens, and a table of time per phase (also under\n"
    "           mpirun)\n"
    "exact      whole steps in normal and in exact mode, in turn: what exact mode costs (also "
    "under\n"
    "           mpirun)\n"
    "recompute  whole steps with each memory.recompute, in turn: what they cost and save (also "
    "under\n"
    "           mpirun)\n"
    "allreduce  the collectives of a step in pieces of dist.bucket_mb, on FP32 vectors from "
    "--from\n"
    "           (default 1KiB) to --to (256MiB), each 4 times the last, checked, beside a copy on "
    "all\n"
    "           ranks at once (under mpirun)\n"
    "optimizer_file  the update with memory.optimizer_file and without, beside the speed of the "
    "disk\n"
    "checkpoint  a save beside the speed of the disk that TMPDIR names, and what one takes from "
    "training\n"
    "           (also under mpirun)\n\n"
    "Shapes come from the configuration keys (default: GPT-2 124M, vocabulary 50304, context "
    "1024,\n"
    "micro 4); threads from run.threads, else one and all. Medians of N runs (default 7); the\n"
    "phases of a step are means. --json: one object a line.\n\n"
    "Peak: multiply-adds of the unit that serves the matmuls, on registers alone, the best short\n"
    "bursts of all threads added up, over all ranks; measured beside each run, and what "
    "percentages\n"
    "are of. mfu: a step's FLOPs (6 per token and matmul weight, 6 L C T for attention) by time "
    "and\n"
    "peak. algbw: the vector's bytes by time; busbw: (R-1)/R of them, which each of R ranks must\n"
    "send, by time, and twice that for a sum that all get. nt: y[M,N] = x[M,K] w[N,K]^T; nn:\n"
    "dx = dy w; tn: gw += dy^T x.\n";

typedef struct tt_bench_row {
    const char *name;
    tt_code (*run)(tt_bench *bench, tt_err *err);
    bool steps; /* whole ones, in which every operation has its format */
} tt_bench_row;

static const tt_bench_row rows[] = {
    {"peak", tt_bench_peak, false},           {"gemm", tt_bench_gemm, false},
    {"attention", tt_bench_attention, false}, {"step", tt_bench_step, true},
    {"exact", tt_bench_exact, true},          {"recompute", tt_bench_recompute, true},
    {"allreduce", tt_bench_allreduce, false}, {"optimizer_file", tt_bench_optimizer_file, true},
    {"checkpoint", tt_bench_checkpoint, true}};
enum { ROWS = sizeof rows / sizeof rows[0] };

/* GPT-2 124M unless the arguments say otherwise. */
static tt_code bench_config(tt_config *config, int overrides, char *const *override, tt_err *err)
{
    tt_code rc = TT_OK;
    tt_config_preset(config);
    config->model.vocab = 50304;
    TT_TRY(tt_config_load(config, NULL, overrides, override, err));
    if (config->batch.micro == 0 &&
        (config->batch.sequences == 0 || config->batch.accumulate == 0)) {
        config->batch.micro = 4;
    }
    if (config->batch.sequences == 0 && config->batch.accumulate == 0) {
        config->batch.accumulate = 1;
    }
out:
    return rc;
}

int tt_cmd_bench(int argc, char **argv)
{
    tt_code rc = TT_OK;
    tt_err err = {TT_OK, ""};
    tt_world world = {0};
    tt_bench bench = {.world = &world, .repeat = 7};
    const tt_bench_row *row = NULL;
    bool help = false;
    const tt_flag flag[] = {{.name = "--json", .flag = &bench.json},
                            {.name = "--repeat", .i64 = &bench.repeat, .low = 1, .high = 10000},
                            {.name = "--shape", .text = &bench.shape},
                            {.name = "--from", .text = &bench.from},
                            {.name = "--to", .text = &bench.to}};

    if (tt_world_open(&world, &argc, &argv, &err) != TT_OK) {
        return tt_cli_end(&world, err.code, &err);
    }
    rc = tt_flags_take(&argc, argv, flag, sizeof flag / sizeof *flag, &help, &err);
    if (rc == TT_OK && help) {
        fputs(world.rank == 0 ? usage : "", stdout);
        goto out;
    }
    for (int i = 0; rc == TT_OK && argc > 1 && i < ROWS; i++) {
        row = strcmp(rows[i].name, argv[1]) == 0 ? &rows[i] : row;
    }
    if (rc == TT_OK && !row) {
        rc = tt_fail(
            &err, TT_EUSER,
            "tutti bench measures peak, gemm, attention, step, exact, recompute, allreduce, "
            "optimizer_file or checkpoint, not '%s'",
            argc > 1 ? argv[1] : "");
    }
    if (rc == TT_OK && bench.shape && row->run != tt_bench_gemm) {
        rc = tt_fail(&err, TT_EUSER, "--shape belongs to tutti bench gemm, not %s", row->name);
    }
    if (rc == TT_OK && (bench.from || bench.to) && row->run != tt_bench_allreduce) {
        rc = tt_fail(&err, TT_EUSER, "%s belongs to tutti bench allreduce, not %s",
                     bench.from ? "--from" : "--to", row->name);
    }
    if (rc == TT_OK) {
        rc = bench_config(&bench.config, argc - 2, argv + 2, &err);
    }
    if (rc == TT_OK && !row->steps && bench.config.precision.fp32_ops[0] != '\0') {
        rc = tt_fail(&err, TT_EUSER,
                     "precision.fp32_ops: [%s] has no meaning in tutti bench %s, which measures in "
                     "precision.compute; allowed is [], or bench step and exact",
                     bench.config.precision.fp32_ops, row->name);
    }
    TT_TRY(tt_agree(&world, rc, &err));
    rc = row->run(&bench, &err);
    if (world.rank == 0) { /* what was measured before a failure, too */
        tt_err lost;
        const tt_code said = tt_cli_print(&bench.out, rc == TT_OK ? &err : &lost);
        rc = rc == TT_OK ? said : rc;
    }
out:
    tt_text_free(&bench.out);
    tt_cli_end(&world, rc, &err);
    tt_world_close(&world);
    return (int)rc;
}
