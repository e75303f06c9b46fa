/* test_infer.c: a checkpoint opened for reading is the model that was saved. */
#include "train_test.h"

/* Trains two steps into the folder `run`, saves, and returns the held-out loss. Evaluates as many
 * sequences at a time as B says. */
static tt_loss make_checkpoint(const tt_config *config)
{
    tt_trainer t;
    tt_record record;
    tt_loss loss;
    open_trainer(&t, config, &alone);
    step_once(&t, &record);
    step_once(&t, &record);
    must(tt_saver_save(&t, NULL, true, true, &err_));
    must(tt_evaluate(NULL, t.model, &t.valid_sampler, &t.batch, 5, &t.tutti, NULL, &loss, &err_));
    tt_trainer_close(&t);
    return loss;
}

static tt_config infer_config(const char *run)
{
    tt_config config = tiny_config(run);
    set(&config, "batch.micro", "2");
    set(&config, "run.eval_every", "1");
    set(&config, "run.resume", "never");
    set(&config, "model.dropout", "0.1");
    return config;
}

static tt_loss loss_of(tt_infer *infer)
{
    tt_tokens *tokens = NULL;
    tt_sampler sampler;
    tt_batch batch;
    tt_loss loss;
    const int64_t T = infer->print.shape.T;
    void *memory = NULL;
    ck_assert_int_eq(posix_memalign(&memory, TT_ALIGN, tt_batch_bytes(infer->B, T)), 0);
    tt_batch_place(&batch, infer->B, T, memory);
    must(tt_tokens_open(&tokens, in_folder("data.h5"), true, &err_));
    must(tt_evaluate_sampler(&sampler, tokens, "stream", T, &err_));
    must(tt_evaluate(NULL, infer->model, &sampler, &batch, 5, NULL, NULL, &loss, &err_));
    tt_tokens_close(tokens);
    free(memory);
    return loss;
}

/* The same loss to the last bit, in both formats. */
START_TEST(reads_what_was_trained)
{
    tt_config config = infer_config("read");
    tt_infer infer;
    set(&config, "precision.compute", _i == 0 ? "fp32" : "bf16");
    const tt_loss wanted = make_checkpoint(&config);
    must(tt_infer_open(&infer, NULL, in_folder("read/step-00000002.h5"), 0, NULL, 2, &err_));
    ck_assert_str_eq(infer.tokenizer.name, "bytes");
    ck_assert_int_eq(infer.print.shape.T, CONTEXT);
    ck_assert_uint_eq(infer.print.act_bytes, _i == 0 ? 4 : 2);
    tt_loss loss = loss_of(&infer);
    ck_assert_int_eq(loss.count, wanted.count);
    ck_assert(sum_of(&loss) == sum_of(&wanted));
    tt_infer_close(&infer);
    tt_infer_close(&infer); /* safe twice */
}
END_TEST

/* A weight halfway between two BF16 is rounded as training rounds it; in another format there are no
 * halves. */
START_TEST(split_masters_are_read_as_trained)
{
    tt_config config = infer_config("split");
    tt_trainer t;
    tt_infer infer;
    float half = 1 + 0x1p-8f, wide;
    char fp32[] = "precision.compute=fp32", *override[] = {fp32};
    set(&config, "precision.compute", "bf16");
    set(&config, "precision.master", "split");
    open_trainer(&t, &config, &alone);
    const int64_t at = tt_params_find(&t.print.params, "ln_f.weight")->offset;
    tt_masters_put(&t, at, 1, &half);
    must(tt_saver_save(&t, NULL, true, true, &err_));
    must(tt_infer_open(&infer, NULL, in_folder("split/step-00000000.h5"), 0, NULL, 2, &err_));
    ck_assert_mem_eq(infer.weights, t.weights, tt_bytes(t.print.params.total, sizeof(tt_bf16)));
    ck_assert(tt_f32_of_bf16(((tt_bf16 *)infer.weights)[at]) == 1 + 0x1p-7f); /* not to even */
    tt_infer_close(&infer);
    must(tt_infer_open(&infer, NULL, in_folder("split/step-00000000.h5"), 1, override, 2, &err_));
    infer.ctx.ops->from_act(&infer.ctx, &wide, (float *)infer.weights + at, 1);
    ck_assert(wide == half);
    tt_infer_close(&infer);
    tt_trainer_close(&t);
}
END_TEST

