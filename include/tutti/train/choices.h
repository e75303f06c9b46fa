/* choices.h: what each way to recompute activations needs, what fits a given memory, and what it costs
 * in time.
 *
 * Memory: plain values. Reads a blueprint and a price; next: train/ledger.h. */
#ifndef TUTTI_TRAIN_CHOICES_H
#define TUTTI_TRAIN_CHOICES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tutti/train/plan.h"
#include "tutti/train/price.h"
#include "tutti/train/techniques.h"

typedef struct tt_choice {
    char name[TT_NAME]; /* of memory.recompute; "block 5" with memory.recompute_blocks */
    tt_recompute recompute;
    size_t bytes[TT_GROUPS]; /* of a rank, at the configuration's micro-batch */
    bool fits;
    int64_t largest; /* micro-batch that fits; 0: none does */
    double slower;   /* share of a step's time that it adds; 0 without a price */
} tt_choice;

/* The kinds, and what the configuration asks for when it is none of them. */
enum { TT_CHOICES = TT_RECOMPUTE_KINDS + 1 };
enum { TT_LARGEST_MICRO = 1000000000 /* what batch.micro can be */ };

/* Which of them fit `limit` bytes a rank. price NULL: their time is not wanted. Returns how many there
 * are. Local. */
int tt_choices_make(tt_choice choice[TT_CHOICES], const tt_blueprint *print, int64_t limit,
                    const tt_price *price);

#endif
