/* mpi_resume.c: a run that was interrupted is the run that was not. */
#define TT_MPI_TEST
#include "train_test.h"
#include "tutti/train/digests.h"

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
    lend(&config, &own, FIRST);
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
        ck_assert_int_eq(tt_saver_save(&two, NULL, true, true, &err), TT_OK);
        lend(&own, &config, FIRST + SECOND);
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

/* --- exact mode: resumed at every step ------------------------------------------------------------ */

enum { LEGS = 8, SEQUENCES = 12 };

/* What a step can depend on beside its weights. */
static const struct {
    const char *compute, *master, *rounding, *recipe, *mode, *loss_scale, *schedule;
} paths[] = {{"fp32", "fp32", "nearest", "current", "stream", "none", "cosine"},
             {"bf16", "split", "nearest", "current", "documents", "none", "wsd"},
             {"bf16", "none", "stochastic", "current", "stream", "none", "linear"},
             {"fp16", "fp32", "nearest", "current", "documents", "dynamic", "cosine"},
             {"fp8", "fp32", "nearest", "delayed", "documents", "dynamic", "linear"}};
enum { PATHS = sizeof paths / sizeof *paths };

static tt_config path_config(const char *run, int path)
{
    tt_config config = tiny_config(run);
    set(&config, "run.exact", "true");
    set(&config, "run.steps", "%d", LEGS);
    set(&config, "batch.sequences", "%d", SEQUENCES);
    set(&config, "precision.compute", "%s", paths[path].compute);
    set(&config, "precision.master", "%s", paths[path].master);
    set(&config, "precision.rounding", "%s", paths[path].rounding);
    set(&config, "precision.loss_scale", "%s", paths[path].loss_scale);
    set(&config, "fp8.recipe", "%s", paths[path].recipe);
    set(&config, "fp8.history", "3"); /* what it remembers goes by within the legs */
    set(&config, "scaler.interval", "2");
    set(&config, "scaler.growth", "1.7");
    set(&config, "data.mode", "%s", paths[path].mode);
    set(&config, "model.dropout", "0.1");
    set(&config, "optim.schedule", "%s", paths[path].schedule);
    set(&config, "optim.warmup", "5");
    set(&config, "optim.clip", "0.5");
    return config;
}

/* Steps 3, 4 and 7 are skipped: two in a row, and one. */
static void spoil_leg(tt_trainer *t, int step)
{
    const bool bad = step == 3 || step == 4 || step == 7;
    t->fault = (tt_fault){
        .kind = bad ? TT_FAULT_INF_GRAD : TT_FAULT_NONE, .rank = t->world->size - 1, .step = step};
}

/* All that a step leaves: the state, and what it said of itself. */
typedef struct trace {
    uint64_t *tensor; /* [tensors] owned: digests of params, adam_m, adam_v */
    float *past;      /* owned: FP8's memory */
    int tensors, pasts;
    tt_progress progress;
    double said[5]; /* loss, norm, learning rate, loss scale, tokens */
    bool skipped;
} trace;

static void take_trace(trace *out, tt_trainer *t, const tt_record *record)
{
    tt_digests digests;
    tt_err err = {TT_OK, ""};
    const tt_fp8 *fp8 = &t->print.fp8;
    ck_assert_msg(tt_digests_open(&digests, t, &err) == TT_OK, "%s", err.text);
    ck_assert_msg(tt_digests_take(&digests, t, &err) == TT_OK, "%s", err.text);
    memset(out, 0, sizeof *out);
    out->tensors = digests.rows.rows;
    out->pasts = tt_int(fp8->history) * fp8->sites;
    out->tensor = calloc((size_t)out->tensors, sizeof *out->tensor);
    out->past = calloc((size_t)out->pasts + 1, sizeof *out->past);
    ck_assert(out->tensor != NULL && out->past != NULL);
    memcpy(out->tensor, digests.sum, (size_t)out->tensors * sizeof *out->tensor);
    if (out->pasts > 0) {
        memcpy(out->past, fp8->past, (size_t)out->pasts * sizeof *out->past);
    }
    out->progress = t->progress;
    const double said[] = {record->loss, record->grad_norm, record->lr, record->loss_scale,
                           (double)record->tokens};
    memcpy(out->said, said, sizeof said);
    out->skipped = record->skipped;
    tt_digests_close(&digests);
}

static void free_trace(trace *t)
{
    free(t->tensor), free(t->past);
}

/* The first thing that differs; NULL: nothing does. */
static const char *differs(const trace *a, const trace *b)
{
    if (a->tensors != b->tensors || a->pasts != b->pasts) {
        return "tables";
    }
    if (memcmp(a->tensor, b->tensor, (size_t)a->tensors * sizeof *a->tensor) != 0) {
        return "tensors";
    }
    if (memcmp(a->past, b->past, (size_t)a->pasts * sizeof *a->past) != 0) {
        return "fp8/amax";
    }
    if (memcmp(&a->progress, &b->progress, sizeof a->progress) != 0) {
        return "progress";
    }
    return memcmp(a->said, b->said, sizeof a->said) != 0 || a->skipped != b->skipped ? "record"
                                                                                     : NULL;
}

