/* gemm_bf16_avx2.c: BF16 matmuls with AVX2: gemm_avx2.h says how.
 *
 * Next: select.c lays these tables. */
#define TT_ACT_BF16
#include "kernels/isa/gemm_avx2.h"

const tt_ops tt_table_gemm_avx2_bf16 = {
    .isa = "avx2", .format = TT_BF16, .compute = TT_BF16, GEMM_TILE_ENTRIES, .peak = peak};
