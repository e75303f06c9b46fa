/* inject.c: what TUTTI_FAULT does to a step. See base/fault.h. */
#include <math.h>
#include <string.h>

#include "tutti/base/narrow.h"

#include "train/train_impl.h"

void tt_inject_start(tt_trainer *t, int64_t number, tt_mistakes *mistakes)
{
    const tt_fault *fault = &t->fault;
    const int rank = t->world->rank;
    t->tutti.poison_nan = tt_fault_due(fault, TT_FAULT_NAN_GRAD, rank, number);
    t->tutti.poison_inf = tt_fault_due(fault, TT_FAULT_INF_GRAD, rank, number);
    t->tutti.poison_huge = tt_fault_due(fault, TT_FAULT_HUGE_GRAD, rank, number);
    t->tutti.poison_forward = tt_fault_due(fault, TT_FAULT_NAN_FORWARD, rank, number);
    t->tutti.flip = tt_fault_due(fault, TT_FAULT_FLIP_GRAD, rank, number);
    *mistakes =
        (tt_mistakes){.bad_norm = tt_fault_due(fault, TT_FAULT_BAD_NORM, rank, number),
                      .clip_scaled = tt_fault_due(fault, TT_FAULT_CLIP_SCALED, rank, number),
                      .sync_every = tt_fault_due(fault, TT_FAULT_SYNC_EVERY, rank, number)};
    tt_fault_strike(fault, "in_step", rank, number);
}

void tt_inject_update(const tt_trainer *t)
{
    tt_fault_strike(&t->fault, "in_update", t->world->rank, t->progress.step);
    const bool due =
        tt_fault_due(&t->fault, TT_FAULT_OPTIMIZER_FILE, t->world->rank, t->progress.step);
    if (due && t->optimizer.chunks != NULL) {
        tt_chunks_spoil(t->optimizer.chunks);
    }
}

tt_code tt_inject_weight(tt_trainer *t, tt_err *err)
{
    tt_code rc = TT_OK;
    if (t->fault.kind != TT_FAULT_FLIP_WEIGHT || t->print.rotates) {
        goto out;
    }
    TT_TRY(tt_tutti_settle(&t->tutti, err)); /* nobody writes there any more */
    if (tt_fault_due(&t->fault, TT_FAULT_FLIP_WEIGHT, t->world->rank, t->progress.step)) {
        unsigned char *weight =
            tt_act_at(t->weights, t->print.params.total / 2, t->print.act_bytes);
        *weight ^= 1;
        tt_model_pack(t->model);
    }
out:
    return rc;
}

/* The bit below the highest one of the first element. */
static void flip(const tt_grad *g)
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

void tt_inject_spoil(tt_tutti *u)
{
    const tt_trainer *t = u->trainer;
    const tt_grad *g = &t->gradient; /* the first element is held first */
    tt_fault_strike(&t->fault, "in_reduce", t->world->rank, t->progress.step + 1);
    if ((u->poison_nan || u->poison_inf) && g->fixed != NULL) {
        g->lost[0]++;
    } else if (u->poison_nan || u->poison_inf) {
        g->sum[0] = u->poison_nan ? NAN : INFINITY;
    }
    if (u->poison_huge && g->sum != NULL) {
        g->sum[0] = 3e38f;
    }
    if (u->flip) {
        flip(g);
    }
    u->poison_nan = u->poison_inf = u->poison_huge = u->flip = false;
}

void tt_inject_wrote(tt_tutti *u, const tt_wrote *wrote)
{
    const tt_trainer *t = u->trainer;
    const bool here = wrote->kind == TT_WROTE_ACTIVATION && wrote->layer == TT_ROW_ATTENTION &&
                      wrote->stage == 1 && t->suspect.micro == t->print.split.accumulate / 2;
    if (!u->poison_forward || !here) {
        return;
    }
    const int64_t middle = wrote->rows / 2 * wrote->columns;
    if (tt_formats[wrote->format].bytes == sizeof(float)) {
        ((float *)wrote->act)[middle] = NAN;
    } else {
        const uint32_t code = tt_format_code(wrote->format, NAN);
        ((uint16_t *)wrote->act)[middle] = (uint16_t)code;
    }
    u->poison_forward = false;
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

/* Of this rank's accumulators only its own pieces stay, in ZeRO 0 those of rank 0. */
static void keep_sums(tt_trainer *t)
{
    const tt_shard *cut = &t->print.cut;
    const size_t size = t->print.grad_bytes;
    unsigned char *all = tt_grad_data(&t->gradient);
    for (int b = 0; b < cut->count && t->print.config.memory.zero > 0; b++) {
        const tt_range bucket = t->print.buckets.bucket[b].range, mine = cut->range[b];
        memset(all + tt_bytes(bucket.first, size), 0, tt_bytes(mine.first - bucket.first, size));
        memset(all + tt_bytes(mine.end, size), 0, tt_bytes(bucket.end - mine.end, size));
    }
    if (t->print.config.memory.zero == 0 && t->world->rank != 0) {
        tt_gradient_clear(t);
    }
}

/* After it each rank holds sums of what it owns, and nothing else: the next reduction adds what came
 * since. */
tt_code tt_inject_sync(tt_trainer *t, const tt_mistakes *mistakes, tt_err *err)
{
    if (!mistakes->sync_every || t->print.slices) { /* which syncs anyway */
        return TT_OK;
    }
    tt_reduce_begin(&t->tutti.reduce, false);
    tt_code rc = tt_reduce_finish(&t->tutti.reduce, err);
    if (rc == TT_OK) { /* nobody reads what is cleared */
        rc = tt_barrier(t->world, err);
    }
    keep_sums(t);
    return rc;
}
