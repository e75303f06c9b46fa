/* outlook.h: what a plan may expect of a network: its forecast, and those of other accumulations, for
 * people and as JSON.
 *
 * Plain values. Reads train/forecast.h; next: train/ledger.h. */
#ifndef TUTTI_TRAIN_OUTLOOK_H
#define TUTTI_TRAIN_OUTLOOK_H

#include <stdbool.h>

#include "tutti/base/status.h"
#include "tutti/base/text.h"
#include "tutti/train/forecast.h"

enum { TT_FORECASTS = 4 };

typedef struct tt_outlook {
    tt_network network;
    double rate;    /* tokens a second of one rank alone, with the plan's batch a rank */
    int threads;    /* with which that was measured; 0: it was given */
    int processors; /* there were for them */
    tt_way way;     /* of the largest bucket's sum */
    tt_forecast forecast[TT_FORECASTS]; /* of the plan's own K first, then of others */
    int forecasts;
} tt_outlook;

/* The price must have been measured. A network's `sum` that is 0 becomes the price's. rate 0: as fast as
 * the price says; else tokens a second of one rank alone, and of the price only the proportions count.
 * Local. */
tt_code tt_outlook_make(tt_outlook *outlook, const tt_blueprint *print, const tt_price *price,
                        const tt_network *network, double rate, tt_err *err);

void tt_outlook_text(const tt_outlook *outlook, tt_text *out);

/* One object. Of the network: latency_us, gbps, sum_gb_s, nodes, node_ranks, shared, algorithm (of the
 * largest bucket's sum); rank_tokens_per_s (one rank alone). Of a step: accumulate, compute_ms,
 * reduce_ms, gather_ms, agree_ms, comm_ms (these three, hidden or not); with overlap comm_exposed_ms,
 * step_ms, tokens_per_s, efficiency; without, the same four in "blocking": {}. In "others": [] steps of
 * other accumulations, alike. */
void tt_outlook_json(const tt_outlook *outlook, tt_text *out);

#endif
