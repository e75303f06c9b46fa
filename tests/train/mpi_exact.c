/* mpi_exact.c: with run.exact, how a batch is split shows in no bit of what is learned: not over ranks,
 * micro-batches, threads, ZeRO stages, buckets, the form of the weights or what is computed again. */
#define TT_MPI_TEST
#include "train_test.h"

enum { SEQUENCES = 12, STEPS = 4 }; /* 12: divides by 1, 2, 3 and 4 ranks */

static const struct {
    const char *compute, *mode, *master, *rounding, *recipe, *backward, *loss_scale;
} kinds[] = {{"fp32", "stream", "fp32", "nearest", "current", "bf16", "none"},
             {"fp32", "documents", "fp32", "nearest", "current", "bf16", "1000"}, /* not 2^n */
             {"bf16", "documents", "fp32", "nearest", "current", "bf16", "none"},
             {"bf16", "documents", "split", "nearest", "current", "bf16", "dynamic"},
             {"bf16", "documents", "none", "nearest", "current", "bf16", "none"},
             {"bf16", "stream", "none", "stochastic", "current", "bf16", "none"},
             {"tf32", "documents", "fp32", "nearest", "current", "bf16", "none"},
             {"fp16", "documents", "fp32", "nearest", "current", "bf16", "dynamic"},
             {"fp8", "documents", "fp32", "nearest", "current", "e5m2", "dynamic"},
             {"fp8", "documents", "fp32", "nearest", "delayed", "e5m2", "dynamic"},
             {"fp8", "stream", "fp32", "nearest", "mxfp8", "bf16", "none"}};
enum { KINDS = sizeof kinds / sizeof *kinds };

static tt_config exact_config(const char *run, int kind)
{
    tt_config config = tiny_config(run);
    set(&config, "run.exact", "true");
    set(&config, "precision.compute", "%s", kinds[kind].compute);
    set(&config, "data.mode", "%s", kinds[kind].mode);
    set(&config, "precision.master", "%s", kinds[kind].master);
    set(&config, "precision.rounding", "%s", kinds[kind].rounding);
    set(&config, "fp8.recipe", "%s", kinds[kind].recipe);
    set(&config, "fp8.backward", "%s", kinds[kind].backward);
    set(&config, "fp8.history", "2");
    set(&config, "precision.loss_scale", "%s", kinds[kind].loss_scale);
    set(&config, "scaler.interval", "2"); /* it grows amid the steps */
    set(&config, "scaler.growth", "1.7");
    set(&config, "model.dropout", "0.1");
    set(&config, "optim.clip", "0.5");
    set(&config, "batch.sequences", "%d", SEQUENCES);
    set(&config, "model.layers", "3"); /* the fewest of which sqrt computes some again */
    return config;
}

static bool same_number(double a, double b)
{
    return memcmp(&a, &b, sizeof a) == 0;
}

static bool same_records(const tt_record *a, const tt_record *b)
{
    return same_number(a->loss, b->loss) && same_number(a->grad_norm, b->grad_norm) &&
           same_number(a->loss_scale, b->loss_scale) && a->tokens == b->tokens &&
           a->clipped == b->clipped && a->nonfinite == b->nonfinite &&
           (a->nonfinite_in != NULL) == (b->nonfinite_in != NULL) &&
           (a->nonfinite_in == NULL || strcmp(a->nonfinite_in, b->nonfinite_in) == 0);
}

/* Elements that are in this rank's cut, where the buckets of two trainers may differ: flat by flat. */
static bool same_optimizer(const tt_trainer *a, const tt_trainer *whole)
{
    const tt_shard *x = &a->print.shard, *y = &whole->print.shard;
    bool same = same_masters(a, whole);
    for (int i = 0; i < x->count; i++) {
        for (int j = 0; j < y->count; j++) {
            const int64_t first = tt_max(x->range[i].first, y->range[j].first);
            const int64_t end = tt_min(x->range[i].end, y->range[j].end);
            const int64_t at = x->local[i] + (first - x->range[i].first);
            const int64_t to = y->local[j] + (first - y->range[j].first);
            if (first < end) {
                const size_t bytes = sizeof(float) * (size_t)(end - first);
                same = same &&
                       memcmp(a->optimizer.all.m + at, whole->optimizer.all.m + to, bytes) == 0 &&
                       memcmp(a->optimizer.all.v + at, whole->optimizer.all.v + to, bytes) == 0;
            }
        }
    }
    return same;
}

static bool same_gradients(const tt_trainer *a, const tt_trainer *b)
{
    return same_collected(a, b, false);
}

/* What a step left: its record, the gradient and the optimizer's state, each of all parameters. */
typedef struct outcome {
    tt_record record;
    int64_t *gradient;      /* [total], owned */
    float *masters, *m, *v; /* [total], owned */
} outcome;

