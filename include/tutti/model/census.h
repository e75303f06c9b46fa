/* census.h: what became of a step's numbers as they were stored, by kind of tensor: run.numerics_every.
 *
 * A group is a part of the step and a kind of tensor in it, all blocks together:
 *
 *     forward/<slot>           what layers wrote in act: x, norm_1, qkv, ..
 *     forward_fp8/<slot>       the same, rounded to E4M3 for products or for backward
 *     backward/<slot>          the gradient of a slot; of the stream, each time something is added to
 *                              it; logits: head_loss's; proj, down: of a branch before its dropout
 *     backward_fp8/<slot>      the same, rounded to E5M2 for products
 *     gradients/<parameter>    sums over the batch, as the update sees them: infinite or NaN; in exact
 *                              mode, overflow: summands that were lost (numerics/fixed.h)
 *     weights/<parameter>      as the optimizer rounds them
 *     weights_fp8/<parameter>  the same, rounded to E4M3 for products
 *
 * A parameter is named without the number of its block. Counts are those of tt_census.
 *
 * Invariant: sums over threads, micro-batches and ranks are the same for every split of the batch with
 * which the step's numbers are: those of a run's first forward and backward always, in exact mode all.
 *
 * Memory: the array is the caller's. Reads kernels/kernels.h; next: model.h counts passes,
 * train/numerics.c the rest. */
#ifndef TUTTI_MODEL_CENSUS_H
#define TUTTI_MODEL_CENSUS_H

#include "tutti/base/text.h"
#include "tutti/kernels/kernels.h"
#include "tutti/model/params.h"

typedef enum tt_part {
    TT_PART_FORWARD,
    TT_PART_FORWARD_FP8,
    TT_PART_BACKWARD,
    TT_PART_BACKWARD_FP8,
    TT_PART_GRADIENTS,
    TT_PART_WEIGHTS,
    TT_PART_WEIGHTS_FP8,
    TT_PARTS
} tt_part;

/* Rows of a part: roles of parameters, or slots, which are fewer. */
enum { TT_CENSUS_GROUPS = (int)TT_PARTS * (int)TT_ROLES };

/* Where a step is counted. */
typedef struct tt_numerics {
    tt_census *group; /* [TT_CENSUS_GROUPS, threads] borrowed; NULL: nobody counts */
    int threads;      /* of the contexts that count */
} tt_numerics;

/* The array [threads] of a group; NULL when nobody counts. */
static inline tt_census *tt_numerics_group(const tt_numerics *numerics, tt_part part, int row)
{
    const int group = (int)part * (int)TT_ROLES + row;
    return numerics->group != NULL ? numerics->group + group * numerics->threads : NULL;
}

/* {"forward/x": {"values": .., "inf": .., "nan": .., "overflow": .., "underflow": ..}, ..} as JSON, of
 * census[TT_CENSUS_GROUPS]: the groups that have values. */
void tt_numerics_text(const tt_census *census, tt_text *out);

#endif
