/* gemm.h: the portable matmuls.
 *
 * Work is cut into TILE_ROWS x TILE_COLS tiles of the result, each made by one thread: operands are
 * widened to FP32 and packed TILE_DEPTH deep into the thread's scratch, multiply() adds to an FP32
 * tile, and the finished tile goes out. So every element is one sum in ascending order of the
 * contracted index (gemm_tn: one such sum per leaf), whatever the tile, thread or number of rows. */
#ifndef TUTTI_KERNELS_GENERIC_GEMM_H
#define TUTTI_KERNELS_GENERIC_GEMM_H

#include "kernels/generic/column_sums.h"
#include "kernels/generic/epilogue.h"
#include "kernels/generic/multiply.h"

enum { TILE_ROWS = 64, TILE_COLS = 128, TILE_DEPTH = 256 };

/* One thread's scratch. */
typedef struct gemm_scratch {
    float a[TILE_ROWS * TILE_DEPTH];
    float b[TILE_DEPTH * TILE_COLS];
    float c[TILE_ROWS * TILE_COLS];
} gemm_scratch;

static inline size_t gemm_bytes(int threads)
{
    return tt_padded(sizeof(gemm_scratch)) * (size_t)threads;
}

static inline gemm_scratch *gemm_scratch_of(tt_ctx *ctx)
{
    return (void *)(ctx->workspace + tt_padded(sizeof(gemm_scratch)) * (size_t)tt_thread_id());
}

/* a[TILE_ROWS][TILE_DEPTH] out: rows x depth of x, each row contiguous over the depth. */
static inline void gemm_pack_a(float *restrict a, const act *restrict x, int64_t stride,
                               int64_t rows, int64_t depth)
{
    for (int64_t i = 0; i < TILE_ROWS; i++) {
        for (int64_t k = 0; k < depth; k++) {
            a[i * TILE_DEPTH + k] = i < rows ? factor_of_act(x[i * stride + k]) : 0;
        }
    }
}

/* a[TILE_DEPTH][TILE_ROWS] out: the same of x^T, x contiguous over the rows of the result. */
static inline void gemm_pack_a_turned(float *restrict a, const act *restrict x, int64_t stride,
                                      int64_t rows, int64_t depth)
{
    for (int64_t k = 0; k < depth; k++) {
        for (int64_t i = 0; i < TILE_ROWS; i++) {
            a[k * TILE_ROWS + i] = i < rows ? factor_of_act(x[k * stride + i]) : 0;
        }
    }
}

/* b out: panels of w, depth x cols, contiguous over the columns. */
static inline void gemm_pack_b(float *restrict b, const act *restrict w, int64_t stride,
                               int64_t depth, int64_t cols)
{
    for (int64_t col = 0; col < cols; col += PANEL, b += TILE_DEPTH * PANEL) {
        int64_t width = tt_min(PANEL, cols - col);
        for (int64_t k = 0; k < depth; k++) {
            for (int64_t c = 0; c < PANEL; c++) {
                b[k * PANEL + c] = c < width ? factor_of_act(w[k * stride + col + c]) : 0;
            }
        }
    }
}

/* b out: the same of w^T, w contiguous over the depth. */
static inline void gemm_pack_b_turned(float *restrict b, const act *restrict w, int64_t stride,
                                      int64_t depth, int64_t cols)
{
    for (int64_t col = 0; col < cols; col += PANEL, b += TILE_DEPTH * PANEL) {
        for (int64_t c = 0; c < PANEL; c++) {
            bool inside = col + c < cols;
            const act *row = w + (inside ? (col + c) * stride : 0);
            for (int64_t k = 0; k < depth; k++) {
                b[k * PANEL + c] = inside ? factor_of_act(row[k]) : 0;
            }
        }
    }
}

static inline void gemm_multiply(gemm_scratch *s, bool a_turned, int64_t rows, int64_t cols,
                                 int64_t depth, bool accumulate)
{
    rows = tt_round_up(rows, STRIP);
    cols = tt_round_up(cols, PANEL);
    if (a_turned) {
        multiply(s->c, TILE_COLS, s->a, 1, TILE_ROWS, s->b, TILE_DEPTH * PANEL, rows, cols, depth,
                 accumulate);
    } else {
        multiply(s->c, TILE_COLS, s->a, TILE_DEPTH, 1, s->b, TILE_DEPTH * PANEL, rows, cols, depth,
                 accumulate);
    }
}

