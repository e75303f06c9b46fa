/* test_plan.c: the plan is the allocation; what is derived is filled in; what does not fit is refused
 * and leaves nothing behind (the sanitizers watch). */
#include "train_test.h"

static const struct {
    const char *key[4], *value[4];
} shapes[] = {
    {{NULL}, {NULL}},
    {{"model.layers", "model.kv_heads"}, {"1", "1"}},
    {{"model.tie_embeddings", "precision.compute"}, {"false", "bf16"}},
    {{"model.vocab", "batch.micro", "batch.accumulate"}, {"300", "3", "2"}},
    {{"model.ffn", "model.context", "model.dropout"}, {"0", "5", "0.1"}},
    {{"precision.compute", "run.threads", "batch.micro"}, {"bf16", "3", "4"}},
    {{"precision.compute", "memory.pack_weights"}, {"bf16", "false"}},
    {{"precision.compute", "precision.master"}, {"bf16", "split"}},
    {{"precision.compute", "precision.master", "precision.rounding"},
     {"bf16", "none", "stochastic"}},
    {{"precision.compute", "precision.fp32_ops"}, {"bf16", "[qkv, head]"}},
    {{"precision.compute", "precision.fp32_ops", "model.tie_embeddings"},
     {"fp8", "[attention, fc, down]", "false"}},
    {{"run.exact"}, {"true"}},
    {{"precision.compute", "precision.master", "run.exact"}, {"bf16", "split", "true"}},
    {{"precision.compute", "run.exact", "batch.micro"}, {"fp16", "true", "2"}},
    {{"precision.compute", "fp8.recipe", "batch.micro"}, {"fp8", "delayed", "2"}},
    {{"precision.compute", "fp8.recipe", "run.exact"}, {"fp8", "mxfp8", "true"}},
    {{"precision.compute", "fp8.recipe", "memory.pack_weights"}, {"fp8", "current", "false"}},
    {{"precision.compute", "precision.fp32_ops", "precision.master"}, {"bf16", "[fc]", "split"}},
    {{"precision.compute", "model.kv_heads"}, {"tf32", "1"}}};
enum { SHAPES = sizeof shapes / sizeof *shapes };

static tt_config shaped(int i, const char *run)
{
    tt_config config = tiny_config(run);
    for (int j = 0; j < 4 && shapes[i].key[j]; j++) {
        set(&config, shapes[i].key[j], "%s", shapes[i].value[j]);
    }
    return config;
}

/* Of the matrices that matmuls read: wpe is none, and wte only as the head. */
static size_t packed_by_hand(const tt_blueprint *p)
{
    size_t bytes = 0;
    for (int i = 0; i < p->params.count && p->config.memory.pack_weights; i++) {
        const tt_param *param = &p->params.param[i];
        if (!param->up && param->dims == 2 && strcmp(param->name, "wpe") != 0 &&
            (strcmp(param->name, "wte") != 0 || p->shape.tied)) {
            bytes += tt_arena_cost(p->ops.packed_bytes(param->dim[0], param->dim[1]));
        }
    }
    return bytes;
}

/* Every component's arena is opened with the plan's number, and given out to the last byte. */
START_TEST(plan_is_the_allocation)
{
    tt_trainer t;
    tt_record record;
    tt_config config = shaped(_i % SHAPES, "allocation");
    set(&config, "memory.zero", "%d", _i / SHAPES);
    set(&config, "run.resume", "never");
    open_trainer(&t, &config, &alone);
    step_once(&t, &record);
    const tt_plan *plan = &t.print.plan;
    size_t total = 0;
    for (int c = 0; c < TT_MEM_COMPONENTS; c++) {
        ck_assert_msg(t.arena[c].used == plan->bytes[c], "%s: %zu used, %zu planned",
                      tt_component_names[c], t.arena[c].used, plan->bytes[c]);
        ck_assert_uint_ge(t.arena[c].bytes, plan->bytes[c]);
        ck_assert(plan->bytes[c] > 0 || c == TT_MEM_PACKED || c == TT_MEM_WIDE ||
                  c == TT_MEM_SNAPSHOT);
        total += plan->bytes[c];
    }
    ck_assert_uint_eq(plan->total, total);
    ck_assert_uint_eq(plan->bytes[TT_MEM_PACKED], packed_by_hand(&t.print));
    ck_assert_int_eq(plan->threads, config.run.threads);
    ck_assert_int_eq(plan->ranks, 1);
    ck_assert_int_eq(plan->wire_calls, 0); /* alone there is no wire */
    ck_assert_int_eq(plan->wire_bytes, 0);
    ck_assert_int_eq(record.comm_calls, 0);
    tt_trainer_close(&t);
}
END_TEST

