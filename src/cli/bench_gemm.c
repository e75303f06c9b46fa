/* bench_gemm.c: the three variants of matmuls: those of the model, and eight others.
 *
 * A round measures the peak, our matmul, the peak again, and where the build has one the rival's
 * matmul: first with one thread, then with all. Weights are packed before, in ours and in the
 * rival's, as training packs them once a step (nt, nn); tn has no weights, and adds to what is there
 * in both. Short matmuls run several times in a row. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tutti/base/clock.h"
#include "tutti/base/narrow.h"
#include "tutti/model/model.h"

#include "cli/bench_impl.h"

/* head_loss works in chunks of rows, and so does its row in the table of matmuls. */
enum { HEAD_ROWS = 1024 };

/* One matmul: y[M,N] = x[M,K] w[N,K]^T. A leaf is `leaf` rows. */
typedef struct tt_matmul {
    const char *name;
    int64_t M, N, K, leaf;
} tt_matmul;

enum { MODEL_SHAPES = 5, OTHER_SHAPES = 8, SHAPES = MODEL_SHAPES + OTHER_SHAPES };
enum { SET_MODEL, SET_OTHERS, SETS };
static const char *const set_names[SETS] = {"model", "others"};
static const char *const variant_names[TT_VARIANTS] = {"nt", "nn", "tn"};

static const tt_matmul others[OTHER_SHAPES] = {
    {"medium.qkv", 1024, 3072, 1024, 1024}, {"medium.mlp", 1024, 1024, 4096, 1024},
    {"xl.fc", 512, 6400, 1600, 512},        {"llama.mlp", 128, 11008, 4096, 128},
    {"small.fc", 1024, 1024, 256, 256},     {"ragged", 1000, 777, 333, 500},
    {"one row", 1, 3072, 768, 1},           {"128 rows", 128, 768, 3072, 128},
};

/* What a row of the table is made of; each array holds one value a round. */
typedef struct tt_gemm_rounds {
    double *seconds, *of_peak, *rival; /* rival: seconds */
} tt_gemm_rounds;

/* Geometric means of a set with one team. */
typedef struct tt_gemm_mean {
    double of_peak, best, speedup, against; /* sums of logarithms */
    double lowest;                          /* the least of_peak */
    int rows;
} tt_gemm_mean;

typedef struct tt_gemm {
    tt_bed bed;
    tt_arena arena;
    void
        *packed; /* the arena's: packed form of any of the weights; NULL: these kernels have none */
    tt_teams teams;
    const tt_rival *other; /* NULL: this build has none */
    void *work[TT_TEAMS];  /* the rival's, by team */
    double *value;         /* owned, the memory of rounds */
    tt_gemm_rounds rounds[TT_TEAMS];
    tt_gemm_mean mean[SETS][TT_TEAMS];
} tt_gemm;

static const tt_rival *find_rival(void)
{
#ifdef TUTTI_DNNL
    return &tt_rival_dnnl;
#else
    return NULL;
#endif
}

/* "MxNxK" */
static tt_code parse_shape(const char *text, tt_matmul *m, tt_err *err)
{
    int64_t *const part[] = {&m->M, &m->N, &m->K};
    char copy[64] = "", *rest = copy;
    bool good = snprintf(copy, sizeof copy, "%s", text) < (int)sizeof copy;
    for (int i = 0; i < 3 && good; i++) {
        const char *word = strsep(&rest, "x");
        good = word && tt_parse_int(word, part[i]) && *part[i] >= 1 && *part[i] <= 1 << 20;
    }
    if (!good || rest) {
        return tt_fail(err, TT_EUSER,
                       "--shape: '%s' is not MxNxK with three whole numbers from 1 to 1048576",
                       text);
    }
    m->leaf = m->M;
    m->name = "given";
    return TT_OK;
}

