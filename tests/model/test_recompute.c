/* test_recompute.c: activations computed again: the same bits, and the memory that is promised. */
#include "model_fixture.h"

/* Deep enough for segments of three, the last of them short, and for every kind to differ. */
static tt_shape deep_shape(int64_t L)
{
    tt_shape shape = odd_shape;
    shape.L = L;
    return shape;
}

/* Gradient and loss of two micro-batches, of 2 sequences and of 1, with dropout. */
static void run(fixture *f, float *gradient, tt_loss *loss)
{
    fixture_zero_gradient(f);
    *loss = (tt_loss){0};
    if (f->fp8.sites > 0) {
        tt_fp8_clear(&f->fp8);
    }
    fixture_train(f, 0, 2, loss);
    fixture_train(f, 2, 1, loss);
    memcpy(gradient, f->gradient, tt_bytes(f->params.total, sizeof(float)));
}

/* Every choice against none: loss, gradient and FP8's largest magnitudes, to the bit. */
static void check(int64_t L, tt_format compute, const char *isa, const tt_fp8 *fp8)
{
    const tt_shape shape = deep_shape(L);
    fixture plain;
    tt_err err = {0};
    tt_loss want, loss;
    fixture_open_all(&plain, &shape, compute, isa, 3, 7, true, fp8, NULL);
    const int64_t N = plain.params.total;
    float *gradient = must(tt_alloc(N, sizeof(float), &err));
    float *again = must(tt_alloc(N, sizeof(float), &err));
    run(&plain, gradient, &want);
    ck_assert_int_gt(want.count, 0);
    for (int kind = 0; kind < TT_RECOMPUTE_KINDS; kind++) {
        for (int64_t blocks = 0; blocks < (kind == TT_RECOMPUTE_BLOCK ? L + 1 : 1); blocks++) {
            const tt_recompute r =
                tt_recompute_make((tt_recompute_kind)kind, L, blocks, fp8 != NULL);
            fixture f;
            fixture_open_all(&f, &shape, compute, isa, 3, 7, true, fp8, &r);
            for (int round = 0; round < 2; round++) { /* what a pass left must not matter */
                run(&f, again, &loss);
                ck_assert_int_eq(loss.count, want.count);
                ck_assert(sum_of(&loss) == sum_of(&want));
                for (int64_t i = 0; i < N; i++) {
                    ck_assert_msg(memcmp(&again[i], &gradient[i], sizeof *again) == 0,
                                  "%s, %lld of %lld blocks, %s: element %lld is %g, not %g",
                                  tt_recompute_names[kind], (long long)blocks, (long long)L, isa,
                                  (long long)i, (double)again[i], (double)gradient[i]);
                }
                if (fp8 != NULL) {
                    ck_assert_mem_eq(f.fp8.amax, plain.fp8.amax,
                                     tt_bytes(f.fp8.sites, sizeof(float)));
                }
            }
            fixture_close(&f);
        }
    }
    free(again);
    free(gradient);
    fixture_close(&plain);
}

START_TEST(same_bits_in_every_format)
{
    static const tt_format formats[] = {TT_BF16, TT_FP32, TT_TF32, TT_FP16};
    for (size_t i = 0; i < sizeof formats / sizeof formats[0]; i++) {
        check(5, formats[i], "", NULL);
        check(5, formats[i], "ref", NULL);
    }
}
END_TEST

START_TEST(same_bits_at_every_depth)
{
    for (int64_t L = 1; L <= 10; L++) {
        check(L, TT_BF16, "", NULL);
    }
    check(4, TT_BF16, "guard", NULL);
}
END_TEST

START_TEST(same_bits_in_fp8)
{
    static const tt_fp8 recipes[] = {{.recipe = TT_FP8_CURRENT, .backward = TT_BF16},
                                     {.recipe = TT_FP8_CURRENT, .backward = TT_E5M2},
                                     {.recipe = TT_FP8_DELAYED, .backward = TT_E5M2, .history = 3},
                                     {.recipe = TT_FP8_MXFP8, .backward = TT_E5M2}};
    for (size_t i = 0; i < sizeof recipes / sizeof recipes[0]; i++) {
        check(5, TT_BF16, "", &recipes[i]);
    }
}
END_TEST

