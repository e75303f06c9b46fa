/* libraries.c: what a rank holds beside its arenas, before anything runs: the plan's one estimate.
 *
 * Nobody can count it, as other people's code allocates it; but it depends on little. The parts were
 * measured with Open MPI 4.1, HDF5 1.10 and OpenBLAS 0.3.21, on one to sixteen ranks of a node, with
 * models of 0.1 to 700 MiB: what is resident less the arenas, at the start, at the end, and at the peak;
 * where ranks share memory, of the proportional set, in which each has its part of what all map.
 * The last record of metrics.jsonl says how far a run was from it.
 *
 * Owns nothing. Reads the blueprint; next: train/memory.c measures. */
#include <string.h>

#include "tutti/base/narrow.h"
#include "tutti/train/plan.h"

static const size_t MIB = (size_t)1 << 20;

/* Resident once MPI has started: 25 MiB alone. Of them the code of the program and its libraries is
 * there once a machine, and so is MPI's shared memory: for the first neighbour half a MiB, for more
 * of them another three and a half, however many there are. */
static size_t mapped_by_all(int ranks)
{
    return 21 * MIB + (ranks > 1 ? MIB / 2 : 0) + (ranks > 2 ? 3 * MIB + MIB / 2 : 0);
}

static size_t started(void)
{
    return 4 * MIB;
}

/* What comes with the first step, the first evaluation and the first checkpoint and stays: HDF5's caches
 * and MPI's files, tables, the heap's own loss. */
static size_t grown(void)
{
    return 5 * MIB;
}

/* A thread's stack and the heap's pool for it; where matmuls are OpenBLAS's, its buffers, of which what
 * our tiles fill is touched. */
static size_t threads_hold(const tt_blueprint *p, int threads)
{
    const bool blas = p->ops.compute == TT_FP32 || p->autocast.up != 0;
    return tt_size(threads) * (blas ? MIB : MIB / 8);
}

/* Buffers of MPI's reductions between nodes. Ranks that share memory, and those that send pieces, add up
 * by themselves. An MPI_Iallreduce has a buffer as large as what it sums, for as long as it is on
 * its way; two buckets or 40 MiB were at once, where the wire keeps up; where it does not, all may
 * be. A blocking one fills half of such a buffer; up to 32 MiB it comes from a heap that keeps it
 * and gives it out again elsewhere, until all of it has been touched. */
static int64_t reduction(const tt_blueprint *p)
{
    int64_t largest = 0;
    if (p->nodes == 1 || p->scatters) {
        return 0;
    }
    for (int i = 0; i < p->buckets.count; i++) {
        const tt_range r = p->buckets.bucket[i].range;
        largest = tt_max(largest, r.end - r.first);
    }
    const int64_t one = tt_ceil_div(tt_count(tt_bytes(largest, p->grad_bytes)), p->node_ranks);
    const int64_t all =
        tt_ceil_div(tt_count(tt_bytes(p->params.total, p->grad_bytes)), p->node_ranks);
    return strcmp(p->config.dist.overlap, "false") != 0
               ? tt_min(all, tt_max(2 * one, 40 * tt_count(MIB)))
               : tt_max(one / 2, tt_min(one, 32 * tt_count(MIB)));
}

/* Gone when its call returns, but in the peak. A checkpoint is read back through a buffer of 8 MiB. */
static size_t passing(const tt_blueprint *p)
{
    return tt_size(tt_max(reduction(p), 8 * tt_count(MIB)));
}

/* With memory.optimizer_file: two threads more, each with a heap of its own, and what a direct transfer
 * that is not a whole chunk goes through. */
static size_t file_holds(const tt_blueprint *p)
{
    return p->config.memory.optimizer_file[0] != '\0' ? 8 * MIB : 0;
}

size_t tt_plan_libraries(const tt_blueprint *p, int ranks, int threads, size_t *mapped)
{
    const size_t shared = mapped_by_all(ranks), sharers = tt_size(p->node_ranks);
    if (mapped != NULL) {
        *mapped = shared;
    }
    return started() + grown() + threads_hold(p, threads) + passing(p) + file_holds(p) +
           (shared + sharers - 1) / sharers;
}
