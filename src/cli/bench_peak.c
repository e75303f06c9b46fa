/* bench_peak.c: what this machine could do: FLOP/s of its units, bytes a second of its memory.
 *
 * Each unit is measured by the table that it serves: FMA by FP32's, BF16's by its own. Memory is
 * measured on arrays far above the last cache, each part touched first by the thread that uses it.
 * Rounds go over all rows, so that rows can be compared though the clock moves. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tutti/base/clock.h"
#include "tutti/base/narrow.h"
#include "tutti/base/threads.h"
#include "tutti/model/model.h"

#include "cli/bench_impl.h"

enum { READ, COPY, WRITE, WAYS };
static const char *const way_names[WAYS] = {"read", "copy", "write"};

enum { UNITS = 2 };
static const tt_format units[UNITS] = {TT_FP32, TT_BF16};

enum { ROWS_EACH = UNITS + WAYS }; /* of a team */

/* Two arrays of `words` 64-bit words. */
typedef struct tt_memory {
    tt_arena arena;
    uint64_t *from, *to; /* the arena's */
    int64_t words;
} tt_memory;

/* Words of one array: four last-level caches, at least 256 MiB. */
static int64_t memory_words(void)
{
    const long cache = sysconf(_SC_LEVEL3_CACHE_SIZE);
    const int64_t least = (int64_t)256 << 20;
    return tt_max(4 * (int64_t)cache, least) / (int64_t)sizeof(uint64_t);
}

/* Bounds of a thread's part, whole cache lines. */
static void part_of(int64_t words, int threads, int thread, int64_t *first, int64_t *end)
{
    const int64_t lines = words / 8;
    *first = lines * thread / threads * 8;
    *end = lines * (thread + 1) / threads * 8;
}

static uint64_t sum_words(const uint64_t *from, int64_t first, int64_t end)
{
    uint64_t sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = first; i < end; i++) {
        sum += from[i];
    }
    return sum;
}

/* Pages go to whoever writes them first: each thread its part. Local. */
static tt_code memory_open(tt_memory *m, int threads, tt_err *err)
{
    tt_code rc = TT_OK;
    m->words = memory_words();
    const size_t bytes = tt_bytes(m->words, sizeof *m->from);
    TT_TRY(tt_arena_open(&m->arena, "bandwidth", 2 * tt_arena_cost(bytes), err));
    m->from = tt_arena_take(&m->arena, bytes);
    m->to = tt_arena_take(&m->arena, bytes);
#pragma omp parallel num_threads(threads)
    {
        int64_t first, end;
        part_of(m->words, tt_threads_now(), tt_thread_id(), &first, &end);
        memset(m->from + first, 1, tt_bytes(end - first, sizeof *m->from));
        memset(m->to + first, 2, tt_bytes(end - first, sizeof *m->to));
    }
out:
    return rc;
}

/* Bytes a second over all threads. Copying counts what is read and what is written. The library's
 * memset and memcpy write past the caches at such sizes. TT_EWORLD when memory does not hold what was
 * written: whoever reads must look, or a compiler could leave the reading out. */
static tt_code memory_rate(const tt_memory *m, int way, int threads, double *rate, tt_err *err)
{
    uint64_t sum = 0;
    const double start = tt_seconds();
#pragma omp parallel num_threads(threads) reduction(+ : sum)
    {
        int64_t first, end;
        part_of(m->words, tt_threads_now(), tt_thread_id(), &first, &end);
        const size_t bytes = tt_bytes(end - first, sizeof *m->from);
        if (way == READ) {
            sum += sum_words(m->from, first, end);
        } else if (way == COPY) {
            memcpy(m->to + first, m->from + first, bytes);
        } else {
            memset(m->to + first, 2, bytes);
        }
    }
    const double seconds = fmax(tt_seconds() - start, 1e-9);
    const uint64_t ones = UINT64_C(0x0101010101010101);
    if (way == READ && sum != (uint64_t)(m->words / 8 * 8) * ones) {
        return tt_fail(err, TT_EWORLD, "memory does not hold what was written to it");
    }
    *rate = (way == COPY ? 2 : 1) * (double)tt_bytes(m->words, sizeof *m->from) / seconds;
    return TT_OK;
}

