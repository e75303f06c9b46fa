/* test_config.c: YAML in, YAML out, overrides, and a sentence for every kind of bad file. */
#include <unistd.h>

#include "comma_locale.h"
#include "tt_test.h"
#include "tutti/base/options.h"

static tt_config parse_good(const char *text)
{
    tt_config c;
    tt_err err = {0};
    ck_assert_msg(tt_config_parse(&c, "t.yaml", text, &err) == TT_OK, "%s", err.text);
    return c;
}

START_TEST(test_reads)
{
    tt_config c = parse_good("# a comment\n"
                             "model: {arch: gpt2, layers: 3, dropout: 0.25,\n"
                             "        tie_embeddings: false}\n"
                             "optim:\n"
                             "  lr: 1e-3   # peak\n"
                             "  schedule: \"wsd\"\n"
                             "data:\n"
                             "  train: 'it''s here.h5'\n"
                             "  valid: ~\n"
                             "run:\n");
    ck_assert_int_eq(c.model.layers, 3);
    ck_assert_int_eq(c.model.heads, 12);
    ck_assert(c.model.dropout == 0.25 && c.optim.lr == 1e-3 && !c.model.tie_embeddings);
    ck_assert_str_eq(c.optim.schedule, "wsd");
    ck_assert_str_eq(c.data.train, "it's here.h5");
    ck_assert_str_eq(c.data.valid, "");
}
END_TEST

START_TEST(test_empty_files)
{
    tt_config preset;
    tt_config_preset(&preset);
    const char *const texts[] = {"",   "# nothing\n", "---\n",  "---\n...\n",
                                 "{}", "model:\n",    "run: {}"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        tt_config c = parse_good(texts[i]);
        ck_assert_mem_eq(&c, &preset, sizeof c);
    }
}
END_TEST

/* The mark that some editors put before UTF-8 is no text and takes no column. */
START_TEST(test_byte_order_mark)
{
    tt_config c = parse_good("\xef\xbb\xbfmodel:\n  layers: 3\nrun:\n  steps: 7\n"), preset;
    ck_assert_int_eq(c.model.layers, 3);
    ck_assert_int_eq(c.run.steps, 7);
    tt_config_preset(&preset);
    c = parse_good("\xef\xbb\xbf");
    ck_assert_mem_eq(&c, &preset, sizeof c);
    c = parse_good("\xef\xbb\xbf# nothing\n");
    ck_assert_mem_eq(&c, &preset, sizeof c);
    tt_err err = {0};
    ck_assert_int_eq(tt_config_parse(&c, "t.yaml", "\xef\xbb", &err), TT_EUSER);
    ck_assert_ptr_nonnull(strstr(err.text, "at byte 0"));
    ck_assert_int_eq(tt_config_parse(&c, "t.yaml", "\xef\xbb\xbf\xff", &err), TT_EUSER);
    ck_assert_ptr_nonnull(strstr(err.text, "at byte 3"));
}
END_TEST

