/* blame.h: where a step that is not finite became so: in which micro-batch of which rank, and so which
 * samples.
 *
 * After each micro-batch a rank knows of itself whether its loss or its gradient ceased to be finite in
 * it; nothing is sent for that. Only when the agreement of a step says that it is not finite do ranks
 * compare what they know. The first micro-batch counts, and of ranks that saw it in the same one the
 * lowest.
 *
 * What is looked at. In exact mode, the counters of summands that were lost: nothing is missed. Else,
 * of a gradient that goes into the reduction, every element, before it goes. Of one that stays with the
 * rank until a later micro-batch, vectors, position embeddings and the first row of each matrix: what is
 * not finite in the gradient of a layer's output comes to its bias, and what is not finite in its input
 * to every row of its matrix. What that misses, an element that the sum of a matrix's own made infinite,
 * is found when the gradient goes, and then any micro-batch since may have been the one.
 *
 * Plain memory. Reads gradients; next: train/step.h. */
#ifndef TUTTI_TRAIN_BLAME_H
#define TUTTI_TRAIN_BLAME_H

#include <stdbool.h>
#include <stdint.h>

#include "tutti/base/text.h"

/* From what is surest to what is least. */
typedef enum tt_seen {
    TT_SEEN_LOSS,     /* in the loss, and so in forward */
    TT_SEEN_GRADIENT, /* in the gradient of this micro-batch */
    TT_SEEN_SUM       /* in the gradient of all micro-batches up to this one */
} tt_seen;

/* What a rank saw of its own in a step. */
typedef struct tt_suspect {
    int64_t micro; /* that is under way, from 0 */
    int64_t at;    /* the first in which something was not finite; -1: none */
    tt_seen seen;
    int param; /* of the gradient, that backward came to first; of the table. Loss: -1 */
} tt_suspect;

/* What all ranks know of it. */
typedef struct tt_blame {
    bool bad; /* the step is not finite; else nothing here counts */
    int rank; /* -1: no rank saw it in what is its own; the sum over ranks is not finite */
    int64_t first, last; /* micro-batches of that rank, from 0: it was one of these */
    bool in_loss;        /* else in the gradient */
    const char *tensor;  /* whose gradient, the trainer's; NULL: of none, it is in the loss */
} tt_blame;

#endif
