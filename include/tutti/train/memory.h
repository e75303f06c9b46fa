/* memory.h: the plan's memory and the system's: that one is the other, and by how much not.
 *
 * Before the first step the arenas hold what was planned, to the byte, and every page of it is there;
 * after the last one, what is resident stands beside it, component by component. What no arena holds
 * is the libraries': MPI, HDF5, the program itself.
 *
 * Reads plan, arenas and the system's counters; next: train/metrics.h writes the record. */
#ifndef TUTTI_TRAIN_MEMORY_H
#define TUTTI_TRAIN_MEMORY_H

#include <stddef.h>

#include "tutti/base/log.h"
#include "tutti/base/status.h"
#include "tutti/base/text.h"
#include "tutti/train/trainer.h"

/* Bytes, as planned and as resident; of the rank that has most, each number by itself. Of what ranks of
 * a node share, each has its part; where they share memory, pages of libraries are divided likewise. */
typedef struct tt_measured {
    double planned, measured;
} tt_measured;

typedef struct tt_memory {
    tt_measured component[TT_MEM_COMPONENTS];
    tt_measured libraries, total;
    double began; /* resident before the arenas were opened: libraries that only have started */
    double peak;  /* the largest resident set that the process has had, counted as `began` is */
} tt_memory;

/* Have all arenas and windows given out just what was planned? Else it is a bug: TT_EWORLD, naming the
 * component and both numbers. Local. */
tt_code tt_memory_check(const tt_plan *plan, const tt_arena arena[TT_MEM_COMPONENTS],
                        const tt_arena window[TT_MEM_COMPONENTS], tt_err *err);

/* Touches all arenas, piece by piece as the update walks through them. Local. */
void tt_memory_touch(const tt_trainer *trainer);

/* Before anything is allocated: does the plan fit into what the node and this process still have? Rank
 * 0 warns if it does not, with both numbers and what to change; the run goes on. Collective. */
tt_code tt_memory_warn(const tt_trainer *trainer, tt_err *err);

/* What is resident now. Collective: the same numbers on every rank. */
tt_code tt_memory_measure(tt_memory *memory, const tt_trainer *trainer, tt_err *err);

/* As a table for people, and as {"weights": {"planned": N, "measured": N}, ...}. */
void tt_memory_report(const tt_memory *memory, tt_log *log);
void tt_memory_text(const tt_memory *memory, tt_text *out);

#endif
