/* gemm_tile.h: the matmul of matrices of acts around one register tile; an ISA brings the tile.
 *
 * c[i,j] = sum over k of a(i,k) * b(k,j). All four matmuls of the table are this sum; they differ in
 * which index runs densely through memory and in what happens to the sum at the end.
 *
 *     pack b whole, unless it comes packed                                 (all threads)
 *     for each task, TASK_ROWS x chunk of c, by whoever is free:
 *         for a run of k (all of it, or one leaf), a slab of at most GEMM_DEPTH at a time:
 *             pack the task's rows of a
 *             for a group of GROUP_COLS columns:
 *                 multiply panels, TILE_ROWS x TILE_COLS sums at a time
 *                 after the last slab: finish the group's sums while they are in the cache
 *
 * Panels: a's rows in groups of TILE_ROWS, b's columns in groups of TILE_COLS, k outermost; where
 * element (i, k) of a panel lies is the ISA's choice. What is outside the matrix is zero, so every
 * tile is a full tile. A panel of b holds all k, run after run, each run padded to TILE_STEP; a task
 * keeps its part of a, and its sums, in L2, and reads each panel of b once from further away.
 *
 * Invariant: the order of operations of an element of c follows from the number of summands alone: a
 * run of k is cut into equal slabs, each slab is summed from zero by k, slabs are added in order.
 * Rows, columns, their place in a tile, and threads play no part; nor does who packed b, and when.
 *
 * Before including this, an ISA file says what an act is (act.h), defines TILE_ROWS, TILE_COLS,
 * TASK_ROWS, GROUP_COLS, GEMM_DEPTH and the types tile_a, tile_b of panel elements; it gives the
 * functions declared under "From the ISA". What enters a panel is as it enters a product (act.h).
 *
 * Memory: panels and sums in ctx->workspace, sized by gemm_workspace.
 * Reads tutti/kernels/kernels.h; next: gemm_avx2.h, gemm_avx512.h, gemm_avx512bf16.c. */
#ifndef TUTTI_KERNELS_GEMM_TILE_H
#define TUTTI_KERNELS_GEMM_TILE_H

#include <assert.h>

#include "kernels/generic/column_sums.h"
#include "kernels/generic/epilogue.h"
#include "tutti/base/threads.h"

enum {
    TILE_STEP = 16,   /* depths are padded to it with zeros, which add nothing */
    CHUNK_COLS = 384, /* columns of a task, at most */
    TASKS = 8,        /* per thread, wanted */
    ALONE = 1 << 19   /* multiply-adds that one thread does sooner than it wakes a team */
};
_Static_assert(GROUP_COLS % TILE_COLS == 0 && GROUP_COLS % BLOCK == 0, "panels fill groups");
_Static_assert(CHUNK_COLS % GROUP_COLS == 0 && TASK_ROWS % TILE_ROWS == 0, "tiles fill tasks");
_Static_assert(GEMM_DEPTH % TILE_STEP == 0, "slabs are whole steps");

/* Elements from one panel of a to the next: a line more than a panel holds, as panels a power of two
 * apart would all want the same places in the cache while they are filled side by side. */
enum { A_PANEL = TILE_ROWS * GEMM_DEPTH + 64 / (int)sizeof(tile_a) };

/* From the ISA. */

/* Where element (i, k) lies in a panel of a, of b; and its value there. */
static inline int64_t tile_a_at(int64_t i, int64_t k);
static inline int64_t tile_b_at(int64_t i, int64_t k);
static inline tile_a tile_a_of(act x);
static inline tile_b tile_b_of(act x);

/* Packs elements (i, k) = from[i * stride + k] of a whole panel, k = 0 .. as far as vectors reach
 * within `depth`; returns the first k left. */
static inline int64_t tile_a_across(tile_a *panel, const act *from, int64_t stride, int64_t depth);
static inline int64_t tile_b_across(tile_b *panel, const act *from, int64_t stride, int64_t depth);

/* The same for (i, k) = from[k * stride + i]. Of a, `panels` side by side: a line of the cache holds
 * rows of several, and lines a stride apart may chase each other out of the cache. */
static inline int64_t tile_a_along(tile_a *panel, const act *from, int64_t stride, int64_t depth,
                                   int64_t panels);
static inline int64_t tile_b_along(tile_b *panel, const act *from, int64_t stride, int64_t depth);

/* sums[TILE_ROWS, TILE_COLS] (rows GROUP_COLS apart) = (add: sums +) a panel . b panel, over `depth`,
 * a multiple of TILE_STEP. `next` is this tile's share of the panel of b that comes next, TILE_NEXT
 * elements a step: tile_prefetch them; it may point anywhere. */
