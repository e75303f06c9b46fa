/* bench_bed.c: a table of kernels to measure, with memory to run it on. See bench_impl.h. */
#include <stdlib.h>
#include <string.h>

#include "tutti/base/narrow.h"
#include "tutti/base/threads.h"

#include "cli/bench_impl.h"

tt_teams tt_teams_choose(const tt_bench *bench)
{
    const int all = tt_threads_choose(&bench->config, tt_world_threads(bench->world));
    const bool asked = bench->config.run.threads > 0 || tt_threads_env() > 0;
    if (asked || all == 1) {
        return (tt_teams){.threads = {all}, .count = 1, .most = all};
    }
    return (tt_teams){.threads = {1, all}, .count = 2, .most = all};
}

tt_format tt_bench_format(const tt_bench *bench)
{
    return tt_kernel_format(&bench->config);
}

tt_code tt_bed_open(tt_bed *bed, const tt_world *world, tt_format compute,
                    const tt_extents *extents, int threads, int64_t a, int64_t b, int64_t c,
                    tt_err *err)
{
    tt_code rc = TT_OK;
    memset(bed, 0, sizeof *bed);
    bed->world = world;
    TT_TRY(tt_kernels_select(&bed->ops, &bed->guarded, compute, getenv("TUTTI_ISA"), err));
    const size_t act = tt_formats[bed->ops.format].bytes;
    size_t scratch = 0;
    for (int n = 1; n <= threads; n++) {
        size_t bytes = tt_kernels_workspace(&bed->ops, &bed->guarded, extents, n);
        scratch = bytes > scratch ? bytes : scratch;
    }
    const int64_t most = tt_max(tt_max(a, b), c);
    TT_TRY(tt_arena_open(&bed->arena, "bench",
                         tt_arena_cost(tt_bytes(a, act)) + tt_arena_cost(tt_bytes(b, act)) +
                             tt_arena_cost(tt_bytes(most, sizeof(float))) + tt_arena_cost(scratch),
                         err));
    bed->a = tt_arena_take(&bed->arena, tt_bytes(a, act));
    bed->b = tt_arena_take(&bed->arena, tt_bytes(b, act));
    bed->c = tt_arena_take(&bed->arena, tt_bytes(most, sizeof(float)));
    bed->ctx = tt_kernels_ctx(&bed->ops, &bed->guarded, threads,
                              tt_arena_take(&bed->arena, scratch), scratch);
    tt_bed_team(bed, threads);
    tt_flush_denormals(threads);
    for (int64_t i = 0; i < most; i++) {
        bed->c[i] = (float)((i * 37 + 11) % 101 - 50) / 64.0f;
    }
    bed->ops.to_act(&bed->ctx, bed->a, bed->c, a);
    bed->ops.to_act(&bed->ctx, bed->b, bed->c, b);
out:
    if (rc != TT_OK) {
        tt_bed_close(bed);
    }
    return rc;
}

void tt_bed_close(tt_bed *bed)
{
    tt_arena_close(&bed->arena);
}

void tt_bed_team(tt_bed *bed, int threads)
{
    bed->ctx.threads = threads;
    tt_threads_set(threads);
}

double tt_bed_peak(tt_bed *bed)
{
    return bed->ops.peak(&bed->ctx, 0.01) * tt_world_processor_share(bed->world, bed->ctx.threads);
}
