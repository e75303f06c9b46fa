/* test_invariants.c: what layout must not change, bit for bit, for every table.
 *
 * A miniature step runs every operation on B sequences, then again in other ways: on 1, 2 and 3
 * threads, with packed weights; sequence by sequence, as another micro-batch size or rank count
 * would. Outputs per row must agree in every bit, and so must accumulators, because leaves are added
 * in order. Dropout is on: masks belong to samples, not to places in a batch. */
#include "kernels/kernels_impl.h"
#include "rig.h"

enum { B = 3, H = 2, G = 1, D = 9, C = 18, F = 37, V = 70, QKV = (H + 2 * G) * D };

typedef struct arrays {
    int64_t T;
    int32_t *token, *target;
    void *wte, *wpe, *gain, *bias, *w_qkv, *b_qkv, *w_out, *w_fc, *wide_bias, *d_in; /* in */
    void *x, *n, *qkv, *o, *res, *fc, *act, *d_head, *d_fc, *d_act, *d_qkv, *d_res, *d_norm;
    tt_weight wte_, qkv_, out_, fc_; /* the matrices as matmuls get them */
    float *mean, *rstd, *lse, *row_loss;
    float *gwte, *gwpe, *ggain, *gbias, *gw_fc, *gb_fc, *gw_head;
    tt_exact loss;
    int64_t count;
} arrays;

/* Name, elements per sequence, is float. Outputs by row. */
/* clang-format off */
#define ROWS(X)                                                                   \
    X(x, T * C, 0) X(n, T * C, 0) X(qkv, T * QKV, 0) X(o, T * H * D, 0)           \
    X(res, T * C, 0) X(fc, T * F, 0) X(act, T * F, 0) X(d_head, T * C, 0)         \
    X(d_fc, T * F, 0) X(d_act, T * F, 0) X(d_qkv, T * QKV, 0) X(d_res, T * C, 0)  \
    X(d_norm, T * C, 0) X(mean, T, 1) X(rstd, T, 1) X(lse, H * T, 1) X(row_loss, T, 1)
/* clang-format on */
#define SUMS(X) \
    X(gwte, V *C) X(gwpe, T *C) X(ggain, C) X(gbias, C) X(gw_fc, F *C) X(gb_fc, F) X(gw_head, V *C)

static void open_arrays(rig *r, arrays *a, int64_t T, bool packed)
{
    r->stream = 0; /* the same inputs each time */
    a->T = T;
    a->token = rig_tokens(r, B * T, V);
    a->target = rig_tokens(r, B * T, V);
    for (int64_t i = 0; i < B * T; i += 5) {
        a->target[i] = -1;
    }
    a->wte = rig_random(r, V * C, 1);
    a->wpe = rig_random(r, T * C, 1);
    a->gain = rig_random(r, C, 1);
    a->bias = rig_random(r, C, 1);
    a->w_qkv = rig_random(r, QKV * C, 0.3);
    a->b_qkv = rig_random(r, QKV, 1);
    a->w_out = rig_random(r, C * H * D, 0.3);
    a->w_fc = rig_random(r, F * C, 0.3);
    a->wide_bias = rig_random(r, F, 1);
    a->d_in = rig_random(r, B * T * C, 1);
#define TAKE_ROWS(name, size, is_float) \
    a->name = rig_block((size_t)(B * (size)) * (is_float ? sizeof(float) : rig_size(r)));
#define TAKE_SUM(name, size) a->name = rig_floats(r, size, 1);
    ROWS(TAKE_ROWS)
    SUMS(TAKE_SUM)
    a->loss = (tt_exact){.pending = 0};
    a->count = 0;
    a->wte_ = rig_weight(r, a->wte, V, C, packed);
    a->qkv_ = rig_weight(r, a->w_qkv, QKV, C, packed);
    a->out_ = rig_weight(r, a->w_out, C, H * D, packed);
    a->fc_ = rig_weight(r, a->w_fc, F, C, packed);
}

static void close_arrays(arrays *a)
{
#define FREE_ROWS(name, size, is_float) free(a->name);
#define FREE_SUM(name, size) free(a->name);
    ROWS(FREE_ROWS)
    SUMS(FREE_SUM)
    free(a->token), free(a->target), free(a->wte), free(a->wpe), free(a->gain), free(a->bias);
    free(a->w_qkv), free(a->b_qkv), free(a->w_out), free(a->w_fc), free(a->wide_bias);
    free(a->d_in);
    rig_unpack(&a->wte_), rig_unpack(&a->qkv_), rig_unpack(&a->out_), rig_unpack(&a->fc_);
}

