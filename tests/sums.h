/* sums.h: plain numbers where the kernels speak of sums over the batch. */
#ifndef TT_TEST_SUMS_H
#define TT_TEST_SUMS_H

#include "tutti/kernels/kernels.h"
#include "tutti/model/model.h"

/* FP32 accumulators at a float pointer as a tt_grad, alive to the end of the block; NULL stays NULL. */
#define GRAD(at) ((at) != NULL ? &(tt_grad){.sum = (at)} : NULL)

/* FP32 masters at a float pointer, alive to the end of the block. */
#define FULL(at) (&(tt_master){.kind = TT_MASTER_FP32, .full = (at)})

/* The sum of squares of x[n], as the table's kernel computes it. */
static inline double squares_of(tt_ctx *ctx, const float *x, int64_t n)
{
    tt_exact sum = {.pending = 0};
    const tt_grad g = {.sum = (float *)(uintptr_t)x};
    ctx->ops->sum_squares(ctx, &sum, &g, n);
    return tt_exact_value(&sum);
}

/* Of the losses, in nats. */
static inline double sum_of(const tt_loss *loss)
{
    return tt_exact_value(&loss->sum);
}

#endif