/* y[M,N] out act, or z[M,N] out float, = x[M,K] w[N,K]^T (w_turned) or x[M,K] w[K,N], through e. */
static inline void gemm_forward(tt_ctx *ctx, act *y, float *z, const act *x, const act *w,
                                const tt_epilogue *e, int64_t M, int64_t N, int64_t K,
                                bool w_turned)
{
    int64_t across = tt_ceil_div(N, TILE_COLS), tiles = tt_ceil_div(M, TILE_ROWS) * across;
#pragma omp parallel for num_threads(ctx->threads)
    for (int64_t tile = 0; tile < tiles; tile++) {
        gemm_scratch *s = gemm_scratch_of(ctx);
        int64_t row = tile / across * TILE_ROWS, col = tile % across * TILE_COLS;
        int64_t rows = tt_min(TILE_ROWS, M - row), cols = tt_min(TILE_COLS, N - col);
        for (int64_t k = 0; k < K; k += TILE_DEPTH) {
            int64_t depth = tt_min(TILE_DEPTH, K - k);
            gemm_pack_a(s->a, x + row * K + k, K, rows, depth);
            if (w_turned) {
                gemm_pack_b_turned(s->b, w + col * K + k, K, depth, cols);
            } else {
                gemm_pack_b(s->b, w + k * N + col, N, depth, cols);
            }
            gemm_multiply(s, false, rows, cols, depth, k > 0);
        }
        for (int64_t i = 0; i < rows; i++) {
            float *sum = s->c + i * TILE_COLS;
            if (z != NULL) {
                memcpy(z + (row + i) * N + col, sum, tt_bytes(cols, sizeof *z));
            } else {
                epilogue_row(e, ctx->count, y, sum, row + i, col, cols, N);
            }
        }
    }
}

static void generic_pack(tt_ctx *ctx, void *packed, const void *w, int64_t N, int64_t K)
{
    (void)ctx, (void)packed, (void)w, (void)N, (void)K; /* packed_bytes is 0 */
}

static void generic_gemm_nt(tt_ctx *ctx, void *y, const void *x, const tt_weight *w,
                            const tt_epilogue *e, int64_t M, int64_t N, int64_t K, int64_t leaf)
{
    (void)leaf; /* a row is a sum of its own here, wherever it stands */
    gemm_forward(ctx, y, NULL, x, w->w, e, M, N, K, true);
}

static void generic_gemm_nt_f32(tt_ctx *ctx, float *y, const void *x, const tt_weight *w, int64_t M,
                                int64_t N, int64_t K, int64_t leaf)
{
    (void)leaf;
    gemm_forward(ctx, NULL, y, x, w->w, NULL, M, N, K, true);
}

static void generic_gemm_nn(tt_ctx *ctx, void *dx, const void *dy, const tt_weight *w,
                            const tt_epilogue *e, int64_t M, int64_t N, int64_t K, int64_t leaf)
{
    (void)leaf;
    gemm_forward(ctx, dx, NULL, dy, w->w, e, M, K, N, false);
}

static void generic_gemm_tn(tt_ctx *ctx, const tt_grad *gw, const tt_grad *gb, const void *dy_,
                            const void *x_, int64_t M, int64_t N, int64_t K, int64_t leaf)
{
    const act *dy = dy_, *x = x_;
    const float limit = grad_limit(gw, tt_min(leaf, M));
    int64_t across = tt_ceil_div(K, TILE_COLS), tiles = tt_ceil_div(N, TILE_ROWS) * across;
#pragma omp parallel for num_threads(ctx->threads)
    for (int64_t tile = 0; tile < tiles; tile++) {
        gemm_scratch *s = gemm_scratch_of(ctx);
        int64_t row = tile / across * TILE_ROWS, col = tile % across * TILE_COLS;
        int64_t rows = tt_min(TILE_ROWS, N - row), cols = tt_min(TILE_COLS, K - col);
        if (gb != NULL && col == 0) {
            column_sums(gb, row, dy + row, N, M, rows, leaf);
        }
        for (int64_t first = 0; first < M; first += leaf) {
            int64_t last = tt_min(first + leaf, M);
            for (int64_t m = first; m < last; m += TILE_DEPTH) {
                int64_t depth = tt_min(TILE_DEPTH, last - m);
                gemm_pack_a_turned(s->a, dy + m * N + row, N, rows, depth);
                gemm_pack_b(s->b, x + m * K + col, K, depth, cols);
                gemm_multiply(s, true, rows, cols, depth, m > first);
            }
            grad_add_block(gw, row * K + col, K, s->c, TILE_COLS, rows, cols, limit);
        }
    }
}

#endif
