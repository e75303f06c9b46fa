/* test_options.c: the rows themselves, and what follows from them without a file. */
#include "tt_test.h"
#include "tutti/base/options.h"

static const tt_option *row(const char *path)
{
    for (int i = 0; i < tt_option_count; i++) {
        if (strcmp(tt_options[i].path, path) == 0) {
            return &tt_options[i];
        }
    }
    ck_abort_msg("no row %s", path);
    return NULL;
}

/* Rows are complete, unique, grouped by section, disjoint, and cover every byte that matters. */
START_TEST(test_rows)
{
    size_t paths = 0, bits = 0; /* of the options that a list of options may name */
    static unsigned char cover[sizeof(tt_config)];
    memset(cover, 0, sizeof cover);
    for (int i = 0; i < tt_option_count; i++) {
        const tt_option *o = &tt_options[i];
        ck_assert_ptr_nonnull(strchr(o->path, '.'));
        if (o->resume == TT_TRAJECTORY || strcmp(o->path, "data.train") == 0) {
            paths += strlen(o->path) + 1;
            bits++;
        }
        ck_assert(o->help != NULL && o->help[0] != '\0' && strpbrk(o->help, "|\n") == NULL);
        const bool words = o->type == TT_OPT_CHOICE || o->type == TT_OPT_CHOICE_OR_REAL ||
                           o->type == TT_OPT_CHOICE_OR_AUTO || o->type == TT_OPT_LIST;
        /* A list without choices is one of options. */
        const bool of_options = o->type == TT_OPT_LIST && o->choices == NULL;
        ck_assert(words == (o->choices != NULL || of_options));
        /* A list of every choice has room, and there is a bit for each. */
        ck_assert(o->type != TT_OPT_LIST || of_options ||
                  (strlen(o->choices) < o->bytes && o->bytes <= 128));
        ck_assert(words || o->type == TT_OPT_STRING ||
                  o->bytes == (o->type == TT_OPT_BOOL ? sizeof(bool) : 8));
        ck_assert(
            (o->type != TT_OPT_INT && o->type != TT_OPT_REAL && o->type != TT_OPT_CHOICE_OR_REAL) ||
            o->low < o->high);
        for (size_t b = 0; b < o->bytes; b++) {
            ck_assert_uint_eq(cover[o->offset + b]++, 0);
        }
        size_t section = strcspn(o->path, ".") + 1;
        bool met = false, left = false;
        for (int j = 0; j < i; j++) {
            ck_assert_str_ne(tt_options[j].path, o->path);
            bool same = strncmp(tt_options[j].path, o->path, section) == 0;
            ck_assert_msg(!(same && left), "%s stands apart from its section", o->path);
            left = met && !same;
            met = met || same;
        }
    }
    size_t covered = 0;
    for (size_t b = 0; b < sizeof cover; b++) {
        covered += cover[b];
    }
    ck_assert_uint_le(bits, 64); /* and all of those have room in a list */
    ck_assert_uint_le(paths, row("run.allow_change")->bytes);
    ck_assert_uint_ge(covered + 32, sizeof(tt_config)); /* the rest is padding behind bools */
    ck_assert_int_eq(row("run.threads")->scope, TT_LOCAL);
    ck_assert_int_eq(row("optim.lr")->scope, TT_GLOBAL);
    ck_assert_int_eq(row("optim.lr")->resume, TT_TRAJECTORY);
    ck_assert_int_eq(row("batch.micro")->resume, TT_LAYOUT);
    ck_assert_int_eq(row("run.steps")->resume, TT_FREE);
}
END_TEST

START_TEST(test_presets)
{
    tt_config c;
    tt_config_preset(&c);
    ck_assert_str_eq(c.model.arch, "gpt2");
    ck_assert_int_eq(c.model.layers, 12);
    ck_assert_int_eq(c.model.channels, 768);
    ck_assert_int_eq(c.model.context, 1024);
    ck_assert(c.model.tie_embeddings && !c.run.exact && !c.run.trace_data);
    ck_assert(c.optim.lr == 6e-4 && c.optim.beta2 == 0.95 && c.optim.eps == 1e-8);
    ck_assert_str_eq(c.precision.compute, "bf16");
    ck_assert_int_eq(c.memory.zero, 1);
    ck_assert(c.dist.bucket_mb == 25);
    ck_assert_str_eq(c.run.dir, "runs/default");
    ck_assert_int_eq(c.batch.sequences + c.batch.micro + c.batch.accumulate, 0);
}
END_TEST

