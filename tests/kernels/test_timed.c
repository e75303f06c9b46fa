/* test_timed.c: clocks around a table: the same results, every call in one row, seconds once. */
#include "rig.h"

#include "tutti/base/clock.h"

enum { M = 96, N = 48, K = 40, V = 64, LEAF = 32 };

static double seconds_of(const tt_op_time *row)
{
    double sum = 0;
    for (int i = 0; i < TT_OP_TOTAL; i++) {
        sum += row[i].seconds;
    }
    return sum;
}

static int64_t calls_of(const tt_op_time *row)
{
    int64_t sum = 0;
    for (int i = 0; i < TT_OP_TOTAL; i++) {
        sum += row[i].calls;
    }
    return sum;
}

typedef struct head {
    tt_exact loss;
    int64_t count;
    float gw[V * K];
    float dx[M * K]; /* act */
} head;

static void run_head(rig *r, const void *x, const void *w, const int32_t *target, head *h)
{
    const tt_weight weight = {.w = w};
    memset(h, 0, sizeof *h);
    r->ctx.ops->head_loss(&r->ctx, &h->loss, &h->count, NULL, h->dx, GRAD(h->gw), x, &weight,
                          target, M, V, V, K, LEAF, 1.0f);
}

/* A kernel made of kernels: its products are rows of their own, and no second counts twice. */
static void clocks_and_changes_nothing(rig *r)
{
    if (r->ctx.base != NULL) {
        return; /* guard: see guard_is_refused */
    }
    static float plain[M * K], weights[V * K];
    static float x[M * K], w[V * K]; /* act, which needs no more */
    static int32_t target[M];
    static head bare, clocked;
    for (int i = 0; i < M * K; i++) {
        plain[i] = (float)(i % 17 - 8) / 16.0f;
    }
    for (int i = 0; i < V * K; i++) {
        weights[i] = (float)(i % 13 - 6) / 16.0f;
    }
    for (int i = 0; i < M; i++) {
        target[i] = i % V;
    }
    r->ctx.ops->to_act(&r->ctx, x, plain, M * K);
    r->ctx.ops->to_act(&r->ctx, w, weights, V * K);
    run_head(r, x, w, target, &bare);

    tt_err err = {TT_OK, ""};
    tt_ops timed;
    tt_times times;
    memset(&times, 0xff, sizeof times);
    ck_assert_int_eq(tt_kernels_time(&r->ctx, &timed, &times, &err), TT_OK);
    const double start = tt_seconds();
    run_head(r, x, w, target, &clocked);
    squares_of(&r->ctx, plain, M * K);
    const double all = tt_seconds() - start;

    ck_assert_int_eq(memcmp(&bare, &clocked, sizeof bare), 0);
    ck_assert_int_eq(times.depth, 0);
    ck_assert_int_eq(calls_of(times.op), 2);
    ck_assert_int_eq(times.op[TT_OP_head_loss].calls, 1);
    ck_assert_int_eq(times.op[TT_OP_sum_squares].calls, 1);
    ck_assert(times.op[TT_OP_sum_squares].flops == 0);
    const double outer = seconds_of(times.op), inner = seconds_of(times.inner);
    ck_assert(times.op[TT_OP_head_loss].seconds > 0);
    ck_assert_msg(outer + inner <= all, "%g s in rows, %g s in all", outer + inner, all);
    double flops = times.op[TT_OP_head_loss].flops;
    for (int i = 0; i < TT_OP_TOTAL; i++) {
        ck_assert(times.inner[i].calls > 0 || times.inner[i].seconds == 0);
        flops += times.inner[i].flops;
    }
    ck_assert_msg(flops == 6.0 * M * V * K, "%g FLOP of the head's products", flops);
}

static void counts_flops(rig *r)
{
    if (r->ctx.base != NULL) {
        return;
    }
    enum { B = 2, T = 24, H = 2, D = 8 };
    static float qkv[B * T * 3 * H * D], o[B * T * H * D], dqkv[B * T * 3 * H * D];
    static float lse[B * H * T];
    tt_err err = {TT_OK, ""};
    tt_ops timed;
    tt_times times;
    memset(qkv, 0, sizeof qkv);
    ck_assert_int_eq(tt_kernels_time(&r->ctx, &timed, &times, &err), TT_OK);
    for (int i = 0; i < 3; i++) {
        r->ctx.ops->attention(&r->ctx, o, lse, qkv, B, T, H, H, D, T, NULL);
    }
    r->ctx.ops->attention_grad(&r->ctx, dqkv, o, o, qkv, lse, B, T, H, H, D, T, NULL);
    const double triangle = 2.0 * B * H * D * T * (T + 1) / 2;
    ck_assert_int_eq(times.op[TT_OP_attention].calls, 3);
    ck_assert_msg(times.op[TT_OP_attention].flops == 3 * 2 * triangle, "%g forward",
                  times.op[TT_OP_attention].flops);
    ck_assert_msg(times.op[TT_OP_attention_grad].flops == 5 * triangle, "%g backward",
                  times.op[TT_OP_attention_grad].flops);
}

START_TEST(each_table)
{
    rig_each(clocks_and_changes_nothing);
    rig_each(counts_flops);
}
END_TEST

/* A table of clocks is as complete as the one it wraps, and names the same sources. */
START_TEST(is_complete)
{
    rig r;
    tt_err err = {TT_OK, ""};
    tt_ops timed;
    tt_times times;
    rig_open(&r, TT_BF16, "ref", 1);
    ck_assert_int_eq(tt_kernels_time(&r.ctx, &timed, &times, &err), TT_OK);
    ck_assert_ptr_eq(r.ctx.ops, &timed);
    ck_assert_ptr_eq(r.ctx.base, &r.ops);
    ck_assert_str_eq(timed.isa, "ref");
    ck_assert_int_eq(timed.format, TT_BF16);
#define HAS(name, type, args) ck_assert_msg(timed.name != NULL, #name);
    TT_OPS(HAS)
    for (int i = 0; i < TT_OP_TOTAL; i++) {
        ck_assert_str_eq(timed.from[i], "ref");
    }
    rig_close(&r);
}
END_TEST

START_TEST(guard_is_refused)
{
    rig r;
    tt_err err = {TT_OK, ""};
    tt_ops timed;
    tt_times times;
    rig_open(&r, TT_FP32, "guard:ref", 1);
    const tt_ctx before = r.ctx;
    ck_assert_int_eq(tt_kernels_time(&r.ctx, &timed, &times, &err), TT_EUSER);
    ck_assert_ptr_nonnull(strstr(err.text, "guard:ref"));
    ck_assert_ptr_eq(r.ctx.ops, before.ops);
    ck_assert_ptr_eq(r.ctx.base, before.base);
    rig_close(&r);
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("timed");
    TCase *tests = tcase_create("timed");
    tcase_add_test(tests, each_table);
    tcase_add_test(tests, is_complete);
    tcase_add_test(tests, guard_is_refused);
    suite_add_tcase(suite, tests);
    return suite;
}

TT_TEST_MAIN(make_suite)
