/* price.h: the time of a step, from the speeds of its parts on this machine, now.
 *
 * One block of the model, with the configuration's widths, format and threads, is run on a few hundred
 * rows and part of its vocabulary; a step is so many blocks, so many tokens, and one update. Attention,
 * whose cost grows with the square of the context, is measured at two lengths where the context is
 * longer than the rows. What a rank waits for others, or for a disk (memory.optimizer_file), is not
 * in it.
 *
 * Memory: an arena of its own while it measures, a block's worth. Reads a blueprint; next:
 * train/ledger.h. */
#ifndef TUTTI_TRAIN_PRICE_H
#define TUTTI_TRAIN_PRICE_H

#include "tutti/base/status.h"
#include "tutti/train/plan.h"

typedef struct tt_price {
    double stem, crown;       /* seconds a token, forward and backward */
    double stem_backward;     /* of the stem's */
    double forward, backward; /* seconds a token and block */
    double squares, adamw,
        pack;      /* seconds an element of the norm, the update, the packed weights */
    double update; /* seconds a step: of those, as many as the rank has */
    double add;  /* seconds a byte of one thread that adds an FP32 vector to another, as MPI does */
    double step; /* seconds a step, nothing recomputed */
    double again[TT_ROWS]; /* seconds a token of one application of a block, forward, by row */
    int64_t rows, rounds;  /* what was measured: tokens at once, medians of so many; 0: nothing */
    size_t wanted;         /* bytes that measuring would take and that are not there; else 0 */
} tt_price;

/* Seconds that a step takes longer when this is computed again. */
double tt_price_again(const tt_price *price, const tt_blueprint *print,
                      const tt_recompute *recompute);

/* Takes a second or two of this process's threads. Local. */
tt_code tt_price_measure(tt_price *price, const tt_blueprint *print, tt_err *err);

#endif
