/* bench_allreduce.c: the collectives of a step alone, vector by vector, beside the speed of memory.
 *
 * Algorithm bandwidth is the vector's bytes by time. Bus bandwidth is what each rank must send, and get,
 * by time, however clever the algorithm: (R-1)/R of the vector, twice where a sum is both scattered and
 * gathered. That is what compares with a link, or with memory. A copy is timed on all ranks at once,
 * as a collective is. Times are the slowest rank's; what a collective leaves is checked once a size.
 *
 * Owns two vectors of the largest size. Reads dist/collective.h; writes the bench's page. */
#include <stdlib.h>
#include <string.h>

#include "tutti/base/clock.h"
#include "tutti/base/narrow.h"
#include "tutti/dist/collective.h"

#include "cli/bench_impl.h"

enum {
    STEP = 4,           /* from one size to the next */
    TOGETHER = 1 << 16, /* bytes that are moved under one clock at least, in so many runs, */
    MOST_RUNS = 64      /* but in no more than these */
};
static const int64_t smallest = 1 << 10, largest = (int64_t)1 << 28; /* unless asked for */

/* Two vectors, and what is moved of them. */
typedef struct rig {
    tt_bench *bench;
    tt_buckets buckets;
    tt_exchange exchange;
    int64_t bytes;
    int64_t runs;    /* under one clock */
    double *seconds; /* [repeat] */
} rig;

/* A collective to be timed, or with NULL a copy. Seconds of one run, the median. Collective. */
static tt_code time_runs(rig *g, const tt_collective *c, double *median, tt_err *err)
{
    tt_code rc = TT_OK;
    for (int64_t i = 0; i < g->bench->repeat; i++) {
        TT_TRY(tt_barrier(g->bench->world, err));
        const double start = tt_seconds();
        for (int64_t run = 0; run < g->runs; run++) {
            if (c == NULL) {
                memcpy(g->exchange.other, g->exchange.vector, tt_size(g->bytes));
            } else {
                TT_TRY(c->run(&g->exchange, err));
            }
        }
        g->seconds[i] = (tt_seconds() - start) / (double)g->runs;
        TT_TRY(tt_max_f64(g->bench->world, &g->seconds[i], 1, err));
    }
    *median = tt_median(g->seconds, g->bench->repeat);
out:
    return rc;
}

/* One run that is not timed; *wrong elements over all ranks. Leaves zeros, which stay zeros however
 * often they are added up. Collective. */
static tt_code check(rig *g, const tt_collective *c, int64_t *wrong, tt_err *err)
{
    tt_code rc = TT_OK;
    tt_collective_fill(c, &g->exchange);
    TT_TRY(c->run(&g->exchange, err));
    *wrong = tt_collective_wrong(c, &g->exchange);
    TT_TRY(tt_sum_i64(g->bench->world, wrong, 1, err));
    memset(g->exchange.vector, 0, tt_size(g->bytes));
    memset(g->exchange.other, 0, tt_size(g->bytes));
out:
    return rc;
}

static void row(rig *g, const tt_collective *c, double seconds, double memory, int64_t wrong)
{
    const double R = g->bench->world->size, bytes = (double)g->bytes;
    const double rate = bytes / seconds / 1e9, bus = rate * c->trips * (R - 1) / R;
    tt_text_add(&g->bench->out,
                g->bench->json ? "{\"collective\": \"%s\", \"bytes\": %lld, \"elements\": %lld, "
                                 "\"ms\": %.5f, \"algbw_gb_s\": %.4f, \"busbw_gb_s\": %.4f, "
                                 "\"memcpy_gb_s\": %.4f, \"errors\": %lld}\n"
                               : "%-22s %11lld %10lld %11.5f %11.4f %11.4f %12.4f %7lld\n",
                c->name, (long long)g->bytes, (long long)(g->bytes / 4), 1e3 * seconds, rate, bus,
                bytes / memory / 1e9, (long long)wrong);
}

