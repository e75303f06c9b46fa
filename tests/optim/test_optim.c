/* test_optim.c: schedules, clip factor, constants of an update, against values worked out by
 * hand. */
#include <stdarg.h>

#include "tt_test.h"
#include "tutti/optim/optim.h"

static tt_config schedule(const char *name, int64_t steps, int64_t warmup, double lr, double min_lr)
{
    tt_config config;
    tt_config_preset(&config);
    snprintf(config.optim.schedule, sizeof config.optim.schedule, "%s", name);
    snprintf(config.optim.lr_scaling, sizeof config.optim.lr_scaling, "none");
    config.run.steps = steps;
    config.optim.warmup = warmup;
    config.optim.decay = 0;
    config.optim.lr = lr;
    config.optim.min_lr = min_lr;
    return config;
}

static void expect(const tt_config *config, int64_t step, double lr)
{
    double found = tt_learning_rate(config, 64, step);
    ck_assert_msg(fabs(found - lr) <= 1e-15, "step %lld: %.17g, expected %.17g", (long long)step,
                  found, lr);
}

START_TEST(warmup_then_constant)
{
    tt_config config = schedule("constant", 10, 4, 0.8, 0.1);
    const double lr[] = {0.2, 0.4, 0.6, 0.8, 0.8, 0.8, 0.8, 0.8, 0.8, 0.8, 0.8};
    for (int64_t step = 0; step <= 10; step++) {
        expect(&config, step, lr[step]);
    }
}
END_TEST

START_TEST(linear_ends_at_min)
{
    tt_config config = schedule("linear", 7, 2, 1.0, 0.2);
    const double lr[] = {0.5, 1.0, 1.0, 0.8, 0.6, 0.4, 0.2, 0.2, 0.2};
    for (int64_t step = 0; step < 9; step++) {
        expect(&config, step, lr[step]);
    }
}
END_TEST

START_TEST(cosine_ends_at_min)
{
    tt_config config = schedule("cosine", 5, 0, 1.0, 0.0);
    const double lr[] = {1.0, 0.5 + sqrt(0.125), 0.5, 0.5 - sqrt(0.125), 0.0, 0.0};
    for (int64_t step = 0; step < 6; step++) {
        expect(&config, step, lr[step]);
    }
    config = schedule("cosine", 103, 100, 1.0, 0.5);
    expect(&config, 99, 1.0);
    expect(&config, 100, 1.0);
    expect(&config, 101, 0.75);
    expect(&config, 102, 0.5);
}
END_TEST

START_TEST(wsd_holds_then_falls)
{
    tt_config config = schedule("wsd", 10, 2, 1.0, 0.0);
    config.optim.decay = 4;
    const double lr[] = {0.5, 1.0, 1.0, 1.0, 1.0, 1.0, 0.75, 0.5, 0.25, 0.0, 0.0};
    for (int64_t step = 0; step < 11; step++) {
        expect(&config, step, lr[step]);
    }
    config.optim.decay = 0; /* a fifth: 2 of 10 */
    expect(&config, 7, 1.0);
    expect(&config, 8, 0.5);
    expect(&config, 9, 0.0);
    config.optim.warmup = 9; /* leaves one step */
    expect(&config, 8, 1.0);
    expect(&config, 9, 0.0);
}
END_TEST

START_TEST(one_step_runs_at_lr)
{
    const char *names[] = {"constant", "cosine", "linear", "wsd"};
    for (int i = 0; i < 4; i++) {
        tt_config config = schedule(names[i], 1, 0, 0.3, 0.1);
        expect(&config, 0, 0.3);
        config.optim.warmup = 1;
        expect(&config, 0, 0.3);
        expect(&config, 1, 0.3);
    }
}
END_TEST

START_TEST(warmup_fills_the_run)
{
    const char *names[] = {"constant", "cosine", "linear", "wsd"};
    for (int i = 0; i < 4; i++) {
        tt_config config = schedule(names[i], 4, 4, 1.0, 0.0);
        for (int64_t step = 0; step < 4; step++) {
            expect(&config, step, (double)(step + 1) / 4.0);
        }
    }
}
END_TEST