/* "FMA" or the instruction that an ISA's BF16 matmuls are made of. */
static const char *unit_name(const tt_bed *bed)
{
    const char *from = bed->ops.from[TT_OP_peak];
    return strcmp(from, "avx512bf16") == 0 ? "VDPBF16PS" : strcmp(from, "ref") == 0 ? "C" : "FMA";
}

static void print_unit(tt_bench *bench, const tt_bed *bed, int threads, double gflops)
{
    tt_text_add(&bench->out,
                bench->json ? "{\"unit\": \"%s\", \"format\": \"%s\", \"isa\": \"%s\", "
                              "\"threads\": %d, \"peak_gflops\": %.1f}\n"
                            : "%-10s %-6s %-12s %7d %10.1f GFLOP/s\n",
                unit_name(bed), tt_formats[bed->ops.compute].name, bed->ops.from[TT_OP_peak],
                threads, gflops);
}

static void print_memory(tt_bench *bench, int way, int threads, double rate)
{
    tt_text_add(&bench->out,
                bench->json ? "{\"memory\": \"%s\", \"threads\": %d, \"gb_s\": %.2f}\n"
                            : "memory     %-19s %7d %10.2f GB/s\n",
                way_names[way], threads, rate);
}

/* value[team][row][n]: GFLOP/s and GB/s of every round. */
static tt_code measure(tt_bed *bed, const tt_memory *memory, const tt_teams *teams, int64_t n,
                       double *value, tt_err *err)
{
    tt_code rc = TT_OK;
    for (int64_t i = 0; i < n; i++) {
        for (int t = 0; t < teams->count; t++) {
            double *at = value + t * ROWS_EACH * n + i;
            for (int u = 0; u < UNITS; u++, at += n) {
                tt_bed_team(&bed[u], teams->threads[t]);
                *at = bed[u].ops.peak(&bed[u].ctx, 0.1) *
                      tt_world_processor_share(bed[u].world, bed[u].ctx.threads) / 1e9;
            }
            for (int way = 0; way < WAYS; way++, at += n) {
                TT_TRY(memory_rate(memory, way, teams->threads[t], at, err));
                *at /= 1e9;
            }
        }
    }
out:
    return rc;
}

tt_code tt_bench_peak(tt_bench *bench, tt_err *err)
{
    tt_code rc = TT_OK;
    tt_bed bed[UNITS] = {{.a = NULL}};
    tt_memory memory = {.words = 0};
    const tt_teams teams = tt_teams_choose(bench);
    const int64_t n = bench->repeat;
    const tt_extents none = {
        .rows = 1, .tokens = 1, .channels = 1, .ffn = 1, .vocab = 1, .heads = 1, .head_size = 1};
    double *value = tt_alloc(tt_mul(teams.count * ROWS_EACH, n), sizeof *value, err);
    rc = value ? TT_OK : err->code;
    for (int u = 0; u < UNITS && rc == TT_OK; u++) {
        rc = tt_bed_open(&bed[u], bench->world, units[u], &none, teams.most, 1, 1, 1, err);
    }
    if (rc == TT_OK) {
        rc = memory_open(&memory, teams.most, err);
    }
    TT_TRY(tt_agree(bench->world, rc, err));
    TT_TRY(tt_agree(bench->world, measure(bed, &memory, &teams, n, value, err), err));
    for (int row = 0; row < ROWS_EACH; row++) {
        for (int t = 0; t < teams.count; t++) {
            double median = tt_median(value + (t * ROWS_EACH + row) * n, n);
            if (row < UNITS) {
                print_unit(bench, &bed[row], teams.threads[t], median);
            } else {
                print_memory(bench, row - UNITS, teams.threads[t], median);
            }
        }
    }
out:
    for (int u = 0; u < UNITS; u++) {
        tt_bed_close(&bed[u]);
    }
    tt_arena_close(&memory.arena);
    free(value);
    return rc;
}
