/* gemm_avx2.c: BF16 matmuls with AVX2 and FMA.
 *
 * There are no BF16 instructions here. Panels of a are widened to FP32 as they are packed, because an
 * element of a is broadcast. Panels of b stay BF16, half the bytes: a 32-bit lane holds column c in
 * its low half and column c + 8 in its high half, so that a shift and a mask widen 16 columns, which
 * is exact. The tile is the classic 6 x 16: 12 sums, 2 vectors of b, one of a and the mask fill the
 * 16 registers. How tiles make a matmul, memory and invariants: gemm_tile.h.
 *
 * Reads views of model memory, writes the same; next: select.c lays these tables. */
#include <immintrin.h>
#include <stdbool.h>
#include <stdint.h>

#include "tutti/numerics/format.h"

#define TILE_ROWS 6
#define TILE_COLS 16
#define TASK_ROWS 96
#define GROUP_COLS 64
#define GEMM_DEPTH 1024
typedef float tile_a;
typedef tt_bf16 tile_b;

#include "kernels/isa/codes_avx2.h"
#include "kernels/isa/vec_avx2.h"
/* these two first */
#include "kernels/isa/gemm_tile.h"
#include "kernels/isa/peak_loop.h"

static inline int64_t tile_a_at(int64_t i, int64_t k)
{
    return k * TILE_ROWS + i;
}

static inline int64_t tile_b_at(int64_t i, int64_t k)
{
    return k * TILE_COLS + i % 8 * 2 + i / 8;
}

static inline float tile_a_of(tt_bf16 code)
{
    return tt_f32_of_bf16(code);
}

/* Six floats, without touching what follows. */
static inline void put_six(float *to, __m256 v)
{
    _mm_storeu_ps(to, _mm256_castps256_ps128(v));
    _mm_storel_pi((__m64 *)(void *)(to + 4), _mm256_extractf128_ps(v, 1));
}

static inline int64_t tile_a_across(float *panel, const tt_bf16 *from, int64_t stride,
                                    int64_t depth)
{
    int64_t k = 0;
    for (; k + 8 <= depth; k += 8) {
        __m128i v[8];
        for (int r = 0; r < 8; r++) {
            v[r] = r < TILE_ROWS ? eight(from + r * stride + k) : _mm_setzero_si128();
        }
        transpose(v);
        for (int r = 0; r < 7; r++) { /* eight at a time: the next k overwrites the two too many */
            _mm256_storeu_ps(panel + (k + r) * TILE_ROWS, widen(v[r]));
        }
        put_six(panel + (k + 7) * TILE_ROWS, widen(v[7]));
    }
    return k;
}

/* Eight at a time here too: the two too many of a row are the matrix's next ones, so the last row is
 * read with care. */
static inline int64_t tile_a_along(float *panel, const tt_bf16 *from, int64_t stride, int64_t depth,
                                   int64_t panels)
{
    for (int64_t k = 0; k + 1 < depth; k++, from += stride, panel += TILE_ROWS) {
        act_ahead(from + ROWS_AHEAD * stride, panels * TILE_ROWS);
        for (int64_t p = 0; p < panels; p++) {
            _mm256_storeu_ps(panel + p * A_PANEL, widen(eight(from + p * TILE_ROWS)));
        }
    }
    for (int64_t p = 0; p < panels; p++, from += TILE_ROWS) {
        __m128i four = _mm_loadl_epi64((const void *)from);
        put_six(panel + p * A_PANEL, widen(_mm_unpacklo_epi64(four, _mm_loadu_si32(from + 4))));
    }
    return depth;
}

static inline int64_t tile_b_across(tt_bf16 *panel, const tt_bf16 *from, int64_t stride,
                                    int64_t depth)
{
    int64_t k = 0;
    for (; k + 8 <= depth; k += 8) {
        __m128i low[8], high[8];
        for (int r = 0; r < 8; r++) {
            low[r] = eight(from + r * stride + k);
            high[r] = eight(from + (r + 8) * stride + k);
        }
        transpose(low);
        transpose(high);
        for (int r = 0; r < 8; r++) {
            put_pairs(panel + (k + r) * TILE_COLS, low[r], high[r]);
        }
    }
    return k;
}

static inline int64_t tile_b_along(tt_bf16 *panel, const tt_bf16 *from, int64_t stride,
                                   int64_t depth)
{
    for (int64_t k = 0; k < depth; k++, from += stride) {
        put_pairs(panel + k * TILE_COLS, eight(from), eight(from + 8));
    }
    return depth;
}

static void tile_multiply(float *sums, const float *a, const tt_bf16 *b, int64_t depth, bool add,
                          const tt_bf16 *next)
{
    const __m256 mask = _mm256_castsi256_ps(_mm256_set1_epi32((int)0xffff0000u));
    __m256 c[TILE_ROWS][2];
#pragma GCC unroll 6
    for (int i = 0; i < TILE_ROWS; i++) {
        c[i][0] = c[i][1] = _mm256_setzero_ps();
    }
    for (int64_t k = 0; k < depth; k += TILE_STEP, next += TILE_NEXT) {
        tile_prefetch(next);
#pragma GCC unroll 4
        for (int step = 0; step < TILE_STEP; step++, a += TILE_ROWS, b += TILE_COLS) {
            __m256i both = _mm256_load_si256((const void *)b);
            __m256 b0 = _mm256_castsi256_ps(_mm256_slli_epi32(both, 16));
            __m256 b1 = _mm256_and_ps(_mm256_castsi256_ps(both), mask);
#pragma GCC unroll 6
            for (int i = 0; i < TILE_ROWS; i++) {
                __m256 ai = _mm256_broadcast_ss(a + i);
                c[i][0] = _mm256_fmadd_ps(ai, b0, c[i][0]);
                c[i][1] = _mm256_fmadd_ps(ai, b1, c[i][1]);
            }
        }
    }
#pragma GCC unroll 6
    for (int i = 0; i < TILE_ROWS; i++) {
        float *to = sums + i * GROUP_COLS;
        if (add) {
            c[i][0] = _mm256_add_ps(_mm256_load_ps(to), c[i][0]);
            c[i][1] = _mm256_add_ps(_mm256_load_ps(to + 8), c[i][1]);
        }
        _mm256_store_ps(to, c[i][0]);
        _mm256_store_ps(to + 8, c[i][1]);
    }
}

static double peak_burst(void)
{
    enum { SUMS = 12 }; /* more than latency x units */
    __m256 c[SUMS], x = _mm256_set1_ps(0.999f), y = _mm256_set1_ps(1e-3f);
#pragma GCC unroll 12
    for (int i = 0; i < SUMS; i++) {
        c[i] = _mm256_set1_ps((float)i);
    }
    for (int round = 0; round < PEAK_ROUNDS; round++) {
#pragma GCC unroll 12
        for (int i = 0; i < SUMS; i++) {
            c[i] = _mm256_fmadd_ps(c[i], x, y);
        }
    }
#pragma GCC unroll 12
    for (int i = 0; i < SUMS; i++) { /* a use the compiler cannot see through keeps the work */
        __asm__ volatile("" : : "x"(c[i]));
    }
    return 2.0 * 8.0 * SUMS * PEAK_ROUNDS;
}

const tt_ops tt_table_gemm_avx2_bf16 = {
    .isa = "avx2", .format = TT_BF16, GEMM_TILE_ENTRIES, .peak = peak};

const tt_ops tt_table_peak_avx2_fp32 = {.isa = "avx2", .format = TT_FP32, .peak = peak};
