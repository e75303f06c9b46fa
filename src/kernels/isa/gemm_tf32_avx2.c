/* gemm_tf32_avx2.c: TF32 matmuls with AVX2: gemm_avx2.h says how.
 * FP32's are OpenBLAS's; it is measured against the same unit.
 *
 * Next: select.c lays these tables. */
#define TT_ACT_TF32
#include "kernels/isa/gemm_avx2.h"

const tt_ops tt_table_gemm_avx2_tf32 = {
    .isa = "avx2", .format = TT_FP32, .compute = TT_TF32, GEMM_TILE_ENTRIES, .peak = peak};

const tt_ops tt_table_peak_avx2_fp32 = {
    .isa = "avx2", .format = TT_FP32, .compute = TT_FP32, .peak = peak};
