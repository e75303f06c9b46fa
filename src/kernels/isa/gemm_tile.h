/* gemm_tile.h: the matmul of BF16 matrices around one register tile; an ISA brings the tile.
 *
 * c[i,j] = sum over k of a(i,k) * b(k,j). All four matmuls of the table are this sum; they differ in
 * which index runs densely through memory and in what happens to the sum at the end.
 *
 *     for a block of c (block_rows x GEMM_COLS):
 *         for a slab of k (at most GEMM_DEPTH):
 *             pack the slab of a and b into panels                         (all threads)
 *             barrier
 *             multiply panels, TILE_ROWS x TILE_COLS sums at a time        (all threads)
 *             barrier
 *
 * Panels: a block's rows (or columns) in groups of the tile's width, k outermost, TILE_PAIR
 * neighbouring k side by side: element (i, k) lies at ((k / TILE_PAIR) * width + i) * TILE_PAIR +
 * k % TILE_PAIR. What is outside the matrix is zero, so every tile is a full tile.
 *
 * Invariant: the order of operations of an element of c follows from the number of summands alone: a
 * run of k (all of it, or one leaf) is cut into equal slabs, each slab is summed from zero by k, slabs
 * are added in order. Rows, columns, their place in a tile, and threads play no part.
 *
 * Before including this, an ISA file defines TILE_ROWS, TILE_COLS, TILE_PAIR, GEMM_DEPTH and the
 * type tile_elem of panel elements, and it gives the functions declared under "From the ISA".
 *
 * Memory: panels and sums in ctx->workspace, sized by gemm_workspace, whatever the shape.
 * Reads tutti/kernels/kernels.h; next: gemm_avx2.c, gemm_avx512bf16.c. */
#ifndef TUTTI_KERNELS_GEMM_TILE_H
#define TUTTI_KERNELS_GEMM_TILE_H

#include <assert.h>

#include "kernels/kernels_impl.h"
#include "tutti/base/narrow.h"

/* A block of c is shared out in tasks: a task's part of a stays in L2, one panel of b in L1. Of a
 * block, a is packed once for all columns and b once for all rows. */
enum {
    TILE = TILE_ROWS * TILE_COLS,
    TASK_ROWS = 96,
    TASK_COLS = TILE_COLS * (96 / TILE_COLS),
    GEMM_COLS = TASK_COLS * (1152 / TASK_COLS), /* columns of a block */
    GEMM_ROWS = 768,                            /* rows of a block, for each thread, */
    GEMM_ROWS_LEAST = 1536,                     /* but at least so many */
    ALONE = 1 << 19 /* multiply-adds that one thread does sooner than it wakes a team */
};
_Static_assert(TASK_ROWS % TILE_ROWS == 0 && GEMM_ROWS % TASK_ROWS == 0, "tiles fill tasks");
_Static_assert(GEMM_DEPTH % 16 == 0 && GEMM_DEPTH % TILE_PAIR == 0, "panels stay aligned");

/* From the ISA. */

/* The panel's element of a BF16 code. */
static inline tile_elem tile_of_bf16(tt_bf16 code);

/* Packs element (i, k) = from[i * stride + k] of a whole panel of `width` (TILE_ROWS or TILE_COLS)
 * for k = 0 .. as far as vectors reach within `depth`; returns the first k left (even). */
static inline int64_t tile_pack_across(tile_elem *panel, int width, const tt_bf16 *from,
                                       int64_t stride, int64_t depth);

/* The same for (i, k) = from[k * stride + i]. */
static inline int64_t tile_pack_along(tile_elem *panel, int width, const tt_bf16 *from,
                                      int64_t stride, int64_t depth);

/* sums[TILE_ROWS, TILE_COLS] = (add: sums +) a panel . b panel, `depth` a multiple of TILE_PAIR. */
static void tile_multiply(float *sums, const tile_elem *a, const tile_elem *b, int64_t depth,
                          bool add);

/* A matrix as a side of the sum: element (i, k), i < extent, at data[i * stride + k] when dense_k,
 * else at data[k * stride + i]. */
