/* kernels.h: the compute table.
 *
 * One const table of function pointers per ISA and compute format, laid over the portable reference:
 * an entry an ISA does not have is taken from the table below it, so a missing kernel is slow, never
 * absent. The reference is the specification. TUTTI_ISA picks; `guard` wraps any table.
 *
 * Letters: M = rows (tokens, B*T), C channels, F feed-forward width, V vocabulary, H heads, G
 * key-value heads, D head size, T tokens per sequence, B sequences. "act" marks elements of the
 * table's storage format (tt_ops.format); everything else has the C type shown.
 * Matrices are row-major and dense. Each argument is in, out (overwritten, may hold anything) or
 * inout. No kernel allocates, logs or keeps state; scratch comes from ctx->workspace.
 *
 * Formats. A table computes in one format (tt_ops.compute), which says what enters a matrix product:
 *
 *     compute   act    enters a product                   products are exact in FP32
 *     bf16      BF16   as it is                           yes, where they do not under- or overflow
 *     fp16      FP16   as it is                           yes
 *     fp32      FP32   as it is                           no
 *     tf32      FP32   rounded to TF32, to nearest even   yes, where they do not under- or overflow
 *
 * That holds for both inputs of every gemm and, in attention and its gradient, for q, k, v and d_o,
 * the probabilities and the gradient of the scores, each where it enters a product. (With BF16 and
 * FP16 the latter two, which are never stored, enter in FP32, unless the ISA multiplies BF16 alone.)
 * Sums, and all that is no product of matrices, are FP32; column sums see what is stored. A result
 * beyond the largest number of act is stored as infinity.
 *
 * Invariants (tests hold every table to them):
 *  - results do not depend on ctx->threads;
 *  - a leaf is `leaf` consecutive rows, one sequence; all leaves of a run have the same number of
 *    rows. Row i of a row-wise kernel or of gemm_nt / gemm_nn depends only on row i of its inputs and
 *    on the weights, with an order of operations that does not depend on M; where OpenBLAS serves
 *    (FP32), also on its place in its leaf and the leaf's length. So a sequence gives the same bits in
 *    every batch;
 *  - sums over rows (gemm_tn and its gb, gains) run in row order, leaf by leaf: a leaf is summed in
 *    FP32 from zero in an order that depends on nothing but the leaf, then added once to the
 *    accumulator (tt_grad). head_loss cuts a leaf into chunks of a fixed number of rows and adds each
 *    chunk so, in order. embed_grad adds row after row. With fixed-point accumulators the order of
 *    these additions cannot matter;
 *  - no reads or writes outside the stated shapes; inputs never change; outputs overlap nothing;
 *  - FP32 accumulation throughout; norms, softmax, loss and the optimizer compute in FP32.
 *
 * Census. A kernel that stores results in act counts, when asked, what storing did to them
 * (tt_census): the same for every table with the same FP32 results, for every number of threads, and
 * the sum of what parts of a batch give. Counting changes no bit of a result. Of what is rounded on
 * its way into a product, and never stored, there is no count.
 *
 * Subnormals. Programs set flush-to-zero (MXCSR bit 15) and denormals-are-zero (bit 6) in every
 * thread by tt_flush_denormals (tutti/base/threads.h): subnormal results of FP32 and FP64 arithmetic
 * are 0, and subnormal operands count as 0. Loads, stores, conversions between the formats and
 * integer work keep subnormals: a weight that was set to one is stored as one. Exponentials below
 * the smallest normal number are 0 in any mode; VDPBF16PS flushes in any mode.
 *
 * Reads views of model memory, writes the same; next: model/model.h calls these. */
#ifndef TUTTI_KERNELS_KERNELS_H
#define TUTTI_KERNELS_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tutti/base/rng.h"
#include "tutti/base/status.h"
#include "tutti/numerics/exact_sum.h"
#include "tutti/numerics/fixed.h"
#include "tutti/numerics/format.h"

