/* tutti.h: all together: between the passes of a model and the ranks.
 *
 * A pass tells through its hooks where it is; tutti answers with weights that have come and are packed,
 * and with places for gradients, and sends gradients off that are complete. In the first pass after an
 * update weights may still be on their way; in the last micro-batch gradients leave while backward goes
 * on. In ZeRO 3 weights come and go all the time.
 *
 * Invariant: all ranks make the same passes, computing or idle. The first error is kept; after it hooks
 * do nothing, and tt_tutti_end returns it.
 *
 * Owns the reduction, the gather, and through tt_node the windows. Reads the trainer's memory; next:
 * train/step.h. */
#ifndef TUTTI_TRAIN_TUTTI_H
#define TUTTI_TRAIN_TUTTI_H

#include <stdbool.h>

#include "tutti/base/status.h"
#include "tutti/dist/gather.h"
#include "tutti/dist/node.h"
#include "tutti/dist/reduce.h"
#include "tutti/model/hooks.h"

struct tt_trainer;

typedef enum tt_pass_kind {
    TT_PASS_KEEPS,   /* training, of which the gradient stays with the rank */
    TT_PASS_REDUCES, /* training, whose gradient goes */
    TT_PASS_FORWARD  /* evaluation */
} tt_pass_kind;

typedef struct tt_tutti {
    tt_node node;
    tt_reduce reduce;
    tt_gather gather;
    struct tt_trainer *trainer; /* borrowed */
    tt_hooks hooks;
    tt_pass_kind kind;
    int *visit; /* [visits] groups of weights in the order of a training pass, owned */
    int visits, at;
    bool pokes; /* it has opened the world's poke (dist/poke.h) */
    /* Faults due in this step (train/inject.c). */
    bool poison_nan, poison_inf, poison_huge, poison_forward, flip;
    struct tt_replay *replay; /* borrowed: looks at all that a pass writes; NULL: nobody does */
    tt_err first;             /* error; TT_OK: none yet */
} tt_tutti;

/* After the node is open and memory is there. Collective. */
tt_code tt_tutti_open(tt_tutti *tutti, struct tt_trainer *trainer, tt_err *err);
/* The node is left open: it is closed by whoever opened it, after memory. */
void tt_tutti_close(tt_tutti *tutti);

/* Chooses how each bucket is reduced (dist/trial.h), where dist.overlap leaves it open; all gradients
 * are zeros. rank_flops: FLOP/s of this rank. Collective. */
tt_code tt_tutti_try(tt_tutti *tutti, double rank_flops, tt_err *err);

/* A pass begins. add: its gradient is added to what earlier passes of the step have sent. */
void tt_tutti_begin(tt_tutti *tutti, tt_pass_kind kind, bool add);
/* The rank has nothing to compute in this pass. */
void tt_tutti_idle(tt_tutti *tutti);
/* A pass ends: what it sent has arrived. Collective. */
tt_code tt_tutti_end(tt_tutti *tutti, tt_err *err);

/* This rank has written what it owns of new weights: the others' start to come. Collective. */
tt_code tt_tutti_publish(tt_tutti *tutti, tt_err *err);
/* Waits until all have come and are packed; nothing in ZeRO 3. Collective. */
tt_code tt_tutti_settle(tt_tutti *tutti, tt_err *err);

#endif
