/* mpi_resume.c: a run that was interrupted is the run that was not. */
#define TT_MPI_TEST
#include <signal.h>

#include "train_test.h"

enum { SECOND = 3 };

/* Six steps are three, a restart, and three, bit for bit; also when the restart cuts the optimizer's
 * state differently. */
static const struct {
    const char *compute, *master, *rounding, *recipe;
    int before, after; /* ZeRO stages of the interrupted run */
} restarts[] = {
    {"fp32", "fp32", "nearest", "current", 1, 1},    {"fp32", "fp32", "nearest", "current", 0, 1},
    {"bf16", "fp32", "nearest", "current", 1, 0},    {"bf16", "split", "nearest", "current", 1, 0},
    {"bf16", "none", "stochastic", "current", 0, 1}, {"bf16", "none", "nearest", "current", 1, 1},
    {"fp8", "fp32", "nearest", "current", 0, 1},     {"fp8", "fp32", "nearest", "delayed", 1, 0}};
enum { RESTARTS = sizeof restarts / sizeof *restarts };

START_TEST(resumed_is_uninterrupted)
{
    tt_config whole = resume_config("whole"), config = resume_config("resumed");
    tt_trainer one, two;
    int64_t met = 0, all = 0;
    set(&whole, "run.resume", "never");
    for (tt_config *c = &whole;; c = &config) {
        set(c, "precision.compute", "%s", restarts[_i].compute);
        set(c, "precision.master", "%s", restarts[_i].master);
        set(c, "precision.rounding", "%s", restarts[_i].rounding);
        set(c, "fp8.recipe", "%s", restarts[_i].recipe);
        set(c, "fp8.history", "4");
        if (c == &config) {
            break;
        }
    }
    set(&config, "memory.zero", "%d", restarts[_i].before);
    set(&config, "run.dir", "%s", in_folder("resumed-%d", _i));
    first_part(&config, &tt_test_world);

    set(&config, "run.resume", "must");
    set(&config, "memory.zero", "%d", restarts[_i].after);
    open_trainer(&two, &config, &tt_test_world);
    open_trainer(&one, &whole, &tt_test_world);
    steps(&one, FIRST);
    ck_assert(everywhere(same_state(&one, &two))); /* as loaded */
    steps(&one, SECOND);
    steps(&two, SECOND);
    ck_assert(everywhere(two.progress.step == FIRST + SECOND && two.progress.tokens_seen > 0));
    ck_assert(everywhere(same_state(&one, &two)));
    ck_assert(same_shards(&one, one.optimizer.all.m, &two, two.optimizer.all.m, &met));
    MPI_Allreduce(&met, &all, 1, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
    ck_assert_int_ge(all, one.print.params.total); /* whole.zero 1: each element on some rank */
    tt_trainer_close(&one);
    tt_trainer_close(&two);
}
END_TEST

/* The file knows nothing of ranks: a single rank reads what these ranks saved, bit for bit, and goes
 * on with the same run; and these ranks with what a single rank saved. */
START_TEST(another_rank_count_continues_the_same_run)
{
    tt_config config = resume_config("ranks"), own = alone_config(&config, 12);
    tt_trainer one, two;
    tt_record record, alone_record;
    first_part(&config, &tt_test_world);
    snprintf(own.run.dir, sizeof own.run.dir, "%s", config.run.dir);
    set(&config, "run.resume", "must");
    set(&own, "run.resume", "must");
    open_trainer(&one, &config, &tt_test_world);
    open_trainer(&two, &own, &alone);
    ck_assert(everywhere(same_state(&one, &two)));
    for (int i = 0; i < SECOND; i++) {
        step_once(&one, &record);
        step_once(&two, &alone_record);
        ck_assert(everywhere(apart(record.loss, alone_record.loss) <= 1e-6));
        ck_assert(everywhere(record.lr == alone_record.lr && record.tokens == alone_record.tokens));
    }
    ck_assert(everywhere(same_progress(&one, &two)));
    float *a = weights_of(&one), *b = weights_of(&two);
    ck_assert(everywhere(l2_apart(a, 1, b, 1, one.print.params.total) <= 1e-5));
    free(a);
    free(b);

    MPI_Barrier(MPI_COMM_WORLD);
    if (tt_test_world.rank == 0) { /* step 6, by one rank, for all */
        tt_err err;
        ck_assert_int_eq(tt_state_save(&two, true, &err), TT_OK);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    tt_trainer_close(&one);
    open_trainer(&one, &config, &tt_test_world);
    ck_assert(everywhere(one.progress.step == FIRST + SECOND));
    /* The yardsticks of the ranks are alike, so each compares with its own. */
    ck_assert(everywhere(same_state(&one, &two)));
    tt_trainer_close(&one);
    tt_trainer_close(&two);
}
END_TEST

/* The dump is the mean gradient, whole, whoever held which piece. */
START_TEST(gradient_dump_is_the_mean)
{
    tt_config config = resume_config("dump");
    tt_trainer t;
    tt_record record;
    set(&config, "run.dump_gradients", "%s", in_folder("dump.h5"));
    open_trainer(&t, &config, &tt_test_world);
    step_once(&t, &record);
    const tt_params *params = &t.print.params;
    float *mean = dumped_gradient(&t, 1.0 / (double)record.tokens);
    bool same = true;
    double squares = 0;
    int64_t *sums = collected(&t, false);
    for (int64_t i = 0; i < params->total; i++) {
        same = same && mean[i] == (float)(float_at(sums, i) *
                                          (1.0 / (double)record.tokens / (double)t.seed));
        squares += (double)mean[i] * mean[i];
    }
    ck_assert(everywhere(same));
    ck_assert(everywhere(apart(sqrt(squares), record.grad_norm) <= 1e-6));
    free(sums);
    free(mean);
    tt_trainer_close(&t);
}
END_TEST

/* The whole loop: stops at run.steps, goes on when there are more, says so when there are none. */
START_TEST(run_goes_on_where_it_ended)
{
    tt_config config = resume_config("loop"), whole = resume_config("loop-whole");
    tt_trainer one, two;
    set(&config, "run.steps", "4");
    set(&whole, "run.steps", "7");
    for (tt_config *c = &config;; c = &whole) {
        set(c, "optim.schedule", "constant");
        set(c, "run.eval_every", "2");
        set(c, "run.eval_sequences", "5");
        if (c == &whole) {
            break;
        }
    }
    set(&config, "run.save_every", "3");
    open_trainer(&one, &config, &tt_test_world);
    must(tt_trainer_run(&one, &err_));
    ck_assert(everywhere(one.progress.step == 4));
    tt_trainer_close(&one);
    ck_assert(everywhere(exists(in_folder("loop/step-%08d.h5", 3))));
    ck_assert(everywhere(exists(in_folder("loop/step-%08d.h5", 4))));
    set(&config, "run.save_every", "0");
    set(&config, "run.steps", "7");
    open_trainer(&one, &config, &tt_test_world);
    open_trainer(&two, &whole, &tt_test_world);
    must(tt_trainer_run(&one, &err_));
    must(tt_trainer_run(&two, &err_));
    ck_assert(everywhere(one.progress.step == 7 && same_state(&one, &two)));
    tt_trainer_close(&two);
    tt_trainer_close(&one);
    open_trainer(&one, &config, &tt_test_world); /* nothing left to do */
    must(tt_trainer_run(&one, &err_));
    ck_assert(everywhere(one.progress.step == 7));
    tt_trainer_close(&one);
}
END_TEST

/* A signal that one rank gets stops all after the step, saved; the next start goes on. */
START_TEST(signal_stops_saved)
{
    tt_config config = resume_config("signal");
    tt_trainer t;
    tt_err err = {TT_OK, ""};
    tt_signals_block();
    open_trainer(&t, &config, &tt_test_world);
    if (tt_test_world.rank == tt_test_world.size - 1) {
        raise(SIGUSR1);
    }
    tt_code rc = tt_trainer_run(&t, &err);
    ck_assert_msg(everywhere(rc == TT_ESTOP), "%d %s", rc, err.text);
    ck_assert(everywhere(t.progress.step == 1 && exists(in_folder("signal/step-00000001.h5"))));
    tt_trainer_close(&t);
    open_trainer(&t, &config, &tt_test_world);
    ck_assert(everywhere(t.progress.step == 1));
    must(tt_trainer_run(&t, &err_));
    ck_assert(everywhere(t.progress.step == 6));
    tt_trainer_close(&t);
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("train/resume");
    TCase *tests = tcase_create("resume");
    tcase_set_timeout(tests, 0);
    tcase_add_unchecked_fixture(tests, open_folder, close_folder);
    tcase_add_loop_test(tests, resumed_is_uninterrupted, 0, RESTARTS);
    tcase_add_test(tests, another_rank_count_continues_the_same_run);
    tcase_add_test(tests, gradient_dump_is_the_mean);
    tcase_add_test(tests, run_goes_on_where_it_ended);
    tcase_add_test(tests, signal_stops_saved);
    suite_add_tcase(suite, tests);
    return suite;
}

TT_MPI_TEST_MAIN(make_suite)