typedef struct gemm_side {
    const tt_bf16 *data;
    int64_t extent, stride;
    bool dense_k;
} gemm_side;

typedef enum gemm_finish {
    GEMM_ACT,   /* c = BF16 of sum + bias */
    GEMM_FLOAT, /* c = sum */
    GEMM_ADD    /* c += sum, once per leaf */
} gemm_finish;

typedef struct gemm_call {
    gemm_side a, b; /* extents: rows and columns of c */
    int64_t depth;  /* number of k */
    int64_t leaf;   /* k per run */
    gemm_finish finish;
    void *c;             /* [rows, columns] */
    const tt_bf16 *bias; /* [columns] or NULL */
} gemm_call;

/* The workspace in parts. */
typedef struct gemm_scratch {
    int64_t block_rows;
    tile_elem *a; /* [block_rows, GEMM_DEPTH] in panels */
    tile_elem *b; /* [GEMM_COLS, GEMM_DEPTH] in panels */
    float *sums;  /* [GEMM_COLS, block_rows] in tiles, kept from slab to slab */
} gemm_scratch;

/* A slab of a block: c[i0 .. i0+rows, j0 .. j0+cols], k0 .. k0+depth. */
typedef struct gemm_slab {
    int64_t i0, rows, j0, cols, k0, depth;
    bool first, last; /* of its run */
} gemm_slab;

static int64_t gemm_block_rows(int threads)
{
    return tt_max(GEMM_ROWS_LEAST, (int64_t)threads * GEMM_ROWS);
}

static size_t gemm_workspace(const tt_extents *extents, int threads)
{
    (void)extents; /* shapes are cut into blocks */
    int64_t rows = gemm_block_rows(threads);
    return tt_bytes((rows + GEMM_COLS) * GEMM_DEPTH, sizeof(tile_elem)) +
           tt_bytes(rows * GEMM_COLS, sizeof(float));
}

static gemm_scratch gemm_scratch_of(const tt_ctx *ctx)
{
    assert(ctx->workspace_bytes >= gemm_workspace(NULL, ctx->threads));
    gemm_scratch s = {.block_rows = gemm_block_rows(ctx->threads)};
    s.sums = (float *)(void *)ctx->workspace;
    s.a = (tile_elem *)(void *)(s.sums + s.block_rows * GEMM_COLS);
    s.b = s.a + s.block_rows * GEMM_DEPTH;
    return s;
}

/* Packs (i0 .. i0+width, k0 .. k0+depth) of a side; what is outside becomes zero. */
static inline void gemm_pack(tile_elem *panel, int width, const gemm_side *side, int64_t i0,
                             int64_t k0, int64_t depth)
{
    int64_t across = side->dense_k ? side->stride : 1;
    int64_t along = side->dense_k ? 1 : side->stride;
    const tt_bf16 *from = side->data + i0 * across + k0 * along;
    int64_t inside = tt_min(width, side->extent - i0);
    int64_t k = 0;
    if (inside == width) {
        k = side->dense_k ? tile_pack_across(panel, width, from, side->stride, depth)
                          : tile_pack_along(panel, width, from, side->stride, depth);
    }
    for (; k < tt_round_up(depth, TILE_PAIR); k++) {
        tile_elem *to = panel + k / TILE_PAIR * TILE_PAIR * width + k % TILE_PAIR;
        for (int64_t i = 0; i < width; i++) {
            bool outside = i >= inside || k >= depth;
            to[i * TILE_PAIR] = tile_of_bf16(outside ? 0 : from[i * across + k * along]);
        }
    }
}

/* A row of a tile, into c. These become vectors when n is a constant. */
static inline void gemm_row_act(tt_bf16 *restrict c, const float *restrict sums,
                                const float *restrict bias, int64_t n)
{
    for (int64_t j = 0; j < n; j++) {
        c[j] = tt_bf16_of_f32(sums[j] + bias[j]);
    }
}

static inline void gemm_row_float(float *restrict c, const float *restrict sums, int64_t n)
{
    for (int64_t j = 0; j < n; j++) {
        c[j] = sums[j];
    }
}

