/* gemm_avx2.c: BF16 matmuls with AVX2 and FMA.
 *
 * There are no BF16 instructions here: packing widens to FP32, which is exact, and the tile is the
 * classic 6 x 16 of FP32 multiply-adds: 12 sums, 2 vectors of b and one broadcast of a fill the 16
 * registers. How tiles make a matmul, memory and invariants: gemm_tile.h.
 *
 * Reads views of model memory, writes the same; next: select.c lays these tables. */
#include <immintrin.h>
#include <stdbool.h>
#include <stdint.h>

#include "tutti/numerics/format.h"

#define TILE_ROWS 6
#define TILE_COLS 16
#define TILE_PAIR 1
#define GEMM_DEPTH 256 /* a panel of b: 16 KiB, half of L1 */
typedef float tile_elem;

#include "kernels/isa/gemm_tile.h"
#include "kernels/isa/peak_loop.h"

static inline float tile_of_bf16(tt_bf16 code)
{
    return tt_f32_of_bf16(code);
}

/* Eight BF16 codes as FP32. */
static inline __m256 widen(__m128i codes)
{
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(codes), 16));
}

/* row[k] -> column[k]: 8 x 8 codes. */
static inline void transpose(__m128i v[8])
{
    __m128i a[8], b[8];
    for (int i = 0; i < 4; i++) { /* pairs of rows r, r+1: a[i] = k 0..3, a[i+4] = k 4..7 */
        a[i] = _mm_unpacklo_epi16(v[2 * i], v[2 * i + 1]);
        a[i + 4] = _mm_unpackhi_epi16(v[2 * i], v[2 * i + 1]);
    }
    for (int h = 0; h < 8; h += 4) { /* rows 0..3 and 4..7: two k per vector */
        b[h + 0] = _mm_unpacklo_epi32(a[h + 0], a[h + 1]);
        b[h + 1] = _mm_unpackhi_epi32(a[h + 0], a[h + 1]);
        b[h + 2] = _mm_unpacklo_epi32(a[h + 2], a[h + 3]);
        b[h + 3] = _mm_unpackhi_epi32(a[h + 2], a[h + 3]);
    }
    for (int h = 0; h < 8; h += 4) {
        v[h + 0] = _mm_unpacklo_epi64(b[h + 0], b[h + 2]);
        v[h + 1] = _mm_unpackhi_epi64(b[h + 0], b[h + 2]);
        v[h + 2] = _mm_unpacklo_epi64(b[h + 1], b[h + 3]);
        v[h + 3] = _mm_unpackhi_epi64(b[h + 1], b[h + 3]);
    }
}

/* The first `width` (8, or 6 without touching what follows) of eight floats. */
static inline void put(float *to, __m256 v, int width)
{
    if (width == 8) {
        _mm256_storeu_ps(to, v);
    } else {
        _mm_storeu_ps(to, _mm256_castps256_ps128(v));
        _mm_storel_pi((__m64 *)(void *)(to + 4), _mm256_extractf128_ps(v, 1));
    }
}

static inline int64_t tile_pack_across(float *panel, int width, const tt_bf16 *from, int64_t stride,
                                       int64_t depth)
{
    int64_t k = 0;
    for (; k + 8 <= depth; k += 8) {
        for (int i = 0; i < width; i += 8) {
            int rows = width - i < 8 ? width - i : 8;
            __m128i v[8];
            for (int r = 0; r < 8; r++) {
                v[r] = r < rows ? _mm_loadu_si128((const void *)(from + (i + r) * stride + k))
                                : _mm_setzero_si128();
            }
            transpose(v);
            for (int r = 0; r < 8; r++) {
                put(panel + (k + r) * width + i, widen(v[r]), rows);
            }
        }
    }
    return k;
}

static inline int64_t tile_pack_along(float *panel, int width, const tt_bf16 *from, int64_t stride,
                                      int64_t depth)
{
    for (int64_t k = 0; k < depth; k++, from += stride, panel += width) {
        if (width == TILE_ROWS) {
            __m128i four = _mm_loadl_epi64((const void *)from);
            __m128i two = _mm_loadu_si32(from + 4);
            put(panel, widen(_mm_unpacklo_epi64(four, two)), TILE_ROWS);
        } else {
            put(panel, widen(_mm_loadu_si128((const void *)from)), 8);
            put(panel + 8, widen(_mm_loadu_si128((const void *)(from + 8))), 8);
        }
    }
    return depth;
}

static void tile_multiply(float *sums, const float *a, const float *b, int64_t depth, bool add)
{
    __m256 c[TILE_ROWS][2];
#pragma GCC unroll 6
    for (int i = 0; i < TILE_ROWS; i++) {
        c[i][0] = c[i][1] = _mm256_setzero_ps();
    }
#pragma GCC unroll 4
    for (int64_t k = 0; k < depth; k++) {
        __m256 b0 = _mm256_load_ps(b + k * TILE_COLS);
        __m256 b1 = _mm256_load_ps(b + k * TILE_COLS + 8);
#pragma GCC unroll 6
        for (int i = 0; i < TILE_ROWS; i++) {
            __m256 ai = _mm256_broadcast_ss(a + k * TILE_ROWS + i);
            c[i][0] = _mm256_fmadd_ps(ai, b0, c[i][0]);
            c[i][1] = _mm256_fmadd_ps(ai, b1, c[i][1]);
        }
    }
#pragma GCC unroll 6
    for (int i = 0; i < TILE_ROWS; i++) {
        float *to = sums + i * TILE_COLS;
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

const tt_ops tt_table_gemm_avx2_bf16 = {.isa = "avx2",
                                        .format = TT_BF16,
                                        .workspace = gemm_workspace,
                                        .gemm_nt = gemm_nt,
                                        .gemm_nt_f32 = gemm_nt_f32,
                                        .gemm_nn = gemm_nn,
                                        .gemm_tn = gemm_tn,
                                        .peak = peak};

const tt_ops tt_table_peak_avx2_fp32 = {.isa = "avx2", .format = TT_FP32, .peak = peak};
