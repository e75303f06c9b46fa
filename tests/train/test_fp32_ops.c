/* test_fp32_ops.c: what precision.fp32_ops promises, seen from outside: nearer to FP32, nothing else
 * changed, the plan is the allocation, a resumed run and an opened checkpoint are the same model. */
#include "train_test.h"

#define ALL_PRODUCTS "[qkv, attention, proj, fc, down, head]"

static tt_config cast_config(const char *run, const char *compute, const char *ops)
{
    tt_config config = tiny_config(run);
    set(&config, "precision.compute", "%s", compute);
    set(&config, "precision.fp32_ops", "%s", ops);
    set(&config, "model.dropout", "0.1");
    set(&config, "batch.micro", "2");
    set(&config, "run.resume", "never");
    return config;
}

/* What a few steps leave. */
typedef struct outcome {
    double loss;                 /* of the last step */
    float *gradient, *parameter; /* [total] of the last step; masters after it; owned */
    int64_t total;
} outcome;

static outcome run_of(const tt_config *config, int count)
{
    tt_trainer t;
    tt_record record = {.loss = NAN};
    outcome out = {0};
    open_trainer(&t, config, &alone);
    for (int i = 0; i < count; i++) {
        step_once(&t, &record);
    }
    out.loss = record.loss;
    out.total = t.print.params.total;
    out.parameter = masters_of(&t);
    out.gradient = malloc(sizeof(float) * (size_t)out.total);
    ck_assert_ptr_nonnull(out.gradient);
    memcpy(out.gradient, t.gradient.sum, sizeof(float) * (size_t)out.total);
    tt_trainer_close(&t);
    return out;
}

static void outcome_free(outcome *out)
{
    free(out->gradient);
    free(out->parameter);
}

static bool same_outcome(const outcome *a, const outcome *b)
{
    const size_t bytes = sizeof(float) * (size_t)a->total;
    return a->total == b->total && memcmp(&a->loss, &b->loss, sizeof a->loss) == 0 &&
           memcmp(a->gradient, b->gradient, bytes) == 0 &&
           memcmp(a->parameter, b->parameter, bytes) == 0;
}

/* Loss and gradient of the same weights and samples, over several seeds: with every product in FP32 they
 * are nearer to FP32's. What is stored stays narrow, so that they are not reached; in BF16 that is most
 * of what is left, and of the loss nearly all. Bounds: of what is left to what there was. */
START_TEST(up_is_nearer_to_fp32)
{
    static const struct {
        const char *compute;
        double loss, gradient;
    } narrow[] = {{"bf16", 1.05, 0.85}, {"fp8", 0.75, 0.6}};
    enum { SEEDS = 24 };
    double loss[2] = {0}, gradient[2] = {0}; /* plain, up: squares; distances */
    for (int seed = 1; seed <= SEEDS; seed++) {
        static const char *const ops[] = {"[]", "[]", ALL_PRODUCTS};
        outcome out[3];
        for (int i = 0; i < 3; i++) {
            tt_config config = cast_config("near", i == 0 ? "fp32" : narrow[_i].compute, ops[i]);
            set(&config, "run.seed", "%d", seed);
            set(&config, "batch.micro", "8");
            out[i] = run_of(&config, 1);
        }
        for (int i = 0; i < 2; i++) {
            loss[i] += pow(out[i + 1].loss - out[0].loss, 2);
            gradient[i] += l2_apart(out[i + 1].gradient, 1, out[0].gradient, 1, out[0].total);
        }
        for (int i = 0; i < 3; i++) {
            outcome_free(&out[i]);
        }
    }
    ck_assert_msg(sqrt(loss[1]) < narrow[_i].loss * sqrt(loss[0]), "loss: %g up, %g plain",
                  sqrt(loss[1] / SEEDS), sqrt(loss[0] / SEEDS));
    ck_assert_msg(gradient[1] > 0 && gradient[1] < narrow[_i].gradient * gradient[0],
                  "gradient: %g up, %g plain", gradient[1] / SEEDS, gradient[0] / SEEDS);
}
END_TEST

/* Each product that is moved shows in the bits, alone; of attention only where its kernel rounds more
 * than what is stored, which in FP8 is everywhere. */