static inline void gemm_row_add(float *restrict c, const float *restrict sums, int64_t n)
{
    for (int64_t j = 0; j < n; j++) {
        c[j] += sums[j];
    }
}

/* c's tile at (i, j), `cols` wide, from its sums. */
static inline void gemm_store_tile(const gemm_call *g, const float *sums, int64_t i, int64_t j,
                                   int64_t cols)
{
    int64_t rows = tt_min(TILE_ROWS, g->a.extent - i), width = g->b.extent;
    tt_bf16 *act = (tt_bf16 *)g->c + i * width + j;
    float *real = (float *)g->c + i * width + j;
    float bias[TILE_COLS] = {0};
    switch (g->finish) {
    case GEMM_ACT:
        for (int64_t n = 0; g->bias != NULL && n < cols; n++) {
            bias[n] = tt_f32_of_bf16(g->bias[j + n]);
        }
        for (int64_t m = 0; m < rows; m++) {
            gemm_row_act(act + m * width, sums + m * TILE_COLS, bias, cols);
        }
        break;
    case GEMM_FLOAT:
        for (int64_t m = 0; m < rows; m++) {
            gemm_row_float(real + m * width, sums + m * TILE_COLS, cols);
        }
        break;
    case GEMM_ADD:
        for (int64_t m = 0; m < rows; m++) {
            gemm_row_add(real + m * width, sums + m * TILE_COLS, cols);
        }
        break;
    }
}

static void gemm_store(const gemm_call *g, const float *sums, int64_t i, int64_t j)
{
    int64_t cols = g->b.extent - j;
    if (cols >= TILE_COLS) {
        gemm_store_tile(g, sums, i, j, TILE_COLS);
    } else {
        gemm_store_tile(g, sums, i, j, cols);
    }
}

/* Packs both sides of a slab. Called by the whole team; returns when all panels are there. */
static void gemm_pack_slab(const gemm_call *g, const gemm_scratch *s, const gemm_slab *slab)
{
    int64_t a_panels = tt_ceil_div(slab->rows, TILE_ROWS);
    int64_t b_panels = tt_ceil_div(slab->cols, TILE_COLS);
    if (slab->i0 > 0 || slab->j0 > 0 || slab->k0 > 0) {
#pragma omp barrier /* until here someone may read the panels of the slab before */
    }
#pragma omp for schedule(static)
    for (int64_t p = 0; p < a_panels + b_panels; p++) {
        if (p < a_panels) {
            gemm_pack(s->a + p * TILE_ROWS * GEMM_DEPTH, TILE_ROWS, &g->a, slab->i0 + p * TILE_ROWS,
                      slab->k0, slab->depth);
        } else {
            int64_t q = p - a_panels;
            gemm_pack(s->b + q * TILE_COLS * GEMM_DEPTH, TILE_COLS, &g->b, slab->j0 + q * TILE_COLS,
                      slab->k0, slab->depth);
        }
    }
}

/* Rows i .. i_end and columns j .. j_end of a slab. Sums stay in the cache between multiply and
 * store when the run is a single slab; else they are kept in s->sums. */
static void gemm_task(const gemm_call *g, const gemm_scratch *s, const gemm_slab *slab, int64_t i,
                      int64_t i_end, int64_t j, int64_t j_end)
{
    int64_t depth = tt_round_up(slab->depth, TILE_PAIR);
    for (int64_t n = j; n < j_end; n += TILE_COLS) {
        for (int64_t m = i; m < i_end; m += TILE_ROWS) {
            _Alignas(TT_ALIGN) float here[TILE];
            float *sums =
                slab->first && slab->last ? here : s->sums + n * s->block_rows + m * TILE_COLS;
            tile_multiply(sums, s->a + m * GEMM_DEPTH, s->b + n * GEMM_DEPTH, depth, !slab->first);
            if (slab->last) {
                gemm_store(g, sums, slab->i0 + m, slab->j0 + n);
            }
        }
    }
}

/* Called by the whole team; returns when the caller's part is done. Tasks go to whoever is free,
 * because cores are seldom equally fast. */
