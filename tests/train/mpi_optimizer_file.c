/* mpi_optimizer_file.c: masters, m and v in a file change where they are and nothing else: not a bit of
 * what is learned, whatever the split, and not what a checkpoint is. A disk that fails ends the run on
 * all ranks in the same step. */
#define TT_MPI_TEST
#include "tutti/train/digests.h"

#include "train_test.h"

static const struct {
    const char *compute, *master, *rounding, *ops;
} kinds[] = {{"fp32", "fp32", "nearest", ""},
             {"bf16", "split", "nearest", "head, qkv"},
             {"bf16", "none", "stochastic", ""},
             {"bf16", "fp32", "nearest", "fc"}};
enum { KINDS = sizeof kinds / sizeof *kinds };

/* Large enough that a rank of four has more chunks than go into memory. exact: or normal mode. */
static tt_config file_config(const char *run, int kind, bool exact)
{
    tt_config config = resume_config(run);
    set(&config, "model.channels", "48");
    set(&config, "model.ffn", "401");
    set(&config, "optim.warmup", "0");
    set(&config, "batch.sequences", "12");
    set(&config, "run.exact", exact ? "true" : "false");
    set(&config, "precision.compute", "%s", kinds[kind].compute);
    set(&config, "precision.master", "%s", kinds[kind].master);
    set(&config, "precision.rounding", "%s", kinds[kind].rounding);
    set(&config, "precision.fp32_ops", "%s", kinds[kind].ops);
    return config;
}

static void into_file(tt_config *config)
{
    set(config, "memory.optimizer_file", "%s", in_folder("optimizer"));
}

/* Digests of every tensor; the caller closes. */
static tt_digests digests_of(const tt_trainer *t)
{
    tt_digests d;
    must(tt_digests_open(&d, t, &err_));
    must(tt_digests_take(&d, t, &err_));
    return d;
}

static bool same_digests(const tt_digests *a, const tt_digests *b)
{
    return a->weights == b->weights && a->rows.rows == b->rows.rows &&
           memcmp(a->sum, b->sum, sizeof *a->sum * (size_t)a->rows.rows) == 0;
}

/* Digests after every step in memory and in a file, on these ranks, with either ZeRO stage; and of the
 * weights that all ranks have. */
START_TEST(no_bit_depends_on_the_file)
{
    const int kind = _i / 2;
    tt_config config = file_config("memory", kind, _i % 2 == 1);
    for (int zero = 0; zero < 2; zero++) {
        tt_trainer memory, file;
        set(&config, "memory.zero", "%d", zero);
        set(&config, "run.threads", "%d", 1 + zero);
        set(&config, "memory.optimizer_file", "%s", "");
        open_trainer(&memory, &config, &tt_test_world);
        into_file(&config);
        open_trainer(&file, &config, &tt_test_world);
        ck_assert(everywhere(file.optimizer.chunks != NULL && file.optimizer.all.m == NULL));
        ck_assert(everywhere(file.optimizer.elements > 6 * file.optimizer.chunk));
        ck_assert(everywhere(file.print.plan.bytes[TT_MEM_OPTIMIZER] <
                             memory.print.plan.bytes[TT_MEM_OPTIMIZER]));
        for (int i = 0; i < 2; i++) {
            tt_digests a = digests_of(&memory), b = digests_of(&file);
            ck_assert(everywhere(same_digests(&a, &b)));
            ck_assert(
                everywhere(memcmp(memory.weights, file.weights,
                                  tt_bytes(file.print.params.total, file.print.act_bytes)) == 0));
            ck_assert(everywhere(memcmp(memory.wide_weights, file.wide_weights,
                                        tt_bytes(file.print.params.wide, sizeof(float))) == 0));
            ck_assert(everywhere(same_masters(&memory, &file)));
            tt_digests_close(&a);
            tt_digests_close(&b);
            steps(&memory, 1);
            steps(&file, 1);
        }
        tt_trainer_close(&memory);
        tt_trainer_close(&file);
    }
}
END_TEST

/* From memory to a file and back, at steps 2 and 4; the yardstick is never interrupted. */
START_TEST(a_run_may_change_over)
{
    tt_config config = file_config("change", _i, true), whole = file_config("through", _i, true);
    tt_trainer t;
    set(&config, "run.dir", "%s", in_folder("change-%d", _i));
    open_trainer(&t, &whole, &tt_test_world);
    steps(&t, 6);
    tt_digests wanted = digests_of(&t);
    tt_trainer_close(&t);
    for (int part = 0; part < 3; part++) {
        set(&config, "memory.optimizer_file", "%s", part == 1 ? in_folder("optimizer") : "");
        set(&config, "memory.zero", "%d", part % 2);
        open_trainer(&t, &config, &tt_test_world);
        ck_assert(everywhere(t.progress.step == 2 * part));
        ck_assert(everywhere((t.optimizer.chunks != NULL) == (part == 1)));
        steps(&t, 2);
        must(tt_saver_save(&t, NULL, true, true, &err_));
        tt_digests got = digests_of(&t);
        ck_assert(everywhere(part < 2 || same_digests(&got, &wanted)));
        tt_digests_close(&got);
        tt_trainer_close(&t);
    }
    tt_digests_close(&wanted);
}
END_TEST

