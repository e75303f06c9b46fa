/* ledger.h: the page of `tutti plan`: what a run takes, by component, by technique, and for each way to
 * recompute; for people, and as one JSON object.
 *
 * Invariant: every number is the plan's, or the difference of two plans; only times are measured.
 *
 * Memory: plain values; the blueprint is borrowed. Reads train/plan.h; next: cli/plan.c. */
#ifndef TUTTI_TRAIN_LEDGER_H
#define TUTTI_TRAIN_LEDGER_H

#include <stdbool.h>
#include <stdint.h>

#include "tutti/base/status.h"
#include "tutti/base/text.h"
#include "tutti/train/choices.h"
#include "tutti/train/outlook.h"
#include "tutti/train/plan.h"
#include "tutti/train/price.h"
#include "tutti/train/techniques.h"

/* What one of the choices of memory.gradients costs. */
typedef struct tt_keeping {
    const char *name;               /* static */
    bool chosen;                    /* by this configuration */
    size_t bytes;                   /* of gradients, a rank */
    int64_t wire_calls, wire_bytes; /* a step and rank */
} tt_keeping;

enum { TT_KEEPINGS = 2 }; /* whole, pieces */

typedef struct tt_ledger {
    const tt_blueprint *print; /* of rank 0, whose share of anything is the largest */
    tt_keeping keeping[TT_KEEPINGS];
    int keepings; /* 0: there is no choice, or it makes no difference */
    tt_effect effect[TT_TECHNIQUES];
    int effects;
    int64_t limit; /* bytes of a rank; 0: nobody asked */
    tt_choice choice[TT_CHOICES];
    int choices;
    tt_price price;            /* rounds 0: not measured */
    const tt_outlook *outlook; /* borrowed; NULL: of a network nobody asked */
} tt_ledger;

/* Of rank 0's blueprint (tt_blueprint_imagine). limit 0: the ways to recompute are not wanted, else
 * bytes that a rank has; price NULL: nothing was measured; outlook NULL: no network was named. Local. */
tt_code tt_ledger_make(tt_ledger *ledger, const tt_blueprint *print, int64_t limit,
                       const tt_price *price, const tt_outlook *outlook, tt_err *err);

void tt_ledger_text(const tt_ledger *ledger, tt_text *out);
void tt_ledger_json(const tt_ledger *ledger, tt_text *out);

#endif
