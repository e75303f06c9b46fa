/* test_fp8.c: FP8 between the layers: what is rounded, what is kept, what is remembered, and that no
 * sequence learns of its neighbours. */
#include <string.h>

#include "model_fixture.h"
#include "tutti/numerics/fp8.h"

static const tt_fp8 recipes[] = {
    {.recipe = TT_FP8_CURRENT, .backward = TT_BF16},
    {.recipe = TT_FP8_DELAYED, .backward = TT_BF16, .history = 3},
    {.recipe = TT_FP8_MXFP8, .backward = TT_BF16},
    {.recipe = TT_FP8_CURRENT, .backward = TT_E5M2},
    {.recipe = TT_FP8_DELAYED, .backward = TT_E5M2, .history = 3},
    {.recipe = TT_FP8_MXFP8, .backward = TT_E5M2},
};
enum { RECIPES = sizeof recipes / sizeof *recipes };

static tt_shape shape_without_dropout(void)
{
    tt_shape shape = odd_shape;
    shape.dropout = 0;
    return shape;
}

/* Near what BF16 computes, and not the same. */
START_TEST(near_bf16)
{
    const tt_shape shape = shape_without_dropout();
    fixture f, g;
    tt_loss loss = {.count = 0}, want = {.count = 0};
    fixture_open_fp8(&f, &shape, TT_BF16, "", 3, 11, true, &recipes[_i]);
    fixture_open(&g, &shape, TT_BF16, "", 3, 11, true);
    fixture_train(&f, 0, 3, &loss);
    fixture_train(&g, 0, 3, &want);
    const double off = fabs(tt_loss_mean(&loss) / tt_loss_mean(&want) - 1);
    const double apart = distance(f.gradient, g.gradient, f.params.total);
    ck_assert_msg(off > 0 && off < 0.02, "loss off by %g", off);
    ck_assert_msg(apart > 1e-3 && apart < 0.25, "gradients apart by %g", apart);
    fixture_close(&f);
    fixture_close(&g);
}
END_TEST

/* A sequence's loss, and what it adds to the gradient, are the same alone and in company; and so is what
 * is remembered. */
START_TEST(alone_or_in_company)
{
    fixture f, g;
    fixture_open_fp8(&f, &odd_shape, TT_BF16, "", 3, 11, true, &recipes[_i]);
    fixture_open_fp8(&g, &odd_shape, TT_BF16, "", 3, 11, true, &recipes[_i]);
    for (int step = 0; step < 2; step++) { /* the second knows the amax of the first */
        tt_loss together = {.count = 0}, apart = {.count = 0};
        fixture_zero_gradient(&f), fixture_zero_gradient(&g);
        tt_fp8_clear(&f.fp8), tt_fp8_clear(&g.fp8);
        fixture_train(&f, 0, 3, &together);
        for (int64_t b = 0; b < 3; b++) {
            fixture_train(&g, b, 1, &apart);
        }
        ck_assert(tt_loss_mean(&together) == tt_loss_mean(&apart));
        ck_assert_mem_eq(f.fp8.amax, g.fp8.amax, (size_t)f.fp8.sites * sizeof(float));
        ck_assert_mem_eq(f.gradient, g.gradient, (size_t)f.params.total * sizeof(float));
        tt_fp8_push(&f.fp8, step + 1), tt_fp8_push(&g.fp8, step + 1);
    }
    fixture_close(&f);
    fixture_close(&g);
}
END_TEST

/* Every kernel under guard: what is decoded is what backward reads, and nothing is read that nobody
 * wrote. */
START_TEST(guarded)
{
    fixture f, g;
    tt_loss loss = {.count = 0}, want = {.count = 0};
    fixture_open_fp8(&f, &odd_shape, TT_BF16, "guard:ref", 3, 11, true, &recipes[_i]);
    fixture_open_fp8(&g, &odd_shape, TT_BF16, "ref", 3, 11, true, &recipes[_i]);
    fixture_train(&f, 0, 3, &loss);
    fixture_train(&g, 0, 3, &want);
    ck_assert(tt_loss_mean(&loss) == tt_loss_mean(&want));
    ck_assert_mem_eq(f.gradient, g.gradient, (size_t)f.params.total * sizeof(float));
    fixture_close(&f);
    fixture_close(&g);
}
END_TEST

