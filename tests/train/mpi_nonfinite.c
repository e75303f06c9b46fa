/* mpi_nonfinite.c: a step that is not finite names the rank, the micro-batch and the tensor where it
 * began, in every mode; a run stops at it or goes on; a replay is the same computation and finds the
 * layer. quick: no */
#define TT_MPI_TEST
#include "train_test.h"
#include "tutti/train/replay.h"

enum { SEQUENCES = 12, K = 3, STEPS = 3 };

static const struct way {
    const char *compute, *exact, *zero, *gradients, *shared;
} ways[] = {
    {"fp32", "false", "0", "auto", "auto"},   {"fp32", "false", "1", "auto", "auto"},
    {"fp32", "false", "2", "whole", "auto"},  {"fp32", "false", "2", "pieces", "auto"},
    {"fp32", "false", "3", "pieces", "auto"}, {"fp32", "false", "3", "whole", "false"},
    {"fp32", "false", "0", "auto", "false"},  {"fp32", "true", "0", "auto", "auto"},
    {"fp32", "true", "1", "auto", "false"},   {"fp32", "true", "2", "pieces", "auto"},
    {"fp32", "true", "3", "pieces", "auto"},  {"fp16", "false", "1", "auto", "auto"},
    {"fp16", "true", "2", "whole", "auto"},   {"bf16", "false", "3", "pieces", "auto"},
    {"fp8", "true", "1", "auto", "auto"},
};
enum { WAYS = sizeof ways / sizeof *ways };

static tt_config way_config(const char *run, int way)
{
    tt_config config = tiny_config(run);
    set(&config, "precision.compute", "%s", ways[way].compute);
    set(&config, "run.exact", "%s", ways[way].exact);
    set(&config, "memory.zero", "%s", ways[way].zero);
    set(&config, "memory.gradients", "%s", ways[way].gradients);
    set(&config, "dist.node_shared", "%s", ways[way].shared);
    set(&config, "batch.accumulate", "%d", K);
    if (strcmp(ways[way].compute, "fp16") == 0) {
        set(&config, "precision.loss_scale", "1024");
    }
    return config;
}

static bool is_exact(int way)
{
    return strcmp(ways[way].exact, "true") == 0;
}

/* What a fault in step 2 is blamed on. */
typedef struct wanted {
    int rank;
    int64_t first, last;
    bool in_loss;
    const char *tensor; /* NULL: none */
} wanted;

static void blamed(const tt_record *record, const wanted *w)
{
    const tt_blame *b = &record->blame;
    ck_assert_msg(everywhere(b->bad && b->rank == w->rank && b->first == w->first &&
                             b->last == w->last && b->in_loss == w->in_loss),
                  "bad %d: rank %d, micro %lld to %lld, in loss %d", b->bad, b->rank,
                  (long long)b->first, (long long)b->last, b->in_loss);
    const bool named = w->tensor != NULL ? b->tensor != NULL && strcmp(b->tensor, w->tensor) == 0
                                         : b->tensor == NULL;
    ck_assert_msg(everywhere(named), "tensor %s, not %s", b->tensor, w->tensor);
    ck_assert(everywhere(record->skipped));
}

static void fault_is_blamed(int way, tt_fault_kind kind, int rank, const wanted *w)
{
    tt_config config = way_config("fault", way);
    tt_trainer t;
    tt_record record;
    open_trainer(&t, &config, &tt_test_world);
    t.fault = (tt_fault){.kind = kind, .rank = rank, .step = 2};
    for (int i = 1; i <= STEPS; i++) {
        step_once(&t, &record);
        ck_assert(everywhere(record.step == i));
        if (i == 2 && w != NULL) {
            blamed(&record, w);
        } else {
            ck_assert(everywhere(!record.blame.bad && !record.skipped));
        }
    }
    tt_trainer_close(&t);
}

