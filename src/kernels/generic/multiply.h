/* multiply.h: the FP32 product inside the portable matmuls and attention.
 *
 * C[rows, cols] (+)= A[rows, depth] B[depth, cols]. A is read through two strides, one of which is 1.
 * B lies in panels of PANEL columns: element (k, c) at b[(c / PANEL) * panel_stride + k * PANEL +
 * c % PANEL].
 *
 * Invariant: each element of C is one sum over k in ascending order by the same instructions, so it
 * depends on its row of A, its column of B and depth alone. Rows come in multiples of STRIP, columns
 * in multiples of PANEL; callers pad with zeros. depth is at least 1. */
#ifndef TUTTI_KERNELS_GENERIC_MULTIPLY_H
#define TUTTI_KERNELS_GENERIC_MULTIPLY_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/generic/vec.h"

/* A tile of C is TALL x PANEL: its sums hide the latency of a multiply-add, and with a row of B and an
 * element of A they fit the registers (16, or 32 with AVX-512). What is left below the last whole tile
 * goes in lower ones. */
enum { TALL = VEC == 16 ? 12 : 6, STRIP = 2, PANEL = 2 * VEC };

#define TT_INLINE static inline __attribute__((always_inline))

/* `tall` is a constant wherever this is called, and so is one of A's strides. */
TT_INLINE void multiply_tile(const int tall, float *restrict c, int64_t c_stride,
                             const float *restrict a, int64_t a_row, int64_t a_depth,
                             const float *restrict b, int64_t b_row, int64_t depth, bool accumulate)
{
    vec sum[TALL][2];
#pragma GCC unroll 12
    for (int i = 0; i < tall; i++) {
        sum[i][0] = accumulate ? vec_load(c + i * c_stride) : (vec){0};
        sum[i][1] = accumulate ? vec_load(c + i * c_stride + VEC) : (vec){0};
    }
    do { /* a loop that may not run at all would keep the sums in memory around it */
        vec low = vec_load(b), high = vec_load(b + VEC);
#pragma GCC unroll 12
        for (int i = 0; i < tall; i++) {
            vec x = vec_all(a[i * a_row]);
            sum[i][0] = vec_fma(x, low, sum[i][0]);
            sum[i][1] = vec_fma(x, high, sum[i][1]);
        }
        a += a_depth;
        b += b_row;
    } while (--depth > 0);
#pragma GCC unroll 12
    for (int i = 0; i < tall; i++) {
        vec_store(c + i * c_stride, sum[i][0]);
        vec_store(c + i * c_stride + VEC, sum[i][1]);
    }
}

/* A column of tiles: all rows of one panel. Rows of B lie b_row apart. */
TT_INLINE void multiply_panel(float *restrict c, int64_t c_stride, const float *restrict a,
                              int64_t a_row, int64_t a_depth, const float *restrict b,
                              int64_t b_row, int64_t rows, int64_t depth, bool accumulate)
{
    int64_t row = 0;
    for (; row + TALL <= rows; row += TALL) {
        multiply_tile(TALL, c + row * c_stride, c_stride, a + row * a_row, a_row, a_depth, b, b_row,
                      depth, accumulate);
    }
    for (; row + 4 <= rows; row += 4) {
        multiply_tile(4, c + row * c_stride, c_stride, a + row * a_row, a_row, a_depth, b, b_row,
                      depth, accumulate);
    }
    for (; row < rows; row += STRIP) {
        multiply_tile(STRIP, c + row * c_stride, c_stride, a + row * a_row, a_row, a_depth, b,
                      b_row, depth, accumulate);
    }
}

static inline void multiply(float *restrict c, int64_t c_stride, const float *restrict a,
                            int64_t a_row, int64_t a_depth, const float *restrict b,
                            int64_t panel_stride, int64_t rows, int64_t cols, int64_t depth,
                            bool accumulate)
{
    for (int64_t col = 0; col < cols; col += PANEL, b += panel_stride) {
        if (a_row == 1) {
            multiply_panel(c + col, c_stride, a, 1, a_depth, b, PANEL, rows, depth, accumulate);
        } else {
            multiply_panel(c + col, c_stride, a, a_row, 1, b, PANEL, rows, depth, accumulate);
        }
    }
}

#endif