typedef struct tt_ops tt_ops;
typedef struct tt_times tt_times;

/* What became of FP32 results as they were stored in act, or rounded to FP8. Each thread of a team adds
 * to its own element of an array [ctx->threads], a line of the cache. */
typedef struct tt_census {
    int64_t values;    /* results stored */
    int64_t inf, nan;  /* that are stored as such */
    int64_t overflow;  /* finite ones that storing made infinite; in FP8, those that saturated */
    int64_t underflow; /* ones that storing made zero, and that were not */
    int64_t rest[3];
} tt_census;
_Static_assert(sizeof(tt_census) == 64, "threads do not share lines");

/* Where a kernel counts; arrays [ctx->threads], inout (borrowed), NULL: it does not. */
typedef struct tt_counts {
    tt_census *result; /* of its result in act; adamw: of the weights */
    tt_census *beside; /* of what it stores beside: an epilogue's `before`; head_loss's gradient of
                          the logits, which a wide table (wide.h) keeps in FP32 */
} tt_counts;

/* What a kernel may use besides its arguments. Owned by the trainer; one per process. */
typedef struct tt_ctx {
    const tt_ops *ops;        /* the selected table, for kernels made of kernels */
    const tt_ops *base;       /* the table that guard or the clocks wrap; else NULL */
    int threads;              /* team size, >= 1 */
    unsigned char *workspace; /* TT_ALIGN-aligned scratch, contents undefined between calls */
    size_t workspace_bytes;   /* >= ops->workspace(dims, threads) */
    void (*violation)(const char *op, const char *what); /* guard calls this; NULL: print, abort */
    tt_times *times;                                     /* set by tt_kernels_time, else NULL */
    tt_counts count;
    const tt_ops *full, *full_base; /* of a wide table (wide.h): its FP32 table; else NULL */
} tt_ctx;

/* Dropout by counter. Element e of sample s at a site is kept when its 32-bit random value is >=
 * the threshold; kept values are multiplied by scale = 1 / (1 - p). NULL pointer or threshold 0: no
 * dropout. */
typedef struct tt_dropout {
    tt_key key;            /* tt_rng_key(seed, TT_RNG_DROPOUT, step) */
    uint64_t site;         /* which dropout of which layer: layer * 8 + place */
    uint32_t threshold;    /* p * 2^32 */
    float scale;           /* 1 / (1 - p) */
    const int64_t *sample; /* [B] global sample index of each sequence (borrowed) */
} tt_dropout;
/* Stream of sample s at a site: the pair packed as one 64-bit number. */
static inline uint64_t tt_dropout_stream(int64_t sample, uint64_t site)
{
    return (uint64_t)sample * 4096u + site;
}
/* Random word of element e: word e % 4 of block e / 4. Row-wise sites: e = t * C + c. Attention:
 * e = (h * T_max + t) * T_max + j with T_max = the context, so masks do not depend on the length. */

/* A weight matrix. The packed form, made by `pack` of the same table whenever w has changed, serves
 * gemm_nt and gemm_nn; without it they pack w as they go, in the workspace. Same bits either way. */
typedef struct tt_weight {
    const void *w;      /* [N,K] act (borrowed) */
    const void *packed; /* [ops->packed_bytes(N, K)] (borrowed), or NULL */
} tt_weight;

/* Where a sum over the batch is accumulated: parameter gradients. Exactly one of sum and fixed is set.
 *
 * With `fixed` (exact mode), each summand, that is each leaf, each chunk of one that head_loss makes,
 * and each row of embed_grad, becomes an integer (numerics/fixed.h) and is added as such; summands
 * out of range or NaN are counted in *lost, and what they leave in the accumulator means nothing. */
typedef struct tt_grad {
    float *sum;            /* FP32 accumulators (borrowed), or NULL */
    int64_t *fixed;        /* fixed-point accumulators (borrowed), or NULL */
    const tt_fixed *point; /* of fixed (borrowed) */
    int64_t *lost;         /* of fixed (borrowed), inout */
} tt_grad;