/* Every way on one rank and two; on more, which take longer, each of them one of three. */
static bool is_anothers(int way)
{
    const int size = tt_test_world.size;
    return size > 2 && way % 3 != size % 3;
}

START_TEST(faults_are_blamed_on_their_rank)
{
    if (is_anothers(_i)) {
        return;
    }
    const int last = tt_test_world.size - 1;
    const bool pieces = strcmp(ways[_i].gradients, "pieces") == 0 && tt_test_world.size > 1;
    const int64_t goes = pieces ? 0 : K - 1; /* the first pass whose gradient goes */
    fault_is_blamed(_i, TT_FAULT_NAN_GRAD, last, &(wanted){last, goes, goes, false, "wte"});
    fault_is_blamed(_i, TT_FAULT_INF_GRAD, -1, &(wanted){0, goes, goes, false, "wte"});
    fault_is_blamed(_i, TT_FAULT_NAN_FORWARD, last, &(wanted){last, K / 2, K / 2, true, NULL});
    /* Finite on every rank, and infinite when two are added. */
    const bool sums = tt_test_world.size > 1 && !is_exact(_i);
    fault_is_blamed(_i, TT_FAULT_HUGE_GRAD, -1, sums ? &(wanted){-1, 0, 0, false, "wte"} : NULL);
}
END_TEST

/* Hooks that put something into the gradient of a stage before others look at it. */
typedef struct spoiler {
    tt_hooks inner;
    tt_trainer *t;
    const char *tensor;
    int64_t element, pass; /* of the tensor; in this micro-batch */
} spoiler;

static void ready(void *user, int stage)
{
    spoiler *s = user;
    tt_trainer *t = s->t;
    const tt_param *param = tt_params_find(&t->print.params, s->tensor);
    if (param->stage == stage && t->suspect.micro == s->pass) {
        const int64_t at = param->offset - t->print.gradient_ring.shift[stage] + s->element;
        if (t->gradient.fixed != NULL) {
            t->gradient.lost[param - t->print.params.param]++;
        } else {
            t->gradient.sum[at] = NAN;
        }
    }
    s->inner.grad_ready(s->inner.user, stage);
}

static void enter(void *user, int stage)
{
    const spoiler *s = user;
    s->inner.enter(s->inner.user, stage);
}

static void begin(void *user, int stage)
{
    const spoiler *s = user;
    s->inner.grad_begin(s->inner.user, stage);
}

static void between(void *user)
{
    const spoiler *s = user;
    s->inner.between(s->inner.user);
}

/* pass -1: this rank spoils nothing. */
static void spoilt_step(int way, const char *tensor, int64_t element, int64_t pass,
                        tt_record *record)
{
    tt_config config = way_config("spoilt", way);
    tt_trainer t;
    open_trainer(&t, &config, &tt_test_world);
    spoiler s = {t.tutti.hooks, &t, tensor, element, pass};
    t.tutti.hooks = (tt_hooks){
        .enter = enter, .grad_begin = begin, .grad_ready = ready, .between = between, .user = &s};
    step_once(&t, record);
    /* names are the trainer's */
    static char name[TT_NAME];
    if (record->blame.tensor != NULL) {
        snprintf(name, sizeof name, "%s", record->blame.tensor);
        record->blame.tensor = name;
    }
    tt_trainer_close(&t);
}

/* The first micro-batch in which something is not finite, of several ranks' the lowest in it; also where
 * a gradient stays with its rank, and one element alone is spoilt. */
