/* test_split.c: the batch arithmetic, and what it says when it does not come out. */
#include "tt_test.h"
#include "tutti/data/batch.h"

static void gives(int64_t s, int64_t b, int64_t k, int ranks, int64_t S, int64_t B, int64_t K)
{
    tt_split split;
    tt_err err = {0};
    ck_assert_msg(tt_split_resolve(&split, s, b, k, ranks, &err) == TT_OK, "%s", err.text);
    ck_assert_int_eq(split.sequences, S);
    ck_assert_int_eq(split.micro, B);
    ck_assert_int_eq(split.accumulate, K);
    ck_assert_int_eq(split.ranks, ranks);
}

static void refuses(int64_t s, int64_t b, int64_t k, int ranks, const char *words)
{
    tt_split split = {0};
    tt_err err = {0};
    ck_assert_int_eq(tt_split_resolve(&split, s, b, k, ranks, &err), TT_EUSER);
    ck_assert_int_eq(err.code, TT_EUSER);
    ck_assert_msg(strstr(err.text, words) != NULL, "\"%s\" not in: %s", words, err.text);
    ck_assert_int_eq(split.ranks, 0);
}

START_TEST(two_give_the_third)
{
    for (int R = 1; R <= 8; R++) {
        for (int64_t B = 1; B <= 5; B++) {
            for (int64_t K = 1; K <= 5; K++) {
                int64_t S = B * K * R;
                gives(S, B, 0, R, S, B, K);
                gives(S, 0, K, R, S, B, K);
                gives(0, B, K, R, S, B, K);
                gives(S, B, K, R, S, B, K);
            }
        }
    }
}
END_TEST

START_TEST(one_alone_means_accumulate_1)
{
    gives(24, 0, 0, 4, 24, 6, 1);
    gives(0, 3, 0, 4, 12, 3, 1);
    refuses(0, 0, 5, 4, "give two of");
    refuses(0, 0, 0, 4, "give two of");
}
END_TEST

START_TEST(impossible_sets_name_what_fits)
{
    refuses(8, 4, 0, 4,
            "batch.sequences 8 cannot be split over 4 ranks x batch.micro 4 (multiples of 16): "
            "batch.micro 2 fits; nearest batch.sequences: 16");
    refuses(96, 9, 0, 4, ": batch.micro 8 fits; nearest batch.sequences: 72, 108");
    refuses(30, 4, 0, 4,
            " (multiples of 16): it can over 3 ranks (batch.micro 2) or 5 ranks (batch.micro 3); "
            "nearest batch.sequences: 16, 32");
    refuses(3, 4, 0, 1, "(multiples of 4): batch.micro 3 fits; nearest batch.sequences: 4");
    refuses(30, 0, 4, 2,
            "2 ranks x batch.accumulate 4 (multiples of 8): batch.accumulate 3 fits; nearest "
            "batch.sequences: 24, 32");
    refuses(7, 0, 0, 2,
            "batch.accumulate 1 (multiples of 2): it can over 1 rank (batch.accumulate 1); nearest "
            "batch.sequences: 6, 8");
    refuses(3, 0, 0, 8, ": it can over 3 ranks (batch.accumulate 1); nearest batch.sequences: 8");
    refuses(32, 2, 3, 4,
            "2 x batch.accumulate 3 = 24: batch.accumulate 4 fits; nearest batch.sequences: 24; or "
            "leave");
    refuses(36, 5, 3, 4, "= 60: batch.micro 3 fits; nearest batch.sequences: 60; or leave");
    refuses(31, 5, 3, 4, "= 60: nearest batch.sequences: 60; or leave");
}
END_TEST

START_TEST(huge_numbers_are_refused_not_wrapped)
{
    refuses(0, INT64_MAX / 2, 3, 2, "more sequences than can be counted");
    refuses(INT64_MAX, INT64_MAX - 1, 0, 1, "): nearest batch.sequences: 9223372036854775806");
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("split");
    TCase *c = tcase_create("split");
    tcase_add_test(c, two_give_the_third);
    tcase_add_test(c, one_alone_means_accumulate_1);
    tcase_add_test(c, impossible_sets_name_what_fits);
    tcase_add_test(c, huge_numbers_are_refused_not_wrapped);
    suite_add_tcase(s, c);
    return s;
}

TT_TEST_MAIN(suite)