static void gemm_multiply_slab(const gemm_call *g, const gemm_scratch *s, const gemm_slab *slab)
{
    int64_t across = tt_ceil_div(slab->cols, TASK_COLS);
    int64_t tasks = tt_ceil_div(slab->rows, TASK_ROWS) * across;
#pragma omp for schedule(dynamic) nowait
    for (int64_t t = 0; t < tasks; t++) {
        int64_t i = t / across * TASK_ROWS, j = t % across * TASK_COLS;
        gemm_task(g, s, slab, i, tt_min(i + TASK_ROWS, slab->rows), j,
                  tt_min(j + TASK_COLS, slab->cols));
    }
}

/* All runs of k for one block of c. */
static void gemm_block(const gemm_call *g, const gemm_scratch *s, gemm_slab slab)
{
    for (int64_t run = 0; run < g->depth; run += g->leaf) {
        int64_t end = tt_min(run + g->leaf, g->depth);
        int64_t slabs = tt_ceil_div(end - run, GEMM_DEPTH);
        int64_t step = tt_round_up(tt_ceil_div(end - run, slabs), 16);
        for (slab.k0 = run; slab.k0 < end; slab.k0 += step) {
            slab.depth = tt_min(step, end - slab.k0);
            slab.first = slab.k0 == run;
            slab.last = slab.k0 + slab.depth == end;
            gemm_pack_slab(g, s, &slab);
            gemm_multiply_slab(g, s, &slab);
        }
    }
}

static void gemm_run(const tt_ctx *ctx, gemm_call g)
{
    gemm_scratch s = gemm_scratch_of(ctx);
    double work = (double)g.a.extent * (double)g.b.extent * (double)g.depth;
    int threads = work < ALONE ? 1 : ctx->threads;
#pragma omp parallel num_threads(threads)
    for (int64_t j = 0; j < g.b.extent; j += GEMM_COLS) {
        for (int64_t i = 0; i < g.a.extent; i += s.block_rows) {
            gemm_block(&g, &s,
                       (gemm_slab){.i0 = i,
                                   .rows = tt_min(s.block_rows, g.a.extent - i),
                                   .j0 = j,
                                   .cols = tt_min(GEMM_COLS, g.b.extent - j)});
        }
    }
}

/* y[M,N] = x[M,K] . w[N,K]^T + bias[N] */
static void gemm_nt(tt_ctx *ctx, void *y, const void *x, const void *w, const void *bias, int64_t M,
                    int64_t N, int64_t K)
{
    gemm_run(ctx, (gemm_call){.a = {x, M, K, true},
                              .b = {w, N, K, true},
                              .depth = K,
                              .leaf = K,
                              .finish = GEMM_ACT,
                              .c = y,
                              .bias = bias});
}

/* y[M,N] = x[M,K] . w[N,K]^T */
static void gemm_nt_f32(tt_ctx *ctx, float *y, const void *x, const void *w, int64_t M, int64_t N,
                        int64_t K)
{
    gemm_run(ctx, (gemm_call){.a = {x, M, K, true},
                              .b = {w, N, K, true},
                              .depth = K,
                              .leaf = K,
                              .finish = GEMM_FLOAT,
                              .c = y});
}

/* dx[M,K] = dy[M,N] . w[N,K] */
static void gemm_nn(tt_ctx *ctx, void *dx, const void *dy, const void *w, int64_t M, int64_t N,
                    int64_t K)
{
    gemm_run(ctx, (gemm_call){.a = {dy, M, N, true},
                              .b = {w, K, K, false},
                              .depth = N,
                              .leaf = N,
                              .finish = GEMM_ACT,
                              .c = dx});
}

/* gw[N,K] += dy[M,N]^T . x[M,K] */
static void gemm_tn(tt_ctx *ctx, float *gw, const void *dy, const void *x, int64_t M, int64_t N,
                    int64_t K, int64_t leaf)
{
    gemm_run(ctx, (gemm_call){.a = {dy, N, N, false},
                              .b = {x, K, K, false},
                              .depth = M,
                              .leaf = leaf,
                              .finish = GEMM_ADD,
                              .c = gw});
}

#endif