/* The file has no name as soon as it is there. */
START_TEST(nothing_is_left)
{
    tt_config config = file_config("left", 0, false);
    tt_trainer t;
    into_file(&config);
    open_trainer(&t, &config, &tt_test_world);
    ck_assert(everywhere(!exists(in_folder("optimizer.%d", my_rank()))));
    tt_trainer_close(&t);
    ck_assert(everywhere(!exists(in_folder("optimizer.%d", my_rank()))));
}
END_TEST

/* One sentence on all ranks, before any step. */
START_TEST(a_place_that_cannot_be)
{
    tt_config config = file_config("nowhere", 0, false);
    tt_trainer t;
    tt_err err = {TT_OK, ""};
    set(&config, "memory.optimizer_file", "%s", in_folder("no-folder/optimizer"));
    tt_code rc = tt_trainer_open(&t, &config, &tt_test_world, &quiet, &err);
    ck_assert_msg(everywhere(rc == TT_EWORLD && strstr(err.text, "memory.optimizer_file: ") &&
                             strstr(err.text, "no-folder/optimizer.") != NULL),
                  "%s", err.text);
    /* Of one rank: what is there is not its own to write over. */
    into_file(&config);
    const int last = tt_test_world.size - 1;
    if (my_rank() == last) {
        write_text(in_folder("optimizer.%d", last), "mine", 4);
    }
    rc = tt_trainer_open(&t, &config, &tt_test_world, &quiet, &err);
    ck_assert_msg(everywhere(rc == TT_EWORLD && strstr(err.text, "File exists") != NULL), "%s",
                  err.text);
    if (my_rank() == last) {
        tt_text kept = {0};
        ck_assert_int_eq(tt_read_file(in_folder("optimizer.%d", last), 99, &kept, &err), TT_OK);
        ck_assert_str_eq(kept.data, "mine");
        tt_text_free(&kept);
        ck_assert_int_eq(unlink(in_folder("optimizer.%d", last)), 0);
    }
}
END_TEST

/* The last rank's disk fails: in the update, before the next step, a save or digests. All ranks stop
 * with its sentence, and nothing is saved. */
START_TEST(a_disk_that_fails)
{
    enum { IN_UPDATE, BEFORE_STEP, BEFORE_SAVE, BEFORE_DIGEST };
    tt_config config = file_config("fails", 1, false);
    tt_trainer t;
    tt_record record;
    tt_digests digests;
    tt_err err = {TT_OK, ""};
    const tt_request request = {.code = TT_OK};
    const int last = tt_test_world.size - 1;
    tt_code rc;
    set(&config, "run.dir", "%s", in_folder("fails-%d", _i));
    into_file(&config);
    open_trainer(&t, &config, &tt_test_world);
    must(tt_digests_open(&digests, &t, &err_));
    steps(&t, 1);
    if (_i == IN_UPDATE) {
        t.fault = (tt_fault){.kind = TT_FAULT_OPTIMIZER_FILE, .rank = last, .step = 2};
    } else if (my_rank() == last) {
        float *masters = masters_of(&t); /* nothing is on its way any more */
        free(masters);
        tt_chunks_spoil(t.optimizer.chunks);
        masters = masters_of(&t);
        free(masters);
    }
    if (_i == IN_UPDATE || _i == BEFORE_STEP) {
        rc = tt_step(&t, &request, &record, &err);
        ck_assert(everywhere((_i == IN_UPDATE) == (strstr(err.text, "step 2: ") != NULL)));
    } else if (_i == BEFORE_SAVE) {
        rc = tt_saver_save(&t, NULL, true, true, &err);
    } else {
        rc = tt_digests_take(&digests, &t, &err);
    }
    ck_assert_msg(everywhere(rc == TT_EWORLD && strstr(err.text, "memory.optimizer_file: ") &&
                             strstr(err.text, "spoilt on purpose")),
                  "%s", err.text);
    ck_assert(everywhere(tt_test_world.size == 1 || strstr(err.text, "rank ") == err.text));
    ck_assert(everywhere(!exists(in_folder("fails-%d/step-%08d.h5", _i, 1)) &&
                         !exists(in_folder("fails-%d/step-%08d.h5", _i, 2))));
    tt_digests_close(&digests);
    tt_trainer_close(&t);
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("train/optimizer_file");
    TCase *tests = tcase_create("optimizer_file");
    tcase_set_timeout(tests, 0);
    tcase_add_unchecked_fixture(tests, open_folder, close_folder);
    tcase_add_loop_test(tests, no_bit_depends_on_the_file, 0, 2 * KINDS);
    tcase_add_loop_test(tests, a_run_may_change_over, 1, 3);
    tcase_add_test(tests, nothing_is_left);
    tcase_add_test(tests, a_place_that_cannot_be);
    tcase_add_loop_test(tests, a_disk_that_fails, 0, 4);
    suite_add_tcase(suite, tests);
    return suite;
}

TT_MPI_TEST_MAIN(make_suite)
