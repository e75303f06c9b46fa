/* ref_tf32.c: the reference kernels for TF32 (FP32 storage): the portable bodies under the baseline
 * flags, without contraction. They are the specification; every other table is tested against them. */
#define TT_ACT_TF32
#include "kernels/generic/table.h"

const tt_ops tt_table_ref_tf32 = GENERIC_TABLE("ref", TT_FP32, TT_TF32);
