/* mpi_scaler.c: the loss scale in the step: powers of two change no bit; a dynamic scale moves alike on
 * all ranks, is saved and resumed; two classic mistakes show. */
#define TT_MPI_TEST
#include "train_test.h"

enum { SEQUENCES = 12, STEPS = 4, ACCUMULATE = 3 };

static tt_config scaled_config(const char *run, const char *loss_scale)
{
    tt_config config = tiny_config(run);
    set(&config, "model.dropout", "0.1");
    set(&config, "optim.clip", "0.5");
    set(&config, "batch.sequences", "%d", SEQUENCES);
    set(&config, "precision.loss_scale", "%s", loss_scale);
    return config;
}

static bool same_number(double a, double b)
{
    return memcmp(&a, &b, sizeof a) == 0;
}

/* The learned part of the state. */
static bool same_learned(const tt_trainer *a, const tt_trainer *b)
{
    return same_weights(a, b) &&
           same_shards(a, a->optimizer.all.master, b, b->optimizer.all.master, NULL) &&
           same_shards(a, a->optimizer.all.m, b, b->optimizer.all.m, NULL) &&
           same_shards(a, a->optimizer.all.v, b, b->optimizer.all.v, NULL);
}

/* The gradients themselves, each freed of its seed. */
static bool same_gradients(const tt_trainer *a, const tt_trainer *b)
{
    bool same = true;
    int64_t *x = collected(a, false), *y = collected(b, false);
    for (int64_t i = 0; i < a->print.params.total; i++) {
        same = same &&
               (a->gradient.fixed != NULL ? x[i] == y[i]
                                          : float_at(x, i) / a->seed == float_at(y, i) / b->seed);
    }
    free(x);
    free(y);
    return same;
}

/* Nothing here comes near either end of the formats. */
START_TEST(powers_of_two_change_no_bit)
{
    static const char *const scales[] = {"1", "1024", "1048576"};
    tt_config config = scaled_config("powers", "none");
    set(&config, "precision.compute", _i % 2 == 0 ? "fp32" : "bf16");
    set(&config, "run.exact", _i / 2 == 0 ? "false" : "true");
    for (int s = 0; s < 3; s++) {
        tt_trainer plain, scaled;
        tt_record wanted, record;
        open_trainer(&plain, &config, &tt_test_world);
        tt_config other = config;
        set(&other, "precision.loss_scale", "%s", scales[s]);
        open_trainer(&scaled, &other, &tt_test_world);
        for (int i = 0; i < STEPS; i++) {
            step_once(&plain, &wanted);
            step_once(&scaled, &record);
            ck_assert(everywhere(wanted.loss_scale == 1));
            ck_assert(everywhere(record.loss_scale == strtod(scales[s], NULL)));
            ck_assert(everywhere(scaled.seed == plain.seed * (float)record.loss_scale));
            ck_assert(everywhere(same_number(record.loss, wanted.loss)));
            ck_assert(everywhere(same_number(record.grad_norm, wanted.grad_norm)));
            ck_assert(everywhere(record.clipped && wanted.clipped));
            ck_assert_msg(everywhere(same_gradients(&scaled, &plain)), "scale %s, step %d",
                          scales[s], i + 1);
            ck_assert_msg(everywhere(same_learned(&scaled, &plain)), "scale %s, step %d", scales[s],
                          i + 1);
        }
        tt_trainer_close(&plain);
        tt_trainer_close(&scaled);
    }
}
END_TEST

