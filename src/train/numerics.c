/* numerics.c: the census of a step (run.numerics_every): who counts what, once, and the sum.
 *
 * Passes count on every rank, each its own micro-batches. Of what all ranks hold alike one counts: of a
 * gradient that is reduced the rank whose piece it is, of weights that every rank updates or rounds,
 * rank 0. So the sum over ranks has everything once.
 *
 * Invariant: nothing here changes what a step computes.
 *
 * Memory: the trainer's array, one element a group and thread, then one a group for the sum. Reads
 * the gradient; next: metrics.c writes the line. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tutti/base/narrow.h"

#include "train/train_impl.h"

static int64_t counted_elements(const tt_trainer *t)
{
    return tt_mul(TT_CENSUS_GROUPS, t->numerics.threads);
}

tt_code tt_numerics_open(tt_trainer *t, tt_err *err)
{
    t->numerics = (tt_numerics){.threads = t->ctx.threads};
    if (t->print.config.run.numerics_every == 0) {
        return TT_OK;
    }
    t->numerics.group = tt_alloc(counted_elements(t) + TT_CENSUS_GROUPS, sizeof(tt_census), err);
    return t->numerics.group != NULL ? TT_OK : err->code;
}

void tt_numerics_close(tt_trainer *t)
{
    free(t->numerics.group);
    t->numerics.group = NULL;
}

static bool due(const tt_trainer *t, int64_t number)
{
    const int64_t every = t->print.config.run.numerics_every;
    return every > 0 && number % every == 0;
}

bool tt_numerics_begin(tt_trainer *t, int64_t number)
{
    const bool counts = due(t, number);
    /* Weights that the passes round are those of the step before. */
    tt_model_count(t->model, counts ? &t->numerics : NULL, NULL);
    if (counts) {
        memset(t->numerics.group, 0, tt_bytes(counted_elements(t), sizeof(tt_census)));
    }
    return counts;
}

/* Of a gradient of floats. */
static void count_floats(const tt_trainer *t, tt_census *census, const float *sum, int64_t count)
{
    int64_t inf = 0, nan = 0;
#pragma omp parallel for num_threads(t->ctx.threads) reduction(+ : inf, nan)
    for (int64_t i = 0; i < count; i++) {
        inf += isinf(sum[i]) != 0;
        nan += isnan(sum[i]) != 0;
    }
    census->inf += inf;
    census->nan += nan;
}

void tt_numerics_gradient(tt_trainer *t)
{
    const tt_params *params = &t->print.params;
    const tt_shard *cut = &t->print.cut;
    for (int p = 0; p < params->count; p++) {
        const tt_param *param = &params->param[p];
        tt_census *census = tt_numerics_group(&t->numerics, TT_PART_GRADIENTS, (int)param->role);
        for (int i = 0; i < cut->count; i++) {
            const int64_t first = tt_max(param->offset, cut->range[i].first);
            const int64_t end = tt_min(param->offset + param->count, cut->range[i].end);
            census->values += tt_max(0, end - first);
            if (t->gradient.sum != NULL && end > first) {
                const int64_t local = cut->local[i] + (first - cut->range[i].first);
                count_floats(t, census, tt_sum_own(t, first, local).sum, end - first);
            }
        }
        census->overflow += t->gradient.fixed != NULL ? t->gradient.lost[p] : 0;
    }
    /* What follows is the update, in which weights are rounded: by each rank, or by those of a node
     * together. Weights that come and go are rounded each time, and not counted. */
    const bool mine = t->print.shares ? t->tutti.node.index == 0 : t->world->rank == 0;
    tt_model_count(t->model, NULL, mine && !t->print.rotates ? &t->numerics : NULL);
}

tt_census *tt_numerics_weights(const tt_trainer *t, tt_role role)
{
    const bool mine = t->print.config.memory.zero > 0 || t->world->rank == 0;
    return mine && due(t, t->progress.step)
               ? tt_numerics_group(&t->numerics, TT_PART_WEIGHTS, (int)role)
               : NULL;
}

tt_code tt_numerics_sum(tt_trainer *t, const tt_census **sum, tt_err *err)
{
    enum { COUNTS = sizeof(tt_census) / sizeof(int64_t) };
    tt_census *all = t->numerics.group + counted_elements(t);
    memset(all, 0, TT_CENSUS_GROUPS * sizeof *all);
    for (int64_t i = 0; i < counted_elements(t); i++) {
        const tt_census *one = &t->numerics.group[i];
        tt_census *to = &all[i / t->numerics.threads];
        to->values += one->values;
        to->inf += one->inf;
        to->nan += one->nan;
        to->overflow += one->overflow;
        to->underflow += one->underflow;
    }
    *sum = all;
    return tt_sum_i64(t->world, (int64_t *)all, TT_CENSUS_GROUPS * COUNTS, err);
}