static float *flat_copy(const tt_trainer *whole, const float *array)
{
    const tt_shard *shard = &whole->print.shard;
    float *out = calloc((size_t)whole->print.params.total, sizeof *out);
    ck_assert_ptr_nonnull(out);
    for (int i = 0; i < shard->count; i++) {
        const tt_range r = shard->range[i];
        memcpy(out + r.first, array + shard->local[i], tt_bytes(r.end - r.first, sizeof *out));
    }
    return out;
}

static void take_outcome(outcome *out, tt_trainer *whole)
{
    step_once(whole, &out->record);
    out->gradient = collected(whole, false);
    out->masters = masters_of(whole);
    out->m = flat_copy(whole, whole->optimizer.all.m);
    out->v = flat_copy(whole, whole->optimizer.all.v);
}

static void free_outcome(outcome *out)
{
    free(out->gradient), free(out->masters), free(out->m), free(out->v);
}

static bool has_gradient(const tt_trainer *t, const outcome *wanted)
{
    int64_t *got = collected(t, false);
    const bool same =
        memcmp(got, wanted->gradient, tt_bytes(t->print.params.total, sizeof *got)) == 0;
    free(got);
    return same;
}

/* Of the elements that this rank holds. */
static bool has_optimizer(const tt_trainer *t, const outcome *wanted)
{
    const tt_shard *shard = &t->print.shard;
    float *masters = masters_of(t);
    bool same = true;
    for (int i = 0; i < shard->count; i++) {
        const int64_t first = shard->range[i].first, local = shard->local[i];
        const size_t bytes = tt_bytes(shard->range[i].end - first, sizeof(float));
        same = same && memcmp(masters + first, wanted->masters + first, bytes) == 0 &&
               memcmp(t->optimizer.all.m + local, wanted->m + first, bytes) == 0 &&
               memcmp(t->optimizer.all.v + local, wanted->v + first, bytes) == 0;
    }
    free(masters);
    return same;
}

/* Every split of 12 sequences over these ranks, against one rank with one micro-batch of 12. */
START_TEST(any_split_has_the_same_bits)
{
    const int64_t per_rank = SEQUENCES / tt_test_world.size;
    tt_config config = exact_config("split", _i);
    tt_config own = alone_config(&config, SEQUENCES);
    tt_trainer whole, t;
    tt_record record;
    outcome wanted[STEPS];
    open_trainer(&whole, &own, &alone);
    for (int i = 0; i < STEPS; i++) {
        take_outcome(&wanted[i], &whole);
    }
    for (int64_t B = 1; B <= per_rank; B++) {
        if (per_rank % B != 0) {
            continue;
        }
        set(&config, "batch.micro", "%lld", (long long)B);
        set(&config, "batch.accumulate", "0");
        set(&config, "memory.zero", "%lld", (long long)(B % 2));
        set(&config, "memory.pack_weights", B % 2 ? "true" : "false");
        set(&config, "memory.recompute", "%s",
            tt_recompute_names[(B + tt_test_world.size) % TT_RECOMPUTE_KINDS]);
        set(&config, "run.threads", "%lld", (long long)(1 + B % 2));
        open_trainer(&t, &config, &tt_test_world);
        for (int i = 0; i < STEPS; i++) {
            const tt_record *want = &wanted[i].record;
            step_once(&t, &record);
            ck_assert_msg(everywhere(same_records(&record, want)),
                          "step %d, micro %d: loss %a and %a, norm %a and %a", i + 1, (int)B,
                          record.loss, want->loss, record.grad_norm, want->grad_norm);
            ck_assert_msg(everywhere(has_gradient(&t, &wanted[i])), "step %d, micro %d", i + 1,
                          (int)B);
            ck_assert_msg(everywhere(has_optimizer(&t, &wanted[i])), "step %d, micro %d", i + 1,
                          (int)B);
            ck_assert(everywhere(record.clipped)); /* so that the norm steers the update */
        }
        ck_assert(everywhere(same_weights(&t, &whole)));
        tt_trainer_close(&t);
    }
    tt_trainer_close(&whole);
    for (int i = 0; i < STEPS; i++) {
        free_outcome(&wanted[i]);
    }
}
END_TEST

/* How many parameters of the dumped gradient are all NaN; -1 when one is so in part. */
static int lost_in_dump(tt_trainer *t)
{
    const tt_params *params = &t->print.params;
    float *mean = dumped_gradient(t, 1.0);
    int lost = 0;
    for (int p = 0; p < params->count && lost >= 0; p++) {
        int64_t nans = 0;
        for (int64_t e = 0; e < params->param[p].count; e++) {
            nans += isnan(mean[params->param[p].offset + e]);
        }
        lost = nans == 0 ? lost : nans == params->param[p].count ? lost + 1 : -1;
    }
    free(mean);
    return lost;
}

/* Gradients of a model that is out of hand: the same summands are lost in every split, all ranks skip
 * the step and name the same tensor; so does the first step after it count anew. */