static void tile_multiply(float *sums, const tile_a *a, const tile_b *b, int64_t depth, bool add,
                          const tile_b *next);

enum { TILE_NEXT = TILE_COLS * TILE_STEP * TILE_ROWS / TASK_ROWS };

static inline void tile_prefetch(const tile_b *next)
{
    bytes_ahead(next, TILE_NEXT * (int64_t)sizeof *next);
}

/* A matrix as a side of the sum: element (i, k), i < extent, at data[i * stride + k] when dense_k,
 * else at data[k * stride + i]. */
typedef struct gemm_side {
    const act *data;
    int64_t extent, stride;
    bool dense_k;
} gemm_side;

typedef enum gemm_finish {
    GEMM_ACT,   /* c = act of the epilogue of the sum */
    GEMM_FLOAT, /* c = sum */
    GEMM_ADD    /* c += sum, once per leaf */
} gemm_finish;

typedef struct gemm_call {
    gemm_side a, b;       /* extents: rows and columns of c */
    const tile_b *packed; /* b in panels, or NULL */
    int64_t depth;        /* number of k */
    int64_t leaf;         /* k per run */
    gemm_finish finish;
    void *c;                    /* [rows, columns] */
    const tt_grad *grad;        /* GEMM_ADD: c */
    const tt_grad *column_sums; /* GEMM_ADD: of a's data, or NULL */
    const tt_epilogue *e;       /* GEMM_ACT; or NULL */
} gemm_call;

/* ---- the workspace: for each thread a and sums; then b ---- */

enum {
    A_FLOATS = TASK_ROWS / TILE_ROWS * A_PANEL * (int)sizeof(tile_a) / (int)sizeof(float),
    SUM_FLOATS = TASK_ROWS * CHUNK_COLS,
    THREAD_FLOATS = A_FLOATS + SUM_FLOATS
};
_Static_assert(A_FLOATS * sizeof(float) % TT_ALIGN == 0, "sums are aligned");
_Static_assert(THREAD_FLOATS * sizeof(float) % TT_ALIGN == 0, "parts of threads are aligned");

/* Bytes of b[extent, depth] in panels, cut into runs of `leaf`. */
static size_t gemm_b_bytes(int64_t extent, int64_t depth, int64_t leaf)
{
    int64_t whole = depth / leaf, rest = depth % leaf;
    int64_t padded = whole * tt_round_up(leaf, TILE_STEP) + tt_round_up(rest, TILE_STEP);
    return tt_padded(tt_bytes(tt_mul(tt_round_up(extent, TILE_COLS), padded), sizeof(tile_b)));
}

static size_t gemm_own_bytes(int threads)
{
    return tt_bytes((int64_t)threads * THREAD_FLOATS, sizeof(float));
}

/* b is x in gemm_tn, for which a few leaves are room enough; else a weight in either form. */
static size_t gemm_workspace(const tt_extents *x, int threads)
{
    int64_t narrow = tt_max(x->channels, x->heads * x->head_size);
    int64_t widest = tt_max(x->ffn, narrow), wider = tt_max(x->vocab, widest);
    size_t most = gemm_b_bytes(widest, x->rows, x->tokens);
    if (!x->packed) {
        size_t nt = gemm_b_bytes(wider, narrow, narrow), nn = gemm_b_bytes(narrow, wider, wider);
        size_t turned = gemm_b_bytes(narrow, widest, widest);
        most = tt_max(most, tt_max(nt, tt_max(nn, turned)));
    }
    return gemm_own_bytes(threads) + most;
}

static float *gemm_own(const tt_ctx *ctx)
{
    return (float *)(void *)ctx->workspace + (int64_t)tt_thread_id() * THREAD_FLOATS;
}

static tile_b *gemm_b_room(const tt_ctx *ctx)
{
    return (void *)(ctx->workspace + gemm_own_bytes(ctx->threads));
}

/* ---- packing ---- */

/* Elements (i0 + i, k0 + k), i < width, k < depth of a side, as seen from the first. */
typedef struct gemm_piece {
    const act *from;
    int64_t across, along; /* strides of i and k */
    int64_t inside;        /* i's within the matrix */
} gemm_piece;

static inline gemm_piece gemm_piece_of(const gemm_side *side, int64_t i0, int64_t k0)
{
    int64_t across = side->dense_k ? side->stride : 1, along = side->dense_k ? 1 : side->stride;
    return (gemm_piece){side->data + i0 * across + k0 * along, across, along, side->extent - i0};
}

