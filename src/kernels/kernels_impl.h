/* kernels_impl.h: the parts of which tt_kernels_select makes a table.
 *
 * A part is a tt_ops with NULL where it has no kernel; its `from` is unused. Selection lays the parts
 * of one compute format over each other, weakest first, entry by entry. Only the reference is complete.
 *
 * Scratch. `workspace` of a part gives what its own kernels need (NULL: none). A kernel made of
 * kernels (head_loss) keeps its scratch at the front of ctx->workspace and hands the rest down in a
 * copy of ctx, see tt_ctx_rest. So a kernel that calls none may use ctx->workspace from its start
 * and finds at least its part's `workspace` bytes there, TT_ALIGN-aligned. The whole is the front
 * of head_loss plus the largest of all parts.
 *
 * Reads tutti/kernels/kernels.h; next: select.c lays the parts, ref_bf16.c is the specification. */
#ifndef TUTTI_KERNELS_IMPL_H
#define TUTTI_KERNELS_IMPL_H

#include <string.h>

#include "tutti/base/memory.h"
#include "tutti/base/narrow.h"
#include "tutti/kernels/kernels.h"
#include "tutti/kernels/wide.h"

extern const tt_ops tt_table_ref_bf16;
extern const tt_ops tt_table_ref_fp16;
extern const tt_ops tt_table_ref_fp32;
extern const tt_ops tt_table_ref_tf32;
extern const tt_ops tt_table_openblas_fp32; /* the gemms, in blas.c */

#if defined(__x86_64__)
extern const tt_ops tt_table_generic_avx2_bf16; /* the reference's bodies, compiled for AVX2 */
extern const tt_ops tt_table_generic_avx2_fp16;
extern const tt_ops tt_table_generic_avx2_fp32;
extern const tt_ops tt_table_generic_avx2_tf32;
extern const tt_ops tt_table_generic_avx512_bf16; /* the same for AVX-512 */
extern const tt_ops tt_table_generic_avx512_fp16;
extern const tt_ops tt_table_generic_avx512_fp32;
extern const tt_ops tt_table_generic_avx512_tf32;
extern const tt_ops tt_table_gemm_avx2_bf16; /* gemm_*, peak: isa/gemm_avx2.h */
extern const tt_ops tt_table_gemm_avx2_fp16;
extern const tt_ops tt_table_gemm_avx2_tf32;
extern const tt_ops tt_table_peak_avx2_fp32;   /* peak only */
extern const tt_ops tt_table_gemm_avx512_bf16; /* gemm_*, peak: isa/gemm_avx512.h */
extern const tt_ops tt_table_gemm_avx512_fp16;
extern const tt_ops tt_table_gemm_avx512_tf32;
extern const tt_ops tt_table_peak_avx512_fp32;          /* peak only */
extern const tt_ops tt_table_gemm_avx512bf16_bf16;      /* gemm_*, peak: isa/gemm_avx512bf16.c */
extern const tt_ops tt_table_attention_avx512bf16_bf16; /* attention*: its file in isa/ */
#endif

/* Wraps each entry of ctx->base; formats, isa, workspace and from are set by selection. */
extern const tt_ops tt_table_guard;

/* Lays the matmuls of wide.c, which multiply by `full`, over a table of a narrower format. */
void tt_wide_lay(tt_ops *table, const tt_ops *full);

/* OpenBLAS computes on the calling thread only; our threads share out the work. */
void tt_blas_setup(void);

/* Bytes rounded up so that what follows stays aligned. */
static inline size_t tt_padded(size_t bytes)
{
    return (bytes + TT_ALIGN - 1) / TT_ALIGN * TT_ALIGN;
}

/* head_loss makes logits of at most so many rows at a time, and keeps their gradient, in act, of so
 * many: the deeper the sum over rows, the fewer passes over the weight's gradient. */
enum { TT_HEAD_ROWS = 256, TT_HEAD_DEPTH = 1024 };

/* Front of the workspace that head_loss keeps: logits, losses, the gradient of the logits. */
static inline size_t tt_head_logits(int64_t rows, int64_t vocab)
{
    return tt_padded(tt_bytes(tt_mul(tt_min(TT_HEAD_ROWS, rows), vocab), sizeof(float)));
}

static inline size_t tt_head_losses(int64_t rows)
{
    return tt_padded(tt_bytes(tt_min(TT_HEAD_ROWS, rows), sizeof(double)));
}

static inline size_t tt_head_front(int64_t rows, int64_t vocab, tt_format format)
{
    int64_t kept = tt_mul(tt_min(TT_HEAD_DEPTH, rows), vocab);
    return tt_head_logits(rows, vocab) + tt_head_losses(rows) +
           tt_padded(tt_bytes(kept, tt_formats[format].bytes));
}

/* ctx without the first `front` bytes of its workspace (a multiple of TT_ALIGN). */
static inline tt_ctx tt_ctx_rest(const tt_ctx *ctx, size_t front)
{
    tt_ctx rest = *ctx;
    rest.workspace += front;
    rest.workspace_bytes -= front;
    return rest;
}

#endif