START_TEST(first_micro_batch_of_the_lowest_rank)
{
    if (is_anothers(_i)) {
        return;
    }
    const int R = tt_test_world.size, last = R - 1;
    const bool me = tt_test_world.rank == last, pieces = strcmp(ways[_i].gradients, "pieces") == 0;
    tt_record record;
    /* A bias, in the middle one: what is not finite in dY comes here. */
    spoilt_step(_i, "h.1.mlp.fc.bias", 7, me ? 1 : -1, &record);
    blamed(&record, &(wanted){last, 1, 1, false, "h.1.mlp.fc.bias"});
    /* Position embeddings are looked at whole. */
    spoilt_step(_i, "wpe", CONTEXT * 10 - 1, me ? 0 : -1, &record);
    blamed(&record, &(wanted){last, 0, 0, false, "wpe"});
    /* All ranks, the last one earlier. */
    spoilt_step(_i, "ln_f.weight", 0, me ? 1 : 2, &record);
    blamed(&record, &(wanted){last, 1, 1, false, "ln_f.weight"});
    /* All in the same. */
    spoilt_step(_i, "h.0.attn.qkv.bias", 29, 1, &record);
    blamed(&record, &(wanted){0, 1, 1, false, "h.0.attn.qkv.bias"});
    /* One element within a matrix: as the gradient goes, at the latest. */
    const bool at_once = is_exact(_i) || (pieces && R > 1);
    spoilt_step(_i, "h.0.mlp.fc.weight", 10 * 20 + 9, me ? 1 : -1, &record);
    blamed(&record,
           &(wanted){last, at_once ? 1 : 0, at_once ? 1 : K - 1, false, "h.0.mlp.fc.weight"});
    spoilt_step(_i, "h.0.mlp.fc.weight", 10 * 20 + 9, me ? K - 1 : -1, &record);
    blamed(&record, &(wanted){last, at_once ? K - 1 : 0, K - 1, false, "h.0.mlp.fc.weight"});
}
END_TEST

/* What FP16 cannot hold: in backward from the first head on, on every rank; in forward when weights
 * are too large. */
START_TEST(real_overflow)
{
    tt_config config = tiny_config("overflow");
    tt_trainer t;
    tt_record record;
    set(&config, "precision.compute", "fp16");
    set(&config, "precision.loss_scale", "1e9");
    set(&config, "batch.accumulate", "%d", K);
    set(&config, "run.exact", _i == 0 ? "false" : "true");
    open_trainer(&t, &config, &tt_test_world);
    step_once(&t, &record);
    blamed(&record, &(wanted){0, 0, 0, false, "ln_f.bias"});
    if (t.tutti.node.index == 0) {
        memset(t.weights, 0x7b, tt_bytes(t.print.params.total, t.print.act_bytes)); /* 61280 */
    }
    must(tt_barrier(&tt_test_world, &err_));
    tt_model_pack(t.model);
    must(tt_barrier(&tt_test_world, &err_));
    step_once(&t, &record);
    blamed(&record, &(wanted){0, 0, 0, true, NULL});
    tt_trainer_close(&t);
}
END_TEST

/* A run of its own folder, of STEPS steps, with a fault in the last. */
static tt_config run_config(int way, const char *name)
{
    tt_config config = way_config(name, way);
    set(&config, "batch.sequences", "%d", SEQUENCES);
    set(&config, "batch.accumulate", "0");
    set(&config, "model.dropout", "0.1");
    set(&config, "optim.schedule", "constant");
    set(&config, "dist.overlap", "true"); /* auto chooses by time, and so the order of sums */
    set(&config, "run.dir", "%s", in_folder("%s-%d", name, way));
    set(&config, "run.steps", "%d", STEPS);
    return config;
}

static tt_code run_with(const tt_config *config, tt_fault_kind kind, int rank, tt_err *err)
{
    tt_trainer t;
    open_trainer(&t, config, &tt_test_world);
    t.fault = (tt_fault){.kind = kind, .rank = rank, .step = STEPS};
    const tt_code rc = tt_trainer_run(&t, err);
    tt_trainer_close(&t);
    return rc;
}

static tt_text replayed(const tt_config *config, tt_fault_kind kind, int rank)
{
    tt_trainer t;
    tt_text report = {0};
    open_trainer(&t, config, &tt_test_world);
    t.fault = (tt_fault){.kind = kind, .rank = rank, .step = STEPS};
    must(tt_replay_run(&t, &report, &err_));
    tt_trainer_close(&t);
    return report;
}