static inline act gemm_element(const gemm_piece *p, int64_t i, int64_t k, int64_t depth)
{
    return i < p->inside && k < depth ? p->from[i * p->across + k * p->along] : (act)0;
}

/* Rows i0 .. i0 + rows - 1 into panels; what is outside becomes zero. */
static inline void gemm_pack_a(tile_a *to, const gemm_side *side, int64_t i0, int64_t rows,
                               int64_t k0, int64_t depth)
{
    int64_t whole = tt_min(rows, side->extent - i0) / TILE_ROWS, along = 0;
    if (whole > 0 && !side->dense_k) {
        gemm_piece p = gemm_piece_of(side, i0, k0);
        along = tile_a_along(to, p.from, side->stride, depth, whole);
    }
    for (int64_t m = 0; m < rows; m += TILE_ROWS, to += A_PANEL) {
        gemm_piece p = gemm_piece_of(side, i0 + m, k0);
        int64_t k = 0;
        if (m / TILE_ROWS < whole) {
            k = side->dense_k ? tile_a_across(to, p.from, side->stride, depth) : along;
        }
        for (; k < tt_round_up(depth, TILE_STEP); k++) {
            for (int64_t i = 0; i < TILE_ROWS; i++) {
                to[tile_a_at(i, k)] = tile_a_of(gemm_element(&p, i, k, depth));
            }
        }
    }
}

static inline void gemm_pack_b(tile_b *panel, const gemm_side *side, int64_t i0, int64_t k0,
                               int64_t depth)
{
    gemm_piece p = gemm_piece_of(side, i0, k0);
    int64_t k = 0;
    if (p.inside >= TILE_COLS) {
        k = side->dense_k ? tile_b_across(panel, p.from, side->stride, depth)
                          : tile_b_along(panel, p.from, side->stride, depth);
    }
    for (; k < tt_round_up(depth, TILE_STEP); k++) {
        for (int64_t i = 0; i < TILE_COLS; i++) {
            panel[tile_b_at(i, k)] = tile_b_of(gemm_element(&p, i, k, depth));
        }
    }
}

/* Elements from one panel of b to the next. */
static int64_t gemm_b_panel(int64_t depth, int64_t leaf)
{
    return tt_count(gemm_b_bytes(TILE_COLS, depth, leaf) / sizeof(tile_b));
}

/* All of b; called by a team, returns when the caller's share is done. */
static void gemm_pack_all(tile_b *to, const gemm_side *side, int64_t depth, int64_t leaf)
{
    int64_t panel = gemm_b_panel(depth, leaf), run = tt_round_up(leaf, TILE_STEP) * TILE_COLS;
#pragma omp for schedule(static) nowait
    for (int64_t j = 0; j < side->extent; j += TILE_COLS) {
        for (int64_t k = 0; k < depth; k += leaf) {
            gemm_pack_b(to + j / TILE_COLS * panel + k / leaf * run, side, j, k,
                        tt_min(leaf, depth - k));
        }
    }
}

/* ---- tasks ---- */

/* Sums of a group, rows i .. i + rows - 1 and columns j .. j + cols - 1 of c, to where they belong. */
static void gemm_store(tt_ctx *ctx, const gemm_call *g, const float *sums, int64_t i, int64_t rows,
                       int64_t j, int64_t cols)
{
    int64_t width = g->b.extent;
    if (g->finish == GEMM_ADD) {
        grad_add_block(g->grad, i * width + j, width, sums, GROUP_COLS, rows, cols,
                       grad_limit(g->grad, tt_min(g->leaf, g->depth)));
        return;
    }
    if (g->finish == GEMM_ACT) {
        generic_epilogue(ctx, g->e, g->c, sums, GROUP_COLS, i, j, rows, cols, width);
        return;
    }
    for (int64_t m = 0; m < rows; m++) {
        float *restrict c = (float *)g->c + (i + m) * width + j;
        const float *restrict from = sums + m * GROUP_COLS;
        bytes_ahead(c + ROWS_AHEAD * width, cols * (int64_t)sizeof *c);
        memcpy(c, from, tt_bytes(cols, sizeof *c));
    }
}

/* Where a task stands: rows i .. of c, columns j .., a slab k0 .. of run `run`. */
typedef struct gemm_at {
    int64_t i, rows, j, cols;
    int64_t run, k0, depth;
    bool first, last; /* slab of its run */
} gemm_at;

