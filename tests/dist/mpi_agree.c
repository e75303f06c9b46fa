/* mpi_agree.c: one status on all ranks, in every combination of failures, and one text. */
#define TT_MPI_TEST
#include "tt_test.h"

#define W (&tt_test_world)

START_TEST(all_well)
{
    tt_err err = {.text = "untouched"};
    tt_wire before = W->wire;
    ck_assert(tt_all(tt_agree(W, TT_OK, &err) == TT_OK));
    ck_assert(tt_all(strcmp(err.text, "untouched") == 0));
    /* cheap: one small allreduce */
    ck_assert(tt_all(W->wire.calls - before.calls == (W->size == 1 ? 0 : 1)));
    ck_assert(tt_all(W->wire.bytes - before.bytes <= 8));
}
END_TEST

START_TEST(any_subset_fails)
{
    /* Every set of failing ranks; each with its own text: the lowest speaks for all. */
    for (int set = 1; set < 1 << W->size; set++) {
        tt_err err;
        tt_code own = TT_OK;
        if (set >> W->rank & 1) {
            own = tt_fail(&err, W->rank % 2 == 0 ? TT_EUSER : TT_EWORLD, "trouble %d", W->rank);
        }
        int lowest = 0;
        while (!(set >> lowest & 1)) {
            lowest++;
        }
        char want[64];
        snprintf(want, sizeof want, W->size == 1 ? "trouble %d" : "rank %d: trouble %d", lowest,
                 lowest);
        tt_code want_code = lowest % 2 == 0 ? TT_EUSER : TT_EWORLD;
        ck_assert(tt_all(tt_agree(W, own, &err) == want_code));
        ck_assert(tt_all(err.code == want_code && strcmp(err.text, want) == 0));
    }
}
END_TEST

START_TEST(all_fail_alike)
{
    tt_err err;
    tt_code own = tt_fail(&err, TT_EUSER, "no such file: x");
    ck_assert(tt_all(tt_agree(W, own, &err) == TT_EUSER));
    ck_assert(tt_all(err.code == TT_EUSER && strcmp(err.text, "no such file: x") == 0));
    /* and an agreement about what was agreed adds nothing */
    ck_assert(tt_all(tt_agree(W, err.code, &err) == TT_EUSER));
    ck_assert(tt_all(strcmp(err.text, "no such file: x") == 0));
}
END_TEST

START_TEST(some_fail_alike)
{
    /* All but the last rank say the same: still not all. */
    tt_err err;
    tt_code own = TT_OK;
    if (W->rank < W->size - 1 || W->size == 1) {
        own = tt_fail(&err, TT_EWORLD, "disk full");
    }
    ck_assert(tt_all(tt_agree(W, own, &err) == TT_EWORLD));
    ck_assert(tt_all(strcmp(err.text, W->size == 1 ? "disk full" : "rank 0: disk full") == 0));
}
END_TEST

START_TEST(same_text_other_code)
{
    tt_err err;
    tt_code own = tt_fail(&err, W->rank == 0 ? TT_EUSER : TT_EWORLD, "the same");
    ck_assert(tt_all(tt_agree(W, own, &err) == TT_EUSER));
    ck_assert(tt_all(strcmp(err.text, W->size == 1 ? "the same" : "rank 0: the same") == 0));
}
END_TEST

START_TEST(same_code_other_text)
{
    tt_err err;
    tt_code own = tt_fail(&err, TT_EWORLD, "trouble %d", W->rank);
    ck_assert(tt_all(tt_agree(W, own, &err) == TT_EWORLD));
    ck_assert(tt_all(strcmp(err.text, W->size == 1 ? "trouble 0" : "rank 0: trouble 0") == 0));
}
END_TEST

START_TEST(long_text_is_cut)
{
    tt_err err;
    tt_code own = TT_OK;
    char text[TT_ERR_TEXT];
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    if (W->rank == W->size - 1) {
        own = tt_fail(&err, TT_ESTOP, "%s", text);
    }
    ck_assert(tt_all(tt_agree(W, own, &err) == TT_ESTOP));
    ck_assert(tt_all(strlen(err.text) == TT_ERR_TEXT - 1));
}
END_TEST

START_TEST(no_world)
{
    tt_err err;
    ck_assert(tt_all(tt_agree(NULL, TT_OK, &err) == TT_OK));
    tt_fail(&err, TT_EUSER, "alone");
    ck_assert(tt_all(tt_agree(NULL, TT_EUSER, &err) == TT_EUSER));
    ck_assert(tt_all(strcmp(err.text, "alone") == 0));
}
END_TEST

