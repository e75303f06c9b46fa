/* optimizer.h: what the optimizer keeps of the rank's shard, in memory or in a file
 * (memory.optimizer_file): masters as precision.master has them (masters.h), and the moments m and v.
 *
 *     local element:   0 ....................................... shard.elements
 *     in memory:       [ one window: all of it                              ]
 *     in a file:       [ window ][ window ][ window ] ... each a chunk of base/chunks.h
 *
 * An update walks the windows in order. An element's update depends on that element alone, so the bits
 * do not depend on where a window begins, and a run may change from one to the other when it resumes.
 * The file is no part of the state: it goes with the process, and checkpoints are the only truth.
 *
 * Invariant: after a transfer has failed, what is read means nothing until the end of the run;
 * tt_optimizer_check says so, and whoever has read asks it before anybody else relies on the numbers.
 *
 * Memory: the arena of TT_MEM_OPTIMIZER: the arrays, or the slots that chunks pass through. Reads and
 * writes base/chunks.h; next: train/masters.h, train/update.c. */
#ifndef TUTTI_TRAIN_OPTIMIZER_H
#define TUTTI_TRAIN_OPTIMIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tutti/base/chunks.h"
#include "tutti/base/memory.h"
#include "tutti/base/status.h"
#include "tutti/kernels/kernels.h"

/* The arrays. A master is 4, 2 or 0 bytes, by its kind. */
typedef enum tt_kept { TT_KEPT_MASTER, TT_KEPT_M, TT_KEPT_V, TT_KEPT } tt_kept;

/* Local elements first .. first + count - 1, in memory. */
typedef struct tt_window {
    int64_t first, count;
    float *master; /* [count] of masters of kind FP32; else NULL */
    uint16_t *low; /* [count] of kind SPLIT; else NULL */
    float *m, *v;  /* [count] */
} tt_window;

typedef struct tt_optimizer {
    int64_t elements;      /* of the shard */
    size_t bytes[TT_KEPT]; /* of an element */
    tt_window all;         /* in memory; with a file it is empty */
    tt_chunks *chunks;     /* owned; NULL: in memory */
    int64_t chunk;         /* elements of one */
} tt_optimizer;

/* Bytes of memory, and of the file (0 without one), for so many elements. */
size_t tt_optimizer_memory(tt_master_kind kind, int64_t elements, bool in_file);
size_t tt_optimizer_file(tt_master_kind kind, int64_t elements, bool in_file);

/* All zeros. path: NULL for memory, else where the rank's file is made. Takes all of the arena that
 * tt_optimizer_memory counts. Local. */
tt_code tt_optimizer_open(tt_optimizer *optimizer, tt_master_kind kind, int64_t elements,
                          const char *path, tt_arena *arena, tt_err *err);
/* Before its arena; safe on a zeroed one. */
void tt_optimizer_close(tt_optimizer *optimizer);

/* TT_OK, or why a transfer has failed. Local. */
tt_code tt_optimizer_check(const tt_optimizer *optimizer, tt_err *err);

/* The walk of an update: from a zeroed window to the first, from each to the next, whose arrays may be
 * changed until the next call; false after the last, or when a transfer has failed. */
bool tt_optimizer_next(const tt_optimizer *optimizer, tt_window *window);

/* Local elements first .. first + count - 1 of one array, as they are kept. Many threads may get, or
 * put to places of their own. */
void tt_optimizer_get(const tt_optimizer *optimizer, tt_kept what, int64_t first, int64_t count,
                      void *out);
void tt_optimizer_put(const tt_optimizer *optimizer, tt_kept what, int64_t first, int64_t count,
                      const void *in);

#endif