/* The rows of the table: --shape alone, or the model's and the others. */
static tt_code make_shapes(const tt_bench *bench, tt_matmul shape[SHAPES], int *count, tt_err *err)
{
    tt_code rc = TT_OK;
    tt_shape s;
    if (bench->shape) {
        *count = 1;
        return parse_shape(bench->shape, &shape[0], err);
    }
    TT_TRY(tt_shape_resolve(&s, &bench->config, 0, err));
    const int64_t M = tt_mul(tt_max(bench->config.batch.micro, 1), s.T);
    const int64_t head = tt_min(M, HEAD_ROWS);
    const tt_matmul model[MODEL_SHAPES] = {{"qkv", M, (s.H + 2 * s.G) * s.D, s.C, s.T},
                                           {"attn.proj", M, s.C, s.H * s.D, s.T},
                                           {"mlp.fc", M, s.F, s.C, s.T},
                                           {"mlp.proj", M, s.C, s.F, s.T},
                                           {"head", head, s.V, s.C, tt_min(head, s.T)}};
    memcpy(shape, model, sizeof model);
    memcpy(shape + MODEL_SHAPES, others, sizeof others);
    *count = SHAPES;
out:
    return rc;
}

/* Local. */
static tt_code open_all(tt_gemm *w, const tt_bench *bench, tt_matmul shape[SHAPES], int *count,
                        tt_err *err)
{
    tt_code rc = TT_OK;
    int64_t in = 0, weights = 0, result = 0;
    tt_extents e = {.rows = 1,
                    .tokens = 1,
                    .channels = 1,
                    .ffn = 1,
                    .vocab = 1,
                    .heads = 1,
                    .head_size = 1,
                    .packed = true};
    TT_TRY(make_shapes(bench, shape, count, err));
    for (int i = 0; i < *count; i++) {
        const tt_matmul *m = &shape[i];
        in = tt_max(in, tt_mul(m->M, tt_max(m->N, m->K)));
        weights = tt_max(weights, tt_max(tt_mul(m->N, m->K), tt_mul(m->M, m->K)));
        result = tt_max(result, tt_max(tt_mul(m->N, m->K), tt_mul(m->M, tt_max(m->N, m->K))));
        e.rows = tt_max(e.rows, m->M);
        e.tokens = tt_max(e.tokens, m->leaf);
        e.ffn = tt_max(e.ffn, tt_max(m->N, m->K));
    }
    e.channels = e.vocab = e.ffn;
    TT_TRY(tt_bed_open(&w->bed, bench->world, tt_bench_format(bench), &e, w->teams.most, in,
                       weights, result, err));
    size_t bytes = 0;
    for (int i = 0; i < *count; i++) {
        const size_t one = w->bed.ops.packed_bytes(shape[i].N, shape[i].K);
        bytes = one > bytes ? one : bytes;
    }
    if (bytes > 0) {
        TT_TRY(tt_arena_open(&w->arena, "packed", tt_arena_cost(bytes), err));
        w->packed = tt_arena_take(&w->arena, bytes);
    }
    w->value = tt_alloc(tt_mul(3 * TT_TEAMS, bench->repeat), sizeof *w->value, err);
    if (!w->value) {
        rc = err->code;
        goto out;
    }
    for (int t = 0; t < TT_TEAMS; t++) {
        double *at = w->value + 3 * t * bench->repeat;
        w->rounds[t] = (tt_gemm_rounds){at, at + bench->repeat, at + 2 * bench->repeat};
    }
out:
    return rc;
}

/* Seconds of one of `times` matmuls in a row. */
static double run_gemm(tt_gemm *work, int variant, const tt_matmul *m, int64_t times)
{
    tt_bed *bed = &work->bed;
    tt_ctx *ctx = &bed->ctx;
    const tt_grad sum = {.sum = bed->c};
    const tt_weight w = {.w = bed->b, .packed = work->packed};
    const double start = tt_seconds();
    for (int64_t i = 0; i < times; i++) {
        if (variant == TT_NT) {
            ctx->ops->gemm_nt(ctx, bed->c, bed->a, &w, NULL, m->M, m->N, m->K, m->leaf);
        } else if (variant == TT_NN) {
            ctx->ops->gemm_nn(ctx, bed->c, bed->a, &w, NULL, m->M, m->N, m->K, m->leaf);
        } else {
            ctx->ops->gemm_tn(ctx, &sum, NULL, bed->a, bed->b, m->M, m->N, m->K, m->leaf);
        }
    }
    return fmax(tt_seconds() - start, 1e-9) / (double)times;
}

