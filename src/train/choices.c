/* choices.c: the ways to recompute, against a given memory. See choices.h.
 *
 * Owns nothing. Reads plans of other micro-batches; next: ledger.c. */
#include "tutti/train/choices.h"

#include <stdio.h>
#include <string.h>

#include "tutti/base/narrow.h"

/* Bytes of a rank with this micro-batch. */
static void bytes_of(const tt_blueprint *print, const tt_recompute *recompute, int64_t micro,
                     size_t group[TT_GROUPS])
{
    size_t component[TT_MEM_COMPONENTS];
    tt_plan_memory(print, micro, recompute, component, NULL);
    tt_group_bytes(component, print->plan.libraries, group);
}

static bool fits(const tt_blueprint *print, const tt_recompute *recompute, int64_t micro,
                 int64_t limit)
{
    size_t group[TT_GROUPS];
    bytes_of(print, recompute, micro, group);
    return tt_count(group[TT_GROUP_TOTAL]) <= limit;
}

/* Doubles until it does not fit, then halves the gap: memory only grows with the micro-batch. */
static int64_t find_largest(const tt_blueprint *print, const tt_recompute *recompute, int64_t limit)
{
    int64_t good = 0, bad = 1; /* good fits, or is 0 */
    while (fits(print, recompute, bad, limit)) {
        good = bad;
        if (good == TT_LARGEST_MICRO) {
            return good;
        }
        bad = tt_min(2 * bad, TT_LARGEST_MICRO);
    }
    while (bad - good > 1) {
        const int64_t middle = good + (bad - good) / 2;
        *(fits(print, recompute, middle, limit) ? &good : &bad) = middle;
    }
    return good;
}

/* The kinds in order; after them the configuration's own first blocks. */
static int name_them(tt_choice choice[TT_CHOICES], const tt_blueprint *print)
{
    int count = 0;
    for (int kind = TT_RECOMPUTE_NONE; kind < TT_RECOMPUTE_KINDS; kind++) {
        tt_choice *c = &choice[count++];
        snprintf(c->name, sizeof c->name, "%s", tt_recompute_names[kind]);
        c->recompute =
            tt_recompute_make((tt_recompute_kind)kind, print->shape.L, 0, print->fp8.sites > 0);
    }
    if (print->config.memory.recompute_blocks > 0) {
        tt_choice *c = &choice[count++];
        snprintf(c->name, sizeof c->name, "block %lld",
                 (long long)print->config.memory.recompute_blocks);
        c->recompute = print->recompute;
    }
    return count;
}

int tt_choices_make(tt_choice choice[TT_CHOICES], const tt_blueprint *print, int64_t limit,
                    const tt_price *price)
{
    memset(choice, 0, TT_CHOICES * sizeof *choice);
    const int count = name_them(choice, print);
    for (int i = 0; i < count; i++) {
        tt_choice *c = &choice[i];
        bytes_of(print, &c->recompute, print->split.micro, c->bytes);
        c->fits = tt_count(c->bytes[TT_GROUP_TOTAL]) <= limit;
        c->largest = find_largest(print, &c->recompute, limit);
        c->slower = price != NULL ? tt_price_again(price, print, &c->recompute) / price->step : 0;
    }
    return count;
}
