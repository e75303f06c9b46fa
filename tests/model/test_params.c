/* test_params.c: the parameter table and the shape: names, places, initial values, refusals. */
#include <stdarg.h>

#include "tt_test.h"
#include "tutti/base/memory.h"
#include "tutti/base/narrow.h"
#include "tutti/base/options.h"
#include "tutti/model/params.h"

#include "model/model_impl.h"

static const tt_shape tiny = {.L = 3,
                              .H = 4,
                              .G = 2,
                              .D = 3,
                              .C = 12,
                              .F = 20,
                              .T = 5,
                              .V = 17,
                              .vocab_used = 17,
                              .tied = true};

static tt_params make(const tt_shape *shape)
{
    tt_params params;
    tt_err err = {0};
    ck_assert_msg(tt_params_make(&params, shape, &err) == TT_OK, "%s", err.text);
    return params;
}

static void expect(const tt_params *params, const char *name, int dims, int64_t rows, int64_t cols,
                   bool decay, int stage)
{
    const tt_param *param = tt_params_find(params, name);
    ck_assert_msg(param != NULL, "no %s", name);
    ck_assert_int_eq(param->dims, dims);
    ck_assert_int_eq(param->dim[0], rows);
    ck_assert_int_eq(param->dim[1], cols);
    ck_assert_int_eq(param->count, rows * cols);
    ck_assert_msg(param->decay == decay, "%s", name);
    ck_assert_int_eq(param->stage, stage);
}

START_TEST(names_and_shapes)
{
    tt_params params = make(&tiny);
    ck_assert_int_eq(params.count, 2 + 12 * 3 + 2);
    expect(&params, "wte", 2, 17, 12, true, 0);
    expect(&params, "wpe", 2, 5, 12, true, 0);
    expect(&params, "h.0.ln_1.weight", 1, 12, 1, false, 1);
    expect(&params, "h.0.ln_1.bias", 1, 12, 1, false, 1);
    expect(&params, "h.1.attn.qkv.weight", 2, (4 + 2 * 2) * 3, 12, true, 2);
    expect(&params, "h.1.attn.qkv.bias", 1, 24, 1, false, 2);
    expect(&params, "h.2.attn.proj.weight", 2, 12, 12, true, 3);
    expect(&params, "h.2.attn.proj.bias", 1, 12, 1, false, 3);
    expect(&params, "h.2.ln_2.weight", 1, 12, 1, false, 3);
    expect(&params, "h.2.mlp.fc.weight", 2, 20, 12, true, 3);
    expect(&params, "h.2.mlp.fc.bias", 1, 20, 1, false, 3);
    expect(&params, "h.2.mlp.proj.weight", 2, 12, 20, true, 3);
    expect(&params, "h.2.mlp.proj.bias", 1, 12, 1, false, 3);
    expect(&params, "ln_f.weight", 1, 12, 1, false, 4);
    expect(&params, "ln_f.bias", 1, 12, 1, false, 4);
    ck_assert_ptr_null(tt_params_find(&params, "head.weight"));
    ck_assert_ptr_null(tt_params_find(&params, "h.3.ln_1.weight"));
    ck_assert_ptr_eq(tt_params_role(&params, TT_HEAD_WEIGHT, 4), tt_params_find(&params, "wte"));
    ck_assert_ptr_null(tt_params_role(&params, TT_HEAD_WEIGHT, 3));
    ck_assert_ptr_eq(tt_params_role(&params, TT_FC_BIAS, 2),
                     tt_params_find(&params, "h.1.mlp.fc.bias"));
    tt_params_free(&params);

    tt_shape untied = tiny;
    untied.tied = false;
    params = make(&untied);
    expect(&params, "head.weight", 2, 17, 12, true, 4);
    ck_assert_ptr_eq(tt_params_role(&params, TT_HEAD_WEIGHT, 4),
                     tt_params_find(&params, "head.weight"));
    tt_params_free(&params);
}
END_TEST

