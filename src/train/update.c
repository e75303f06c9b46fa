/* update.c: the shard's update, window by window and in each segment by segment. See update.h.
 *
 * Invariant: an element's update depends on that element alone, so neither windows nor segments show in
 * the bits. Nothing is allocated here. */
#include "tutti/train/update.h"

#include "tutti/base/narrow.h"
#include "tutti/optim/optim.h"
#include "tutti/train/masters.h"

#include "train/train_impl.h"

/* The part of a segment that is in the window; count 0: none. */
static tt_segment segment_in(const tt_segment *s, const tt_window *w)
{
    const int64_t from = tt_max(s->local, w->first);
    const int64_t to = tt_min(s->local + s->count, w->first + w->count);
    const int64_t gap = s->local + s->count - s->gap; /* where it begins */
    tt_segment part = *s;
    part.flat += from - s->local;
    part.local = from;
    part.count = tt_max(0, to - from);
    part.gap = tt_max(0, to - tt_max(from, gap));
    return part;
}

static void update_segment(tt_trainer *t, const tt_window *w, const tt_segment *s,
                           const tt_adamw *step)
{
    const tt_grad g = tt_sum_own(t, s->flat, s->local);
    const tt_master master = tt_masters_of(t, w, s);
    const int64_t at = s->local - w->first;
    tt_census *census = tt_numerics_weights(t, s->role);
    t->ctx.count.result = census;
    t->ctx.ops->adamw(&t->ctx, &master, w->m + at, w->v + at, tt_weight_own(t, s->flat, s->local),
                      &g, s->count, step);
    t->ctx.count.result = NULL;
    if (census != NULL) {
        census->values -= s->gap;
    }
}

void tt_update_shard(tt_trainer *t, double lr, double grad_scale)
{
    const tt_config *config = &t->print.config;
    const tt_adamw decayed = tt_adamw_step(config, lr, t->progress.updates, true, grad_scale);
    const tt_adamw plain = tt_adamw_step(config, lr, t->progress.updates, false, grad_scale);
    tt_beat(t->world, "updating the weights");
    for (tt_window w = {.count = 0}; tt_optimizer_next(&t->optimizer, &w);) {
        for (int i = 0; i < t->segments; i++) {
            const tt_segment part = segment_in(&t->segment[i], &w);
            if (part.count > 0) {
                tt_beat(t->world, NULL);
                update_segment(t, &w, &part, part.decay ? &decayed : &plain);
            }
        }
    }
}
