/* test_vec.c: the portable vector vocabulary and what is written in it. */
#define TT_ACT_BF16
#include "vec_cases.h"

static Suite *make_suite(void)
{
    Suite *suite = suite_create("vec");
    suite_add_tcase(suite, vec_case());
    return suite;
}

TT_TEST_MAIN(make_suite)
