/* test_fault.c: TUTTI_FAULT: what is taken, what is refused, when a fault is due. */
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tt_test.h"
#include "tutti/base/fault.h"

START_TEST(test_none)
{
    tt_fault fault;
    tt_err err;
    ck_assert_int_eq(tt_fault_parse(NULL, &fault, &err), TT_OK);
    ck_assert_int_eq(tt_fault_parse("", &fault, &err), TT_OK);
    ck_assert_int_eq(fault.kind, TT_FAULT_NONE);
    for (tt_fault_kind kind = TT_FAULT_NONE; kind <= TT_FAULT_ENOSPC; kind++) {
        ck_assert(!tt_fault_due(&fault, kind, 0, 0));
    }
}
END_TEST

#ifdef TUTTI_FAULTS

START_TEST(test_taken)
{
    const struct {
        const char *text;
        tt_fault fault;
    } good[] = {
        {"nan_grad", {TT_FAULT_NAN_GRAD, "", -1, -1}},
        {"inf_grad:rank=1", {TT_FAULT_INF_GRAD, "", 1, -1}},
        {"flip_grad:rank=1,step=2", {TT_FAULT_FLIP_GRAD, "", 1, 2}},
        {"huge_grad:step=4", {TT_FAULT_HUGE_GRAD, "", -1, 4}},
        {"nan_forward:rank=1,step=3", {TT_FAULT_NAN_FORWARD, "", 1, 3}},
        {"bad_norm:step=20", {TT_FAULT_BAD_NORM, "", -1, 20}},
        {"clip_scaled", {TT_FAULT_CLIP_SCALED, "", -1, -1}},
        {"sync_every:step=2", {TT_FAULT_SYNC_EVERY, "", -1, 2}},
        {"enospc:rank=0,step=3", {TT_FAULT_ENOSPC, "", 0, 3}},
        {"nan_grad:step=3,rank=2", {TT_FAULT_NAN_GRAD, "", 2, 3}},
        {"flip_weight:rank=1,step=2", {TT_FAULT_FLIP_WEIGHT, "", 1, 2}},
        {"hang:rank=1,step=2", {TT_FAULT_HANG, "in_step", 1, 2}},
        {"hang", {TT_FAULT_HANG, "in_step", -1, -1}},
        {"slow=in_micro:rank=1", {TT_FAULT_SLOW, "in_micro", 1, -1}},
        {"hang=in_eval:step=2", {TT_FAULT_HANG, "in_eval", -1, 2}},
        {"crash_at=mid_save", {TT_FAULT_CRASH_AT, "mid_save", -1, -1}},
        {"crash_at=in_start", {TT_FAULT_CRASH_AT, "in_start", -1, -1}}, /* the table's first, */
        {"hang=in_end:step=9", {TT_FAULT_HANG, "in_end", -1, 9}},       /* and its last */
        {"crash_at=before_rename:rank=1,step=4", {TT_FAULT_CRASH_AT, "before_rename", 1, 4}}};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        tt_fault fault;
        tt_err err = {0};
        ck_assert_msg(tt_fault_parse(good[i].text, &fault, &err) == TT_OK, "%s", err.text);
        ck_assert_int_eq(fault.kind, good[i].fault.kind);
        ck_assert_str_eq(fault.point, good[i].fault.point);
        ck_assert_int_eq(fault.rank, good[i].fault.rank);
        ck_assert_int_eq(fault.step, good[i].fault.step);
    }
}
END_TEST

START_TEST(test_refused)
{
    const char *const bad[] = {"none",
                               "nan",
                               "nan_grad:",
                               "nan_grad:rank",
                               "nan_grad:rank=",
                               "nan_grad:rank=x",
                               "nan_grad:rank=-1",
                               "nan_grad:rank=1,rank=2",
                               "nan_grad:rank=1;step=2",
                               "nan_grad:host=1",
                               "nan_grad=1",
                               "flip_grad=1",
                               "nan_grad,step=3",
                               "flip_weight=1",
                               "hang=",
                               "hang=nowhere",
                               "slow",
                               "slow=nowhere",
                               "crash_at",
                               "crash_at=",
                               "crash_at=nowhere",
                               "crash_at:step=1",
                               "bad_norm:rank=1",
                               "clip_scaled:rank=1",
                               "sync_every:rank=0,step=3",
                               "nan_grad:rank=1,",
                               " nan_grad",
                               "NAN_GRAD"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        tt_fault fault;
        tt_err err = {0};
        ck_assert_msg(tt_fault_parse(bad[i], &fault, &err) == TT_EUSER, "taken: %s", bad[i]);
        ck_assert_ptr_nonnull(strstr(err.text, bad[i]));
        ck_assert_ptr_nonnull(strstr(err.text, "nan_grad, inf_grad, flip_grad"));
        ck_assert_ptr_nonnull(strstr(err.text, "hang=<point>, "));
        ck_assert_ptr_nonnull(strstr(err.text, "; <point> one of in_start, in_load, "));
        ck_assert_str_eq(err.text + strlen(err.text) - 6, "in_end"); /* nothing is cut off */
        ck_assert_int_eq(fault.kind, TT_FAULT_NONE);
    }
    char endless[1000];
    memset(endless, 'x', sizeof endless - 1);
    endless[sizeof endless - 1] = '\0';
    tt_fault fault;
    tt_err err = {0};
    ck_assert_int_eq(tt_fault_parse(endless, &fault, &err), TT_EUSER);
}
END_TEST

