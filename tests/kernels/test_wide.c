/* test_wide.c: matmuls of narrow act in FP32: against sums in double of the unrounded weights,
 * against the FP32 table, and leaf by leaf. */
#include "rig.h"
#include "tutti/kernels/wide.h"

enum { LEAF = 160, LEAVES = 7, M = LEAF * LEAVES, N = 72, K = 104, USED = 70 };

static const tt_extents extents = {
    .rows = M, .tokens = LEAF, .channels = N, .ffn = K, .vocab = K, .heads = 4, .head_size = 18};

typedef struct wide_rig {
    rig r; /* its table is the wide one */
    tt_wide_ops wide;
    tt_ops full, full_guarded; /* the FP32 table by itself, for comparison */
    tt_ctx full_ctx;
} wide_rig;

static void open_rig(wide_rig *w, tt_format compute, const char *isa, int threads)
{
    tt_err err = {TT_OK, ""};
    memset(w, 0, sizeof *w);
    ck_assert_msg(tt_kernels_select_wide(&w->wide, compute, isa, &err) == TT_OK, "%s", err.text);
    ck_assert_int_eq(tt_kernels_select(&w->full, &w->full_guarded, TT_FP32, isa, &err), TT_OK);
    size_t bytes = tt_kernels_wide_workspace(&w->wide, &extents, threads);
    ck_assert_int_eq(tt_arena_open(&w->r.room, "test", bytes, &err), TT_OK);
    void *room = tt_arena_take(&w->r.room, bytes);
    memset(room, 0xff, bytes);
    w->r.ops = w->wide.ops;
    w->r.ctx = tt_kernels_wide_ctx(&w->wide, threads, room, bytes);
    w->full_ctx = tt_kernels_ctx(&w->full, &w->full_guarded, threads, room, bytes);
    ck_assert_int_eq(w->wide.ops.format, compute);
    ck_assert_int_eq(w->wide.ops.compute, TT_FP32);
    ck_assert_int_eq(w->wide.ops.probabilities, TT_FP32);
    ck_assert_int_eq(tt_kernels_self_test(&w->r.ctx, &err), TT_OK);
}

static void each(void (*test)(wide_rig *w))
{
    const char *isa[8];
    int count = tt_kernels_isa_list(isa, 7);
    isa[count++] = "guard";
    for (int i = 0; i < count; i++) {
        const tt_format narrow[] = {TT_BF16, TT_FP16};
        for (size_t f = 0; f < sizeof narrow / sizeof narrow[0]; f++) {
            wide_rig w;
            open_rig(&w, narrow[f], isa[i], 2);
            test(&w);
            rig_close(&w.r);
        }
    }
}

/* out[n] = x[n] act as FP32, on the heap. */
static float *widened(wide_rig *w, const void *x, int64_t n)
{
    float *out = rig_block((size_t)n * sizeof *out);
    w->r.ops.from_act(&w->r.ctx, out, x, n);
    return out;
}

/* sum over k of x[m,k] w[n,k] */
static double dot(const float *x, const float *w, int64_t m, int64_t n, int64_t depth)
{
    double sum = 0;
    for (int64_t k = 0; k < depth; k++) {
        sum += (double)x[m * depth + k] * (double)w[n * depth + k];
    }
    return sum;
}

/* Sums of K products of numbers near 1, in FP32. Rounding the weights to BF16 would add a hundred times
 * that. */
static const double slack = 2e-4;

static void forward(wide_rig *w)
{
    rig *r = &w->r;
    void *x = rig_random(r, M * K, 1), *y = rig_acts(r, M * N), *residual = rig_random(r, M * N, 3);
    void *bias = rig_random(r, N, 1);
    float *matrix = rig_floats(r, N * K, 1), *z = rig_block(M * N * sizeof *z);
    float *x32 = widened(w, x, M * K);
    const tt_weight weight = {matrix, NULL};
    const tt_epilogue e = {.bias = bias, .residual = residual, .T = LEAF};
    r->ops.gemm_nt(&r->ctx, y, x, &weight, &e, M, N, K, LEAF);
    r->ops.gemm_nt_f32(&r->ctx, z, x, &weight, M, N, K, LEAF);
    for (int64_t i = 0; i < M * N; i += 7) {
        double sum = dot(x32, matrix, i / N, i % N, K);
        ck_assert_msg(fabs((double)z[i] - sum) < slack, "%s: %g, not %g", r->ops.isa, (double)z[i],
                      sum);
        RIG_NEAR(r, rig_get(r, y, i), sum + rig_get(r, bias, i % N) + rig_get(r, residual, i),
                 slack, "gemm_nt");
    }
    free(x);
    free(y);
    free(residual);
    free(bias);
    free(matrix);
    free(z);
    free(x32);
}

