/* gemm_bf16_avx512.c: BF16 matmuls with AVX-512: gemm_avx512.h says how.
 *
 * Next: select.c lays these tables. */
#define TT_ACT_BF16
#include "kernels/isa/gemm_avx512.h"

const tt_ops tt_table_gemm_avx512_bf16 = {
    .isa = "avx512", .format = TT_BF16, .compute = TT_BF16, GEMM_TILE_ENTRIES, .peak = peak};
