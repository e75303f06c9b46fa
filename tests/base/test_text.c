/* test_text.c: growing strings, JSON, numbers in every locale, near names. */
#include "comma_locale.h"
#include "tt_test.h"
#include "tutti/base/status.h"
#include "tutti/base/text.h"

START_TEST(test_bytes)
{
    static const struct {
        const char *text;
        int64_t bytes;
    } yes[] = {{"0", 0},
               {"4096", 4096},
               {"12B", 12},
               {"1.5KiB", 1536},
               {"8GiB", INT64_C(8) << 30},
               {"8G", INT64_C(8) << 30},
               {"900M", INT64_C(900) << 20},
               {"2TiB", INT64_C(2) << 40},
               {"16GB", INT64_C(16000000000)},
               {"1kB", 1000},
               {".5MB", 500000}};
    static const char *const no[] = {
        "",     "GiB", "-1",    "+1",  "1 GiB", "1gib", "1e9",        "1.2.3",
        "0x10", ".",   "1GiBs", "nan", "9TB9",  "inf",  "8388608TiB", "9223372036854775808"};
    int64_t bytes;
    for (size_t k = 0; k < sizeof yes / sizeof *yes; k++) {
        ck_assert_msg(tt_parse_bytes(yes[k].text, &bytes) && bytes == yes[k].bytes, "%s",
                      yes[k].text);
    }
    for (size_t k = 0; k < sizeof no / sizeof *no; k++) {
        ck_assert_msg(!tt_parse_bytes(no[k], &bytes), "%s", no[k]);
    }
}
END_TEST

START_TEST(test_grows)
{
    tt_text text = {0};
    for (int i = 0; i < 1000; i++) {
        tt_text_add(&text, "%d,", i);
    }
    ck_assert(!text.failed);
    ck_assert_uint_eq(text.length, strlen(text.data));
    ck_assert_uint_eq(text.length, 10 * 2 + 90 * 3 + 900 * 4);
    ck_assert_str_eq(text.data + text.length - 8, "998,999,");
    tt_text_free(&text);
    ck_assert_ptr_null(text.data);
    tt_text_free(&text);
    tt_text_add_bytes(&text, "", 0);
    ck_assert_str_eq(text.data, "");
    tt_text_add_bytes(&text, "x", SIZE_MAX / 2); /* refused before it is read */
    ck_assert(text.failed);
    tt_text_add(&text, "y");
    ck_assert_str_eq(text.data, "");
    tt_text_free(&text);
}
END_TEST

static void check_json(const char *value, const char *expected)
{
    tt_text text = {0};
    tt_text_add_json(&text, value);
    ck_assert_str_eq(text.data, expected);
    tt_text_free(&text);
}

START_TEST(test_json)
{
    check_json("", "\"\"");
    check_json("a \"b\" \\ / c", "\"a \\\"b\\\" \\\\ / c\"");
    check_json("\n\r\t\b\f\x01\x1f\x7f", "\"\\n\\r\\t\\b\\f\\u0001\\u001f\x7f\"");
    check_json("\xc3\xa9 \xe2\x82\xac \xf0\x9f\x8e\xbc",
               "\"\xc3\xa9 \xe2\x82\xac \xf0\x9f\x8e\xbc\"");
    check_json("a\xff", "\"a\\ufffd\"");
    check_json("\xc3", "\"\\ufffd\"");                                  /* cut off */
    check_json("\xc0\xaf", "\"\\ufffd\\ufffd\"");                       /* too long for its value */
    check_json("\xed\xa0\x80", "\"\\ufffd\\ufffd\\ufffd\"");            /* a surrogate */
    check_json("\xf4\x90\x80\x80", "\"\\ufffd\\ufffd\\ufffd\\ufffd\""); /* beyond U+10FFFF */
    check_json("\xe2\x82z", "\"\\ufffd\\ufffdz\"");
    ck_assert(tt_text_is_clean("/data/\xc3\xa9 x") && tt_text_is_clean(""));
    ck_assert(!tt_text_is_clean("a\nb") && !tt_text_is_clean("\xff") && !tt_text_is_clean("\x7f"));
}
END_TEST

