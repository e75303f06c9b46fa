/* mpi_begin.c: how a run begins: anew, where another ended, or with another's weights; and what it
 * refuses. */
#define TT_MPI_TEST
#include <glob.h>

#include "train_test.h"

static bool moments_are_zero(const tt_trainer *t)
{
    for (int64_t i = 0; i < t->print.shard.elements; i++) {
        if (t->optimizer.all.m[i] != 0 || t->optimizer.all.v[i] != 0) {
            return false;
        }
    }
    return true;
}

/* Refused on all ranks with this code, naming these words. */
static void refused(const tt_config *config, tt_code wanted, const char *words)
{
    tt_trainer t;
    tt_err err = {TT_OK, ""};
    tt_code rc = tt_trainer_open(&t, config, &tt_test_world, &quiet, &err);
    ck_assert_msg(everywhere(rc == wanted), "code %d: %s", rc, err.text);
    ck_assert_msg(everywhere(strstr(err.text, words) != NULL), "\"%s\" not in: %s", words,
                  err.text);
}

/* The one folder below dir whose name begins with "earlier-"; "" when there is none or more. */
static void earlier_folder(const char *dir, char out[PATH_ROOM])
{
    char pattern[TT_PATH + 16];
    glob_t found;
    snprintf(pattern, sizeof pattern, "%s/earlier-*", dir);
    out[0] = '\0';
    if (glob(pattern, 0, NULL, &found) == 0 && found.gl_pathc == 1) {
        snprintf(out, PATH_ROOM, "%s", found.gl_pathv[0]);
    }
    globfree(&found);
}

START_TEST(resume_says_how_to_begin)
{
    tt_config config = resume_config("how");
    tt_trainer t;
    char aside[PATH_ROOM];
    set(&config, "run.resume", "must");
    refused(&config, TT_EUSER, "run.resume is must");

    set(&config, "run.resume", "auto");
    open_trainer(&t, &config, &tt_test_world);
    ck_assert(everywhere(t.progress.step == 0 && moments_are_zero(&t)));
    tt_trainer_close(&t);
    first_part(&config, &tt_test_world); /* auto, nothing there: from the start */
    open_trainer(&t, &config, &tt_test_world);
    ck_assert(everywhere(t.progress.step == FIRST && !moments_are_zero(&t)));
    tt_trainer_close(&t);

    /* never: begins anew; the earlier run's files are moved, others stay. */
    if (tt_test_world.rank == 0) {
        write_text(in_folder("how/metrics.jsonl"), "{\"step\": 1}\n", 12);
        write_text(in_folder("how/numerics.jsonl"), "{\"step\": 1}\n", 12);
        write_text(in_folder("how/notes.txt"), "mine", 4);
    }
    set(&config, "run.resume", "never");
    open_trainer(&t, &config, &tt_test_world);
    ck_assert(everywhere(t.progress.step == 0 && t.progress.tokens_seen == 0));
    tt_trainer_close(&t);
    earlier_folder(config.run.dir, aside);
    ck_assert(everywhere(aside[0] != '\0'));
    char path[2 * PATH_ROOM];
    snprintf(path, sizeof path, "%s/step-%08d.h5", aside, FIRST);
    ck_assert(everywhere(exists(path)));
    snprintf(path, sizeof path, "%s/metrics.jsonl", aside);
    ck_assert(everywhere(exists(path) && exists(in_folder("how/notes.txt"))));
    snprintf(path, sizeof path, "%s/numerics.jsonl", aside);
    ck_assert(everywhere(exists(path) && !exists(in_folder("how/numerics.jsonl"))));
    ck_assert(everywhere(!exists(in_folder("how/step-%08d.h5", FIRST))));
    ck_assert(everywhere(!exists(in_folder("how/metrics.jsonl"))));
}
END_TEST

