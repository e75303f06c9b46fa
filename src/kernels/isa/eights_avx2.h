/* eights_avx2.h: acts on their way into panels of a matmul tile, eight at a time, for AVX2 and what
 * includes it.
 *
 * A panel of a holds FP32, because an element of a is broadcast. A panel of b holds what a vector can
 * widen as it is multiplied:
 *
 *     BF16   codes; a 32-bit lane holds column c in its low half and column c + TILE_COLS / 2 in its
 *            high half, so that a shift and a mask widen both, which is exact
 *     FP16   codes in order of columns, which an instruction widens
 *     TF32   floats in order of columns, rounded here, on their way in
 *
 * The file that includes this has included the intrinsics, defined TILE_ROWS, TILE_COLS and the act,
 * and then says what a tile does: gemm_avx2.h, gemm_avx512.h. */
#ifndef TUTTI_KERNELS_EIGHTS_AVX2_H
#define TUTTI_KERNELS_EIGHTS_AVX2_H

#include "kernels/generic/act.h"

typedef float tile_a;

#if defined(TT_ACT_TF32)

typedef float tile_b;
typedef __m256 eights;

/* tt_tf32_of_f32 of each element. */
static inline __m256 rounded(__m256 x)
{
    const __m256i half = _mm256_set1_epi32(0xfff), quiet = _mm256_set1_epi32(0x00400000);
    const __m256 keep = _mm256_castsi256_ps(_mm256_set1_epi32((int)0xffffe000u));
    __m256i bits = _mm256_castps_si256(x);
    __m256i odd = _mm256_srli_epi32(_mm256_slli_epi32(bits, 18), 31);
    __m256i sum = _mm256_add_epi32(_mm256_add_epi32(bits, half), odd);
    __m256 silenced = _mm256_castsi256_ps(_mm256_or_si256(bits, quiet));
    __m256 nan = _mm256_cmp_ps(x, x, _CMP_UNORD_Q);
    return _mm256_and_ps(_mm256_blendv_ps(_mm256_castsi256_ps(sum), silenced, nan), keep);
}

static inline eights eight(const act *from)
{
    return rounded(_mm256_loadu_ps(from));
}

/* Four acts and two more; nothing is read behind them. */
static inline eights six(const act *from)
{
    __m256 four = _mm256_castps128_ps256(_mm_loadu_ps(from));
    __m128 two = _mm_castsi128_ps(_mm_loadl_epi64((const void *)(from + 4)));
    return rounded(_mm256_insertf128_ps(four, two, 1));
}

static inline eights four(const act *from)
{
    return rounded(_mm256_insertf128_ps(_mm256_setzero_ps(), _mm_loadu_ps(from), 0));
}

static inline eights nothing(void)
{
    return _mm256_setzero_ps();
}

static inline __m256 widen(eights x)
{
    return x;
}

/* row[k] -> column[k]: 8 x 8 floats. */
static inline void transpose(eights v[8])
{
    __m256 a[8], b[8];
    for (int i = 0; i < 8; i += 2) { /* within each half of a row: columns 0, 1 and 2, 3 */
        a[i + 0] = _mm256_unpacklo_ps(v[i], v[i + 1]);
        a[i + 1] = _mm256_unpackhi_ps(v[i], v[i + 1]);
    }
    for (int i = 0; i < 8; i += 4) { /* one column, four rows, in each half */
        b[i + 0] = _mm256_shuffle_ps(a[i + 0], a[i + 2], 0x44);
        b[i + 1] = _mm256_shuffle_ps(a[i + 0], a[i + 2], 0xee);
        b[i + 2] = _mm256_shuffle_ps(a[i + 1], a[i + 3], 0x44);
        b[i + 3] = _mm256_shuffle_ps(a[i + 1], a[i + 3], 0xee);
    }
    for (int i = 0; i < 4; i++) { /* low halves are columns 0 .. 3, high halves 4 .. 7 */
        v[i + 0] = _mm256_permute2f128_ps(b[i], b[i + 4], 0x20);
        v[i + 4] = _mm256_permute2f128_ps(b[i], b[i + 4], 0x31);
    }
}

#else

typedef act tile_b;
typedef __m128i eights;

static inline eights eight(const act *from)
{
    return _mm_loadu_si128((const void *)from);
}

static inline eights four(const act *from)
{
    return _mm_loadl_epi64((const void *)from);
}

/* Four acts and two more; nothing is read behind them. */
static inline eights six(const act *from)
{
    return _mm_unpacklo_epi64(four(from), _mm_loadu_si32(from + 4));
}

static inline eights nothing(void)
{
    return _mm_setzero_si128();
}

static inline __m256 widen(eights codes)
{
#if defined(TT_ACT_BF16)
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(codes), 16));
#else
    return _mm256_cvtph_ps(codes);
#endif
}

/* row[k] -> column[k]: 8 x 8 codes. */
static inline void transpose(eights v[8])
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

#endif

static inline tile_a tile_a_of(act x)
{
    return factor_of_act(x);
}

static inline int64_t tile_a_at(int64_t i, int64_t k)
{
    return k * TILE_ROWS + i;
}

#if defined(TT_ACT_BF16)

static inline tile_b tile_b_of(act x)
{
    return x;
}

static inline int64_t tile_b_at(int64_t i, int64_t k)
{
    return k * TILE_COLS + i % (TILE_COLS / 2) * 2 + i / (TILE_COLS / 2);
}

/* Into one k of a panel of b, 16-byte aligned: columns `at` .. and columns TILE_COLS / 2 behind them. */
static inline void put_columns(tile_b *row, int at, eights low, eights high)
{
    _mm_store_si128((void *)(row + 2 * at), _mm_unpacklo_epi16(low, high));
    _mm_store_si128((void *)(row + 2 * at + 8), _mm_unpackhi_epi16(low, high));
}

#else

static inline tile_b tile_b_of(act x)
{
#if defined(TT_ACT_TF32)
    return factor_of_act(x);
#else
    return x;
#endif
}

static inline int64_t tile_b_at(int64_t i, int64_t k)
{
    return k * TILE_COLS + i;
}

/* Into one k of a panel of b, aligned: columns `at` .. and columns TILE_COLS / 2 behind them. */
static inline void put_columns(tile_b *row, int at, eights low, eights high)
{
    memcpy(row + at, &low, sizeof low);
    memcpy(row + at + TILE_COLS / 2, &high, sizeof high);
}

#endif

static inline int64_t tile_b_across(tile_b *panel, const act *from, int64_t stride, int64_t depth)
{
    int64_t k = 0;
    for (; k + 8 <= depth; k += 8) {
        for (int at = 0; at < TILE_COLS / 2; at += 8) {
            eights low[8], high[8];
            for (int r = 0; r < 8; r++) {
                low[r] = eight(from + (at + r) * stride + k);
                high[r] = eight(from + (at + r + TILE_COLS / 2) * stride + k);
            }
            transpose(low);
            transpose(high);
            for (int r = 0; r < 8; r++) {
                put_columns(panel + (k + r) * TILE_COLS, at, low[r], high[r]);
            }
        }
    }
    return k;
}

static inline int64_t tile_b_along(tile_b *panel, const act *from, int64_t stride, int64_t depth)
{
    for (int64_t k = 0; k < depth; k++, from += stride) {
        for (int at = 0; at < TILE_COLS / 2; at += 8) {
            put_columns(panel + k * TILE_COLS, at, eight(from + at),
                        eight(from + at + TILE_COLS / 2));
        }
    }
    return depth;
}

#endif