/* The accumulators from element `first` on. */
static inline tt_grad tt_grad_from(const tt_grad *g, int64_t first)
{
    tt_grad rest = *g;
    rest.sum = g->sum != NULL ? g->sum + first : NULL;
    rest.fixed = g->fixed != NULL ? g->fixed + first : NULL;
    return rest;
}

/* What becomes of a sum on its way from a matmul to y, in FP32 and in this order; NULL: nothing.
 *
 *     value = sum + bias[n]
 *     before[m,n] = value, rounded;  value = GELU(before[m,n])
 *     value = value * GELU'(slope[m,n])
 *     value = residual[m,n] + dropout(value)
 *     y[m,n] = value, rounded
 *
 * All pointers are borrowed; [M,N] and [N] are y's. */
typedef struct tt_epilogue {
    const void *bias;       /* [N] act */
    void *before;           /* [M,N] act, out: asks for GELU; what its backward reads */
    const void *slope;      /* [M,N] act: what GELU was applied to, in backward */
    const void *residual;   /* [M,N] act */
    const tt_dropout *drop; /* of the branch that residual is added to; element t * N + n */
    int64_t T;              /* tokens per sequence: row m is token m % T of sequence m / T */
} tt_epilogue;

/* What stands behind the weights of the optimizer: precision.master. */
typedef enum tt_master_kind {
    TT_MASTER_FP32,  /* an FP32 number, of which the weight is the rounding */
    TT_MASTER_SPLIT, /* its lower half, of which the weight is the upper: numerics/bf16_weight.h */
    TT_MASTER_NONE   /* nothing: the weight is rounded after each update */
} tt_master_kind;

/* The masters of n elements. Without one, element e of the flat vector is rounded stochastically by 16
 * bits of word e / 2 % 4 of block e / 8 of stream 0, the lower ones where e is even: a function of
 * (seed, update, element). */
typedef struct tt_master {
    tt_master_kind kind; /* SPLIT and NONE: where act is BF16 */
    float *full;         /* [n] inout of FP32 (borrowed) */
    uint16_t *low;       /* [n] inout of SPLIT (borrowed) */
    bool stochastic;     /* of NONE; else the weight is the nearest, ties to even */
    tt_key key;          /* of stochastic: tt_rng_key(seed, TT_RNG_ROUND, updates) */
    int64_t first;       /* of stochastic: flat index of the first element */
} tt_master;

typedef struct tt_adamw {
    float lr, beta1, beta2, eps, weight_decay;
    float correction1, correction2; /* 1 - beta^t */
    float grad_scale;               /* multiplies every gradient first: clip / (tokens seed) */
} tt_adamw;

/* Largest extents a run will use, for sizing scratch. */
typedef struct tt_extents {
    int64_t rows, tokens, channels, ffn, vocab, heads, head_size;
    bool packed; /* weights come packed */
} tt_extents;

