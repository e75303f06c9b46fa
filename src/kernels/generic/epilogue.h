/* epilogue.h: what becomes of the sums of a matmul (tt_epilogue).
 *
 * A matmul of any ISA hands over runs of a row's sums while they are in the cache, so that bias,
 * GELU, its derivative, dropout and residual cost no pass over memory of their own. Every
 * element goes through the same instructions wherever a run begins or ends.
 *
 * Reads the epilogue's arrays, writes y and before; next: gemm.h, isa/gemm_tile.h, blas.c. */
#ifndef TUTTI_KERNELS_GENERIC_EPILOGUE_H
#define TUTTI_KERNELS_GENERIC_EPILOGUE_H

#include "kernels/generic/census.h"
#include "kernels/generic/dropout.h"
#include "kernels/generic/gelu.h"

/* f inout: a step of n <= LANES sums; `at` is where they lie in [M,N], `col` in a row; mask holds the
 * multipliers of the step, NULL: no dropout. */
static inline wide epilogue_step(const tt_epilogue *e, tt_census *beside, wide f, int64_t at,
                                 int64_t col, int64_t n, const float *mask)
{
    if (e->bias != NULL) {
        wide bias = wide_load_act((const act *)e->bias + col, n);
        EACH_PART(p)
        {
            f.part[p] += bias.part[p];
        }
    }
    if (e->before != NULL) {
        act few[LANES] = {0}, *before = (act *)e->before + at, *to = n < LANES ? few : before;
        wide_store_act(to, f, LANES);
        census_see(beside, to, f, n);
        f = wide_load_act(to, LANES); /* GELU of what is kept, so that backward sees the same */
        if (n < LANES) {
            COPY_FEW(act, before, few, n);
        }
        EACH_PART(p)
        {
            f.part[p] = vec_gelu(f.part[p]);
        }
    }
    if (e->slope != NULL) {
        wide x = wide_load_act((const act *)e->slope + at, n);
        EACH_PART(p)
        {
            f.part[p] *= vec_gelu_slope(x.part[p]);
        }
    }
    if (e->residual != NULL) {
        wide x = wide_load_act((const act *)e->residual + at, n);
        EACH_PART(p)
        {
            vec kept = mask == NULL ? vec_all(1) : vec_load(mask + p * VEC);
            f.part[p] = vec_fma(f.part[p], kept, x.part[p]);
        }
    }
    return f;
}

/* y[M,N] out in row m, columns col .. col + n - 1, from their sums; e may be NULL. */
static inline void epilogue_row(const tt_epilogue *e, tt_counts count, act *y, const float *sums,
                                int64_t m, int64_t col, int64_t n, int64_t N)
{
    bool drops = e != NULL && e->residual != NULL && dropout_on(e->drop);
    int64_t at = m * N + col;
    for (int64_t j = 0; j < n; j += BLOCK) {
        float mask[BLOCK];
        if (drops) {
            dropout_mask(mask, BLOCK, e->drop, m / e->T, m % e->T * N + col + j);
        }
        for (int64_t i = j; i < tt_min(j + BLOCK, n); i += LANES) {
            wide f = wide_load(sums + i, n - i);
            if (e != NULL) {
                f = epilogue_step(e, count.beside, f, at + i, col + i, n - i,
                                  drops ? mask + (i - j) : NULL);
            }
            wide_store_seen(count.result, y + at + i, f, n - i);
        }
    }
}

/* Columns `at` .. of an array that the epilogue may have, asked for ahead: a row of a task is a line or
 * two, and a store would wait for memory in each. */
static inline void epilogue_ahead(const void *array, int64_t at, int64_t cols)
{
    if (array != NULL) {
        act_ahead((const act *)array + at, cols);
    }
}

static void generic_epilogue(tt_ctx *ctx, const tt_epilogue *e, void *y, const float *sums,
                             int64_t stride, int64_t m, int64_t col, int64_t rows, int64_t cols,
                             int64_t N)
{
    for (int64_t i = 0; i < rows; i++) {
        int64_t ahead = (m + i + ROWS_AHEAD) * N + col;
        epilogue_ahead(y, ahead, cols);
        if (e != NULL) {
            epilogue_ahead(e->before, ahead, cols);
            epilogue_ahead(e->slope, ahead, cols);
            epilogue_ahead(e->residual, ahead, cols);
        }
        epilogue_row(e, ctx->count, y, sums + i * stride, m + i, col, cols, N);
    }
}

#endif
