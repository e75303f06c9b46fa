/* mpi_step.c: the promise: how a batch is split over ranks and micro-batches changes what goes over
 * the wire and in which order numbers are added, and nothing else. And all ranks fail as one. */
#define TT_MPI_TEST
#include "train_test.h"

enum { SEQUENCES = 12, STEPS = 5 }; /* 12: divides by 1, 2, 3 and 4 ranks */

/* What a run of a few steps leaves: records, weights, and the mean gradient of the last step. */
typedef struct outcome {
    tt_record record[STEPS];
    float *weights, *gradient; /* [total], owned */
    int64_t total;
} outcome;

static void run(outcome *out, const tt_config *config, tt_world *world, int steps)
{
    tt_trainer t;
    open_trainer(&t, config, world);
    for (int i = 0; i < steps; i++) {
        step_once(&t, &out->record[i]);
    }
    out->total = t.print.params.total;
    out->weights = weights_of(&t);
    out->gradient = malloc(sizeof(float) * (size_t)out->total);
    int64_t *sums = collected(&t, false);
    for (int64_t i = 0; i < out->total; i++) {
        out->gradient[i] =
            (float)(float_at(sums, i) / ((double)t.seed * (double)out->record[steps - 1].tokens));
    }
    free(sums);
    tt_trainer_close(&t);
}

static void outcome_free(outcome *out)
{
    free(out->weights);
    free(out->gradient);
}

/* Largest relative difference of losses and of norms over the steps. */
static double records_apart(const outcome *a, const outcome *b, int steps)
{
    double most = 0;
    for (int i = 0; i < steps; i++) {
        most = fmax(most, apart(a->record[i].loss, b->record[i].loss));
        most = fmax(most, apart(a->record[i].grad_norm, b->record[i].grad_norm));
        if (a->record[i].tokens != b->record[i].tokens || !isfinite(a->record[i].grad_norm)) {
            return INFINITY;
        }
    }
    return most;
}

/* Bounds: FP32 as promised. In BF16 sums in another order change a master in its last FP32 bits, which
 * now and then tips the rounding of a weight to the other neighbour, 2^-8 of it away; a few of 6000
 * weights after five steps. */
static const struct {
    const char *compute, *mode;
    double loss, norm_and_gradient, weights;
} kinds[] = {{"fp32", "stream", 1e-6, 2e-6, 1e-5},
             {"fp32", "documents", 1e-6, 2e-6, 1e-5},
             {"bf16", "documents", 1e-4, 1e-2, 1e-3}};

/* Every split of 12 sequences over these ranks, against one rank with one micro-batch of 12. The
 * micro-batches of documents hold different numbers of targets. */
START_TEST(any_split_learns_the_same)
{
    const int64_t per_rank = SEQUENCES / tt_test_world.size;
    tt_config config = tiny_config("split");
    set(&config, "precision.compute", "%s", kinds[_i].compute);
    set(&config, "data.mode", "%s", kinds[_i].mode);
    set(&config, "model.dropout", "0.1");
    set(&config, "optim.clip", "0.5");
    set(&config, "batch.sequences", "%d", SEQUENCES);
    tt_config own = alone_config(&config, SEQUENCES);
    outcome yardstick, got;
    run(&yardstick, &own, &alone, STEPS);
    ck_assert(everywhere(yardstick.record[0].clipped)); /* so that the norm steers the update */
    if (strcmp(kinds[_i].mode, "documents") == 0) {
        ck_assert_int_lt(yardstick.record[0].tokens, SEQUENCES * CONTEXT);
    }
    for (int64_t B = 1; B <= per_rank; B++) {
        if (per_rank % B != 0) {
            continue;
        }
        set(&config, "batch.micro", "%lld", (long long)B);
        set(&config, "batch.accumulate", "0");
        set(&config, "memory.zero", "%lld", (long long)(B % 2));
        run(&got, &config, &tt_test_world, STEPS);
        for (int i = 0; i < STEPS; i++) {
            double loss = apart(got.record[i].loss, yardstick.record[i].loss);
            ck_assert_msg(everywhere(loss <= kinds[_i].loss), "loss %g apart, micro %d", loss,
                          (int)B);
        }
        double records = records_apart(&got, &yardstick, STEPS);
        double gradient = l2_apart(got.gradient, 1, yardstick.gradient, 1, got.total);
        double weights = l2_apart(got.weights, 1, yardstick.weights, 1, got.total);
        ck_assert_msg(everywhere(records <= kinds[_i].norm_and_gradient), "norm %g apart, micro %d",
                      records, (int)B);
        ck_assert_msg(everywhere(gradient <= kinds[_i].norm_and_gradient),
                      "gradient %g apart, micro %d", gradient, (int)B);
        ck_assert_msg(everywhere(weights <= kinds[_i].weights), "weights %g apart, micro %d",
                      weights, (int)B);
        outcome_free(&got);
    }
    outcome_free(&yardstick);
}
END_TEST