START_TEST(test_require)
{
    tt_config c;
    tt_err err;
    tt_config_preset(&c);
    ck_assert_int_eq(tt_config_require(&c, &err), TT_EUSER);
    ck_assert_ptr_nonnull(strstr(err.text, "data.train is required"));
    ck_assert_int_eq(tt_config_set(&c, "test", "data.train", "x.h5", &err), TT_OK);
    ck_assert_int_eq(tt_config_require(&c, &err), TT_EUSER);
    ck_assert_ptr_nonnull(strstr(err.text, "run.steps is required"));
    ck_assert_int_eq(tt_config_set(&c, "test", "run.steps", "1", &err), TT_OK);
    ck_assert_int_eq(tt_config_require(&c, &err), TT_OK);
}
END_TEST

START_TEST(test_accepted)
{
    const char *const good[][2] = {{"model.layers", "1"},
                                   {"model.layers", "510"},
                                   {"model.dropout", "0"},
                                   {"model.dropout", "0.999999"},
                                   {"model.tie_embeddings", "false"},
                                   {"data.seed", "9223372036854775807"},
                                   {"data.valid", ""},
                                   {"optim.lr", "1e-3"},
                                   {"optim.lr", "6E-4"},
                                   {"optim.lr", "4e-320"},
                                   {"optim.clip", "0"},
                                   {"optim.min_lr", "0"},
                                   {"precision.compute", "fp32"},
                                   {"precision.loss_scale", "none"},
                                   {"precision.loss_scale", "dynamic"},
                                   {"precision.loss_scale", "65536"},
                                   {"precision.loss_scale", "1e-12"},
                                   {"scaler.growth", "1.5"},
                                   {"scaler.backoff", "0.999"},
                                   {"scaler.floor", "0.25"},
                                   {"memory.zero", "0"},
                                   {"run.threads", "1024"},
                                   {"run.save_every", "0"},
                                   {"run.exact", "false"},
                                   {"run.resume", "must"},
                                   {"run.dir", "/tmp/\xc3\xa9 x"},
                                   {"optim.schedule", "wsd"},
                                   {"data.mode", "documents"},
                                   {"optim.lr_scaling", "sqrt"}};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        tt_config c;
        tt_err err;
        tt_config_preset(&c);
        ck_assert_msg(tt_config_set(&c, "test", good[i][0], good[i][1], &err) == TT_OK, "%s=%s: %s",
                      good[i][0], good[i][1], err.text);
    }
}
END_TEST

/* Each refusal names where, the key, the value and what is allowed, and changes nothing. */
START_TEST(test_refused)
{
    const struct {
        const char *path, *value, *says;
    } bad[] = {
        {"model.layers", "0", "out of range; allowed is a whole number from 1 to 510"},
        {"model.layers", "511", "out of range"},
        {"model.layers", "-3", "out of range"},
        {"model.layers", "12.0", "not a whole number"},
        {"model.layers", "1e3", "not a whole number"},
        {"model.layers", "twelve", "not a whole number"},
        {"model.layers", "", "not a whole number"},
        {"model.layers", "0x10", "not a whole number"},
        {"model.layers", "1_000", "not a whole number"},
        {"model.layers", " 12", "not a whole number"},
        {"model.layers", "99999999999999999999", "not a whole number"},
        {"model.dropout", "1", "out of range; allowed is a number from 0 to below 1"},
        {"model.dropout", "-0.1", "out of range"},
        {"optim.lr", "0", "out of range; allowed is a number above 0"},
        {"optim.lr", "nan", "not a number"},
        {"optim.lr", "inf", "not a number"},
        {"optim.lr", "1e999", "\"1e999\" is beyond FP64"},
        {"optim.lr", "1,5", "not a number"},
        {"optim.lr", "fast", "not a number"},
        {"optim.beta1", "1.0", "out of range"},
        {"optim.eps", "0", "out of range"},
        {"optim.clip", "-1", "out of range; allowed is a number of at least 0"},
        {"model.tie_embeddings", "yes", "neither true nor false; allowed is true or false"},
        {"model.tie_embeddings", "True", "neither true nor false"},
        {"model.tie_embeddings", "1", "neither true nor false"},
        {"precision.compute", "fp64", "not one of its values; allowed is bf16, "},
        {"precision.compute", "BF16", "not one of its values"},
        {"precision.compute", "bf16|fp32", "not one of its values"},
        {"precision.compute", "", "not one of its values"},
        {"precision.loss_scale", "off",
         "is neither one of its words nor a number; allowed is none or dynamic, or a number "
         "from 1.0e-12 to 1.0e+18"},
        {"precision.loss_scale", "", "is neither one of its words"},
        {"precision.loss_scale", "none|dynamic", "is neither one of its words"},
        {"precision.loss_scale", "inf", "is neither one of its words"},
        {"precision.loss_scale", "1e400", "\"1e400\" is beyond FP64"},
        {"precision.loss_scale", "0", "out of range"},
        {"precision.loss_scale", "-1", "out of range"},
        {"precision.loss_scale", "1e19", "out of range"},
        {"scaler.growth", "1", "out of range; allowed is a number above 1"},
        {"scaler.backoff", "0", "out of range; allowed is a number above 0 and below 1"},
        {"scaler.backoff", "1", "out of range"},
        {"scaler.floor", "0", "out of range; allowed is a number from 1.0e-12 to 1.0e+18"},
        {"scaler.interval", "0", "allowed is a whole number of at least 1"},
        {"memory.zero", "4", "out of range; allowed is a whole number from 0 to 3"},
        {"memory.recompute", "all", "allowed is none, selective, sqrt or block, or auto:SIZE"},
        {"memory.recompute", "auto", "not one of its values"},
        {"memory.recompute", "auto:", "not one of its values"},
        {"memory.recompute", "auto:lots", "not one of its values"},
        {"memory.recompute", "auto:-1GiB", "not one of its values"},
        {"memory.recompute", "auto:8 GiB", "not one of its values"},
        {"optim.schedule", "cos", "allowed is constant, cosine, linear or wsd"},
        {"data.seed", "-1", "allowed is a whole number of at least 0"},
        {"data.seed", "9223372036854775808", "not a whole number"},
        {"run.dir", "", "is empty"},
        {"run.dir", "a\nb", "control characters"},
        {"run.dir", "\xff", "not UTF-8"},
        {"run.steps", "0", "allowed is a whole number of at least 1"}};
    tt_config preset;
    tt_config_preset(&preset);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        tt_config c = preset;
        tt_err err = {0};
        ck_assert_msg(tt_config_set(&c, "somewhere", bad[i].path, bad[i].value, &err) == TT_EUSER,
                      "%s=%s was taken", bad[i].path, bad[i].value);
        ck_assert_msg(strstr(err.text, bad[i].says) != NULL, "%s", err.text);
        ck_assert_msg(strstr(err.text, bad[i].path) != NULL, "%s", err.text);
        ck_assert_ptr_eq(strstr(err.text, "somewhere: "), err.text);
        ck_assert_mem_eq(&c, &preset, sizeof c);
    }
    char endless[5000];
    memset(endless, 'x', sizeof endless - 1);
    endless[sizeof endless - 1] = '\0';
    tt_config c = preset;
    tt_err err = {0};
    ck_assert_int_eq(tt_config_set(&c, "somewhere", "run.dir", endless, &err), TT_EUSER);
    ck_assert_ptr_nonnull(strstr(err.text, "run.dir: a value of 4999 bytes is too long"));
    ck_assert_int_eq(tt_config_set(&c, "somewhere", endless, "1", &err), TT_EUSER);
}
END_TEST