/* The logits of the next token are those the loss was made from. */
START_TEST(next_token_agrees_with_the_loss)
{
    tt_config config = infer_config("next");
    tt_infer infer;
    float logits[257];
    int32_t token[CONTEXT], target[CONTEXT];
    make_checkpoint(&config);
    must(tt_infer_open(&infer, NULL, in_folder("next/step-00000002.h5"), 0, NULL, 1, &err_));
    for (int i = 0; i < CONTEXT; i++) {
        token[i] = 'a' + 3 * i % 7;
        target[i] = -1;
    }
    for (int n = 1; n <= CONTEXT; n++) {
        tt_loss loss = {.count = 0};
        target[n - 1] = 'c';
        tt_model_eval(infer.model, token, target, 1, CONTEXT, &loss, NULL);
        target[n - 1] = -1;
        tt_model_next(infer.model, token, n, logits);
        double sum = 0;
        for (int i = 0; i < 257; i++) {
            sum += exp((double)logits[i]);
        }
        ck_assert_int_eq(loss.count, 1);
        ck_assert_double_eq_tol(sum_of(&loss), log(sum) - (double)logits['c'], 1e-5);
    }
    tt_infer_close(&infer);
}
END_TEST

START_TEST(overrides_apply)
{
    tt_config config = infer_config("override");
    tt_infer infer;
    char *override[] = {(char[]){"precision.compute=bf16"}, (char[]){"run.threads=2"}};
    const tt_loss wanted = make_checkpoint(&config);
    const char *path = in_folder("override/step-00000002.h5");
    must(tt_infer_open(&infer, NULL, path, 2, override, 4, &err_));
    ck_assert_uint_eq(infer.print.act_bytes, 2);
    ck_assert_int_eq(infer.ctx.threads, 2);
    tt_loss loss = loss_of(&infer);
    ck_assert_int_eq(loss.count, wanted.count);
    ck_assert_double_eq_tol(sum_of(&loss) / loss.count, sum_of(&wanted) / wanted.count, 1e-2);
    ck_assert(sum_of(&loss) != sum_of(&wanted));
    tt_infer_close(&infer);
}
END_TEST

/* One sentence, and nothing left open. */
START_TEST(what_does_not_fit_is_refused)
{
    static const struct {
        const char *override, *words;
    } bad[] = {{"model.channels=12", "wte"},
               {"model.layers=3", "h.2."},
               {"model.layers=1", "h.1."},
               {"model.vocab=300", "wte"},
               {"model.context=16", "wpe"},
               {"model.tie_embeddings=false", "head.weight"},
               {"model.heads=3", "model.heads"},
               {"model.nothing=1", "model.nothing"},
               {"precision.compute=fp64", "compute"},
               {"run.threads=-1", "run.threads"}};
    tt_config config = infer_config("refuse");
    make_checkpoint(&config);
    const char *path = in_folder("refuse/step-00000002.h5");
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        tt_infer infer, zero;
        tt_err err = {TT_OK, ""};
        char text[64], *override[] = {text};
        memset(&zero, 0, sizeof zero);
        snprintf(text, sizeof text, "%s", bad[i].override);
        tt_code rc = tt_infer_open(&infer, NULL, path, 1, override, 1, &err);
        ck_assert_msg(rc == TT_EUSER && err.code == TT_EUSER, "%s: %d %s", text, rc, err.text);
        ck_assert_msg(strstr(err.text, bad[i].words) != NULL, "%s: %s", text, err.text);
        ck_assert_mem_eq(&infer, &zero, sizeof zero);
    }
    tt_infer infer;
    tt_err err = {TT_OK, ""};
    ck_assert_int_eq(tt_infer_open(&infer, NULL, in_folder("none.h5"), 0, NULL, 1, &err), TT_EUSER);
    ck_assert_ptr_nonnull(strstr(err.text, "none.h5"));
    /* A token file is no checkpoint. */
    ck_assert_int_eq(tt_infer_open(&infer, NULL, in_folder("data.h5"), 0, NULL, 1, &err), TT_EUSER);
    ck_assert_ptr_nonnull(strstr(err.text, "data.h5"));
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("train/infer");
    TCase *tests = tcase_create("infer");
    tcase_set_timeout(tests, 0);
    tcase_add_unchecked_fixture(tests, open_folder, close_folder);
    tcase_add_loop_test(tests, reads_what_was_trained, 0, 2);
    tcase_add_test(tests, split_masters_are_read_as_trained);
    tcase_add_test(tests, next_token_agrees_with_the_loss);
    tcase_add_test(tests, overrides_apply);
    tcase_add_test(tests, what_does_not_fit_is_refused);
    suite_add_tcase(suite, tests);
    return suite;
}

TT_TEST_MAIN(make_suite)