/* Rounds over the teams, one matmul in one variant. */
static tt_code measure(tt_gemm *w, int variant, const tt_matmul *m, int64_t repeat, tt_err *err)
{
    tt_code rc = TT_OK;
    tt_bed *bed = &w->bed;
    const double flops = 2.0 * (double)m->M * (double)m->N * (double)m->K;
    int64_t times[TT_TEAMS];
    memset(bed->c, 0, tt_bytes(tt_mul(m->N, m->K), sizeof *bed->c)); /* tn adds to it */
    if (w->packed) {
        bed->ops.pack(&bed->ctx, w->packed, bed->b, m->N, m->K);
    }
    for (int t = 0; t < w->teams.count; t++) {
        const tt_product product = {variant, m->M, m->N, m->K};
        tt_bed_team(bed, w->teams.threads[t]);
        if (w->other) {
            TT_TRY(w->other->open(&w->work[t], &product, bed->ops.format, err));
            TT_TRY(w->other->run(w->work[t], 1, err)); /* not counted */
        }
        double once = run_gemm(w, variant, m, 1); /* not counted */
        once = once < 0.002 ? run_gemm(w, variant, m, 1) : once;
        times[t] = (int64_t)fmax(1, 0.002 / once);
    }
    for (int64_t i = 0; i < repeat; i++) {
        for (int t = 0; t < w->teams.count; t++) {
            const tt_gemm_rounds *r = &w->rounds[t];
            tt_bed_team(bed, w->teams.threads[t]);
            const double before = tt_bed_peak(bed);
            r->seconds[i] = run_gemm(w, variant, m, times[t]);
            r->of_peak[i] = flops / r->seconds[i] / ((before + tt_bed_peak(bed)) / 2);
            if (w->other) {
                const double start = tt_seconds();
                TT_TRY(w->other->run(w->work[t], times[t], err));
                r->rival[i] = fmax(tt_seconds() - start, 1e-9) / (double)times[t];
            }
        }
    }
out:
    for (int t = 0; w->other && t < TT_TEAMS; t++) {
        w->other->close(w->work[t]);
        w->work[t] = NULL;
    }
    return rc;
}

/* How much faster than with one thread, and than the rival: the median over the rounds. */
static double median_ratio(const double *of, const double *to, int64_t n, double *scratch)
{
    for (int64_t i = 0; i < n; i++) {
        scratch[i] = of[i] / to[i];
    }
    return tt_median(scratch, n);
}

/* Prints the rows of a matmul, one a team, and adds them to the means. */
static tt_code report(tt_gemm *w, tt_bench *bench, int set, int variant, const tt_matmul *m,
                      tt_err *err)
{
    const int64_t n = bench->repeat;
    const double flops = 2.0 * (double)m->M * (double)m->N * (double)m->K;
    double speedup[TT_TEAMS] = {1, 1}, against[TT_TEAMS] = {1, 1};
    double *scratch = tt_alloc(n, sizeof *scratch, err);
    if (!scratch) {
        return err->code;
    }
    for (int t = 0; t < w->teams.count; t++) { /* before any array is sorted */
        const tt_gemm_rounds *r = &w->rounds[t];
        speedup[t] = median_ratio(w->rounds[0].seconds, r->seconds, n, scratch);
        against[t] = w->other ? median_ratio(r->rival, r->seconds, n, scratch) : 1;
    }
    for (int t = 0; t < w->teams.count; t++) {
        const tt_gemm_rounds *r = &w->rounds[t];
        tt_gemm_mean *mean = &w->mean[set][t];
        const double seconds = tt_median(r->seconds, n), of_peak = tt_median(r->of_peak, n);
        const double best = r->of_peak[n - 1]; /* sorted by now */
        mean->of_peak += log(of_peak);
        mean->best += log(best);
        mean->lowest = mean->rows == 0 || of_peak < mean->lowest ? of_peak : mean->lowest;
        mean->speedup += log(speedup[t]);
        mean->against += log(against[t]);
        mean->rows++;
        tt_text_add(&bench->out,
                    bench->json ? "{\"matmul\": \"%s\", \"variant\": \"%s\", \"m\": %lld, \"n\": "
                                  "%lld, \"k\": %lld, \"threads\": %d, \"ms\": %.5g, \"gflops\": "
                                  "%.1f, \"of_peak\": %.4f, \"best_of_peak\": %.4f"
                                : "%-10s %-3s %6lld %6lld %6lld %7d %10.3f %9.1f %7.1f%% %5.1f%%",
                    m->name, variant_names[variant], (long long)m->M, (long long)m->N,
                    (long long)m->K, w->teams.threads[t], 1e3 * seconds, flops / seconds / 1e9,
                    (bench->json ? 1 : 100) * of_peak, (bench->json ? 1 : 100) * best);
        if (w->other) {
            tt_text_add(&bench->out,
                        bench->json ? ", \"rival_gflops\": %.1f, \"against_rival\": %.3f"
                                    : " %9.1f %7.2f",
                        flops / tt_median(r->rival, n) / 1e9, against[t]);
        }
        if (t > 0) {
            tt_text_add(&bench->out, bench->json ? ", \"speedup\": %.3f" : " %7.2f", speedup[t]);
        }
        tt_text_add(&bench->out, bench->json ? "}\n" : "\n");
    }
    free(scratch);
    return TT_OK;
}

