/* mpi_halt.c: a run can be asked to stop at any moment: all ranks leave the step or make it, what is
 * saved is the state between two steps, and the run that goes on is the one that nobody stopped. */
#define TT_MPI_TEST
#include "train_test.h"

#include "tutti/base/clock.h"
#include "tutti/dist/stop.h"

#define W (&tt_test_world)

enum { K = 3 };

/* ---- the last rank is asked in one of its micro-batches ---- */

/* Micro-batches that this rank has begun, of training and evaluation, and the one in which it is asked
 * (0: none). An operation has no room for what is a caller's own. */
static int begun, asked_in;
static void (*real_embed)(tt_ctx *ctx, void *x, const void *wte, const void *wpe,
                          const int32_t *token, int64_t B, int64_t T, int64_t C,
                          const tt_dropout *drop);

static void counting_embed(tt_ctx *ctx, void *x, const void *wte, const void *wpe,
                           const int32_t *token, int64_t B, int64_t T, int64_t C,
                           const tt_dropout *drop)
{
    if (++begun == asked_in) {
        tt_stop_ask(W, TT_STOP_SIGNAL);
    }
    real_embed(ctx, x, wte, wpe, token, B, T, C, drop);
}

static bool is_asked(void)
{
    return W->rank == W->size - 1;
}

/* From now on the world can be asked, and its last rank is in the n-th micro-batch of this trainer; 0:
 * at once. */
static void ask_in(tt_trainer *t, int n)
{
    must(tt_stop_open(W, &err_));
    begun = 0;
    asked_in = is_asked() ? n : 0;
    real_embed = t->print.ops.embed;
    t->print.ops.embed = counting_embed;
    if (is_asked() && n == 0) {
        tt_stop_ask(W, TT_STOP_SIGNAL);
    }
}

static void forget(tt_trainer *t)
{
    tt_stop_close(W);
    t->print.ops.embed = real_embed;
    t->halt.all = (tt_halted){.left = 0};
}

/* ---- a step ---- */

static const struct {
    int zero;
    const char *gradients;
    bool meets; /* ranks do, in every micro-batch */
} modes[] = {{0, "auto", false},  {1, "auto", false}, {2, "whole", false},
             {2, "pieces", true}, {3, "whole", true}, {3, "pieces", true}};
enum { MODES = sizeof modes / sizeof *modes };

static tt_config step_config(const char *run, int mode)
{
    tt_config config = tiny_config(run);
    set(&config, "batch.accumulate", "%d", K);
    set(&config, "model.dropout", "0.1");
    set(&config, "memory.zero", "%d", modes[mode].zero);
    set(&config, "memory.gradients", "%s", modes[mode].gradients);
    set(&config, "optim.clip", "0.5");
    set(&config, "dist.overlap", "true"); /* nothing to try */
    return config;
}

/* `one` is asked before its next step (n = 0) or in the n-th micro-batch of it; `two` is not. */
static void disturb_step(tt_trainer *one, tt_trainer *two, int n, bool meets)
{
    tt_record record;
    tt_err err = {TT_OK, ""};
    const tt_request request = {.code = TT_OK};
    const int64_t before = one->progress.step;
    ask_in(one, n);
    const tt_code rc = tt_step(one, &request, &record, &err);
    ck_assert_msg(everywhere(rc == TT_OK), "%s", err.text);
    must(tt_tutti_settle(&one->tutti, &err_));
    const tt_halted all = one->halt.all;
    ck_assert(everywhere(record.stop && all.by_signal > 0 && all.by_limit == 0));
    int64_t leavers = record.left;
    must(tt_sum_i64(W, &leavers, 1, &err_));
    ck_assert(leavers == 0 || leavers == W->size);
    ck_assert(everywhere(record.left == (all.left > 0)));
    if (n < K) {
        ck_assert(everywhere(record.left));
    } else if (W->size == 1) {
        ck_assert(!record.left);
    }
    ck_assert(everywhere(!is_asked() || begun == n));
    if (meets && n < K) { /* the others end with it, in that micro-batch or before it */
        ck_assert(everywhere(begun <= tt_max(n, 1) && begun >= n - 1));
    }
    forget(one);
    ck_assert(everywhere(one->progress.step == before + !record.left));
    ck_assert(everywhere(record.step == one->progress.step));
    if (record.left) {
        ck_assert(everywhere(same_state(one, two)));
        step_once(one, &record);
        ck_assert(everywhere(!record.stop && !record.left));
    }
    step_once(two, &record);
    ck_assert(everywhere(same_state(one, two)));
}

