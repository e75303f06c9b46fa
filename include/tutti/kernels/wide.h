/* wide.h: a second table beside one of a narrow format: the same act, products of FP32.
 *
 * precision.fp32_ops moves single operations up to FP32. They run in this table. Its matmuls read act,
 * widen it, multiply it by weights that are FP32, not act (tt_weight.w is [N,K] float), through the
 * FP32 table of the same ISA, and round what comes out, after the epilogue, once. Nothing else is
 * rounded on the way: neither the gradient of the logits in head_loss nor, in attention, the
 * probabilities. Where act is FP32 it is the FP32 table itself.
 *
 * Invariants: those of kernels.h. A matmul works on whole leaves, so its bits are the FP32 table's.
 *
 * Reads and writes views of model memory; next: model/autocast.h says what runs here. */
#ifndef TUTTI_KERNELS_WIDE_H
#define TUTTI_KERNELS_WIDE_H

#include "tutti/kernels/kernels.h"

/* Owned by the caller, outliving the contexts made of it. */
typedef struct tt_wide_ops {
    tt_ops ops, guarded;       /* as tt_kernels_select makes them */
    tt_ops full, full_guarded; /* the FP32 table inside; zeros where it is `ops` */
} tt_wide_ops;

/* compute: of the table beside it. Names and failures as in tt_kernels_select. */
tt_code tt_kernels_select_wide(tt_wide_ops *wide, tt_format compute, const char *isa, tt_err *err);

/* Scratch for a selection. */
size_t tt_kernels_wide_workspace(const tt_wide_ops *wide, const tt_extents *extents, int threads);

/* The context of a selection; scratch may be shared with other contexts, as calls follow each other.
 * bytes >= what tt_kernels_wide_workspace says. */
tt_ctx tt_kernels_wide_ctx(const tt_wide_ops *wide, int threads, void *workspace, size_t bytes);

#endif