START_TEST(test_meant)
{
    const char *const meant[][2] = {{"model.layerz", "model.layers"},
                                    {"model.cahnnels", "model.channels"},
                                    {"modle.heads", "model.heads"},
                                    {"optim.Lr", "optim.lr"},
                                    {"optim.seed", "data.seed"},
                                    {"model.lr", "optim.lr"},
                                    {"optim.learning_rate", "optim.lr"},
                                    {"model.n_layer", "model.layers"},
                                    {"train.max_steps", "run.steps"},
                                    {"run.save_evry", "run.save_every"},
                                    {"lr", "optim.lr"},
                                    {"precision.init_scale", "scaler.start"},
                                    {"scaler.growth_interval", "scaler.interval"},
                                    {"loss_scale", "precision.loss_scale"},
                                    {"scalar.start", "scaler.start"},
                                    {"optimm", "optim"},
                                    {"optim.weightdecay", "optim.weight_decay"},
                                    {"precision.comptue", "precision.compute"}};
    for (size_t i = 0; i < sizeof meant / sizeof *meant; i++) {
        tt_config c;
        tt_err err = {0};
        char hint[100];
        snprintf(hint, sizeof hint, "(did you mean %s?)", meant[i][1]);
        tt_config_preset(&c);
        ck_assert_int_eq(tt_config_set(&c, "somewhere", meant[i][0], "1", &err), TT_EUSER);
        ck_assert_msg(strstr(err.text, hint) != NULL, "%s", err.text);
    }
    tt_config c;
    tt_err err = {0};
    tt_config_preset(&c);
    tt_config_set(&c, "somewhere", "memory.zzzzzzzz", "1", &err);
    ck_assert_ptr_null(strstr(err.text, "did you mean"));
    ck_assert_ptr_nonnull(strstr(err.text, "keys of section memory are zero, gradients"));
    tt_config_set(&c, "somewhere", "qqqqqqqq.wwwwwww", "1", &err);
    ck_assert_ptr_null(strstr(err.text, "did you mean"));
    ck_assert_ptr_nonnull(strstr(err.text, "sections are model, data, batch"));
}
END_TEST