/* On ranks that share memory, and on ranks that do not. */
START_TEST(a_step_is_left_or_made_by_all)
{
    const int mode = _i % MODES;
    tt_config config = step_config("step", mode);
    tt_trainer one, two;
    tt_record record;
    set(&config, "dist.node_shared", "%s", _i < MODES ? "auto" : "false");
    open_trainer(&one, &config, W);
    open_trainer(&two, &config, W);
    disturb_step(&one, &two, 1, modes[mode].meets); /* the very first */
    for (int n = 0; n <= K; n++) {
        disturb_step(&one, &two, n, modes[mode].meets);
    }
    step_once(&one, &record);
    ck_assert(everywhere(!record.stop && !record.left));
    check_wire(&one, &record);
    tt_trainer_close(&one);
    tt_trainer_close(&two);
}
END_TEST

/* Between the micro-batches of a mistake that all ranks make they meet too. */
START_TEST(left_while_every_micro_batch_is_reduced)
{
    tt_config config = step_config("sync", 1);
    tt_trainer one, two;
    tt_record record;
    tt_err err = {TT_OK, ""};
    const tt_request request = {.code = TT_OK};
    open_trainer(&one, &config, W);
    open_trainer(&two, &config, W);
    one.fault = (tt_fault){.kind = TT_FAULT_SYNC_EVERY, .rank = -1, .step = -1};
    ask_in(&one, _i);
    ck_assert(everywhere(tt_step(&one, &request, &record, &err) == TT_OK && record.left));
    forget(&one);
    ck_assert(everywhere(same_state(&one, &two)));
    tt_trainer_close(&one);
    tt_trainer_close(&two);
}
END_TEST

/* A rank that is asked and one that fails, in the same step: the failure is what is said. */
START_TEST(a_failure_comes_first)
{
    tt_config config = step_config("fails", _i);
    tt_trainer t;
    tt_record record;
    tt_err err = {TT_OK, ""};
    tt_request request = {.code = TT_OK};
    open_trainer(&t, &config, W);
    ask_in(&t, 1);
    if (W->rank == 0) {
        request.code = tt_fail(&request.err, TT_EWORLD, "the disk is full");
    }
    const tt_code rc = tt_step(&t, &request, &record, &err);
    ck_assert(everywhere(rc == TT_EWORLD && strstr(err.text, "the disk is full") != NULL));
    ck_assert(everywhere(t.progress.step == 0));
    tt_stop_close(W);
    tt_trainer_close(&t);
}
END_TEST

/* ---- an evaluation ---- */

enum { WINDOWS = 9 };

/* The last rank is asked before the evaluation (n = 0) or in its n-th pass. Weights are on their way. */
static void disturb_evaluation(tt_trainer *t, int n, bool meets)
{
    const int passes = (int)tt_ceil_div(WINDOWS, W->size), mine = WINDOWS / W->size;
    const bool is_reached = n <= mine, leaves = n < passes && is_reached;
    const tt_request request = {.code = TT_OK};
    tt_record record;
    tt_loss loss, again;
    must(tt_step(t, &request, &record, &err_));
    ask_in(t, n);
    must(tt_evaluate(W, t->model, &t->valid_sampler, &t->batch, WINDOWS, &t->tutti, &t->halt, &loss,
                     &err_));
    ck_assert(everywhere(tt_halt_stops(&t->halt) == is_reached));
    int64_t left = t->halt.all.left > 0;
    must(tt_sum_i64(W, &left, 1, &err_));
    ck_assert(left == 0 || left == W->size);
    ck_assert(!leaves || left > 0);
    ck_assert(W->size > 1 || (left > 0) == leaves);
    ck_assert(everywhere(!is_asked() || !is_reached || begun == n));
    if (meets && leaves) {
        ck_assert(everywhere(begun <= tt_max(n, 1) && begun >= n - 1));
    }
    forget(t);
    must(tt_evaluate(W, t->model, &t->valid_sampler, &t->batch, WINDOWS, &t->tutti, &t->halt,
                     &again, &err_));
    ck_assert(everywhere(t->halt.all.left == 0 && !tt_halt_stops(&t->halt)));
    if (left == 0) {
        ck_assert(everywhere(memcmp(&loss, &again, sizeof loss) == 0));
    }
}

