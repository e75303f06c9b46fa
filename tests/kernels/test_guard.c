/* test_guard.c: does the guard see what it is there to see? Kernels that change an input or leave
 * part of an output are put below it; good kernels pass. */
#include "rig.h"

static int seen;
static char seen_op[64], seen_what[256];

static void note(const char *op, const char *what)
{
    seen++;
    snprintf(seen_op, sizeof seen_op, "%s", op);
    snprintf(seen_what, sizeof seen_what, "%s", what);
}

static void rig_open_guard(rig *r, tt_format format)
{
    seen = 0;
    seen_op[0] = seen_what[0] = '\0';
    rig_open(r, format, "guard:ref", 2);
    r->ctx.violation = note;
}

static void norm_that_clips(tt_ctx *ctx, void *y, float *mean, float *rstd, const void *x,
                            const void *gain, const void *bias, int64_t M, int64_t C)
{
    (void)ctx, (void)gain, (void)bias;
    float *from = (float *)(uintptr_t)x;
    for (int64_t i = 0; i < M * C; i++) {
        from[i] = fminf(from[i], 3);
        ((float *)y)[i] = from[i];
    }
    memset(mean, 0, (size_t)M * sizeof *mean);
    memset(rstd, 0, (size_t)M * sizeof *rstd);
}

static void norm_that_stops_early(tt_ctx *ctx, void *y, float *mean, float *rstd, const void *x,
                                  const void *gain, const void *bias, int64_t M, int64_t C)
{
    (void)gain, (void)bias;
    memcpy(y, x, (size_t)(M * C - 1) * tt_formats[ctx->base->format].bytes);
    memset(mean, 0, (size_t)M * sizeof *mean);
    memset(rstd, 0, (size_t)M * sizeof *rstd);
}

static void norm_that_reads_its_output(tt_ctx *ctx, void *y, float *mean, float *rstd,
                                       const void *x, const void *gain, const void *bias, int64_t M,
                                       int64_t C)
{
    (void)ctx, (void)x, (void)gain, (void)bias;
    for (int64_t i = 0; i < M * C; i++) {
        ((float *)y)[i] += 1;
    }
    memset(mean, 0, (size_t)M * sizeof *mean);
    memset(rstd, 0, (size_t)M * sizeof *rstd);
}

static void adamw_that_scales_the_gradient(tt_ctx *ctx, const tt_master *master, float *m, float *v,
                                           void *w, const tt_grad *g, int64_t n,
                                           const tt_adamw *step)
{
    (void)ctx, (void)master, (void)m, (void)v, (void)step;
    memset(w, 0, (size_t)n * sizeof(float));
    g->sum[n - 1] *= 2;
}

static void gemm_that_skips_a_row(tt_ctx *ctx, void *dx, const void *dy, const tt_weight *w,
                                  const tt_epilogue *e, int64_t M, int64_t N, int64_t K,
                                  int64_t leaf)
{
    (void)leaf;
    (void)ctx, (void)dy, (void)w, (void)e, (void)N;
    memset(dx, 0, (size_t)((M - 1) * K) * sizeof(tt_bf16));
}

/* Writes y and e->before, and then spoils the byte that `spoil` points to. */
static unsigned char *spoil;

static void gemm_that_spoils(tt_ctx *ctx, void *y, const void *x, const tt_weight *w,
                             const tt_epilogue *e, int64_t M, int64_t N, int64_t K, int64_t leaf)
{
    (void)leaf;
    (void)ctx, (void)x, (void)w, (void)K;
    memset(y, 0, (size_t)(M * N) * sizeof(tt_bf16));
    if (e != NULL && e->before != NULL) {
        memset(e->before, 0, (size_t)(M * N - (spoil == NULL)) * sizeof(tt_bf16));
    }
    if (spoil != NULL) {
        *spoil ^= 1;
    }
}

static size_t packed_bytes_of_two(int64_t N, int64_t K)
{
    return (size_t)(2 * N * K) * sizeof(tt_bf16);
}

