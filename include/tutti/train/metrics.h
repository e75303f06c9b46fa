/* metrics.h: <run.dir>/metrics.jsonl, one JSON object a line, for programs; the lines a person reads;
 * <run.dir>/data.jsonl with run.trace_data; <run.dir>/digests.jsonl with run.digest_every;
 * <run.dir>/numerics.jsonl with run.numerics_every; and <run.dir>/nonfinite.jsonl from the first step
 * on that is not finite: {"step", "rank", "micro", "in": "loss"|"gradient"|"sum", "tensor",
 * "samples": [..], "elements": [..]}, one line such a step; see blame.h. "micro" counts from 1, and is
 * null where several may have been the one; "rank" is null where no rank saw it in what is its own.
 *
 * Only rank 0 writes. Each line is written whole and flushed, so a killed run leaves whole lines. On
 * resume lines of steps that will be made again are dropped, so the file reads as one run. */
#ifndef TUTTI_TRAIN_METRICS_H
#define TUTTI_TRAIN_METRICS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "tutti/base/log.h"
#include "tutti/base/status.h"
#include "tutti/train/digests.h"
#include "tutti/train/memory.h"
#include "tutti/train/step.h"

typedef struct tt_metrics {
    FILE *file, *trace, *digests, *numerics; /* owned; NULL on other ranks */
    FILE *nonfinite;                         /* owned; NULL before the first such step */
    tt_log *log;                             /* borrowed */
    double started;                          /* tt_seconds at open */
    int64_t first_step;                      /* progress at open */
    double valid_loss;                       /* last one; negative: none yet */
    bool evaluated;                          /* metrics.jsonl had the evaluation of first_step */
} tt_metrics;

/* Local; the caller agrees. */
tt_code tt_metrics_open(tt_metrics *metrics, const tt_trainer *trainer, tt_err *err);
/* digests: as taken after this step, or NULL when they were not. */
tt_code tt_metrics_step(tt_metrics *metrics, const tt_trainer *trainer, const tt_record *record,
                        tt_digests *digests, tt_err *err);
tt_code tt_metrics_valid(tt_metrics *metrics, const tt_trainer *trainer, const tt_loss *loss,
                         tt_err *err);
/* Planned and measured, when the run has ended: {"memory": {...}}. */
tt_code tt_metrics_memory(tt_metrics *metrics, const tt_memory *memory, tt_err *err);
/* A checkpoint that is there. */
typedef struct tt_saved {
    int64_t step;
    double seconds, held; /* from its beginning; of these the run stood still */
} tt_saved;
/* {"step": 100, "saved": "step-00000100.h5", "save_s": ..., "held_up_s": ..., "save_mb_per_s": ...};
 * before it, files that were moved, removed or replaced since they were opened are opened again, with a
 * warning. */
tt_code tt_metrics_saved(tt_metrics *metrics, const tt_trainer *trainer, const tt_saved *saved,
                         tt_err *err);
/* The global sample ids of the step just made, in order. */
tt_code tt_metrics_trace(tt_metrics *metrics, const tt_trainer *trainer, tt_err *err);
/* Every line was flushed when it was written, so closing cannot lose one. */
void tt_metrics_close(tt_metrics *metrics);

#endif
