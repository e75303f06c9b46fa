/* bench_attention.c: attention forward and backward: the model's own shape, and others that its
 * heads can have. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tutti/base/clock.h"
#include "tutti/base/narrow.h"
#include "tutti/model/model.h"

#include "cli/bench_impl.h"

/* One row; G key-value heads, B sequences of T. */
typedef struct tt_attention_case {
    const char *name;
    int64_t T, B, G;
    double drop; /* probability */
} tt_attention_case;

enum { FORWARD, BACKWARD, DIRECTIONS };
enum { CASES = 6 };

/* The model's shape, three lengths at about as many rows, fewer key-value heads, dropout. */
static void make_cases(const tt_shape *s, int64_t rows, tt_attention_case c[CASES])
{
    const int64_t lengths[] = {256, 1024, 4096};
    const int64_t fewer = s->H % 4 == 0 ? s->H / 4 : 1;
    c[0] = (tt_attention_case){"model", s->T, rows / s->T, s->G, 0};
    for (int i = 0; i < 3; i++) {
        c[1 + i] = (tt_attention_case){"length", lengths[i], tt_max(rows / lengths[i], 1), s->H, 0};
    }
    c[4] = (tt_attention_case){"grouped", s->T, rows / s->T, fewer, 0};
    c[5] = (tt_attention_case){"dropout", s->T, rows / s->T, s->G, 0.1};
}

/* Everything the rounds of one run need. */
typedef struct tt_attention {
    tt_bed bed;
    tt_shape shape;
    tt_arena arena;
    void *o, *dqkv; /* act */
    float *lse;
    int64_t *sample; /* numbers of the sequences, for dropout */
    double *value;   /* [DIRECTIONS][2][repeat]: seconds, rate over peak */
} tt_attention;

/* Local. */
static tt_code open_all(tt_attention *w, const tt_bench *bench, const tt_teams *teams,
                        tt_attention_case c[CASES], tt_err *err)
{
    tt_code rc = TT_OK;
    const tt_format format = tt_bench_format(bench);
    const size_t act = tt_formats[format].bytes;
    TT_TRY(tt_shape_resolve(&w->shape, &bench->config, 0, err));
    const tt_shape *s = &w->shape;
    const int64_t micro = tt_max(bench->config.batch.micro, 1);
    tt_extents extents = tt_model_extents(s, micro, s->T, true);
    make_cases(s, extents.rows, c);
    int64_t wide = 0, narrow = 0, sums = 0, most = 0;
    for (int i = 0; i < CASES; i++) {
        const int64_t rows = tt_mul(c[i].B, c[i].T);
        wide = tt_max(wide, tt_mul(rows, (s->H + 2 * c[i].G) * s->D));
        narrow = tt_max(narrow, tt_mul(rows, s->H * s->D));
        sums = tt_max(sums, tt_mul(rows, s->H));
        most = tt_max(most, c[i].B);
        extents.rows = tt_max(extents.rows, rows);
        extents.tokens = tt_max(extents.tokens, c[i].T);
    }
    TT_TRY(tt_bed_open(&w->bed, bench->world, format, &extents, teams->most, wide, narrow, 0, err));
    TT_TRY(tt_arena_open(&w->arena, "attention",
                         tt_arena_cost(tt_bytes(narrow, act)) + tt_arena_cost(tt_bytes(wide, act)) +
                             tt_arena_cost(tt_bytes(sums, sizeof *w->lse)) +
                             tt_arena_cost(tt_bytes(most, sizeof *w->sample)),
                         err));
    w->o = tt_arena_take(&w->arena, tt_bytes(narrow, act));
    w->dqkv = tt_arena_take(&w->arena, tt_bytes(wide, act));
    w->lse = tt_arena_take(&w->arena, tt_bytes(sums, sizeof *w->lse));
    w->sample = tt_arena_take(&w->arena, tt_bytes(most, sizeof *w->sample));
    for (int64_t b = 0; b < most; b++) {
        w->sample[b] = b;
    }
    w->value = tt_alloc(tt_mul(2 * DIRECTIONS, bench->repeat), sizeof *w->value, err);
    rc = w->value ? TT_OK : err->code;
out:
    return rc;
}