START_TEST(test_bad_files)
{
    const struct {
        const char *text, *says[3];
    } bad[] = {
        {"model:\n  layers: 3\n  layerz: 4\n",
         {"t.yaml:3: unknown key", "did you mean model.layers?"}},
        {"model:\n  layers: three\n", {"t.yaml:2: model.layers: \"three\" is not", "1 to 510"}},
        {"model:\n  layers: 0\n", {"t.yaml:2: model.layers: \"0\" is out of range"}},
        {"model:\n  layers: 1\n  heads: 2\n  layers: 3\n",
         {"t.yaml:4: model.layers is given twice, first in line 2"}},
        {"model:\n  layers: 1\nrun: {}\nmodel:\n  heads: 2\n",
         {"t.yaml:4: section model is given twice"}},
        {"modle:\n  layers: 1\n", {"t.yaml:1: unknown section \"modle\"", "did you mean model?"}},
        {"lr: 1\n", {"t.yaml:1: unknown section \"lr\"", "did you mean optim.lr?"}},
        {"optim.lr: 1\n", {"t.yaml:1: unknown", "optim.lr"}},
        {"model:\n  layers: [1, 2]\n", {"t.yaml:2: model.layers wants a single value, not a list"}},
        {"model:\n  layers: {a: 1}\n",
         {"t.yaml:2: model.layers wants a single value, not a mapping"}},
        {"model: 3\n", {"t.yaml:1: section model wants keys below it, not a single value"}},
        {"model: [1]\n", {"t.yaml:1: section model wants keys below it, not a list"}},
        {"- model\n", {"t.yaml:1: sections are due here, not a list"}},
        {"just words\n", {"t.yaml:1: sections are due here, not a single value"}},
        {"model: &m {layers: 1}\n", {"t.yaml:1: anchors and aliases are not allowed"}},
        {"model:\n  layers: &n 1\n", {"t.yaml:2: anchors"}},
        {"model:\n  &n layers: 1\n", {"t.yaml:2: anchors"}},
        {"&d\nmodel: {layers: 1}\n", {"t.yaml:1: anchors"}},
        {"model:\n  layers: *n\n", {"t.yaml:2: anchors"}},
        {"model:\n  <<: {layers: 1}\n", {"t.yaml:2: unknown key"}},
        {"model:\n  layers: !!int 1\n", {"t.yaml:2: tags are not allowed"}},
        {"? [a, b]\n: 1\n", {"t.yaml:1: a name is due here, not a list"}},
        {"model:\n  ? {a: b}\n  : 1\n", {"t.yaml:2: a name is due here, not a mapping"}},
        {"model: {}\n---\nrun: {}\n", {"t.yaml:2: a second document begins here"}},
        {"model:\n\tlayers: 1\n", {"t.yaml:2: is not YAML"}},
        {"model: {layers: 1\n", {"t.yaml:2: is not YAML"}},
        {"model:\n  layers: \"12\"\n", {"t.yaml:2: model.layers is quoted"}},
        {"model:\n  tie_embeddings: yes\n", {"t.yaml:2: model.tie_embeddings: \"yes\" is neither"}},
        {"model:\n  tie_embeddings: 'true'\n", {"t.yaml:2: model.tie_embeddings is quoted"}},
        {"model:\n  layers:\n", {"t.yaml:2: model.layers: \"\" is not a whole number"}},
        {"model:\n  layers: ~\n", {"t.yaml:2: model.layers: \"~\" is not a whole number"}},
        {"run:\n  dir: \"a\\0b\"\n", {"t.yaml:2: run.dir holds a NUL byte"}},
        {"run:\n  dir: \"a\\nb\"\n", {"t.yaml:2: run.dir", "control characters"}},
        {"run:\n  dir: |\n    a\n", {"t.yaml:2: run.dir", "control characters"}},
        {"\"mo\\0del\": {}\n", {"t.yaml:1: this name is no key"}},
        {"run:\n  dir: \xff\n", {"t.yaml: is not YAML text", "UTF-8"}},
        {"precision: {fp32_op: [norm]}\n",
         {"t.yaml:1: unknown key \"precision.fp32_op\"", "did you mean precision.fp32_ops?"}},
        {"precision: {compute: fp64}\n",
         {"t.yaml:1: precision.compute: \"fp64\"", "allowed is bf16"}},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        tt_config c;
        tt_err err = {0};
        ck_assert_msg(tt_config_parse(&c, "t.yaml", bad[i].text, &err) == TT_EUSER, "taken: %s",
                      bad[i].text);
        for (int k = 0; k < 3 && bad[i].says[k] != NULL; k++) {
            ck_assert_msg(strstr(err.text, bad[i].says[k]) != NULL, "%s\n---\n%s", bad[i].text,
                          err.text);
        }
        ck_assert_msg(strchr(err.text, '\n') == NULL, "%s", err.text);
    }
}
END_TEST

/* Deep nesting and floods end at the first wrong event, whatever follows. */
START_TEST(test_hostile)
{
    enum { DEEP = 100000 };
    char *text = malloc(DEEP + 16);
    tt_config c;
    tt_err err = {0};
    memset(text, '[', DEEP);
    text[DEEP] = '\0';
    ck_assert_int_eq(tt_config_parse(&c, "t.yaml", text, &err), TT_EUSER);
    memset(text, 'a', DEEP);
    memcpy(text + DEEP, ": 1\n", 5);
    ck_assert_int_eq(tt_config_parse(&c, "t.yaml", text, &err), TT_EUSER);
    memcpy(text, "run: {dir: ", 11);
    memcpy(text + DEEP, "}\n", 3);
    ck_assert_int_eq(tt_config_parse(&c, "t.yaml", text, &err), TT_EUSER);
    ck_assert_ptr_nonnull(strstr(err.text, "is too long"));
    free(text);
}
END_TEST

static void check_round_trip(const tt_config *c)
{
    tt_text text = {0}, again = {0};
    tt_config_text(c, false, &text);
    ck_assert(!text.failed);
    tt_config back = parse_good(text.data);
    ck_assert_mem_eq(&back, c, sizeof back);
    tt_config_text(&back, false, &again);
    ck_assert_str_eq(text.data, again.data);
    tt_text_free(&text);
    tt_text_free(&again);
}

static void check_odd_values(void)
{
    tt_config c;
    tt_err err;
    tt_config_preset(&c);
    check_round_trip(&c);
    const char *const set[][2] = {{"data.train", "C:\\x \"y\" # z: \xc3\xa9/\xf0\x9f\x8e\xbc.h5"},
                                  {"run.dir", " - [a] {b} & * ! | > ' % @ `"},
                                  {"data.seed", "9223372036854775807"},
                                  {"run.init_from", "null"},
                                  {"run.dump_gradients", "~"},
                                  {"optim.lr", "0.1234567890123456789"},
                                  {"optim.eps", "4.9e-324"},
                                  {"optim.weight_decay", "1.7976931348623157e308"},
                                  {"run.trace_data", "true"},
                                  {"precision.compute", "fp32"},
                                  {"run.steps", "1000000"}};
    for (size_t i = 0; i < sizeof set / sizeof *set; i++) {
        ck_assert_msg(tt_config_set(&c, "t", set[i][0], set[i][1], &err) == TT_OK, "%s", err.text);
    }
    check_round_trip(&c);
}