/* Any other scale is undone to rounding: norms, updates and dumps are in true units. */
START_TEST(dumps_and_norms_are_unscaled)
{
    float *mean[2];
    tt_trainer t[2];
    tt_record record[2];
    int64_t total = 0;
    for (int i = 0; i < 2; i++) {
        tt_config config = scaled_config("units", i == 0 ? "none" : "1000");
        set(&config, "run.exact", _i == 0 ? "false" : "true");
        set(&config, "run.dump_gradients", "%s", in_folder("units.h5"));
        open_trainer(&t[i], &config, &tt_test_world);
        step_once(&t[i], &record[i]);
        mean[i] = dumped_gradient(&t[i], 1.0 / (double)record[i].tokens);
        total = t[i].print.params.total;
    }
    double squares = 0;
    for (int64_t i = 0; i < total; i++) {
        squares += (double)mean[1][i] * (double)mean[1][i];
    }
    ck_assert(everywhere(record[1].loss_scale == 1000 && record[0].loss == record[1].loss));
    ck_assert(everywhere(apart(record[1].grad_norm, record[0].grad_norm) <= 1e-6));
    ck_assert(everywhere(apart(sqrt(squares), record[1].grad_norm) <= 1e-6));
    ck_assert(everywhere(l2_apart(mean[1], 1, mean[0], 1, total) <= 1e-6));
    float *a = weights_of(&t[1]), *b = weights_of(&t[0]);
    ck_assert(everywhere(l2_apart(a, 1, b, 1, total) <= 1e-6));
    free(a), free(b), free(mean[0]), free(mean[1]);
    tt_trainer_close(&t[0]);
    tt_trainer_close(&t[1]);
}
END_TEST

static tt_config dynamic_config(const char *run)
{
    tt_config config = scaled_config(run, "dynamic");
    set(&config, "scaler.start", "1024");
    set(&config, "scaler.interval", "3");
    set(&config, "scaler.floor", "512");
    set(&config, "scaler.cap", "2048");
    return config;
}

/* One rank has an infinite gradient in steps 3, and 13 to 15: all ranks skip, and the scale halves, to
 * its floor at most; three good steps in a row double it, to its cap at most. What is learned is what
 * a run without a scale learns. */
START_TEST(dynamic_scale_moves_on_all_ranks_alike)
{
    static const double scales[] = {1024, 1024, 1024, 512,  512, 512, 1024, 1024, 1024, 2048,
                                    2048, 2048, 2048, 1024, 512, 512, 512,  512,  1024};
    enum { ALL = sizeof scales / sizeof *scales };
    tt_config config = dynamic_config("dynamic"), none = scaled_config("none", "none");
    tt_trainer t, plain;
    tt_record record, wanted;
    set(&config, "run.exact", _i == 0 ? "false" : "true");
    set(&none, "run.exact", _i == 0 ? "false" : "true");
    open_trainer(&t, &config, &tt_test_world);
    open_trainer(&plain, &none, &tt_test_world);
    for (int step = 1; step <= ALL; step++) {
        const bool bad = step == 3 || (step >= 13 && step <= 15);
        t.fault = plain.fault = (tt_fault){.kind = bad ? TT_FAULT_INF_GRAD : TT_FAULT_NONE,
                                           .rank = tt_test_world.size - 1,
                                           .step = -1};
        step_once(&t, &record);
        step_once(&plain, &wanted);
        ck_assert_msg(everywhere(record.loss_scale == scales[step - 1]), "step %d: scale %g", step,
                      record.loss_scale);
        ck_assert(everywhere(record.skipped == bad && wanted.skipped == bad));
        ck_assert(everywhere(t.progress.skips == (bad ? tt_max(step - 12, 1) : 0)));
        ck_assert_msg(everywhere(same_learned(&t, &plain)), "step %d", step);
    }
    tt_trainer_close(&t);
    tt_trainer_close(&plain);
}
END_TEST

/* The head without a target in its rows; the trainer whose table this stands in has none. */
static void (*real_head_loss)(tt_ctx *ctx, tt_exact *loss_sum, int64_t *count, float *row_loss,
                              void *dx, const tt_grad *gw, const void *x, const tt_weight *w,
                              const int32_t *target, int64_t M, int64_t V, int64_t vocab_used,
                              int64_t C, int64_t leaf, float scale);

