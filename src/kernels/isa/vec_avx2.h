/* vec_avx2.h: the vector vocabulary of generic/vec.h, said in AVX2, FMA and F16C. */
#ifndef TUTTI_KERNELS_ISA_VEC
#define TUTTI_KERNELS_ISA_VEC

#include <immintrin.h>
#include <stdint.h>

#include "tutti/numerics/format.h"

enum { VEC = 8 };
typedef float vec __attribute__((vector_size(32)));
typedef uint32_t vec_bits __attribute__((vector_size(32)));
typedef int32_t vec_ints __attribute__((vector_size(32)));
typedef uint64_t vec_words __attribute__((vector_size(32)));
typedef double vec_doubles __attribute__((vector_size(32)));

static inline vec vec_fma(vec a, vec b, vec c)
{
    return _mm256_fmadd_ps(a, b, c);
}

static inline vec vec_max(vec a, vec b)
{
    return _mm256_max_ps(a, b);
}

static inline vec vec_min(vec a, vec b)
{
    return _mm256_min_ps(a, b);
}

static inline vec vec_sqrt(vec a)
{
    return _mm256_sqrt_ps(a);
}

static inline vec vec_below(vec x, vec y, vec a, vec b)
{
    return _mm256_blendv_ps(b, a, _mm256_cmp_ps(x, y, _CMP_LT_OQ));
}

static inline vec vec_kept(vec_bits word, uint32_t least, vec x)
{
    __m256i w = (__m256i)word, greater = _mm256_max_epu32(w, _mm256_set1_epi32((int)least));
    return _mm256_and_ps(_mm256_castsi256_ps(_mm256_cmpeq_epi32(greater, w)), x);
}

static inline vec vec_of_bf16(const tt_bf16 *x)
{
    __m256i codes = _mm256_cvtepu16_epi32(_mm_loadu_si128((const void *)x));
    return _mm256_castsi256_ps(_mm256_slli_epi32(codes, 16));
}

/* The code in the lower half of each element. */
static inline __m256i vec_code_of(__m256 x)
{
    const __m256i bias = _mm256_set1_epi32(0x7fff), quiet = _mm256_set1_epi32(0x00400000);
    __m256i bits = _mm256_castps_si256(x);
    __m256i odd = _mm256_srli_epi32(_mm256_slli_epi32(bits, 15), 31);
    __m256i rounded = _mm256_add_epi32(_mm256_add_epi32(bits, bias), odd);
    __m256 silenced = _mm256_castsi256_ps(_mm256_or_si256(bits, quiet));
    __m256 nan = _mm256_cmp_ps(x, x, _CMP_UNORD_Q);
    __m256 code = _mm256_blendv_ps(_mm256_castsi256_ps(rounded), silenced, nan);
    return _mm256_srli_epi32(_mm256_castps_si256(code), 16);
}

static inline void vec_to_bf16(tt_bf16 *y, const vec *part)
{
    /* packing works within halves: a0 b0 a1 b1 */
    __m256i codes = _mm256_packus_epi32(vec_code_of(part[0]), vec_code_of(part[1]));
    _mm256_storeu_si256((void *)y, _mm256_permute4x64_epi64(codes, 0xd8));
}

static inline vec_bits vec_of_halves(const uint16_t *x)
{
    return (vec_bits)_mm256_cvtepi16_epi32(_mm_loadu_si128((const void *)x));
}

static inline void vec_to_halves(uint16_t *y, const vec_bits *part)
{
    __m256i halves = _mm256_packus_epi32((__m256i)part[0], (__m256i)part[1]);
    _mm256_storeu_si256((void *)y, _mm256_permute4x64_epi64(halves, 0xd8));
}

/* These instructions take and give subnormal FP16 numbers whatever the mode of the thread. */
static inline vec vec_of_fp16(const tt_fp16 *x)
{
    return _mm256_cvtph_ps(_mm_loadu_si128((const void *)x));
}

static inline void vec_to_fp16(tt_fp16 *y, const vec *part)
{
    _mm_storeu_si128((void *)y, _mm256_cvtps_ph(part[0], _MM_FROUND_TO_NEAREST_INT));
    _mm_storeu_si128((void *)(y + 8), _mm256_cvtps_ph(part[1], _MM_FROUND_TO_NEAREST_INT));
}

static inline void vec_to_doubles(vec v, vec_doubles *low, vec_doubles *high)
{
    *low = _mm256_cvtps_pd(_mm256_castps256_ps128(v));
    *high = _mm256_cvtps_pd(_mm256_extractf128_ps(v, 1));
}

static inline vec vec_of_doubles(vec_doubles low, vec_doubles high)
{
    return _mm256_insertf128_ps(_mm256_castps128_ps256(_mm256_cvtpd_ps(low)), _mm256_cvtpd_ps(high),
                                1);
}

static inline vec_words vec_multiply(vec_words a, vec_words b)
{
    return (vec_words)_mm256_mul_epu32((__m256i)a, (__m256i)b);
}

static inline vec_words vec_spread(void)
{
    return (vec_words){0, 2, 1, 3};
}

static inline vec_words vec_pairs_low(vec_words a, vec_words b)
{
    return (vec_words)_mm256_unpacklo_epi64((__m256i)a, (__m256i)b);
}

static inline vec_words vec_pairs_high(vec_words a, vec_words b)
{
    return (vec_words)_mm256_unpackhi_epi64((__m256i)a, (__m256i)b);
}

#endif
