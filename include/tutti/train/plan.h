/* plan.h: plan, then run (decision 12). Everything a run will allocate, send and compute, from the
 * configuration alone. The trainer opens its arenas with these very numbers, so the plan is the
 * allocation; `tutti plan` prints it without running (train/ledger.h).
 *
 * Reads tt_config; writes tt_plan; next: train/trainer.h. */
#ifndef TUTTI_TRAIN_PLAN_H
#define TUTTI_TRAIN_PLAN_H

#include <stddef.h>
#include <stdint.h>

#include "tutti/base/options.h"
#include "tutti/base/status.h"
#include "tutti/data/batch.h"
#include "tutti/dist/cut.h"
#include "tutti/dist/node.h"
#include "tutti/dist/ring.h"
#include "tutti/kernels/kernels.h"
#include "tutti/kernels/wide.h"
#include "tutti/model/autocast.h"
#include "tutti/model/fp8.h"
#include "tutti/model/model.h"
#include "tutti/model/params.h"
#include "tutti/model/recompute.h"

/* The components of memory, in the order in which they are printed. */
typedef enum tt_component {
    TT_MEM_WEIGHTS,     /* act, whole vector */
    TT_MEM_WIDE,        /* FP32 copies of the matrices that precision.fp32_ops moves up */
    TT_MEM_PACKED,      /* the matrices again, as the matmuls read them */
    TT_MEM_GRADIENTS,   /* FP32, or fixed point in exact mode, whole vector */
    TT_MEM_OPTIMIZER,   /* masters, FP32 m and v of the rank's shard, or what they pass through */
    TT_MEM_ACTIVATIONS, /* of one micro-batch, and what backward needs */
    TT_MEM_WORKSPACE,   /* scratch of the kernels */
    TT_MEM_SNAPSHOT,    /* FP32, of the rank's part of a checkpoint, while it is written */
    TT_MEM_BATCH,       /* token, target and sample ids of one micro-batch */
    TT_MEM_COMPONENTS
} tt_component;

extern const char *const tt_component_names[TT_MEM_COMPONENTS];

/* 64-bit numbers that the ranks of a step agree on beside the vectors: sums before the update, then
 * maxima of times, memory and what failed since (train/step.c). */
enum { TT_STEP_SUMS = 2 * TT_EXACT_WORDS + 7, TT_STEP_MAXIMA = 6 };

typedef struct tt_plan {
    size_t own[TT_MEM_COMPONENTS];   /* of this rank */
    size_t once[TT_MEM_COMPONENTS];  /* of its node, for all ranks there */
    size_t bytes[TT_MEM_COMPONENTS]; /* own, and this rank's share of once */
    size_t total;                    /* sum of bytes */
    size_t kept;                     /* of activations: what waits for backward */
    size_t libraries;                /* beside total: what no arena holds (train/libraries.c) */
    size_t mapped;                   /* what of that all ranks of a machine map together, once */
    size_t file_bytes;               /* on disk: memory.optimizer_file of this rank */
    int ranks, threads;
    int64_t parameters;      /* trained, without gaps */
    int64_t tokens_per_step; /* positions, S * T */
    double flops_per_step;   /* over all ranks */
    int64_t wire_calls;      /* collectives a step */
    int64_t wire_bytes;      /* payload a step and rank */
} tt_plan;

