/* forecast.h: the time of a step on so many ranks, from measured compute and a network on paper.
 *
 * Backward finishes stages from the last to the first; a bucket may leave when its last stage is done,
 * and queues behind those before it: the network is one lane. What the lane still holds when backward
 * ends is exposed. The updated weights are gathered while the next forward runs, from the first stage
 * on; a stage waits for its own (ZeRO 1 and 2). With ZeRO 3 weights are gathered for each pass, one
 * stage ahead. The step's agreement is always waited for, and the one after each micro-batch of pieces
 * and of ZeRO 3. Without overlap everything is.
 * Gradients are reduced once a step, however many micro-batches it has; with memory.gradients: pieces
 * every micro-batch reduces, and ends when its sums are there.
 *
 * Memory: tt_work owns its times; the rest is plain values. Reads a blueprint and its price; next:
 * train/outlook.h. */
#ifndef TUTTI_TRAIN_FORECAST_H
#define TUTTI_TRAIN_FORECAST_H

#include <stdbool.h>
#include <stdint.h>

#include "tutti/base/status.h"
#include "tutti/dist/cut.h"
#include "tutti/train/network.h"
#include "tutti/train/plan.h"
#include "tutti/train/price.h"

/* What a rank does by itself, and what it has to tell the others. */
typedef struct tt_work {
    int stages;
    double *forward, *backward; /* [stages] seconds of one micro-batch; one block, owned */
    double update;              /* seconds */
    double alone;               /* seconds of the update, were there one rank */
    double tokens;              /* of a micro-batch */
    int zero;                   /* 0 to 3 */
    bool often;                 /* every micro-batch reduces, not the last alone */
    const tt_buckets *buckets;  /* borrowed */
    const int64_t *stage_end;   /* [stages] borrowed */
    double gradient, weight;    /* bytes of an element, reduced and gathered */
    double agreements, agreed;  /* small sums at the end of a step, and bytes of each */
    double met;                 /* bytes of one between micro-batches, where ranks meet there */
} tt_work;

/* The work of `print` as fast as `price` says; free with tt_work_free. */
tt_code tt_work_make(tt_work *work, const tt_blueprint *print, const tt_price *price, tt_err *err);
void tt_work_free(tt_work *work);

/* Seconds of a step of K micro-batches, were there one rank. */
double tt_work_alone(const tt_work *work, int64_t accumulate);
/* All of it `speed` times as fast. */
void tt_work_hasten(tt_work *work, double speed);

typedef struct tt_step_time {
    double exposed;      /* seconds in which the rank waits for the network */
    double step;         /* seconds: compute and exposed */
    double tokens_per_s; /* over all ranks */
    double efficiency;   /* a step of one rank with the same batch a rank, by this step */
} tt_step_time;

typedef struct tt_forecast {
    int64_t accumulate;             /* K */
    double compute;                 /* seconds: K micro-batches and the update */
    double reduce, gather, agree;   /* seconds of a step in collectives, hidden or not */
    tt_step_time blocking, overlap; /* without and with overlap */
} tt_forecast;

tt_forecast tt_forecast_make(const tt_work *work, const tt_network *network, int64_t accumulate);

#endif
