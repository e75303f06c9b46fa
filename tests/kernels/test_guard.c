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

static void gelu_that_clips(tt_ctx *ctx, void *y, const void *x, int64_t n)
{
    (void)ctx;
    float *from = (float *)(uintptr_t)x;
    for (int64_t i = 0; i < n; i++) {
        from[i] = fminf(from[i], 3);
        ((float *)y)[i] = from[i];
    }
}

static void gelu_that_stops_early(tt_ctx *ctx, void *y, const void *x, int64_t n)
{
    for (int64_t i = 0; i < n - 1; i++) {
        size_t size = tt_formats[ctx->base->format].bytes;
        memcpy((char *)y + (size_t)i * size, (const char *)x + (size_t)i * size, size);
    }
}

static void adamw_that_scales_the_gradient(tt_ctx *ctx, float *master, float *m, float *v, void *w,
                                           const float *g, int64_t n, const tt_adamw *step)
{
    (void)ctx, (void)master, (void)m, (void)v, (void)step;
    memset(w, 0, (size_t)n * sizeof(float));
    ((float *)(uintptr_t)g)[n - 1] *= 2;
}

static void gemm_that_skips_a_row(tt_ctx *ctx, void *dx, const void *dy, const void *w, int64_t M,
                                  int64_t N, int64_t K)
{
    (void)ctx, (void)dy, (void)w, (void)N;
    memset(dx, 0, (size_t)((M - 1) * K) * sizeof(tt_bf16));
}

static void gelu_that_reads_its_output(tt_ctx *ctx, void *y, const void *x, int64_t n)
{
    (void)ctx;
    for (int64_t i = 0; i < n; i++) {
        ((float *)y)[i] += ((const float *)x)[i];
    }
}

START_TEST(a_changed_input_is_seen)
{
    rig r;
    rig_open_guard(&r, TT_FP32);
    float x[65], y[65], g[7], w[7], state[7] = {0};
    for (int i = 0; i < 65; i++) {
        x[i] = (float)i / 20;
    }
    r.guarded.gelu = gelu_that_clips;
    r.ops.gelu(&r.ctx, y, x, 60);
    ck_assert_int_eq(seen, 0);
    r.ops.gelu(&r.ctx, y, x, 65);
    ck_assert_int_eq(seen, 1);
    ck_assert_str_eq(seen_op, "gelu");
    ck_assert_str_eq(seen_what, "changes its input x");
    r.guarded.adamw = adamw_that_scales_the_gradient;
    tt_adamw step = {.lr = 1};
    for (int i = 0; i < 7; i++) {
        g[i] = 1;
    }
    r.ops.adamw(&r.ctx, state, state, state, w, g, 7, &step);
    ck_assert_str_eq(seen_what, "changes its input g");
    rig_close(&r);
}
END_TEST

START_TEST(an_unwritten_output_is_seen)
{
    for (int f = 0; f < 2; f++) {
        rig r;
        rig_open_guard(&r, f == 0 ? TT_BF16 : TT_FP32);
        void *x = rig_random(&r, 65, 1), *y = rig_acts(&r, 65);
        r.guarded.gelu = gelu_that_stops_early;
        r.ops.gelu(&r.ctx, y, x, 65);
        ck_assert_int_eq(seen, 1);
        ck_assert_str_eq(seen_what, "leaves element 64 of its output y unwritten");
        free(x), free(y);
        rig_close(&r);
    }
}
END_TEST

START_TEST(reading_an_output_gives_nan)
{
    rig r;
    rig_open_guard(&r, TT_FP32);
    float x[3] = {1, 2, 3}, y[3] = {0, 0, 0};
    r.guarded.gelu = gelu_that_reads_its_output;
    r.ops.gelu(&r.ctx, y, x, 3);
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
    double loss = 0;
    int64_t count = 0;
    r.guarded.gemm_nn = gemm_that_skips_a_row;
    r.ops.head_loss(&r.ctx, &loss, &count, NULL, dx, gw, x, w, target, M, V, V, C, M, 1);
    ck_assert_int_ge(seen, 1);
    ck_assert_str_eq(seen_what, "leaves element 12 of its output dx unwritten");
    free(x), free(w), free(dx), free(target), free(gw);
    rig_close(&r);
}
END_TEST

START_TEST(permitted_overlap_is_quiet)
{
    rig r;
    rig_open_guard(&r, TT_BF16);
    void *x = rig_random(&r, 70, 1), *dy = rig_random(&r, 70, 1), *dx = rig_acts(&r, 70);
    r.ops.gelu_grad(&r.ctx, dx, dy, x, 70);
    r.ops.gelu_grad(&r.ctx, dy, dy, x, 70);
    ck_assert_mem_eq(dx, dy, 70 * sizeof(tt_bf16));
    ck_assert_int_eq(seen, 0);
    free(x), free(dy), free(dx);
    rig_close(&r);
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("guard");
    TCase *tests = tcase_create("guard");
    tcase_add_test(tests, a_changed_input_is_seen);
    tcase_add_test(tests, an_unwritten_output_is_seen);
    tcase_add_test(tests, reading_an_output_gives_nan);
    tcase_add_test(tests, a_kernel_inside_a_kernel_is_watched);
    tcase_add_test(tests, permitted_overlap_is_quiet);
    suite_add_tcase(suite, tests);
    return suite;
}

TT_TEST_MAIN(make_suite)