/* The list of operations. X(name, return type, arguments after tt_ctx *ctx). Table struct, overlay,
 * "which ISA serves what" and guard all come from it; order = order of first use in a step.
 *
 * pack           packed[packed_bytes(N, K)] out = w[N,K] act, as this table's matmuls read it
 * embed          x[M,C] out act = wte[token] + wpe[t]; then dropout.                 rows m = b*T+t
 * norm           y[M,C] out act, mean[M], rstd[M] out; layer norm of x[M,C] act with gain[C],
 *                bias[C] act; eps 1e-5.
 * gemm_nt        y[M,N] out act = e(x[M,K] act . w[N,K]^T act); e NULL: the sum itself
 * gemm_nt_f32    y[M,N] out float = x[M,K] . w[N,K]^T                          (logits)
 * attention      o[M,H*D] out act, lse[B,H,T] out: causal softmax(q k^T / sqrt D) v, of
 *                qkv[M,(H+2G)*D] act, heads in order q.. k.. v..; dropout on the probabilities.
 * head_loss      loss_sum, count inout: += exact sum and number over rows with target >= 0 of
 *                -log softmax(x w^T)[target], columns vocab_used.. of w take no part. When dx is not
 *                NULL: dx[M,C] out act and gw[V,C] += gradient of the sum times `scale`.
 *                row_loss[M] out (NULL: not wanted), 0 where target < 0.
 * residual_grad  db[M,C] out act = dropout mask applied to dy[M,C] act: the gradient of the branch
 *                that an epilogue adds to a residual. (The residual's own is dy itself.)
 * gemm_nn        dx[M,K] out act = e(dy[M,N] act . w[N,K] act); e NULL: the sum itself
 * gemm_tn        gw[N,K] += dy[M,N]^T act . x[M,K] act; gb[N] (NULL: not wanted) += column sums of dy
 * norm_grad      dx[M,C] inout act += gradient through the norm; ggain[C], gbias[C] += theirs
 * attention_grad dqkv[M,(H+2G)*D] out act from d_o[M,H*D], o, qkv, lse; recomputes probabilities
 * embed_grad     gwte[V,C], gwpe[T,C] += dropout mask applied to dx[M,C] act, in row order
 * sum_squares    sum inout += squares of g[n] (in), each as FP32, in chunks of 64 summed in FP64, the
 *                chunks exactly: the same for every cut of g at multiples of 64 elements
 * adamw          master (tt_master), m[n], v[n] inout float; g[n] in, un-normalised, as FP32;
 *                w[n] act = the new master, rounded: out, or inout where it is itself (part of) what is
 *                updated. All computed in FP32. decoupled decay, PyTorch's order of operations.
 * to_act         y[n] out act = rounded x[n] float
 * from_act       y[n] out float = x[n] act
 * gelu           y[n] out act = GELU of x[n] act: what an epilogue makes of its `before`, to the bit
 * fp8_scale      exponent[rows*blocks] out: of every block of `size` neighbours in a row of
 *                x[rows,width] act, blocks = ceil(width/size), for E4M3 or E5M2 (numerics/fp8.h).
 *                amax (NULL: not wanted) inout: the larger of it and the largest magnitude of x,
 *                infinite when some element is not finite
 * fp8_round      code[rows,width] out (NULL: not wanted) = codes of x[rows,width] act times
 *                2^exponent of its block, nearest even, saturating; x inout: with `replace` it
 *                becomes their values
 * fp8_value      x[rows,width] out act = the values of code[rows,width] times 2^-exponent
 * peak           FLOP/s of the unit that serves gemm, measured for about `seconds` on all threads */
