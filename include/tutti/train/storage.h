/* storage.h: where everything lies that a run holds.
 *
 * A component of the plan is an arena of this rank, a window that the ranks of its node map, or both:
 * what a node holds once, and what its ranks read of each other, lies in windows (dist/node.h).
 *
 * Invariant: arenas and windows have given out just what was planned, all of it before the first step,
 * and nothing moves until they are closed.
 *
 * Memory: all that a run takes beside libraries. Reads trainer->print; writes the trainer's pointers;
 * next: train/memory.h, which holds it to the plan. */
#ifndef TUTTI_TRAIN_STORAGE_H
#define TUTTI_TRAIN_STORAGE_H

#include <stddef.h>

#include "tutti/base/status.h"
#include "tutti/train/trainer.h"

/* Bytes in windows: *own of each rank of the node, *once of all together. */
void tt_storage_windows(const tt_blueprint *print, size_t *own, size_t *once);

/* Opens arenas and windows with the plan's numbers, places everything and has its pages come. On failure
 * too it wants closing. Collective. */
tt_code tt_storage_open(tt_trainer *trainer, tt_err *err);
/* Safe on a zeroed trainer. The windows are the node's and end with it. Local. */
void tt_storage_close(tt_trainer *trainer);

/* Another model into trainer->model, by print and gradient as they are now, over the memory of the
 * first, which is not closed. Between steps activations hold nothing, and what was packed stays
 * so. Local. */
tt_code tt_storage_remodel(tt_trainer *trainer, tt_err *err);

#endif