#else

START_TEST(test_refused_in_this_build)
{
    tt_fault fault;
    tt_err err = {0};
    ck_assert_int_eq(tt_fault_parse("nan_grad", &fault, &err), TT_EUSER);
    ck_assert_ptr_nonnull(strstr(err.text, "TUTTI_FAULT=nan_grad"));
    ck_assert_int_eq(fault.kind, TT_FAULT_NONE);
}
END_TEST

#endif

START_TEST(test_due)
{
    tt_fault fault = {TT_FAULT_NAN_GRAD, "", 1, 5};
    ck_assert(tt_fault_due(&fault, TT_FAULT_NAN_GRAD, 1, 5));
    ck_assert(!tt_fault_due(&fault, TT_FAULT_INF_GRAD, 1, 5));
    ck_assert(!tt_fault_due(&fault, TT_FAULT_NAN_GRAD, 0, 5));
    ck_assert(!tt_fault_due(&fault, TT_FAULT_NAN_GRAD, 1, 4));
    fault.rank = -1;
    ck_assert(tt_fault_due(&fault, TT_FAULT_NAN_GRAD, 7, 5));
    fault.step = -1;
    ck_assert(tt_fault_due(&fault, TT_FAULT_NAN_GRAD, 0, 0));
}
END_TEST

/* A fault that would never strike tests nothing. */
START_TEST(test_never_due)
{
    const struct {
        tt_fault fault;
        const char *why;
    } cases[] = {{{TT_FAULT_NAN_GRAD, "", 3, -1}, "no rank 3: of 3 ranks the last is 2"},
                 {{TT_FAULT_CRASH_AT, "in_end", -1, 6}, "no step 6: run.steps is 5"},
                 {{TT_FAULT_NAN_GRAD, "", 2, 5}, NULL},
                 {{TT_FAULT_CRASH_AT, "in_start", 0, 0}, NULL},
                 {{TT_FAULT_NONE, "", -1, -1}, NULL}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tt_err err = {0};
        const tt_code rc = tt_fault_check(&cases[i].fault, 3, 5, &err);
        ck_assert_int_eq(rc, cases[i].why != NULL ? TT_EUSER : TT_OK);
        ck_assert(cases[i].why == NULL || strstr(err.text, cases[i].why) != NULL);
    }
}
END_TEST

static int crash_signal(const tt_fault *fault, const char *point, int rank, int64_t step)
{
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        tt_fault_strike(fault, point, rank, step);
        _exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

START_TEST(test_crash)
{
    tt_fault fault = {TT_FAULT_CRASH_AT, "mid_save", 0, 2};
    ck_assert_int_eq(crash_signal(&fault, "mid_save", 0, 2), SIGKILL);
    ck_assert_int_eq(crash_signal(&fault, "before_save", 0, 2), 0);
    ck_assert_int_eq(crash_signal(&fault, "mid_save", 1, 2), 0);
    ck_assert_int_eq(crash_signal(&fault, "mid_save", 0, 3), 0);
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("fault");
    TCase *tcase = tcase_create("fault");
    tcase_add_test(tcase, test_none);
#ifdef TUTTI_FAULTS
    tcase_add_test(tcase, test_taken);
    tcase_add_test(tcase, test_refused);
#else
    tcase_add_test(tcase, test_refused_in_this_build);
#endif
    tcase_add_test(tcase, test_due);
    tcase_add_test(tcase, test_never_due);
    tcase_add_test(tcase, test_crash);
    suite_add_tcase(suite, tcase);
    return suite;
}

TT_TEST_MAIN(make_suite)