/* ---- memory ---- */

enum { B = 2, T = 32 };

/* Multiples of 64 bytes throughout, so that nothing is rounded up. */
static const tt_shape even = {
    .H = 2, .G = 2, .D = 16, .C = 32, .F = 128, .T = T, .V = 11, .vocab_used = 11};
static const size_t row = (size_t)B * T * 32 * 2, stat = (size_t)B * T * sizeof(float);

/* A red zone behind each copy, where there are such: of so many copies, and of the whole. */
static size_t zones(size_t copies)
{
    return (copies + 1) * TT_REDZONE;
}

static size_t bytes_of(tt_recompute_kind kind, int64_t L, int64_t blocks, size_t *kept)
{
    tt_shape shape = even;
    shape.L = L;
    const tt_recompute r = tt_recompute_make(kind, L, blocks, false);
    return tt_model_activation_bytes(&shape, B, T, 2, true, NULL, &r, kept);
}

/* By hand, in C-wide rows: a block has x and 15 more (norm_1, qkv 3, attention, x_mid, norm_2, fc 4,
 * gelu 4), statistics of two norms and of attention (2 + 2 + 2 a token); once there are norm_f, the last
 * x, and gradient buffers (7). */
START_TEST(bytes_by_hand)
{
    const size_t once = (1 + 1 + 7) * row + 2 * stat, block = 15 * row + 6 * stat;
    const size_t cheap = (1 + 1 + 4) * row + 4 * stat; /* of a block: one copy when made again */
    enum { L = 12, CHEAP = 5, BLOCK = 10, ONCE = 2 + 1 + 4 }; /* copies: slots and statistics */
    size_t kept;
    ck_assert_uint_eq(bytes_of(TT_RECOMPUTE_NONE, L, 0, &kept),
                      L * (row + block) + once + zones(L * (1 + BLOCK) + ONCE));
    ck_assert_uint_eq(kept, L * (row + block) + row + (L * (1 + BLOCK) + 1) * TT_REDZONE);
    ck_assert_uint_eq(bytes_of(TT_RECOMPUTE_SELECTIVE, L, 0, &kept),
                      L * (row + block - cheap) + cheap + once +
                          zones(L * (1 + BLOCK - CHEAP) + CHEAP + ONCE));
    ck_assert_uint_eq(kept,
                      L * (row + block - cheap) + row + (L * (1 + BLOCK - CHEAP) + 1) * TT_REDZONE);
    /* Segments of 4: two inputs and the third's, three more within one, and the last x. */
    ck_assert_uint_eq(bytes_of(TT_RECOMPUTE_SQRT, L, 0, NULL),
                      (3 + 3) * row + 4 * block + once + zones(3 + 3 + 4 * BLOCK + ONCE));
    ck_assert_uint_eq(bytes_of(TT_RECOMPUTE_BLOCK, L, 0, NULL),
                      L * row + block + once + zones(L + BLOCK + ONCE));
    /* The first 5; 7 keep what selective keeps. */
    ck_assert_uint_eq(bytes_of(TT_RECOMPUTE_BLOCK, L, 5, NULL),
                      L * row + 7 * (block - cheap) + cheap + once +
                          zones(L + 7 * (BLOCK - CHEAP) + CHEAP + ONCE));
}
END_TEST

/* What waits for backward with sqrt is a + b sqrt(L); with none a + b L. */
START_TEST(sqrt_grows_as_the_root)
{
    static const int64_t depth[] = {4, 9, 16, 36};
    enum { N = 4 };
    double sx = 0, sy = 0, sxx = 0, sxy = 0, y[N];
    for (int i = 0; i < N; i++) {
        const double x = sqrt((double)depth[i]);
        y[i] = (double)bytes_of(TT_RECOMPUTE_SQRT, depth[i], 0, NULL);
        sx += x, sy += y[i], sxx += x * x, sxy += x * y[i];
    }
    const double b = (N * sxy - sx * sy) / (N * sxx - sx * sx), a = (sy - b * sx) / N;
    for (int i = 0; i < N; i++) {
        const double fit = a + b * sqrt((double)depth[i]);
        ck_assert_msg(fabs(y[i] / fit - 1) < 0.1, "L = %lld: %g bytes, the fit says %g",
                      (long long)depth[i], y[i], fit);
    }
    const double none = (double)bytes_of(TT_RECOMPUTE_NONE, 36, 0, NULL);
    ck_assert(y[3] < 0.3 * none); /* and it is no straight line */
}
END_TEST