START_TEST(lr_scales_with_the_batch)
{
    tt_config config = schedule("linear", 3, 0, 0.1, 0.05);
    config.optim.lr_sequences = 16;
    snprintf(config.optim.lr_scaling, sizeof config.optim.lr_scaling, "linear");
    expect(&config, 0, 0.4); /* 64 sequences */
    expect(&config, 2, 0.05);
    snprintf(config.optim.lr_scaling, sizeof config.optim.lr_scaling, "sqrt");
    expect(&config, 0, 0.2);
    expect(&config, 1, 0.125);
    config.optim.lr_sequences = 64 * 16; /* scaled below min_lr: never rises */
    expect(&config, 0, 0.025);
    expect(&config, 2, 0.025);
}
END_TEST

/* Refused as the user's mistake, in a sentence that holds every word (ended by NULL). */
static void refused(const tt_config *config, ...)
{
    tt_err err = {0};
    ck_assert_int_eq(tt_optim_check(config, &err), TT_EUSER);
    va_list words;
    va_start(words, config);
    for (const char *word = va_arg(words, const char *); word != NULL;
         word = va_arg(words, const char *)) {
        ck_assert_msg(strstr(err.text, word) != NULL, "no '%s' in: %s", word, err.text);
    }
    va_end(words);
}

START_TEST(checks)
{
    tt_err err = {0};
    tt_config config = schedule("cosine", 10, 10, 0.1, 0.1);
    ck_assert_int_eq(tt_optim_check(&config, &err), TT_OK);
    config.optim.warmup = 11; /* a short run of a long recipe ends inside the warm-up */
    ck_assert_int_eq(tt_optim_check(&config, &err), TT_OK);
    expect(&config, 9, 0.1 * 10 / 11);
    expect(&config, 20, 0.1 * 10 / 11);
    config = schedule("cosine", 10, 0, 0.1, 0.2);
    refused(&config, "optim.min_lr", "0.2", "0.1", NULL);
    config = schedule("wsd", 10, 4, 0.1, 0.0);
    config.optim.decay = 7; /* more than is left: all that is left, so the peak is not held */
    ck_assert_int_eq(tt_optim_check(&config, &err), TT_OK);
    expect(&config, 4, 0.1 * 5 / 6);
    expect(&config, 9, 0.0);
    config = schedule("cosine", 10, 0, 0.1, 0.0);
    snprintf(config.optim.lr_scaling, sizeof config.optim.lr_scaling, "sqrt");
    config.optim.lr_sequences = 0;
    refused(&config, "optim.lr_sequences", "optim.lr_scaling", "sqrt", NULL);
    config.optim.lr_sequences = 8;
    ck_assert_int_eq(tt_optim_check(&config, &err), TT_OK);
}
END_TEST

/* In range as doubles, but not as what the update computes with. */
START_TEST(checks_what_becomes_fp32)
{
    tt_err err = {0};
    tt_config config;
    double *const lr = &config.optim.lr, *const min_lr = &config.optim.min_lr;
    double *const beta1 = &config.optim.beta1, *const beta2 = &config.optim.beta2;
    double *const eps = &config.optim.eps, *const decay = &config.optim.weight_decay;
    double *const clip = &config.optim.clip;
    const struct {
        double *field, value;
        const char *key, *shown, *allowed;
    } bad[] = {
        {beta1, 0.99999999999, "optim.beta1", "0.99999999999 is 1", "0 to below 1"},
        {beta2, 0.99999999, "optim.beta2", "0.99999999 is 1", "0 to below 1"},
        {eps, 1e-60, "optim.eps", "e-60 is 0", "1.17549435e-38 to 3.40282347e+38"},
        {eps, 1e-40, "optim.eps", "e-40 is 0 or subnormal", "1.17549435e-38"}, /* flushed */
        {eps, 1e39, "optim.eps", "e+39 is infinite", "3.40282347e+38"},
        {lr, 1e308, "optim.lr", "e+308 is infinite", "3.40282347e+38"},
        {lr, 1e-50, "optim.lr", "e-50 is 0", "1.17549435e-38"},
        {min_lr, 1e300, "optim.min_lr", "e+300 is infinite", "0 to 3.40282347e+38"},
        {decay, 1e300, "optim.weight_decay", "e+300 is infinite", "0 to 3.40282347e+38"},
        {clip, 1e-320, "optim.clip", "e-321 is 0", "1.17549435e-38"},
        {clip, 1e-38, "optim.clip", "1e-38 is 0 or subnormal", "1.17549435e-38"},
    };
    const struct {
        double *field, value;
    } good[] = {{beta1, 0.9999999}, {beta1, 0},    {beta2, 0}, {eps, 1.2e-38},  {lr, 3e38},
                {min_lr, 1e-300},   {decay, 3e38}, {clip, 0},  {clip, 1.2e-38}, {clip, 1e308}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        config = schedule("cosine", 10, 0, 0.1, 0.0);
        *bad[i].field = bad[i].value;
        refused(&config, bad[i].key, bad[i].shown, "as FP32", bad[i].allowed, NULL);
    }
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        config = schedule("cosine", 10, 0, 0.1, 0.0);
        *good[i].field = good[i].value;
        ck_assert_msg(tt_optim_check(&config, &err) == TT_OK, "%s", err.text);
    }
}
END_TEST

