/* bench_allreduce.c: the reduction alone: sums of FP32 vectors over ranks, beside memory's speed. */
#include <stdlib.h>
#include <string.h>

#include "tutti/base/clock.h"
#include "tutti/base/narrow.h"
#include "tutti/dist/reduce.h"

#include "cli/bench_impl.h"

/* What sums a vector of one length over all ranks. */
typedef struct tt_summer {
    tt_node node;
    tt_buckets buckets;
    tt_shard cut;
    tt_ring ring;
    tt_reduce reduce;
    void *held[1];
} tt_summer;

static void summer_close(tt_summer *s)
{
    tt_reduce_close(&s->reduce);
    tt_ring_free(&s->ring);
    tt_shard_free(&s->cut);
    tt_buckets_free(&s->buckets);
    tt_node_close(&s->node);
}

/* Collective. */
static tt_code summer_open(tt_summer *s, tt_bench *bench, float *data, int64_t elements,
                           tt_err *err)
{
    tt_code rc = TT_OK;
    tt_world *world = bench->world;
    const int64_t limit = bench->config.dist.bucket_mb * 1000000 / 4;
    *s = (tt_summer){.held = {data}};
    TT_TRY(tt_agree(world, tt_buckets_make(&s->buckets, &elements, 1, limit, err), err));
    TT_TRY(tt_agree(world, tt_shard_make(&s->cut, &s->buckets, true, world->rank, world->size, err),
                    err));
    TT_TRY(tt_agree(world, tt_ring_make(&s->ring, &s->buckets, &elements, 1, true, err), err));
    TT_TRY(tt_node_open(&s->node, world, 1, err));
    const tt_reduce_spec spec = {.node = &s->node,
                                 .buckets = &s->buckets,
                                 .ring = &s->ring,
                                 .cut = &s->cut,
                                 .all = true,
                                 .held = s->held,
                                 .threads = 1};
    TT_TRY(tt_reduce_open(&s->reduce, &spec, err));
out:
    if (rc != TT_OK) {
        summer_close(s);
    }
    return rc;
}

/* Seconds of one sum, the slowest rank's. Collective. */
static tt_code time_sum(tt_bench *bench, tt_summer *summer, double *seconds, tt_err *err)
{
    tt_code rc = TT_OK;
    TT_TRY(tt_barrier(bench->world, err));
    double start = tt_seconds();
    tt_reduce_begin(&summer->reduce, false);
    TT_TRY(tt_reduce_finish(&summer->reduce, err));
    *seconds = tt_seconds() - start;
    TT_TRY(tt_max_f64(bench->world, seconds, 1, err));
out:
    return rc;
}

tt_code tt_bench_allreduce(tt_bench *bench, tt_err *err)
{
    tt_code rc = TT_OK;
    enum { SMALLEST = 1 << 14, LARGEST = 1 << 26 }; /* elements: 64 KiB to 256 MiB */
    const double R = bench->world->size;
    tt_arena arena = {0};
    double *value = tt_alloc(bench->repeat, sizeof *value, err);
    rc = value ? TT_OK : err->code;
    if (rc == TT_OK && bench->world->size < 2) {
        rc = tt_fail(err, TT_EUSER,
                     "tutti bench allreduce needs at least 2 ranks: mpirun -n 2 tutti "
                     "bench allreduce");
    }
    if (rc == TT_OK) {
        rc = tt_arena_open(&arena, "vector", 2 * tt_bytes(LARGEST, sizeof(float)), err);
    }
    TT_TRY(tt_agree(bench->world, rc, err));
    float *data = tt_arena_take(&arena, tt_bytes(LARGEST, sizeof(float)));
    float *copy = tt_arena_take(&arena, tt_bytes(LARGEST, sizeof(float)));
    memset(data, 0, tt_bytes(LARGEST, sizeof(float))); /* zeros stay zeros however often summed */
    memset(copy, 0, tt_bytes(LARGEST, sizeof(float)));
    if (!bench->json) {
        tt_text_add(&bench->out, "%12s %10s %12s %12s %14s\n", "bytes", "ms", "algbw GB/s",
                    "busbw GB/s", "memcpy GB/s");
    }
    for (int64_t n = SMALLEST; n <= LARGEST; n *= 4) {
        double seconds = 0, start;
        tt_summer summer;
        TT_TRY(summer_open(&summer, bench, data, n, err));
        for (int64_t i = -1; i < bench->repeat && rc == TT_OK; i++) { /* -1: not counted */
            rc = time_sum(bench, &summer, &seconds, err);
            value[tt_max(i, 0)] = seconds;
        }
        summer_close(&summer);
        TT_TRY(rc);
        seconds = tt_median(value, bench->repeat);
        for (int64_t i = 0; i < bench->repeat; i++) {
            TT_TRY(tt_barrier(bench->world, err));
            start = tt_seconds();
            memcpy(copy, data, tt_bytes(n, sizeof(float)));
            value[i] = tt_seconds() - start;
        }
        double bytes = 4.0 * (double)n, memory = tt_median(value, bench->repeat);
        tt_text_add(&bench->out,
                    bench->json ? "{\"bytes\": %.0f, \"ms\": %.4f, \"algbw_gb_s\": %.3f, "
                                  "\"busbw_gb_s\": %.3f, \"memcpy_gb_s\": %.3f}\n"
                                : "%12.0f %10.3f %12.3f %12.3f %14.3f\n",
                    bytes, 1e3 * seconds, bytes / seconds / 1e9,
                    bytes / seconds / 1e9 * 2 * (R - 1) / R, bytes / memory / 1e9);
    }
out:
    tt_arena_close(&arena);
    free(value);
    return rc;
}
