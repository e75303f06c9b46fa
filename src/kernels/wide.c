/* wide.c: matmuls of a narrow act in FP32, by the FP32 table. See tutti/kernels/wide.h.
 *
 * A panel of rows is widened into the front of the workspace, the FP32 table works on it in the rest,
 * and the epilogue of the narrow table, or its rounding, takes the result away. A panel is as many
 * whole leaves as make about PANEL_ROWS rows: what the FP32 table does to a leaf depends on the leaf
 * alone, so the size of a panel changes no bit.
 *
 * Owns nothing. Reads kernels_impl.h; next: select.c lays these over a table. */
#include <assert.h>

#include "kernels/kernels_impl.h"

enum {
    PANEL_ROWS = 512,
    STRIP_ROWS = 16 /* of an epilogue, for a thread */
};

/* Rows of a panel at most, of so many rows and leaves no longer than `leaf`. */
static int64_t panel_rows(int64_t rows, int64_t leaf)
{
    return tt_min(rows, tt_max(leaf, PANEL_ROWS));
}

/* Two widened arrays of a panel: what is read and what is made of it. */
static size_t front_bytes(int64_t rows, int64_t width, int64_t other)
{
    return tt_padded(tt_bytes(tt_mul(rows, width), sizeof(float))) +
           tt_padded(tt_bytes(tt_mul(rows, other), sizeof(float)));
}

/* One call's panels. */
typedef struct panels {
    tt_ctx rest, full;   /* of the narrow and of the FP32 table, both behind the front */
    float *first, *last; /* [step, width], [step, other] */
    int64_t leaf, step;  /* rows of a leaf, of a panel */
} panels;

static panels panels_of(tt_ctx *ctx, int64_t M, int64_t leaf, int64_t width, int64_t other)
{
    panels p = {.leaf = tt_max(1, tt_min(leaf, M))};
    p.step = tt_min(M, p.leaf * tt_max(1, PANEL_ROWS / p.leaf));
    const size_t front = front_bytes(p.step, width, other);
    assert(front <= ctx->workspace_bytes);
    p.rest = tt_ctx_rest(ctx, front);
    p.full = p.rest;
    p.full.ops = ctx->full;
    p.full.base = ctx->full_base;
    p.full.full = p.full.full_base = NULL;
    p.full.times = NULL;
    p.full.count.result = NULL; /* a panel in FP32, on its way to act */
    p.first = (void *)ctx->workspace;
    p.last = (void *)(ctx->workspace + tt_padded(tt_bytes(tt_mul(p.step, width), sizeof(float))));
    return p;
}

/* Element i of an array of act. */
static const void *act_at(const tt_ctx *ctx, const void *array, int64_t i)
{
    return (const unsigned char *)array + tt_bytes(i, tt_formats[ctx->ops->format].bytes);
}

static void widen(panels *p, float *to, const void *from, int64_t first, int64_t count)
{
    p->rest.ops->from_act(&p->rest, to, act_at(&p->rest, from, first), count);
}

/* y in rows m .. m + rows - 1, from their sums. */
static void finish(panels *p, void *y, const tt_epilogue *e, int64_t m, int64_t rows, int64_t N)
{
#pragma omp parallel for num_threads(p->rest.threads)
    for (int64_t i = 0; i < rows; i += STRIP_ROWS) {
        p->rest.ops->epilogue(&p->rest, e, y, p->last + i * N, N, m + i, 0,
                              tt_min(STRIP_ROWS, rows - i), N, N);
    }
}

static void wide_pack(tt_ctx *ctx, void *packed, const void *w, int64_t N, int64_t K)
{
    panels p = panels_of(ctx, 1, 1, 0, 0);
    p.full.ops->pack(&p.full, packed, w, N, K);
}

static void wide_gemm_nt(tt_ctx *ctx, void *y, const void *x, const tt_weight *w,
                         const tt_epilogue *e, int64_t M, int64_t N, int64_t K, int64_t leaf)
{
    panels p = panels_of(ctx, M, leaf, K, N);
    for (int64_t m = 0; m < M; m += p.step) {
        const int64_t rows = tt_min(p.step, M - m);
        widen(&p, p.first, x, m * K, rows * K);
        p.full.ops->gemm_nt(&p.full, p.last, p.first, w, NULL, rows, N, K, p.leaf);
        finish(&p, y, e, m, rows, N);
    }
}