/* Rank 0's report holds it. */
static void reports(const tt_text *report, const char *words)
{
    const bool mine = tt_test_world.rank != 0 || (report->data && strstr(report->data, words));
    ck_assert_msg(everywhere(mine), "no '%s' in:\n%s", words, report->data);
}

START_TEST(a_replay_is_the_same_step)
{
    if (is_anothers(_i)) {
        return;
    }
    const int way = 2 * _i, R = tt_test_world.size, last = R - 1;
    const int64_t accumulate = SEQUENCES / R; /* micro 1 */
    tt_config config = run_config(way, "replay");
    char words[200];
    set(&config, "run.save_every", _i % 2 == 0 ? "2" : "1");
    tt_err err = {TT_OK, ""};
    ck_assert_msg(everywhere(run_with(&config, TT_FAULT_NAN_FORWARD, last, &err) == TT_OK), "%s",
                  err.text);
    set(&config, "run.replay", "%d", STEPS);
    tt_text report = replayed(&config, TT_FAULT_NAN_FORWARD, last);
    reports(&report, "step 3 replayed: not finite; loss null, grad norm null");
    reports(&report, "metrics.jsonl has the same loss and norm, to the bit");
    snprintf(words, sizeof words,
             "first on rank %d, micro-batch %lld of %lld, sample %lld: attention of h.0, forward: "
             "attention has 1 NaN of %d",
             last, (long long)accumulate / 2 + 1, (long long)accumulate,
             (long long)((STEPS - 1) * SEQUENCES + accumulate / 2 * R + last), CONTEXT * 10);
    reports(&report, words);
    tt_text_free(&report);
    /* Without the fault, finite: and that the run saw something else. */
    report = replayed(&config, TT_FAULT_NONE, 0);
    reports(&report, "step 3 replayed: everything is finite; loss ");
    reports(&report, "metrics.jsonl differs: loss null");
    reports(&report, "what was not finite then has not come again");
    tt_text_free(&report);
    /* A good one, to the bit; in exact mode in any other layout too. */
    set(&config, "run.replay", "2");
    if (is_exact(way)) {
        set(&config, "batch.micro", "%d", SEQUENCES / R);
        set(&config, "memory.zero", "%d", _i % 4);
        set(&config, "memory.gradients", "auto");
        set(&config, "memory.recompute", "%s", _i % 2 == 0 ? "block" : "none");
    }
    report = replayed(&config, TT_FAULT_NONE, 0);
    reports(&report, "step 2 replayed: everything is finite; loss ");
    reports(&report, "metrics.jsonl has the same loss and norm, to the bit");
    tt_text_free(&report);
    set(&config, "run.replay", "1"); /* from the start */
    report = replayed(&config, TT_FAULT_NONE, 0);
    reports(&report, "metrics.jsonl has the same loss and norm, to the bit");
    tt_text_free(&report);
    ck_assert(everywhere(exists(in_folder("replay-%d/nonfinite.jsonl", way))));
}
END_TEST

