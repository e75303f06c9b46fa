/* techniques.h: what each technique that saves memory, or spends it, changes in a rank's plan.
 *
 * One row of a table is a technique: the keys that switch it on and those that switch it off. Its
 * effect is the difference of two plans, made from the configuration with and without it on the same
 * machines; nothing is estimated. Techniques add up only where they touch different things: ranks that
 * share weights have a part of them each, so that ZeRO 0, which shares none, costs them more.
 *
 * Memory: plain values. Reads a blueprint; next: train/ledger.h. */
#ifndef TUTTI_TRAIN_TECHNIQUES_H
#define TUTTI_TRAIN_TECHNIQUES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tutti/base/status.h"
#include "tutti/base/text.h"
#include "tutti/train/plan.h"

/* The components as people speak of them: four, what kernels and batches need, and what is outside of
 * any plan of ours. */
typedef enum tt_group {
    TT_GROUP_WEIGHTS, /* with FP32 copies and packed forms */
    TT_GROUP_GRADIENTS,
    TT_GROUP_OPTIMIZER,
    TT_GROUP_ACTIVATIONS,
    TT_GROUP_WORKSPACE, /* with the batch */
    TT_GROUP_LIBRARIES,
    TT_GROUP_TOTAL, /* of all before it */
    TT_GROUPS
} tt_group;

extern const char *const tt_group_names[TT_GROUPS];

/* The components of a plan, and its libraries, by group. */
void tt_group_bytes(const size_t component[TT_MEM_COMPONENTS], size_t libraries,
                    size_t group[TT_GROUPS]);

typedef struct tt_effect {
    const char *name; /* static */
    bool on;          /* in this configuration: against the same without; off: if it were on */
    bool possible;    /* false: the other configuration is refused, as `why` says */
    int64_t change[TT_GROUPS]; /* bytes of a rank; less than 0: it saves */
    tt_err why;
} tt_effect;

enum { TT_TECHNIQUES = 24 }; /* room */

/* The effects on rank 0's plan of those rows that make sense here. Local. */
tt_code tt_techniques_make(tt_effect effect[TT_TECHNIQUES], int *count, const tt_blueprint *print,
                           tt_err *err);

/* The table for people; an array of JSON objects. */
void tt_techniques_text(const tt_effect *effect, int count, tt_text *out);
void tt_techniques_json(const tt_effect *effect, int count, tt_text *out);

#endif
