/* test_vec_avx512_emulated.c: the same in AVX-512, compiled through SIMDe for the baseline. */
#define TT_EMULATE_AVX512
#include "kernels/isa/vec_avx512.h"

#define TT_ACT_BF16
#define VEC_STRIDE 10007 /* emulation is slow */
#include "vec_cases.h"

static Suite *make_suite(void)
{
    Suite *suite = suite_create("vec_avx512_emulated");
    suite_add_tcase(suite, vec_case());
    return suite;
}

TT_TEST_MAIN(make_suite)