#define TT_OPS(X)                                                                                  \
    X(pack, void, (tt_ctx * ctx, void *packed, const void *w, int64_t N, int64_t K))               \
    X(embed, void,                                                                                 \
      (tt_ctx * ctx, void *x, const void *wte, const void *wpe, const int32_t *token, int64_t B,   \
       int64_t T, int64_t C, const tt_dropout *drop))                                              \
    X(norm, void,                                                                                  \
      (tt_ctx * ctx, void *y, float *mean, float *rstd, const void *x, const void *gain,           \
       const void *bias, int64_t M, int64_t C))                                                    \
    X(gemm_nt, void,                                                                               \
      (tt_ctx * ctx, void *y, const void *x, const tt_weight *w, const tt_epilogue *e, int64_t M,  \
       int64_t N, int64_t K, int64_t leaf))                                                        \
    X(gemm_nt_f32, void,                                                                           \
      (tt_ctx * ctx, float *y, const void *x, const tt_weight *w, int64_t M, int64_t N, int64_t K, \
       int64_t leaf))                                                                              \
    X(attention, void,                                                                             \
      (tt_ctx * ctx, void *o, float *lse, const void *qkv, int64_t B, int64_t T, int64_t H,        \
       int64_t G, int64_t D, int64_t T_max, const tt_dropout *drop))                               \
    X(head_loss, void,                                                                             \
      (tt_ctx * ctx, tt_exact * loss_sum, int64_t * count, float *row_loss, void *dx,              \
       const tt_grad *gw, const void *x, const tt_weight *w, const int32_t *target, int64_t M,     \
       int64_t V, int64_t vocab_used, int64_t C, int64_t leaf, float scale))                       \
    X(residual_grad, void,                                                                         \
      (tt_ctx * ctx, void *db, const void *dy, int64_t B, int64_t T, int64_t C,                    \
       const tt_dropout *drop))                                                                    \
    X(gemm_nn, void,                                                                               \
      (tt_ctx * ctx, void *dx, const void *dy, const tt_weight *w, const tt_epilogue *e,           \
       int64_t M, int64_t N, int64_t K, int64_t leaf))                                             \
    X(gemm_tn, void,                                                                               \
      (tt_ctx * ctx, const tt_grad *gw, const tt_grad *gb, const void *dy, const void *x,          \
       int64_t M, int64_t N, int64_t K, int64_t leaf))                                             \
    X(norm_grad, void,                                                                             \
      (tt_ctx * ctx, void *dx, const tt_grad *ggain, const tt_grad *gbias, const void *dy,         \
       const void *x, const void *gain, const float *mean, const float *rstd, int64_t M,           \
       int64_t C, int64_t leaf))                                                                   \
    X(attention_grad, void,                                                                        \
      (tt_ctx * ctx, void *dqkv, const void *d_o, const void *o, const void *qkv,                  \
       const float *lse, int64_t B, int64_t T, int64_t H, int64_t G, int64_t D, int64_t T_max,     \
       const tt_dropout *drop))                                                                    \
    X(embed_grad, void,                                                                            \
      (tt_ctx * ctx, const tt_grad *gwte, const tt_grad *gwpe, const void *dx,                     \
       const int32_t *token, int64_t B, int64_t T, int64_t C, const tt_dropout *drop))             \
    X(sum_squares, void, (tt_ctx * ctx, tt_exact * sum, const tt_grad *g, int64_t n))              \
    X(adamw, void,                                                                                 \
      (tt_ctx * ctx, const tt_master *master, float *m, float *v, void *w, const tt_grad *g,       \
       int64_t n, const tt_adamw *step))                                                           \
    X(to_act, void, (tt_ctx * ctx, void *y, const float *x, int64_t n))                            \
    X(from_act, void, (tt_ctx * ctx, float *y, const void *x, int64_t n))                          \
    X(gelu, void, (tt_ctx * ctx, void *y, const void *x, int64_t n))                               \
    X(fp8_scale, void,                                                                             \
      (tt_ctx * ctx, int8_t * exponent, float *amax, const void *x, int64_t rows, int64_t width,   \
       int64_t size, tt_format format))                                                            \
    X(fp8_round, void,                                                                             \
      (tt_ctx * ctx, uint8_t * code, void *x, const int8_t *exponent, int64_t rows, int64_t width, \
       int64_t size, tt_format format, bool replace))                                              \
    X(fp8_value, void,                                                                             \
      (tt_ctx * ctx, void *x, const uint8_t *code, const int8_t *exponent, int64_t rows,           \
       int64_t width, int64_t size, tt_format format))                                             \
    X(peak, double, (tt_ctx * ctx, double seconds))

#define TT_OP_FIELD(name, type, args) type(*name) args;
#define TT_OP_COUNT(name, type, args) +1
#define TT_OP_INDEX(name, type, args) TT_OP_##name,
enum { TT_OP_TOTAL = 0 TT_OPS(TT_OP_COUNT) };
enum { TT_OPS(TT_OP_INDEX) }; /* TT_OP_adamw: where every array of TT_OP_TOTAL keeps adamw */