START_TEST(an_evaluation_is_left_or_made)
{
    tt_config config = step_config("evaluation", _i);
    tt_trainer t, alike;
    set(&config, "run.eval_every", "1");
    open_trainer(&t, &config, W);
    open_trainer(&alike, &config, W);
    for (int n = 0; n <= 3; n++) {
        disturb_evaluation(&t, n, modes[_i].zero == 3);
    }
    steps(&alike, 4);
    ck_assert(everywhere(same_state(&t, &alike)));
    tt_trainer_close(&t);
    tt_trainer_close(&alike);
}
END_TEST

/* ---- a run ---- */

/* What depends on nothing but the run: of every line of a step, all before its times. */
static void add_lines(const char *path, tt_text *out)
{
    static const char key[] = "{\"step\": ";
    tt_text all = {0};
    tt_err err;
    ck_assert_msg(tt_read_file(path, 1 << 24, &all, &err) == TT_OK, "%s", err.text);
    for (char *at = all.data, *end; (end = strchr(at, '\n')) != NULL; at = end + 1) {
        *end = '\0';
        char *times = strstr(at, ", \"step_ms\"");
        if (times != NULL) {
            *times = '\0';
        }
        /* Which steps are saved does depend on where it was stopped. */
        if (strncmp(at, key, sizeof key - 1) == 0 && strstr(at, "\"saved\"") == NULL) {
            tt_text_add(out, "%s\n", at);
        }
    }
    tt_text_free(&all);
}

static bool same_lines(const char *a, const char *b)
{
    tt_text x = {0}, y = {0};
    add_lines(a, &x);
    add_lines(b, &y);
    const bool same = x.length == y.length && memcmp(x.data, y.data, x.length) == 0;
    tt_text_free(&x);
    tt_text_free(&y);
    return same;
}

static bool same_files(const char *a, const char *b)
{
    tt_group_diff group[8];
    tt_first_diff first;
    int groups;
    tt_err err;
    bool identical = false;
    return tt_ckpt_diff(a, b, &identical, group, 8, &groups, &first, &err) == TT_OK && identical;
}

/* Two runs left the same lines and the same state. */
static void compare_runs(const char *a, const char *b, int last)
{
    const bool looks = W->rank == 0;
    ck_assert(everywhere(
        !looks || same_lines(in_folder("%s/metrics.jsonl", a), in_folder("%s/metrics.jsonl", b))));
    ck_assert(everywhere(!looks ||
                         same_lines(in_folder("%s/data.jsonl", a), in_folder("%s/data.jsonl", b))));
    ck_assert(everywhere(!looks || same_files(in_folder("%s/step-%08d.h5", a, last),
                                              in_folder("%s/step-%08d.h5", b, last))));
}

enum { STEPS = 3 };

static tt_config run_config(const char *run, int mode)
{
    tt_config config = step_config(run, mode);
    set(&config, "model.layers", "1");
    set(&config, "run.steps", "%d", STEPS);
    set(&config, "run.eval_every", "2");
    set(&config, "run.eval_sequences", "3");
    set(&config, "run.trace_data", "true");
    set(&config, "run.keep", "0");
    return config;
}

static int64_t lines_of(const char *path)
{
    tt_text all = {0};
    tt_err err;
    int64_t lines = 0;
    ck_assert(tt_read_file(path, 1 << 24, &all, &err) == TT_OK);
    for (size_t i = 0; i < all.length; i++) {
        lines += all.data[i] == '\n';
    }
    tt_text_free(&all);
    return lines;
}

