/* forecast.c: one lane of network beside one of compute. See forecast.h.
 *
 * Owns the times of a tt_work. Reads buckets and stages; next: outlook.c. */
#include "tutti/train/forecast.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tutti/base/memory.h"
#include "tutti/base/narrow.h"

/* ---- what a rank does ---- */

tt_code tt_work_make(tt_work *work, const tt_blueprint *print, const tt_price *price, tt_err *err)
{
    const tt_params *params = &print->params;
    const double N = (double)params->total, L = (double)print->shape.L;
    const double tokens = (double)tt_mul(print->split.micro, print->shape.T);
    const double again = tt_price_again(price, print, &print->recompute) /
                         (double)print->split.accumulate / fmax(L, 1);
    const double pass = price->squares + price->adamw + price->pack;
    *work = (tt_work){
        .stages = params->stages,
        .update = price->update,
        .alone = pass * N,
        .tokens = tokens,
        .zero = tt_int(print->config.memory.zero),
        .often = strcmp(print->config.memory.gradients, "pieces") == 0,
        .buckets = &print->buckets,
        .stage_end = params->stage_end,
        .gradient = (double)print->grad_bytes,
        .weight = (double)print->act_bytes + 4 * (double)params->wide / fmax(N, 1),
        .agreements = 2, /* the sums before the update, the maxima of the record */
        .agreed = (TT_STEP_SUMS + TT_STEP_MAXIMA + print->fp8.sites) * sizeof(double) / 2.0,
        .met = sizeof(int64_t),
    };
    work->forward = tt_alloc(2 * (int64_t)work->stages, sizeof *work->forward, err);
    if (work->forward == NULL) {
        return err->code;
    }
    work->backward = work->forward + work->stages;
    const int last = work->stages - 1;
    for (int s = 1; s < last; s++) {
        work->forward[s] = tokens * price->forward;
        work->backward[s] = tokens * price->backward + again;
    }
    work->forward[0] = tokens * (price->stem - price->stem_backward);
    work->backward[0] = tokens * price->stem_backward;
    work->backward[last] = tokens * price->crown; /* the head goes both ways at once */
    return TT_OK;
}

void tt_work_free(tt_work *work)
{
    free(work->forward);
    *work = (tt_work){.stages = 0};
}

static double sum_of(const double *seconds, int count)
{
    double sum = 0;
    for (int i = 0; i < count; i++) {
        sum += seconds[i];
    }
    return sum;
}

double tt_work_alone(const tt_work *work, int64_t accumulate)
{
    return (double)accumulate * sum_of(work->forward, 2 * work->stages) + work->alone;
}

void tt_work_hasten(tt_work *work, double speed)
{
    for (int i = 0; i < 2 * work->stages; i++) {
        work->forward[i] /= speed;
    }
    work->update /= speed;
    work->alone /= speed;
}

/* ---- what it waits for ---- */

static double elements(const tt_bucket *bucket)
{
    return (double)(bucket->range.end - bucket->range.first);
}

static double reduction(const tt_work *work, const tt_network *network, const tt_bucket *bucket)
{
    const double bytes = work->gradient * elements(bucket);
    return work->zero >= 2 ? tt_network_reduce_scatter(network, bytes)
                           : tt_network_allreduce(network, bytes, NULL);
}

static double gathering(const tt_work *work, const tt_network *network, const tt_bucket *bucket)
{
    return tt_network_allgather(network, work->weight * elements(bucket));
}

/* One micro-batch in one direction. */
typedef struct pass {
    bool backward;
    bool gathers; /* weights of a stage come before it is computed */
    bool ahead;   /* and not before the stage before it has begun; else from the start on */
    bool reduces; /* gradients go when they are ready, and are waited for at the end */
} pass;

/* Does a stage, or one that comes before it in the pass, need a bucket's weights? */
static bool needs(const tt_work *work, const pass *p, int stage, const tt_bucket *bucket)
{
    const int64_t first = stage > 0 ? work->stage_end[stage - 1] : 0;
    return p->backward ? bucket->range.end > first : bucket->range.first < work->stage_end[stage];
}

/* Seconds of a pass, stage by stage: `clock` is the rank's, `lane` when the network is free again. */
static double pass_seconds(const tt_work *work, const tt_network *network, const pass *p)
{
    const tt_buckets *buckets = work->buckets;
    const int step = p->backward ? -1 : 1, stages = work->stages;
    const int first = p->backward ? stages - 1 : 0;
    int gathered = p->backward ? buckets->count - 1 : 0, reduced = buckets->count - 1;
    double clock = 0, lane = 0, begun = 0;
    for (int i = 0; i <= stages;
         i++) { /* turn i gathers for stage i and computes the one before it */
        const int stage = first + step * i, before = stage - step;
        double there = 0;
        while (p->gathers && i < stages && gathered >= 0 && gathered < buckets->count &&
               needs(work, p, stage, &buckets->bucket[gathered])) {
            lane = fmax(lane, p->ahead ? begun : 0) +
                   gathering(work, network, &buckets->bucket[gathered]);
            there = lane;
            gathered += step;
        }
        if (i > 0) {
            clock = begun + (p->backward ? work->backward : work->forward)[before];
            for (; p->reduces && reduced >= 0 && buckets->bucket[reduced].last_stage >= before;
                 reduced--) {
                lane = fmax(lane, clock) + reduction(work, network, &buckets->bucket[reduced]);
            }
        }
        begun = fmax(clock, there);
    }
    return p->reduces ? fmax(clock, lane) : clock;
}

static tt_step_time step_time(const tt_forecast *f, const tt_work *work, const tt_network *network,
                              double exposed)
{
    const double K = (double)f->accumulate;
    const double step = f->compute + exposed;
    return (tt_step_time){.exposed = exposed,
                          .step = step,
                          .tokens_per_s = K * work->tokens * network->ranks / step,
                          .efficiency = tt_work_alone(work, f->accumulate) / step};
}

tt_forecast tt_forecast_make(const tt_work *work, const tt_network *network, int64_t accumulate)
{
    const double K = (double)accumulate;
    const double forward = sum_of(work->forward, work->stages);
    const double backward = sum_of(work->backward, work->stages);
    const bool every = work->zero >= 3; /* pass gathers */
    const double reductions = work->often ? K : 1;
    const double meetings = work->often || every ? K - 1 : 0; /* does a rank leave? */
    tt_forecast f = {.accumulate = accumulate,
                     .compute = K * (forward + backward) + work->update,
                     .agree = work->agreements * tt_network_allreduce(network, work->agreed, NULL) +
                              meetings * tt_network_allreduce(network, work->met, NULL)};
    for (int i = 0; i < work->buckets->count; i++) {
        const tt_bucket *bucket = &work->buckets->bucket[i];
        f.reduce += reductions * reduction(work, network, bucket);
        f.gather += work->zero > 0 ? (every ? 2 * K : 1) * gathering(work, network, bucket) : 0;
    }
    const pass out = {.gathers = work->zero > 0, .ahead = every};
    const pass keeps = {.backward = true, .gathers = every, .ahead = every};
    const pass sums = {.backward = true, .gathers = every, .ahead = every, .reduces = true};
    const double exposed = f.agree +
                           (every ? K : 1) * (pass_seconds(work, network, &out) - forward) +
                           (K - reductions) * (pass_seconds(work, network, &keeps) - backward) +
                           reductions * (pass_seconds(work, network, &sums) - backward);
    f.blocking = step_time(&f, work, network, f.reduce + f.gather + f.agree);
    f.overlap = step_time(&f, work, network, fmax(0, exposed)); /* rounding may leave less than 0 */
    return f;
}
