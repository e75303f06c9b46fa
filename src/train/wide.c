/* wide.c: FP32 copies of the matrices that precision.fp32_ops moves up, on every rank.
 *
 * A copy is the master, not the weight that act has. The copies lie one after another in the order of
 * the flat vector, so what a rank owns of a bucket is one run of them, and a gather is one call a
 * bucket, as for the weights.
 *
 * Invariant: between steps the copies on every rank are the masters.
 *
 * Memory: a component of the plan. Reads masters; next: model/model.h multiplies by the copies. */
#include <stdio.h>
#include <string.h>

#include "tutti/base/narrow.h"
#include "tutti/train/masters.h"

#include "train/train_impl.h"

tt_code tt_wide_held(tt_shard *held, const tt_params *params, tt_err *err)
{
    *held = (tt_shard){.elements = params->wide};
    held->range = tt_alloc(params->count, sizeof *held->range, err);
    held->local = tt_alloc(params->count, sizeof *held->local, err);
    if (held->range == NULL || held->local == NULL) {
        tt_shard_free(held);
        return err->code;
    }
    for (int i = 0; i < params->count; i++) {
        const tt_param *param = &params->param[i];
        if (param->wide >= 0) {
            held->range[held->count] =
                (tt_range){param->offset, param->offset + tt_params_room(param)};
            held->local[held->count++] = param->wide;
        }
    }
    return TT_OK;
}

tt_code tt_wide_check(const tt_blueprint *p, tt_err *err)
{
    if (p->params.wide == 0 || p->master != TT_MASTER_NONE) {
        return TT_OK;
    }
    char names[TT_LIST] = "";
    size_t length = 0;
    int count = 0;
    for (tt_op_row row = 0; row < TT_ROWS; row++) {
        if (tt_autocast_up(&p->autocast, row) && row != TT_ROW_ATTENTION) { /* which has none */
            length += (size_t)snprintf(names + length, sizeof names - length, "%s%s",
                                       count++ > 0 ? "," : "", tt_op_row_names[row]);
        }
    }
    return tt_fail(err, TT_EUSER,
                   "precision.fp32_ops: [%s] %s by FP32 weights, but precision.master is none, "
                   "so that there are only weights in bf16; it can be fp32 or split.",
                   names, count == 1 ? "multiplies" : "multiply");
}

tt_wide tt_wide_of(const tt_blueprint *p, tt_ctx *ctx, void *scratch, size_t bytes, float *weights)
{
    *ctx = (tt_ctx){.ops = NULL};
    if (p->autocast.up == 0) {
        return (tt_wide){.ctx = NULL};
    }
    *ctx = tt_kernels_wide_ctx(&p->wide_ops, p->plan.threads, scratch, bytes);
    return (tt_wide){.autocast = p->autocast, .ctx = ctx, .weights = weights};
}

tt_code tt_wide_refresh(tt_trainer *t, tt_err *err)
{
    enum { SOME = 1 << 14 };
    const tt_blueprint *p = &t->print;
    for (int i = 0; i < p->wide.count; i++) {
        const tt_range r = p->wide.range[i];
        float *to = t->wide_weights + p->wide.local[i];
#pragma omp parallel for num_threads(t->ctx.threads) schedule(dynamic)
        for (int64_t at = r.first; at < r.end; at += SOME) {
            tt_masters_get(t, at, tt_min(SOME, r.end - at), to + (at - r.first));
        }
    }
    if (p->wide.count == 0 || p->config.memory.zero == 0) {
        return TT_OK;
    }
    return tt_gather_held(t->world, &p->buckets, &p->wide, t->wide_weights, sizeof(float), err);
}

int64_t tt_wide_calls(const tt_blueprint *p)
{
    int64_t calls = 0;
    for (int i = 0; i < p->buckets.count; i++) {
        const tt_range r = p->buckets.bucket[i].range;
        calls += tt_shard_before(&p->wide, r.end) > tt_shard_before(&p->wide, r.first);
    }
    return calls;
}