/* Leg `step` of a run: a start, one step, a checkpoint. */
static tt_code make_leg(const tt_config *config, tt_world *world, int step, trace *got, tt_err *err)
{
    tt_code rc = TT_OK;
    tt_trainer t = {0};
    tt_record record;
    const tt_request request = {.code = TT_OK};
    TT_TRY(tt_trainer_open(&t, config, world, &quiet, err));
    spoil_leg(&t, step);
    if (t.progress.step != step - 1) {
        rc = tt_fail(err, TT_EWORLD, "it goes on from step %lld", (long long)t.progress.step);
        goto out;
    }
    TT_TRY(tt_step(&t, &request, &record, err));
    TT_TRY(tt_tutti_settle(&t.tutti, err));
    take_trace(got, &t, &record);
    spoil_leg(&t, 0);
    rc = tt_saver_save(&t, NULL, true, true, err);
out:
    tt_trainer_close(&t);
    return rc;
}

/* Each step is a start of its own, by all these ranks or by the first one alone, in another ZeRO
 * stage and with other micro-batches: seven times resumed, at every step, it is the run that was
 * left alone. The epoch ends within a step, the warm-up after another, and after skipped steps it
 * goes on as well. */
START_TEST(resumed_at_every_step)
{
    tt_config whole = path_config("path-whole", _i), config;
    tt_trainer one;
    tt_record record;
    trace wanted[LEGS], got = {0};
    set(&whole, "run.dir", "%s-%d", in_folder("path-whole-%d", _i), my_rank());
    set(&whole, "batch.micro", "%d", SEQUENCES);
    set(&whole, "run.resume", "never");
    open_trainer(&one, &whole, &alone);
    ck_assert_int_gt(LEGS * SEQUENCES, one.sampler.samples); /* the epoch ends, */
    ck_assert_int_ne(one.sampler.samples % SEQUENCES, 0);    /* and not between two steps */
    for (int step = 1; step <= LEGS; step++) {
        spoil_leg(&one, step);
        step_once(&one, &record);
        take_trace(&wanted[step - 1], &one, &record);
        ck_assert(everywhere(record.skipped == (step == 3 || step == 4 || step == 7)));
    }
    tt_trainer_close(&one);
    for (int step = 1; step <= LEGS; step++) {
        const bool together = (step + _i) % 2 == 0;
        const int ranks = together ? tt_test_world.size : 1;
        tt_err err = {TT_OK, ""};
        tt_code rc = TT_OK;
        config = path_config("path", _i);
        set(&config, "run.dir", "%s", in_folder("path-%d", _i));
        set(&config, "run.resume", step == 1 ? "never" : "must");
        set(&config, "run.keep", "2");
        set(&config, "batch.micro", "%d", step % 3 == 0 ? 1 : SEQUENCES / ranks);
        set(&config, "memory.zero", "%d", (step / 2 + _i) % 4);
        set(&config, "memory.pack_weights", step % 2 == 0 ? "true" : "false");
        set(&config, "run.save_async", step % 3 == 1 ? "true" : "false");
        if (together || my_rank() == 0) {
            rc = make_leg(&config, together ? &tt_test_world : &alone, step, &got, &err);
        }
        const char *what =
            rc == TT_OK && (together || my_rank() == 0) ? differs(&got, &wanted[step - 1]) : NULL;
        ck_assert_msg(everywhere(rc == TT_OK), "step %d on %d ranks: %s", step, ranks, err.text);
        ck_assert_msg(everywhere(what == NULL), "step %d on %d ranks: %s", step, ranks, what);
        free_trace(&got);
        got = (trace){0};
    }
    for (int i = 0; i < LEGS; i++) {
        free_trace(&wanted[i]);
    }
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

static Suite *make_suite(void)
{
    Suite *suite = suite_create("train/resume");
    TCase *tests = tcase_create("resume");
    tcase_set_timeout(tests, 0);
    tcase_add_unchecked_fixture(tests, open_folder, close_folder);
    tcase_add_loop_test(tests, resumed_is_uninterrupted, 0, RESTARTS);
    tcase_add_test(tests, another_rank_count_continues_the_same_run);
    tcase_add_loop_test(tests, resumed_at_every_step, 0, PATHS);
    tcase_add_test(tests, gradient_dump_is_the_mean);
    tcase_add_test(tests, run_goes_on_where_it_ended);
    suite_add_tcase(suite, tests);
    return suite;
}

TT_MPI_TEST_MAIN(make_suite)
