/* bench_impl.h: what the files of `tutti bench` share. */
#ifndef TUTTI_BENCH_IMPL_H
#define TUTTI_BENCH_IMPL_H

#include <stdbool.h>
#include <stdint.h>

#include "tutti/base/memory.h"
#include "tutti/base/options.h"
#include "tutti/base/status.h"
#include "tutti/base/text.h"
#include "tutti/dist/world.h"
#include "tutti/train/plan.h"

/* One measurement at work: the configuration gives shapes, format and threads. */
typedef struct tt_bench {
    tt_config config;
    tt_world *world; /* borrowed */
    bool json;
    int64_t repeat; /* measured runs of each row, after one that is not counted */
    tt_text out;    /* owned; what rank 0 prints at the end */
} tt_bench;

/* Median of n values, which it sorts. */
double tt_median(double *value, int64_t n);

tt_code tt_bench_peak(tt_bench *bench, tt_err *err);
tt_code tt_bench_gemm(tt_bench *bench, tt_err *err);
tt_code tt_bench_attention(tt_bench *bench, tt_err *err);
tt_code tt_bench_step(tt_bench *bench, tt_err *err);
tt_code tt_bench_allreduce(tt_bench *bench, tt_err *err);

#endif