static void wide_gemm_nt_f32(tt_ctx *ctx, float *y, const void *x, const tt_weight *w, int64_t M,
                             int64_t N, int64_t K, int64_t leaf)
{
    panels p = panels_of(ctx, M, leaf, K, 0);
    for (int64_t m = 0; m < M; m += p.step) {
        const int64_t rows = tt_min(p.step, M - m);
        widen(&p, p.first, x, m * K, rows * K);
        p.full.ops->gemm_nt_f32(&p.full, y + m * N, p.first, w, rows, N, K, p.leaf);
    }
}

static void wide_gemm_nn(tt_ctx *ctx, void *dx, const void *dy, const tt_weight *w,
                         const tt_epilogue *e, int64_t M, int64_t N, int64_t K, int64_t leaf)
{
    panels p = panels_of(ctx, M, leaf, N, K);
    for (int64_t m = 0; m < M; m += p.step) {
        const int64_t rows = tt_min(p.step, M - m);
        widen(&p, p.first, dy, m * N, rows * N);
        p.full.ops->gemm_nn(&p.full, p.last, p.first, w, NULL, rows, N, K, p.leaf);
        finish(&p, dx, e, m, rows, K);
    }
}

static void wide_gemm_tn(tt_ctx *ctx, const tt_grad *gw, const tt_grad *gb, const void *dy,
                         const void *x, int64_t M, int64_t N, int64_t K, int64_t leaf)
{
    panels p = panels_of(ctx, M, leaf, N, K);
    for (int64_t m = 0; m < M; m += p.step) {
        const int64_t rows = tt_min(p.step, M - m);
        widen(&p, p.first, dy, m * N, rows * N);
        widen(&p, p.last, x, m * K, rows * K);
        p.full.ops->gemm_tn(&p.full, gw, gb, p.first, p.last, rows, N, K, p.leaf);
    }
}

static void wide_head_loss(tt_ctx *ctx, tt_exact *loss_sum, int64_t *count, float *row_loss,
                           void *dx, const tt_grad *gw, const void *x, const tt_weight *w,
                           const int32_t *target, int64_t M, int64_t V, int64_t vocab_used,
                           int64_t C, int64_t leaf, float scale)
{
    panels p = panels_of(ctx, M, leaf, C, C);
    for (int64_t m = 0; m < M; m += p.step) {
        const int64_t rows = tt_min(p.step, M - m);
        widen(&p, p.first, x, m * C, rows * C);
        p.full.ops->head_loss(&p.full, loss_sum, count, row_loss != NULL ? row_loss + m : NULL,
                              dx != NULL ? p.last : NULL, gw, p.first, w, target + m, rows, V,
                              vocab_used, C, p.leaf, scale);
        if (dx != NULL) {
            finish(&p, dx, NULL, m, rows, C);
        }
    }
}

void tt_wide_lay(tt_ops *table, const tt_ops *full)
{
    static const int served[] = {TT_OP_pack,    TT_OP_gemm_nt, TT_OP_gemm_nt_f32,
                                 TT_OP_gemm_nn, TT_OP_gemm_tn, TT_OP_head_loss};
    table->pack = wide_pack;
    table->packed_bytes = full->packed_bytes;
    table->gemm_nt = wide_gemm_nt;
    table->gemm_nt_f32 = wide_gemm_nt_f32;
    table->gemm_nn = wide_gemm_nn;
    table->gemm_tn = wide_gemm_tn;
    table->head_loss = wide_head_loss;
    for (size_t i = 0; i < sizeof served / sizeof served[0]; i++) {
        table->from[served[i]] = full->from[served[i]];
    }
}

size_t tt_kernels_wide_workspace(const tt_wide_ops *wide, const tt_extents *extents, int threads)
{
    const size_t narrow = tt_kernels_workspace(&wide->ops, &wide->guarded, extents, threads);
    if (wide->full.isa == NULL) {
        return narrow;
    }
    const int64_t rows = panel_rows(extents->rows, extents->tokens);
    const int64_t widest = tt_max(extents->channels, extents->ffn);
    const size_t front = front_bytes(rows, extents->channels, widest) + TT_ALIGN;
    const size_t all =
        front + tt_kernels_workspace(&wide->full, &wide->full_guarded, extents, threads);
    return all > narrow ? all : narrow;
}

tt_ctx tt_kernels_wide_ctx(const tt_wide_ops *wide, int threads, void *workspace, size_t bytes)
{
    tt_ctx ctx = tt_kernels_ctx(&wide->ops, &wide->guarded, threads, workspace, bytes);
    if (wide->full.isa != NULL) {
        ctx.full = &wide->full;
        ctx.full_base = wide->full_guarded.isa != NULL ? &wide->full_guarded : NULL;
    }
    return ctx;
}
