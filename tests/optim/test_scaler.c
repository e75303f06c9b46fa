/* test_scaler.c: the rule of the loss scale, step by step, and its seed. */
#include "tt_test.h"
#include "tutti/optim/scaler.h"

static tt_config config_of(const char *loss_scale)
{
    tt_config config;
    tt_err err = {TT_OK, ""};
    tt_config_preset(&config);
    ck_assert_msg(tt_config_set(&config, "test", "precision.loss_scale", loss_scale, &err) == TT_OK,
                  "%s", err.text);
    return config;
}

START_TEST(test_begin)
{
    const struct {
        const char *loss_scale;
        double scale;
    } starts[] = {{"none", 1}, {"1", 1}, {"1024", 1024}, {"0.1", 0.1}, {"dynamic", 65536}};
    for (size_t i = 0; i < sizeof starts / sizeof *starts; i++) {
        tt_config config = config_of(starts[i].loss_scale);
        const tt_scaler scaler = tt_scaler_begin(&config);
        ck_assert(scaler.scale == starts[i].scale && scaler.good == 0);
        ck_assert(tt_scaler_may_be(&config, &scaler));
        ck_assert(tt_scaler_is_dynamic(&config) == (i == 4));
        ck_assert(!tt_scaler_is_missed(&config));
        strcpy(config.precision.compute, "fp16");
        ck_assert(tt_scaler_is_missed(&config) == (i != 2 && i != 4));
    }
}
END_TEST

START_TEST(test_static_never_moves)
{
    static const char *const scales[] = {"none", "1024", "0.3"};
    for (int i = 0; i < 3; i++) {
        const tt_config config = config_of(scales[i]);
        tt_scaler scaler = tt_scaler_begin(&config);
        const double scale = scaler.scale;
        for (int step = 0; step < 5000; step++) {
            tt_scaler_next(&config, &scaler, step % 7 != 3);
            ck_assert(scaler.scale == scale && scaler.good == 0);
        }
    }
}
END_TEST

/* The presets: the step that completes 2000 in a row doubles; the count begins anew at every move. */
START_TEST(test_presets)
{
    const tt_config config = config_of("dynamic");
    tt_scaler scaler = tt_scaler_begin(&config);
    for (int step = 1; step < 2000; step++) {
        tt_scaler_next(&config, &scaler, true);
        ck_assert(scaler.scale == 65536 && scaler.good == step);
    }
    tt_scaler_next(&config, &scaler, true);
    ck_assert(scaler.scale == 131072 && scaler.good == 0);
    for (int step = 0; step < 1999; step++) {
        tt_scaler_next(&config, &scaler, true);
    }
    tt_scaler_next(&config, &scaler, false);
    ck_assert(scaler.scale == 65536 && scaler.good == 0);
    for (int step = 1; step < 2000; step++) {
        tt_scaler_next(&config, &scaler, true);
        ck_assert(scaler.scale == 65536 && scaler.good == step);
    }
    tt_scaler_next(&config, &scaler, true);
    ck_assert(scaler.scale == 131072);
}
END_TEST

/* Factors that meet the ends only in passing stop there. */
START_TEST(test_floor_and_cap)
{
    tt_config config = config_of("dynamic");
    config.scaler.start = 10;
    config.scaler.growth = 3;
    config.scaler.interval = 2;
    config.scaler.backoff = 0.3;
    config.scaler.floor = 2;
    config.scaler.cap = 40;
    static const struct {
        bool finite;
        double scale;
        int64_t good;
    } steps[] = {{true, 10, 1}, {true, 30, 0}, {true, 30, 1},  {true, 40, 0}, {true, 40, 1},
                 {true, 40, 0}, {true, 40, 1}, {false, 12, 0}, {true, 12, 1}, {false, 3.6, 0},
                 {false, 2, 0}, {false, 2, 0}, {true, 2, 1},   {true, 6, 0},  {false, 2, 0}};
    tt_scaler scaler = tt_scaler_begin(&config);
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        tt_scaler_next(&config, &scaler, steps[i].finite);
        ck_assert_msg(fabs(scaler.scale - steps[i].scale) < 1e-12 && scaler.good == steps[i].good,
                      "after %d: %g, %lld good", (int)i, scaler.scale, (long long)scaler.good);
        ck_assert(tt_scaler_may_be(&config, &scaler));
    }
    config.scaler.growth = 1e308; /* a product that is infinite */
    scaler.scale = 20;
    scaler.good = 1;
    tt_scaler_next(&config, &scaler, true);
    ck_assert(scaler.scale == 40);
}
END_TEST

