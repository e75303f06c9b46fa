/* recompute.h: which activations are computed again in backward instead of being kept since forward.
 *
 *     none       everything that backward reads is kept, of every block
 *     selective  norm outputs and GELU are computed again from what they were made of, which backward
 *                reads too: no product of matrices. (In FP8 nothing: what it keeps are codes, from
 *                which these could not be computed again to the bit.)
 *     sqrt       segments of ceil(sqrt L) blocks; of all but the last only the input is kept, and the
 *                segment goes forward again before its backward (Chen et al. 2016)
 *     block      of every block only the input is kept
 *
 * The last segment goes backward right after it went forward, so it keeps what it has and nothing of it
 * is computed again; nor, of any segment, what only the next one would read.
 *
 * Invariant: bits of losses and gradients do not depend on it. Forward again is the same kernels on the
 * same inputs, dropout is a function of (seed, step, sample, element), and FP8's largest magnitudes are
 * maxima, which do not mind being told twice.
 *
 * Memory: plain values. Next: model.h. */
#ifndef TUTTI_MODEL_RECOMPUTE_H
#define TUTTI_MODEL_RECOMPUTE_H

#include <stdbool.h>
#include <stdint.h>

#include "tutti/model/autocast.h"
#include "tutti/model/params.h"

typedef enum tt_recompute_kind {
    TT_RECOMPUTE_NONE,
    TT_RECOMPUTE_SELECTIVE,
    TT_RECOMPUTE_SQRT,
    TT_RECOMPUTE_BLOCK,
    TT_RECOMPUTE_KINDS
} tt_recompute_kind;

extern const char *const tt_recompute_names[TT_RECOMPUTE_KINDS];

/* All of them, and what lies between, are values of this: the first `blocks` blocks are computed again,
 * `segment` at a time (a divisor of blocks), from the segment's input; of the others, which keep the
 * rest, norm outputs and GELU when `selective`. */
typedef struct tt_recompute {
    int64_t blocks, segment;
    bool selective;
} tt_recompute;

/* For L blocks. `blocks` restricts TT_RECOMPUTE_BLOCK to the first so many, the others being selective;
 * 0: all. fp8: it is the format, so that nothing is selective. */
tt_recompute tt_recompute_make(tt_recompute_kind kind, int64_t L, int64_t blocks, bool fp8);

/* How often each row of the autocast table is computed again in one backward pass: runs[TT_ROWS] out, by
 * row, applications of all blocks together. TT_ROW_GELU counts where GELU alone is. */
void tt_recompute_runs(const tt_recompute *recompute, int64_t L, int64_t runs[TT_ROWS]);

/* Multiply-add FLOPs (2 per pair) of one token that are computed again. */
double tt_recompute_flops_per_token(const tt_recompute *recompute, const tt_shape *shape,
                                    const tt_params *params);

#endif