/* A component that took something else is named, with both numbers. */
START_TEST(another_allocation_is_a_bug)
{
    tt_config config = tiny_config("bug");
    tt_blueprint p;
    tt_err err = {TT_OK, ""};
    const tt_arena none[TT_MEM_COMPONENTS] = {{0}};
    tt_arena arena[TT_MEM_COMPONENTS] = {{.name = "weights"}};
    must(tt_blueprint_make(&p, &config, 257, 0, 1, 1, NULL, &err_));
    for (int c = 0; c < TT_MEM_COMPONENTS; c++) {
        arena[c].used = p.plan.bytes[c];
    }
    ck_assert_int_eq(tt_memory_check(&p.plan, arena, none, &err), TT_OK);
    arena[TT_MEM_OPTIMIZER].used += TT_ALIGN;
    ck_assert_int_eq(tt_memory_check(&p.plan, arena, none, &err), TT_EWORLD);
    char said[128];
    snprintf(said, sizeof said, "optimizer was planned with %zu bytes and took %zu",
             p.plan.bytes[TT_MEM_OPTIMIZER], p.plan.bytes[TT_MEM_OPTIMIZER] + TT_ALIGN);
    ck_assert_msg(strstr(err.text, said) != NULL, "%s", err.text);
    tt_blueprint_free(&p);
}
END_TEST

/* Against a count by hand: L 2, C 10, F 21, V 257, T 8. */
START_TEST(numbers_by_hand)
{
    tt_config config = tiny_config("hand");
    tt_blueprint p;
    must(tt_blueprint_make(&p, &config, 257, 0, 1, 1, NULL, &err_));
    const int64_t block = 4 * 10 + 30 * 10 + 30 + 10 * 10 + 10 + 21 * 10 + 21 + 10 * 21 + 10;
    ck_assert_int_eq(p.plan.parameters, 257 * 10 + 8 * 10 + 2 * block + 2 * 10);
    ck_assert_int_eq(p.plan.tokens_per_step, 8);
    const int64_t matmul = 2 * (30 * 10 + 10 * 10 + 21 * 10 + 10 * 21) + 257 * 10;
    ck_assert(apart(p.plan.flops_per_step, 8.0 * (6.0 * matmul + 6 * 2 * 10 * 8)) < 1e-12);
    tt_blueprint_free(&p);
}
END_TEST

/* Derived values go back into the configuration. */
START_TEST(configuration_is_filled_in)
{
    tt_config config = tiny_config("fill");
    tt_blueprint p;
    set(&config, "model.ffn", "0");
    set(&config, "batch.micro", "0");
    set(&config, "batch.sequences", "24");
    set(&config, "batch.accumulate", "2");
    must(tt_blueprint_make(&p, &config, 257, 2, 3, 1, NULL, &err_));
    ck_assert_int_eq(p.config.model.kv_heads, 2);
    ck_assert_int_eq(p.config.model.ffn, 40);
    ck_assert_int_eq(p.config.model.vocab, 257);
    ck_assert_int_eq(p.config.batch.micro, 4);
    ck_assert_int_eq(p.config.batch.sequences, 24);
    ck_assert_int_eq(p.config.batch.accumulate, 2);
    /* And made from what was filled in, the same comes out. */
    tt_blueprint again;
    must(tt_blueprint_make(&again, &p.config, 257, 2, 3, 1, NULL, &err_));
    ck_assert_mem_eq(&again.plan, &p.plan, sizeof p.plan);
    ck_assert_mem_eq(&again.config, &p.config, sizeof p.config);
    tt_blueprint_free(&again);
    tt_blueprint_free(&p);
}
END_TEST