/* Who holds the optimizer's state changes no bit: the same sums, the same updates. */
START_TEST(zero_stages_agree_bit_for_bit)
{
    tt_config config = tiny_config("zero");
    set(&config, "precision.compute", _i == 0 ? "fp32" : "bf16");
    set(&config, "model.dropout", "0.1");
    set(&config, "batch.accumulate", "2");
    outcome whole, cut;
    set(&config, "memory.zero", "0");
    run(&whole, &config, &tt_test_world, STEPS);
    set(&config, "memory.zero", "1");
    run(&cut, &config, &tt_test_world, STEPS);
    ck_assert(everywhere(whole.total == cut.total));
    ck_assert(
        everywhere(memcmp(whole.weights, cut.weights, sizeof(float) * (size_t)cut.total) == 0));
    for (int i = 0; i < STEPS; i++) {
        ck_assert(everywhere(whole.record[i].loss == cut.record[i].loss &&
                             whole.record[i].grad_norm == cut.record[i].grad_norm));
    }
    outcome_free(&whole);
    outcome_free(&cut);
}
END_TEST

/* One window is all the data, so every micro-batch is the same: K of them on every rank have the mean
 * gradient of one. */
START_TEST(identical_micro_batches_have_the_gradient_of_one)
{
    static const int64_t accumulate[] = {1, 2, 64, 512};
    tt_config config = tiny_config("identical");
    set(&config, "data.train", "%s", in_folder("one.h5"));
    set(&config, "model.layers", "1");
    tt_config own = alone_config(&config, 1);
    outcome yardstick, got;
    run(&yardstick, &own, &alone, 1);
    for (int i = 0; i < 4; i++) {
        set(&config, "batch.accumulate", "%lld", (long long)accumulate[i]);
        run(&got, &config, &tt_test_world, 1);
        ck_assert_int_eq(got.record[0].tokens, CONTEXT * accumulate[i] * tt_test_world.size);
        double gradient = l2_apart(got.gradient, 1, yardstick.gradient, 1, got.total);
        /* A sum of K equal numbers in FP32 may be off by K - 1 half ulps. */
        double bound = ldexp((double)accumulate[i] + 4, -24);
        ck_assert_msg(everywhere(gradient <= bound), "K %d: gradient %g apart", (int)accumulate[i],
                      gradient);
        ck_assert(everywhere(apart(got.record[0].loss, yardstick.record[0].loss) <= 1e-6));
        ck_assert(
            everywhere(apart(got.record[0].grad_norm, yardstick.record[0].grad_norm) <= bound));
        outcome_free(&got);
    }
    outcome_free(&yardstick);
}
END_TEST

/* Micro-batches before the last communicate nothing, and the plan knows what the last one sends. */
START_TEST(wire_is_what_the_plan_says_whatever_K)
{
    static const int64_t accumulate[] = {1, 2, 8};
    tt_config config = tiny_config("wire");
    set(&config, "memory.zero", "%d", _i % 2);
    set(&config, "precision.compute", _i / 2 == 0 ? "fp32" : "bf16");
    for (int i = 0; i < 3; i++) {
        tt_trainer t;
        tt_record record;
        set(&config, "batch.accumulate", "%lld", (long long)accumulate[i]);
        open_trainer(&t, &config, &tt_test_world);
        for (int s = 0; s < 2; s++) {
            step_once(&t, &record);
            check_wire(&t, &record);
        }
        check_memory(&t);
        ck_assert(everywhere((t.print.plan.wire_calls > 0) == (tt_test_world.size > 1)));
        tt_trainer_close(&t);
    }
}
END_TEST

