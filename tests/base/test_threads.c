/* test_threads.c: the team, the mask, flushing; the clock; the log. */
#include <sched.h>
#include <unistd.h>

#include "tt_test.h"
#include "tutti/base/clock.h"
#include "tutti/base/log.h"
#include "tutti/base/threads.h"

START_TEST(test_team)
{
    ck_assert_int_eq(tt_thread_id(), 0);
    for (int threads = 1; threads <= 3; threads++) {
        int hit[3] = {0}, inner = 0;
        tt_threads_set(threads);
#pragma omp parallel
        {
            hit[tt_thread_id()]++;
#pragma omp parallel reduction(+ : inner)
            inner += 1; /* nesting is off: one thread each */
        }
        for (int i = 0; i < 3; i++) {
            ck_assert_int_eq(hit[i], i < threads);
        }
    }
}
END_TEST

START_TEST(test_environment)
{
    const struct {
        const char *text;
        int threads;
    } known[] = {{"4", 4},    {"3,2", 3}, {"0", 0},          {"-1", 0},
                 {"many", 0}, {"", 0},    {"99999999999", 0}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        setenv("OMP_NUM_THREADS", known[i].text, 1);
        ck_assert_int_eq(tt_threads_env(), known[i].threads);
    }
    unsetenv("OMP_NUM_THREADS");
    ck_assert_int_eq(tt_threads_env(), 0);
}
END_TEST

START_TEST(test_processors)
{
    uint64_t digest = 0, again = 1, one = 0;
    int count = tt_processors(&digest);
    ck_assert_int_ge(count, 1);
    ck_assert_int_eq(tt_processors(&again), count);
    ck_assert_uint_eq(digest, again);
    ck_assert_int_eq(tt_processors(NULL), count);
    cpu_set_t before, single;
    ck_assert_int_eq(sched_getaffinity(0, sizeof before, &before), 0);
    for (int i = CPU_SETSIZE - 1; i >= 0; i--) {
        if (CPU_ISSET((size_t)i, &before)) {
            CPU_ZERO(&single);
            CPU_SET((size_t)i, &single);
        }
    }
    ck_assert_int_eq(sched_setaffinity(0, sizeof single, &single), 0);
    ck_assert_int_eq(tt_processors(&one), 1);
    ck_assert(count == 1 || one != digest);
    ck_assert_int_eq(sched_setaffinity(0, sizeof before, &before), 0);
}
END_TEST

START_TEST(test_flush)
{
#ifdef __SSE__
    volatile float small = 1e-30f, subnormal = 1e-41f;
    ck_assert(small * 1e-10f != 0 && subnormal * 1e10f != 0);
    tt_threads_set(2);
    int kept = 0;
#pragma omp parallel num_threads(4) reduction(+ : kept)
    kept += small * 1e-10f != 0; /* a larger team, before */
    ck_assert_int_eq(kept, 4);
    tt_flush_denormals(2);
    for (int threads = 1; threads <= 5; threads++) { /* threads made later inherit it */
        int flushed = 0;
#pragma omp parallel num_threads(threads) reduction(+ : flushed)
        flushed += small * 1e-10f == 0 && subnormal * 1e10f == 0;
        ck_assert_int_eq(flushed, threads);
    }
#endif
}
END_TEST

START_TEST(test_clock)
{
    double before = tt_seconds();
    usleep(2000);
    double after = tt_seconds();
    ck_assert(after - before >= 0.002 && after - before < 5);
    char stamp[TT_STAMP];
    tt_stamp(stamp);
    int year, month, day, hour, minute, second, end = 0;
    ck_assert_int_eq(sscanf(stamp, "%4d-%2d-%2dT%2d:%2d:%2dZ%n", &year, &month, &day, &hour,
                            &minute, &second, &end),
                     6);
    ck_assert_uint_eq(strlen(stamp), 20);
    ck_assert_int_eq(end, 20);
    ck_assert_int_ge(year, 2024);
}
END_TEST

/* What `say` puts on stderr, into out. */
static void capture(void (*say)(void), char *out, size_t room)
{
    FILE *file = tmpfile();
    ck_assert_ptr_nonnull(file);
    fflush(stderr);
    int before = dup(STDERR_FILENO);
    dup2(fileno(file), STDERR_FILENO);
    say();
    fflush(stderr);
    dup2(before, STDERR_FILENO);
    close(before);
    rewind(file);
    out[fread(out, 1, room - 1, file)] = '\0';
    fclose(file);
}

static void say_all(void)
{
    tt_log zero = tt_log_open(0), three = tt_log_open(3);
    tt_info(&zero, "loss %.1f", 2.5);
    tt_info(&three, "never seen");
    tt_live(&zero, "no terminal, no line");
    tt_warn(&zero, "one");
    tt_warn(&three, "two");
    tt_live_end(&zero);
}

static void say_on_terminal(void)
{
    tt_log log = {.rank = 0, .columns = 80};
    tt_live(&log, "step 1");
    tt_live(&log, "step 2");
    tt_info(&log, "saved");
    tt_live_end(&log);
}

static void say_too_much(void)
{
    tt_log log = tt_log_open(0);
    char endless[10000];
    memset(endless, 'x', sizeof endless - 1);
    endless[sizeof endless - 1] = '\0';
    tt_info(&log, "%s", endless);
    tt_warn(&log, "%s", endless);
}

START_TEST(test_log)
{
    char out[16384];
    capture(say_all, out, sizeof out);
    ck_assert_str_eq(out, "loss 2.5\nwarning: one\nwarning from rank 3: two\n");
    capture(say_on_terminal, out, sizeof out);
    ck_assert_str_eq(out, "\rstep 1\033[K\rstep 2\033[K\nsaved\n");
    capture(say_too_much, out, sizeof out);
    ck_assert_int_eq(out[strlen(out) - 1], '\n');
    ck_assert_ptr_nonnull(strstr(out, "x\nwarning: x"));
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("threads");
    TCase *tcase = tcase_create("threads");
    tcase_add_test(tcase, test_team);
    tcase_add_test(tcase, test_environment);
    tcase_add_test(tcase, test_processors);
    tcase_add_test(tcase, test_clock);
    tcase_add_test(tcase, test_log);
    tcase_add_test(tcase, test_flush); /* last: it changes the thread's mode */
    suite_add_tcase(suite, tcase);
    return suite;
}

TT_TEST_MAIN(make_suite)