/* Over all ranks the cuts are the vector, once; with ZeRO 1 they are what the optimizer holds. */
START_TEST(ranks_share_the_optimizer)
{
    const int ranks = 1 + _i;
    tt_config config = tiny_config("share");
    tt_blueprint p;
    int64_t cut = 0, held = 0, total = 0;
    size_t whole = 0;
    for (int r = 0; r < ranks; r++) {
        set(&config, "memory.zero", "0");
        must(tt_blueprint_make(&p, &config, 257, r, ranks, 1, NULL, &err_));
        ck_assert_int_eq(p.shard.elements, p.params.total);
        cut += p.cut.elements;
        whole = p.plan.bytes[TT_MEM_OPTIMIZER];
        const int64_t sums = p.plan.wire_bytes;
        ck_assert_int_eq(p.plan.wire_calls, ranks > 1 ? p.buckets.count + 2 : 0);
        tt_blueprint_free(&p);

        set(&config, "memory.zero", "1");
        must(tt_blueprint_make(&p, &config, 257, r, ranks, 1, NULL, &err_));
        held += p.shard.elements;
        total = p.params.total;
        ck_assert_uint_le(p.plan.bytes[TT_MEM_OPTIMIZER], whole / (size_t)ranks + 3 * 4 * 64 * 4);
        ck_assert_int_eq(p.plan.wire_calls, ranks > 1 ? 2 * p.buckets.count + 2 : 0);
        /* The gather sends the vector once more, in the format of the weights. */
        ck_assert_int_eq(p.plan.wire_bytes - sums, ranks > 1 ? 4 * total : 0);
        tt_blueprint_free(&p);
    }
    ck_assert_int_eq(cut, total);
    ck_assert_int_eq(held, total);
}
END_TEST

/* Master, m and v: 12 bytes a parameter, 10 when half of the master is the weight, 8 without one. */
START_TEST(bytes_of_the_optimizer)
{
    static const struct {
        const char *master, *words;
        size_t bytes, arrays;
    } kinds[] = {{"fp32", "master weights, Adam m and v in fp32\n", 12, 3},
                 {"split", "two halves", 10, 3},
                 {"none", "rounded to nearest\n", 8, 2}};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        tt_config config = tiny_config("optimizer");
        tt_blueprint p;
        tt_text page = {0};
        set(&config, "precision.compute", "bf16");
        set(&config, "precision.master", "%s", kinds[i].master);
        must(tt_blueprint_make(&p, &config, 257, 0, 1, 1, NULL, &err_));
        ck_assert_uint_eq(p.plan.bytes[TT_MEM_OPTIMIZER],
                          kinds[i].bytes * (size_t)p.shard.elements + kinds[i].arrays * TT_REDZONE);
        tt_autocast_text(&p.autocast, &page);
        ck_assert_msg(strstr(page.data, kinds[i].words) != NULL, "%s", page.data);
        tt_text_free(&page);
        tt_blueprint_free(&p);
    }
}
END_TEST

/* FP32 copies of the matrices, of whose masters there must be some; packed forms of the others alone. */
START_TEST(bytes_of_fp32_ops)
{
    tt_config config = tiny_config("wide");
    tt_blueprint plain, p;
    tt_err err = {TT_OK, ""};
    set(&config, "precision.compute", "bf16");
    must(tt_blueprint_make(&plain, &config, 257, 1, 2, 1, NULL, &err_));
    set(&config, "precision.fp32_ops", "[down, head]");
    must(tt_blueprint_make(&p, &config, 257, 1, 2, 1, NULL, &err_));
    ck_assert_int_eq(p.params.wide, 2 * 224 + 2592); /* 21 x 10 and 257 x 10, to multiples of 32 */
    ck_assert_uint_eq(plain.plan.bytes[TT_MEM_WIDE], 0);
    ck_assert_uint_eq(p.plan.bytes[TT_MEM_WIDE], tt_arena_cost(4 * (2 * 224 + 2592)));
    ck_assert_uint_lt(p.plan.bytes[TT_MEM_PACKED], plain.plan.bytes[TT_MEM_PACKED]);
    ck_assert_int_eq(p.plan.wire_bytes - plain.plan.wire_bytes, 4 * (2 * 224 + 2592));
    ck_assert_int_eq(p.buckets.count, 4); /* two of embeddings, one of each block */
    ck_assert_int_eq(p.plan.wire_calls - plain.plan.wire_calls, 4);
    tt_blueprint_free(&p);
    tt_blueprint_free(&plain);
    set(&config, "precision.master", "none");
    ck_assert_int_eq(tt_blueprint_make(&p, &config, 257, 1, 2, 1, NULL, &err), TT_EUSER);
    ck_assert_msg(strstr(err.text, "[down,head] multiply by FP32 weights") != NULL, "%s", err.text);
    set(&config, "precision.fp32_ops", "[attention, fc]");
    ck_assert_int_eq(tt_blueprint_make(&p, &config, 257, 1, 2, 1, NULL, &err), TT_EUSER);
    ck_assert_msg(strstr(err.text, ": [fc] multiplies by FP32 weights") != NULL, "%s", err.text);
    tt_blueprint_free(&p);                                   /* harmless */
    set(&config, "precision.fp32_ops", "[attention, loss]"); /* these have no weights */
    must(tt_blueprint_make(&p, &config, 257, 1, 2, 1, NULL, &err_));
    tt_blueprint_free(&p);
}
END_TEST

