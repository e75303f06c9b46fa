/* gemm_avx512bf16.c: BF16 matmuls with VDPBF16PS.
 *
 * The instruction multiplies 16 pairs of BF16 by 16 pairs and adds both products to 16 FP32 sums; so
 * panels hold pairs of neighbouring k, and the tile is 8 x 48: 24 sums, 3 vectors of b, and a pair
 * of a, broadcast, in 28 of the 32 registers. It rounds to nearest even and takes subnormal inputs
 * and results as zero, whatever the mode of the thread. How tiles make a matmul, memory and
 * invariants: gemm_tile.h.
 *
 * TT_EMULATE_AVX512, set by a test, compiles this source through SIMDe, so that its logic is proven
 * on processors without the instructions.
 *
 * Reads views of model memory, writes the same; next: select.c lays this table. */
#ifdef TT_EMULATE_AVX512
#include "kernels/isa/emulate_avx512.h"
#else
#include "kernels/isa/vec_avx512.h"
#include <immintrin.h>
#endif
#include <stdbool.h>
#include <stdint.h>

#include "tutti/numerics/format.h"

#define TILE_ROWS 8
#define TILE_COLS 48
#define TASK_ROWS 96
#define GROUP_COLS 192
#define GEMM_DEPTH 1024
typedef tt_bf16 tile_a;
typedef tt_bf16 tile_b;

#define TT_ACT_BF16
#include "kernels/isa/gemm_tile.h"
#include "kernels/isa/peak_loop.h"

static inline int64_t tile_a_at(int64_t i, int64_t k)
{
    return (k / 2 * TILE_ROWS + i) * 2 + k % 2;
}

static inline int64_t tile_b_at(int64_t i, int64_t k)
{
    return (k / 2 * TILE_COLS + i) * 2 + k % 2;
}

static inline tile_a tile_a_of(act x)
{
    return x;
}

static inline tile_b tile_b_of(act x)
{
    return x;
}

/* row[k] -> column[k]: 8 x 8 pairs of codes. */
static inline void transpose(__m256i v[8])
{
    __m256i a[8], b[8];
    for (int h = 0; h < 8; h += 2) { /* within each half of a row: columns 0, 1 and 2, 3 */
        a[h + 0] = _mm256_unpacklo_epi32(v[h], v[h + 1]);
        a[h + 1] = _mm256_unpackhi_epi32(v[h], v[h + 1]);
    }
    for (int h = 0; h < 8; h += 4) { /* one column, four rows, in each half */
        b[h + 0] = _mm256_unpacklo_epi64(a[h + 0], a[h + 2]);
        b[h + 1] = _mm256_unpackhi_epi64(a[h + 0], a[h + 2]);
        b[h + 2] = _mm256_unpacklo_epi64(a[h + 1], a[h + 3]);
        b[h + 3] = _mm256_unpackhi_epi64(a[h + 1], a[h + 3]);
    }
    for (int h = 0; h < 4; h++) { /* low halves are columns 0 .. 3, high halves 4 .. 7 */
        v[h + 0] = _mm256_permute2x128_si256(b[h], b[h + 4], 0x20);
        v[h + 4] = _mm256_permute2x128_si256(b[h], b[h + 4], 0x31);
    }
}

static inline int64_t pack_across(tt_bf16 *panel, int width, const tt_bf16 *from, int64_t stride,
                                  int64_t depth)
{
    int64_t k = 0;
    for (; k + 16 <= depth; k += 16) {
        for (int i = 0; i < width; i += 8) {
            __m256i v[8];
            for (int r = 0; r < 8; r++) {
                v[r] = _mm256_loadu_si256((const void *)(from + (i + r) * stride + k));
            }
            transpose(v);
            for (int p = 0; p < 8; p++) {
                _mm256_storeu_si256((void *)(panel + (k + 2 * p) * width + 2 * i), v[p]);
            }
        }
    }
    return k;
}

/* `panels` of `width`, `apart` elements from one to the next. */
static inline int64_t pack_along(tt_bf16 *panel, int width, const tt_bf16 *from, int64_t stride,
                                 int64_t depth, int64_t panels, int64_t apart)
{
    int64_t k = 0;
    for (; k + 2 <= depth; k += 2, from += 2 * stride, panel += 2 * width) {
        act_ahead(from + ROWS_AHEAD * stride, panels * width);
        act_ahead(from + (ROWS_AHEAD + 1) * stride, panels * width);
        for (int64_t i = 0; i < panels * width; i += 8) {
            __m128i even = _mm_loadu_si128((const void *)(from + i));
            __m128i odd = _mm_loadu_si128((const void *)(from + stride + i));
            tt_bf16 *to = panel + i / width * apart + 2 * (i % width);
            _mm_storeu_si128((void *)to, _mm_unpacklo_epi16(even, odd));
            _mm_storeu_si128((void *)(to + 8), _mm_unpackhi_epi16(even, odd));
        }
    }
    return k;
}

