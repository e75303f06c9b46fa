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
#include <string.h>

/* The widest vector of the flags this is compiled with. A tile of C is TALL x PANEL: its sums hide
 * the latency of a multiply-add, and with a row of B and an element of A they fit the registers (16,
 * or 32 with AVX-512). What is left below the last whole tile goes in lower ones. TT_EMULATE_AVX512
 * belongs to tests. */
#if defined(__AVX512F__) || defined(TT_EMULATE_AVX512)
enum { VECTOR = 16, TALL = 12 };
#elif defined(__AVX__)
enum { VECTOR = 8, TALL = 6 };
#else
enum { VECTOR = 4, TALL = 6 };
#endif
enum { STRIP = 2, PANEL = 2 * VECTOR };

typedef float vector __attribute__((vector_size(VECTOR * sizeof(float))));

typedef int32_t vector_mask __attribute__((vector_size(VECTOR * sizeof(float))));

#define TT_INLINE static inline __attribute__((always_inline))

TT_INLINE vector vector_load(const float *from)
{
    vector v;
    memcpy(&v, from, sizeof v);
    return v;
}

TT_INLINE void vector_store(float *to, vector v)
{
    memcpy(to, &v, sizeof v);
}

/* The greater of each pair; b where one is NaN. */
TT_INLINE vector vector_max(vector a, vector b)
{
    vector_mask above = a > b;
    return (vector)((above & (vector_mask)a) | (~above & (vector_mask)b));
}

/* `tall` is a constant wherever this is called, and so is one of A's strides. */
TT_INLINE void multiply_tile(const int tall, float *restrict c, int64_t c_stride,
                             const float *restrict a, int64_t a_row, int64_t a_depth,
                             const float *restrict b, int64_t b_row, int64_t depth, bool accumulate)
{
    vector sum[TALL][2];
#pragma GCC unroll 12
    for (int i = 0; i < tall; i++) {
        sum[i][0] = accumulate ? vector_load(c + i * c_stride) : (vector){0};
        sum[i][1] = accumulate ? vector_load(c + i * c_stride + VECTOR) : (vector){0};
    }
    do { /* a loop that may not run at all would keep the sums in memory around it */
        vector low = vector_load(b), high = vector_load(b + VECTOR);
#pragma GCC unroll 12
        for (int i = 0; i < tall; i++) {
            float x = a[i * a_row];
            sum[i][0] += x * low;
            sum[i][1] += x * high;
        }
        a += a_depth;
        b += b_row;
    } while (--depth > 0);
#pragma GCC unroll 12
    for (int i = 0; i < tall; i++) {
        vector_store(c + i * c_stride, sum[i][0]);
        vector_store(c + i * c_stride + VECTOR, sum[i][1]);
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
