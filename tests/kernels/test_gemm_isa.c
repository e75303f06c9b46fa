/* test_gemm_isa.c: each matmul table by itself, the reference's and the hand-written ones, where the
 * processor has their instructions; test_gemm_*_emulated.c cover the others. quick: no */
#include "gemm_cases.h"
#include "kernels/kernels_impl.h"

static Suite *make_suite(void)
{
    Suite *suite = suite_create("gemm_isa");
    gemm_add_numbers(suite, "ref fp16", &tt_table_ref_fp16);
    gemm_add_numbers(suite, "ref tf32", &tt_table_ref_tf32);
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
        gemm_add_cases(suite, "avx2 bf16", &tt_table_gemm_avx2_bf16);
        gemm_add_cases(suite, "avx2 fp16", &tt_table_gemm_avx2_fp16);
        gemm_add_cases(suite, "avx2 tf32", &tt_table_gemm_avx2_tf32);
    }
    bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                  __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
    if (avx512) {
        gemm_add_cases(suite, "avx512 bf16", &tt_table_gemm_avx512_bf16);
        gemm_add_cases(suite, "avx512 fp16", &tt_table_gemm_avx512_fp16);
        gemm_add_cases(suite, "avx512 tf32", &tt_table_gemm_avx512_tf32);
    }
    if (avx512 && __builtin_cpu_supports("avx512bf16")) {
        gemm_add_cases(suite, "avx512bf16", &tt_table_gemm_avx512bf16_bf16);
    }
#endif
    return suite;
}

TT_TEST_MAIN(make_suite)