static void *at(const rig *r, void *array, int64_t element)
{
    return (char *)array + (size_t)element * rig_size(r);
}

/* Every operation on sequences b .. b + count - 1. */
static void step(rig *r, arrays *a, int64_t b, int64_t count)
{
    static const int64_t samples[B] = {17, 4, 123456789012};
    tt_dropout drop = rig_dropout(0.2, samples + b);
    tt_ctx *ctx = &r->ctx;
    const tt_ops *k = &r->ops;
    int64_t T = a->T, M = count * T, m = b * T;
    const int32_t *token = a->token + m, *target = a->target + m;
    void *x = at(r, a->x, m * C), *n = at(r, a->n, m * C), *qkv = at(r, a->qkv, m * QKV);
    void *o = at(r, a->o, m * H * D), *res = at(r, a->res, m * C), *fc = at(r, a->fc, m * F);
    void *act = at(r, a->act, m * F), *d_head = at(r, a->d_head, m * C);
    void *d_fc = at(r, a->d_fc, m * F), *d_act = at(r, a->d_act, m * F);
    void *d_qkv = at(r, a->d_qkv, m * QKV), *d_res = at(r, a->d_res, m * C);
    void *d_norm = at(r, a->d_norm, m * C), *d_in = at(r, a->d_in, m * C);
    float *mean = a->mean + m, *rstd = a->rstd + m, *lse = a->lse + b * H * T;
    const tt_epilogue qkv_end = {.bias = a->b_qkv};
    const tt_epilogue out_end = {.bias = a->bias, .residual = x, .drop = &drop, .T = T};
    const tt_epilogue fc_end = {.bias = a->wide_bias, .before = fc};
    const tt_epilogue act_end = {.slope = fc};
    k->embed(ctx, x, a->wte, a->wpe, token, count, T, C, &drop);
    k->norm(ctx, n, mean, rstd, x, a->gain, a->bias, M, C);
    k->gemm_nt(ctx, qkv, n, &a->qkv_, &qkv_end, M, QKV, C, T);
    k->attention(ctx, o, lse, qkv, count, T, H, G, D, 160, &drop);
    k->gemm_nt(ctx, res, o, &a->out_, &out_end, M, C, H * D, T);
    k->gemm_nt(ctx, act, res, &a->fc_, &fc_end, M, F, C, T);
    k->head_loss(ctx, &a->loss, &a->count, a->row_loss + m, d_head, GRAD(a->gw_head), res, &a->wte_,
                 target, M, V, V - 3, C, T, 1);
    k->residual_grad(ctx, d_res, d_head, count, T, C, &drop);
    k->attention_grad(ctx, d_qkv, d_res, o, qkv, lse, count, T, H, G, D, 160, &drop);
    k->gemm_nt(ctx, d_act, d_in, &a->fc_, NULL, M, F, C, T);
    k->gemm_nt(ctx, d_fc, d_in, &a->fc_, &act_end, M, F, C, T);
    k->gemm_nn(ctx, d_norm, d_fc, &a->fc_, NULL, M, F, C, T);
    k->gemm_tn(ctx, GRAD(a->gw_fc), GRAD(a->gb_fc), d_fc, n, M, F, C, T);
    k->norm_grad(ctx, d_norm, GRAD(a->ggain), GRAD(a->gbias), d_in, x, a->gain, mean, rstd, M, C,
                 T);
    k->embed_grad(ctx, GRAD(a->gwte), GRAD(a->gwpe), d_norm, token, count, T, C, &drop);
}

