/* test_gemm_isa.c: each hand-written matmul table by itself, where the processor has its
 * instructions; test_gemm_avx512_emulated.c and test_gemm_avx512bf16_emulated.c cover the others. */
#include "gemm_cases.h"
#include "kernels/kernels_impl.h"

static Suite *make_suite(void)
{
    Suite *suite = suite_create("gemm_isa");
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
        gemm_add_cases(suite, "avx2", &tt_table_gemm_avx2_bf16);
    }
    bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                  __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
    if (avx512) {
        gemm_add_cases(suite, "avx512", &tt_table_gemm_avx512_bf16);
    }
    if (avx512 && __builtin_cpu_supports("avx512bf16")) {
        gemm_add_cases(suite, "avx512bf16", &tt_table_gemm_avx512bf16_bf16);
    }
#endif
    return suite;
}

TT_TEST_MAIN(make_suite)
