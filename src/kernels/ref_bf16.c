/* ref_bf16.c: the reference kernels for BF16 storage: the portable bodies under the baseline flags,
 * without contraction. They are the specification; every other table is tested against them. */
#define TT_ACT_BF16
#include "kernels/generic/table.h"

const tt_ops tt_table_ref_bf16 = GENERIC_TABLE("ref", TT_BF16, TT_BF16);