START_TEST(test_forward)
{
    each(forward);
}
END_TEST

static void backward(wide_rig *w)
{
    rig *r = &w->r;
    void *dy = rig_random(r, M * N, 1), *x = rig_random(r, M * K, 1), *dx = rig_acts(r, M * K);
    float *matrix = rig_floats(r, N * K, 1), *gw = rig_floats(r, N * K, 1),
          *gb = rig_floats(r, N, 1);
    float *gw0 = rig_copy(gw, N * K * sizeof *gw), *gb0 = rig_copy(gb, N * sizeof *gb);
    float *dy32 = widened(w, dy, M * N), *x32 = widened(w, x, M * K);
    const tt_weight weight = {matrix, NULL};
    r->ops.gemm_nn(&r->ctx, dx, dy, &weight, NULL, M, N, K, LEAF);
    r->ops.gemm_tn(&r->ctx, GRAD(gw), GRAD(gb), dy, x, M, N, K, LEAF);
    for (int64_t i = 0; i < M * K; i += 11) {
        double sum = 0;
        for (int64_t n = 0; n < N; n++) {
            sum += (double)dy32[i / K * N + n] * (double)matrix[n * K + i % K];
        }
        RIG_NEAR(r, rig_get(r, dx, i), sum, slack, "gemm_nn");
    }
    for (int64_t i = 0; i < N * K; i += 5) {
        double sum = (double)gw0[i];
        for (int64_t m = 0; m < M; m++) {
            sum += (double)dy32[m * N + i / K] * (double)x32[m * K + i % K];
        }
        ck_assert(fabs((double)gw[i] - sum) < 10 * slack);
    }
    for (int64_t n = 0; n < N; n++) {
        double sum = (double)gb0[n];
        for (int64_t m = 0; m < M; m++) {
            sum += (double)dy32[m * N + n];
        }
        ck_assert(fabs((double)gb[n] - sum) < 10 * slack);
    }
    void *all[] = {dy, x, dx, matrix, gw, gb, gw0, gb0, dy32, x32};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        free(all[i]);
    }
}

START_TEST(test_backward)
{
    each(backward);
}
END_TEST

/* What the FP32 table gives, rounded; the leaves one by one give the same bits. */
static void leaves(wide_rig *w)
{
    rig *r = &w->r;
    void *x = rig_random(r, M * K, 1), *y = rig_acts(r, M * N), *some = rig_acts(r, M * N);
    float *matrix = rig_floats(r, N * K, 1), *x32 = widened(w, x, M * K);
    float *y32 = rig_block(M * N * sizeof *y32), *gw = rig_floats(r, N * K, 1);
    float *gw_some = rig_copy(gw, N * K * sizeof *gw);
    const tt_weight weight = {matrix, NULL};
    r->ops.gemm_nt(&r->ctx, y, x, &weight, NULL, M, N, K, LEAF);
    r->ops.gemm_tn(&r->ctx, GRAD(gw), NULL, y, x, M, N, K, LEAF);
    w->full.gemm_nt(&w->full_ctx, y32, x32, &weight, NULL, M, N, K, LEAF);
    r->ops.to_act(&r->ctx, some, y32, M * N);
    ck_assert_mem_eq(y, some, M * N * rig_size(r));
    r->ctx.threads = 1;
    for (int64_t m = 0; m < M; m += LEAF) {
        const uint16_t *x_leaf = (const uint16_t *)x + m * K; /* two bytes, either format */
        uint16_t *y_leaf = (uint16_t *)some + m * N;
        r->ops.gemm_nt(&r->ctx, y_leaf, x_leaf, &weight, NULL, LEAF, N, K, LEAF);
        r->ops.gemm_tn(&r->ctx, GRAD(gw_some), NULL, y_leaf, x_leaf, LEAF, N, K, LEAF);
    }
    r->ctx.threads = 2;
    ck_assert_mem_eq(y, some, M * N * rig_size(r));
    ck_assert_mem_eq(gw, gw_some, N * K * sizeof *gw);
    void *all[] = {x, y, some, matrix, x32, y32, gw, gw_some};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        free(all[i]);
    }
}

