/* masters.c: masters whole, in halves, or not there. See masters.h. */
#include "tutti/train/masters.h"

#include <math.h>
#include <string.h>

#include "tutti/base/narrow.h"
#include "tutti/dist/watch.h"
#include "tutti/numerics/bf16_weight.h"

#include "train/train_impl.h"

tt_code tt_masters_resolve(const tt_config *config, tt_master_kind *kind, bool *stochastic,
                           tt_err *err)
{
    const char *master = config->precision.master, *compute = config->precision.compute;
    const bool bf16 = strcmp(compute, "bf16") == 0;
    *stochastic = strcmp(config->precision.rounding, "stochastic") == 0;
    *kind = strcmp(master, "split") == 0  ? TT_MASTER_SPLIT
            : strcmp(master, "none") == 0 ? TT_MASTER_NONE
                                          : TT_MASTER_FP32;
    if (*kind == TT_MASTER_SPLIT && !bf16) {
        return tt_fail(
            err, TT_EUSER,
            "precision.master: split needs precision.compute bf16 (it is %s), because the "
            "upper half of a split master is the BF16 weight itself; with %s it can be "
            "fp32.",
            compute, compute);
    }
    if (*kind == TT_MASTER_NONE && !bf16) {
        return tt_fail(
            err, TT_EUSER,
            "precision.master: none needs precision.compute bf16 (it is %s), because what "
            "is rounded after an update is the BF16 weight; with %s it can be fp32.",
            compute, compute);
    }
    if (*stochastic && *kind != TT_MASTER_NONE) {
        return tt_fail(err, TT_EUSER,
                       "precision.rounding: stochastic needs precision.master none (it is %s), "
                       "because a weight with a master is its nearest number and nothing is lost; "
                       "with %s it can be nearest.",
                       master, master);
    }
    return TT_OK;
}

tt_master tt_masters_of(const tt_trainer *t, const tt_window *w, const tt_segment *s)
{
    const uint64_t seed = (uint64_t)t->print.config.run.seed;
    const int64_t at = s->local - w->first;
    return (tt_master){.kind = t->print.master,
                       .full = w->master != NULL ? w->master + at : NULL,
                       .low = w->low != NULL ? w->low + at : NULL,
                       .stochastic = t->print.stochastic,
                       .key = tt_rng_key(seed, TT_RNG_ROUND, (uint64_t)t->progress.updates),
                       .first = s->flat};
}

enum { SOME = 1 << 12 }; /* elements that pass through a stack at a time */

/* Consecutive elements that are in the flat vector and in the shard's arrays. */
typedef struct run {
    int64_t flat, local, count;
} run;

/* The part of flat elements first .. first + count - 1 that is in range i of the shard. */
static run run_in(const tt_shard *shard, int i, int64_t first, int64_t count)
{
    const tt_range r = shard->range[i];
    const int64_t from = tt_max(first, r.first), to = tt_min(first + count, r.end);
    return (run){from, shard->local[i] + (from - r.first), tt_max(to - from, 0)};
}

/* Lower halves from the optimizer, SOME at a time. */
static void get_split(const tt_trainer *t, run r, float *to)
{
    const tt_bf16 *weight = tt_weight_own(t, r.flat, r.local);
    uint16_t low[SOME];
    for (int64_t done = 0; done < r.count; done += SOME) {
        const int64_t some = tt_min(SOME, r.count - done);
        tt_optimizer_get(&t->optimizer, TT_KEPT_MASTER, r.local + done, some, low);
        for (int64_t e = 0; e < some; e++) {
            to[done + e] = tt_f32_of_split(weight[done + e], low[e]);
        }
    }
}

static void put_split(const tt_trainer *t, run r, const float *from)
{
    tt_bf16 *weight = tt_weight_own(t, r.flat, r.local);
    uint16_t low[SOME];
    for (int64_t done = 0; done < r.count; done += SOME) {
        const int64_t some = tt_min(SOME, r.count - done);
        for (int64_t e = 0; e < some; e++) {
            const tt_split_f32 split = tt_split_of_f32(from[done + e]);
            weight[done + e] = split.high;
            low[e] = split.low;
        }
        tt_optimizer_put(&t->optimizer, TT_KEPT_MASTER, r.local + done, some, low);
    }
}

void tt_masters_get(const tt_trainer *t, int64_t first, int64_t count, float *out)
{
    const tt_shard *shard = &t->print.shard;
    for (int i = 0; i < shard->count; i++) {
        const run r = run_in(shard, i, first, count);
        if (r.count == 0) {
            continue;
        }
        float *to = out + (r.flat - first);
        if (t->print.master == TT_MASTER_FP32) {
            tt_optimizer_get(&t->optimizer, TT_KEPT_MASTER, r.local, r.count, to);
        } else if (t->print.master == TT_MASTER_SPLIT) {
            get_split(t, r, to);
        } else if (t->print.master == TT_MASTER_NONE) {
            const tt_bf16 *weight = tt_weight_own(t, r.flat, r.local);
            for (int64_t e = 0; e < r.count; e++) {
                to[e] = tt_f32_of_bf16(weight[e]);
            }
        }
    }
}

