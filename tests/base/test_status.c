/* test_status.c: an error is filled, wrapped, cut; the first one is kept. */
#include "tt_test.h"
#include "tutti/base/status.h"

START_TEST(test_fail)
{
    tt_err err = {0};
    char word[2 * TT_ERR_TEXT];
    ck_assert_int_eq(tt_fail(&err, TT_EUSER, "%s is %d", "x", 3), TT_EUSER);
    ck_assert_int_eq(err.code, TT_EUSER);
    ck_assert_str_eq(err.text, "x is 3");
    ck_assert_int_eq(tt_fail(&err, TT_EWORLD, "file: %s", err.text), TT_EWORLD);
    ck_assert_int_eq(err.code, TT_EWORLD);
    ck_assert_str_eq(err.text, "file: x is 3");
    tt_fail(&err, TT_EUSER, "no such key: %s", "\033[2J\nrm\177\tü");
    ck_assert_str_eq(err.text, "no such key: ?[2J?rm??ü");
    memset(word, 'w', sizeof word);
    word[sizeof word - 1] = '\0';
    tt_fail(&err, TT_EUSER, "%s", word);
    ck_assert_uint_eq(strlen(err.text), TT_ERR_TEXT - 1);
}
END_TEST

START_TEST(test_nothing_is_kept)
{
    tt_err first = {0}, err;
    tt_fail(&err, TT_EUSER, "of another call");
    ck_assert_int_eq(tt_keep_first(&first, TT_OK, &err), TT_OK);
    ck_assert_int_eq(first.code, TT_OK);
    ck_assert_str_eq(first.text, "");
    ck_assert_str_eq(err.text, "of another call");
}
END_TEST

START_TEST(test_first_is_kept)
{
    tt_err first = {0}, err, later;
    tt_code code = tt_fail(&err, TT_EWORLD, "the disk is full");
    ck_assert_int_eq(tt_keep_first(&first, code, &err), TT_EWORLD);
    ck_assert_str_eq(first.text, "the disk is full");
    ck_assert_str_eq(err.text, "the disk is full");

    code = tt_fail(&later, TT_EUSER, "the second");
    ck_assert_int_eq(tt_keep_first(&first, code, &later), TT_EWORLD);
    ck_assert_int_eq(later.code, TT_EWORLD);
    ck_assert_str_eq(later.text, "the disk is full");
    ck_assert_str_eq(first.text, "the disk is full");

    later = (tt_err){0};
    ck_assert_int_eq(tt_keep_first(&first, TT_OK, &later), TT_EWORLD);
    ck_assert_int_eq(later.code, TT_EWORLD);
    ck_assert_str_eq(later.text, "the disk is full");
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("status");
    TCase *tests = tcase_create("status");
    tcase_add_test(tests, test_fail);
    tcase_add_test(tests, test_nothing_is_kept);
    tcase_add_test(tests, test_first_is_kept);
    suite_add_tcase(suite, tests);
    return suite;
}

TT_TEST_MAIN(make_suite)
