/* epilogue.h: what becomes of the sums of a matmul (tt_epilogue).
 *
 * A matmul of any ISA hands over runs of a row's sums while they are in the cache, so that bias,
 * GELU, its derivative, dropout and residual cost no pass over memory of their own. A run begins at
 * a multiple of BLOCK columns; every element goes through the same instructions wherever a run
 * begins or ends.
 *
 * Reads the epilogue's arrays, writes y and before; next: gemm.h, isa/gemm_tile.h, blas.c. */
#ifndef TUTTI_KERNELS_GENERIC_EPILOGUE_H
#define TUTTI_KERNELS_GENERIC_EPILOGUE_H

#include "kernels/generic/dropout.h"
#include "kernels/generic/gelu.h"

/* f[BLOCK] inout: sums of row m, columns col .. col + n - 1 (n <= BLOCK); at = m * N + col. */
static inline void epilogue_block(const tt_epilogue *e, float *restrict f, int64_t m, int64_t col,
                                  int64_t n, int64_t N)
{
    int64_t at = m * N + col;
    float g[BLOCK];
    if (e->bias != NULL) {
        block_load(g, (const act *)e->bias + col, n);
        for (int i = 0; i < BLOCK; i++) {
            f[i] += g[i];
        }
    }
    if (e->before != NULL) {
        for (int i = 0; i < BLOCK; i++) {
            f[i] = f32_of_act(act_of_f32(f[i]));
        }
        block_store((act *)e->before + at, f, n);
        for (int i = 0; i < BLOCK; i++) {
            f[i] = gelu_f32(f[i]);
        }
    }
    if (e->slope != NULL) {
        block_load(g, (const act *)e->slope + at, n);
        for (int i = 0; i < BLOCK; i++) {
            f[i] *= gelu_slope_f32(g[i]);
        }
    }
    if (e->residual != NULL) {
        if (dropout_on(e->drop)) {
            dropout_block(f, n, e->drop, m / e->T, m % e->T * N + col);
        }
        block_load(g, (const act *)e->residual + at, n);
        for (int i = 0; i < BLOCK; i++) {
            f[i] += g[i];
        }
    }
}

/* y[M,N] out in row m, columns col .. col + n - 1, from their sums; e may be NULL. */
static inline void epilogue_row(const tt_epilogue *e, act *y, const float *sums, int64_t m,
                                int64_t col, int64_t n, int64_t N)
{
    for (int64_t j = 0; j < n; j += BLOCK) {
        float f[BLOCK];
        block_load_f32(f, sums + j, n - j);
        if (e != NULL) {
            epilogue_block(e, f, m, col + j, tt_min(BLOCK, n - j), N);
        }
        block_store(y + m * N + col + j, f, n - j);
    }
}

static void generic_epilogue(const tt_epilogue *e, void *y, const float *sums, int64_t stride,
                             int64_t m, int64_t col, int64_t rows, int64_t cols, int64_t N)
{
    for (int64_t i = 0; i < rows; i++) {
        epilogue_row(e, y, sums + i * stride, m + i, col, cols, N);
    }
}

#endif
