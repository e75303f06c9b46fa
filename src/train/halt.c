/* halt.c: see halt.h. */
#include "tutti/train/halt.h"

#include <math.h>

#include "tutti/base/clock.h"
#include "tutti/dist/stop.h"

/* Bytes a second of the first save, before one was measured: a slow disk. Seconds from the last line of
 * a run to the end of its process. */
static const double slow_disk = 1e8, leave = 1;

void tt_halt_open(tt_halt *h, tt_world *world, const tt_config *config, int64_t bytes)
{
    const double seconds = (double)config->run.max_seconds;
    *h = (tt_halt){.world = world,
                   .limit = seconds > 0 ? world->began + seconds : 0,
                   .save = (double)bytes / slow_disk};
    tt_halt_begin(h);
}

void tt_halt_begin(tt_halt *h)
{
    h->start = h->since = tt_seconds();
}

static void part_ends(tt_halt *h, double now)
{
    h->part = fmax(h->part, now - h->since);
    h->since = now;
}

bool tt_halt_asked(tt_halt *h, bool step)
{
    const double now = tt_seconds();
    part_ends(h, now);
    const double next = step ? fmax(h->step, h->part) : h->part;
    const double saves = h->saving ? 2 * h->save : h->save;
    if (h->limit > 0 && now + next + saves + leave > h->limit) {
        tt_stop_ask(h->world, TT_STOP_LIMIT);
    }
    return tt_stop_look(h->world) != TT_STOP_NONE;
}

void tt_halt_end(tt_halt *h)
{
    const double now = tt_seconds();
    part_ends(h, now);
    h->step = fmax(h->step, now - h->start);
}

void tt_halt_saving(tt_halt *h)
{
    h->saving = true;
}

void tt_halt_saved(tt_halt *h, double seconds)
{
    h->save = h->saved ? fmax(h->save, seconds) : seconds;
    h->saved = true;
    h->saving = false;
}

tt_halted tt_halt_mine(const tt_halt *h, bool left)
{
    const tt_stop_why why = tt_stop_look(h->world);
    return (tt_halted){
        .by_signal = why == TT_STOP_SIGNAL, .by_limit = why == TT_STOP_LIMIT, .left = left};
}

tt_code tt_halt_together(tt_halt *h, bool *left, tt_err *err)
{
    int64_t leavers = *left;
    const tt_code rc = tt_sum_i64(h->world, &leavers, 1, err);
    *left = leavers > 0;
    return rc;
}

bool tt_halt_stops(const tt_halt *h)
{
    return h->all.by_signal + h->all.by_limit > 0;
}
