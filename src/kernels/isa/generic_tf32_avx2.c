/* generic_tf32_avx2.c: the portable bodies for TF32 (FP32 storage), compiled with AVX2 and FMA.
 * Everything in here but the table is static, so no code compiled for AVX2 is reached without asking
 * for it. */
#if defined(__x86_64__)
#include "kernels/isa/vec_avx2.h"

#define TT_ACT_TF32
#include "kernels/generic/table.h"

const tt_ops tt_table_generic_avx2_tf32 = GENERIC_TABLE("avx2", TT_FP32, TT_TF32);
#else
typedef int tt_no_x86; /* a translation unit may not be empty */
#endif
