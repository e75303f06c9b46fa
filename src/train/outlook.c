/* outlook.c: forecasts as a page. See outlook.h.
 *
 * Owns nothing. Reads forecast.c's numbers; next: ledger.c. */
#include "tutti/train/outlook.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>

#include "tutti/base/narrow.h"
#include "tutti/base/threads.h"

static const int64_t others[TT_FORECASTS - 1] = {1, 8, 32};

tt_code tt_outlook_make(tt_outlook *o, const tt_blueprint *print, const tt_price *price,
                        const tt_network *network, double rate, tt_err *err)
{
    tt_code rc = TT_OK;
    tt_work work;
    const int64_t K = print->split.accumulate;
    double largest = 0;
    *o = (tt_outlook){.network = *network,
                      .threads = rate == 0 ? print->plan.threads : 0,
                      .processors = tt_processors(NULL)};
    o->network.sum = network->sum > 0 ? network->sum : price->add;
    TT_TRY(tt_work_make(&work, print, price, err));
    o->rate = (double)K * work.tokens / tt_work_alone(&work, K);
    if (rate > 0) {
        tt_work_hasten(&work, rate / o->rate);
        o->rate = rate;
    }
    for (int i = 0; i < print->buckets.count; i++) {
        const tt_range range = print->buckets.bucket[i].range;
        largest = fmax(largest, (double)(range.end - range.first) * work.gradient);
    }
    tt_network_allreduce(&o->network, largest, &o->way);
    o->forecast[o->forecasts++] = tt_forecast_make(&work, &o->network, K);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        if (others[i] != K) {
            o->forecast[o->forecasts++] = tt_forecast_make(&work, &o->network, others[i]);
        }
    }
out:
    tt_work_free(&work);
    return rc;
}

/* ---- for people ---- */

static void row_text(const tt_forecast *f, bool overlap, tt_text *out)
{
    const tt_step_time *t = overlap ? &f->overlap : &f->blocking;
    char K[32] = "";
    if (overlap) {
        snprintf(K, sizeof K, "%lld", (long long)f->accumulate);
    }
    tt_text_add(out, "  %10s %8s %11.2f %10.2f %10.2f %11.2f %11.2f %11.0f %8.2f %%\n", K,
                overlap ? "yes" : "no", 1e3 * f->compute, 1e3 * f->reduce, 1e3 * f->gather,
                1e3 * t->exposed, 1e3 * t->step, t->tokens_per_s, 100 * t->efficiency);
}

void tt_outlook_text(const tt_outlook *o, tt_text *out)
{
    const tt_network *n = &o->network;
    const int nodes = tt_network_nodes(n), each = tt_int(tt_min(n->node_ranks, n->ranks));
    tt_text_add(out, "Forecast: %d rank%s, %d on a node, %g Gbit/s and %g us between nodes\n",
                n->ranks, n->ranks == 1 ? "" : "s", each, 8e-9 * n->link, 1e6 * n->latency);
    tt_text_add(out, "  %10s %8s %11s %10s %10s %11s %11s %11s %10s\n", "accumulate", "overlap",
                "compute ms", "reduce ms", "gather ms", "exposed ms", "step ms", "tokens/s",
                "efficiency");
    for (int i = 0; i < o->forecasts; i++) {
        row_text(&o->forecast[i], true, out);
        row_text(&o->forecast[i], false, out);
    }
    tt_text_add(out, "  compute: one rank alone trains %.4g tokens/s", o->rate);
    if (o->threads == 0) {
        tt_text_add(out, ", as given");
    } else {
        tt_text_add(out, ", by the kernels here and now, on %d thread%s", o->threads,
                    o->threads == 1 ? "" : "s");
        if (o->threads > o->processors) {
            tt_text_add(out, ", more than the %d processor%s here can bear", o->processors,
                        o->processors == 1 ? "" : "s");
        }
        tt_text_add(out, "; a faster rank waits for the network longer: --tokens_per_s");
    }
    tt_text_add(
        out,
        "\n  sums: %s%s for the largest bucket; a thread adds %.3g GB/s; the ranks of a node "
        "%s\n",
        nodes > 1 ? "by " : "", tt_way_names[o->way], 1e-9 / n->sum,
        n->shared ? "add up in shared memory" : "have one link");
    tt_text_add(out,
                "  efficiency: a step of one rank with the same batch a rank, by this one; ZeRO "
                "divides its update\n\n");
}

/* ---- the same as JSON ---- */

typedef struct pair {
    const char *name;
    double value;
} pair;

static void pairs_json(const pair *row, size_t rows, tt_text *out)
{
    for (size_t i = 0; i < rows; i++) {
        tt_text_add(out, "%s\"%s\": ", i > 0 ? ", " : "", row[i].name);
        tt_text_add_double(out, row[i].value);
    }
}

static void time_json(const tt_step_time *t, tt_text *out)
{
    const pair row[] = {{"comm_exposed_ms", 1e3 * t->exposed},
                        {"step_ms", 1e3 * t->step},
                        {"tokens_per_s", t->tokens_per_s},
                        {"efficiency", t->efficiency}};
    pairs_json(row, sizeof row / sizeof *row, out);
}

static void forecast_json(const tt_forecast *f, tt_text *out)
{
    const pair row[] = {{"compute_ms", 1e3 * f->compute},
                        {"reduce_ms", 1e3 * f->reduce},
                        {"gather_ms", 1e3 * f->gather},
                        {"agree_ms", 1e3 * f->agree},
                        {"comm_ms", 1e3 * (f->reduce + f->gather + f->agree)}};
    tt_text_add(out, "\"accumulate\": %lld, ", (long long)f->accumulate);
    pairs_json(row, sizeof row / sizeof *row, out);
    tt_text_add(out, ", ");
    time_json(&f->overlap, out);
    tt_text_add(out, ", \"blocking\": {");
    time_json(&f->blocking, out);
    tt_text_add(out, "}");
}

void tt_outlook_json(const tt_outlook *o, tt_text *out)
{
    const tt_network *n = &o->network;
    const pair row[] = {{"latency_us", rint(1e12 * n->latency) / 1e6}, /* as it was given */
                        {"gbps", rint(8 * n->link) / 1e9},
                        {"sum_gb_s", 1e-9 / n->sum},
                        {"rank_tokens_per_s", o->rate}};
    tt_text_add(out, "{");
    pairs_json(row, sizeof row / sizeof *row, out);
    tt_text_add(out,
                ", \"nodes\": %d, \"node_ranks\": %lld, \"shared\": %s, \"algorithm\": \"%s\", ",
                tt_network_nodes(n), (long long)tt_min(n->node_ranks, n->ranks),
                n->shared ? "true" : "false", tt_way_names[o->way]);
    forecast_json(&o->forecast[0], out);
    tt_text_add(out, ", \"others\": [");
    for (int i = 1; i < o->forecasts; i++) {
        tt_text_add(out, "%s{", i > 1 ? ", " : "");
        forecast_json(&o->forecast[i], out);
        tt_text_add(out, "}");
    }
    tt_text_add(out, "]}");
}
