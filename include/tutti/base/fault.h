/* fault.h: faults on demand, so that tests can see the safety nets catch something.
 *
 * TUTTI_FAULT=<what>:rank=R,step=S   (crash_at=<point>:...). Both rank and step may be left out: every
 * rank, every step; without both there is no colon either. Compiled in where TUTTI_FAULTS is defined
 * (CONFIG=debug, asan, tsan, cov); elsewhere a set TUTTI_FAULT is refused, so that no run is ever
 * quietly different. */
#ifndef TUTTI_BASE_FAULT_H
#define TUTTI_BASE_FAULT_H

#include <stdbool.h>
#include <stdint.h>

#include "tutti/base/status.h"

typedef enum tt_fault_kind {
    TT_FAULT_NONE = 0,
    TT_FAULT_NAN_GRAD,  /* nan_grad: one gradient element becomes NaN before the reduction */
    TT_FAULT_INF_GRAD,  /* inf_grad */
    TT_FAULT_HUGE_GRAD, /* huge_grad: it becomes 3e38, so that two ranks' sum is infinite */
    TT_FAULT_NAN_FORWARD, /* nan_forward: one element that the first block's attention wrote in forward
                             of the middle micro-batch, number K/2 from 0, becomes NaN */
    TT_FAULT_FLIP_GRAD, /* flip_grad: one bit of one gradient element is flipped likewise */
    TT_FAULT_BAD_NORM,  /* bad_norm: the mean of micro-batch means; all ranks */
    TT_FAULT_CLIP_SCALED, /* clip_scaled: clipping sees the norm of the gradient as it was scaled by the
                             loss scale; all ranks */
    TT_FAULT_SYNC_EVERY, /* sync_every: every micro-batch is reduced, not the last alone; all ranks */
    TT_FAULT_FLIP_WEIGHT,   /* flip_weight: one bit of one weight is flipped after the update */
    TT_FAULT_CRASH_AT,      /* crash_at=<point>: the rank dies by SIGKILL at a named point */
    TT_FAULT_HANG,          /* hang=<point>: the rank does nothing any more; hang alone: in_step */
    TT_FAULT_SLOW,          /* slow=<point>: it sleeps two seconds there; both say so on stderr */
    TT_FAULT_ENOSPC,        /* enospc: the next checkpoint write fails as if the disk were full */
    TT_FAULT_OPTIMIZER_FILE /* optimizer_file: the update's next transfer of memory.optimizer_file
                               fails */
} tt_fault_kind;

typedef struct tt_fault {
    tt_fault_kind kind;
    char point[32]; /* of crash_at, hang and slow: a row of the table in base/fault.c */
    int64_t rank;   /* -1: every rank */
    int64_t step;   /* -1: every step */
} tt_fault;

/* Parses `text` (NULL or "": none). Unknown names and points are refused, listing the known. */
tt_code tt_fault_parse(const char *text, tt_fault *fault, tt_err *err);

/* TT_EUSER when the fault can never be due in a run of so many ranks and steps. */
tt_code tt_fault_check(const tt_fault *fault, int ranks, int64_t steps, tt_err *err);

/* Is this fault due on this rank at this step? */
bool tt_fault_due(const tt_fault *fault, tt_fault_kind kind, int rank, int64_t step);

/* The named point, a row of the table in base/fault.c, has come: dies by SIGKILL when crash_at=point
 * is due, waits for ever when hang=point is, sleeps when slow=point is. */
void tt_fault_strike(const tt_fault *fault, const char *point, int rank, int64_t step);

#endif