/* Evaluation uses the rounding of training with scales of its own: without dropout the losses of both
 * are equal, except for what delayed remembers. */
START_TEST(evaluation_is_the_same_function)
{
    const tt_shape shape = shape_without_dropout();
    fixture f, g;
    tt_loss trained = {.count = 0}, evaluated = {.count = 0}, inside = {.count = 0};
    fixture_open_fp8(&f, &shape, TT_BF16, "", 3, 11, true, &recipes[_i]);
    fixture_open_fp8(&g, &shape, TT_BF16, "", 3, 11, false, &recipes[_i]);
    fixture_train(&f, 0, 3, &trained);
    tt_model_eval(f.model, f.token, f.target, 3, 11, &inside, NULL);
    tt_model_eval(g.model, g.token, g.target, 3, 11, &evaluated, NULL);
    ck_assert(tt_loss_mean(&trained) == tt_loss_mean(&evaluated));
    ck_assert(tt_loss_mean(&inside) == tt_loss_mean(&evaluated));
    fixture_close(&f);
    fixture_close(&g);
}
END_TEST

/* Weights of products lie on E4M3's grid, the others are BF16; publishing twice changes nothing. */
START_TEST(weights_are_rounded_once)
{
    fixture f;
    fixture_open_fp8(&f, &odd_shape, TT_BF16, "", 1, 11, true, &recipes[_i]);
    const size_t bytes = (size_t)f.params.total * sizeof(tt_bf16);
    tt_bf16 *before = must(malloc(bytes));
    memcpy(before, f.weights, bytes);
    tt_model_pack(f.model);
    ck_assert_mem_eq(before, f.weights, bytes);
    int rounded = 0;
    for (int p = 0; p < f.params.count; p++) {
        const tt_param *param = &f.params.param[p];
        bool same = true;
        for (int64_t i = 0; i < param->count; i++) {
            const tt_bf16 code = before[param->offset + i];
            same = same && code == tt_bf16_of_f32(f.master[param->offset + i]);
            if (strncmp(param->name, "h.", 2) == 0 && param->dims == 2) {
                ck_assert_msg((code & 0xf) == 0, "%s", param->name); /* 3 mantissa bits of 7 */
            }
        }
        rounded += !same;
        ck_assert_int_eq(same, !(strncmp(param->name, "h.", 2) == 0 && param->dims == 2));
    }
    ck_assert_int_eq(rounded, 4 * (int)odd_shape.L);
    free(before);
    fixture_close(&f);
}
END_TEST

/* What waits for backward is a byte an element where BF16 has two, beside the statistics. */
START_TEST(half_is_kept)
{
    const size_t L = _i == 0 ? 1 : 6;
    const tt_shape shape = {.L = (int64_t)L,
                            .H = 2,
                            .G = 2,
                            .D = 32,
                            .C = 64,
                            .F = 256,
                            .T = 64,
                            .V = 11,
                            .vocab_used = 11};
    tt_fp8 fp8;
    tt_config config;
    size_t bf16, kept;
    tt_config_preset(&config);
    const tt_autocast plain = {.compute = TT_E4M3, .storage = TT_BF16};
    tt_fp8_make(&fp8, &config, &plain, &shape);
    tt_model_activation_bytes(&shape, 4, 64, 2, true, NULL, NULL, &bf16);
    tt_model_activation_bytes(&shape, 4, 64, 2, true, &fp8, NULL, &kept);
    const size_t M = 4 * 64, row = M * 64;
    const size_t stats = L * (2 + 2 + 2) * M * sizeof(float);
    const size_t last = row * 2; /* the stream at the end, which BF16 has a copy of */
    const size_t exponents = L * 8 * TT_ALIGN;
    const size_t bf16_zones = (L * (8 + 3) + 1) * TT_REDZONE; /* behind slots and statistics */
    const size_t kept_zones = L * (8 + 8 + 3) * TT_REDZONE;
    ck_assert_uint_eq(bf16 - stats - last - bf16_zones, L * 16 * row * 2);
    ck_assert_uint_eq(kept - stats - exponents - kept_zones, L * 16 * row);
}
END_TEST