static inline int64_t tile_a_across(tt_bf16 *panel, const tt_bf16 *from, int64_t stride,
                                    int64_t depth)
{
    return pack_across(panel, TILE_ROWS, from, stride, depth);
}

static inline int64_t tile_a_along(tt_bf16 *panel, const tt_bf16 *from, int64_t stride,
                                   int64_t depth, int64_t panels)
{
    return pack_along(panel, TILE_ROWS, from, stride, depth, panels, A_PANEL);
}

static inline int64_t tile_b_across(tt_bf16 *panel, const tt_bf16 *from, int64_t stride,
                                    int64_t depth)
{
    return pack_across(panel, TILE_COLS, from, stride, depth);
}

static inline int64_t tile_b_along(tt_bf16 *panel, const tt_bf16 *from, int64_t stride,
                                   int64_t depth)
{
    return pack_along(panel, TILE_COLS, from, stride, depth, 1, 0);
}

/* 16 pairs of codes; one pair, 16 times. */
static inline __m512bh pairs(const tt_bf16 *from)
{
    return (__m512bh)_mm512_load_si512((const void *)from);
}

static inline __m512bh one_pair(const tt_bf16 *from)
{
    int32_t pair;
    memcpy(&pair, from, sizeof pair);
    return (__m512bh)_mm512_set1_epi32(pair);
}

static void tile_multiply(float *sums, const tt_bf16 *a, const tt_bf16 *b, int64_t depth, bool add,
                          const tt_bf16 *next)
{
    __m512 c[TILE_ROWS][3];
#pragma GCC unroll 8
    for (int i = 0; i < TILE_ROWS; i++) {
        c[i][0] = c[i][1] = c[i][2] = _mm512_setzero_ps();
    }
    for (int64_t k = 0; k < depth; k += TILE_STEP, next += TILE_NEXT) {
        tile_prefetch(next);
        for (int pair = 0; pair < TILE_STEP / 2; pair++, a += 2 * TILE_ROWS, b += 2 * TILE_COLS) {
            __m512bh b0 = pairs(b), b1 = pairs(b + 32), b2 = pairs(b + 64);
#pragma GCC unroll 8
            for (int i = 0; i < TILE_ROWS; i++) {
                __m512bh ai = one_pair(a + 2 * i);
                c[i][0] = _mm512_dpbf16_ps(c[i][0], ai, b0);
                c[i][1] = _mm512_dpbf16_ps(c[i][1], ai, b1);
                c[i][2] = _mm512_dpbf16_ps(c[i][2], ai, b2);
            }
        }
    }
#pragma GCC unroll 8
    for (int i = 0; i < TILE_ROWS; i++) {
#pragma GCC unroll 3
        for (int v = 0; v < 3; v++) {
            float *to = sums + i * GROUP_COLS + 16 * v;
            if (add) {
                c[i][v] = _mm512_add_ps(_mm512_load_ps(to), c[i][v]);
            }
            _mm512_store_ps(to, c[i][v]);
        }
    }
}

static double peak_burst(void)
{
    enum { SUMS = 24 }; /* more than latency x units */
    __m512 c[SUMS];
    __m512bh x = (__m512bh)_mm512_set1_epi32(0x3f800000); /* the pair 0, 1: sums grow slowly */
    __m512bh y = (__m512bh)_mm512_set1_epi32(0x3a833a83);
#pragma GCC unroll 24
    for (int i = 0; i < SUMS; i++) {
        c[i] = _mm512_set1_ps((float)i);
    }
    for (int round = 0; round < PEAK_ROUNDS; round++) {
#pragma GCC unroll 24
        for (int i = 0; i < SUMS; i++) {
            c[i] = _mm512_dpbf16_ps(c[i], x, y);
        }
    }
    /* A use that the compiler cannot see through keeps the work. */
    volatile float keep;
#pragma GCC unroll 24
    for (int i = 0; i < SUMS; i++) {
        float lanes[16];
        _mm512_storeu_ps(lanes, c[i]);
        keep = lanes[0];
    }
    (void)keep;
    return 4.0 * 16.0 * SUMS * PEAK_ROUNDS;
}

const tt_ops tt_table_gemm_avx512bf16_bf16 = {
    .isa = "avx512bf16", .format = TT_BF16, .compute = TT_BF16, GEMM_TILE_ENTRIES, .peak = peak};
