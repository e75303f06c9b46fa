/* inject.c: what TUTTI_FAULT does to a step. See base/fault.h. */
#include <math.h>
#include <string.h>

#include "train/train_impl.h"

/* A poisoned accumulator stays poisoned whatever is added to it. */
void tt_inject_start(tt_trainer *t, int64_t number)
{
    const bool nan = tt_fault_due(&t->fault, TT_FAULT_NAN_GRAD, t->world->rank, number);
    const bool inf = tt_fault_due(&t->fault, TT_FAULT_INF_GRAD, t->world->rank, number);
    tt_fault_crash(&t->fault, "in_step", t->world->rank, number);
    if ((nan || inf) && t->gradient.fixed != NULL) {
        t->gradient.lost[0]++;
    } else if (nan || inf) {
        t->gradient.sum[0] = nan ? NAN : INFINITY;
    }
}

/* The bit below the highest one of the first element. */
void tt_inject_flip(const tt_grad *g)
{
    if (g->fixed != NULL) {
        uint64_t size = (uint64_t)(g->fixed[0] < 0 ? -g->fixed[0] : g->fixed[0]), bit = 1;
        while (bit < size >> 2) {
            bit <<= 1;
        }
        g->fixed[0] = (int64_t)((uint64_t)g->fixed[0] ^ bit);
    } else {
        uint32_t bits;
        memcpy(&bits, g->sum, sizeof bits);
        bits ^= 1u << 22;
        memcpy(g->sum, &bits, sizeof bits);
    }
}

float tt_inject_scale(const tt_batch *batch, bool bad_norm)
{
    int64_t valid = 0;
    for (int64_t i = 0; bad_norm && i < batch->B * batch->T; i++) {
        valid += batch->target[i] >= 0;
    }
    return valid > 0 ? 1.0f / (float)valid : 1.0f;
}
