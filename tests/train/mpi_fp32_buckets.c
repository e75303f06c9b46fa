/* mpi_fp32_buckets.c: FP32 copies of weights (precision.fp32_ops) where a bucket or a rank's piece ends
 * in the middle of a matrix, so that a copy comes together from several ranks and calls. */
#define TT_MPI_TEST
#include "train_test.h"

enum { STEPS = 3 };

static const struct {
    const char *compute, *master, *ops, *tied;
} kinds[] = {{"bf16", "fp32", "[head, fc]", "true"},
             {"bf16", "split", "[head, fc]", "true"},
             {"bf16", "fp32", "[qkv, attention, proj, down, head]", "false"},
             {"fp8", "fp32", "[head, fc, attention]", "true"}};
enum { KINDS = sizeof kinds / sizeof *kinds };

static tt_config kind_config(const char *run, int kind)
{
    tt_config config = tiny_config(run);
    set(&config, "precision.compute", "%s", kinds[kind].compute);
    set(&config, "precision.master", "%s", kinds[kind].master);
    set(&config, "precision.fp32_ops", "%s", kinds[kind].ops);
    set(&config, "model.tie_embeddings", "%s", kinds[kind].tied);
    set(&config, "model.dropout", "0.1");
    set(&config, "batch.accumulate", "2");
    return config;
}

/* Who holds the optimizer's state changes no bit, and the plan knows what goes over the wire. */
START_TEST(zero_stages_agree)
{
    tt_trainer t[2];
    tt_record record[2];
    for (int zero = 0; zero < 2; zero++) {
        tt_config config = kind_config("stages", _i);
        set(&config, "dist.bucket_mb", "1");
        set(&config, "model.channels", "192"); /* two buckets */
        set(&config, "memory.zero", "%d", zero);
        open_trainer(&t[zero], &config, &tt_test_world);
        ck_assert_int_gt(t[zero].print.buckets.count, 1);
    }
    for (int i = 0; i < STEPS; i++) {
        step_once(&t[0], &record[0]);
        step_once(&t[1], &record[1]);
        for (int zero = 0; zero < 2; zero++) {
            const tt_plan *plan = &t[zero].print.plan;
            ck_assert(everywhere(record[zero].comm_calls == plan->wire_calls));
            ck_assert(everywhere(record[zero].comm_bytes == plan->wire_bytes));
        }
        ck_assert(everywhere(memcmp(&record[0].loss, &record[1].loss, sizeof(double)) == 0));
    }
    ck_assert(everywhere(same_masters(&t[0], &t[1])));
    tt_trainer_close(&t[0]);
    tt_trainer_close(&t[1]);
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("train/fp32_buckets");
    TCase *tests = tcase_create("buckets");
    tcase_set_timeout(tests, 0);
    tcase_add_unchecked_fixture(tests, open_folder, close_folder);
    tcase_add_loop_test(tests, zero_stages_agree, 0, KINDS);
    suite_add_tcase(suite, tests);
    return suite;
}

TT_MPI_TEST_MAIN(make_suite)