/* Delayed scales come from what was: too small an amax saturates, none leaves it to the tensor. */
START_TEST(delayed_remembers)
{
    const tt_shape shape = shape_without_dropout();
    fixture f, g;
    tt_loss fresh = {.count = 0}, current = {.count = 0}, again = {.count = 0},
            tight = {.count = 0};
    fixture_open_fp8(&f, &shape, TT_BF16, "", 3, 11, true, &recipes[1]);
    fixture_open_fp8(&g, &shape, TT_BF16, "", 3, 11, true, &recipes[0]);
    fixture_train(&f, 0, 3, &fresh);
    fixture_train(&g, 0, 3, &current);
    ck_assert(tt_loss_mean(&fresh) == tt_loss_mean(&current));
    int known = 0;
    for (int site = 0; site < f.fp8.sites; site++) {
        ck_assert(tt_fp8_expected(&f.fp8, site) == 0);
        known += f.fp8.amax[site] > 0;
    }
    ck_assert_int_eq(known, 8 * (int)shape.L); /* the slots of a block that are kept */
    tt_fp8_push(&f.fp8, 1);
    for (int site = 0; site < f.fp8.sites; site++) {
        ck_assert(tt_fp8_expected(&f.fp8, site) == f.fp8.amax[site]);
    }
    fixture_train(&f, 0, 3, &again);
    ck_assert(fabs(tt_loss_mean(&again) / tt_loss_mean(&fresh) - 1) < 0.02);
    for (int i = 0; i < 3; i++) { /* as if all had been a hundredth */
        for (int site = 0; site < f.fp8.sites; site++) {
            f.fp8.past[i * f.fp8.sites + site] = f.fp8.amax[site] / 100;
        }
    }
    fixture_train(&f, 0, 3, &tight);
    ck_assert(fabs(tt_loss_mean(&tight) / tt_loss_mean(&fresh) - 1) > 0.02);
    /* The oldest of three is forgotten. */
    tt_fp8_clear(&f.fp8);
    for (int site = 0; site < f.fp8.sites; site++) {
        f.fp8.amax[site] = 2;
    }
    tt_fp8_push(&f.fp8, 1), tt_fp8_push(&f.fp8, 2);
    f.fp8.amax[0] = 1;
    tt_fp8_push(&f.fp8, 3), tt_fp8_push(&f.fp8, 4);
    ck_assert(tt_fp8_expected(&f.fp8, 0) == 2);
    tt_fp8_push(&f.fp8, 5);
    ck_assert(tt_fp8_expected(&f.fp8, 0) == 1);
    fixture_close(&f);
    fixture_close(&g);
}
END_TEST

/* A gradient's amax is of the gradient of the loss, whatever factor the loss carries. */
START_TEST(amax_without_the_factor)
{
    fixture f, g;
    tt_loss loss = {.count = 0};
    fixture_open_fp8(&f, &odd_shape, TT_BF16, "", 3, 11, true, &recipes[_i]);
    fixture_open_fp8(&g, &odd_shape, TT_BF16, "", 3, 11, true, &recipes[_i]);
    tt_model_train(f.model, f.token, f.target, f.sample, 3, 11, 7, 3, 1, &loss, NULL);
    tt_model_train(g.model, g.token, g.target, g.sample, 3, 11, 7, 3, 1024, &loss, NULL);
    ck_assert_mem_eq(f.fp8.amax, g.fp8.amax, (size_t)f.fp8.sites * sizeof(float));
    for (int64_t i = 0; i < f.params.total; i++) {
        ck_assert(g.gradient[i] == 1024 * f.gradient[i]);
    }
    fixture_close(&f);
    fixture_close(&g);
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("fp8");
    TCase *tests = tcase_create("fp8");
    tcase_add_loop_test(tests, near_bf16, 0, RECIPES);
    tcase_add_loop_test(tests, alone_or_in_company, 0, RECIPES);
    tcase_add_loop_test(tests, guarded, 0, RECIPES);
    tcase_add_loop_test(tests, evaluation_is_the_same_function, 0, RECIPES);
    tcase_add_loop_test(tests, weights_are_rounded_once, 0, 3);
    tcase_add_loop_test(tests, half_is_kept, 0, 2);
    tcase_add_test(tests, delayed_remembers);
    tcase_add_loop_test(tests, amax_without_the_factor, 0, RECIPES);
    suite_add_tcase(suite, tests);
    return suite;
}

TT_TEST_MAIN(make_suite)