START_TEST(places_are_aligned_and_ascend)
{
    tt_params params = make(&tiny);
    int64_t end = 0, trained = 0;
    for (int i = 0; i < params.count; i++) {
        const tt_param *param = &params.param[i];
        ck_assert_int_eq(param->offset % 32, 0);
        ck_assert_int_ge(param->offset, end);
        ck_assert_int_lt(param->offset - end, 64);
        end = param->offset + param->count;
        trained += param->count;
        ck_assert_int_le(end, params.stage_end[param->stage]);
        ck_assert(param->stage == 0 || param->offset >= params.stage_end[param->stage - 1]);
    }
    ck_assert_int_eq(params.stages, 5);
    ck_assert_int_eq(params.stage_end[4], params.total);
    ck_assert_int_eq(params.total % 64, 0);
    ck_assert_int_eq(params.trained, trained);
    tt_params_free(&params);
}
END_TEST

START_TEST(gpt2_has_124_million)
{
    tt_shape gpt2 = {.L = 12,
                     .H = 12,
                     .G = 12,
                     .D = 64,
                     .C = 768,
                     .F = 3072,
                     .T = 1024,
                     .V = 50257,
                     .vocab_used = 50257,
                     .tied = true};
    tt_params params = make(&gpt2);
    ck_assert_int_eq(params.trained, 124439808);
    tt_params_free(&params);
}
END_TEST

START_TEST(initial_values)
{
    tt_shape shape = tiny;
    shape.V = 400; /* enough elements for a standard deviation */
    shape.F = 300;
    tt_params params = make(&shape);
    tt_err err = {0};
    float *all = tt_alloc(params.total, sizeof(float), &err);
    float *part = tt_alloc(params.total, sizeof(float), &err);
    ck_assert(all != NULL && part != NULL);
    tt_params_init(&params, 42, 0, params.total, all);

    bool *covered = tt_alloc(params.total, sizeof(bool), &err);
    for (int i = 0; i < params.count; i++) {
        const tt_param *param = &params.param[i];
        double sum = 0.0, squares = 0.0;
        for (int64_t e = param->offset; e < param->offset + param->count; e++) {
            sum += all[e];
            squares += (double)all[e] * all[e];
            covered[e] = true;
        }
        double mean = sum / (double)param->count, count = (double)param->count;
        bool norm_gain = strstr(param->name, "ln_") != NULL && strstr(param->name, "weight");
        bool residual = strstr(param->name, "proj.weight") != NULL;
        if (param->dims == 1) {
            ck_assert_msg(squares == (norm_gain ? count : 0.0), "%s", param->name);
            ck_assert_msg(sum == (norm_gain ? count : 0.0), "%s", param->name);
        } else {
            double std = residual ? 0.02 / sqrt(2.0 * 3.0) : 0.02;
            ck_assert_msg(fabs(mean) < 5.0 * std / sqrt(count), "%s", param->name);
            ck_assert_msg(fabs(sqrt(squares / count) / std - 1.0) < 5.0 / sqrt(2.0 * count), "%s",
                          param->name);
        }
    }
    for (int64_t e = 0; e < params.total; e++) {
        ck_assert(covered[e] || all[e] == 0.0f);
    }

    /* Any piece gives the same numbers as the whole; another seed gives others. */
    for (int64_t first = 0; first < params.total; first += 977) {
        int64_t count = tt_min(977, params.total - first);
        tt_params_init(&params, 42, first, count, part + first);
    }
    ck_assert_mem_eq(all, part, tt_bytes(params.total, sizeof(float)));
    tt_params_init(&params, 42, 5, 0, NULL);
    tt_params_init(&params, 43, 0, params.total, part);
    ck_assert_mem_ne(all, part, tt_bytes(params.total, sizeof(float)));
    free(covered);
    free(part);
    free(all);
    tt_params_free(&params);
}
END_TEST

/* ---- the shape ---- */

static tt_config model_config(int64_t heads, int64_t kv_heads, int64_t channels, int64_t vocab)
{
    tt_config config;
    tt_config_preset(&config);
    config.model.layers = 2;
    config.model.heads = heads;
    config.model.kv_heads = kv_heads;
    config.model.channels = channels;
    config.model.ffn = 0;
    config.model.vocab = vocab;
    config.model.context = 8;
    return config;
}

