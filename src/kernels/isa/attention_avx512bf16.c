/* attention_avx512bf16.c: attention of BF16 with VDPBF16PS.
 *
 * The walk over blocks and softmax are generic/attention.h and attention_grad.h; here are operands in
 * BF16 and their products. The instruction multiplies 16 pairs of BF16 by 16 pairs and adds both
 * products to 16 FP32 sums, so operands hold pairs of neighbours along the contracted index. The
 * tile is 12 x 32: 24 sums, two vectors of b and a pair of a, broadcast, in 27 of the 32 registers.
 *
 * Probabilities and the gradient of the scores are rounded to BF16 where they become operands; the
 * sum of the probabilities, and all other arithmetic, stays FP32. The instruction takes subnormal
 * numbers as zero, whatever the mode of the thread.
 *
 * TT_EMULATE_AVX512, set by a test, compiles this source through SIMDe, so that its logic is proven
 * on processors without the instructions.
 *
 * Reads views of model memory, writes the same; next: select.c lays this table. */
#include "kernels/isa/vec_avx512.h"

#define TT_ACT_BF16
#define ATTENTION_OPERANDS
#include "kernels/generic/act.h"
#include "kernels/generic/multiply.h"

typedef tt_bf16 operand;
enum { PAIR = 2 };
enum { SIDE = 96 }; /* queries and keys of a block: a multiple of PANEL and of TALL */
_Static_assert(PANEL == 32 && TALL == 12, "the tile below is 12 x 32");

/* An infinity becomes NaN on its way in, as in attention_fp32.h. */
static inline operand operand_of(act x)
{
    return (operand)((x & 0x7fff) == 0x7f80 ? x | 0x40 : x);
}

static inline void operand_rows(operand *restrict to, int64_t width, const act *restrict x,
                                int64_t stride, int64_t count, int64_t room, int64_t D)
{
    for (int64_t i = 0; i < count; i++) {
        act_ahead(x + (i + ROWS_AHEAD) * stride, D);
        for (int64_t d = 0; d < D; d++) {
            to[i * width + d] = operand_of(x[i * stride + d]);
        }
        memset(to + i * width + D, 0, tt_bytes(width - D, sizeof *to));
    }
    memset(to + count * width, 0, tt_bytes((room - count) * width, sizeof *to));
}

static inline void operand_down(operand *restrict to, int64_t width, const act *restrict x,
                                int64_t stride, int64_t count, int64_t room, int64_t D)
{
    memset(to, 0, tt_bytes(room * width, sizeof *to));
    for (int64_t i = 0; i + 1 < count; i += 2) {
        act_ahead(x + (i + ROWS_AHEAD) * stride, D);
        act_ahead(x + (i + 1 + ROWS_AHEAD) * stride, D);
        for (int64_t d = 0; d < D; d++) {
            to[i * width + 2 * d] = operand_of(x[i * stride + d]);
            to[i * width + 2 * d + 1] = operand_of(x[(i + 1) * stride + d]);
        }
    }
    for (int64_t d = 0; count % 2 == 1 && d < D; d++) {
        to[(count - 1) * width + 2 * d] = operand_of(x[(count - 1) * stride + d]);
    }
}

/* 32 floats as codes, in order. */
static inline __m512i codes_of(const float *from)
{
    __m512 low = _mm512_loadu_ps(from), high = _mm512_loadu_ps(from + 16);
#ifdef TT_EMULATE_AVX512 /* SIMDe has no such conversion */
    float f[32];
    tt_bf16 codes[32];
    _mm512_storeu_ps(f, low);
    _mm512_storeu_ps(f + 16, high);
    for (int i = 0; i < 32; i++) {
        codes[i] = tt_bf16_of_f32(f[i]);
    }
    return _mm512_loadu_si512((const void *)codes);
#else
    return (__m512i)_mm512_cvtne2ps_pbh(high, low);
#endif
}

static inline void operand_weights_along(operand *to, const float *s, int64_t stride, int64_t rows)
{
    for (int64_t r = 0; r < rows; r++) {
        _mm512_storeu_si512((void *)(to + r * stride), codes_of(s + r * stride));
    }
}

