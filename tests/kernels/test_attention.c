/* test_attention.c: attention of every table this processor can have: attention_cases.h says what is
 * asked of it. */
#include "attention_cases.h"

static Suite *make_suite(void)
{
    return attention_suite("attention");
}

TT_TEST_MAIN(make_suite)