START_TEST(each_product_moves)
{
    static const struct {
        const char *compute, *ops;
    } moved[] = {{"bf16", "qkv"},  {"bf16", "proj"}, {"bf16", "fc"},       {"bf16", "down"},
                 {"bf16", "head"}, {"fp8", "qkv"},   {"fp8", "attention"}, {"fp8", "proj"},
                 {"fp8", "fc"},    {"fp8", "down"},  {"fp8", "head"}};
    for (size_t i = 0; i < sizeof moved / sizeof *moved; i++) {
        tt_config plain = cast_config("moves", moved[i].compute, "[]");
        tt_config config = cast_config("moves", moved[i].compute, moved[i].ops);
        outcome a = run_of(&plain, 1), b = run_of(&config, 1);
        ck_assert_msg(!same_outcome(&a, &b), "%s in %s", moved[i].ops, moved[i].compute);
        outcome_free(&a);
        outcome_free(&b);
    }
}
END_TEST

/* What is FP32 already stays as it was, bit for bit. */
START_TEST(others_stay)
{
    static const struct {
        const char *compute, *ops;
    } kept[] = {{"fp32", ALL_PRODUCTS},
                {"fp32", "[embed, norm, residual, optimizer]"},
                {"bf16", "[norm, softmax, gelu, loss]"},
                {"bf16", "[weight_gradients, reduction, optimizer]"}};
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++) {
        tt_config plain = cast_config("stays", kept[i].compute, "[]");
        tt_config config = cast_config("stays", kept[i].compute, kept[i].ops);
        outcome a = run_of(&plain, 2), b = run_of(&config, 2);
        ck_assert_msg(same_outcome(&a, &b), "%s in %s", kept[i].ops, kept[i].compute);
        outcome_free(&a);
        outcome_free(&b);
    }
}
END_TEST

static const struct {
    const char *compute, *master, *ops, *tied, *packs;
} shapes[] = {{"bf16", "fp32", "head", "true", "true"},
              {"bf16", "fp32", "head", "false", "true"},
              {"bf16", "fp32", ALL_PRODUCTS, "true", "true"},
              {"bf16", "fp32", "[qkv, down]", "true", "false"},
              {"bf16", "split", "[fc, head]", "true", "true"},
              {"fp32", "fp32", ALL_PRODUCTS, "true", "true"},
              {"fp8", "fp32", "[attention, fc]", "true", "true"},
              {"fp8", "fp32", ALL_PRODUCTS, "false", "true"}};
enum { SHAPES = sizeof shapes / sizeof *shapes };

static tt_config shaped(int i, const char *run)
{
    tt_config config = cast_config(run, shapes[i].compute, shapes[i].ops);
    set(&config, "precision.master", "%s", shapes[i].master);
    set(&config, "model.tie_embeddings", "%s", shapes[i].tied);
    set(&config, "memory.pack_weights", "%s", shapes[i].packs);
    return config;
}

START_TEST(plan_is_the_allocation)
{
    tt_config config = shaped(_i, "allocation");
    tt_trainer t;
    tt_record record = {.loss = NAN};
    open_trainer(&t, &config, &alone);
    step_once(&t, &record);
    ck_assert(isfinite(record.loss) && !record.skipped);
    for (int c = 0; c < TT_MEM_COMPONENTS; c++) {
        ck_assert_msg(t.arena[c].used == t.print.plan.bytes[c], "%s: %zu used, %zu planned",
                      tt_component_names[c], t.arena[c].used, t.print.plan.bytes[c]);
    }
    tt_trainer_close(&t);
}
END_TEST

/* Three steps, a restart and three are six. */
START_TEST(resumed_is_uninterrupted)
{
    tt_config whole = shaped(_i, "whole"), config = shaped(_i, "resumed");
    tt_trainer one, two;
    set(&config, "run.dir", "%s", in_folder("resumed-%d", _i));
    first_part(&config, &alone);
    set(&config, "run.resume", "must");
    open_trainer(&two, &config, &alone);
    open_trainer(&one, &whole, &alone);
    steps(&one, FIRST);
    ck_assert(same_state(&one, &two));
    steps(&one, FIRST);
    steps(&two, FIRST);
    ck_assert(same_state(&one, &two));
    tt_trainer_close(&one);
    tt_trainer_close(&two);
}
END_TEST

