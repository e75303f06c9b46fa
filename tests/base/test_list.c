/* test_list.c: an option that is a list of words: from YAML and overrides, as text, refused. */
#include "tt_test.h"
#include "tutti/base/options.h"

START_TEST(test_read)
{
    /* In any order and form, the same text. */
    static const char *const same[] = {"precision: {fp32_ops: [head, qkv]}\n",
                                       "precision: {fp32_ops: [qkv, 'head']}\n",
                                       "precision:\n  fp32_ops:\n  - head\n  - qkv\n",
                                       "precision:\n  fp32_ops: [\n    qkv,\n    head,\n  ]\n",
                                       "precision: {fp32_ops: 'head,qkv'}\n"};
    for (size_t i = 0; i < sizeof same / sizeof *same; i++) {
        tt_config c;
        tt_err err = {0};
        ck_assert_msg(tt_config_parse(&c, "t.yaml", same[i], &err) == TT_OK, "%s: %s", same[i],
                      err.text);
        ck_assert_str_eq(c.precision.fp32_ops, "qkv,head");
    }
    static const char *const none[] = {"{}\n", "precision: {fp32_ops: []}\n",
                                       "precision:\n  fp32_ops:\n", "precision: {fp32_ops: ~}\n"};
    for (size_t i = 0; i < sizeof none / sizeof *none; i++) {
        tt_config c;
        tt_err err = {0};
        ck_assert_msg(tt_config_parse(&c, "t.yaml", none[i], &err) == TT_OK, "%s: %s", none[i],
                      err.text);
        ck_assert_str_eq(c.precision.fp32_ops, "");
    }
}
END_TEST

START_TEST(test_override)
{
    static const char *const given[][2] = {{"precision.fp32_ops=head,qkv", "qkv,head"},
                                           {"precision.fp32_ops=[head,qkv]", "qkv,head"},
                                           {"precision.fp32_ops=[ head , qkv ]", "qkv,head"},
                                           {"precision.fp32_ops=loss", "loss"},
                                           {"precision.fp32_ops=[]", ""},
                                           {"precision.fp32_ops=[ ]", ""},
                                           {"precision.fp32_ops=", ""}};
    tt_config c;
    tt_config_preset(&c);
    for (size_t i = 0; i < sizeof given / sizeof *given; i++) {
        tt_err err = {0};
        char *argument[] = {(char *)given[i][0]};
        ck_assert_msg(tt_config_load(&c, NULL, 1, argument, &err) == TT_OK, "%s", err.text);
        ck_assert_str_eq(c.precision.fp32_ops, given[i][1]);
    }
}
END_TEST

/* All words at once have room, and what is written reads back equal. */
START_TEST(test_round_trip)
{
    static const char *const lists[] = {
        "[]", "[head]", "[qkv, head]",
        "[embed, norm, qkv, attention, softmax, proj, residual, fc, gelu, down, head, loss, "
        "weight_gradients, reduction, optimizer]"};
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        tt_config c, again;
        tt_err err = {0};
        tt_text text = {0};
        char line[200];
        tt_config_preset(&c);
        ck_assert_int_eq(tt_config_set(&c, "test", "precision.fp32_ops", lists[i], &err), TT_OK);
        tt_config_text(&c, false, &text);
        snprintf(line, sizeof line, "  fp32_ops: %s\n", lists[i]);
        ck_assert_msg(strstr(text.data, line) != NULL, "%s", text.data);
        ck_assert_int_eq(tt_config_parse(&again, "t.yaml", text.data, &err), TT_OK);
        ck_assert_mem_eq(&c.precision, &again.precision, sizeof c.precision);
        tt_text_free(&text);
    }
}
END_TEST