void tt_masters_put(const tt_trainer *t, int64_t first, int64_t count, const float *in)
{
    const tt_shard *shard = &t->print.shard;
    for (int i = 0; i < shard->count; i++) {
        const run r = run_in(shard, i, first, count);
        if (r.count == 0) {
            continue;
        }
        const float *from = in + (r.flat - first);
        if (t->print.master == TT_MASTER_FP32) {
            tt_optimizer_put(&t->optimizer, TT_KEPT_MASTER, r.local, r.count, from);
        } else if (t->print.master == TT_MASTER_SPLIT) {
            put_split(t, r, from);
        } else if (t->print.master == TT_MASTER_NONE) {
            tt_bf16 *weight = tt_weight_own(t, r.flat, r.local);
            for (int64_t e = 0; e < r.count; e++) {
                weight[e] = tt_bf16_of_f32(from[e]);
            }
        }
    }
}

int64_t tt_masters_nonfinite(const tt_trainer *t)
{
    const tt_shard *shard = &t->print.shard;
    int64_t bad = 0;
    for (int i = 0; i < shard->count; i++) {
        const tt_range r = shard->range[i];
        tt_beat(t->world, NULL);
        /* Neighbours at a time, so that a file is read in order whoever reads. */
#pragma omp parallel for num_threads(t->ctx.threads) schedule(dynamic) reduction(+ : bad)
        for (int64_t at = r.first; at < r.end; at += SOME) {
            const int64_t count = tt_min(SOME, r.end - at);
            float value[SOME];
            tt_masters_get(t, at, count, value);
            for (int64_t e = 0; e < count; e++) {
                bad += !isfinite(value[e]);
            }
        }
    }
    return bad;
}

/* --- forms of a state table's rows -------------------------------------------------------------- */

static tt_code get_master(const void *trainer, int64_t first, int64_t count, float *out,
                          tt_err *err)
{
    const tt_trainer *t = trainer;
    tt_masters_get(t, first, count, out);
    return tt_optimizer_check(&t->optimizer, err);
}

static tt_code put_master(const void *trainer, int64_t first, int64_t count, const float *in,
                          tt_err *err)
{
    const tt_trainer *t = trainer;
    tt_masters_put(t, first, count, in);
    return tt_optimizer_check(&t->optimizer, err);
}

/* m or v: of flat elements that are in the shard, as far as they are. */
static tt_code get_moment(const tt_trainer *t, tt_kept what, int64_t first, int64_t count,
                          float *out, tt_err *err)
{
    const tt_shard *shard = &t->print.shard;
    for (int i = 0; i < shard->count; i++) {
        const run r = run_in(shard, i, first, count);
        if (r.count > 0) {
            tt_optimizer_get(&t->optimizer, what, r.local, r.count, out + (r.flat - first));
        }
    }
    return tt_optimizer_check(&t->optimizer, err);
}

static tt_code put_moment(const tt_trainer *t, tt_kept what, int64_t first, int64_t count,
                          const float *in, tt_err *err)
{
    const tt_shard *shard = &t->print.shard;
    for (int i = 0; i < shard->count; i++) {
        const run r = run_in(shard, i, first, count);
        if (r.count > 0) {
            tt_optimizer_put(&t->optimizer, what, r.local, r.count, in + (r.flat - first));
        }
    }
    return tt_optimizer_check(&t->optimizer, err);
}

static tt_code get_m(const void *t, int64_t first, int64_t count, float *out, tt_err *err)
{
    return get_moment(t, TT_KEPT_M, first, count, out, err);
}

static tt_code put_m(const void *t, int64_t first, int64_t count, const float *in, tt_err *err)
{
    return put_moment(t, TT_KEPT_M, first, count, in, err);
}

static tt_code get_v(const void *t, int64_t first, int64_t count, float *out, tt_err *err)
{
    return get_moment(t, TT_KEPT_V, first, count, out, err);
}

static tt_code put_v(const void *t, int64_t first, int64_t count, const float *in, tt_err *err)
{
    return put_moment(t, TT_KEPT_V, first, count, in, err);
}

void tt_masters_data(const tt_trainer *t, float *data[TT_KEPT], tt_form form[TT_KEPT])
{
    const tt_window *all = &t->optimizer.all;
    data[TT_KEPT_MASTER] = all->master;
    data[TT_KEPT_M] = all->m;
    data[TT_KEPT_V] = all->v;
    form[TT_KEPT_MASTER] = (tt_form){.owner = t, .get = get_master, .put = put_master};
    form[TT_KEPT_M] = (tt_form){.owner = t, .get = get_m, .put = put_m};
    form[TT_KEPT_V] = (tt_form){.owner = t, .get = get_v, .put = put_v};
}
