/* mpi_engine.c: every way to hold, share and move weights and gradients learns the same bits in exact
 * mode, takes the memory that was planned and sends what was planned. */
#define TT_MPI_TEST
#include "train_test.h"

enum { SEQUENCES = 24, STEPS = 3 };

/* As many as divide over the ranks. */
static int64_t sequences(void)
{
    return tt_round_up(SEQUENCES, tt_test_world.size);
}

/* How ranks divide and share: everything that dist and memory can be told. */
static const struct way {
    const char *zero, *gradients, *shared, *ranks, *overlap;
} ways[] = {
    {"0", "auto", "false", "0", "auto"},    {"1", "auto", "false", "0", "auto"},
    {"2", "whole", "false", "0", "true"},   {"2", "pieces", "false", "0", "true"},
    {"3", "whole", "false", "0", "true"},   {"3", "pieces", "false", "0", "true"},
    {"0", "auto", "true", "0", "true"},     {"1", "auto", "true", "0", "true"},
    {"2", "whole", "true", "0", "true"},    {"2", "pieces", "true", "0", "true"},
    {"3", "whole", "true", "0", "true"},    {"3", "pieces", "true", "0", "true"},
    {"0", "auto", "true", "2", "true"},     {"1", "auto", "true", "2", "true"},
    {"2", "whole", "true", "2", "true"},    {"2", "pieces", "true", "2", "true"},
    {"3", "whole", "true", "2", "true"},    {"3", "pieces", "true", "2", "true"},
    {"0", "auto", "true", "3", "false"},    {"1", "auto", "false", "0", "false"},
    {"2", "pieces", "false", "0", "false"}, {"3", "pieces", "true", "2", "false"},
    {"3", "whole", "false", "0", "false"},  {"2", "whole", "true", "3", "false"},
};
enum { WAYS = sizeof ways / sizeof *ways };

/* Number formats and masters. */
static const char *const kinds[][4] = {
    {"fp32", "fp32", "none", "false"},  {"bf16", "fp32", "sqrt", "true"},
    {"bf16", "split", "block", "true"}, {"bf16", "none", "selective", "false"},
    {"fp8", "fp32", "none", "true"},
};
enum { KINDS = sizeof kinds / sizeof *kinds };

static tt_config engine_config(int kind)
{
    tt_config config = tiny_config("engine");
    set(&config, "run.exact", "true");
    set(&config, "model.layers", "5");
    set(&config, "model.dropout", "0.1");
    set(&config, "model.tie_embeddings", "%s", kinds[kind][3]);
    set(&config, "precision.compute", "%s", kinds[kind][0]);
    set(&config, "precision.master", "%s", kinds[kind][1]);
    set(&config, "memory.recompute", "%s", kinds[kind][2]);
    set(&config, "batch.sequences", "%lld", (long long)sequences());
    set(&config, "run.eval_every", "100");
    return config;
}

static void apply(tt_config *config, int i)
{
    const struct way *way = &ways[i];
    set(config, "dist.progress_thread", i % 2 ? "true" : "false");
    set(config, "memory.zero", "%s", way->zero);
    set(config, "memory.gradients", "%s", way->gradients);
    set(config, "dist.node_shared", "%s", way->shared);
    set(config, "dist.node_ranks", "%s", way->ranks);
    set(config, "dist.overlap", "%s", way->overlap);
}

/* What one rank alone learns: the yardstick of every way that trains this kind, and so made once. */
static struct yardstick {
    tt_record record[STEPS];
    int64_t *gradient[STEPS]; /* [total], owned; NULL until it is made */
    float *masters;           /* [total], owned */
    tt_loss valid;            /* after the step before the last */
} yardsticks[KINDS];

static const struct yardstick *yardstick_of(int kind)
{
    struct yardstick *y = &yardsticks[kind];
    if (y->masters == NULL) {
        const tt_config config = engine_config(kind);
        const tt_config own = alone_config(&config, sequences());
        tt_trainer whole;
        open_trainer(&whole, &own, &alone);
        for (int i = 0; i < STEPS; i++) {
            step_once(&whole, &y->record[i]);
            y->gradient[i] = collected(&whole, false);
            if (i == STEPS - 2) {
                must(tt_evaluate(&alone, whole.model, &whole.valid_sampler, &whole.batch, 5,
                                 &whole.tutti, NULL, &y->valid, &err_));
            }
        }
        y->masters = masters_of(&whole);
        tt_trainer_close(&whole);
    }
    return y;
}

static void free_yardsticks(void)
{
    for (int k = 0; k < KINDS; k++) {
        for (int i = 0; i < STEPS; i++) {
            free(yardsticks[k].gradient[i]);
        }
        free(yardsticks[k].masters);
    }
}

static bool has_gradient(const tt_trainer *t, const int64_t *wanted)
{
    int64_t *got = collected(t, false);
    const bool same = memcmp(got, wanted, tt_bytes(t->print.params.total, sizeof *got)) == 0;
    free(got);
    return same;
}

/* Of the masters that this rank holds. */
static bool has_masters(const tt_trainer *t, const float *wanted)
{
    const tt_shard *shard = &t->print.shard;
    float *got = masters_of(t);
    bool same = true;
    for (int i = 0; i < shard->count; i++) {
        const tt_range r = shard->range[i];
        same = same &&
               memcmp(got + r.first, wanted + r.first, tt_bytes(r.end - r.first, sizeof *got)) == 0;
    }
    free(got);
    return same;
}

