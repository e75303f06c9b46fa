/* bench_impl.h: what the files of `tutti bench` share.
 *
 * The rule of every percentage: the machine is shared and its clock moves, so a rate is divided by the
 * peak measured in the same moments, round by round, and the median of the rounds is what is said. */
#ifndef TUTTI_BENCH_IMPL_H
#define TUTTI_BENCH_IMPL_H

#include <stdbool.h>
#include <stdint.h>

#include "tutti/base/clock.h"
#include "tutti/base/memory.h"
#include "tutti/base/options.h"
#include "tutti/base/status.h"
#include "tutti/base/text.h"
#include "tutti/dist/world.h"
#include "tutti/kernels/kernels.h"
#include "tutti/train/plan.h"
#include "tutti/train/trainer.h"

/* One measurement at work: the configuration gives shapes, format and threads. */
typedef struct tt_bench {
    tt_config config;
    tt_world *world; /* borrowed */
    bool json;
    int64_t repeat;        /* measured runs of each row, after one that is not counted */
    const char *shape;     /* borrowed: "MxNxK" of --shape, or NULL */
    const char *from, *to; /* borrowed: sizes of --from and --to, or NULL */
    /* Owned; what rank 0 prints at the end, even of a failure: a table, or one JSON object a line. */
    tt_text out;
} tt_bench;

/* Milliseconds of one step of an open trainer, of the slowest rank. Collective. */
tt_code tt_bench_one_step(tt_trainer *trainer, double *ms, tt_err *err);

tt_code tt_bench_peak(tt_bench *bench, tt_err *err);
tt_code tt_bench_gemm(tt_bench *bench, tt_err *err);
tt_code tt_bench_attention(tt_bench *bench, tt_err *err);
tt_code tt_bench_step(tt_bench *bench, tt_err *err);
tt_code tt_bench_exact(tt_bench *bench, tt_err *err);
tt_code tt_bench_recompute(tt_bench *bench, tt_err *err);
tt_code tt_bench_allreduce(tt_bench *bench, tt_err *err);
tt_code tt_bench_optimizer_file(tt_bench *bench, tt_err *err);
tt_code tt_bench_checkpoint(tt_bench *bench, tt_err *err);

/* A folder of rank 0's with a token file, named in every rank's configuration as data.train, and for
 * run.dir. Open is collective; close, on a zeroed one too, takes away what rank 0 made: once all have
 * the file open, it may go. */
typedef struct tt_noise {
    char *folder, *tokens, *run; /* owned */
} tt_noise;

tt_code tt_noise_open(tt_noise *noise, tt_bench *bench, tt_err *err);
void tt_noise_close(tt_noise *noise);

/* Thread counts to measure with: the one asked for (run.threads, OMP_NUM_THREADS), or else one and
 * all. `most` is the largest. */
enum { TT_TEAMS = 2 };
typedef struct tt_teams {
    int threads[TT_TEAMS], count, most;
} tt_teams;

tt_teams tt_teams_choose(const tt_bench *bench);

/* A table with its scratch, and operands full of small numbers. Each bed is one process's own. */
typedef struct tt_bed {
    const tt_world *world; /* borrowed */
    tt_ops ops, guarded;
    tt_ctx ctx;
    tt_arena arena;
    void *a, *b; /* act, of the elements asked for */
    float *c;    /* FP32, of the elements asked for */
} tt_bed;

/* The table of the compute format with scratch for `extents` and up to `threads`; on failure the
 * bed is closed. Local. */
tt_code tt_bed_open(tt_bed *bed, const tt_world *world, tt_format compute,
                    const tt_extents *extents, int threads, int64_t a, int64_t b, int64_t c,
                    tt_err *err);
void tt_bed_close(tt_bed *bed); /* safe on a zeroed bed */
/* Kernels, and any library on OpenMP, use so many threads from now on. */
void tt_bed_team(tt_bed *bed, int threads);
/* FLOP/s of the unit that serves the matmuls now, in a short burst. */
double tt_bed_peak(tt_bed *bed);

/* The compute format of the kernels that precision.compute asks for: fp8 runs on bf16 ones. */
tt_format tt_bench_format(const tt_bench *bench);

/* A matmul in its three variants, as in kernels.h: y = x w^T, dx = dy w, gw += dy^T x. */
enum { TT_NT, TT_NN, TT_TN, TT_VARIANTS };
typedef struct tt_product {
    int variant;
    int64_t M, N, K;
} tt_product;

/* Another library's matmul to stand beside ours, in builds that ask for one. `open` prepares one
 * product for the threads of this moment, its weights packed as the library likes best where it has
 * weights (nt, nn), in operands of its own; `run` computes it `times` times. */
typedef struct tt_rival {
    /* "oneDNN 2.6.3 fp32": the format it computes in when the kernels compute in `format` */
    void (*label)(tt_format format, char *out, size_t size);
    tt_code (*open)(void **work, const tt_product *product, tt_format format, tt_err *err);
    tt_code (*run)(void *work, int64_t times, tt_err *err);
    void (*close)(void *work); /* NULL is allowed */
} tt_rival;

#ifdef TUTTI_DNNL
extern const tt_rival tt_rival_dnnl; /* bench_dnnl.c */
#endif

/* What a step is made of (bench_phases.c). Times are rank 0's, FLOPs and peak a rank's share. */
typedef struct tt_step_cost {
    int64_t steps;
    double seconds;    /* of all measured steps together */
    double wire, data; /* seconds of them in collectives, and reading batches */
    int64_t wire_calls;
    double peak;         /* FLOP/s of a rank beside the steps */
    const tt_times *ops; /* summed over the steps */
} tt_step_cost;

void tt_phases_print(const tt_step_cost *cost, bool json, tt_text *out);

#endif
