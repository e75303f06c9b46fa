/* multiply.h: the FP32 product inside the portable matmuls and attention.
 *
 * C[rows, cols] (+)= A[rows, depth] B[depth, cols]. A is read through two strides. B lies in panels
 * of PANEL columns: element (k, c) at b[(c / PANEL) * panel_stride + k * PANEL + c % PANEL].
 *
 * Invariant: each element of C is one sum over k in ascending order by the same instructions, so it
 * depends on its row of A, its column of B and depth alone. Rows come in multiples of STRIP, columns
 * in multiples of PANEL; callers pad with zeros. */
#ifndef TUTTI_KERNELS_GENERIC_MULTIPLY_H
#define TUTTI_KERNELS_GENERIC_MULTIPLY_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/* The widest vector of the flags this is compiled with. A STRIP x PANEL tile of C fills half of 16
 * registers, which is enough sums in flight to hide the latency of a multiply-add. */
#if defined(__AVX__)
enum { VECTOR = 8 };
#else
enum { VECTOR = 4 };
#endif
enum { STRIP = 4, PANEL = 2 * VECTOR };

typedef float vector __attribute__((vector_size(VECTOR * sizeof(float))));

static inline void multiply_tile(float *restrict c, int64_t c_stride, const float *restrict a,
                                 int64_t a_row, int64_t a_depth, const float *restrict b,
                                 int64_t depth, bool accumulate)
{
    vector sum[STRIP][2];
    for (int i = 0; i < STRIP; i++) {
        if (accumulate) {
            memcpy(sum[i], c + i * c_stride, sizeof sum[i]);
        } else {
            memset(sum[i], 0, sizeof sum[i]);
        }
    }
    for (int64_t k = 0; k < depth; k++) {
        vector low, high;
        memcpy(&low, b + k * PANEL, sizeof low);
        memcpy(&high, b + k * PANEL + VECTOR, sizeof high);
#pragma GCC unroll 4
        for (int i = 0; i < STRIP; i++) {
            float x = a[i * a_row + k * a_depth];
            sum[i][0] += x * low;
            sum[i][1] += x * high;
        }
    }
    for (int i = 0; i < STRIP; i++) {
        memcpy(c + i * c_stride, sum[i], sizeof sum[i]);
    }
}

static inline void multiply(float *restrict c, int64_t c_stride, const float *restrict a,
                            int64_t a_row, int64_t a_depth, const float *restrict b,
                            int64_t panel_stride, int64_t rows, int64_t cols, int64_t depth,
                            bool accumulate)
{
    for (int64_t col = 0; col < cols; col += PANEL) {
        for (int64_t row = 0; row < rows; row += STRIP) {
            multiply_tile(c + row * c_stride + col, c_stride, a + row * a_row, a_row, a_depth,
                          b + col / PANEL * panel_stride, depth, accumulate);
        }
    }
}

#endif