static void assert_same(const rig *r, const arrays *a, const arrays *other, const char *how)
{
    int64_t T = a->T;
#define SAME(array, bytes)                                                                        \
    ck_assert_msg(memcmp(a->array, other->array, bytes) == 0, "%s %s: %s differs %s", r->ops.isa, \
                  tt_formats[r->ops.compute].name, #array, how);
#define SAME_ROWS(array, size, is_float) \
    SAME(array, (size_t)(B * (size)) * (is_float ? sizeof(float) : rig_size(r)))
#define SAME_SUM(array, size) SAME(array, (size_t)(size) * sizeof(float))
    ROWS(SAME_ROWS)
    SUMS(SAME_SUM)
    ck_assert_msg(tt_exact_value(&a->loss) == tt_exact_value(&other->loss), "%s: loss differs %s",
                  r->ops.isa, how);
    ck_assert_int_eq(a->count, other->count);
}

static void layouts(rig *r)
{
    static const int64_t lengths[] = {1, 7, 37, 64, 128};
    for (int i = 0; i < 5; i++) {
        int64_t T = lengths[i];
        arrays whole, other;
        open_arrays(r, &whole, T, false);
        step(r, &whole, 0, B);
        for (int threads = 1; threads <= 3; threads += 2) {
            rig team;
            const char *isa = r->ops.isa;
            rig_open(&team, r->ops.compute, isa, threads);
            open_arrays(&team, &other, T, threads > 1);
            step(&team, &other, 0, B);
            assert_same(r, &whole, &other, threads == 1 ? "on 1 thread" : "on 3 threads, packed");
            close_arrays(&other);
            rig_close(&team);
        }
        open_arrays(r, &other, T, true);
        for (int64_t b = 0; b < B; b++) {
            step(r, &other, b, 1);
        }
        assert_same(r, &whole, &other, "sequence by sequence");
        close_arrays(&other);
        open_arrays(r, &other, T, false);
        step(r, &other, 0, 2);
        step(r, &other, 2, 1);
        assert_same(r, &whole, &other, "as two and one");
        close_arrays(&other);
        close_arrays(&whole);
    }
}

START_TEST(threads_and_splits)
{
    rig_each(layouts);
}
END_TEST

/* Leaves longer than a chunk of head_loss: chunks start anew with each leaf. */
static void long_leaves(rig *r)
{
    enum { T = TT_HEAD_DEPTH + 64, M = 2 * T, WIDE = 9, WORDS = 50 };
    void *x = rig_random(r, M * WIDE, 1), *w = rig_random(r, WORDS * WIDE, 1), *dx[2];
    int32_t *target = rig_tokens(r, M, WORDS);
    float *gw[2], *start = rig_floats(r, WORDS * WIDE, 1);
    tt_exact loss[2] = {{.pending = 0}, {.pending = 0}};
    int64_t count = 0;
    tt_weight weight[2] = {rig_weight(r, w, WORDS, WIDE, false),
                           rig_weight(r, w, WORDS, WIDE, true)};
    for (int k = 0; k < 2; k++) {
        int64_t rows = k == 0 ? M : T;
        gw[k] = rig_copy(start, WORDS * WIDE * sizeof *start);
        dx[k] = rig_acts(r, M * WIDE);
        for (int64_t m = 0; m < M; m += rows) {
            r->ops.head_loss(&r->ctx, &loss[k], &count, NULL, at(r, dx[k], m * WIDE), GRAD(gw[k]),
                             at(r, x, m * WIDE), &weight[k], target + m, rows, WORDS, WORDS, WIDE,
                             T, 1);
        }
    }
    ck_assert(tt_exact_value(&loss[0]) == tt_exact_value(&loss[1]));
    ck_assert_mem_eq(dx[0], dx[1], (size_t)(M * WIDE) * rig_size(r));
    ck_assert_mem_eq(gw[0], gw[1], WORDS * WIDE * sizeof *start);
    rig_unpack(&weight[1]);
    free(x), free(w), free(target), free(start);
    free(dx[0]), free(dx[1]), free(gw[0]), free(gw[1]);
}

START_TEST(leaves_longer_than_a_chunk)
{
    rig_each(long_leaves);
}
END_TEST

/* Leaves of more rows than norm_grad sums at a time: the same alone and in a batch, on any number of
 * threads, and the true sums. */
static void long_sums(rig *r)
{
    enum { T = 4096 + 37, M = 2 * T, WIDE = 3 };
    void *x = rig_random(r, M * WIDE, 1), *dy = rig_random(r, M * WIDE, 1),
         *y = rig_acts(r, M * WIDE);
    void *gain = rig_random(r, WIDE, 1), *bias = rig_random(r, WIDE, 1), *dx[2];
    float *mean = rig_floats(r, M, 1), *rstd = rig_floats(r, M, 1), *sums[2];
    r->ops.norm(&r->ctx, y, mean, rstd, x, gain, bias, M, WIDE);
    for (int k = 0; k < 2; k++) {
        int64_t rows = k == 0 ? M : T;
        r->ctx.threads = 2 - k;
        dx[k] = rig_copy(dy, (size_t)(M * WIDE) * rig_size(r));
        sums[k] = rig_block(2 * WIDE * sizeof **sums);
        memset(sums[k], 0, 2 * WIDE * sizeof **sums);
        for (int64_t m = 0; m < M; m += rows) {
            r->ops.norm_grad(&r->ctx, at(r, dx[k], m * WIDE), GRAD(sums[k]), GRAD(sums[k] + WIDE),
                             at(r, dy, m * WIDE), at(r, x, m * WIDE), gain, mean + m, rstd + m,
                             rows, WIDE, T);
        }
    }
    for (int64_t c = 0; c < WIDE; c++) {
        double want = 0;
        for (int64_t m = 0; m < M; m++) {
            want += rig_get(r, dy, m * WIDE + c);
        }
        ck_assert(fabs((double)sums[0][WIDE + c] - want) < 1e-6 * M);
    }
    ck_assert_mem_eq(dx[0], dx[1], (size_t)(M * WIDE) * rig_size(r));
    ck_assert_mem_eq(sums[0], sums[1], 2 * WIDE * sizeof **sums);
    free(x), free(dy), free(y), free(gain), free(bias), free(mean), free(rstd);
    free(dx[0]), free(dx[1]), free(sums[0]), free(sums[1]);
}

START_TEST(leaves_longer_than_norm_grad_holds)
{
    rig_each(long_sums);
}
END_TEST

/* Equal rows give equal results: everywhere, or at the same place of any leaf where OpenBLAS serves.
 * Wide and deep enough for every kernel inside a BLAS; a leaf is no multiple of its panels. */
static void equal_rows(rig *r)
{
    enum { M = 200, N = 390, K = 131 };
    bool blas = strcmp(r->ops.from[TT_OP_gemm_nt], "openblas") == 0;
    int64_t leaf = blas ? 77 : M, period = blas ? leaf : 1;
    void *x = rig_random(r, M * K, 1), *w = rig_random(r, N * K, 1), *y = rig_acts(r, M * N);
    size_t row = K * rig_size(r);
    for (int64_t m = period; m < M; m++) {
        memcpy(at(r, x, m * K), at(r, x, (m - period) * K), row);
    }
    for (int k = 0; k < 4; k++) {
        bool nt = k % 2 == 0;
        tt_weight weight = rig_weight(r, w, nt ? N : K, nt ? K : N, k < 2);
        if (nt) {
            r->ops.gemm_nt(&r->ctx, y, x, &weight, NULL, M, N, K, leaf);
        } else {
            r->ops.gemm_nn(&r->ctx, y, x, &weight, NULL, M, K, N, leaf);
        }
        rig_unpack(&weight);
        for (int64_t m = period; m < M / leaf * leaf; m++) {
            ck_assert_mem_eq(at(r, y, m * N), at(r, y, (m - period) * N), N * rig_size(r));
        }
    }
    free(x), free(w), free(y);
}

START_TEST(rows_do_not_depend_on_their_place)
{
    rig_each(equal_rows);
}
END_TEST

/* Kernels over everything: any thread count, any cut of the range (adamw under ZeRO). */
static void flat(rig *r)
{
    enum { N = 1003 };
    tt_adamw update = {1e-2f, 0.9f, 0.95f, 1e-8f, 0.1f, 0.1f, 0.05f, 0.5f};
    float *g = rig_floats(r, N, 1), *start = rig_floats(r, N, 1), *square = rig_floats(r, N, 1);
    for (int i = 0; i < N; i++) {
        square[i] *= square[i];
    }
    double sum = squares_of(&r->ctx, g, N);
    float *state[2][3];
    void *w[2];
    for (int k = 0; k < 2; k++) {
        state[k][0] = rig_copy(start, N * sizeof *g);
        state[k][1] = rig_copy(g, N * sizeof *g);
        state[k][2] = rig_copy(square, N * sizeof *g);
        w[k] = rig_acts(r, N);
        r->ctx.threads = 1 + k;
        int64_t cut = k == 0 ? N : 129; /* not at the end of a block */
        for (int64_t i = 0; i < N; i += cut) {
            r->ops.adamw(&r->ctx, FULL(state[k][0] + i), state[k][1] + i, state[k][2] + i,
                         at(r, w[k], i), GRAD(g + i), cut < N - i ? cut : N - i, &update);
        }
        ck_assert(squares_of(&r->ctx, g, N) == sum);
    }
    for (int s = 0; s < 3; s++) {
        ck_assert_mem_eq(state[0][s], state[1][s], N * sizeof *g);
        free(state[0][s]), free(state[1][s]);
    }
    ck_assert_mem_eq(w[0], w[1], N * rig_size(r));
    free(w[0]), free(w[1]), free(g), free(start), free(square);
}

START_TEST(ranges)
{
    rig_each(flat);
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("invariants");
    TCase *tests = tcase_create("invariants");
    tcase_add_test(tests, threads_and_splits);
    tcase_add_test(tests, leaves_longer_than_a_chunk);
    tcase_add_test(tests, leaves_longer_than_norm_grad_holds);
    tcase_add_test(tests, rows_do_not_depend_on_their_place);
    tcase_add_test(tests, ranges);
    suite_add_tcase(suite, tests);
    return suite;
}

TT_TEST_MAIN(make_suite)