/* A poisoned gradient on one rank: nobody updates, and the next step goes on. */
START_TEST(non_finite_gradient_is_skipped_by_all)
{
    tt_config config = tiny_config("poison");
    tt_trainer t, before;
    tt_record record;
    set(&config, "memory.zero", "%d", _i / 2);
    open_trainer(&before, &config, &tt_test_world);
    open_trainer(&t, &config, &tt_test_world);
    step_once(&before, &record);
    int64_t tokens = record.tokens;
    step_once(&t, &record);
    ck_assert(everywhere(same_state(&t, &before)));

    t.fault = (tt_fault){.kind = _i % 2 == 0 ? TT_FAULT_NAN_GRAD : TT_FAULT_INF_GRAD,
                         .rank = tt_test_world.size - 1,
                         .step = 2};
    step_once(&t, &record);
    ck_assert(everywhere(record.skipped && !record.clipped && record.nonfinite > 0));
    ck_assert(everywhere(record.nonfinite_in != NULL && strcmp(record.nonfinite_in, "wte") == 0));
    ck_assert(everywhere(same_weights(&t, &before)));
    ck_assert(everywhere(
        same_shards(&t, t.optimizer.all.master, &before, before.optimizer.all.master, NULL)));
    ck_assert(
        everywhere(same_shards(&t, t.optimizer.all.m, &before, before.optimizer.all.m, NULL)));
    ck_assert(
        everywhere(same_shards(&t, t.optimizer.all.v, &before, before.optimizer.all.v, NULL)));
    ck_assert(everywhere(t.progress.step == 2 && t.progress.updates == 1 && t.progress.skips == 1));
    ck_assert(everywhere(t.progress.tokens_seen == 2 * tokens));

    step_once(&t, &record);
    ck_assert(everywhere(!record.skipped && record.nonfinite == 0 && isfinite(record.grad_norm)));
    ck_assert(everywhere(t.progress.step == 3 && t.progress.updates == 2 && t.progress.skips == 0));
    ck_assert(everywhere(!same_weights(&t, &before)));
    tt_trainer_close(&t);
    tt_trainer_close(&before);
}
END_TEST

/* Is this sentence the same on all ranks? */
static bool same_text(const char *text)
{
    char first[TT_ERR_TEXT];
    snprintf(first, sizeof first, "%s", text);
    MPI_Bcast(first, sizeof first, MPI_CHAR, 0, MPI_COMM_WORLD);
    return strcmp(first, text) == 0;
}

/* The run stops after the step that was one too many, and saves nothing of it. */
START_TEST(too_many_skips_stop_the_run)
{
    tt_config config = tiny_config("skips");
    tt_trainer t;
    tt_err err = {TT_OK, ""};
    set(&config, "optim.max_skips", "2");
    set(&config, "run.save_every", "3");
    open_trainer(&t, &config, &tt_test_world);
    t.fault = (tt_fault){.kind = TT_FAULT_NAN_GRAD, .rank = tt_test_world.size - 1, .step = -1};
    tt_code rc = tt_trainer_run(&t, &err);
    ck_assert(everywhere(rc == TT_EWORLD && err.code == TT_EWORLD));
    ck_assert(everywhere(strstr(err.text, "optim.max_skips") != NULL && same_text(err.text)));
    ck_assert(everywhere(t.progress.step == 3 && t.progress.updates == 0));
    ck_assert(everywhere(access(in_folder("skips/step-00000003.h5"), F_OK) != 0));
    tt_trainer_close(&t);
}
END_TEST

