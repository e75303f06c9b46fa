/* mpi_stop.c: what one rank is asked all know soon, whoever it is, whatever thread asks, with threads in
 * MPI and without; and whatever was under way is heard when all is closed. */
#include "dist_test.h"

#include <pthread.h>
#include <time.h>

#include "tutti/base/clock.h"
#include "tutti/dist/stop.h"

/* Looks for ten seconds at most, computing nothing and waiting for nobody. */
static tt_stop_why look_long(void)
{
    const struct timespec nap = {.tv_nsec = 1000000};
    tt_stop_why why = TT_STOP_NONE;
    for (double end = tt_seconds() + 10; why == TT_STOP_NONE && tt_seconds() < end;) {
        why = tt_stop_look(W);
        nanosleep(&nap, NULL);
    }
    return why;
}

/* On a communicator of ours nothing is left that was not received. */
static void nothing_is_left(void)
{
    int there = 0;
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &there, MPI_STATUS_IGNORE);
    ck_assert(tt_all(!there));
    int64_t ones = 1;
    must(tt_sum_i64(W, &ones, 1, &err_));
    ck_assert_int_eq(ones, W->size);
}

START_TEST(silent_until_asked)
{
    must(tt_stop_open(W, &err_));
    tt_stop *first = W->stop;
    must(tt_stop_open(W, &err_)); /* open is open */
    ck_assert(tt_all(W->stop == first));
    const tt_wire before = W->wire;
    for (int i = 0; i < 100; i++) {
        ck_assert_int_eq(tt_stop_look(W), TT_STOP_NONE);
    }
    ck_assert(tt_all(W->wire.calls == before.calls));
    tt_stop_close(W);
    ck_assert(tt_all(W->stop == NULL));
    nothing_is_left();
}
END_TEST

/* Each rank in its turn is the one that is asked; twice, and for two reasons. */
START_TEST(one_asks_all_know)
{
    const int level = W->thread_level;
    W->thread_level = _i == 0 ? level : MPI_THREAD_FUNNELED; /* the computing thread tells */
    for (int asked = 0; asked < W->size; asked++) {
        must(tt_stop_open(W, &err_));
        if (W->rank == asked) {
            tt_stop_ask(W, TT_STOP_LIMIT);
            tt_stop_ask(W, TT_STOP_LIMIT);
            tt_stop_ask(W, TT_STOP_SIGNAL);
        }
        ck_assert(tt_all(look_long() == TT_STOP_LIMIT));
        ck_assert(tt_all(tt_stop_look(W) == TT_STOP_LIMIT)); /* and so it stays */
        tt_stop_close(W);
        nothing_is_left();
    }
    W->thread_level = level;
}
END_TEST

START_TEST(all_are_asked)
{
    const int level = W->thread_level;
    W->thread_level = _i == 0 ? level : MPI_THREAD_FUNNELED;
    for (int i = 0; i < 20; i++) {
        must(tt_stop_open(W, &err_));
        tt_stop_ask(W, TT_STOP_SIGNAL);
        if (i % 2 == 0) {
            ck_assert_int_eq(tt_stop_look(W), TT_STOP_SIGNAL);
        }
        tt_stop_close(W);
    }
    nothing_is_left();
    W->thread_level = level;
}
END_TEST

/* One asks when the others look no more: what it has sent is heard in closing. */
START_TEST(too_late_is_heard_in_closing)
{
    for (int asked = 0; asked < W->size; asked++) {
        must(tt_stop_open(W, &err_));
        ck_assert(tt_all(tt_stop_look(W) == TT_STOP_NONE));
        if (W->rank == asked) {
            tt_stop_ask(W, TT_STOP_SIGNAL);
        }
        tt_stop_close(W);
        nothing_is_left();
    }
}
END_TEST

static void *asker(void *of)
{
    const struct timespec nap = {.tv_nsec = 20000000};
    (void)of;
    nanosleep(&nap, NULL);
    tt_stop_ask(W, TT_STOP_SIGNAL);
    return NULL;
}

/* Another thread asks while this one is in MPI, as the signals' does; all know in one of the rounds to
 * come, and go on communicating meanwhile. */
START_TEST(asked_by_another_thread)
{
    pthread_t thread;
    const bool mine = W->rank == W->size - 1;
    must(tt_stop_open(W, &err_));
    if (mine) {
        ck_assert_int_eq(pthread_create(&thread, NULL, asker, NULL), 0);
    }
    int64_t know = 0, rounds = 0;
    for (const double end = tt_seconds() + 10; know < W->size; rounds++) {
        know = tt_stop_look(W) == TT_STOP_SIGNAL;
        must(tt_sum_i64(W, &know, 1, &err_));
        ck_assert(tt_all(tt_seconds() < end));
    }
    ck_assert_int_gt(rounds, 0);
    if (mine) {
        pthread_join(thread, NULL);
    }
    tt_stop_close(W);
    nothing_is_left();
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("dist/stop, ranks");
    TCase *tests = tcase_create("stop");
    tcase_set_timeout(tests, 0);
    tcase_add_test(tests, silent_until_asked);
    tcase_add_loop_test(tests, one_asks_all_know, 0, 2);
    tcase_add_loop_test(tests, all_are_asked, 0, 2);
    tcase_add_test(tests, too_late_is_heard_in_closing);
    tcase_add_test(tests, asked_by_another_thread);
    suite_add_tcase(suite, tests);
    return suite;
}

TT_MPI_TEST_MAIN(make_suite)
