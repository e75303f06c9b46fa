/* gemm_fp16_avx2.c: FP16 matmuls with AVX2: gemm_avx2.h says how.
 *
 * Next: select.c lays these tables. */
#define TT_ACT_FP16
#include "kernels/isa/gemm_avx2.h"

const tt_ops tt_table_gemm_avx2_fp16 = {
    .isa = "avx2", .format = TT_FP16, .compute = TT_FP16, GEMM_TILE_ENTRIES, .peak = peak};