START_TEST(what_is_lost_does_not_depend_on_the_split)
{
    static const float gains[] = {1e12f, NAN, 30.0f}; /* too large; not a number; in range */
    tt_config config = exact_config("lost", 1 + _i % 2);
    tt_config own = alone_config(&config, SEQUENCES);
    const bool in_range = gains[_i / 2] == 30.0f;
    tt_trainer whole, t;
    tt_record wanted, record;
    set(&config, "batch.micro", "1");
    set(&config, "batch.accumulate", "0");
    set(&config, "run.dump_gradients", "%s", in_folder("lost.h5"));
    open_trainer(&whole, &own, &alone);
    open_trainer(&t, &config, &tt_test_world);
    tt_trainer *const both[] = {&whole, &t};
    for (int i = 0; i < 2; i++) {
        const tt_param *gain = tt_params_find(&both[i]->print.params, "ln_f.weight");
        ck_assert_ptr_nonnull(gain);
        void *at = (char *)both[i]->weights + (size_t)gain->offset * both[i]->print.act_bytes;
        both[i]->ctx.ops->to_act(&both[i]->ctx, at, &gains[_i / 2], 1);
    }
    step_once(&whole, &wanted);
    step_once(&t, &record);
    ck_assert_msg(everywhere(record.nonfinite == wanted.nonfinite), "%lld lost, alone %lld",
                  (long long)record.nonfinite, (long long)wanted.nonfinite);
    ck_assert(everywhere((record.nonfinite == 0) == in_range && record.skipped == !in_range));
    ck_assert(everywhere((record.nonfinite_in != NULL) == !in_range));
    /* A dump of it does not pass wrapped integers off as numbers. */
    const int lost = lost_in_dump(&t);
    ck_assert(everywhere(in_range ? lost == 0 : lost > 0));
    if (!in_range) {
        ck_assert(everywhere(strcmp(record.nonfinite_in, wanted.nonfinite_in) == 0));
        ck_assert(everywhere(t.progress.updates == 0 && t.progress.skips == 1));
    }
    tt_trainer_close(&t);
    tt_trainer_close(&whole);
}
END_TEST

/* The plan knows the wider gradient, and what it costs on the wire, whatever K is. */
START_TEST(plan_knows_the_cost)
{
    tt_config config = exact_config("plan", 2);
    size_t bytes[2];
    for (int exact = 0; exact < 2; exact++) {
        tt_trainer t;
        tt_record record;
        set(&config, "run.exact", exact ? "true" : "false");
        set(&config, "batch.micro", "1");
        set(&config, "batch.accumulate", "0");
        open_trainer(&t, &config, &tt_test_world);
        step_once(&t, &record);
        check_wire(&t, &record);
        check_memory(&t);
        bytes[exact] = t.print.plan.bytes[TT_MEM_GRADIENTS];
        ck_assert_uint_ge(bytes[exact], (exact ? 8 : 4) * (size_t)t.print.params.total);
        tt_trainer_close(&t);
    }
    ck_assert_uint_ge(bytes[1], bytes[0] * 3 / 2);
}
END_TEST

/* One bit of one gradient element on one rank is seen in the gradient, the norm and the optimizer's
 * state. */
START_TEST(one_flipped_bit_shows)
{
    tt_config config = exact_config("flip", _i);
    tt_trainer sound, t;
    tt_record wanted, record;
    set(&config, "batch.micro", "1");
    set(&config, "batch.accumulate", "0");
    open_trainer(&sound, &config, &tt_test_world);
    open_trainer(&t, &config, &tt_test_world);
    t.fault = (tt_fault){.kind = TT_FAULT_FLIP_GRAD, .rank = tt_test_world.size - 1, .step = 2};
    for (int i = 1; i <= 2; i++) {
        step_once(&sound, &wanted);
        step_once(&t, &record);
        ck_assert(everywhere(same_gradients(&t, &sound) == (i < 2)));
        ck_assert(everywhere(same_number(record.grad_norm, wanted.grad_norm) == (i < 2)));
        ck_assert(everywhere(same_optimizer(&t, &sound)) == (i < 2));
    }
    tt_trainer_close(&t);
    tt_trainer_close(&sound);
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("train/exact");
    TCase *tests = tcase_create("exact");
    tcase_set_timeout(tests, 0);
    tcase_add_unchecked_fixture(tests, open_folder, close_folder);
    tcase_add_loop_test(tests, any_split_has_the_same_bits, 0, KINDS);
    tcase_add_loop_test(tests, what_is_lost_does_not_depend_on_the_split, 0, 6);
    tcase_add_test(tests, plan_knows_the_cost);
    tcase_add_loop_test(tests, one_flipped_bit_shows, 0, KINDS);
    suite_add_tcase(suite, tests);
    return suite;
}

TT_MPI_TEST_MAIN(make_suite)