START_TEST(clip_factor)
{
    ck_assert(tt_clip_factor(0.5, 1.0) == 1.0);
    ck_assert(tt_clip_factor(1.0, 1.0) == 1.0);
    ck_assert(tt_clip_factor(4.0, 1.0) == 0.25);
    ck_assert(tt_clip_factor(1e30, 0.0) == 1.0); /* 0: never clips */
    ck_assert(tt_clip_factor(0.0, 1.0) == 1.0);
    ck_assert(isnan(tt_clip_factor((double)NAN, 1.0)));
}
END_TEST

START_TEST(constants_of_an_update)
{
    tt_config config;
    tt_config_preset(&config);
    config.optim.beta1 = 0.5;
    config.optim.beta2 = 0.75;
    config.optim.eps = 1e-8;
    config.optim.weight_decay = 0.1;
    tt_adamw first = tt_adamw_step(&config, 0.01, 1, true, 0.125);
    ck_assert(first.lr == 0.01f && first.beta1 == 0.5f && first.beta2 == 0.75f);
    ck_assert(first.eps == 1e-8f && first.weight_decay == 0.1f && first.grad_scale == 0.125f);
    ck_assert(first.correction1 == 0.5f && first.correction2 == 0.25f);
    tt_adamw third = tt_adamw_step(&config, 0.01, 3, false, 1.0);
    ck_assert(third.weight_decay == 0.0f);
    ck_assert(third.correction1 == 0.875f && third.correction2 == 0.578125f);
    tt_adamw late = tt_adamw_step(&config, 0.01, 100000, false, 1.0);
    ck_assert(late.correction1 == 1.0f && late.correction2 == 1.0f);

    /* The first update of a constant gradient has no bias left: (1 - beta2) g^2 / correction2 = g^2
     * in FP32, also where FP32 cannot hold beta2. */
    config.optim.beta2 = 0.999;
    first = tt_adamw_step(&config, 0.01, 1, true, 1.0);
    ck_assert(1.0f - first.beta2 == first.correction2);
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("optim");
    TCase *tc = tcase_create("numbers");
    tcase_add_test(tc, warmup_then_constant);
    tcase_add_test(tc, linear_ends_at_min);
    tcase_add_test(tc, cosine_ends_at_min);
    tcase_add_test(tc, wsd_holds_then_falls);
    tcase_add_test(tc, one_step_runs_at_lr);
    tcase_add_test(tc, warmup_fills_the_run);
    tcase_add_test(tc, lr_scales_with_the_batch);
    tcase_add_test(tc, checks);
    tcase_add_test(tc, checks_what_becomes_fp32);
    tcase_add_test(tc, clip_factor);
    tcase_add_test(tc, constants_of_an_update);
    suite_add_tcase(suite, tc);
    return suite;
}

TT_TEST_MAIN(make_suite)
