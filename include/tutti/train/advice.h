/* advice.h: whether the launcher has given the ranks what they need, and if not, with which flags it
 * will. Said once, by the lowest rank that has something to say; all is well: nothing.
 *
 * Plain values. Reads base/machine.h; next: cli/train.c. */
#ifndef TUTTI_TRAIN_ADVICE_H
#define TUTTI_TRAIN_ADVICE_H

#include <stdbool.h>

#include "tutti/base/log.h"
#include "tutti/base/machine.h"
#include "tutti/base/options.h"
#include "tutti/base/status.h"
#include "tutti/base/text.h"
#include "tutti/dist/world.h"

/* Where a rank runs. */
typedef struct tt_place {
    int ranks;     /* of this node */
    int sharers;   /* of them, those that may run on just the same processors */
    int threads;   /* of a rank */
    bool one;      /* a single thread was asked for */
    bool launched; /* by mpirun, srun or the like */
    tt_span own;   /* what the rank may run on */
    tt_span node;  /* what the job may be given of the node */
} tt_place;

/* A line for each thing that is not well. */
void tt_advice_text(const tt_place *place, tt_text *out);

/* Looks at this machine. Warns. Collective. */
tt_code tt_advice_give(tt_world *world, const tt_config *config, int threads, tt_log *log,
                       tt_err *err);

#endif