/* A checkpoint opened for reading multiplies what training multiplied. */
START_TEST(read_is_as_trained)
{
    tt_config config = shaped(_i, "read");
    tt_trainer t;
    tt_infer infer;
    tt_loss wanted, loss;
    set(&config, "run.eval_every", "1");
    set(&config, "run.dir", "%s", in_folder("read-%d", _i));
    open_trainer(&t, &config, &alone);
    steps(&t, 2);
    must(tt_saver_save(&t, NULL, true, true, &err_));
    must(tt_evaluate(NULL, t.model, &t.valid_sampler, &t.batch, 5, &t.tutti, NULL, &wanted, &err_));
    const char *path = in_folder("read-%d/step-00000002.h5", _i);
    must(tt_infer_open(&infer, NULL, path, 0, NULL, 2, &err_));
    must(tt_evaluate(NULL, infer.model, &t.valid_sampler, &t.batch, 5, NULL, NULL, &loss, &err_));
    ck_assert_int_eq(loss.count, wanted.count);
    ck_assert_msg(sum_of(&loss) == sum_of(&wanted), "%s of %s: %.9g, trained %.9g", shapes[_i].ops,
                  shapes[_i].compute, sum_of(&loss), sum_of(&wanted));
    tt_infer_close(&infer);
    tt_trainer_close(&t);
}
END_TEST

/* It decides what is learned, so a resumed run may not change it. */
START_TEST(another_list_is_refused)
{
    tt_config config = cast_config("list", "bf16", "[head]");
    tt_trainer t;
    tt_err err = {TT_OK, ""};
    first_part(&config, &alone);
    set(&config, "run.resume", "must");
    set(&config, "precision.fp32_ops", "[head, fc]");
    ck_assert_int_eq(tt_trainer_open(&t, &config, &alone, &quiet, &err), TT_EUSER);
    ck_assert_msg(strstr(err.text, "precision.fp32_ops is [head] in the checkpoint") != NULL, "%s",
                  err.text);
    tt_trainer_close(&t);
}
END_TEST

/* What cannot run in FP32 is refused with its reason. */
START_TEST(refused_with_the_reason)
{
    static const struct {
        const char *ops, *master, *exact, *words;
    } bad[] = {{"[fc, head]", "none", "false", "precision.master is none"},
               {"[norm, embed]", "fp32", "false", "embed cannot be moved to fp32"},
               {"[residual]", "fp32", "false", "stored in the compute format"},
               {"[head, reduction]", "fp32", "true", "reduction cannot be moved to fp32"},
               {"[weight_gradients]", "fp32", "true", "fixed point"}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        tt_config config = cast_config("none", "bf16", bad[i].ops);
        tt_blueprint p;
        tt_err err = {TT_OK, ""};
        set(&config, "precision.master", "%s", bad[i].master);
        set(&config, "run.exact", "%s", bad[i].exact);
        ck_assert_int_eq(tt_blueprint_make(&p, &config, 257, 0, 1, 1, NULL, &err), TT_EUSER);
        ck_assert_msg(strstr(err.text, "precision.fp32_ops: ") != NULL &&
                          strstr(err.text, bad[i].words) != NULL,
                      "%s", err.text);
    }
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("train/fp32_ops");
    TCase *tests = tcase_create("fp32_ops");
    tcase_set_timeout(tests, 0);
    tcase_add_unchecked_fixture(tests, open_folder, close_folder);
    tcase_add_loop_test(tests, up_is_nearer_to_fp32, 0, 2);
    tcase_add_test(tests, each_product_moves);
    tcase_add_test(tests, others_stay);
    tcase_add_loop_test(tests, plan_is_the_allocation, 0, SHAPES);
    tcase_add_loop_test(tests, resumed_is_uninterrupted, 0, SHAPES);
    tcase_add_loop_test(tests, read_is_as_trained, 0, SHAPES);
    tcase_add_test(tests, another_list_is_refused);
    tcase_add_test(tests, refused_with_the_reason);
    suite_add_tcase(suite, tests);
    return suite;
}

TT_TEST_MAIN(make_suite)