/* What the plan is made from; all of it owned by whoever resolved it (tt_blueprint_free). */
typedef struct tt_blueprint {
    tt_config config; /* with every derived value filled in */
    tt_shape shape;
    tt_split split;
    tt_params params;
    tt_buckets buckets;
    tt_shard shard; /* what the rank's optimizer holds */
    tt_shard cut;   /* the rank's pieces, whatever the ZeRO stage: for sums and saving */
    tt_ops ops, guarded;
    tt_autocast autocast;
    tt_wide_ops wide_ops;  /* where autocast.up is not 0 */
    tt_shard wide;         /* of which matrices there are FP32 copies; none: count 0 */
    tt_ring weight_ring;   /* how the model's weights are held */
    tt_ring gradient_ring; /* how its gradient is */
    bool rotates;          /* weights: a rank keeps its pieces, and gathers the ring (ZeRO 3) */
    bool slices;           /* gradients: a rank keeps its pieces of the sum (ZeRO 2, 3) */
    bool scatters;         /* reduce-scatter, not allreduce */
    bool shares;           /* the ranks of a node share weights and packed forms */
    int node_ranks, nodes; /* ranks that share memory on this rank's node, 1: none does; M */
    int neighbours;        /* ranks of its machine, as far as is known: node_ranks or more */
    size_t staging;        /* bytes of tt_reduce_staging */
    tt_recompute recompute;
    size_t
        asked; /* bytes of memory.recompute: auto:SIZE, which the configuration forgets; 0: not auto */
    tt_fp8 fp8; /* no sites: the format is another */
    tt_master_kind master;
    bool stochastic; /* how weights without a master are rounded */
    size_t act_bytes;
    size_t grad_bytes; /* of an element of the gradient: 4, or 8 in exact mode */
    tt_plan plan;
} tt_blueprint;

/* The compute format of the kernels that precision.compute asks for: fp8 runs on those of bf16. */
tt_format tt_kernel_format(const tt_config *config);

/* Resolves and checks a configuration for rank `rank` of `ranks` with `threads` threads, each a node of
 * its own; data_vocab 0: the token file is not known. On failure everything is released. Local. */
tt_code tt_blueprint_make(tt_blueprint *print, const tt_config *config, int64_t data_vocab,
                          int rank, int ranks, int threads, const char *isa, tt_err *err);
/* The same for a rank among those that `node` says, which is only read. */
tt_code tt_blueprint_make_on(tt_blueprint *print, const tt_config *config, int64_t data_vocab,
                             const tt_node *node, int threads, const char *isa, tt_err *err);
/* The same for rank 0 of `ranks` that fill machines of `neighbours` one after another, and share memory
 * there as the configuration has it: what a plan for later is made of. */
tt_code tt_blueprint_imagine(tt_blueprint *print, const tt_config *config, int64_t data_vocab,
                             int neighbours, int ranks, int threads, const char *isa, tt_err *err);
/* How many of `neighbours` ranks on a machine share memory among themselves, as dist.node_shared and
 * dist.node_ranks have it. */
int tt_plan_sharers(const tt_config *config, int neighbours);

/* What the model is told of where things are held. Borrowed from the blueprint; share: number of this
 * rank among those that make packed forms together. */
tt_held tt_blueprint_held(const tt_blueprint *print, int share);
void tt_blueprint_free(tt_blueprint *print);

/* bytes[TT_MEM_COMPONENTS] out: of each component of this rank, if micro-batches had B sequences and
 * `recompute` were chosen; *kept out (NULL: not wanted): of the activations, what waits for backward. */
void tt_plan_memory(const tt_blueprint *print, int64_t B, const tt_recompute *recompute,
                    size_t *bytes, size_t *kept);

/* What the model is told of FP8; NULL: it is not the format. Borrowed from the blueprint. */
static inline tt_fp8 *tt_blueprint_fp8(tt_blueprint *print)
{
    return print->fp8.sites > 0 ? &print->fp8 : NULL;
}

/* Threads of a rank: run.threads, or OMP_NUM_THREADS, or `fill`. */
int tt_threads_choose(const tt_config *config, int fill);

/* What a rank of `ranks` holds beside its arenas: the program, MPI, HDF5, OpenBLAS. Ranks that share
 * memory have their part each of what all map, *mapped out (NULL: not wanted); others are seen with all
 * of it (the resident set of a process). */
size_t tt_plan_libraries(const tt_blueprint *print, int ranks, int threads, size_t *mapped);

#endif