/* A number is stored as one text however it was spelt, and reads back. */
START_TEST(test_word_or_number)
{
    const char *const same[][2] = {
        {"65536", "65536"},  {"6.5536e4", "65536"}, {"65536.0", "65536"}, {"+065536.", "65536"},
        {"1e18", "1.0e+18"}, {"0.1", "0.1"},        {"none", "none"},     {"dynamic", "dynamic"}};
    tt_config a, b;
    tt_err err;
    for (size_t i = 0; i < sizeof same / sizeof *same; i++) {
        tt_text text = {0}, json = {0};
        tt_config_preset(&a);
        memset(a.precision.loss_scale, 'x', sizeof a.precision.loss_scale - 1);
        ck_assert_int_eq(tt_config_set(&a, "test", "precision.loss_scale", same[i][0], &err),
                         TT_OK);
        ck_assert_str_eq(a.precision.loss_scale, same[i][1]);
        tt_config_text(&a, false, &text);
        ck_assert_int_eq(tt_config_parse(&b, "test", text.data, &err), TT_OK);
        ck_assert_mem_eq(&a.precision, &b.precision, sizeof a.precision);
        ck_assert_int_eq(tt_config_same_trajectory(&a, &b, NULL, &err), TT_OK);
        tt_config_value_json(&a, row("precision.loss_scale"), &json);
        ck_assert_str_eq(json.data, i == 6 ? "\"none\"" : i == 7 ? "\"dynamic\"" : same[i][1]);
        tt_text_free(&text);
        tt_text_free(&json);
    }
    tt_config_preset(&b);
    ck_assert_int_eq(tt_config_same_trajectory(&b, &a, NULL, &err), TT_EUSER);
    ck_assert_ptr_nonnull(
        strstr(err.text, "precision.loss_scale is none in the checkpoint but dynamic now"));
}
END_TEST

START_TEST(test_same_trajectory)
{
    tt_config a, b;
    tt_err err;
    tt_config_preset(&a);
    b = a;
    ck_assert_int_eq(tt_config_same_trajectory(&a, &b, NULL, &err), TT_OK);
    b.batch.micro = 7;
    b.memory.zero = 0;
    b.run.threads = 3;
    b.run.steps = 100;
    strcpy(b.data.train, "elsewhere.h5");
    ck_assert_int_eq(tt_config_same_trajectory(&a, &b, NULL, &err), TT_OK);
    b.optim.lr = 3e-4;
    ck_assert_int_eq(tt_config_same_trajectory(&a, &b, NULL, &err), TT_EUSER);
    ck_assert_ptr_nonnull(strstr(err.text, "optim.lr is 0.0006 in the checkpoint but 0.0003 now"));
    b = a;
    strcpy(b.optim.schedule, "wsd");
    ck_assert_int_eq(tt_config_same_trajectory(&a, &b, NULL, &err), TT_EUSER);
    ck_assert_ptr_nonnull(strstr(err.text, "optim.schedule is cosine"));
    b = a;
    b.model.tie_embeddings = false;
    ck_assert_int_eq(tt_config_same_trajectory(&a, &b, NULL, &err), TT_EUSER);
    b = a;
    b.data.seed++;
    ck_assert_int_eq(tt_config_same_trajectory(&a, &b, NULL, &err), TT_EUSER);
}
END_TEST

START_TEST(test_table)
{
    tt_text people = {0}, markdown = {0};
    tt_options_table(false, &people);
    tt_options_table(true, &markdown);
    ck_assert(!people.failed && !markdown.failed);
    int lines = 0;
    for (const char *s = markdown.data; *s != '\0'; s++) {
        lines += *s == '\n';
    }
    ck_assert_int_eq(lines, tt_option_count + 2);
    for (int i = 0; i < tt_option_count; i++) {
        char cell[100];
        snprintf(cell, sizeof cell, "| `%s` |", tt_options[i].path);
        ck_assert_ptr_nonnull(strstr(markdown.data, cell));
        ck_assert_ptr_nonnull(strstr(people.data, tt_options[i].path));
        ck_assert_ptr_nonnull(strstr(people.data, tt_options[i].help));
    }
    ck_assert_ptr_nonnull(strstr(markdown.data, "| `run.steps` | `required` | a whole number of at "
                                                "least 1 | free | "));
    tt_text_free(&people);
    tt_text_free(&markdown);
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("options");
    TCase *tcase = tcase_create("options");
    tcase_add_test(tcase, test_rows);
    tcase_add_test(tcase, test_presets);
    tcase_add_test(tcase, test_require);
    tcase_add_test(tcase, test_accepted);
    tcase_add_test(tcase, test_refused);
    tcase_add_test(tcase, test_meant);
    tcase_add_test(tcase, test_word_or_number);
    tcase_add_test(tcase, test_same_trajectory);
    tcase_add_test(tcase, test_table);
    suite_add_tcase(suite, tcase);
    return suite;
}

TT_TEST_MAIN(make_suite)