static void masked_head_loss(tt_ctx *ctx, tt_exact *loss_sum, int64_t *count, float *row_loss,
                             void *dx, const tt_grad *gw, const void *x, const tt_weight *w,
                             const int32_t *target, int64_t M, int64_t V, int64_t vocab_used,
                             int64_t C, int64_t leaf, float scale)
{
    int32_t masked[CONTEXT];
    (void)target;
    ck_assert_int_le(M, CONTEXT);
    memset(masked, 0xff, sizeof masked); /* -1 */
    real_head_loss(ctx, loss_sum, count, row_loss, dx, gw, x, w, masked, M, V, vocab_used, C, leaf,
                   scale);
}

/* A step without a target has no gradient to judge the scale by. */
START_TEST(step_without_targets_moves_nothing)
{
    tt_config config = dynamic_config("empty");
    tt_trainer t;
    tt_record record;
    open_trainer(&t, &config, &tt_test_world);
    real_head_loss = t.print.ops.head_loss;
    t.print.ops.head_loss = masked_head_loss;
    t.progress.scaler.good = 2; /* one more would make it grow */
    step_once(&t, &record);
    ck_assert(everywhere(record.tokens == 0 && record.skipped && record.nonfinite == 0));
    ck_assert(everywhere(record.loss_scale == 1024 && record.grad_norm == 0));
    ck_assert(everywhere(t.progress.skips == 0 && t.progress.updates == 0));
    ck_assert(everywhere(t.progress.scaler.good == 2 && t.progress.scaler.scale == 1024));
    tt_trainer_close(&t);
}
END_TEST

/* Stopped and resumed amid an interval, without and with a skipped step before: the same bits. */
START_TEST(resumed_amid_an_interval)
{
    tt_config config = resume_config("amid"), whole = resume_config("amid-whole");
    tt_trainer one, two;
    tt_record a, b;
    const tt_fault fault = {.kind = _i == 0 ? TT_FAULT_NONE : TT_FAULT_INF_GRAD,
                            .rank = tt_test_world.size - 1,
                            .step = 2};
    set(&config, "run.dir", "%s", in_folder("amid-%d", _i));
    for (int i = 0; i < 2; i++) {
        tt_config *c = i == 0 ? &config : &whole;
        set(c, "precision.loss_scale", "dynamic");
        set(c, "scaler.start", "1000");
        set(c, "scaler.interval", _i == 0 ? "4" : "2");
        set(c, "scaler.growth", "1.3");
        set(c, "scaler.backoff", "0.7");
        set(c, "run.resume", i == 0 ? "auto" : "never");
    }
    open_trainer(&two, &config, &tt_test_world);
    two.fault = fault;
    steps(&two, FIRST);
    must(tt_saver_save(&two, NULL, true, true, &err_));
    ck_assert(everywhere(two.progress.scaler.good == (_i == 0 ? 3 : 1)));
    tt_trainer_close(&two);
    set(&config, "run.resume", "must");
    open_trainer(&two, &config, &tt_test_world);
    open_trainer(&one, &whole, &tt_test_world);
    one.fault = fault;
    steps(&one, FIRST);
    ck_assert(everywhere(same_state(&one, &two)));
    for (int i = 0; i < FIRST; i++) {
        step_once(&one, &a);
        step_once(&two, &b);
        ck_assert(everywhere(same_number(a.loss_scale, b.loss_scale)));
        ck_assert(everywhere(same_state(&one, &two)));
    }
    ck_assert(everywhere(b.loss_scale > (_i == 0 ? 1299 : 909))); /* it grew where it was due */
    tt_trainer_close(&one);
    tt_trainer_close(&two);
}
END_TEST

/* A checkpoint as version 0.1 left it, without a scaler, goes on from the configured start; one with a
 * scale that cannot be is passed over as damaged, and so is one without a scale of a run that has it. */