/* ---- what it costs ---- */

START_TEST(runs_by_hand)
{
    int64_t runs[TT_ROWS];
    tt_recompute r = tt_recompute_make(TT_RECOMPUTE_NONE, 12, 0, false);
    tt_recompute_runs(&r, 12, runs);
    for (int i = 0; i < (int)TT_ROWS; i++) {
        ck_assert_int_eq(runs[i], 0);
    }
    r = tt_recompute_make(TT_RECOMPUTE_SELECTIVE, 12, 0, false);
    tt_recompute_runs(&r, 12, runs);
    ck_assert_int_eq(runs[TT_ROW_NORM], 22);
    ck_assert_int_eq(runs[TT_ROW_GELU], 11);
    ck_assert_int_eq(runs[TT_ROW_FC], 0);
    r = tt_recompute_make(TT_RECOMPUTE_BLOCK, 12, 0, false);
    tt_recompute_runs(&r, 12, runs);
    ck_assert_int_eq(runs[TT_ROW_QKV], 11);
    ck_assert_int_eq(runs[TT_ROW_DOWN], 0);
    ck_assert_int_eq(runs[TT_ROW_GELU], 0);
    r = tt_recompute_make(TT_RECOMPUTE_SQRT, 12, 0, false);
    tt_recompute_runs(&r, 12, runs);
    ck_assert_int_eq(runs[TT_ROW_ATTENTION], 8);
    ck_assert_int_eq(runs[TT_ROW_DOWN], 6);
    r = tt_recompute_make(TT_RECOMPUTE_SELECTIVE, 12, 0, true); /* FP8 */
    tt_recompute_runs(&r, 12, runs);
    ck_assert_int_eq(runs[TT_ROW_NORM], 0);
}
END_TEST

/* 24 C^2 a token and block without down's 8 C^2, and attention's 2 T C. */
START_TEST(flops_by_hand)
{
    tt_shape shape = even;
    tt_params params;
    tt_err err = {0};
    shape.L = 12;
    ck_assert_int_eq(tt_params_make(&params, &shape, &err), TT_OK);
    const tt_recompute block = tt_recompute_make(TT_RECOMPUTE_BLOCK, 12, 0, false);
    const double C = 32, one = 16 * C * C + 2 * T * C;
    ck_assert_double_eq(tt_recompute_flops_per_token(&block, &shape, &params), 11 * one);
    const tt_recompute root = tt_recompute_make(TT_RECOMPUTE_SQRT, 12, 0, false);
    ck_assert_double_eq(tt_recompute_flops_per_token(&root, &shape, &params),
                        8 * one + 6 * 8 * C * C);
    const tt_recompute cheap = tt_recompute_make(TT_RECOMPUTE_SELECTIVE, 12, 0, false);
    ck_assert_double_eq(tt_recompute_flops_per_token(&cheap, &shape, &params), 0);
    tt_params_free(&params);
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("recompute");
    TCase *tests = tcase_create("recompute");
    tcase_set_timeout(tests, 120);
    tcase_add_test(tests, same_bits_in_every_format);
    tcase_add_test(tests, same_bits_at_every_depth);
    tcase_add_test(tests, same_bits_in_fp8);
    tcase_add_test(tests, bytes_by_hand);
    tcase_add_test(tests, sqrt_grows_as_the_root);
    tcase_add_test(tests, runs_by_hand);
    tcase_add_test(tests, flops_by_hand);
    suite_add_tcase(suite, tests);
    return suite;
}

TT_TEST_MAIN(make_suite)
