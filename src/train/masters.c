/* masters.c: masters whole, in halves, or not there. See masters.h. */
#include "tutti/train/masters.h"

#include <math.h>
#include <string.h>

#include "tutti/base/narrow.h"
#include "tutti/numerics/bf16_weight.h"

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

static size_t element_bytes(tt_master_kind kind)
{
    return kind == TT_MASTER_FP32 ? sizeof(float) : kind == TT_MASTER_SPLIT ? sizeof(uint16_t) : 0;
}

size_t tt_masters_cost(tt_master_kind kind, int64_t elements)
{
    return tt_arena_cost(tt_bytes(elements, element_bytes(kind)));
}

void tt_masters_place(tt_trainer *t, tt_arena *arena)
{
    const tt_master_kind kind = t->print.master;
    const size_t bytes = tt_bytes(t->print.shard.elements, element_bytes(kind));
    if (kind == TT_MASTER_FP32) {
        t->master = tt_arena_take(arena, bytes);
    } else if (kind == TT_MASTER_SPLIT) {
        t->low = tt_arena_take(arena, bytes);
    }
}

tt_master tt_masters_of(const tt_trainer *t, const tt_segment *s)
{
    const uint64_t seed = (uint64_t)t->print.config.run.seed;
    return (tt_master){.kind = t->print.master,
                       .full = t->master != NULL ? t->master + s->local : NULL,
                       .low = t->low != NULL ? t->low + s->local : NULL,
                       .stochastic = t->print.stochastic,
                       .key = tt_rng_key(seed, TT_RNG_ROUND, (uint64_t)t->progress.updates),
                       .first = s->flat};
}

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

void tt_masters_get(const tt_trainer *t, int64_t first, int64_t count, float *out)
{
    const tt_shard *shard = &t->print.shard;
    const tt_bf16 *weight = t->weights;
    for (int i = 0; i < shard->count; i++) {
        const run r = run_in(shard, i, first, count);
        float *to = out + (r.flat - first);
        if (r.count > 0 && t->print.master == TT_MASTER_FP32) {
            memcpy(to, t->master + r.local, tt_bytes(r.count, sizeof *to));
        } else if (t->print.master == TT_MASTER_SPLIT) {
            for (int64_t e = 0; e < r.count; e++) {
                to[e] = tt_f32_of_split(weight[r.flat + e], t->low[r.local + e]);
            }
        } else if (t->print.master == TT_MASTER_NONE) {
            for (int64_t e = 0; e < r.count; e++) {
                to[e] = tt_f32_of_bf16(weight[r.flat + e]);
            }
        }
    }
}

void tt_masters_put(const tt_trainer *t, int64_t first, int64_t count, const float *in)
{
    const tt_shard *shard = &t->print.shard;
    tt_bf16 *weight = t->weights;
    for (int i = 0; i < shard->count; i++) {
        const run r = run_in(shard, i, first, count);
        const float *from = in + (r.flat - first);
        if (r.count > 0 && t->print.master == TT_MASTER_FP32) {
            memcpy(t->master + r.local, from, tt_bytes(r.count, sizeof *from));
        } else if (t->print.master == TT_MASTER_SPLIT) {
            for (int64_t e = 0; e < r.count; e++) {
                const tt_split_f32 split = tt_split_of_f32(from[e]);
                weight[r.flat + e] = split.high;
                t->low[r.local + e] = split.low;
            }
        } else if (t->print.master == TT_MASTER_NONE) {
            for (int64_t e = 0; e < r.count; e++) {
                weight[r.flat + e] = tt_bf16_of_f32(from[e]);
            }
        }
    }
}

int64_t tt_masters_nonfinite(const tt_trainer *t)
{
    enum { SOME = 1 << 12 };
    const tt_shard *shard = &t->print.shard;
    int64_t bad = 0;
    for (int i = 0; i < shard->count; i++) {
        const tt_range r = shard->range[i];
#pragma omp parallel for num_threads(t->ctx.threads) reduction(+ : bad)
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

static void get(const void *trainer, int64_t first, int64_t count, float *out)
{
    tt_masters_get(trainer, first, count, out);
}

static void put(const void *trainer, int64_t first, int64_t count, const float *in)
{
    tt_masters_put(trainer, first, count, in);
}

float *tt_masters_data(const tt_trainer *t, tt_form *form)
{
    *form = (tt_form){.owner = t, .get = get, .put = put};
    return t->master;
}