static void check_numbers(void)
{
    int64_t i = 0;
    ck_assert(tt_parse_int("0", &i) && i == 0);
    ck_assert(tt_parse_int("-12", &i) && i == -12);
    ck_assert(tt_parse_int("+7", &i) && i == 7);
    ck_assert(tt_parse_int("007", &i) && i == 7);
    ck_assert(tt_parse_int("9223372036854775807", &i) && i == INT64_MAX);
    ck_assert(tt_parse_int("-9223372036854775808", &i) && i == INT64_MIN);
    const char *const no_int[] = {"",
                                  " 1",
                                  "1 ",
                                  "1.0",
                                  "1e3",
                                  "0x10",
                                  "1_000",
                                  "--1",
                                  "+",
                                  "1,0",
                                  "inf",
                                  "-",
                                  "9223372036854775808",
                                  "\xd9\xa1"};
    for (size_t k = 0; k < sizeof no_int / sizeof *no_int; k++) {
        ck_assert_msg(!tt_parse_int(no_int[k], &i), "%s", no_int[k]);
    }
    double d = 0;
    const struct {
        const char *text;
        double value;
    } yes[] = {{"0", 0},
               {"1e-3", 1e-3},
               {"6E-4", 6e-4},
               {"+.5", 0.5},
               {"-1.", -1},
               {"1.5", 1.5},
               {"1e+2", 100},
               {"0012.50", 12.5},
               {"4e-320", 4e-320},
               {"0.1", 0.1},
               {"1.7976931348623157e308", 1.7976931348623157e308}};
    for (size_t k = 0; k < sizeof yes / sizeof *yes; k++) {
        ck_assert_msg(tt_parse_double(yes[k].text, &d) && d == yes[k].value, "%s", yes[k].text);
    }
    const char *const no[] = {"",        ".",     "e5",     "1e",    "1e+", " 1",
                              "1 ",      "inf",   "nan",    "0x1p3", "1,5", "1.5.",
                              "1_000.0", "1e400", "1e-400", "1f",    "--1", "1 000"};
    for (size_t k = 0; k < sizeof no / sizeof *no; k++) {
        ck_assert_msg(!tt_parse_double(no[k], &d), "%s", no[k]);
    }
}

static void check_shortest(void)
{
    const struct {
        double value;
        const char *text;
    } known[] = {{0, "0"},
                 {1, "1"},
                 {0.1, "0.1"},
                 {6e-4, "0.0006"},
                 {1e-8, "1.0e-08"},
                 {-1e300, "-1.0e+300"},
                 {1.5e-7, "1.5e-07"},
                 {2.5, "2.5"},
                 {-1.25, "-1.25"},
                 {NAN, "null"},
                 {-INFINITY, "null"},
                 {1.0 / 3, "0.3333333333333333"}};
    for (size_t k = 0; k < sizeof known / sizeof *known; k++) {
        tt_text text = {0};
        tt_text_add_double(&text, known[k].value);
        ck_assert_str_eq(text.data, known[k].text);
        double back;
        ck_assert(!isfinite(known[k].value) ||
                  (tt_parse_double(text.data, &back) && back == known[k].value));
        tt_text_free(&text);
    }
}

static void check_both(void)
{
    check_numbers();
    check_shortest();
}

START_TEST(test_numbers)
{
    check_both();
    in_comma_locale(check_both);
}
END_TEST

START_TEST(test_edit_distance)
{
    const struct {
        const char *a, *b;
        int distance;
    } known[] = {{"", "", 0},
                 {"", "abc", 3},
                 {"layers", "layers", 0},
                 {"layerz", "layers", 1},
                 {"layer", "layers", 1},
                 {"laeyrs", "layers", 1},
                 {"kitten", "sitting", 3},
                 {"ca", "abc", 3},
                 {"lr", "clip", 3}};
    for (size_t k = 0; k < sizeof known / sizeof *known; k++) {
        ck_assert_int_eq(tt_edit_distance(known[k].a, known[k].b), known[k].distance);
        ck_assert_int_eq(tt_edit_distance(known[k].b, known[k].a), known[k].distance);
    }
    char endless[5000];
    memset(endless, 'x', sizeof endless - 1);
    endless[sizeof endless - 1] = '\0';
    ck_assert_int_eq(tt_edit_distance(endless, "lr"), 4999);
}
END_TEST

START_TEST(test_human_bytes)
{
    char out[32];
    const struct {
        double bytes;
        const char *text;
    } known[] = {{0, "0 B"},
                 {1023, "1023 B"},
                 {1024, "1.0 KiB"},
                 {1.5 * (1 << 30), "1.5 GiB"},
                 {12.0 * (1 << 20), "12.0 MiB"},
                 {1048575, "1.0 MiB"},
                 {0x1p80, "1048576.0 EiB"}};
    for (size_t k = 0; k < sizeof known / sizeof *known; k++) {
        tt_human_bytes(known[k].bytes, out);
        ck_assert_str_eq(out, known[k].text);
    }
}
END_TEST

START_TEST(test_fail)
{
    tt_err err = {0};
    ck_assert_int_eq(tt_fail(&err, TT_EUSER, "key %s", "lr"), TT_EUSER);
    ck_assert_int_eq(err.code, TT_EUSER);
    ck_assert_str_eq(err.text, "key lr");
    tt_fail(&err, err.code, "file: %s", err.text); /* wraps itself */
    ck_assert_str_eq(err.text, "file: key lr");
    for (int i = 0; i < 400; i++) {
        tt_fail(&err, TT_EWORLD, "again: %s", err.text);
    }
    ck_assert_uint_eq(strlen(err.text), TT_ERR_TEXT - 1);
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("text");
    TCase *tcase = tcase_create("text");
    tcase_add_test(tcase, test_grows);
    tcase_add_test(tcase, test_json);
    tcase_add_test(tcase, test_numbers);
    tcase_add_test(tcase, test_bytes);
    tcase_add_test(tcase, test_edit_distance);
    tcase_add_test(tcase, test_human_bytes);
    tcase_add_test(tcase, test_fail);
    suite_add_tcase(suite, tcase);
    return suite;
}

TT_TEST_MAIN(make_suite)
