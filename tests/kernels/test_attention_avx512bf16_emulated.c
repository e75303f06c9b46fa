/* test_attention_avx512bf16_emulated.c: the source of attention with VDPBF16PS, compiled through SIMDe
 * for the baseline, so that its logic is proven on any processor. What only the hardware can show is
 * the instruction itself; where it exists test_attention.c runs the library's kernels. */
#define TT_EMULATE_AVX512
/* The library has a table of this name. */
#define tt_table_attention_avx512bf16_bf16 emulated_table
#include "kernels/isa/attention_avx512bf16.c"

#include "attention_cases.h"

static Suite *make_suite(void)
{
    attention_only = &emulated_table;
    return attention_suite("attention_avx512bf16_emulated");
}

TT_TEST_MAIN(make_suite)