/* What is learned may not change; how the work is split may. */
START_TEST(changes_are_refused_by_name_or_allowed)
{
    static const char *const trajectory[][2] = {
        {"optim.lr", "2e-3"},     {"run.seed", "7"},         {"data.mode", "stream"},
        {"model.dropout", "0.2"}, {"batch.sequences", "24"}, {"precision.compute", "bf16"}};
    static const char *const layout[][2] = {
        {"memory.zero", "0"}, {"dist.bucket_mb", "2"}, {"run.steps", "60"}, {"run.keep", "1"}};
    tt_config config = resume_config("changes");
    tt_trainer t;
    first_part(&config, &tt_test_world);
    for (size_t i = 0; i < sizeof trajectory / sizeof *trajectory; i++) {
        tt_config other = config;
        set(&other, trajectory[i][0], "%s", trajectory[i][1]);
        refused(&other, TT_EUSER, trajectory[i][0]);
    }
    tt_config other = config;
    for (size_t i = 0; i < sizeof layout / sizeof *layout; i++) {
        set(&other, layout[i][0], "%s", layout[i][1]);
    }
    set(&other, "batch.micro", "%d", 12 / tt_test_world.size);
    open_trainer(&t, &other, &tt_test_world);
    ck_assert(everywhere(t.progress.step == FIRST));
    tt_trainer_close(&t);

    other = config;
    set(&other, "data.train", "%s", in_folder("more.h5"));
    refused(&other, TT_EUSER, "same data");
}
END_TEST

/* A start from another run's weights is a start: step 0, no moments, its own schedule. */
START_TEST(init_from_takes_weights_only)
{
    tt_config config = resume_config("source"), fresh = resume_config("fresh");
    tt_trainer source, t;
    open_trainer(&source, &config, &tt_test_world);
    steps(&source, FIRST);
    must(tt_saver_save(&source, NULL, true, true, &err_));
    set(&fresh, "run.init_from", "%s", in_folder("source/step-%08d.h5", FIRST));
    set(&fresh, "optim.lr", "5e-3");
    set(&fresh, "memory.zero", "0");
    open_trainer(&t, &fresh, &tt_test_world);
    ck_assert(everywhere(t.progress.step == 0 && t.progress.updates == 0));
    ck_assert(everywhere(t.progress.tokens_seen == 0 && moments_are_zero(&t)));
    ck_assert(everywhere(same_weights(&t, &source)));
    ck_assert(everywhere(
        same_shards(&t, t.optimizer.all.master, &source, source.optimizer.all.master, NULL)));
    /* A checkpoint of its own goes before. */
    steps(&t, 1);
    must(tt_saver_save(&t, NULL, true, true, &err_));
    tt_trainer_close(&t);
    open_trainer(&t, &fresh, &tt_test_world);
    ck_assert(everywhere(t.progress.step == 1));
    tt_trainer_close(&t);
    tt_trainer_close(&source);

    set(&fresh, "run.dir", "%s", in_folder("fresh-wide"));
    set(&fresh, "model.channels", "12");
    refused(&fresh, TT_EUSER, "wte");
    set(&fresh, "run.init_from", "%s", in_folder("nowhere.h5"));
    refused(&fresh, TT_EUSER, "nowhere.h5");
}
END_TEST

static void setup(void)
{
    static const int more[] = {30, 60, 90, 120, 0};
    open_folder();
    if (tt_test_world.rank == 0) {
        build_tokens("more.h5", more, 0.3);
    }
    MPI_Barrier(MPI_COMM_WORLD);
}

static Suite *make_suite(void)
{
    Suite *suite = suite_create("train/begin");
    TCase *tests = tcase_create("begin");
    tcase_set_timeout(tests, 0);
    tcase_add_unchecked_fixture(tests, setup, close_folder);
    tcase_add_test(tests, resume_says_how_to_begin);
    tcase_add_test(tests, changes_are_refused_by_name_or_allowed);
    tcase_add_test(tests, init_from_takes_weights_only);
    suite_add_tcase(suite, tests);
    return suite;
}

TT_MPI_TEST_MAIN(make_suite)