static void gemm_slab(tt_ctx *ctx, const gemm_call *g, const tile_a *a, float *sums,
                      const gemm_at *at)
{
    int64_t depth = tt_round_up(at->depth, TILE_STEP), panel = gemm_b_panel(g->depth, g->leaf);
    const tile_b *b = g->packed + at->j / TILE_COLS * panel +
                      (at->run * tt_round_up(g->leaf, TILE_STEP) + at->k0) * TILE_COLS;
    for (int64_t group = 0; group < at->cols; group += GROUP_COLS) {
        int64_t cols = tt_min(GROUP_COLS, at->cols - group);
        for (int64_t n = 0; n < cols; n += TILE_COLS) {
            const tile_b *here = b + (group + n) / TILE_COLS * panel;
            for (int64_t m = 0; m < at->rows; m += TILE_ROWS) {
                tile_multiply(sums + m * GROUP_COLS + n, a + m / TILE_ROWS * A_PANEL, here, depth,
                              !at->first,
                              here + panel + m / TILE_ROWS * (depth / TILE_STEP) * TILE_NEXT);
            }
        }
        if (at->last) {
            gemm_store(ctx, g, sums, at->i, at->rows, at->j + group, cols);
        }
        if (!at->first || !at->last) {
            sums += TASK_ROWS * GROUP_COLS; /* sums wait here for the next slab */
        }
    }
}

static void gemm_task(tt_ctx *ctx, const gemm_call *g, gemm_at at)
{
    float *own = gemm_own(ctx);
    tile_a *a = (void *)own;
    if (g->column_sums != NULL && at.j == 0) {
        column_sums(g->column_sums, at.i, g->a.data + at.i, g->a.stride, g->depth, at.rows,
                    g->leaf);
    }
    for (int64_t run = 0; run < g->depth; run += g->leaf, at.run++) {
        int64_t length = tt_min(g->leaf, g->depth - run);
        int64_t step = tt_round_up(tt_ceil_div(length, tt_ceil_div(length, GEMM_DEPTH)), TILE_STEP);
        for (at.k0 = 0; at.k0 < length; at.k0 += step) {
            at.depth = tt_min(step, length - at.k0);
            at.first = at.k0 == 0;
            at.last = at.k0 + at.depth == length;
            gemm_pack_a(a, &g->a, at.i, at.rows, run + at.k0, at.depth);
            gemm_slab(ctx, g, a, own + A_FLOATS, &at);
        }
    }
}

/* Columns of a task: as many as give every thread some tasks, to pack a seldom. */
static int64_t gemm_chunk(const gemm_call *g, int threads)
{
    int64_t groups = tt_ceil_div(g->b.extent, GROUP_COLS);
    int64_t tasks = tt_mul(groups, tt_ceil_div(g->a.extent, TASK_ROWS));
    int64_t each = tt_max(1, tasks / ((int64_t)threads * TASKS));
    return tt_min(each * GROUP_COLS, CHUNK_COLS);
}

static void gemm_run(tt_ctx *ctx, gemm_call g)
{
    double work = (double)g.a.extent * (double)g.b.extent * (double)g.depth;
    int threads = work < ALONE ? 1 : ctx->threads;
    int64_t chunk = gemm_chunk(&g, threads), down = tt_ceil_div(g.a.extent, TASK_ROWS);
    int64_t tasks = tt_mul(down, tt_ceil_div(g.b.extent, chunk));
    tile_b *room = NULL;
    if (g.packed == NULL) {
        room = gemm_b_room(ctx);
        g.packed = room;
        assert(ctx->workspace_bytes >=
               gemm_own_bytes(ctx->threads) + gemm_b_bytes(g.b.extent, g.depth, g.leaf));
    }
#pragma omp parallel num_threads(threads)
    {
        if (room != NULL) {
            gemm_pack_all(room, &g.b, g.depth, g.leaf);
#pragma omp barrier
        }
        /* Rows innermost: the threads share the panels of b that are in the outer caches. */
#pragma omp for schedule(dynamic)
        for (int64_t t = 0; t < tasks; t++) {
            int64_t i = t % down * TASK_ROWS, j = t / down * chunk;
            gemm_task(ctx, &g,
                      (gemm_at){.i = i,
                                .rows = tt_min(TASK_ROWS, g.a.extent - i),
                                .j = j,
                                .cols = tt_min(chunk, g.b.extent - j)});
        }
    }
}

/* ---- the entries of the table ---- */

/* Both forms of w[N,K], one behind the other: columns N over depth K, and columns K over depth N. */
static size_t gemm_packed_bytes(int64_t N, int64_t K)
{
    return gemm_b_bytes(N, K, K) + gemm_b_bytes(K, N, N);
}

