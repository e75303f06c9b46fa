/* gemm_tf32_avx512.c: TF32 matmuls with AVX-512: gemm_avx512.h says how.
 * FP32's are OpenBLAS's; it is measured against the same unit.
 *
 * Next: select.c lays these tables. */
#define TT_ACT_TF32
#include "kernels/isa/gemm_avx512.h"

const tt_ops tt_table_gemm_avx512_tf32 = {
    .isa = "avx512", .format = TT_FP32, .compute = TT_TF32, GEMM_TILE_ENTRIES, .peak = peak};

const tt_ops tt_table_peak_avx512_fp32 = {
    .isa = "avx512", .format = TT_FP32, .compute = TT_FP32, .peak = peak};
