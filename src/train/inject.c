/* inject.c: what TUTTI_FAULT does to a step. See base/fault.h. */
#include <math.h>
#include <string.h>

#include "tutti/base/narrow.h"

#include "train/train_impl.h"

/* A poisoned accumulator stays poisoned whatever is added to it. */
void tt_inject_start(tt_trainer *t, int64_t number, tt_mistakes *mistakes)
{
    const tt_fault *fault = &t->fault;
    const int rank = t->world->rank;
    const bool nan = tt_fault_due(fault, TT_FAULT_NAN_GRAD, rank, number);
    const bool inf = tt_fault_due(fault, TT_FAULT_INF_GRAD, rank, number);
    *mistakes =
        (tt_mistakes){.flip = tt_fault_due(fault, TT_FAULT_FLIP_GRAD, rank, number),
                      .bad_norm = tt_fault_due(fault, TT_FAULT_BAD_NORM, rank, number),
                      .clip_scaled = tt_fault_due(fault, TT_FAULT_CLIP_SCALED, rank, number),
                      .sync_every = tt_fault_due(fault, TT_FAULT_SYNC_EVERY, rank, number)};
    tt_fault_crash(fault, "in_step", rank, number);
    if ((nan || inf) && t->gradient.fixed != NULL) {
        t->gradient.lost[0]++;
    } else if (nan || inf) {
        t->gradient.sum[0] = nan ? NAN : INFINITY;
    }
}

void tt_inject_update(const tt_trainer *t)
{
    const bool due =
        tt_fault_due(&t->fault, TT_FAULT_OPTIMIZER_FILE, t->world->rank, t->progress.step);
    if (due && t->optimizer.chunks != NULL) {
        tt_chunks_spoil(t->optimizer.chunks);
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

float tt_inject_scale(const tt_batch *batch, const tt_mistakes *mistakes)
{
    int64_t valid = 0;
    for (int64_t i = 0; mistakes->bad_norm && i < batch->B * batch->T; i++) {
        valid += batch->target[i] >= 0;
    }
    return valid > 0 ? 1.0f / (float)valid : 1.0f;
}

double tt_inject_count(int64_t count, const tt_split *split, const tt_mistakes *mistakes)
{
    if (mistakes->bad_norm) {
        return (double)tt_mul(split->accumulate, split->ranks);
    }
    return count > 0 ? (double)count : 1;
}

double tt_inject_norm(double norm, double loss_scale, const tt_mistakes *mistakes)
{
    return mistakes->clip_scaled ? norm * loss_scale : norm;
}

/* After it rank 0 holds the sum so far, and the others hold nothing: the next reduction adds what came
 * since. */
tt_code tt_inject_sync(tt_trainer *t, const tt_mistakes *mistakes, tt_err *err)
{
    if (!mistakes->sync_every) {
        return TT_OK;
    }
    tt_reduce early;
    tt_reduce_begin(&early, t->world, &t->print.buckets, t->gradient.sum, t->gradient.fixed);
    tt_code rc = tt_reduce_finish(&early, err);
    if (t->world->rank != 0) {
        tt_gradient_clear(t);
    }
    return rc;
}
