/* table.h: the portable kernels as one complete table. The file that includes this first defines
 * TT_ACT_BF16, _FP16, _FP32 or _TF32, then makes its table with GENERIC_TABLE. */
#ifndef TUTTI_KERNELS_GENERIC_TABLE_H
#define TUTTI_KERNELS_GENERIC_TABLE_H

#include "kernels/generic/adamw.h"
#include "kernels/generic/attention.h"
#include "kernels/generic/attention_grad.h"
#include "kernels/generic/convert.h"
#include "kernels/generic/embed.h"
#include "kernels/generic/fp8.h"
#include "kernels/generic/gemm.h"
#include "kernels/generic/head_loss.h"
#include "kernels/generic/norm.h"
#include "kernels/generic/peak.h"
#include "kernels/generic/residual.h"
#include "kernels/generic/sums.h"

static size_t generic_workspace(const tt_extents *extents, int threads)
{
    const size_t needs[] = {gemm_bytes(threads), attention_bytes(extents, threads),
                            norm_grad_bytes(extents->channels)};
    size_t most = 0;
    for (size_t i = 0; i < sizeof needs / sizeof needs[0]; i++) {
        most = needs[i] > most ? needs[i] : most;
    }
    return most;
}

static size_t generic_packed_bytes(int64_t N, int64_t K)
{
    (void)N, (void)K;
    return 0;
}

#define GENERIC_ENTRY(name, type, args) .name = generic_##name,
#define GENERIC_TABLE(isa_, format_, compute_)                                                    \
    {                                                                                             \
        .isa = isa_, .format = format_, .compute = compute_, .workspace = generic_workspace,      \
        .probabilities = (compute_) == TT_TF32 ? TT_TF32 : TT_FP32,                               \
        .packed_bytes = generic_packed_bytes, .epilogue = generic_epilogue, TT_OPS(GENERIC_ENTRY) \
    }

#endif