/* Refused as the user's mistake, in a sentence that holds every word (ended by NULL). */
static void refused(const tt_config *config, int64_t data_vocab, ...)
{
    tt_shape shape;
    tt_err err = {0};
    ck_assert_int_eq(tt_shape_resolve(&shape, config, data_vocab, &err), TT_EUSER);
    va_list words;
    va_start(words, data_vocab);
    for (const char *word = va_arg(words, const char *); word != NULL;
         word = va_arg(words, const char *)) {
        ck_assert_msg(strstr(err.text, word) != NULL, "no '%s' in: %s", word, err.text);
    }
    va_end(words);
}

START_TEST(shape_fills_zeros_in)
{
    tt_shape shape;
    tt_err err = {0};
    tt_config config = model_config(4, 0, 24, 0);
    ck_assert_int_eq(tt_shape_resolve(&shape, &config, 257, &err), TT_OK);
    ck_assert_int_eq(shape.G, 4);
    ck_assert_int_eq(shape.D, 6);
    ck_assert_int_eq(shape.F, 96);
    ck_assert_int_eq(shape.V, 257);
    ck_assert_int_eq(shape.vocab_used, 257);

    config = model_config(4, 2, 24, 320);
    config.model.ffn = 50;
    ck_assert_int_eq(tt_shape_resolve(&shape, &config, 257, &err), TT_OK);
    ck_assert_int_eq(shape.G, 2);
    ck_assert_int_eq(shape.F, 50);
    ck_assert_int_eq(shape.V, 320);
    ck_assert_int_eq(shape.vocab_used, 257);

    ck_assert_int_eq(tt_shape_resolve(&shape, &config, 0, &err), TT_OK);
    ck_assert_int_eq(shape.vocab_used, 320);
}
END_TEST

START_TEST(shape_refuses)
{
    tt_config config = model_config(5, 0, 24, 0);
    refused(&config, 257, "model.heads", "5", "24", "4", "6", NULL);
    config = model_config(100, 0, 24, 0);
    refused(&config, 257, "model.heads", "100", "24", NULL);
    config = model_config(4, 3, 24, 0);
    refused(&config, 257, "model.kv_heads", "3", "2", "4", NULL);
    config = model_config(4, 8, 24, 0);
    refused(&config, 257, "model.kv_heads", "8", "4", NULL);
    config = model_config(4, 0, 24, 100);
    refused(&config, 257, "model.vocab", "100", "257", NULL);
    config = model_config(4, 0, 24, 0);
    refused(&config, 0, "model.vocab", NULL);
    config.model.layers = 511;
    refused(&config, 257, "model.layers", "511", "510", NULL);
}
END_TEST

/* The option's row promises what the model takes. */
START_TEST(layers_end_where_the_row_says)
{
    tt_config config = model_config(4, 0, 24, 0);
    tt_err err = {0};
    char most[32], more[32];
    snprintf(most, sizeof most, "%d", TT_MAX_LAYERS);
    snprintf(more, sizeof more, "%d", TT_MAX_LAYERS + 1);
    ck_assert_int_eq(tt_config_set(&config, "t", "model.layers", more, &err), TT_EUSER);
    ck_assert_int_eq(tt_config_set(&config, "t", "model.layers", most, &err), TT_OK);
    tt_shape shape;
    ck_assert_msg(tt_shape_resolve(&shape, &config, 257, &err) == TT_OK, "%s", err.text);
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("params");
    TCase *tc = tcase_create("table");
    tcase_add_test(tc, names_and_shapes);
    tcase_add_test(tc, places_are_aligned_and_ascend);
    tcase_add_test(tc, gpt2_has_124_million);
    tcase_add_test(tc, initial_values);
    tcase_add_test(tc, shape_fills_zeros_in);
    tcase_add_test(tc, shape_refuses);
    tcase_add_test(tc, layers_end_where_the_row_says);
    suite_add_tcase(suite, tc);
    return suite;
}

TT_TEST_MAIN(make_suite)