static const tile_b *gemm_packed_nt(const tt_weight *w)
{
    return w->packed;
}

static const tile_b *gemm_packed_nn(const tt_weight *w, int64_t N, int64_t K)
{
    const unsigned char *both = w->packed;
    return both == NULL ? NULL : (const void *)(both + gemm_b_bytes(N, K, K));
}

static gemm_side gemm_columns_nt(const void *w, int64_t N, int64_t K)
{
    return (gemm_side){w, N, K, true};
}

static gemm_side gemm_columns_nn(const void *w, int64_t K)
{
    return (gemm_side){w, K, K, false};
}

static void gemm_pack(tt_ctx *ctx, void *packed, const void *w, int64_t N, int64_t K)
{
    const gemm_side nt = gemm_columns_nt(w, N, K), nn = gemm_columns_nn(w, K);
    unsigned char *second = (unsigned char *)packed + gemm_b_bytes(N, K, K);
#pragma omp parallel num_threads(ctx->threads)
    {
        gemm_pack_all(packed, &nt, K, K);
        gemm_pack_all((void *)second, &nn, N, N);
    }
}

/* y[M,N] = e(x[M,K] . w[N,K]^T) */
static void gemm_nt(tt_ctx *ctx, void *y, const void *x, const tt_weight *w, const tt_epilogue *e,
                    int64_t M, int64_t N, int64_t K, int64_t leaf)
{
    (void)leaf; /* rows of a leaf or of several: a row is a sum of its own */
    gemm_run(ctx, (gemm_call){.a = {x, M, K, true},
                              .b = gemm_columns_nt(w->w, N, K),
                              .packed = gemm_packed_nt(w),
                              .depth = K,
                              .leaf = K,
                              .finish = GEMM_ACT,
                              .c = y,
                              .e = e});
}

/* y[M,N] = x[M,K] . w[N,K]^T */
static void gemm_nt_f32(tt_ctx *ctx, float *y, const void *x, const tt_weight *w, int64_t M,
                        int64_t N, int64_t K, int64_t leaf)
{
    (void)leaf;
    gemm_run(ctx, (gemm_call){.a = {x, M, K, true},
                              .b = gemm_columns_nt(w->w, N, K),
                              .packed = gemm_packed_nt(w),
                              .depth = K,
                              .leaf = K,
                              .finish = GEMM_FLOAT,
                              .c = y});
}

/* dx[M,K] = e(dy[M,N] . w[N,K]) */
static void gemm_nn(tt_ctx *ctx, void *dx, const void *dy, const tt_weight *w, const tt_epilogue *e,
                    int64_t M, int64_t N, int64_t K, int64_t leaf)
{
    (void)leaf;
    gemm_run(ctx, (gemm_call){.a = {dy, M, N, true},
                              .b = gemm_columns_nn(w->w, K),
                              .packed = gemm_packed_nn(w, N, K),
                              .depth = N,
                              .leaf = N,
                              .finish = GEMM_ACT,
                              .c = dx,
                              .e = e});
}

/* gw[N,K] += dy[M,N]^T . x[M,K], gb[N] += column sums of dy: as many leaves at a time as there is
 * room for x. Leaf comes after leaf either way. */
static void gemm_tn(tt_ctx *ctx, const tt_grad *gw, const tt_grad *gb, const void *dy,
                    const void *x, int64_t M, int64_t N, int64_t K, int64_t leaf)
{
    size_t room = ctx->workspace_bytes - gemm_own_bytes(ctx->threads);
    leaf = tt_min(leaf, M);
    int64_t fit = tt_count(room / tt_max(gemm_b_bytes(K, leaf, leaf), 1));
    int64_t rows = tt_max(1, fit) * leaf;
    for (int64_t m = 0; m < M; m += rows) {
        gemm_run(ctx, (gemm_call){.a = {(const act *)dy + m * N, N, N, false},
                                  .b = {(const act *)x + m * K, K, K, false},
                                  .depth = tt_min(rows, M - m),
                                  .leaf = leaf,
                                  .finish = GEMM_ADD,
                                  .grad = gw,
                                  .column_sums = gb});
    }
}

/* What an ISA file says of its table beside name, formats and peak. */
#define GEMM_TILE_ENTRIES                                                              \
    .workspace = gemm_workspace, .packed_bytes = gemm_packed_bytes, .pack = gemm_pack, \
    .gemm_nt = gemm_nt, .gemm_nt_f32 = gemm_nt_f32, .gemm_nn = gemm_nn, .gemm_tn = gemm_tn

#endif
