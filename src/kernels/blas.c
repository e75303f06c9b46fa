/* blas.c: FP32 matmuls by OpenBLAS; the one file that includes cblas.h.
 *
 * OpenBLAS, whatever its threading, works on the calling thread alone; our threads share out fixed
 * blocks of the result, so threads never multiply and bits do not depend on how many there are.
 *
 * OpenBLAS's kernels do not give a row the same bits wherever it lies among others (measured: the
 * Haswell and Zen ones do not, in either order of the operands). So it always gets exactly
 * PANEL_ROWS rows, the last panel padded with zeros: row i depends on its inputs, the weights and
 * i mod PANEL_ROWS, never on M. Whole sequences therefore give the same bits in any batch when T is
 * a multiple of PANEL_ROWS; for other T they agree to rounding. The portable gemms have no such
 * condition. gemm_tn computes each leaf from zero, then adds it. */
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

/* Scratch: one padded panel of x, then for each thread a block of the result. */
static size_t panel_bytes(int64_t K)
{
    return tt_padded(tt_bytes(PANEL_ROWS * K, sizeof(float)));
}

static size_t block_bytes(void)
{
    size_t panel = PANEL_ROWS * PANEL_COLS * sizeof(float), tile = TILE * TILE * sizeof(float);
    return panel > tile ? panel : tile;
}

static size_t blas_workspace(const tt_extents *extents, int threads)
{
    int64_t K = tt_max(extents->vocab, extents->ffn);
    K = tt_max(K, 3 * tt_max(extents->channels, extents->heads * extents->head_size));
    return panel_bytes(K) + block_bytes() * (size_t)threads;
}

static float *block_of(tt_ctx *ctx, size_t front)
{
    return (void *)(ctx->workspace + front + block_bytes() * (size_t)tt_thread_id());
}

/* y[rows, cols] out = x[rows, K] times w^T (w[N,K], turned) or w (w[K,N]), from column `col`. */
static void panel(float *y, int64_t stride, const float *x, const float *w, int64_t col,
                  int64_t cols, int64_t N, int64_t K, bool turned)
{
    cblas_sgemm(CblasRowMajor, CblasNoTrans, turned ? CblasTrans : CblasNoTrans, PANEL_ROWS,
                tt_int(cols), tt_int(K), 1, x, tt_int(K), turned ? w + col * K : w + col,
                tt_int(turned ? K : N), 0, y, tt_int(stride));
}

static void forward(tt_ctx *ctx, float *y, const float *x, const float *w, const tt_epilogue *e,
                    int64_t M, int64_t N, int64_t K, bool turned)
{
    int64_t across = tt_ceil_div(N, PANEL_COLS), blocks = tt_ceil_div(M, PANEL_ROWS) * across;
    float *last = (void *)ctx->workspace;
    if (M % PANEL_ROWS != 0) {
        int64_t rows = M % PANEL_ROWS;
        memcpy(last, x + (M - rows) * K, tt_bytes(rows * K, sizeof *last));
        memset(last + rows * K, 0, tt_bytes((PANEL_ROWS - rows) * K, sizeof *last));
    }
#pragma omp parallel for num_threads(ctx->threads)
    for (int64_t block = 0; block < blocks; block++) {
        int64_t row = block / across * PANEL_ROWS, col = block % across * PANEL_COLS;
        int64_t rows = tt_min(PANEL_ROWS, M - row), cols = tt_min(PANEL_COLS, N - col);
        float *to = y + row * N + col;
        if (rows == PANEL_ROWS) {
            panel(to, N, x + row * K, w, col, cols, N, K, turned);
        } else {
            float *padded = block_of(ctx, panel_bytes(K));
            panel(padded, cols, last, w, col, cols, N, K, turned);
            for (int64_t i = 0; i < rows; i++) {
                memcpy(to + i * N, padded + i * cols, tt_bytes(cols, sizeof *to));
            }
        }
        if (e != NULL) {
            ctx->ops->epilogue(e, y, to, N, row, col, rows, cols, N);
        }
    }
}

static void blas_gemm_nt(tt_ctx *ctx, void *y, const void *x, const tt_weight *w,
                         const tt_epilogue *e, int64_t M, int64_t N, int64_t K)
{
    forward(ctx, y, x, w->w, e, M, N, K, true);
}

static void blas_gemm_nt_f32(tt_ctx *ctx, float *y, const void *x, const tt_weight *w, int64_t M,
                             int64_t N, int64_t K)
{
    forward(ctx, y, x, w->w, NULL, M, N, K, true);
}

static void blas_gemm_nn(tt_ctx *ctx, void *dx, const void *dy, const tt_weight *w,
                         const tt_epilogue *e, int64_t M, int64_t N, int64_t K)
{
    forward(ctx, dx, dy, w->w, e, M, K, N, false);
}

static void blas_gemm_tn(tt_ctx *ctx, float *gw, float *gb, const void *dy_, const void *x_,
                         int64_t M, int64_t N, int64_t K, int64_t leaf)
{
    const float *dy = dy_, *x = x_;
    int64_t across = tt_ceil_div(K, TILE), tiles = tt_ceil_div(N, TILE) * across;
#pragma omp parallel for num_threads(ctx->threads)
    for (int64_t tile = 0; tile < tiles; tile++) {
        int64_t row = tile / across * TILE, col = tile % across * TILE;
        int64_t rows = tt_min(TILE, N - row), cols = tt_min(TILE, K - col);
        float *sum = block_of(ctx, 0);
        if (gb != NULL && col == 0) {
            column_sums(gb + row, dy + row, N, M, rows, leaf);
        }
        for (int64_t first = 0; first < M; first += leaf) {
            cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, tt_int(rows), tt_int(cols),
                        tt_int(tt_min(leaf, M - first)), 1, dy + first * N + row, tt_int(N),
                        x + first * K + col, tt_int(K), 0, sum, tt_int(cols));
            for (int64_t i = 0; i < rows; i++) {
                for (int64_t j = 0; j < cols; j++) {
                    gw[(row + i) * K + col + j] += sum[i * cols + j];
                }
            }
        }
    }
}

const tt_ops tt_table_openblas_fp32 = {.isa = "openblas",
                                       .format = TT_FP32,
                                       .workspace = blas_workspace,
                                       .gemm_nt = blas_gemm_nt,
                                       .gemm_nt_f32 = blas_gemm_nt_f32,
                                       .gemm_nn = blas_gemm_nn,
                                       .gemm_tn = blas_gemm_tn};
