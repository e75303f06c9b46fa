/* test_gemm_avx2.c: the AVX2 matmuls by themselves, where the processor has the instructions. */
#include "gemm_cases.h"
#include "kernels/kernels_impl.h"

static Suite *make_suite(void)
{
    Suite *suite = suite_create("gemm_avx2");
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
        gemm_ops = &tt_table_gemm_avx2_bf16;
        gemm_add_cases(suite, "avx2");
    }
    return suite;
}

TT_TEST_MAIN(make_suite)
