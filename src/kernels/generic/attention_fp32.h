/* attention_fp32.h: what attention multiplies, held as FP32: packing and products.
 *
 * attention.h and attention_grad.h walk over blocks of SIDE queries by SIDE keys and know two layouts
 * of an operand, in which PAIR neighbours along the contracted index ("depth") lie side by side:
 *
 *     along   [n, depth]              element (i, k) at i * stride + k
 *     down    [depth / PAIR, n, PAIR] element (i, k) at (k / PAIR * stride + i) * PAIR + k % PAIR
 *
 * The right side of a product is always `down`, the left side either. An instruction set with other
 * operands brings its own header with these names instead of this one. Here PAIR is 1, so the block
 * of weights that the walk makes in FP32 is itself an operand, in both layouts.
 *
 * An infinity becomes NaN on its way in: else a key could hide behind scores of minus infinity. */
#ifndef TUTTI_KERNELS_GENERIC_ATTENTION_FP32_H
#define TUTTI_KERNELS_GENERIC_ATTENTION_FP32_H

#include "kernels/generic/act.h"
#include "kernels/generic/multiply.h"

typedef float operand;
enum { PAIR = 1 };
enum { SIDE = 96 }; /* queries and keys of a block: a multiple of PANEL and of TALL */

/* to[room, width] out, along the columns = x[count, D], zero elsewhere. width: a multiple of LANES. */
static inline void operand_rows(operand *restrict to, int64_t width, const act *restrict x,
                                int64_t stride, int64_t count, int64_t room, int64_t D)
{
    for (int64_t i = 0; i < count; i++) {
        act_ahead(x + (i + ROWS_AHEAD) * stride, D);
        for (int64_t d = 0; d < width; d += LANES) {
            wide f = d < D ? wide_load_act(x + i * stride + d, D - d) : wide_zero();
            EACH_PART(p)
            {
                f.part[p] = vec_factor(f.part[p]);
                f.part[p] = vec_fma(f.part[p], vec_all(0), f.part[p]);
            }
            wide_to(to + i * width + d, f);
        }
    }
    memset(to + count * width, 0, tt_bytes((room - count) * width, sizeof *to));
}

/* to out, down the rows of x: the same matrix. */
static inline void operand_down(operand *restrict to, int64_t width, const act *restrict x,
                                int64_t stride, int64_t count, int64_t room, int64_t D)
{
    operand_rows(to, width, x, stride, count, room, D);
}

/* A panel of weights s[rows, PANEL] as an operand along its rows, or down its columns; `stride` is
 * that of both. */
static inline void operand_weights_along(operand *to, const float *s, int64_t stride, int64_t rows)
{
    (void)to, (void)s, (void)stride, (void)rows;
}

static inline void operand_weights_down(operand *to, const float *s, int64_t stride, int64_t rows)
{
    (void)to, (void)s, (void)stride, (void)rows;
}

/* c[rows, cols] (+)= a b; rows a multiple of STRIP, cols of PANEL, depth of PAIR and at least that. */
static inline void product_along(float *c, int64_t c_stride, const operand *a, int64_t a_stride,
                                 const operand *b, int64_t b_stride, int64_t rows, int64_t cols,
                                 int64_t depth, bool accumulate)
{
    for (int64_t col = 0; col < cols; col += PANEL) {
        multiply_panel(c + col, c_stride, a, a_stride, 1, b + col, b_stride, rows, depth,
                       accumulate);
    }
}

static inline void product_down(float *c, int64_t c_stride, const operand *a, int64_t a_stride,
                                const operand *b, int64_t b_stride, int64_t rows, int64_t cols,
                                int64_t depth, bool accumulate)
{
    for (int64_t col = 0; col < cols; col += PANEL) {
        multiply_panel(c + col, c_stride, a, 1, a_stride, b + col, b_stride, rows, depth,
                       accumulate);
    }
}

#endif
