/* mpi_saver.c: checkpoints while a run goes on: the same files as those of a run that waits, and as
 * many of them as are to be kept; what fails behind is everybody's failure. */
#define TT_MPI_TEST
#include "train_test.h"

enum { STEPS = 4 };

static tt_config saver_config(const char *run)
{
    tt_config config = tiny_config(run);
    set(&config, "model.layers", "1"); /* fewer tensors: saving makes most of the time here */
    set(&config, "batch.sequences", "12");
    set(&config, "run.steps", "%d", STEPS);
    set(&config, "run.save_every", "1");
    set(&config, "run.keep", "0");
    return config;
}

static tt_code run_all(const tt_config *config, const tt_fault *fault, tt_err *err)
{
    tt_trainer t;
    open_trainer(&t, config, &tt_test_world);
    if (fault != NULL) {
        t.fault = *fault;
    }
    const tt_code rc = tt_trainer_run(&t, err);
    tt_trainer_close(&t);
    return rc;
}

/* Is there this step of a run? As rank 0 sees it. */
static bool is_saved(const char *run, int step)
{
    int there = 0;
    MPI_Barrier(MPI_COMM_WORLD);
    if (my_rank() == 0) {
        there = exists(in_folder("%s/step-%08d.h5", run, step));
    }
    MPI_Bcast(&there, 1, MPI_INT, 0, MPI_COMM_WORLD);
    return there != 0;
}

/* Are the states of this step in two runs the same to the bit? */
static bool same_step(const char *a, const char *b, int step)
{
    int same = 0;
    MPI_Barrier(MPI_COMM_WORLD);
    if (my_rank() == 0) {
        char one[PATH_ROOM], two[PATH_ROOM];
        tt_group_diff group[8];
        tt_first_diff first;
        tt_err err;
        int groups;
        bool identical = false;
        snprintf(one, sizeof one, "%s", in_folder("%s/step-%08d.h5", a, step));
        snprintf(two, sizeof two, "%s", in_folder("%s/step-%08d.h5", b, step));
        same = tt_ckpt_diff(one, two, &identical, group, 8, &groups, &first, &err) == TT_OK &&
               identical;
    }
    MPI_Bcast(&same, 1, MPI_INT, 0, MPI_COMM_WORLD);
    return same != 0;
}

/* However the state is kept. */
START_TEST(the_same_files_while_steps_go_on)
{
    static const struct {
        const char *zero, *compute, *master, *read_back;
        bool file;
    } kinds[] = {{"0", "fp32", "fp32", "true", false},
                 {"1", "bf16", "split", "true", false},
                 {"2", "bf16", "none", "false", false},
                 {"3", "bf16", "fp32", "true", true}};
    char waits[32], goes_on[32];
    snprintf(waits, sizeof waits, "waits-%d", _i);
    snprintf(goes_on, sizeof goes_on, "goes-on-%d", _i);
    tt_config config = saver_config(waits);
    set(&config, "memory.zero", "%s", kinds[_i].zero);
    set(&config, "precision.compute", "%s", kinds[_i].compute);
    set(&config, "precision.master", "%s", kinds[_i].master);
    if (kinds[_i].file) {
        set(&config, "memory.optimizer_file", "%s", in_folder("optimizer"));
    }
    tt_config other = config;
    set(&other, "run.dir", "%s", in_folder("%s", goes_on));
    set(&other, "run.save_async", "true");
    set(&other, "run.read_back", "%s", kinds[_i].read_back);
    must(run_all(&config, NULL, &err_));
    must(run_all(&other, NULL, &err_));
    for (int step = 1; step <= STEPS; step++) {
        ck_assert_msg(same_step(waits, goes_on, step), "step %d", step);
    }
}
END_TEST

START_TEST(some_are_kept_for_ever)
{
    tt_config config = saver_config("keeps");
    set(&config, "run.steps", "8");
    set(&config, "run.keep", "2");
    set(&config, "run.keep_every", "3");
    set(&config, "run.save_async", _i == 0 ? "false" : "true");
    set(&config, "run.dir", "%s", in_folder("keeps-%d", _i));
    must(run_all(&config, NULL, &err_));
    for (int step = 1; step <= 8; step++) {
        const bool kept = step == 3 || step >= 6;
        ck_assert_msg(is_saved(_i == 0 ? "keeps-0" : "keeps-1", step) == kept, "step %d", step);
    }
}
END_TEST

#ifdef TUTTI_FAULTS
/* One rank's disk is full behind: all end with its words, and what was there before stays alone. */
START_TEST(what_fails_behind_ends_the_run)
{
    tt_config config = saver_config("full");
    tt_err err = {TT_OK, ""};
    const tt_fault fault = {.kind = TT_FAULT_ENOSPC, .rank = tt_test_world.size - 1, .step = 3};
    set(&config, "run.save_async", "true");
    ck_assert(everywhere(run_all(&config, &fault, &err) == TT_EWORLD));
    ck_assert(everywhere(strstr(err.text, "step-00000003.h5: No space left") != NULL));
    for (int step = 1; step <= STEPS; step++) {
        ck_assert(is_saved("full", step) == (step < 3));
    }
    MPI_Barrier(MPI_COMM_WORLD);
    ck_assert(!exists(in_folder("full/.step-00000003.h5.part")));
    must(run_all(&config, NULL, &err_)); /* there is room again */
    ck_assert(is_saved("full", STEPS));
}
END_TEST
#endif

static Suite *make_suite(void)
{
    Suite *suite = suite_create("saver");
    TCase *tc = tcase_create("saver");
    tcase_set_timeout(tc, 0);
    tcase_add_unchecked_fixture(tc, open_folder, close_folder);
    tcase_add_loop_test(tc, the_same_files_while_steps_go_on, 0, 4);
    tcase_add_loop_test(tc, some_are_kept_for_ever, 0, 2);
#ifdef TUTTI_FAULTS
    tcase_add_test(tc, what_fails_behind_ends_the_run);
#endif
    suite_add_tcase(suite, tc);
    return suite;
}

TT_MPI_TEST_MAIN(make_suite)