/* The kinds take turns over the ways, differently on each number of ranks. */
START_TEST(every_way_has_the_same_bits)
{
    const int kind = (_i + tt_test_world.size) % KINDS;
    const struct yardstick *alone_has = yardstick_of(kind);
    tt_config config = engine_config(kind);
    tt_trainer t;
    tt_record record;
    tt_loss loss;
    apply(&config, _i);
    set(&config, "batch.micro", "1");
    open_trainer(&t, &config, &tt_test_world);
    ck_assert_int_gt(t.print.weight_ring.count, 3); /* groups take turns */
    ck_assert_int_gt(t.print.buckets.count, t.print.weight_ring.count);
    for (int i = 0; i < STEPS; i++) {
        const tt_record *wanted = &alone_has->record[i];
        step_once(&t, &record);
        ck_assert_msg(
            everywhere(record.loss == wanted->loss && record.grad_norm == wanted->grad_norm),
            "step %d: loss %a and %a, norm %a and %a", i + 1, record.loss, wanted->loss,
            record.grad_norm, wanted->grad_norm);
        ck_assert_msg(everywhere(has_gradient(&t, alone_has->gradient[i])), "gradient of step %d",
                      i + 1);
        if (i < STEPS - 1) { /* after it some weights are there already */
            check_wire(&t, &record);
        }
        ck_assert(everywhere(record.comm_exposed_ms <= record.comm_ms + 1e-6));
        if (i == STEPS - 2) { /* passes forward between the steps, unevenly */
            must(tt_evaluate(&tt_test_world, t.model, &t.valid_sampler, &t.batch, 5, &t.tutti, NULL,
                             &loss, &err_));
            ck_assert(
                everywhere(loss.count == alone_has->valid.count &&
                           tt_exact_value(&loss.sum) == tt_exact_value(&alone_has->valid.sum)));
        }
    }
    ck_assert(everywhere(has_masters(&t, alone_has->masters)));
    check_memory(&t);
    tt_trainer_close(&t);
}
END_TEST

/* A rank whose data cannot be had takes part in the passes all the same, and all end alike. */
START_TEST(a_rank_without_data_takes_part)
{
    tt_config config = engine_config(0);
    tt_trainer t;
    tt_record record;
    tt_err err = {TT_OK, ""};
    apply(&config, _i);
    set(&config, "batch.micro", "1");
    open_trainer(&t, &config, &tt_test_world);
    step_once(&t, &record);
    tt_request request = {.code = TT_OK};
    if (tt_test_world.rank == tt_test_world.size - 1) {
        request.code = tt_fail(&request.err, TT_EWORLD, "no data");
    }
    ck_assert(everywhere(tt_step(&t, &request, &record, &err) == TT_EWORLD));
    ck_assert(everywhere(strstr(err.text, "no data") != NULL));
    step_once(&t, &record); /* nothing is left behind */
    tt_trainer_close(&t);
}
END_TEST

/* The plan's sums: what is shared is there once, what is divided is divided. */
START_TEST(memory_is_divided)
{
    tt_config config = engine_config(1);
    const int ranks = 4;
    size_t weights[4], gradients[4], optimizer[4];
    set(&config, "batch.micro", "1");
    set(&config, "batch.sequences", "4"); /* K = 1: pieces */
    set(&config, "model.layers", "24");
    set(&config, "model.channels", "128");
    set(&config, "dist.bucket_mb", "1");
    for (int zero = 0; zero < 4; zero++) {
        tt_blueprint p;
        set(&config, "memory.zero", "%d", zero);
        must(tt_blueprint_make(&p, &config, 257, 0, ranks, 1, NULL, &err_));
        weights[zero] = p.plan.bytes[TT_MEM_WEIGHTS];
        gradients[zero] = p.plan.bytes[TT_MEM_GRADIENTS];
        optimizer[zero] = p.plan.bytes[TT_MEM_OPTIMIZER];
        tt_blueprint_free(&p);
    }
    ck_assert_uint_le(optimizer[1], optimizer[0] / 4 * 1.01);
    ck_assert(gradients[1] == gradients[0] && weights[1] == weights[0]);
    ck_assert_uint_lt(gradients[2], gradients[1]);
    ck_assert_uint_eq(weights[2], weights[1]);
    ck_assert(gradients[3] == gradients[2] && weights[3] < weights[2] / 2);
    tt_node node;
    tt_blueprint p;
    set(&config, "memory.zero", "1");
    must(tt_node_imagine(&node, 0, ranks, ranks, &err_));
    must(tt_blueprint_make_on(&p, &config, 257, &node, 1, NULL, &err_));
    ck_assert_uint_eq(p.plan.once[TT_MEM_WEIGHTS], weights[1]);
    ck_assert_uint_eq(p.plan.bytes[TT_MEM_WEIGHTS], (weights[1] + 3) / 4);
    ck_assert_int_eq(p.plan.wire_calls,
                     p.buckets.count + 2); /* weights are where they are needed */
    tt_blueprint_free(&p);
    tt_node_close(&node);
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("engine");
    TCase *tests = tcase_create("engine");
    tcase_add_unchecked_fixture(tests, open_folder, close_folder);
    tcase_add_loop_test(tests, every_way_has_the_same_bits, 0, WAYS);
    tcase_add_loop_test(tests, a_rank_without_data_takes_part, 0, WAYS);
    tcase_add_test(tests, memory_is_divided);
    tcase_add_unchecked_fixture(tests, NULL, free_yardsticks);
    suite_add_tcase(suite, tests);
    return suite;
}

TT_MPI_TEST_MAIN(make_suite)
