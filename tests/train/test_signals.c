/* test_signals.c: the first signal asks, repeats are the same request, a late one ends the process; what
 * the parent has ignored stays ignored, and threads that were there before hand signals on. */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tutti/base/clock.h"
#include "tutti/train/signals.h"

#include "tt_test.h"

static const int stops[] = {SIGTERM, SIGINT, SIGUSR1};

static void nap(double seconds)
{
    struct timespec left = {(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)};
    while (nanosleep(&left, &left) != 0) {
    }
}

static void count(void *user)
{
    atomic_fetch_add((atomic_int *)user, 1);
}

/* Waits for so many calls, five seconds at most, and a moment more for one too many. */
static bool asked(atomic_int *calls, int wanted)
{
    for (double end = tt_seconds() + 5; atomic_load(calls) < wanted && tt_seconds() < end;) {
        nap(0.001);
    }
    nap(0.05);
    return atomic_load(calls) == wanted;
}

/* A body runs in a child, as signals stay blocked once they were. */
static pid_t begin(int (*body)(int argument), int argument)
{
    fflush(NULL);
    const pid_t child = fork();
    ck_assert_int_ge(child, 0);
    if (child == 0) {
        alarm(20);
        _exit(body(argument));
    }
    return child;
}

/* What it came to; 0: all was as it should. */
static int end(pid_t child)
{
    int status = 0;
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

static int in_child(int (*body)(int argument), int argument)
{
    return end(begin(body, argument));
}

static tt_signals *opened(void)
{
    tt_signals *signals = NULL;
    tt_err err;
    return tt_signals_open(&signals, &err) == TT_OK ? signals : NULL;
}

/* One call, however often the process is asked within two seconds, and by whatever. */
static int asks_once(int signal)
{
    atomic_int calls = 0;
    tt_signals *s = opened();
    tt_signals_tell(s, count, &calls);
    if (!asked(&calls, 0) || kill(getpid(), signal) != 0 || !asked(&calls, 1)) {
        return 1;
    }
    for (int i = 0; i < 6; i++) {
        kill(getpid(), stops[i % 3]);
        nap(0.02);
    }
    raise(signal); /* to this thread alone: it is blocked, and stays pending */
    const bool once = asked(&calls, 1);
    tt_signals_close(s);
    kill(getpid(), signal); /* blocked for good: the exit code is the program's */
    nap(0.05);
    return once ? 0 : 2;
}

START_TEST(the_first_asks_once)
{
    ck_assert_int_eq(in_child(asks_once, stops[_i]), 0);
}
END_TEST

/* What came before there was anybody to tell is told then, once; nobody is called after tell(NULL). */
static int asks_later(int signal)
{
    atomic_int calls = 0;
    tt_signals *s = opened();
    kill(getpid(), signal);
    nap(0.1);
    tt_signals_tell(s, count, &calls);
    const bool first = atomic_load(&calls) == 1;
    tt_signals_tell(s, NULL, NULL);
    tt_signals_close(s);

    s = opened();
    tt_signals_tell(s, count, &calls);
    tt_signals_tell(s, NULL, NULL);
    kill(getpid(), signal);
    const bool second = asked(&calls, 1);
    tt_signals_close(s);
    return first && second ? 0 : 1;
}

START_TEST(one_that_came_early)
{
    ck_assert_int_eq(in_child(asks_later, stops[_i]), 0);
}
END_TEST

/* Three seconds after the first, whatever that was, this one ends the process. */
static int asks_again(int signal)
{
    atomic_int calls = 0;
    tt_signals *s = opened();
    tt_signals_tell(s, count, &calls);
    kill(getpid(), signal == SIGTERM ? SIGUSR1 : SIGTERM);
    nap(TT_SIGNALS_SAME + 0.5);
    kill(getpid(), signal);
    nap(5);
    return 1;
}

START_TEST(a_late_one_ends_the_process)
{
    pid_t child[3];
    for (int i = 0; i < 3; i++) {
        child[i] = begin(asks_again, stops[i]);
    }
    for (int i = 0; i < 3; i++) {
        ck_assert_int_eq(end(child[i]), 128 + stops[i]);
    }
}
END_TEST

static int is_ignored(int which)
{
    atomic_int calls = 0;
    signal(which, SIG_IGN);
    tt_signals *s = opened();
    tt_signals_tell(s, count, &calls);
    kill(getpid(), which);
    kill(getpid(), which);
    if (!asked(&calls, 0)) {
        return 1;
    }
    kill(getpid(), which == SIGTERM ? SIGINT : SIGTERM);
    const bool other = asked(&calls, 1);
    tt_signals_close(s);
    return other ? 0 : 2;
}

START_TEST(ignored_stays_ignored)
{
    ck_assert_int_eq(in_child(is_ignored, stops[_i]), 0);
}
END_TEST

static int all_ignored(int unused)
{
    atomic_int calls = 0;
    (void)unused;
    for (int i = 0; i < 3; i++) {
        signal(stops[i], SIG_IGN);
    }
    tt_signals *s = opened();
    tt_signals_tell(s, count, &calls);
    kill(getpid(), SIGTERM);
    const bool none = s != NULL && asked(&calls, 0);
    tt_signals_close(s);
    return none ? 0 : 1;
}

START_TEST(all_are_ignored)
{
    ck_assert_int_eq(in_child(all_ignored, 0), 0);
}
END_TEST

static void *idle(void *of)
{
    (void)of;
    for (;;) {
        pause();
    }
    return NULL;
}

/* Threads that were made before, as OpenBLAS does: a signal that one of them gets, by name even, is
 * heard once, and from then on that thread gets none. */
static int has_threads(int signal)
{
    enum { THREADS = 4 };
    pthread_t thread[THREADS];
    atomic_int calls = 0;
    for (int i = 0; i < THREADS; i++) {
        if (pthread_create(&thread[i], NULL, idle, NULL) != 0) {
            return 1;
        }
    }
    tt_signals *s = opened();
    tt_signals_tell(s, count, &calls);
    pthread_kill(thread[0], signal);
    if (!asked(&calls, 1)) {
        return 2;
    }
    tt_signals_close(s);
    s = opened();
    tt_signals_tell(s, count, &calls);
    kill(getpid(), signal); /* to whichever the kernel likes */
    return asked(&calls, 2) ? 0 : 3;
}

START_TEST(threads_from_before_pass_it_on)
{
    ck_assert_int_eq(in_child(has_threads, stops[_i]), 0);
}
END_TEST

START_TEST(nothing_to_close)
{
    tt_signals_tell(NULL, count, NULL);
    tt_signals_close(NULL);
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("train/signals");
    TCase *tests = tcase_create("signals");
    tcase_set_timeout(tests, 0);
    tcase_add_loop_test(tests, the_first_asks_once, 0, 3);
    tcase_add_loop_test(tests, one_that_came_early, 0, 3);
    tcase_add_test(tests, a_late_one_ends_the_process);
    tcase_add_loop_test(tests, ignored_stays_ignored, 0, 3);
    tcase_add_test(tests, all_are_ignored);
    tcase_add_loop_test(tests, threads_from_before_pass_it_on, 0, 3);
    tcase_add_test(tests, nothing_to_close);
    suite_add_tcase(suite, tests);
    return suite;
}

TT_TEST_MAIN(make_suite)