/* The classic mistake is seen by what the equivalence checks look at. */
START_TEST(wrong_normalisation_shows)
{
    tt_config config = tiny_config("norm");
    tt_trainer t;
    tt_record right, wrong;
    set(&config, "data.mode", "documents");
    set(&config, "batch.accumulate", "2");
    open_trainer(&t, &config, &tt_test_world);
    step_once(&t, &right);
    tt_trainer_close(&t);
    open_trainer(&t, &config, &tt_test_world);
    t.fault = (tt_fault){.kind = TT_FAULT_BAD_NORM, .rank = -1, .step = -1};
    step_once(&t, &wrong);
    tt_trainer_close(&t);
    ck_assert(everywhere(right.loss == wrong.loss));
    ck_assert(everywhere(apart(right.grad_norm, wrong.grad_norm) > 1e-2));
}
END_TEST

/* A token that is no token, found by the last rank alone, in the second micro-batch of its first
 * step: all ranks stop with the same words, and nothing was learned. */
START_TEST(unreadable_data_on_one_rank)
{
    tt_config config = tiny_config("unreadable");
    tt_trainer t, before;
    tt_record record;
    tt_tokens *damaged = NULL;
    tt_err err = {TT_OK, ""};
    const tt_request request = {.code = TT_OK};
    const int victim = tt_test_world.size - 1;
    bool mine = tt_test_world.rank == victim;
    set(&config, "batch.accumulate", "2");
    open_trainer(&before, &config, &tt_test_world);
    open_trainer(&t, &config, &tt_test_world);
    if (mine) { /* what it reads second */
        damaged = spoilt_copy(&t.sampler, tt_test_world.size + victim, false);
        t.sampler.tokens = damaged;
    }
    tt_code rc = tt_step(&t, &request, &record, &err);
    ck_assert_msg(everywhere(rc == TT_EWORLD && err.code == TT_EWORLD), "%d %s", rc, err.text);
    ck_assert(everywhere(strstr(err.text, "damaged.h5") != NULL && same_text(err.text)));
    ck_assert(everywhere(same_state(&t, &before)));
    tt_tokens_close(damaged);
    tt_trainer_close(&t);
    tt_trainer_close(&before);
}
END_TEST

/* What failed on one rank between steps is told in the next, with its own code. */
START_TEST(failure_between_steps)
{
    tt_config config = tiny_config("between");
    tt_trainer t;
    tt_record record;
    tt_err err = {TT_OK, ""};
    tt_request request = {.code = TT_OK};
    tt_code wanted = _i == 0 ? TT_EWORLD : TT_EUSER;
    open_trainer(&t, &config, &tt_test_world);
    step_once(&t, &record);
    if (tt_test_world.rank == tt_test_world.size - 1) {
        request.code = tt_fail(&request.err, wanted, "the disk is full");
    }
    tt_code rc = tt_step(&t, &request, &record, &err);
    ck_assert(everywhere(rc == wanted && err.code == wanted));
    ck_assert(everywhere(strstr(err.text, "the disk is full") != NULL && same_text(err.text)));
    ck_assert(everywhere(t.progress.step == 1));
    tt_trainer_close(&t);
}
END_TEST

/* A block larger than the largest bucket leaves the final norm, 64 elements, a bucket of its own: one
 * rank of four gets a piece of it. */
START_TEST(more_ranks_than_pieces)
{
    tt_config config = tiny_config("pieces");
    set(&config, "model.layers", "1");
    set(&config, "model.channels", "2");
    set(&config, "model.heads", "1");
    set(&config, "model.ffn", "65001");
    set(&config, "dist.bucket_mb", "1");
    set(&config, "batch.sequences", "%d", SEQUENCES);
    set(&config, "batch.micro", "1");
    tt_config own = alone_config(&config, SEQUENCES);
    outcome yardstick, cut, whole;
    run(&yardstick, &own, &alone, 2);
    run(&cut, &config, &tt_test_world, 2);
    set(&config, "memory.zero", "0");
    run(&whole, &config, &tt_test_world, 2);

    tt_blueprint print;
    must(tt_blueprint_make(&print, &config, 257, tt_test_world.size - 1, tt_test_world.size, 1,
                           NULL, &err_));
    const tt_range last = print.cut.range[print.cut.count - 1];
    ck_assert_int_gt(print.buckets.count, 2);
    ck_assert(tt_test_world.size == 1 || last.first == last.end);
    tt_blueprint_free(&print);

    ck_assert(
        everywhere(memcmp(whole.weights, cut.weights, sizeof(float) * (size_t)cut.total) == 0));
    ck_assert(everywhere(records_apart(&cut, &yardstick, 2) <= 2e-6));
    double weights = l2_apart(cut.weights, 1, yardstick.weights, 1, cut.total);
    ck_assert_msg(everywhere(weights <= 1e-5), "weights %g apart", weights);
    outcome_free(&yardstick);
    outcome_free(&cut);
    outcome_free(&whole);
}
END_TEST

