/* test_hostile.c: token files that are anything at all: a sentence, or numbers that are consistent. */
#include "fuzz/h5_hostile.h"
#include "tutti/data/tokens.h"

static int good, refused;

static void inspect(const char *path, unsigned seed)
{
    tt_tokens_summary summary;
    tt_err err = {TT_OK, ""};
    const tt_code rc = tt_tokens_inspect(path, &summary, &err);
    ck_assert_msg(rc == err.code && (rc == TT_OK) == (err.text[0] == '\0'), "%d %s", rc, err.text);
    ck_assert_msg(seed > 0 || rc == TT_OK || strstr(err.text, "of a kind that is not read") != NULL,
                  "%s", err.text);
    ck_assert(rc != TT_OK || (summary.vocab >= 1 && summary.tokens >= 0 && summary.documents >= 0));
    good += rc == TT_OK;
    refused += rc != TT_OK;
}

START_TEST(anything_at_all)
{
    ck_assert_int_ge(hostile("tokens", 600, inspect), 5);
    ck_assert(good > 50 && refused > 1000);
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("hostile token files");
    TCase *tcase = tcase_create("hostile");
    tcase_add_test(tcase, anything_at_all);
    suite_add_tcase(suite, tcase);
    return suite;
}

TT_TEST_MAIN(make_suite)