/* In each micro-batch of a run, of training and of evaluation, the last rank is asked. */
START_TEST(stopped_anywhere_is_never_stopped)
{
    const int mode = _i == 0 ? 1 : 5, stride = _i == 0 ? 1 : 4;
    tt_config config = run_config("undisturbed", mode);
    tt_trainer t;
    set(&config, "run.dir", "%s", in_folder("undisturbed-%d", _i));
    open_trainer(&t, &config, W);
    must(tt_trainer_run(&t, &err_));
    tt_trainer_close(&t);
    char name[64], whole[64];
    snprintf(whole, sizeof whole, "undisturbed-%d", _i);
    int64_t reached = 1;
    for (int n = 0; reached > 0; n += stride) {
        tt_err err = {TT_OK, ""};
        snprintf(name, sizeof name, "stopped-%d-%d", _i, n);
        config = run_config(name, mode);
        set(&config, "run.save_every", "%d", n % 2);
        open_trainer(&t, &config, W);
        ask_in(&t, n);
        const tt_code rc = tt_trainer_run(&t, &err);
        reached = is_asked() && begun >= n;
        must(tt_sum_i64(W, &reached, 1, &err_));
        const int step = (int)t.progress.step;
        tt_stop_close(W);
        tt_trainer_close(&t);
        ck_assert(everywhere(rc == TT_ESTOP || (rc == TT_OK && step == STEPS)));
        ck_assert(reached > 0 || rc == TT_OK);
        ck_assert(everywhere(exists(in_folder("%s/step-%08d.h5", name, step))));
        ck_assert(everywhere(!exists(in_folder("%s/step-%08d.h5", name, step + 1))));
        ck_assert(everywhere(W->rank != 0 || lines_of(in_folder("%s/data.jsonl", name)) == step));
        const bool first = step > 0 && (n % 2 == 1 || step == 1);
        ck_assert(everywhere(exists(in_folder("%s/step-%08d.h5", name, 1)) == first));
        if (rc == TT_ESTOP) {
            char words[96] = "stopped by a signal before the first step; step 0 is saved in ";
            if (step > 0) {
                snprintf(words, sizeof words,
                         "stopped by a signal after step %d, which is saved in ", step);
            }
            ck_assert_msg(everywhere(strstr(err.text, words) == err.text), "%s", err.text);
        }
        open_trainer(&t, &config, W);
        ck_assert(everywhere(t.progress.step == step));
        must(tt_trainer_run(&t, &err_));
        ck_assert(everywhere(t.progress.step == STEPS));
        tt_trainer_close(&t);
        compare_runs(name, whole, STEPS);
    }
}
END_TEST

/* ---- run.max_seconds ---- */

START_TEST(no_time_for_a_step)
{
    tt_config config = run_config("late", 1), whole = run_config("in-time", 1);
    tt_trainer t;
    tt_err err = {TT_OK, ""};
    const double began = W->began;
    set(&config, "run.max_seconds", "50");
    set(&whole, "run.max_seconds", "100000");
    must(tt_stop_open(W, &err_));
    W->began = tt_seconds() - (is_asked() ? 60 : 0); /* clocks differ */
    for (int i = 0; i < 2; i++) {                    /* the second finds step 0 saved */
        open_trainer(&t, &config, W);
        ck_assert(everywhere(t.kept == (i > 0)));
        const tt_code rc = tt_trainer_run(&t, &err);
        ck_assert(everywhere(rc == TT_ESTOP && t.progress.step == 0));
        ck_assert_msg(
            everywhere(strstr(err.text, "stopped by run.max_seconds (50) before the first "
                                        "step; step 0 is saved in ") == err.text &&
                       strstr(err.text, "; it left no time for a step") != NULL),
            "%s", err.text);
        tt_trainer_close(&t);
    }
    tt_stop_close(W);
    ck_assert(everywhere(exists(in_folder("late/step-%08d.h5", 0))));

    W->began = began;
    must(tt_stop_open(W, &err_));
    set(&config, "run.max_seconds", "0");
    for (tt_config *c = &config;; c = &whole) {
        open_trainer(&t, c, W);
        must(tt_trainer_run(&t, &err_));
        tt_trainer_close(&t);
        if (c == &whole) {
            break;
        }
    }
    tt_stop_close(W);
    compare_runs("late", "in-time", STEPS);
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("train/halt");
    TCase *tests = tcase_create("halt");
    tcase_set_timeout(tests, 0);
    tcase_add_unchecked_fixture(tests, open_folder, close_folder);
    tcase_add_loop_test(tests, a_step_is_left_or_made_by_all, 0, 2 * MODES);
    tcase_add_loop_test(tests, left_while_every_micro_batch_is_reduced, 0, 2);
    tcase_add_loop_test(tests, a_failure_comes_first, 1, 4);
    tcase_add_loop_test(tests, an_evaluation_is_left_or_made, 0, MODES);
    tcase_add_loop_test(tests, stopped_anywhere_is_never_stopped, 0, 2);
    tcase_add_test(tests, no_time_for_a_step);
    suite_add_tcase(suite, tests);
    return suite;
}

TT_MPI_TEST_MAIN(make_suite)