START_TEST(checkpoints_without_a_scaler)
{
    tt_config config = resume_config("older");
    tt_trainer t, whole;
    tt_rows rows;
    tt_text text = {0};
    tt_err err = {TT_OK, ""};
    static const char *const says[] = {NULL, "a loss scale of 2 after 0 good steps",
                                       "step-00000003.h5 is damaged: it lacks state/loss_scale",
                                       "step-00000003.h5 is damaged: it lacks state/loss_scale"};
    static const char *const scales[] = {"none", "none", "dynamic", "64"};
    set(&config, "run.dir", "%s", in_folder("older-%d", _i));
    set(&config, "precision.loss_scale", "%s", scales[_i]);
    open_trainer(&t, &config, &tt_test_world);
    steps(&t, FIRST);
    int64_t position = t.progress.step * SEQUENCES, seed = config.run.seed;
    double scale = 2, *never = _i != 1 ? NULL : &scale;
    tt_scalar_row scalar[] = {{.name = "step", .i64 = &t.progress.step},
                              {.name = "updates", .i64 = &t.progress.updates},
                              {.name = "tokens_seen", .i64 = &t.progress.tokens_seen},
                              {.name = "skips", .i64 = &t.progress.skips},
                              {.name = "sampler_position", .i64 = &position},
                              {.name = "seed", .i64 = &seed},
                              {.name = "data_tokens", .i64 = &t.data_tokens},
                              {.name = "loss_scale", .f64 = never}};
    must(tt_state_rows(&rows, &t, &err_));
    tt_config_text(&t.print.config, false, &text);
    const tt_state state = {.tensors = rows.rows,
                            .tensor = rows.row,
                            .scalars = never == NULL ? 7 : 8,
                            .scalar = scalar,
                            .config = text.data,
                            .tokenizer = tt_tokens_tokenizer(t.train_tokens)};
    char *path = in_folder("older-%d/step-00000003.h5", _i);
    must(tt_ckpt_save(&tt_test_world, path, &state, NULL, FIRST, &err_));
    set(&config, "run.resume", "must");
    if (_i == 0) {
        open_trainer(&whole, &config, &tt_test_world);
        ck_assert(everywhere(whole.progress.step == FIRST && same_state(&whole, &t)));
        tt_trainer_close(&whole);
    } else {
        tt_code rc = tt_trainer_open(&whole, &config, &tt_test_world, &quiet, &err);
        ck_assert(everywhere(rc == TT_EWORLD));
        ck_assert_msg(everywhere(strstr(err.text, says[_i]) != NULL), "%s", err.text);
    }
    tt_rows_free(&rows);
    tt_text_free(&text);
    tt_trainer_close(&t);
}
END_TEST

/* Skips that the scale cannot help stop the run with its place; the checkpoint before is untouched. */
START_TEST(too_many_skips_name_the_scale)
{
    static const struct {
        const char *loss_scale, *floor, *says;
    } runs[] = {{"dynamic", "32768", "; the loss scale is at its floor 32768; stopped"},
                {"dynamic", "1", "; the loss scale is 16384, its floor 1; stopped"},
                {"64", "1", "; precision.loss_scale is 64; stopped"}};
    tt_config config = resume_config("stops");
    tt_trainer t;
    tt_err err = {TT_OK, ""};
    tt_text before = {0}, after = {0};
    set(&config, "run.dir", "%s", in_folder("stops-%d", _i));
    set(&config, "precision.loss_scale", "%s", runs[_i].loss_scale);
    set(&config, "scaler.floor", "%s", runs[_i].floor);
    set(&config, "optim.max_skips", "2");
    set(&config, "run.steps", "9");
    set(&config, "run.save_every", "1");
    first_part(&config, &tt_test_world);
    char *path = in_folder("stops-%d/step-00000003.h5", _i);
    must(tt_read_file(path, 1 << 24, &before, &err_));
    open_trainer(&t, &config, &tt_test_world);
    t.fault = (tt_fault){.kind = TT_FAULT_INF_GRAD, .rank = 0, .step = -1};
    tt_code rc = tt_trainer_run(&t, &err);
    ck_assert(everywhere(rc == TT_EWORLD));
    ck_assert_msg(everywhere(strstr(err.text, runs[_i].says) != NULL), "%s", err.text);
    must(tt_read_file(path, 1 << 24, &after, &err_));
    ck_assert(everywhere(before.length == after.length &&
                         memcmp(before.data, after.data, before.length) == 0));
    ck_assert(everywhere(!exists(in_folder("stops-%d/step-00000004.h5", _i)) &&
                         !exists(in_folder("stops-%d/step-00000006.h5", _i))));
    tt_text_free(&before);
    tt_text_free(&after);
    tt_trainer_close(&t);
}
END_TEST