static void pack_one_of_two(tt_ctx *ctx, void *packed, const void *w, int64_t N, int64_t K)
{
    (void)ctx;
    memcpy(packed, w, (size_t)(N * K) * sizeof(tt_bf16));
}

START_TEST(a_changed_input_is_seen)
{
    rig r;
    rig_open_guard(&r, TT_FP32);
    float x[65], y[65], one[65], mean[1], rstd[1], g[7], w[7], state[7] = {0};
    for (int i = 0; i < 65; i++) {
        x[i] = (float)i / 20;
        one[i] = 1;
    }
    r.guarded.norm = norm_that_clips;
    r.ops.norm(&r.ctx, y, mean, rstd, x, one, one, 1, 60);
    ck_assert_int_eq(seen, 0);
    r.ops.norm(&r.ctx, y, mean, rstd, x, one, one, 1, 65);
    ck_assert_int_eq(seen, 1);
    ck_assert_str_eq(seen_op, "norm");
    ck_assert_str_eq(seen_what, "changes its input x");
    r.guarded.adamw = adamw_that_scales_the_gradient;
    tt_adamw step = {.lr = 1};
    for (int i = 0; i < 7; i++) {
        g[i] = 1;
    }
    r.ops.adamw(&r.ctx, FULL(state), state, state, w, GRAD(g), 7, &step);
    ck_assert_str_eq(seen_what, "changes its input (g)->sum");
    rig_close(&r);
}
END_TEST

START_TEST(an_unwritten_output_is_seen)
{
    for (int f = 0; f < RIG_FORMATS; f++) {
        rig r;
        rig_open_guard(&r, rig_formats[f]);
        void *x = rig_random(&r, 65, 1), *y = rig_acts(&r, 65);
        float mean[1], rstd[1];
        r.guarded.norm = norm_that_stops_early;
        r.ops.norm(&r.ctx, y, mean, rstd, x, x, x, 1, 65);
        ck_assert_int_eq(seen, 1);
        ck_assert_str_eq(seen_what, "leaves element 64 of its output y unwritten");
        free(x), free(y);
        rig_close(&r);
    }
}
END_TEST

/* What fills an output is no number in any format. */
START_TEST(the_fill_is_a_nan)
{
    for (int f = 0; f < RIG_FORMATS; f++) {
        rig r;
        rig_open_guard(&r, rig_formats[f]);
        void *x = rig_random(&r, 65, 1), *y = rig_acts(&r, 65);
        float mean[1], rstd[1];
        r.guarded.norm = norm_that_stops_early;
        r.ops.norm(&r.ctx, y, mean, rstd, x, x, x, 1, 65);
        ck_assert(isnan(rig_get(&r, y, 64)));
        free(x), free(y);
        rig_close(&r);
    }
}
END_TEST

START_TEST(reading_an_output_gives_nan)
{
    rig r;
    rig_open_guard(&r, TT_FP32);
    float x[3] = {1, 2, 3}, y[3] = {0, 0, 0}, mean[1], rstd[1];
    r.guarded.norm = norm_that_reads_its_output;
    r.ops.norm(&r.ctx, y, mean, rstd, x, x, x, 1, 3);
    ck_assert(isnan(y[0]) && isnan(y[2]));
    rig_close(&r);
}
END_TEST

START_TEST(a_kernel_inside_a_kernel_is_watched)
{
    rig r;
    rig_open_guard(&r, TT_BF16);
    enum { M = 5, V = 7, C = 3 };
    void *x = rig_random(&r, M * C, 1), *w = rig_random(&r, V * C, 1), *dx = rig_acts(&r, M * C);
    int32_t *target = rig_tokens(&r, M, V);
    float *gw = rig_floats(&r, V * C, 1);
    tt_exact loss = {.pending = 0};
    int64_t count = 0;
    r.guarded.gemm_nn = gemm_that_skips_a_row;
    const tt_weight weight = {w, NULL};
    r.ops.head_loss(&r.ctx, &loss, &count, NULL, dx, GRAD(gw), x, &weight, target, M, V, V, C, M,
                    1);
    ck_assert_int_ge(seen, 1);
    ck_assert_str_eq(seen_what, "leaves element 12 of its output dx unwritten");
    free(x), free(w), free(dx), free(target), free(gw);
    rig_close(&r);
}
END_TEST

