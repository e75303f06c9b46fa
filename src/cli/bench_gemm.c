/* bench_kernels.c: peak, gemm and attention: single operations of the selected table. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tutti/base/clock.h"
#include "tutti/base/narrow.h"
#include "tutti/base/threads.h"
#include "tutti/model/model.h"

#include "cli/bench_impl.h"

/* head_loss works in chunks of rows, and so does its row in the table of matmuls. */
enum { HEAD_ROWS = 256 };

/* A table with scratch for the model's shapes, and operands full of small numbers. */
typedef struct tt_bed {
    tt_ops ops, guarded;
    tt_ctx ctx;
    tt_shape shape;
    int64_t rows; /* M = micro * context */
    tt_arena arena;
    void *a, *b; /* act, `room` elements each */
    float *c;    /* FP32, `room` elements */
    double peak; /* FLOP/s, measured in the same run */
} tt_bed;

/* Local. */
static tt_code bed_open(tt_bed *bed, const tt_bench *bench, tt_err *err)
{
    tt_code rc = TT_OK;
    const tt_config *config = &bench->config;
    const tt_format format = (tt_format)tt_format_find(config->precision.compute);
    const size_t act = tt_formats[format].bytes;
    const int threads = tt_threads_choose(config, tt_world_threads(bench->world));
    memset(bed, 0, sizeof *bed);
    TT_TRY(tt_shape_resolve(&bed->shape, config, 0, err));
    TT_TRY(tt_kernels_select(&bed->ops, &bed->guarded, format, getenv("TUTTI_ISA"), err));
    const tt_shape *s = &bed->shape;
    bed->rows = tt_mul(tt_max(config->batch.micro, 1), s->T);
    const int64_t widest = tt_max(tt_max(s->F, s->C), (s->H + 2 * s->G) * s->D);
    const int64_t head = tt_mul(s->V, tt_max(s->C, HEAD_ROWS));
    const int64_t room = tt_max(tt_mul(bed->rows, widest), head);
    const tt_extents extents = tt_model_extents(s, tt_max(config->batch.micro, 1), s->T);
    const size_t scratch = tt_kernels_workspace(&bed->ops, &bed->guarded, &extents, threads);
    TT_TRY(tt_arena_open(&bed->arena, "bench",
                         2 * tt_arena_cost(tt_bytes(room, act)) +
                             tt_arena_cost(tt_bytes(room, sizeof(float))) + tt_arena_cost(scratch),
                         err));
    bed->a = tt_arena_take(&bed->arena, tt_bytes(room, act));
    bed->b = tt_arena_take(&bed->arena, tt_bytes(room, act));
    bed->c = tt_arena_take(&bed->arena, tt_bytes(room, sizeof(float)));
    bed->ctx = tt_kernels_ctx(&bed->ops, &bed->guarded, threads,
                              tt_arena_take(&bed->arena, scratch), scratch);
    tt_threads_set(threads);
    tt_flush_denormals(threads);
    for (int64_t i = 0; i < room; i++) {
        bed->c[i] = (float)((i * 37 + 11) % 101 - 50) / 64.0f;
    }
    bed->ops.to_act(&bed->ctx, bed->a, bed->c, room);
    bed->ops.to_act(&bed->ctx, bed->b, bed->c, room);
    bed->peak = bed->ops.peak(&bed->ctx, 0.2);
out:
    if (rc != TT_OK) {
        tt_arena_close(&bed->arena);
    }
    return rc;
}