/* The stop says what is so: one step is no row, and where nothing was saved there is no checkpoint. A
 * loss that is not finite is not the scale's doing, whatever gradients follow from it. */
START_TEST(stops_say_what_is_so)
{
    static const char *const says[] = {
        "step 1: the gradient of wte is not finite (optim.max_skips: 0); precision.loss_scale is "
        "none; stopped, no checkpoint has been written",
        "step 2: 2 steps in a row were skipped (optim.max_skips: 1), the last because the loss is "
        "not finite; it is so in forward, where no loss scale can help: the learning rate or the "
        "weights are too large (the largest number of fp16 is 65504); stopped, no checkpoint"};
    tt_config config = scaled_config("says", _i == 0 ? "none" : "dynamic");
    tt_trainer t;
    tt_err err = {TT_OK, ""};
    set(&config, "run.dir", "%s", in_folder("says-%d", _i));
    set(&config, "optim.max_skips", "%d", _i);
    set(&config, "run.steps", "9");
    set(&config, "precision.compute", _i == 0 ? "fp32" : "fp16");
    open_trainer(&t, &config, &tt_test_world);
    if (_i == 0) {
        t.fault = (tt_fault){.kind = TT_FAULT_NAN_GRAD, .rank = 0, .step = -1};
    } else {
        memset(t.weights, 0x7b, tt_bytes(t.print.params.total, t.print.act_bytes)); /* 61280 */
        tt_model_pack(t.model);
    }
    tt_code rc = tt_trainer_run(&t, &err);
    ck_assert(everywhere(rc == TT_EWORLD));
    ck_assert_msg(everywhere(strstr(err.text, says[_i]) != NULL), "%s", err.text);
    ck_assert(everywhere(_i == 0 || t.progress.scaler.scale == 65536 / 4));
    tt_trainer_close(&t);
}
END_TEST

/* Clipping by the norm of the scaled gradient: the update gets the gradient 1024 times too small. A
 * gradient that was not scaled does not show the mistake. */
START_TEST(clip_scaled_shows)
{
    tt_config config = scaled_config("clip", _i == 0 ? "none" : "1024");
    tt_trainer right, wrong;
    tt_record a, b;
    double sum[2] = {0};
    open_trainer(&right, &config, &tt_test_world);
    open_trainer(&wrong, &config, &tt_test_world);
    wrong.fault = (tt_fault){.kind = TT_FAULT_CLIP_SCALED, .rank = -1, .step = -1};
    step_once(&right, &a);
    step_once(&wrong, &b);
    ck_assert(everywhere(same_number(a.loss, b.loss) && same_number(a.grad_norm, b.grad_norm)));
    ck_assert(everywhere(a.clipped && b.clipped && same_gradients(&right, &wrong)));
    ck_assert(everywhere(same_learned(&right, &wrong) == (_i == 0)));
    for (int64_t i = 0; i < right.print.shard.elements; i++) {
        sum[0] += fabs((double)right.optimizer.all.m[i]);
        sum[1] += fabs((double)wrong.optimizer.all.m[i]) * (_i == 0 ? 1 : 1024);
    }
    ck_assert_msg(everywhere(sum[0] > 0 && apart(sum[0], sum[1]) <= 1e-6), "%g and %g", sum[0],
                  sum[1]);
    tt_trainer_close(&right);
    tt_trainer_close(&wrong);
}
END_TEST

/* Reducing every micro-batch gives the same numbers, in exact mode to the bit, for K times the calls and
 * bytes of the gradient. */