START_TEST(test_round_trip)
{
    check_odd_values();
    in_comma_locale(check_odd_values);
}
END_TEST

/* YAML 1.1 takes 1e-08 for a string: a number with an exponent is stored with a dot. */
START_TEST(test_numbers_for_other_readers)
{
    tt_config c;
    tt_text text = {0};
    tt_config_preset(&c);
    c.optim.lr = 2.5e-7;
    c.optim.clip = 1e6;
    tt_config_text(&c, false, &text);
    ck_assert_ptr_nonnull(strstr(text.data, "  eps: 1.0e-08\n"));
    ck_assert_ptr_nonnull(strstr(text.data, "  lr: 2.5e-07\n"));
    ck_assert_ptr_nonnull(strstr(text.data, "  clip: 1.0e+06\n"));
    tt_text_free(&text);
    check_round_trip(&c);
}
END_TEST

START_TEST(test_scope)
{
    tt_config c;
    tt_config_preset(&c);
    tt_text all = {0}, global = {0};
    tt_config_text(&c, false, &all);
    tt_config_text(&c, true, &global);
    ck_assert_ptr_nonnull(strstr(all.data, "  threads: 0\n"));
    ck_assert_ptr_null(strstr(global.data, "threads"));
    c.run.threads = 5;
    tt_text other = {0};
    tt_config_text(&c, true, &other);
    ck_assert_str_eq(global.data, other.data);
    tt_text_free(&all);
    tt_text_free(&global);
    tt_text_free(&other);
}
END_TEST

START_TEST(test_overrides)
{
    char path[] = "/tmp/tutti-config-XXXXXX";
    int fd = mkstemp(path);
    ck_assert_int_ge(fd, 0);
    const char text[] = "optim: {lr: 0.5}\nrun: {steps: 10}\n";
    ck_assert_int_eq(write(fd, text, sizeof text - 1), (ssize_t)sizeof text - 1);
    close(fd);
    tt_config c;
    tt_err err = {0};
    char rate[] = "optim.lr=0.25", five[] = "run.steps=5", seven[] = "run.steps=7";
    char dir[] = "run.dir=a=b";
    char *good[] = {rate, five, seven, dir};
    ck_assert_msg(tt_config_load(&c, path, 4, good, &err) == TT_OK, "%s", err.text);
    ck_assert(c.optim.lr == 0.25 && c.run.steps == 7);
    ck_assert_str_eq(c.run.dir, "a=b");
    ck_assert_int_eq(tt_config_load(&c, path, 0, NULL, &err), TT_OK);
    ck_assert(c.optim.lr == 0.5);
    c.optim.clip = 3; /* no file: the overrides alone, onto what is there */
    ck_assert_int_eq(tt_config_load(&c, NULL, 4, good, &err), TT_OK);
    ck_assert(c.optim.lr == 0.25 && c.optim.clip == 3);

    const char *const bad[][2] = {{"optim.lrr=1", "argument optim.lrr=1: unknown key"},
                                  {"optim.lr=x", "argument optim.lr=x: optim.lr: \"x\" is not"},
                                  {"optim.lr", "argument optim.lr: an override is written"},
                                  {"optim=1", "argument optim=1: an override is written"},
                                  {"lr=1", "did you mean optim.lr?"},
                                  {"--steps=3", "unknown"},
                                  {"=", "unknown"}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char *argument[] = {five, (char *)(uintptr_t)bad[i][0]};
        ck_assert_int_eq(tt_config_load(&c, path, 2, argument, &err), TT_EUSER);
        ck_assert_msg(strstr(err.text, bad[i][1]) != NULL, "%s", err.text);
    }
    unlink(path);
    ck_assert_int_eq(tt_config_load(&c, path, 0, NULL, &err), TT_EUSER);
    ck_assert_ptr_nonnull(strstr(err.text, path));
    ck_assert_int_eq(tt_config_load(&c, "/tmp", 0, NULL, &err), TT_EUSER);
    ck_assert_int_eq(tt_config_load(&c, "/dev/zero", 0, NULL, &err), TT_EUSER);
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("config");
    TCase *tcase = tcase_create("config");
    tcase_add_test(tcase, test_reads);
    tcase_add_test(tcase, test_empty_files);
    tcase_add_test(tcase, test_byte_order_mark);
    tcase_add_test(tcase, test_bad_files);
    tcase_add_test(tcase, test_hostile);
    tcase_add_test(tcase, test_round_trip);
    tcase_add_test(tcase, test_numbers_for_other_readers);
    tcase_add_test(tcase, test_scope);
    tcase_add_test(tcase, test_overrides);
    suite_add_tcase(suite, tcase);
    return suite;
}

TT_TEST_MAIN(make_suite)