START_TEST(test_refused)
{
    static const struct {
        const char *text, *says[3];
    } bad[] = {
        {"precision: {fp32_ops: [head, qvk]}\n",
         {"t.yaml:1: precision.fp32_ops: \"[head,qvk]\" holds a word it does not know",
          "(did you mean qkv?); allowed is a list [...] of any of embed",
          "reduction or optimizer"}},
        {"precision:\n  fp32_ops: [head, qkv, head]\n", {"t.yaml:2: ", "names head twice"}},
        {"precision:\n  fp32_ops:\n  - head\n  - everything\n",
         {"t.yaml:3: ", "holds a word it does not know;"}},
        {"precision: {fp32_ops: [[head], qkv]}\n", {"t.yaml:1: ", "here is a list"}},
        {"precision: {fp32_ops: [{head: qkv}]}\n", {"t.yaml:1: ", "here is a mapping"}},
        {"precision: {fp32_ops: {head: true}}\n", {"t.yaml:1: ", "wants a list, not a mapping"}},
        {"precision: {fp32_ops: ['head,qkv']}\n", {"one with a comma in it"}},
        {"precision: {fp32_ops: ['']}\n", {"an empty one"}},
        {"precision: {fp32_ops: &a [head]}\n", {"anchors"}},
        {"precision: {fp32_ops: [&a head]}\n", {"anchors"}},
        {"precision: {fp32_ops: !!seq [head]}\n", {"tags"}},
        {"precision: {fp32_ops: 'head,,qkv'}\n", {"has an empty place"}},
        {"precision: {fp32_ops: 'head,'}\n", {"has an empty place"}},
        {"precision: {fp32_ops: '[head'}\n", {"\"[head\" lacks its closing ]; allowed is"}},
        {"precision: {fp32_ops: 'head]'}\n", {"\"head]\" lacks its opening [; allowed is"}},
        {"precision: {fp32_ops: '['}\n", {"lacks its closing ]"}},
        {"precision: {fp32_ops: '[head]]'}\n", {"a word it does not know (did you mean head?)"}},
        {"precision: {fp32_ops: ['[head]']}\n", {"a word it does not know (did you mean head?)"}},
        {"precision: {fp32_ops: ['[head', 'qkv]']}\n", {"a word it does not know"}},
        {"precision: {fp32_ops: [\"he\\0ad\"]}\n",
         {"t.yaml:1: precision.fp32_ops holds a NUL byte"}},
        {"precision: {fp32_ops: HEAD}\n", {"holds a word it does not know"}},
        {"precision: {fp32_ops: [head]}\nmodel: {layers: [1]}\n",
         {"t.yaml:2: model.layers wants a single value, not a list"}},
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
        ck_assert_str_eq(c.precision.fp32_ops, i + 1 < sizeof bad / sizeof *bad ? "" : "head");
    }
}
END_TEST

START_TEST(test_trajectory)
{
    tt_config a, b;
    tt_err err = {0};
    tt_config_preset(&a);
    tt_config_preset(&b);
    ck_assert_int_eq(tt_config_set(&a, "test", "precision.fp32_ops", "head,fc", &err), TT_OK);
    ck_assert_int_eq(tt_config_same_trajectory(&a, &b, NULL, &err), TT_EUSER);
    ck_assert_ptr_nonnull(
        strstr(err.text, "precision.fp32_ops is [fc, head] in the checkpoint but [] now"));
    ck_assert_int_eq(tt_config_set(&b, "test", "precision.fp32_ops", "[fc, head]", &err), TT_OK);
    ck_assert_int_eq(tt_config_same_trajectory(&a, &b, NULL, &err), TT_OK);
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("list");
    TCase *tcase = tcase_create("list");
    tcase_add_test(tcase, test_read);
    tcase_add_test(tcase, test_override);
    tcase_add_test(tcase, test_round_trip);
    tcase_add_test(tcase, test_refused);
    tcase_add_test(tcase, test_trajectory);
    suite_add_tcase(suite, tcase);
    return suite;
}

TT_TEST_MAIN(make_suite)
