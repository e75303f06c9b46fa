/* test_halt.c: run.max_seconds: a part is begun when it, a save and the end fit in what is left. */
#include <time.h>

#include "tt_test.h"
#include "tutti/base/clock.h"
#include "tutti/dist/stop.h"
#include "tutti/train/halt.h"

enum { LIMIT = 1000 };
static tt_world world;
static tt_config config;
static tt_halt halt;

/* A process that began `age` seconds ago and has LIMIT; bytes: of a checkpoint. */
static void begin(double age, double bytes)
{
    tt_err err;
    tt_stop_close(&world);
    world = (tt_world){.size = 1, .began = tt_seconds() - age};
    ck_assert_int_eq(tt_stop_open(&world, &err), TT_OK);
    tt_config_preset(&config);
    config.run.max_seconds = LIMIT;
    tt_halt_open(&halt, &world, &config, (int64_t)bytes);
}

static void finish(void)
{
    tt_stop_close(&world);
}

START_TEST(none_by_default)
{
    tt_config_preset(&config);
    ck_assert_int_eq(config.run.max_seconds, 0);
    begin(0, 0);
    config.run.max_seconds = 0;
    tt_halt_open(&halt, &world, &config, (int64_t)1 << 60);
    halt.step = 1e9;
    ck_assert(!tt_halt_asked(&halt, true));
    const tt_halted mine = tt_halt_mine(&halt, false);
    ck_assert(mine.by_signal == 0 && mine.by_limit == 0 && mine.left == 0);
    tt_stop_ask(&world, TT_STOP_SIGNAL);
    ck_assert(tt_halt_asked(&halt, true));
    ck_assert_int_eq(tt_halt_mine(&halt, false).by_signal, 1);
    ck_assert_int_eq(tt_halt_mine(&halt, true).left, 1);
}
END_TEST

/* What it is of, what has been seen to take so long, what is left; is it begun? */
START_TEST(begun_when_it_fits)
{
    static const struct {
        bool is_step;
        double age, step, part, save;
        bool fits;
    } cases[] = {{true, 0, 0, 0, 0, true},           {true, LIMIT - 1.5, 0, 0, 0, true},
                 {true, LIMIT, 0, 0, 0, false},      {true, 0, LIMIT - 10, 0, 0, true},
                 {true, 0, LIMIT, 0, 0, false},      {false, 0, LIMIT, 1, 0, true},
                 {false, 0, LIMIT, LIMIT, 0, false}, {true, 0, 1, LIMIT, 0, false},
                 {true, 0, 0, 0, LIMIT, false},      {true, 300, 300, 0, 300, true},
                 {true, 350, 350, 0, 350, false},    {false, 350, 350, 10, 350, true}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        begin(cases[i].age, 0);
        halt.step = cases[i].step;
        halt.part = cases[i].part;
        tt_halt_saved(&halt, cases[i].save);
        ck_assert_msg(tt_halt_asked(&halt, cases[i].is_step) == !cases[i].fits, "case %zu", i);
        const tt_halted mine = tt_halt_mine(&halt, false);
        ck_assert(mine.by_signal == 0 && mine.by_limit == !cases[i].fits);
    }
}
END_TEST

/* Before there was a save it is taken for one on a slow disk. */
START_TEST(the_first_save_is_guessed)
{
    begin(0, 1e8 * LIMIT / 2);
    ck_assert(!tt_halt_asked(&halt, true));
    begin(0, 1e8 * LIMIT);
    ck_assert(tt_halt_asked(&halt, true));
    begin(0, 1e8 * LIMIT);
    tt_halt_saved(&halt, 2);
    ck_assert(!tt_halt_asked(&halt, true));
    ck_assert(halt.save == 2);
    tt_halt_saved(&halt, 1);
    ck_assert(halt.save == 2);
    tt_halt_saved(&halt, 3);
    ck_assert(halt.save == 3);
}
END_TEST

/* One that is being written is waited for before the last one is. */
START_TEST(one_save_behind_counts_twice)
{
    begin(0, 0);
    tt_halt_saved(&halt, 0.6 * LIMIT);
    ck_assert(!tt_halt_asked(&halt, true));
    tt_halt_saving(&halt);
    ck_assert(tt_halt_asked(&halt, true));
    begin(0, 0);
    tt_halt_saving(&halt);
    tt_halt_saved(&halt, 0.6 * LIMIT); /* it is there */
    ck_assert(!tt_halt_asked(&halt, true));
}
END_TEST

START_TEST(times_are_the_longest)
{
    const struct timespec nap = {.tv_nsec = 30000000};
    begin(0, 0);
    tt_halt_begin(&halt);
    ck_assert(!tt_halt_asked(&halt, true));
    nanosleep(&nap, NULL);
    ck_assert(!tt_halt_asked(&halt, false));
    ck_assert(halt.part >= 0.03 && halt.step == 0);
    nanosleep(&nap, NULL);
    nanosleep(&nap, NULL);
    tt_halt_end(&halt);
    const double part = halt.part, step = halt.step;
    ck_assert(part >= 0.06 && step >= 0.09);
    nanosleep(&nap, NULL);
    nanosleep(&nap, NULL);
    nanosleep(&nap, NULL); /* between two steps: of neither */
    tt_halt_begin(&halt);
    ck_assert(!tt_halt_asked(&halt, true));
    tt_halt_end(&halt);
    ck_assert(halt.part == part && halt.step == step);
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("train/halt, one process");
    TCase *tests = tcase_create("halt");
    tcase_add_checked_fixture(tests, NULL, finish);
    tcase_add_test(tests, none_by_default);
    tcase_add_test(tests, begun_when_it_fits);
    tcase_add_test(tests, the_first_save_is_guessed);
    tcase_add_test(tests, one_save_behind_counts_twice);
    tcase_add_test(tests, times_are_the_longest);
    suite_add_tcase(suite, tests);
    return suite;
}

TT_TEST_MAIN(make_suite)