tt_code tt_bench_peak(tt_bench *bench, tt_err *err)
{
    tt_code rc = TT_OK;
    tt_bed bed = {0};
    double *value = tt_alloc(bench->repeat, sizeof *value, err);
    if (!value) {
        rc = err->code;
    }
    if (rc == TT_OK) {
        rc = bed_open(&bed, bench, err);
    }
    TT_TRY(tt_agree(bench->world, rc, err));
    for (int64_t i = 0; i < bench->repeat; i++) {
        value[i] = bed.ops.peak(&bed.ctx, 0.2) / 1e9;
    }
    double gflops = tt_median(value, bench->repeat);
    if (bench->json) {
        tt_text_add(
            &bench->out,
            "{\"peak_gflops\": %.1f, \"threads\": %d, \"isa\": \"%s\", \"format\": \"%s\"}\n",
            gflops, bed.ctx.threads, bed.ops.isa, tt_formats[bed.ops.format].name);
    } else {
        tt_text_add(&bench->out, "%s, %s, %d thread%s: %.1f GFLOP/s\n", bed.ops.isa,
                    tt_formats[bed.ops.format].name, bed.ctx.threads,
                    bed.ctx.threads == 1 ? "" : "s", gflops);
    }
out:
    tt_arena_close(&bed.arena);
    free(value);
    return rc;
}

/* One matmul of the model: y[M,out] = x[M,in] w[out,in]^T. */
typedef struct tt_matmul {
    const char *name;
    int64_t out, in;
} tt_matmul;

enum { NT, NN, TN, VARIANTS };
static const char *const variant_names[VARIANTS] = {"nt", "nn", "tn"};

/* Seconds of one run. */
static double run_gemm(tt_bed *bed, int variant, int64_t M, int64_t out, int64_t in)
{
    tt_ctx *ctx = &bed->ctx;
    double start = tt_seconds();
    if (variant == NT) {
        bed->ops.gemm_nt(ctx, bed->c, bed->a, bed->b, NULL, M, out, in);
    } else if (variant == NN) {
        bed->ops.gemm_nn(ctx, bed->c, bed->a, bed->b, M, out, in);
    } else {
        bed->ops.gemm_tn(ctx, bed->c, bed->a, bed->b, M, out, in, tt_min(M, bed->shape.T));
    }
    return tt_seconds() - start;
}

tt_code tt_bench_gemm(tt_bench *bench, tt_err *err)
{
    tt_code rc = TT_OK;
    tt_bed bed = {0};
    double *value = tt_alloc(bench->repeat, sizeof *value, err), logs = 0;
    int rows = 0;
    if (!value) {
        rc = err->code;
    }
    if (rc == TT_OK) {
        rc = bed_open(&bed, bench, err);
    }
    TT_TRY(tt_agree(bench->world, rc, err));
    const tt_shape *s = &bed.shape;
    const tt_matmul matmul[] = {{"qkv", (s->H + 2 * s->G) * s->D, s->C},
                                {"attn.proj", s->C, s->H * s->D},
                                {"mlp.fc", s->F, s->C},
                                {"mlp.proj", s->C, s->F},
                                {"head", s->V, s->C}};
    if (!bench->json) {
        tt_text_add(
            &bench->out,
            "%s, %s, %d thread%s, peak %.1f GFLOP/s\n%-10s %-3s %6s %6s %6s %10s %10s %7s\n",
            bed.ops.isa, tt_formats[bed.ops.format].name, bed.ctx.threads,
            bed.ctx.threads == 1 ? "" : "s", bed.peak / 1e9, "matmul", "", "M", "N", "K", "ms",
            "GFLOP/s", "peak");
    }
    for (size_t i = 0; i < sizeof matmul / sizeof matmul[0]; i++) {
        const tt_matmul *m = &matmul[i];
        const bool head = i + 1 == sizeof matmul / sizeof matmul[0];
        const int64_t M = head ? tt_min(bed.rows, HEAD_ROWS) : bed.rows;
        for (int variant = 0; variant < VARIANTS; variant++) {
            run_gemm(&bed, variant, M, m->out, m->in);
            for (int64_t j = 0; j < bench->repeat; j++) {
                value[j] = run_gemm(&bed, variant, M, m->out, m->in);
            }
            double seconds = tt_median(value, bench->repeat);
            double flops = 2.0 * (double)M * (double)m->out * (double)m->in / seconds;
            logs += log(flops / bed.peak);
            rows++;
            tt_text_add(
                &bench->out,
                bench->json ? "{\"matmul\": \"%s\", \"variant\": \"%s\", \"m\": %lld, \"n\": "
                              "%lld, \"k\": %lld, \"ms\": %.4f, \"gflops\": %.1f, "
                              "\"of_peak\": %.4f}\n"
                            : "%-10s %-3s %6lld %6lld %6lld %10.3f %10.1f %6.1f%%\n",
                m->name, variant_names[variant], (long long)M, (long long)m->out, (long long)m->in,
                1e3 * seconds, flops / 1e9, (bench->json ? 1 : 100) * flops / bed.peak);
        }
    }
    tt_text_add(&bench->out,
                bench->json ? "{\"geomean_of_peak\": %.4f}\n" : "geometric mean: %.1f%% of peak\n",
                (bench->json ? 1 : 100) * exp(logs / rows));
out:
    tt_arena_close(&bed.arena);
    free(value);
    return rc;
}