/* All collectives on vectors of one size. Collective. */
static tt_code measure(rig *g, float *vector, float *other, int64_t *wrong, tt_err *err)
{
    tt_code rc = TT_OK;
    tt_world *world = g->bench->world;
    const int64_t elements = g->bytes / 4;
    double memory = 0, seconds = 0;
    g->runs = tt_max(1, tt_min(MOST_RUNS, TOGETHER / g->bytes));
    rc = tt_buckets_make(&g->buckets, &elements, 1,
                         tt_bucket_elements(g->bench->config.dist.bucket_mb, sizeof(float)), err);
    TT_TRY(tt_agree(world, rc, err));
    TT_TRY(tt_exchange_open(&g->exchange, world, &g->buckets, vector, other, err));
    TT_TRY(time_runs(g, NULL, &memory, err));
    for (int i = 0; i < TT_COLLECTIVES; i++) {
        const tt_collective *c = &tt_collectives[i];
        int64_t errors = 0;
        if (!tt_collective_possible(c, &g->exchange)) {
            continue;
        }
        TT_TRY(check(g, c, &errors, err));
        TT_TRY(time_runs(g, c, &seconds, err));
        row(g, c, seconds, memory, errors);
        *wrong += errors;
    }
out:
    tt_exchange_close(&g->exchange);
    tt_buckets_free(&g->buckets);
    return rc;
}

/* --from and --to, or what stands for them. */
static tt_code sizes(const tt_bench *bench, int64_t *from, int64_t *to, tt_err *err)
{
    const struct {
        const char *name, *text;
        int64_t *bytes;
    } end[] = {{"--from", bench->from, from}, {"--to", bench->to, to}};
    *from = smallest;
    *to = largest;
    for (int i = 0; i < 2; i++) {
        if (end[i].text != NULL &&
            (!tt_parse_bytes(end[i].text, end[i].bytes) || *end[i].bytes < 4 ||
             *end[i].bytes % 4 != 0 || *end[i].bytes > (int64_t)1 << 40)) {
            return tt_fail(err, TT_EUSER,
                           "%s: '%s' is not a size of FP32 numbers; allowed is 4 bytes to 1TiB, a "
                           "multiple of 4, such as 8, 64KiB or 1GiB",
                           end[i].name, end[i].text);
        }
    }
    if (*from > *to) {
        return tt_fail(err, TT_EUSER, "--from: %lld bytes are more than --to: %lld",
                       (long long)*from, (long long)*to);
    }
    return TT_OK;
}

tt_code tt_bench_allreduce(tt_bench *bench, tt_err *err)
{
    tt_code rc = TT_OK;
    int64_t from = 0, to = 0, wrong = 0;
    tt_arena arena = {0};
    rig g = {.bench = bench, .seconds = tt_alloc(bench->repeat, sizeof *g.seconds, err)};
    rc = g.seconds != NULL ? TT_OK : err->code;
    if (rc == TT_OK && bench->world->size < 2) {
        rc = tt_fail(err, TT_EUSER,
                     "tutti bench allreduce needs at least 2 ranks: mpirun -n 2 tutti "
                     "bench allreduce");
    }
    if (rc == TT_OK) {
        rc = sizes(bench, &from, &to, err);
    }
    if (rc == TT_OK) {
        rc = tt_arena_open(&arena, "vectors", 2 * tt_arena_cost(tt_size(to)), err);
    }
    TT_TRY(tt_agree(bench->world, rc, err));
    float *vector = tt_arena_take(&arena, tt_size(to));
    float *other = tt_arena_take(&arena, tt_size(to));
    memset(vector, 0, tt_size(to)); /* in memory before anything is timed */
    memset(other, 0, tt_size(to));
    if (!bench->json) {
        tt_text_add(&bench->out, "%-22s %11s %10s %11s %11s %11s %12s %7s\n", "collective", "bytes",
                    "elements", "ms", "algbw GB/s", "busbw GB/s", "memcpy GB/s", "errors");
    }
    for (g.bytes = from; g.bytes <= to; g.bytes *= STEP) {
        TT_TRY(measure(&g, vector, other, &wrong, err));
    }
    if (wrong > 0) {
        rc = tt_fail(err, TT_EWORLD, "%lld elements were wrong after a collective of MPI",
                     (long long)wrong);
    }
out:
    tt_arena_close(&arena);
    free(g.seconds);
    return rc;
}
