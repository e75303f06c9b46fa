/* hooks.h: what a pass through the model calls on its way, so that others can bring weights and take
 * gradients: the model knows stages, not ranks.
 *
 * Reads nothing; next: train/tutti.h. */
#ifndef TUTTI_MODEL_HOOKS_H
#define TUTTI_MODEL_HOOKS_H

#include <stdbool.h>
#include <stdint.h>

#include "tutti/model/recompute.h"

struct tt_wrote;

/* Each may be NULL. */
typedef struct tt_hooks {
    /* The stage's weights are about to be read (a tied head's also in the last stage, although they are
     * those of the first): forward, backward, and where its activations are computed again. */
    void (*enter)(void *user, int stage);
    /* Its gradient is about to be added to: for the last stage before its forward, as the head goes both
     * ways at once; a tied head adds to the first stage's there, before that is announced. */
    void (*grad_begin)(void *user, int stage);
    void (*grad_ready)(void *user, int stage); /* nothing more is added to the stage's gradient */
    void (*between)(void *user);               /* between two layers */
    /* Something was written, which may be looked at (look.h): before anything reads it. NULL costs
     * nothing. */
    void (*wrote)(void *user, const struct tt_wrote *wrote);
    void *user;
} tt_hooks;

/* enter, grad_begin and grad_ready of a pass through L blocks in their order, and no pass: of a rank
 * that has nothing to compute while others have, and of a plan. train false: forward alone. */
void tt_hooks_walk(const tt_hooks *hooks, const tt_recompute *recompute, int64_t L, bool train);

#endif