static const struct {
    const char *key, *value, *isa, *words;
} mistakes[] = {
    {"model.heads", "3", NULL, "model.heads"},
    {"model.vocab", "100", NULL, "model.vocab"},
    {"batch.sequences", "7", NULL, "batch.sequences"},
    {"optim.min_lr", "1", NULL, "optim.min_lr"},
    {"optim.lr_scaling", "linear", NULL, "optim.lr_sequences"},
    {"precision.master", "split", NULL, "the BF16 weight itself"},
    {"precision.master", "none", NULL, "needs precision.compute bf16 (it is fp32)"},
    {"precision.rounding", "stochastic", NULL, "needs precision.master none (it is fp32)"},
    {"run.steps", "6", "abacus", "abacus"}};
enum { MISTAKES = sizeof mistakes / sizeof *mistakes };

START_TEST(mistakes_are_named_and_leave_nothing)
{
    tt_config config = tiny_config("mistake");
    tt_blueprint p;
    tt_err err = {TT_OK, ""};
    set(&config, "batch.accumulate", "2");
    set(&config, mistakes[_i].key, "%s", mistakes[_i].value);
    ck_assert_int_eq(tt_blueprint_make(&p, &config, 257, 1, 2, 1, mistakes[_i].isa, &err),
                     TT_EUSER);
    ck_assert_int_eq(err.code, TT_EUSER);
    ck_assert_msg(strstr(err.text, mistakes[_i].words) != NULL, "%s", err.text);
    tt_blueprint_free(&p); /* harmless */
}
END_TEST

/* What stops a trainer from opening, in the order of its phases; nothing is left open. */
START_TEST(trainer_that_cannot_open_holds_nothing)
{
    static const struct {
        const char *key, *value, *words;
    } bad[] = {{"data.train", "nowhere.h5", "nowhere.h5"},
               {"data.valid", "nowhere.h5", "nowhere.h5"},
               {"model.heads", "3", "model.heads"},
               {"model.context", "4096", "model.context"},
               {"run.resume", "must", "run.resume"}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        tt_config config = tiny_config("closed");
        tt_trainer t, zero;
        tt_err err = {TT_OK, ""};
        memset(&zero, 0, sizeof zero);
        set(&config, bad[i].key, "%s", bad[i].value);
        ck_assert_int_eq(tt_trainer_open(&t, &config, &alone, &quiet, &err), TT_EUSER);
        ck_assert_msg(strstr(err.text, bad[i].words) != NULL, "%s", err.text);
        ck_assert_mem_eq(&t, &zero, sizeof t);
        tt_trainer_close(&t);
    }
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("train/plan");
    TCase *tests = tcase_create("plan");
    tcase_set_timeout(tests, 0);
    tcase_add_unchecked_fixture(tests, open_folder, close_folder);
    tcase_add_loop_test(tests, plan_is_the_allocation, 0, 2 * SHAPES);
    tcase_add_test(tests, another_allocation_is_a_bug);
    tcase_add_test(tests, numbers_by_hand);
    tcase_add_test(tests, configuration_is_filled_in);
    tcase_add_test(tests, bytes_of_the_optimizer);
    tcase_add_test(tests, bytes_of_fp32_ops);
    tcase_add_loop_test(tests, ranks_share_the_optimizer, 0, 6);
    tcase_add_loop_test(tests, mistakes_are_named_and_leave_nothing, 0, MISTAKES);
    tcase_add_test(tests, trainer_that_cannot_open_holds_nothing);
    suite_add_tcase(suite, tests);
    return suite;
}

TT_TEST_MAIN(make_suite)
