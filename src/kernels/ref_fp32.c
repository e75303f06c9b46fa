/* ref_fp32.c: the reference kernels for FP32 storage: the portable bodies under the baseline flags,
 * without contraction. They are the specification; every other table is tested against them. */
#define TT_ACT_FP32
#include "kernels/generic/table.h"

const tt_ops tt_table_ref_fp32 = GENERIC_TABLE("ref", TT_FP32, TT_FP32);