/* How often weights were packed by the trainer whose table this stands in. */
static int packs;
static void (*real_pack)(tt_ctx *ctx, void *packed, const void *w, int64_t N, int64_t K);

static void counting_pack(tt_ctx *ctx, void *packed, const void *w, int64_t N, int64_t K)
{
    packs++;
    real_pack(ctx, packed, w, N, K);
}

/* Of all ranks that pack the same weights. */
static int64_t all_packs(const tt_trainer *t)
{
    int64_t sum = packs;
    must(tt_sum_i64(t->world, &sum, 1, &err_));
    return t->print.shares ? sum : packs;
}

/* Four matrices a block and the head, after every update, whatever K, by the ranks that share them
 * together; not after a step that was skipped. The bits are those of matmuls that pack for
 * themselves. */
START_TEST(weights_are_packed_once_a_step)
{
    enum { MATRICES = 4 * 2 + 1 };
    tt_config config = tiny_config("pack");
    tt_trainer kept, not_kept;
    tt_record record;
    set(&config, "precision.compute", _i == 0 ? "fp32" : "bf16");
    set(&config, "model.dropout", "0.1");
    set(&config, "batch.accumulate", "3");
    open_trainer(&kept, &config, &tt_test_world);
    set(&config, "memory.pack_weights", "false");
    open_trainer(&not_kept, &config, &tt_test_world);
    const int each = kept.print.plan.bytes[TT_MEM_PACKED] > 0 ? MATRICES : 0;
    packs = 0;
    real_pack = kept.print.ops.pack;
    kept.print.ops.pack = counting_pack;
    for (int i = 0; i < STEPS; i++) {
        step_once(&kept, &record);
        step_once(&not_kept, &record);
        ck_assert_int_eq(all_packs(&kept), each * (i + 1));
    }
    ck_assert(everywhere(same_state(&kept, &not_kept)));
    tt_err err;
    ck_assert_int_eq(tt_fault_parse("nan_grad:rank=0,step=6", &kept.fault, &err), TT_OK);
    step_once(&kept, &record);
    ck_assert(everywhere(record.skipped && all_packs(&kept) == each * STEPS));
    tt_trainer_close(&kept);
    tt_trainer_close(&not_kept);
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("train/step");
    TCase *tests = tcase_create("step");
    tcase_set_timeout(tests, 0);
    tcase_add_unchecked_fixture(tests, open_folder, close_folder);
    tcase_add_loop_test(tests, any_split_learns_the_same, 0, 3);
    tcase_add_loop_test(tests, zero_stages_agree_bit_for_bit, 0, 2);
    tcase_add_loop_test(tests, weights_are_packed_once_a_step, 0, 2);
    tcase_add_test(tests, identical_micro_batches_have_the_gradient_of_one);
    tcase_add_loop_test(tests, wire_is_what_the_plan_says_whatever_K, 0, 4);
    tcase_add_loop_test(tests, non_finite_gradient_is_skipped_by_all, 0, 4);
    tcase_add_test(tests, too_many_skips_stop_the_run);
    tcase_add_test(tests, wrong_normalisation_shows);
    tcase_add_test(tests, unreadable_data_on_one_rank);
    tcase_add_loop_test(tests, failure_between_steps, 0, 2);
    tcase_add_test(tests, more_ranks_than_pieces);
    suite_add_tcase(suite, tests);
    return suite;
}

TT_MPI_TEST_MAIN(make_suite)