START_TEST(same_texts)
{
    tt_err err;
    tt_wire before = W->wire;
    ck_assert(tt_all(tt_agree_text(W, "configuration", "optim:\n  lr: 0.001\n", &err) == TT_OK));
    ck_assert(tt_all(tt_agree_text(W, "configuration", "", &err) == TT_OK));
    ck_assert(tt_all(W->wire.calls - before.calls == (W->size == 1 ? 0 : 2)));
}
END_TEST

/* Rank `odd` has text b, the others a. */
static void expect(int odd, const char *a, const char *b, const char *want)
{
    if (W->size <= odd) {
        return;
    }
    tt_err err = {0};
    tt_code rc = tt_agree_text(W, "configuration", W->rank == odd ? b : a, &err);
    if (strcmp(err.text, want) != 0) {
        fprintf(stderr, "rank %d: %s\n", W->rank, err.text);
    }
    ck_assert(tt_all(rc == TT_EUSER && err.code == TT_EUSER && strcmp(err.text, want) == 0));
}

START_TEST(different_texts)
{
    const char *base = "seed: 1\noptim:\n  lr: 0.001\n  beta1: 0.9\nrun:\n  steps: 10\n";
    const char *lr = "seed: 1\noptim:\n  lr: 0.002\n  beta1: 0.8\nrun:\n  steps: 10\n";
    expect(2, base, lr,
           "configuration differs between ranks: rank 0 has \"optim.lr: 0.001\", "
           "rank 2 has \"optim.lr: 0.002\"");
    /* rank 0 is the odd one: the first that differs from it is rank 1 */
    if (W->size > 1) {
        expect(0, base, lr,
               "configuration differs between ranks: rank 0 has \"optim.lr: 0.002\", "
               "rank 1 has \"optim.lr: 0.001\"");
    }
    expect(1, base, "seed: 2\noptim:\n  lr: 0.001\n",
           "configuration differs between ranks: rank 0 has \"seed: 1\", rank 1 has \"seed: 2\"");
    expect(1, "a:\n  b: 1\n\n  c: 2\nrun:\n", "a:\n  b: 1\n\n  c: 3\nrun:\n",
           "configuration differs between ranks: rank 0 has \"a.c: 2\", rank 1 has \"a.c: 3\"");
    expect(1, "a:\n  b: 1\nrun: 1\n", "a:\n  b: 1\nwalk:\n",
           "configuration differs between ranks: rank 0 has \"run: 1\", rank 1 has \"walk:\"");
    expect(1, "a: 1\n", "a: 1\nb: 2\n",
           "configuration differs between ranks: rank 0 has no line 2, rank 1 has \"b: 2\"");
    expect(1, "", "b: 2",
           "configuration differs between ranks: rank 0 has no line 1, rank 1 has \"b: 2\"");
    expect(1, "a:\n  b: 2\n", "a:\n    b: 2\n",
           "configuration differs between ranks: rank 0 has \"a.b: 2\", rank 1 has \"a.b: 2\" "
           "(they differ in white space, or further along the line)");
}
END_TEST

START_TEST(all_texts_differ)
{
    char text[32];
    tt_err err = {0};
    snprintf(text, sizeof text, "run:\n  dir: out-%d\n", W->rank);
    tt_code rc = tt_agree_text(W, "configuration", text, &err);
    if (W->size == 1) {
        ck_assert(rc == TT_OK);
        return;
    }
    ck_assert(tt_all(rc == TT_EUSER));
    ck_assert(tt_all(strstr(err.text, "rank 0 has \"run.dir: out-0\", rank 1 has "
                                      "\"run.dir: out-1\"") != NULL));
}
END_TEST

START_TEST(very_long_lines)
{
    static char a[100000], b[100000];
    memset(a, 'k', sizeof a - 1);
    memset(b, 'k', sizeof b - 1);
    b[sizeof b - 2] = 'l';
    tt_err err = {0};
    tt_code rc = tt_agree_text(W, "configuration", W->rank == W->size - 1 ? b : a, &err);
    ck_assert(tt_all(rc == (W->size == 1 ? TT_OK : TT_EUSER)));
    ck_assert(tt_all(rc == TT_OK || strstr(err.text, "further along the line)") != NULL));
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("dist/agree");
    TCase *tests = tcase_create("agree");
    tcase_add_test(tests, all_well);
    tcase_add_test(tests, any_subset_fails);
    tcase_add_test(tests, all_fail_alike);
    tcase_add_test(tests, some_fail_alike);
    tcase_add_test(tests, same_text_other_code);
    tcase_add_test(tests, same_code_other_text);
    tcase_add_test(tests, long_text_is_cut);
    tcase_add_test(tests, no_world);
    tcase_add_test(tests, same_texts);
    tcase_add_test(tests, different_texts);
    tcase_add_test(tests, all_texts_differ);
    tcase_add_test(tests, very_long_lines);
    suite_add_tcase(suite, tests);
    return suite;
}

TT_MPI_TEST_MAIN(make_suite)
