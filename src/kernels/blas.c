/* blas.c: FP32 matmuls by OpenBLAS; the one file that includes cblas.h.
 *
 * OpenBLAS, whatever its threading, works on the calling thread alone; our threads share out fixed
 * blocks of the result, so threads never multiply and bits do not depend on how many there are.
 *
 * OpenBLAS's kernels do not give a row the same bits wherever it lies among others (measured: the
 * Haswell and Zen ones do not, in either order of the operands). So calls begin with the first row of
 * a leaf and end with its last, PANEL_ROWS rows each but the last: a row's bits follow from its inputs,
 * the weights, its place in the leaf and the leaf's length, and whole sequences give the same bits in
 * any batch. gemm_tn computes each leaf from zero, in calls of one shape, then adds it. */
#include <cblas.h>

#define TT_ACT_FP32
#include "kernels/generic/column_sums.h"
#include "kernels/kernels_impl.h"
#include "tutti/base/threads.h"

enum {
    PANEL_ROWS = 64,
    PANEL_COLS = 512, /* of the result, in one call */
    TILE = 128        /* rows and columns of a weight gradient in one call */
};

void tt_blas_setup(void)
{
    openblas_set_num_threads(1);
}

const char *tt_kernels_blas(void)
{
    return openblas_get_config();
}

const char *tt_kernels_blas_core(void)
{
    return openblas_get_corename();
}

/* Scratch: for each thread a tile of a weight gradient. */
static size_t tile_bytes(void)
{
    return TILE * TILE * sizeof(float);
}

static size_t blas_workspace(const tt_extents *extents, int threads)
{
    (void)extents;
    return tile_bytes() * (size_t)threads;
}

/* y[M,N] = e(x[M,K] times w[N,K]^T, turned, or w[K,N]); every leaf a row of panels of its own.
 * Logits are not act, and not counted. */
static void forward(tt_ctx *ctx, float *y, const float *x, const float *w, const tt_epilogue *e,
                    int64_t M, int64_t N, int64_t K, int64_t leaf, bool turned, bool logits)
{
    leaf = tt_max(1, tt_min(leaf, M));
    int64_t across = tt_ceil_div(N, PANEL_COLS), down = tt_ceil_div(leaf, PANEL_ROWS);
    int64_t blocks = tt_mul(tt_ceil_div(M, leaf), tt_mul(down, across));
#pragma omp parallel for num_threads(ctx->threads)
    for (int64_t block = 0; block < blocks; block++) {
        int64_t panel = block / across, col = block % across * PANEL_COLS;
        int64_t first = panel / down * leaf, row = first + panel % down * PANEL_ROWS;
        int64_t end = tt_min(first + leaf, M), rows = tt_min(PANEL_ROWS, end - row);
        int64_t cols = tt_min(PANEL_COLS, N - col);
        float *to = y + row * N + col;
        if (rows <= 0) { /* of a last leaf that is shorter */
            continue;
        }
        cblas_sgemm(CblasRowMajor, CblasNoTrans, turned ? CblasTrans : CblasNoTrans, tt_int(rows),
                    tt_int(cols), tt_int(K), 1, x + row * K, tt_int(K),
                    turned ? w + col * K : w + col, tt_int(turned ? K : N), 0, to, tt_int(N));
        if (e != NULL || (ctx->count.result != NULL && !logits)) {
            ctx->ops->epilogue(ctx, e, y, to, N, row, col, rows, cols, N);
        }
    }
}

static void blas_gemm_nt(tt_ctx *ctx, void *y, const void *x, const tt_weight *w,
                         const tt_epilogue *e, int64_t M, int64_t N, int64_t K, int64_t leaf)
{
    forward(ctx, y, x, w->w, e, M, N, K, leaf, true, false);
}

static void blas_gemm_nt_f32(tt_ctx *ctx, float *y, const void *x, const tt_weight *w, int64_t M,
                             int64_t N, int64_t K, int64_t leaf)
{
    forward(ctx, y, x, w->w, NULL, M, N, K, leaf, true, true);
}

static void blas_gemm_nn(tt_ctx *ctx, void *dx, const void *dy, const tt_weight *w,
                         const tt_epilogue *e, int64_t M, int64_t N, int64_t K, int64_t leaf)
{
    forward(ctx, dx, dy, w->w, e, M, K, N, leaf, false, false);
}

static void blas_gemm_tn(tt_ctx *ctx, const tt_grad *gw, const tt_grad *gb, const void *dy_,
                         const void *x_, int64_t M, int64_t N, int64_t K, int64_t leaf)
{
    const float *dy = dy_, *x = x_;
    const float limit = grad_limit(gw, tt_min(leaf, M));
    int64_t across = tt_ceil_div(K, TILE), tiles = tt_ceil_div(N, TILE) * across;
#pragma omp parallel for num_threads(ctx->threads)
    for (int64_t tile = 0; tile < tiles; tile++) {
        int64_t row = tile / across * TILE, col = tile % across * TILE;
        int64_t rows = tt_min(TILE, N - row), cols = tt_min(TILE, K - col);
        float *sum = (void *)(ctx->workspace + tile_bytes() * (size_t)tt_thread_id());
        if (gb != NULL && col == 0) {
            column_sums(gb, row, dy + row, N, M, rows, leaf);
        }
        for (int64_t first = 0; first < M; first += leaf) {
            cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, tt_int(rows), tt_int(cols),
                        tt_int(tt_min(leaf, M - first)), 1, dy + first * N + row, tt_int(N),
                        x + first * K + col, tt_int(K), 0, sum, tt_int(cols));
            grad_add_block(gw, row * K + col, K, sum, cols, rows, cols, limit);
        }
    }
}

const tt_ops tt_table_openblas_fp32 = {.isa = "openblas",
                                       .format = TT_FP32,
                                       .compute = TT_FP32,
                                       .workspace = blas_workspace,
                                       .gemm_nt = blas_gemm_nt,
                                       .gemm_nt_f32 = blas_gemm_nt_f32,
                                       .gemm_nn = blas_gemm_nn,
                                       .gemm_tn = blas_gemm_tn};
