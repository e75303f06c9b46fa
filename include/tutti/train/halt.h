/* halt.h: when a run stops before its end: a rank was asked to (dist/stop.h), or run.max_seconds would
 * pass.
 *
 * The computing thread looks between micro-batches, and between those of an evaluation. One that is
 * to stop does nothing more: it leaves the step, and the next agreement tells all ranks, who discard
 * that step as if it had not begun. A rank that hears of it after its last micro-batch leaves nothing:
 * where all have come so far the step counts.
 *
 * A time limit is looked at in the same places: a part is begun only if it, a save and the end fit in
 * what is left, as far as this rank has seen how long such take; a step, if all of it does. Clocks of
 * ranks differ, and the first that finds too little asks all.
 *
 * Owns nothing. Reads world->began and the configuration; next: train/step.h. */
#ifndef TUTTI_TRAIN_HALT_H
#define TUTTI_TRAIN_HALT_H

#include <stdbool.h>
#include <stdint.h>

#include "tutti/base/options.h"
#include "tutti/base/status.h"
#include "tutti/dist/world.h"

/* Ranks that were asked to stop, and why, and those that left what they were at. A sum over ranks is
 * what all know. */
typedef struct tt_halted {
    int64_t by_signal, by_limit, left;
} tt_halted;

enum { TT_HALTED_WORDS = sizeof(tt_halted) / sizeof(int64_t) };

typedef struct tt_halt {
    tt_world *world;         /* borrowed */
    double limit;            /* tt_seconds() by which the process has ended; 0: whenever */
    double start, since;     /* tt_seconds() when the step began, and its part */
    double step, part, save; /* seconds: the longest so far; of the first save a guess */
    bool saved;              /* none is a guess any more */
    bool saving;             /* one is being written, and a stop waits for it before its own */
    tt_halted all;           /* of all ranks, as of the last agreement */
} tt_halt;

/* bytes: of a checkpoint. Local, as all here that does not say otherwise. */
void tt_halt_open(tt_halt *halt, tt_world *world, const tt_config *config, int64_t bytes);

/* A step or an evaluation begins: its first part does. */
void tt_halt_begin(tt_halt *halt);
/* Before each part, which ends the one before: is this rank to do no more? step: what comes is a whole
 * step. Always false where nobody can be asked. */
bool tt_halt_asked(tt_halt *halt, bool step);
/* The step that began is over. */
void tt_halt_end(tt_halt *halt);
/* A checkpoint is begun that is written while steps go on. */
void tt_halt_saving(tt_halt *halt);
/* A checkpoint was written in so many seconds, from its beginning until it had its name. */
void tt_halt_saved(tt_halt *halt, double seconds);

/* What this rank has to say of itself in an agreement. */
tt_halted tt_halt_mine(const tt_halt *halt, bool left);
/* Leaves any rank? Then *left becomes true on all. Collective. */
tt_code tt_halt_together(tt_halt *halt, bool *left, tt_err *err);
/* Does the run stop, as of the last agreement? The same on all ranks. */
bool tt_halt_stops(const tt_halt *halt);

#endif