START_TEST(sync_every_costs_K_times)
{
    tt_config config = tiny_config("sync");
    tt_trainer last, each;
    tt_record a, b;
    set(&config, "batch.accumulate", "%d", ACCUMULATE);
    set(&config, "run.exact", _i == 0 ? "false" : "true");
    open_trainer(&last, &config, &tt_test_world);
    open_trainer(&each, &config, &tt_test_world);
    each.fault = (tt_fault){.kind = TT_FAULT_SYNC_EVERY, .rank = -1, .step = -1};
    const bool wired = tt_test_world.size > 1;
    const int64_t bytes = (int64_t)last.print.grad_bytes * last.print.params.total;
    for (int i = 0; i < STEPS; i++) {
        step_once(&last, &a);
        step_once(&each, &b);
        ck_assert(everywhere(a.tokens == b.tokens && apart(a.loss, b.loss) <= 1e-6));
        ck_assert(everywhere(apart(a.grad_norm, b.grad_norm) <= 2e-6));
        /* and a barrier, before anybody clears what a neighbour may still read, and a word on leaving */
        ck_assert(everywhere(b.comm_calls - a.comm_calls ==
                             wired * (ACCUMULATE - 1) * (last.print.buckets.count + 2)));
        ck_assert(everywhere(b.comm_bytes - a.comm_bytes ==
                             wired * (ACCUMULATE - 1) * (bytes + (int64_t)sizeof(int64_t))));
        ck_assert(
            everywhere(_i == 0 || (same_gradients(&last, &each) && same_learned(&last, &each))));
    }
    float *x = weights_of(&last), *y = weights_of(&each);
    ck_assert(everywhere(l2_apart(x, 1, y, 1, last.print.params.total) <= 1e-5));
    free(x), free(y);
    tt_trainer_close(&last);
    tt_trainer_close(&each);
}
END_TEST

/* A rank that fails amid the micro-batches still takes part in the reductions between them. */
START_TEST(sync_every_ends_when_a_rank_fails)
{
    tt_config config = tiny_config("sync-fails");
    tt_trainer t;
    tt_record record;
    tt_tokens *damaged = NULL;
    tt_err err = {TT_OK, ""};
    const tt_request request = {.code = TT_OK};
    const int victim = tt_test_world.size - 1;
    set(&config, "batch.accumulate", "%d", ACCUMULATE);
    open_trainer(&t, &config, &tt_test_world);
    t.fault = (tt_fault){.kind = TT_FAULT_SYNC_EVERY, .rank = -1, .step = -1};
    if (tt_test_world.rank == victim) { /* what it reads first */
        damaged = spoilt_copy(&t.sampler, victim, false);
        t.sampler.tokens = damaged;
    }
    tt_code rc = tt_step(&t, &request, &record, &err);
    ck_assert_msg(everywhere(rc == TT_EWORLD && strstr(err.text, "damaged.h5") != NULL), "%d %s",
                  rc, err.text);
    tt_tokens_close(damaged);
    tt_trainer_close(&t);
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("train/scaler");
    TCase *tests = tcase_create("scaler");
    tcase_set_timeout(tests, 0);
    tcase_add_unchecked_fixture(tests, open_folder, close_folder);
    tcase_add_loop_test(tests, powers_of_two_change_no_bit, 0, 4);
    tcase_add_loop_test(tests, dumps_and_norms_are_unscaled, 0, 2);
    tcase_add_loop_test(tests, dynamic_scale_moves_on_all_ranks_alike, 0, 2);
    tcase_add_test(tests, step_without_targets_moves_nothing);
    tcase_add_loop_test(tests, resumed_amid_an_interval, 0, 2);
    tcase_add_loop_test(tests, checkpoints_without_a_scaler, 0, 4);
    tcase_add_loop_test(tests, too_many_skips_name_the_scale, 0, 3);
    tcase_add_loop_test(tests, stops_say_what_is_so, 0, 2);
    tcase_add_loop_test(tests, clip_scaled_shows, 0, 2);
    tcase_add_loop_test(tests, sync_every_costs_K_times, 0, 2);
    tcase_add_test(tests, sync_every_ends_when_a_rank_fails);
    suite_add_tcase(suite, tests);
    return suite;
}

TT_MPI_TEST_MAIN(make_suite)
