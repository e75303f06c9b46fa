/* ref_fp16.c: the reference kernels for FP16 storage: the portable bodies under the baseline flags,
 * without contraction. They are the specification; every other table is tested against them. */
#define TT_ACT_FP16
#include "kernels/generic/table.h"

const tt_ops tt_table_ref_fp16 = GENERIC_TABLE("ref", TT_FP16, TT_FP16);