START_TEST(test_may_be)
{
    const tt_config dynamic = config_of("dynamic"), fixed = config_of("8");
    const struct {
        tt_scaler scaler;
        bool dynamic, fixed;
    } states[] = {{{1, 0}, true, false},
                  {{0.5, 0}, false, false},
                  {{8, 0}, true, true},
                  {{8, 1}, true, false},
                  {{8, 1999}, true, false},
                  {{8, 2000}, false, false},
                  {{8, -1}, false, false},
                  {{16777216, 3}, true, false},
                  {{16777217, 3}, false, false},
                  {{(double)NAN, 0}, false, false},
                  {{(double)INFINITY, 0}, false, false}};
    for (size_t i = 0; i < sizeof states / sizeof *states; i++) {
        ck_assert(tt_scaler_may_be(&dynamic, &states[i].scaler) == states[i].dynamic);
        ck_assert(tt_scaler_may_be(&fixed, &states[i].scaler) == states[i].fixed);
    }
}
END_TEST

START_TEST(test_check)
{
    static const struct {
        double floor, start, cap;
        const char *says; /* NULL: nothing is wrong */
    } orders[] = {{1, 65536, 16777216, NULL},
                  {8, 8, 8, NULL},
                  {9, 8, 10, "scaler.start: 8 is below scaler.floor (9)"},
                  {1, 8, 4, "scaler.start: 8 is above scaler.cap (4)"},
                  {8, 8, 4, "scaler.floor: 8 is above scaler.cap (4)"}};
    for (size_t i = 0; i < sizeof orders / sizeof *orders; i++) {
        tt_config config = config_of(i % 2 == 0 ? "dynamic" : "none");
        tt_err err = {TT_OK, ""};
        config.scaler.floor = orders[i].floor;
        config.scaler.start = orders[i].start;
        config.scaler.cap = orders[i].cap;
        const tt_code rc = tt_scaler_check(&config, &err);
        ck_assert_int_eq(rc, orders[i].says == NULL ? TT_OK : TT_EUSER);
        ck_assert(orders[i].says == NULL || strstr(err.text, orders[i].says) != NULL);
    }
}
END_TEST

/* On the mean of as many targets as the next power of two. */
START_TEST(test_seed)
{
    const struct {
        double scale;
        int64_t targets;
        float seed;
    } seeds[] = {{1, 1, 1},
                 {1, 2, 0.5f},
                 {1, 3, 0.25f},
                 {1, 96, 0x1p-7f},
                 {65536, 1024, 64},
                 {65536, 1025, 32},
                 {1000, 24 * 1024, 1000 * 0x1p-15f},
                 {1e-12, INT64_C(1000000000) << 20, (float)(1e-12 * 0x1p-50)}};
    for (size_t i = 0; i < sizeof seeds / sizeof *seeds; i++) {
        const tt_scaler scaler = {.scale = seeds[i].scale};
        ck_assert(tt_scaler_seed(&scaler, seeds[i].targets) == seeds[i].seed);
    }
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("scaler");
    TCase *tcase = tcase_create("scaler");
    tcase_add_test(tcase, test_begin);
    tcase_add_test(tcase, test_static_never_moves);
    tcase_add_test(tcase, test_presets);
    tcase_add_test(tcase, test_floor_and_cap);
    tcase_add_test(tcase, test_may_be);
    tcase_add_test(tcase, test_check);
    tcase_add_test(tcase, test_seed);
    suite_add_tcase(suite, tcase);
    return suite;
}

TT_TEST_MAIN(make_suite)
