/* mpi_evaluate.c: the held-out loss is a property of weights and samples, not of ranks or
 * micro-batches. */
#define TT_MPI_TEST
#include "train_test.h"

enum { WINDOWS = 7 }; /* no micro-batch of more than one fits, nor do the ranks */

static tt_config evaluate_config(const char *run, const char *mode)
{
    tt_config config = tiny_config(run);
    set(&config, "data.mode", "%s", mode);
    set(&config, "run.eval_every", "1");
    return config;
}

/* One sample at a time, each rank for itself. */
static tt_loss one_by_one(const tt_config *config)
{
    tt_config own = alone_config(config, 1);
    tt_err err = {TT_OK, ""};
    tt_trainer t;
    tt_loss loss = {.count = 0};
    open_trainer(&t, &own, &alone);
    ck_assert_int_gt(t.valid_sampler.samples, WINDOWS);
    for (int64_t i = 0; i < WINDOWS; i++) {
        ck_assert_int_eq(tt_batch_fill_range(&t.batch, &t.valid_sampler, i, i + 1, &err), TT_OK);
        tt_model_eval(t.model, t.batch.token, t.batch.target, 1, CONTEXT, &loss, NULL);
    }
    tt_trainer_close(&t);
    return loss;
}

/* A row has the same bits in any micro-batch, and losses are added without rounding: with the same
 * weights there is nothing left that could differ. */
static const struct {
    const char *compute, *mode;
} kinds[] = {{"fp32", "stream"}, {"fp32", "documents"}, {"bf16", "stream"}, {"bf16", "documents"}};
enum { KINDS = sizeof kinds / sizeof *kinds };

/* Micro-batches of 1, 2 and 4. Dropout of the run has no part in it. */
START_TEST(loss_knows_no_split)
{
    const int kind = _i % KINDS, B = 1 << _i / KINDS;
    tt_config config = evaluate_config("split", kinds[kind].mode);
    set(&config, "precision.compute", "%s", kinds[kind].compute);
    const tt_loss wanted = one_by_one(&config);
    tt_trainer t;
    tt_loss loss = {.count = 4}; /* overwritten */
    set(&config, "batch.micro", "%d", B);
    set(&config, "model.dropout", "0.5");
    open_trainer(&t, &config, &tt_test_world);
    must(tt_evaluate(&tt_test_world, t.model, &t.valid_sampler, &t.batch, WINDOWS, &t.tutti, NULL,
                     &loss, &err_));
    ck_assert(everywhere(loss.count == wanted.count && wanted.count > 0));
    ck_assert((loss.count == WINDOWS * CONTEXT) == (strcmp(kinds[kind].mode, "stream") == 0));
    ck_assert_msg(everywhere(sum_of(&loss) == sum_of(&wanted)), "%.17g %.17g", sum_of(&loss),
                  sum_of(&wanted));
    /* Without a world: all of it on each rank. */
    tt_loss own;
    must(tt_evaluate(NULL, t.model, &t.valid_sampler, &t.batch, WINDOWS, &t.tutti, NULL, &own,
                     &err_));
    ck_assert_msg(everywhere(own.count == loss.count && sum_of(&own) == sum_of(&loss)),
                  "%.17g %.17g", sum_of(&own), sum_of(&loss));
    /* Nothing to look at: nothing found. */
    must(tt_evaluate(&tt_test_world, t.model, &t.valid_sampler, &t.batch, 0, &t.tutti, NULL, &own,
                     &err_));
    ck_assert(everywhere(own.count == 0 && sum_of(&own) == 0));
    tt_trainer_close(&t);
}
END_TEST

/* Evaluating between steps changes no step. */
START_TEST(evaluation_leaves_the_run_alone)
{
    tt_config config = evaluate_config("apart", "stream");
    tt_trainer one, two;
    tt_record record;
    tt_loss loss;
    set(&config, "model.dropout", "0.1");
    open_trainer(&one, &config, &tt_test_world);
    open_trainer(&two, &config, &tt_test_world);
    for (int i = 0; i < 2; i++) {
        step_once(&one, &record);
        step_once(&two, &record);
        must(tt_evaluate(&tt_test_world, two.model, &two.valid_sampler, &two.batch, WINDOWS,
                         &two.tutti, NULL, &loss, &err_));
    }
    ck_assert(everywhere(same_state(&one, &two)));
    tt_trainer_close(&one);
    tt_trainer_close(&two);
}
END_TEST

/* One rank cannot read its samples: all return its words. */
START_TEST(unreadable_samples_on_one_rank)
{
    tt_config config = evaluate_config("damage", "stream");
    tt_trainer t;
    tt_loss loss;
    tt_err err = {TT_OK, ""};
    tt_tokens *damaged = NULL;
    open_trainer(&t, &config, &tt_test_world);
    if (tt_test_world.rank == tt_test_world.size - 1) {
        damaged = spoilt_copy(&t.valid_sampler, tt_test_world.rank, true);
        t.valid_sampler.tokens = damaged;
    }
    tt_code rc = tt_evaluate(&tt_test_world, t.model, &t.valid_sampler, &t.batch, WINDOWS, &t.tutti,
                             NULL, &loss, &err);
    ck_assert_msg(everywhere(rc == TT_EWORLD), "%d %s", rc, err.text);
    ck_assert(everywhere(strstr(err.text, "damaged.h5") != NULL));
    tt_tokens_close(damaged);
    tt_trainer_close(&t);
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("train/evaluate");
    TCase *tests = tcase_create("evaluate");
    tcase_set_timeout(tests, 0);
    tcase_add_unchecked_fixture(tests, open_folder, close_folder);
    tcase_add_loop_test(tests, loss_knows_no_split, 0, 3 * KINDS);
    tcase_add_test(tests, evaluation_leaves_the_run_alone);
    tcase_add_test(tests, unreadable_samples_on_one_rank);
    suite_add_tcase(suite, tests);
    return suite;
}

TT_MPI_TEST_MAIN(make_suite)