START_TEST(test_leaves)
{
    each(leaves);
}
END_TEST

/* Loss, gradients and their rounding: the FP32 table's. Without gradient the same loss. */
static void head(wide_rig *w)
{
    enum { C = N, V = N };
    rig *r = &w->r;
    void *x = rig_random(r, M * C, 1), *dx = rig_acts(r, M * C), *want = rig_acts(r, M * C);
    float *matrix = rig_floats(r, V * C, 1), *x32 = widened(w, x, M * C);
    float *dx32 = rig_block(M * C * sizeof *dx32), *gw = rig_floats(r, V * C, 1);
    float *gw32 = rig_copy(gw, V * C * sizeof *gw), *row = rig_block(M * sizeof *row);
    float *row32 = rig_block(M * sizeof *row32);
    int32_t *target = rig_tokens(r, M, USED);
    tt_exact loss = {.pending = 0}, loss32 = {.pending = 0}, quiet = {.pending = 0};
    int64_t count = 0, count32 = 0, ignored = 0;
    const tt_weight weight = {matrix, NULL};
    for (int64_t m = 0; m < M; m += 3) {
        target[m] = -1;
    }
    r->ops.head_loss(&r->ctx, &loss, &count, row, dx, GRAD(gw), x, &weight, target, M, V, USED, C,
                     LEAF, 0.5f);
    r->ops.head_loss(&r->ctx, &quiet, &ignored, NULL, NULL, GRAD(gw), x, &weight, target, M, V,
                     USED, C, LEAF, 0.5f);
    w->full.head_loss(&w->full_ctx, &loss32, &count32, row32, dx32, GRAD(gw32), x32, &weight,
                      target, M, V, USED, C, LEAF, 0.5f);
    r->ops.to_act(&r->ctx, want, dx32, M * C);
    ck_assert(tt_exact_value(&loss) == tt_exact_value(&loss32));
    ck_assert(tt_exact_value(&loss) == tt_exact_value(&quiet));
    ck_assert_int_eq(count, count32);
    ck_assert_mem_eq(dx, want, M * C * rig_size(r));
    ck_assert_mem_eq(gw, gw32, V * C * sizeof *gw);
    ck_assert_mem_eq(row, row32, M * sizeof *row);
    void *all[] = {x, dx, want, matrix, x32, dx32, gw, gw32, row, row32, target};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        free(all[i]);
    }
}

START_TEST(test_head)
{
    each(head);
}
END_TEST

/* Over FP32 storage there is nothing to widen. */
START_TEST(test_fp32)
{
    tt_err err = {TT_OK, ""};
    tt_wide_ops wide;
    tt_ops full, guarded;
    const tt_format stored[] = {TT_FP32, TT_TF32};
    for (size_t f = 0; f < sizeof stored / sizeof stored[0]; f++) {
        ck_assert_int_eq(tt_kernels_select_wide(&wide, stored[f], "", &err), TT_OK);
        ck_assert_int_eq(tt_kernels_select(&full, &guarded, TT_FP32, "", &err), TT_OK);
        ck_assert_ptr_null(wide.full.isa);
        ck_assert(wide.ops.gemm_nt == full.gemm_nt && wide.ops.attention == full.attention);
        ck_assert_uint_eq(tt_kernels_wide_workspace(&wide, &extents, 2),
                          tt_kernels_workspace(&full, &guarded, &extents, 2));
    }
    ck_assert_int_eq(tt_kernels_select_wide(&wide, TT_BF16, "mmx", &err), TT_EUSER);
    ck_assert_int_eq(tt_kernels_select_wide(&wide, TT_E4M3, "", &err), TT_EUSER);
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("wide");
    TCase *tcase = tcase_create("wide");
    tcase_add_test(tcase, test_forward);
    tcase_add_test(tcase, test_backward);
    tcase_add_test(tcase, test_leaves);
    tcase_add_test(tcase, test_head);
    tcase_add_test(tcase, test_fp32);
    suite_add_tcase(suite, tcase);
    return suite;
}

TT_TEST_MAIN(make_suite)
