/* gemm_fp16_avx512.c: FP16 matmuls with AVX-512: gemm_avx512.h says how.
 *
 * Next: select.c lays these tables. */
#define TT_ACT_FP16
#include "kernels/isa/gemm_avx512.h"

const tt_ops tt_table_gemm_avx512_fp16 = {
    .isa = "avx512", .format = TT_FP16, .compute = TT_FP16, GEMM_TILE_ENTRIES, .peak = peak};