static void print_head(const tt_gemm *w, tt_bench *bench)
{
    char label[64] = "";
    if (w->other) {
        w->other->label(w->bed.ops.format, label, sizeof label);
    }
    if (bench->json) {
        tt_text_add(&bench->out,
                    "{\"isa\": \"%s\", \"format\": \"%s\", \"rival\": ", w->bed.ops.isa,
                    tt_formats[w->bed.ops.compute].name);
        tt_text_add(&bench->out, w->other ? "\"%s\"}\n" : "null%s}\n", label);
        return;
    }
    tt_text_add(&bench->out, "%s, %s%s%s; weights packed before, where there are any\n",
                w->bed.ops.isa, tt_formats[w->bed.ops.compute].name, w->other ? ", beside " : "",
                label);
    tt_text_add(&bench->out, "%-10s %-3s %6s %6s %6s %7s %10s %9s %8s %6s%s%s\n", "matmul", "", "M",
                "N", "K", "threads", "ms", "GFLOP/s", "of peak", "best",
                w->other ? "     rival ours/it" : "", w->teams.count > 1 ? " speedup" : "");
}

static void print_means(const tt_gemm *w, tt_bench *bench)
{
    for (int set = 0; set < SETS; set++) {
        for (int t = 0; t < w->teams.count; t++) {
            const tt_gemm_mean *mean = &w->mean[set][t];
            if (mean->rows == 0) {
                continue;
            }
            tt_text_add(&bench->out,
                        bench->json ? "{\"set\": \"%s\", \"threads\": %d, \"geomean_of_peak\": "
                                      "%.4f, \"geomean_best\": %.4f, \"lowest_of_peak\": %.4f"
                                    : "%s, threads %d: geometric mean %.1f%% of peak, of the best "
                                      "rounds %.1f%%; lowest %.1f%%",
                        set_names[set], w->teams.threads[t],
                        (bench->json ? 1 : 100) * exp(mean->of_peak / mean->rows),
                        (bench->json ? 1 : 100) * exp(mean->best / mean->rows),
                        (bench->json ? 1 : 100) * mean->lowest);
            if (w->other) {
                tt_text_add(&bench->out,
                            bench->json ? ", \"geomean_against_rival\": %.3f"
                                        : ", %.2f of the rival",
                            exp(mean->against / mean->rows));
            }
            if (t > 0) {
                tt_text_add(&bench->out,
                            bench->json ? ", \"geomean_speedup\": %.3f" : ", %.2f times one thread",
                            exp(mean->speedup / mean->rows));
            }
            tt_text_add(&bench->out, bench->json ? "}\n" : "\n");
        }
    }
}

tt_code tt_bench_gemm(tt_bench *bench, tt_err *err)
{
    tt_code rc = TT_OK;
    tt_gemm w = {.teams = tt_teams_choose(bench), .other = find_rival()};
    tt_matmul shape[SHAPES];
    int count = 0;
    TT_TRY(tt_agree(bench->world, open_all(&w, bench, shape, &count, err), err));
    print_head(&w, bench);
    for (int i = 0; i < count && rc == TT_OK; i++) {
        const int set = i < MODEL_SHAPES && !bench->shape ? SET_MODEL : SET_OTHERS;
        for (int variant = 0; variant < TT_VARIANTS && rc == TT_OK; variant++) {
            rc = measure(&w, variant, &shape[i], bench->repeat, err);
            if (rc == TT_OK) {
                rc = report(&w, bench, set, variant, &shape[i], err);
            }
        }
    }
    TT_TRY(tt_agree(bench->world, rc, err));
    print_means(&w, bench);
out:
    free(w.value);
    tt_arena_close(&w.arena);
    tt_bed_close(&w.bed);
    return rc;
}
