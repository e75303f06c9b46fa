/* mpi_watch.c: ranks that are slow, or late, or stopped for a while, are left alone. What happens to
 * those that are to blame ends the process: tests/cli/ends.sh sees to that. quick: no */
#define TT_MPI_TEST
#include "tt_test.h"

#include <time.h>
#include <unistd.h>

#include "tutti/base/clock.h"
#include "tutti/dist/mpi_comm.h"
#include "tutti/dist/watch.h"

#include "no_thread.h"

#define W (&tt_test_world)

static void nap(double seconds)
{
    const struct timespec time = {(time_t)seconds,
                                  (long)((seconds - (double)(time_t)seconds) * 1e9)};
    nanosleep(&time, NULL);
}

static bool watch(double timeout)
{
    tt_log log = tt_log_open(W->rank);
    tt_err err;
    return tt_all(tt_watch_open(W, timeout, &log, &err) == TT_OK);
}

START_TEST(beats_say_what_a_rank_does)
{
    tt_pulse *pulse = &W->pulse;
    int64_t beats = pulse->beats;
    tt_beat(W, "testing");
    ck_assert(tt_all(pulse->beats == beats + 1 && strcmp(pulse->doing, "testing") == 0));
    const char *outer = tt_wait_begin(W, "MPI_Test");
    ck_assert(tt_all(pulse->beats == beats + 2 && strcmp(pulse->waiting, "MPI_Test") == 0));
    const char *inner = tt_wait_begin(W, "MPI_Wait");
    ck_assert(tt_all(pulse->beats == beats + 3 && strcmp(pulse->waiting, "MPI_Wait") == 0));
    tt_wait_end(W, inner);
    ck_assert(tt_all(pulse->beats == beats + 4 && strcmp(pulse->waiting, "MPI_Test") == 0));
    tt_wait_end(W, outer);
    ck_assert(tt_all(pulse->beats == beats + 5 && pulse->waiting == NULL));
    tt_beat(W, NULL);
    ck_assert(tt_all(pulse->beats == beats + 6 && strcmp(pulse->doing, "testing") == 0));
    tt_beat(NULL, "testing");
    outer = tt_wait_begin(NULL, "MPI_Test");
    ck_assert(tt_all(outer == NULL));
    tt_wait_end(NULL, outer);
    tt_watch_left(NULL, "nothing");
}
END_TEST

START_TEST(collectives_beat)
{
    tt_err err;
    double value = 1;
    int64_t beats = W->pulse.beats;
    ck_assert(tt_all(tt_sum_f64(W, &value, 1, &err) == TT_OK));
    ck_assert(tt_all(W->pulse.beats == beats + (W->size > 1 ? 2 : 0)));
    ck_assert(tt_all(W->pulse.waiting == NULL));
}
END_TEST

START_TEST(zero_is_off)
{
    ck_assert(watch(0));
    ck_assert(tt_all(W->watch == NULL));
}
END_TEST

/* The last rank gets no thread, and the others take theirs back. Before any watch is open. */
START_TEST(none_where_one_is_refused)
{
    const bool last = W->rank == W->size - 1;
    tt_log log = tt_log_open(W->rank);
    pthread_attr_t usual;
    tt_err err = {TT_OK, ""};
    if (last) {
        threads_refused(&usual);
    }
    const tt_code rc = tt_watch_open(W, 30, &log, &err);
    if (last) {
        threads_granted(&usual);
    }
    ck_assert(tt_all(rc == TT_EWORLD && W->watch == NULL));
    ck_assert(tt_all(strstr(err.text, "dist.timeout=0") != NULL));
}
END_TEST

/* The last rank works for three timeouts, beating; the others wait for it, ask, and go on waiting. */
START_TEST(a_slow_rank_is_left_alone)
{
    tt_err err;
    ck_assert(watch(1));
    ck_assert(tt_all(W->watch != NULL));
    if (W->rank == W->size - 1) {
        tt_beat(W, "working");
        for (const double start = tt_seconds(); tt_seconds() < start + 3;) {
            nap(0.1);
            tt_beat(W, NULL);
        }
    }
    ck_assert(tt_all(tt_barrier(W, &err) == TT_OK));
}
END_TEST

/* Ranks come one after another, each in less than the timeout; the first waits longer than that. */
START_TEST(late_ranks_are_left_alone)
{
    tt_err err;
    ck_assert(watch(1));
    for (int i = 0; i < 3 * W->rank; i++) {
        tt_beat(W, "coming");
        nap(0.2);
    }
    ck_assert(tt_all(tt_barrier(W, &err) == TT_OK));
}
END_TEST

/* All ranks are stopped for longer than the timeout, as a scheduler does that needs the node, and go on:
 * of the time without a beat little was theirs. */
START_TEST(a_stopped_job_goes_on)
{
    tt_err err;
    char command[128];
    if (W->size > 2) {
        return;
    }
    snprintf(command, sizeof command,
             "(sleep 0.2; kill -STOP %d; sleep 2.5; kill -CONT %d) >/dev/null 2>&1 &",
             (int)getpid(), (int)getpid());
    ck_assert(watch(2));
    ck_assert(tt_all(system(command) == 0));
    tt_beat(W, "working");
    const double start = tt_seconds();
    while (tt_seconds() < start + 3.2) {
        nap(start + 3.2 - tt_seconds());
    }
    ck_assert(tt_all(tt_barrier(W, &err) == TT_OK));
}
END_TEST

/* Watches ask and answer while large messages are under way. */
START_TEST(questions_and_collectives_at_once)
{
    enum { N = 1 << 18 };
    static double data[N];
    tt_err err;
    ck_assert(watch(0.4));
    bool good = true;
    const double start = tt_seconds();
    for (int i = 0; tt_all(tt_seconds() < start + 2); i++) {
        for (int j = 0; j < N; j++) {
            data[j] = j + W->rank;
        }
        if (i % W->size == W->rank && i % 8 < W->size) {
            for (int k = 0; k < 30; k++) { /* long enough to be asked */
                nap(0.02);
                tt_beat(W, "working");
            }
        }
        good = good && tt_sum_f64(W, data, N, &err) == TT_OK;
        const double ranks = W->size;
        for (int j = 0; j < N; j += 1001) {
            good = good && data[j] == ranks * j + ranks * (ranks - 1) / 2;
        }
    }
    ck_assert(tt_all(good));
    ck_assert(watch(60)); /* what follows may take its time */
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("dist/watch");
    TCase *tests = tcase_create("watch");
    tcase_set_timeout(tests, 60);
    tcase_add_test(tests, beats_say_what_a_rank_does);
    tcase_add_test(tests, collectives_beat);
    tcase_add_test(tests, zero_is_off);
    tcase_add_test(tests, none_where_one_is_refused);
    tcase_add_test(tests, a_slow_rank_is_left_alone);
    tcase_add_test(tests, late_ranks_are_left_alone);
    tcase_add_test(tests, a_stopped_job_goes_on);
    tcase_add_test(tests, questions_and_collectives_at_once);
    suite_add_tcase(suite, tests);
    return suite;
}

TT_MPI_TEST_MAIN(make_suite)
