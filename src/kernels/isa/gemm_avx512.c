/* gemm_avx512.c: BF16 matmuls with AVX-512 and FMA, for processors without BF16 instructions.
 *
 * As in gemm_avx2.c, panels of a are widened to FP32 when packed, and panels of b stay BF16: a 32-bit
 * lane holds column c in its low half and column c + 16 in its high half. The tile is 12 x 32: 24
 * sums, 2 vectors of b, one of a and the mask in 28 of the 32 registers. How tiles make a matmul,
 * memory and invariants: gemm_tile.h.
 *
 * TT_EMULATE_AVX512, set by a test, compiles this source through SIMDe, so that its logic is proven
 * on processors without the instructions.
 *
 * Reads views of model memory, writes the same; next: select.c lays these tables. */
#ifdef TT_EMULATE_AVX512
#define SIMDE_ENABLE_NATIVE_ALIASES
#include <simde/x86/avx512.h>
#else
#include "kernels/isa/vec_avx512.h"
#include <immintrin.h>
#endif
#include <stdbool.h>
#include <stdint.h>

#include "tutti/numerics/format.h"

#define TILE_ROWS 12
#define TILE_COLS 32
#define TASK_ROWS 96
#define GROUP_COLS 64
#define GEMM_DEPTH 1024
typedef float tile_a;
typedef tt_bf16 tile_b;

#include "kernels/isa/codes_avx2.h"
#include "kernels/isa/gemm_tile.h"
#include "kernels/isa/peak_loop.h"

static inline int64_t tile_a_at(int64_t i, int64_t k)
{
    return k * TILE_ROWS + i;
}

static inline int64_t tile_b_at(int64_t i, int64_t k)
{
    return k * TILE_COLS + i % 16 * 2 + i / 16;
}

static inline float tile_a_of(tt_bf16 code)
{
    return tt_f32_of_bf16(code);
}

/* Rows 0 .. 7 and 8 .. 11 of one k. */
static inline void put_twelve(float *to, __m128i first, __m128i rest)
{
    _mm256_storeu_ps(to, widen(first));
    _mm_storeu_ps(to + 8, _mm256_castps256_ps128(widen(rest)));
}

static inline int64_t tile_a_across(float *panel, const tt_bf16 *from, int64_t stride,
                                    int64_t depth)
{
    int64_t k = 0;
    for (; k + 8 <= depth; k += 8) {
        __m128i first[8], rest[8];
        for (int r = 0; r < 8; r++) {
            first[r] = eight(from + r * stride + k);
            rest[r] = r < 4 ? eight(from + (r + 8) * stride + k) : _mm_setzero_si128();
        }
        transpose(first);
        transpose(rest);
        for (int r = 0; r < 8; r++) {
            put_twelve(panel + (k + r) * TILE_ROWS, first[r], rest[r]);
        }
    }
    return k;
}

static inline int64_t tile_a_along(float *panel, const tt_bf16 *from, int64_t stride, int64_t depth,
                                   int64_t panels)
{
    for (int64_t k = 0; k < depth; k++, from += stride, panel += TILE_ROWS) {
        act_ahead(from + ROWS_AHEAD * stride, panels * TILE_ROWS);
        for (int64_t p = 0; p < panels; p++) {
            const tt_bf16 *at = from + p * TILE_ROWS;
            put_twelve(panel + p * A_PANEL, eight(at), _mm_loadl_epi64((const void *)(at + 8)));
        }
    }
    return depth;
}

static inline int64_t tile_b_across(tt_bf16 *panel, const tt_bf16 *from, int64_t stride,
                                    int64_t depth)
{
    int64_t k = 0;
    for (; k + 8 <= depth; k += 8) {
        for (int half = 0; half < 16; half += 8) {
            __m128i low[8], high[8];
            for (int r = 0; r < 8; r++) {
                low[r] = eight(from + (half + r) * stride + k);
                high[r] = eight(from + (half + r + 16) * stride + k);
            }
            transpose(low);
            transpose(high);
            for (int r = 0; r < 8; r++) {
                put_pairs(panel + (k + r) * TILE_COLS + 2 * half, low[r], high[r]);
            }
        }
    }
    return k;
}

static inline int64_t tile_b_along(tt_bf16 *panel, const tt_bf16 *from, int64_t stride,
                                   int64_t depth)
{
    for (int64_t k = 0; k < depth; k++, from += stride) {
        put_pairs(panel + k * TILE_COLS, eight(from), eight(from + 16));
        put_pairs(panel + k * TILE_COLS + 16, eight(from + 8), eight(from + 24));
    }
    return depth;
}

static void tile_multiply(float *sums, const float *a, const tt_bf16 *b, int64_t depth, bool add,
                          const tt_bf16 *next)
{
    const __m512i mask = _mm512_set1_epi32((int)0xffff0000u);
    __m512 c[TILE_ROWS][2];
#pragma GCC unroll 12
    for (int i = 0; i < TILE_ROWS; i++) {
        c[i][0] = c[i][1] = _mm512_setzero_ps();
    }
    for (int64_t k = 0; k < depth; k += TILE_STEP, next += TILE_NEXT) {
        tile_prefetch(next);
        for (int step = 0; step < TILE_STEP; step++, a += TILE_ROWS, b += TILE_COLS) {
            __m512i both = _mm512_load_si512((const void *)b);
            __m512 b0 = _mm512_castsi512_ps(_mm512_slli_epi32(both, 16));
            __m512 b1 = _mm512_castsi512_ps(_mm512_and_si512(both, mask));
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

const tt_ops tt_table_gemm_avx512_bf16 = {
    .isa = "avx512", .format = TT_BF16, GEMM_TILE_ENTRIES, .peak = peak};

const tt_ops tt_table_peak_avx512_fp32 = {.isa = "avx512", .format = TT_FP32, .peak = peak};