static inline void operand_weights_down(operand *to, const float *s, int64_t stride, int64_t rows)
{
    /* unpacking pairs within each quarter: the quarters of both results alternate */
    const __m512i front = _mm512_set_epi64(11, 10, 3, 2, 9, 8, 1, 0);
    const __m512i back = _mm512_set_epi64(15, 14, 7, 6, 13, 12, 5, 4);
    for (int64_t r = 0; r < rows; r += 2) {
        __m512i even = codes_of(s + r * stride), odd = codes_of(s + (r + 1) * stride);
        __m512i low = _mm512_unpacklo_epi16(even, odd), high = _mm512_unpackhi_epi16(even, odd);
        operand *at = to + r * stride;
        _mm512_storeu_si512((void *)at, _mm512_permutex2var_epi64(low, front, high));
        _mm512_storeu_si512((void *)(at + 32), _mm512_permutex2var_epi64(low, back, high));
    }
}

static inline __m512bh pairs(const operand *from)
{
    return (__m512bh)_mm512_loadu_si512((const void *)from);
}

static inline __m512bh one_pair(const operand *from)
{
    int32_t pair;
    memcpy(&pair, from, sizeof pair);
    return (__m512bh)_mm512_set1_epi32(pair);
}

/* c[tall, PANEL] (+)= a b over `depth` pairs. Strides in elements: from row to row of a, from pair to
 * pair of a and of b. `tall` is a constant wherever this is called. */
TT_INLINE void bf16_tile(const int tall, float *restrict c, int64_t c_stride,
                         const operand *restrict a, int64_t a_row, int64_t a_pair,
                         const operand *restrict b, int64_t b_pair, int64_t depth, bool accumulate)
{
    __m512 sum[TALL][2];
#pragma GCC unroll 12
    for (int i = 0; i < tall; i++) {
        const float *from = c + i * c_stride;
        sum[i][0] = accumulate ? _mm512_loadu_ps(from) : _mm512_setzero_ps();
        sum[i][1] = accumulate ? _mm512_loadu_ps(from + 16) : _mm512_setzero_ps();
    }
    do {
        __m512bh low = pairs(b), high = pairs(b + 32);
#pragma GCC unroll 12
        for (int i = 0; i < tall; i++) {
            __m512bh x = one_pair(a + i * a_row);
            sum[i][0] = _mm512_dpbf16_ps(sum[i][0], x, low);
            sum[i][1] = _mm512_dpbf16_ps(sum[i][1], x, high);
        }
        a += a_pair;
        b += b_pair;
    } while (--depth > 0);
#pragma GCC unroll 12
    for (int i = 0; i < tall; i++) {
        _mm512_storeu_ps(c + i * c_stride, sum[i][0]);
        _mm512_storeu_ps(c + i * c_stride + 16, sum[i][1]);
    }
}

TT_INLINE void bf16_product(float *c, int64_t c_stride, const operand *a, int64_t a_row,
                            int64_t a_pair, const operand *b, int64_t b_stride, int64_t rows,
                            int64_t cols, int64_t depth, bool accumulate)
{
    for (int64_t col = 0; col < cols; col += PANEL) {
        const operand *from = b + col * PAIR;
        int64_t i = 0;
        for (; i + TALL <= rows; i += TALL) {
            bf16_tile(TALL, c + i * c_stride + col, c_stride, a + i * a_row, a_row, a_pair, from,
                      b_stride * PAIR, depth / PAIR, accumulate);
        }
        for (; i < rows; i += STRIP) {
            bf16_tile(STRIP, c + i * c_stride + col, c_stride, a + i * a_row, a_row, a_pair, from,
                      b_stride * PAIR, depth / PAIR, accumulate);
        }
    }
}

static inline void product_along(float *c, int64_t c_stride, const operand *a, int64_t a_stride,
                                 const operand *b, int64_t b_stride, int64_t rows, int64_t cols,
                                 int64_t depth, bool accumulate)
{
    bf16_product(c, c_stride, a, a_stride, PAIR, b, b_stride, rows, cols, depth, accumulate);
}

static inline void product_down(float *c, int64_t c_stride, const operand *a, int64_t a_stride,
                                const operand *b, int64_t b_stride, int64_t rows, int64_t cols,
                                int64_t depth, bool accumulate)
{
    bf16_product(c, c_stride, a, PAIR, a_stride * PAIR, b, b_stride, rows, cols, depth, accumulate);
}

#include "kernels/generic/attention_grad.h"

const tt_ops tt_table_attention_avx512bf16_bf16 = {.isa = "avx512bf16",
                                                   .probabilities = TT_BF16,
                                                   .format = TT_BF16,
                                                   .compute = TT_BF16,
                                                   .workspace = attention_bytes,
                                                   .attention = generic_attention,
                                                   .attention_grad = generic_attention_grad};