/* All that an epilogue and a packed weight bring along is watched like the arguments themselves. */
START_TEST(what_a_matmul_carries_is_watched)
{
    enum { M = 6, N = 5, K = 4, T = 3, IN = 9 };
    static const char *const name[IN] = {"x",        "w",       "packed", "bias", "slope",
                                         "residual", "samples", "drop",   ""};
    rig r;
    rig_open_guard(&r, TT_BF16);
    r.ops.packed_bytes = packed_bytes_of_two;
    r.guarded.packed_bytes = packed_bytes_of_two;
    r.guarded.gemm_nt = gemm_that_spoils;
    int64_t samples[M / T] = {4, 9};
    tt_dropout drop = rig_dropout(0.5, samples);
    void *x = rig_random(&r, M * K, 1), *w = rig_random(&r, N * K, 1), *y = rig_acts(&r, M * N);
    void *packed = rig_random(&r, 2 * N * K, 1), *bias = rig_random(&r, N, 1);
    void *slope = rig_random(&r, M * N, 1), *residual = rig_random(&r, M * N, 1);
    void *before = rig_acts(&r, M * N);
    void *const watched[IN] = {x, w, packed, bias, slope, residual, samples, &drop, NULL};
    const size_t bytes[IN] = {M * K * 2, N * K * 2,      4 * N * K, N * 2, M * N * 2,
                              M * N * 2, sizeof samples, 1,         0};
    const tt_weight weight = {w, packed};
    const tt_epilogue e = {bias, before, slope, residual, &drop, T};
    for (int i = 0; i < IN; i++) { /* the last byte of each array, the first of drop */
        spoil = watched[i] != NULL ? (unsigned char *)watched[i] + bytes[i] - 1 : NULL;
        seen = 0;
        r.ops.gemm_nt(&r.ctx, y, x, &weight, &e, M, N, K, M);
        ck_assert_int_eq(seen, 1);
        ck_assert_str_eq(seen_op, "gemm_nt");
        ck_assert_ptr_nonnull(
            strstr(seen_what, spoil != NULL ? "changes its input" : "element 29"));
        ck_assert_ptr_nonnull(strstr(seen_what, spoil != NULL ? name[i] : "before unwritten"));
    }
    spoil = NULL; /* nothing carried, nothing spoilt */
    seen = 0;
    const tt_weight plain = {w, NULL};
    r.ops.gemm_nt(&r.ctx, y, x, &plain, NULL, M, N, K, M);
    ck_assert_int_eq(seen, 0);
    free(x), free(w), free(y), free(packed), free(bias), free(slope), free(residual), free(before);
    rig_close(&r);
}
END_TEST

START_TEST(half_a_packed_form_is_seen)
{
    enum { N = 5, K = 4 };
    rig r;
    rig_open_guard(&r, TT_BF16);
    r.guarded.packed_bytes = packed_bytes_of_two;
    r.guarded.pack = pack_one_of_two;
    void *w = rig_random(&r, N * K, 1), *packed = rig_acts(&r, 2 * N * K);
    r.ops.pack(&r.ctx, packed, w, N, K);
    ck_assert_int_eq(seen, 1);
    ck_assert_str_eq(seen_what, "leaves element 20 of its output packed unwritten");
    free(w), free(packed);
    rig_close(&r);
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("guard");
    TCase *tests = tcase_create("guard");
    tcase_add_test(tests, a_changed_input_is_seen);
    tcase_add_test(tests, an_unwritten_output_is_seen);
    tcase_add_test(tests, the_fill_is_a_nan);
    tcase_add_test(tests, reading_an_output_gives_nan);
    tcase_add_test(tests, a_kernel_inside_a_kernel_is_watched);
    tcase_add_test(tests, what_a_matmul_carries_is_watched);
    tcase_add_test(tests, half_a_packed_form_is_seen);
    suite_add_tcase(suite, tests);
    return suite;
}

TT_TEST_MAIN(make_suite)
