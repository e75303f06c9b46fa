/* gemm_avx2.h: the tile of the matmuls with AVX2, FMA and F16C, for one act.
 *
 * There are no instructions that multiply two-byte numbers here: they are widened to FP32, a's as
 * they are packed, b's, half the bytes, as they are multiplied. The tile is the classic 6 x 16: 12
 * sums, 2 vectors of b, one of a and a mask fill the 16 registers. What panels hold: eights_avx2.h. How
 * tiles make a matmul, memory and invariants: gemm_tile.h.
 *
 * The file that includes this has said what an act is.
 * Reads views of model memory, writes the same; next: gemm_bf16_avx2.c and its like make tables. */
#ifndef TUTTI_KERNELS_GEMM_AVX2_H
#define TUTTI_KERNELS_GEMM_AVX2_H

#include <immintrin.h>
#include <stdbool.h>
#include <stdint.h>

#define TILE_ROWS 6
#define TILE_COLS 16
#define TASK_ROWS 96
#define GROUP_COLS 64
#define GEMM_DEPTH 1024

#include "kernels/isa/vec_avx2.h"
/* these in this order */
#include "kernels/isa/eights_avx2.h"
#include "kernels/isa/gemm_tile.h"
#include "kernels/isa/peak_loop.h"

/* Six floats, without touching what follows. */
static inline void put_six(float *to, __m256 v)
{
    _mm_storeu_ps(to, _mm256_castps256_ps128(v));
    _mm_storel_pi((__m64 *)(void *)(to + 4), _mm256_extractf128_ps(v, 1));
}

static inline int64_t tile_a_across(float *panel, const act *from, int64_t stride, int64_t depth)
{
    int64_t k = 0;
    for (; k + 8 <= depth; k += 8) {
        eights v[8];
        for (int r = 0; r < 8; r++) {
            v[r] = r < TILE_ROWS ? eight(from + r * stride + k) : nothing();
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
static inline int64_t tile_a_along(float *panel, const act *from, int64_t stride, int64_t depth,
                                   int64_t panels)
{
    for (int64_t k = 0; k + 1 < depth; k++, from += stride, panel += TILE_ROWS) {
        act_ahead(from + ROWS_AHEAD * stride, panels * TILE_ROWS);
        for (int64_t p = 0; p < panels; p++) {
            _mm256_storeu_ps(panel + p * A_PANEL, widen(eight(from + p * TILE_ROWS)));
        }
    }
    for (int64_t p = 0; p < panels; p++, from += TILE_ROWS) {
        put_six(panel + p * A_PANEL, widen(six(from)));
    }
    return depth;
}

/* The columns of one k: the first eight and the others. */
static inline void columns(const tile_b *b, __m256 *first, __m256 *rest)
{
#if defined(TT_ACT_BF16)
    const __m256 mask = _mm256_castsi256_ps(_mm256_set1_epi32((int)0xffff0000u));
    __m256i both = _mm256_load_si256((const void *)b);
    *first = _mm256_castsi256_ps(_mm256_slli_epi32(both, 16));
    *rest = _mm256_and_ps(_mm256_castsi256_ps(both), mask);
#elif defined(TT_ACT_FP16)
    *first = _mm256_cvtph_ps(_mm_load_si128((const void *)b));
    *rest = _mm256_cvtph_ps(_mm_load_si128((const void *)(b + 8)));
#else
    *first = _mm256_load_ps(b);
    *rest = _mm256_load_ps(b + 8);
#endif
}

static void tile_multiply(float *sums, const float *a, const tile_b *b, int64_t depth, bool add,
                          const tile_b *next)
{
    __m256 c[TILE_ROWS][2];
#pragma GCC unroll 6
    for (int i = 0; i < TILE_ROWS; i++) {
        c[i][0] = c[i][1] = _mm256_setzero_ps();
    }
    for (int64_t k = 0; k < depth; k += TILE_STEP, next += TILE_NEXT) {
        tile_prefetch(next);
#pragma GCC unroll 4
        for (int step = 0; step < TILE_STEP; step++, a += TILE_ROWS, b += TILE_COLS) {
            __m256 b0, b1;
            columns(b, &b0, &b1);
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

#endif
