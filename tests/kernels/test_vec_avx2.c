/* test_vec_avx2.c: the same in AVX2, where the processor has it. */
#if defined(__x86_64__)
#include <immintrin.h>
#pragma GCC target("avx2,fma,f16c")
#pragma GCC optimize( \
    "O2") /* then upper halves are cleared before calls, which are slow otherwise */
#include "kernels/isa/vec_avx2.h"
#endif

#define TT_ACT_BF16
#include "vec_cases.h"

static Suite *make_suite(void)
{
    Suite *suite = suite_create("vec_avx2");
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
        __builtin_cpu_supports("f16c")) {
        suite_add_tcase(suite, vec_case());
    }
#else
    (void)vec_case;
#endif
    return suite;
}

TT_TEST_MAIN(make_suite)
