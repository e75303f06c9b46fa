/* test_signals.c: a request to stop waits until it is asked for, and is taken once. */
#include <signal.h>
#include <unistd.h>

#include "tutti/train/signals.h"

#include "tt_test.h"

START_TEST(taken_once)
{
    static const int stops[] = {SIGTERM, SIGINT, SIGUSR1};
    tt_signals_block();
    ck_assert_int_eq(tt_signals_take(), 0);
    for (int i = 0; i < 3; i++) {
        ck_assert_int_eq(raise(stops[i]), 0); /* and the process lives */
        ck_assert_int_eq(tt_signals_take(), stops[i]);
        ck_assert_int_eq(tt_signals_take(), 0);
    }
}
END_TEST

/* A scheduler signals mpirun and the ranks, and mpirun passes it on: repeats stay harmless. */
START_TEST(repeats_are_harmless)
{
    tt_signals_block();
    raise(SIGTERM);
    raise(SIGTERM);
    raise(SIGUSR1);
    int first = tt_signals_take(), second = tt_signals_take();
    ck_assert(first != second && (first == SIGTERM || first == SIGUSR1));
    ck_assert(second == SIGTERM || second == SIGUSR1);
    ck_assert_int_eq(tt_signals_take(), 0);
    kill(getpid(), SIGTERM); /* from outside, after the first was taken */
    ck_assert_int_eq(tt_signals_take(), SIGTERM);
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("train/signals");
    TCase *tests = tcase_create("signals");
    tcase_add_test(tests, taken_once);
    tcase_add_test(tests, repeats_are_harmless);
    suite_add_tcase(suite, tests);
    return suite;
}

TT_TEST_MAIN(make_suite)
