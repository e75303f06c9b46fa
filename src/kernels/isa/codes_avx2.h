/* codes_avx2.h: BF16 codes on their way into panels, eight at a time; for AVX2 and what includes it.
 *
 * The file that includes this has included the intrinsics. */
#ifndef TUTTI_KERNELS_CODES_AVX2_H
#define TUTTI_KERNELS_CODES_AVX2_H

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

/* Two vectors of codes as the low and the high halves of 32-bit lanes. `to` is 16-byte aligned. */
static inline void put_pairs(tt_bf16 *to, __m128i low, __m128i high)
{
    _mm_store_si128((void *)to, _mm_unpacklo_epi16(low, high));
    _mm_store_si128((void *)(to + 8), _mm_unpackhi_epi16(low, high));
}

static inline __m128i eight(const tt_bf16 *from)
{
    return _mm_loadu_si128((const void *)from);
}

#endif