tt_code tt_bench_attention(tt_bench *bench, tt_err *err)
{
    tt_code rc = TT_OK;
    tt_bed bed = {0};
    double *forward = tt_alloc(bench->repeat, sizeof *forward, err);
    double *backward = tt_alloc(bench->repeat, sizeof *backward, err);
    float *lse = NULL;
    void *o = NULL, *dqkv = NULL;
    if (!forward || !backward) {
        rc = err->code;
    }
    if (rc == TT_OK) {
        rc = bed_open(&bed, bench, err);
    }
    const tt_shape *s = &bed.shape;
    const int64_t B = tt_max(bench->config.batch.micro, 1), width = (s->H + 2 * s->G) * s->D;
    const size_t act = tt_formats[bed.ops.format].bytes;
    if (rc == TT_OK) {
        lse = tt_alloc(tt_mul(B * s->H, s->T), sizeof *lse, err);
        o = tt_alloc(tt_mul(bed.rows, s->H * s->D), act, err);
        dqkv = tt_alloc(tt_mul(bed.rows, width), act, err);
        rc = lse && o && dqkv ? TT_OK : err->code;
    }
    TT_TRY(tt_agree(bench->world, rc, err));
    for (int64_t i = -1; i < bench->repeat; i++) { /* -1: not counted */
        double start = tt_seconds();
        bed.ops.attention(&bed.ctx, o, lse, bed.a, B, s->T, s->H, s->G, s->D, s->T, NULL);
        double middle = tt_seconds();
        bed.ops.attention_grad(&bed.ctx, dqkv, bed.b, o, bed.a, lse, B, s->T, s->H, s->G, s->D,
                               s->T, NULL);
        forward[tt_max(i, 0)] = middle - start;
        backward[tt_max(i, 0)] = tt_seconds() - middle;
    }
    /* The lower triangle only: two products forward, five backward. */
    const double product =
        2.0 * (double)B * (double)s->H * (double)s->D * (double)s->T * (double)(s->T + 1) / 2;
    double seconds[] = {tt_median(forward, bench->repeat), tt_median(backward, bench->repeat)};
    const double flops[] = {2 * product / seconds[0], 5 * product / seconds[1]};
    for (int i = 0; i < 2; i++) {
        tt_text_add(&bench->out,
                    bench->json ? "{\"attention\": \"%s\", \"ms\": %.4f, \"gflops\": %.1f, "
                                  "\"of_peak\": %.4f}\n"
                                : "attention %-8s %10.3f ms %10.1f GFLOP/s %6.1f%% of peak\n",
                    i == 0 ? "forward" : "backward", 1e3 * seconds[i], flops[i] / 1e9,
                    (bench->json ? 1 : 100) * flops[i] / bed.peak);
    }
out:
    tt_arena_close(&bed.arena);
    free(forward);
    free(backward);
    free(lse);
    free(o);
    free(dqkv);
    return rc;
}
