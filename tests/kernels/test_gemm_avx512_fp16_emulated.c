/* test_gemm_avx512_fp16_emulated.c: the source of the AVX-512 matmuls in FP16, compiled through SIMDe
 * for the baseline, so that their logic is proven on any processor. What only the hardware can show is
 * the instruction itself; where it exists test_gemm_isa.c runs the library's kernels. quick: no */
#define TT_EMULATE_AVX512
/* The library has a table of this name. */
#define tt_table_gemm_avx512_fp16 emulated_table
#include "kernels/isa/gemm_fp16_avx512.c"

#include "gemm_cases.h"

static Suite *make_suite(void)
{
    Suite *suite = suite_create("gemm_avx512_fp16_emulated");
    gemm_add_cases(suite, "emulated", &emulated_table);
    return suite;
}

TT_TEST_MAIN(make_suite)