/* Rounds of one case with one team; fills value. */
static void measure(tt_attention *w, const tt_attention_case *c, int64_t repeat,
                    const double flops[DIRECTIONS])
{
    tt_ctx *ctx = &w->bed.ctx;
    const tt_shape *s = &w->shape;
    const tt_dropout drop = {.key = tt_rng_key(1, TT_RNG_DROPOUT, 0),
                             .threshold = (uint32_t)(c->drop * 4294967296.0),
                             .scale = (float)(1 / (1 - c->drop)),
                             .sample = w->sample};
    double *value = w->value;
    for (int64_t i = -1; i < repeat; i++) { /* -1: not counted */
        const int64_t at = tt_max(i, 0);
        double peak[3], seconds[DIRECTIONS];
        peak[0] = tt_bed_peak(&w->bed);
        double start = tt_seconds();
        ctx->ops->attention(ctx, w->o, w->lse, w->bed.a, c->B, c->T, s->H, c->G, s->D, c->T, &drop);
        seconds[FORWARD] = fmax(tt_seconds() - start, 1e-9);
        peak[1] = tt_bed_peak(&w->bed);
        start = tt_seconds();
        ctx->ops->attention_grad(ctx, w->dqkv, w->bed.b, w->o, w->bed.a, w->lse, c->B, c->T, s->H,
                                 c->G, s->D, c->T, &drop);
        seconds[BACKWARD] = fmax(tt_seconds() - start, 1e-9);
        peak[2] = tt_bed_peak(&w->bed);
        for (int d = 0; d < DIRECTIONS; d++) {
            value[2 * d * repeat + at] = seconds[d];
            value[(2 * d + 1) * repeat + at] =
                flops[d] / seconds[d] / ((peak[d] + peak[d + 1]) / 2);
        }
    }
}

static void print_row(tt_bench *bench, const tt_attention *w, const tt_attention_case *c,
                      int direction, double seconds, double flops, double of_peak)
{
    const tt_shape *s = &w->shape;
    tt_text_add(
        &bench->out,
        bench->json ? "{\"attention\": \"%s\", \"case\": \"%s\", \"b\": %lld, \"t\": %lld, "
                      "\"heads\": %lld, \"kv_heads\": %lld, \"head_size\": %lld, "
                      "\"dropout\": %g, \"threads\": %d, \"ms\": %.4f, \"gflops\": %.1f, "
                      "\"of_peak\": %.4f}\n"
                    : "%-8s %-8s %5lld %6lld %5lld %5lld %5lld %7g %7d %10.3f %9.1f %6.1f%%\n",
        direction == FORWARD ? "forward" : "backward", c->name, (long long)c->B, (long long)c->T,
        (long long)s->H, (long long)c->G, (long long)s->D, c->drop, w->bed.ctx.threads,
        1e3 * seconds, flops / seconds / 1e9, (bench->json ? 1 : 100) * of_peak);
}

tt_code tt_bench_attention(tt_bench *bench, tt_err *err)
{
    tt_code rc = TT_OK;
    tt_attention w = {0};
    tt_attention_case cases[CASES];
    const tt_teams teams = tt_teams_choose(bench);
    TT_TRY(tt_agree(bench->world, open_all(&w, bench, &teams, cases, err), err));
    const tt_shape *s = &w.shape;
    if (!bench->json) {
        tt_text_add(&bench->out,
                    "%s, %s; the lower triangle: two products forward, five backward\n"
                    "%-8s %-8s %5s %6s %5s %5s %5s %7s %7s %10s %9s %7s\n",
                    w.bed.ops.isa, tt_formats[w.bed.ops.compute].name, "", "case", "B", "T", "H",
                    "G", "D", "dropout", "threads", "ms", "GFLOP/s", "of peak");
    }
    for (int i = 0; i < CASES; i++) {
        const tt_attention_case *c = &cases[i];
        const double product =
            (double)c->B * (double)s->H * (double)s->D * (double)c->T * (double)(c->T + 1);
        const double flops[DIRECTIONS] = {2 * product, 5 * product};
        for (int t = 0; t < teams.count; t++) {
            tt_bed_team(&w.bed, teams.threads[t]);
            measure(&w, c, bench->repeat, flops);
            for (int d = 0; d < DIRECTIONS; d++) {
                double *seconds = w.value + 2 * d * bench->repeat,
                       *of_peak = seconds + bench->repeat;
                print_row(bench, &w, c, d, tt_median(seconds, bench->repeat), flops[d],
                          tt_median(of_peak, bench->repeat));
            }
        }
    }
out:
    free(w.value);
    tt_arena_close(&w.arena);
    tt_bed_close(&w.bed);
    return rc;
}
