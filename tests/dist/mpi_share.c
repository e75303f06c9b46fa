/* mpi_share.c: what rank 0 found out is told to all. */
#define TT_MPI_TEST
#include "tt_test.h"

#include "tutti/dist/share.h"

#define W (&tt_test_world)

/* All ranks end with rank 0's bytes. */
static void check_share(const char *bytes, size_t length)
{
    tt_text text = {0};
    tt_err err;
    if (W->rank == 0) {
        tt_text_add_bytes(&text, bytes, length);
    }
    ck_assert(tt_all(tt_share_text(W, &text, &err) == TT_OK));
    ck_assert(tt_all(text.length == length));
    ck_assert(tt_all(length == 0 || memcmp(text.data, bytes, length) == 0));
    tt_text_free(&text);
}

START_TEST(shares)
{
    check_share("run/step-00000100.h5", 20);
    check_share("", 0);
    check_share("a\0b", 3); /* bytes, not a string */
    static char large[1 << 20];
    memset(large, 'x', sizeof large);
    check_share(large, sizeof large);
}
END_TEST

START_TEST(no_world)
{
    tt_text text = {0};
    tt_err err;
    tt_text_add(&text, "alone");
    ck_assert(tt_all(tt_share_text(NULL, &text, &err) == TT_OK));
    ck_assert(tt_all(strcmp(text.data, "alone") == 0));
    tt_text_free(&text);
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("dist/share");
    TCase *tests = tcase_create("share");
    tcase_add_test(tests, shares);
    tcase_add_test(tests, no_world);
    suite_add_tcase(suite, tests);
    return suite;
}

TT_MPI_TEST_MAIN(make_suite)
