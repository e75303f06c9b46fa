/* mpi_masters.c: what the optimizer keeps of the weights changes memory and rounding and nothing else:
 * not what a file is, not what a split of the batch shows. (mpi_exact.c has the kinds in its splits,
 * mpi_resume.c in its restarts.) */
#define TT_MPI_TEST
#include "tutti/numerics/bf16_weight.h"
#include "tutti/train/digests.h"

#include "train_test.h"

static const struct {
    const char *master, *rounding;
} kinds[] = {
    {"fp32", "nearest"}, {"split", "nearest"}, {"none", "nearest"}, {"none", "stochastic"}};
enum { WHOLE, SPLIT, NEAREST, STOCHASTIC, KINDS };

static tt_config kind_config(const char *run, int kind)
{
    tt_config config = resume_config(run);
    set(&config, "run.exact", "true");
    set(&config, "precision.compute", "bf16");
    set(&config, "precision.master", "%s", kinds[kind].master);
    set(&config, "precision.rounding", "%s", kinds[kind].rounding);
    return config;
}

/* Of every tensor, after three steps: on these ranks with either ZeRO stage, and on one rank. */
START_TEST(digests_do_not_depend_on_the_split)
{
    tt_config config = kind_config("split", _i), own = alone_config(&config, 12);
    tt_digests wanted, got;
    tt_trainer t;
    open_trainer(&t, &own, &alone);
    steps(&t, FIRST);
    must(tt_digests_open(&wanted, &t, &err_));
    must(tt_digests_take(&wanted, &t, &err_));
    tt_trainer_close(&t);
    for (int zero = 0; zero < 2; zero++) {
        set(&config, "memory.zero", "%d", zero);
        set(&config, "run.threads", "%d", 1 + zero);
        open_trainer(&t, &config, &tt_test_world);
        steps(&t, FIRST);
        must(tt_digests_open(&got, &t, &err_));
        must(tt_digests_take(&got, &t, &err_));
        ck_assert(everywhere(got.weights == wanted.weights));
        ck_assert(everywhere(memcmp(got.sum, wanted.sum, sizeof *got.sum * got.rows.rows) == 0));
        tt_digests_close(&got);
        tt_trainer_close(&t);
    }
    tt_digests_close(&wanted);
}
END_TEST

/* Masters as kind `kind` keeps those of `t`. */
static bool kept_as(const tt_trainer *got, const tt_trainer *t, int kind)
{
    bool same = true;
    float *from = masters_of(t), *to = masters_of(got);
    for (int i = 0; i < got->print.shard.count; i++) {
        for (int64_t e = got->print.shard.range[i].first; e < got->print.shard.range[i].end; e++) {
            const float want = kind < NEAREST ? from[e] : tt_f32_of_bf16(tt_bf16_of_f32(from[e]));
            same = same && tt_bits_of_f32(to[e]) == tt_bits_of_f32(want);
        }
    }
    free(from);
    free(to);
    return same;
}

/* A file of any kind starts a run of any kind; its weights are FP32 numbers. */
START_TEST(files_know_no_kinds)
{
    tt_config config = kind_config("source", _i), fresh;
    tt_trainer source, t;
    set(&config, "run.dir", "%s", in_folder("source-%d", _i));
    set(&config, "memory.zero", "0"); /* all masters at hand */
    open_trainer(&source, &config, &tt_test_world);
    steps(&source, FIRST);
    must(tt_saver_save(&source, NULL, true, true, &err_));
    for (int kind = 0; kind < KINDS; kind++) {
        fresh = kind_config("fresh", kind);
        set(&fresh, "run.resume", "never");
        set(&fresh, "run.init_from", "%s", in_folder("source-%d/step-%08d.h5", _i, FIRST));
        open_trainer(&t, &fresh, &tt_test_world);
        ck_assert(everywhere(kept_as(&t, &source, kind)));
        float *weight = weights_of(&t), *master = masters_of(&source);
        int wrong = 0;
        for (int64_t e = 0; e < t.print.params.total; e++) {
            wrong += weight[e] != tt_f32_of_bf16(kind == SPLIT ? tt_split_of_f32(master[e]).high
                                                               : tt_bf16_of_f32(master[e]));
        }
        ck_assert(everywhere(wrong == 0));
        free(weight);
        free(master);
        tt_trainer_close(&t);
    }
    tt_trainer_close(&source);
    /* Going on is another matter: the run would not be the same. */
    tt_err err = {TT_OK, ""};
    set(&config, "precision.master", _i == SPLIT ? "fp32" : "split");
    set(&config, "precision.rounding", "nearest");
    tt_code rc = tt_trainer_open(&t, &config, &tt_test_world, &quiet, &err);
    ck_assert_msg(everywhere(rc == TT_EUSER && strstr(err.text, "precision.master") != NULL), "%s",
                  err.text);
}
END_TEST