struct tt_ops {
    const char *isa;   /* "ref", "avx2", "avx512", "avx512bf16", "guard:avx2" */
    tt_format format;  /* of act: storage */
    tt_format compute; /* of what enters a matrix product */
    /* What attention rounds its probabilities and the gradients of its scores to, as they enter
     * products. */
    tt_format probabilities;
    /* Scratch bytes for these extents and threads: of a selected table, all it can need. */
    size_t (*workspace)(const tt_extents *extents, int threads);
    /* Bytes of the packed form of w[N,K], for both gemm_nt and gemm_nn; 0: there is none. */
    size_t (*packed_bytes)(int64_t N, int64_t K);
    /* y[M,N] out act in rows m .. m + rows - 1 and columns col .. col + cols - 1, from
     * sums[rows, stride]: the epilogue of a matmul that a library made; e may be NULL. One thread. */
    void (*epilogue)(tt_ctx *ctx, const tt_epilogue *e, void *y, const float *sums, int64_t stride,
                     int64_t m, int64_t col, int64_t rows, int64_t cols, int64_t N);
    TT_OPS(TT_OP_FIELD)
    const char *from[TT_OP_TOTAL]; /* set by tt_kernels_select: which ISA serves entry i */
};

/* Lays the tables that this processor supports over the reference, up to the one named by `isa`
 * (NULL or "": the best), for one compute format: bf16, fp32, tf32 or fp16. "guard" or "guard:<isa>"
 * wraps the result; then `guarded`, owned by the caller and outliving ctx, receives the wrapped table;
 * otherwise zeros.
 * An unknown or unsupported name is TT_EUSER, listing what this processor can do. */
tt_code tt_kernels_select(tt_ops *ops, tt_ops *guarded, tt_format compute, const char *isa,
                          tt_err *err);

/* Scratch for a selection. */
size_t tt_kernels_workspace(const tt_ops *ops, const tt_ops *guarded, const tt_extents *extents,
                            int threads);

/* The context of a selection; everything is borrowed and must outlive it. bytes >= what
 * tt_kernels_workspace says. */
tt_ctx tt_kernels_ctx(const tt_ops *ops, const tt_ops *guarded, int threads, void *workspace,
                      size_t bytes);

/* What the calls of one operation cost so far. */
typedef struct tt_op_time {
    int64_t calls;
    double seconds; /* without the operations called inside */
    double flops;   /* of its matrix products and of attention's; 0 for all else */
} tt_op_time;

/* Where a context's time went. A kernel made of kernels counts what it does itself; what it has done
 * by others is theirs, in `inner`, so that every second is in one row. Owned by the caller, who
 * may zero it between steps. */
struct tt_times {
    tt_op_time op[TT_OP_TOTAL];    /* called from outside the table */
    tt_op_time inner[TT_OP_TOTAL]; /* called by a kernel */
    int depth;                     /* calls now open */
    double inside;                 /* seconds of the calls made by the innermost open one */
};

/* Puts clocks around every entry of ctx's table, from now on: `timed`, the caller's, receives the
 * table of clocks; it and `times` must outlive ctx. Who does not call this pays nothing. TT_EUSER
 * under guard, whose own work would be counted. */
tt_code tt_kernels_time(tt_ctx *ctx, tt_ops *timed, tt_times *times, tt_err *err);

/* Runs small odd shapes of every operation that another library serves (OpenBLAS) against the
 * reference; TT_EWORLD naming library, operation and shape when they differ. */
tt_code tt_kernels_self_test(tt_ctx *ctx, tt_err *err);

/* The strongest this processor has; a static name. */
const char *tt_kernels_best_isa(void);
int tt_kernels_isa_list(const char **names, int room); /* supported here, weakest first */
const char *tt_kernels_blas(void);                     /* "OpenBLAS 0.3.21 ... Zen ..." */
const char *tt_kernels_blas_core(void); /* "Zen": which of its kernels OpenBLAS chose here */
extern const char *const tt_op_names[TT_OP_TOTAL];

#endif