/* A run that stops leaves the state of the step before, as if it had been asked to end there. */
START_TEST(a_stop_saves_the_step_before)
{
    const int way = 3 * _i + 1;
    tt_config config = run_config(way, "stop"), whole = run_config(way, "whole");
    tt_err err = {TT_OK, ""};
    tt_text a = {0}, b = {0};
    char saved[2 * TT_PATH];
    set(&config, "run.on_nonfinite", "stop");
    set(&whole, "run.steps", "%d", STEPS - 1);
    set(&whole, "run.on_nonfinite", "stop");
    ck_assert(everywhere(run_with(&whole, TT_FAULT_NONE, 0, &err) == TT_OK));
    ck_assert(everywhere(run_with(&config, TT_FAULT_NAN_GRAD, 0, &err) == TT_EWORLD));
    ck_assert_msg(everywhere(strstr(err.text, "step 3: the gradient of wte is not finite") &&
                             strstr(err.text, "; first on rank 0, micro-batch ")),
                  "%s", err.text);
    snprintf(saved, sizeof saved, "the state before it is in %s/step-00000002.h5; run.replay=3",
             config.run.dir);
    ck_assert_msg(everywhere(strstr(err.text, saved) != NULL), "%s", err.text);
    tt_trainer x, y;
    open_trainer(&x, &config, &tt_test_world);
    open_trainer(&y, &whole, &tt_test_world);
    ck_assert(everywhere(x.progress.step == STEPS - 1 && same_state(&x, &y)));
    ck_assert(everywhere(memcmp(&x.progress, &y.progress, sizeof x.progress) == 0));
    tt_trainer_close(&x);
    tt_trainer_close(&y);
    /* It is saved: from there the next start stops at once, and saves nothing again. */
    const char *path = in_folder("stop-%d/step-00000002.h5", way);
    must(tt_read_file(path, 1 << 24, &a, &err_));
    must(tt_barrier(&tt_test_world, &err_));
    ck_assert(everywhere(run_with(&config, TT_FAULT_NAN_GRAD, 0, &err) == TT_EWORLD));
    ck_assert_msg(everywhere(strstr(err.text, saved) != NULL), "%s", err.text);
    must(tt_read_file(path, 1 << 24, &b, &err_));
    ck_assert(everywhere(a.length == b.length && memcmp(a.data, b.data, a.length) == 0));
    ck_assert(everywhere(!exists(in_folder("stop-%d/step-00000003.h5", way))));
    tt_text_free(&a);
    tt_text_free(&b);
}
END_TEST

/* A dynamic loss scale is looked for by steps that are not finite: they do not stop a run, until the
 * scale is at its floor, or the loss is not finite. */
START_TEST(a_scale_that_can_fall_stops_nothing)
{
    static const struct {
        const char *floor;
        tt_fault_kind kind;
        tt_code code;
    } cases[] = {{"1", TT_FAULT_INF_GRAD, TT_OK},
                 {"65536", TT_FAULT_INF_GRAD, TT_EWORLD},
                 {"1", TT_FAULT_NAN_FORWARD, TT_EWORLD}};
    tt_config config = tiny_config("scale");
    tt_err err = {TT_OK, ""};
    set(&config, "run.dir", "%s", in_folder("scale-%d", _i));
    set(&config, "precision.loss_scale", "dynamic");
    set(&config, "scaler.floor", "%s", cases[_i].floor);
    set(&config, "run.steps", "%d", STEPS);
    set(&config, "run.on_nonfinite", "stop");
    const tt_code rc = run_with(&config, cases[_i].kind, 0, &err);
    ck_assert_msg(everywhere(rc == cases[_i].code), "%d %s", rc, err.text);
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("train/nonfinite");
    TCase *tests = tcase_create("nonfinite");
    tcase_set_timeout(tests, 0);
    tcase_add_unchecked_fixture(tests, open_folder, close_folder);
    tcase_add_loop_test(tests, faults_are_blamed_on_their_rank, 0, WAYS);
    tcase_add_loop_test(tests, first_micro_batch_of_the_lowest_rank, 0, WAYS);
    tcase_add_loop_test(tests, real_overflow, 0, 2);
    tcase_add_loop_test(tests, a_replay_is_the_same_step, 0, (WAYS + 1) / 2);
    tcase_add_loop_test(tests, a_stop_saves_the_step_before, 0, WAYS / 3);
    tcase_add_loop_test(tests, a_scale_that_can_fall_stops_nothing, 0, 3);
    suite_add_tcase(suite, tests);
    return suite;
}

TT_MPI_TEST_MAIN(make_suite)