/* The same initial masters; losses part only where ties were rounded otherwise. */
START_TEST(split_learns_what_fp32_learns)
{
    tt_config config = kind_config("whole", WHOLE), halves = kind_config("halves", SPLIT);
    tt_trainer one, two;
    tt_record record, other;
    open_trainer(&one, &config, &tt_test_world);
    open_trainer(&two, &halves, &tt_test_world);
    ck_assert(everywhere(same_masters(&one, &two)));
    for (int i = 0; i < 6; i++) {
        step_once(&one, &record);
        step_once(&two, &other);
        ck_assert_msg(everywhere(apart(record.loss, other.loss) < 1e-3), "%g and %g", record.loss,
                      other.loss);
    }
    tt_trainer_close(&one);
    tt_trainer_close(&two);
}
END_TEST

/* Steps far below half a unit of BF16. To nearest, the weights stay where they are; stochastically they
 * move, on average as far as masters do. */
START_TEST(small_updates)
{
    enum { COUNT = 20 };
    double moved[KINDS] = {0}, along[KINDS] = {0}, elements = 0;
    float *path = NULL; /* how far FP32 masters went */
    for (int kind = 0; kind < KINDS; kind++) {
        tt_config config = kind_config("small", kind);
        tt_trainer t;
        set(&config, "memory.zero", "0"); /* all masters at hand */
        set(&config, "optim.lr", "1e-6");
        set(&config, "optim.schedule", "constant");
        set(&config, "optim.warmup", "0");
        set(&config, "optim.weight_decay", "0");
        set(&config, "model.dropout", "0");
        set(&config, "run.steps", "%d", COUNT);
        set(&config, "run.resume", "never");
        open_trainer(&t, &config, &tt_test_world);
        float *start = masters_of(&t);
        steps(&t, COUNT);
        float *end = masters_of(&t);
        for (int64_t e = 0; e < t.print.params.total; e++) {
            const float went = end[e] - start[e];
            start[e] = fabsf(start[e]) < 0x1p-7f ? 0 : went; /* near 0 BF16 is fine enough */
            elements += kind == WHOLE && start[e] != 0;
        }
        free(end);
        path = kind == WHOLE ? start : path;
        for (int64_t e = 0; e < t.print.params.total; e++) {
            moved[kind] += start[e] != 0;
            along[kind] += path[e] > 0 ? (double)start[e] : -(double)start[e];
        }
        if (kind != WHOLE) {
            free(start);
        }
        tt_trainer_close(&t);
    }
    free(path);
    ck_assert(everywhere(elements > 1000));
    ck_assert(everywhere(moved[WHOLE] == elements && moved[NEAREST] == 0));
    ck_assert(everywhere(apart(along[SPLIT], along[WHOLE]) < 0.01));
    ck_assert_msg(everywhere(moved[STOCHASTIC] > elements / 20 &&
                             moved[STOCHASTIC] < elements / 2 &&
                             apart(along[STOCHASTIC], along[WHOLE]) < 0.25),
                  "%g of %g moved, %g against %g", moved[STOCHASTIC], elements, along[STOCHASTIC],
                  along[WHOLE]);
}
END_TEST

/* A weight that is not finite is not saved, whatever it is kept as. */
START_TEST(broken_weights_are_not_saved)
{
    static const float bad[] = {NAN, INFINITY};
    tt_config config = kind_config("broken", _i);
    tt_trainer t;
    tt_err err = {TT_OK, ""};
    open_trainer(&t, &config, &tt_test_world);
    for (int i = 0; i < 2; i++) {
        tt_masters_put(&t, 70 + i, 1, &bad[i]); /* only who owns it takes it */
        tt_code rc = tt_saver_save(&t, NULL, true, true, &err);
        ck_assert_msg(everywhere(rc == TT_EWORLD && strstr(err.text, "not finite") != NULL), "%s",
                      err.text);
    }
    tt_trainer_close(&t);
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("train/masters");
    TCase *tests = tcase_create("masters");
    tcase_set_timeout(tests, 0);
    tcase_add_unchecked_fixture(tests, open_folder, close_folder);
    tcase_add_loop_test(tests, digests_do_not_depend_on_the_split, 0, KINDS);
    tcase_add_loop_test(tests, files_know_no_kinds, 0, KINDS);
    tcase_add_test(tests, split_learns_what_fp32_learns);
    tcase_add_test(tests, small_updates);
    tcase_add_loop_test(tests, broken_weights_are_not_saved, 0, KINDS);
    suite_add_tcase(suite, tests);
    return suite;
}

TT_MPI_TEST_MAIN(make_suite)
