/* gemm_avx512.h: the tile of the matmuls with AVX-512 and FMA, for one act; for BF16, where the
 * processor has no instructions of its own.
 *
 * As in gemm_avx2.h, two-byte numbers are widened to FP32, a's when packed, b's when multiplied. The
 * tile is 12 x 32: 24 sums, 2 vectors of b, one of a and a mask in 28 of the 32 registers. What panels
 * hold: eights_avx2.h. How tiles make a matmul, memory and invariants: gemm_tile.h.
 *
 * TT_EMULATE_AVX512, set by a test, compiles this source through SIMDe, so that its logic is proven
 * on processors without the instructions.
 *
 * The file that includes this has said what an act is.
 * Reads views of model memory, writes the same; next: gemm_bf16_avx512.c and its like make tables. */
#ifndef TUTTI_KERNELS_GEMM_AVX512_H
#define TUTTI_KERNELS_GEMM_AVX512_H

#ifdef TT_EMULATE_AVX512
#include "kernels/isa/emulate_avx512.h"
#else
#include "kernels/isa/vec_avx512.h"
#include <immintrin.h>
#endif
#include <stdbool.h>
#include <stdint.h>

#define TILE_ROWS 12
#define TILE_COLS 32
#define TASK_ROWS 96
#define GROUP_COLS 64
#define GEMM_DEPTH 1024

#include "kernels/isa/eights_avx2.h"
/* this before that */
#include "kernels/isa/gemm_tile.h"
#include "kernels/isa/peak_loop.h"

/* Rows 0 .. 7 and 8 .. 11 of one k. */
static inline void put_twelve(float *to, eights first, eights rest)
{
    _mm256_storeu_ps(to, widen(first));
    _mm_storeu_ps(to + 8, _mm256_castps256_ps128(widen(rest)));
}

static inline int64_t tile_a_across(float *panel, const act *from, int64_t stride, int64_t depth)
{
    int64_t k = 0;
    for (; k + 8 <= depth; k += 8) {
        eights first[8], rest[8];
        for (int r = 0; r < 8; r++) {
            first[r] = eight(from + r * stride + k);
            rest[r] = r < 4 ? eight(from + (r + 8) * stride + k) : nothing();
        }
        transpose(first);
        transpose(rest);
        for (int r = 0; r < 8; r++) {
            put_twelve(panel + (k + r) * TILE_ROWS, first[r], rest[r]);
        }
    }
    return k;
}

static inline int64_t tile_a_along(float *panel, const act *from, int64_t stride, int64_t depth,
                                   int64_t panels)
{
    for (int64_t k = 0; k < depth; k++, from += stride, panel += TILE_ROWS) {
        act_ahead(from + ROWS_AHEAD * stride, panels * TILE_ROWS);
        for (int64_t p = 0; p < panels; p++) {
            const act *at = from + p * TILE_ROWS;
            put_twelve(panel + p * A_PANEL, eight(at), four(at + 8));
        }
    }
    return depth;
}

/* The columns of one k: the first sixteen and the others. */
static inline void columns(const tile_b *b, __m512 *first, __m512 *rest)
{
#if defined(TT_ACT_BF16)
    const __m512i mask = _mm512_set1_epi32((int)0xffff0000u);
    __m512i both = _mm512_load_si512((const void *)b);
    *first = _mm512_castsi512_ps(_mm512_slli_epi32(both, 16));
    *rest = _mm512_castsi512_ps(_mm512_and_si512(both, mask));
#elif defined(TT_ACT_FP16)
    *first = _mm512_cvtph_ps(_mm256_load_si256((const void *)b));
    *rest = _mm512_cvtph_ps(_mm256_load_si256((const void *)(b + 16)));
#else
    *first = _mm512_load_ps(b);
    *rest = _mm512_load_ps(b + 16);
#endif
}

static void tile_multiply(float *sums, const float *a, const tile_b *b, int64_t depth, bool add,
                          const tile_b *next)
{
    __m512 c[TILE_ROWS][2];
#pragma GCC unroll 12
    for (int i = 0; i < TILE_ROWS; i++) {
        c[i][0] = c[i][1] = _mm512_setzero_ps();
    }
    for (int64_t k = 0; k < depth; k += TILE_STEP, next += TILE_NEXT) {
        tile_prefetch(next);
        for (int step = 0; step < TILE_STEP; step++, a += TILE_ROWS, b += TILE_COLS) {
            __m512 b0, b1;
            columns(b, &b0, &b1);
#pragma GCC unroll 12
            for (int i = 0; i < TILE_ROWS; i++) {
                __m512 ai = _mm512_set1_ps(a[i]);
                c[i][0] = _mm512_fmadd_ps(ai, b0, c[i][0]);
                c[i][1] = _mm512_fmadd_ps(ai, b1, c[i][1]);
            }
        }
    }
#pragma GCC unroll 12
    for (int i = 0; i < TILE_ROWS; i++) {
#pragma GCC unroll 2
        for (int v = 0; v < 2; v++) {
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
    __m512 c[SUMS], x = _mm512_set1_ps(0.999f), y = _mm512_set1_ps(1e-3f);
#pragma GCC unroll 24
    for (int i = 0; i < SUMS; i++) {
        c[i] = _mm512_set1_ps((float)i);
    }
    for (int round = 0; round < PEAK_ROUNDS; round++) {
#pragma GCC unroll 24
        for (int i = 0; i < SUMS; i++) {
            c[i] = _mm512_fmadd_ps(c[i], x, y);
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
    return 2.0 * 16.0 * SUMS * PEAK_ROUNDS;
}

#endif
