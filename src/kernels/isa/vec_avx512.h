/* vec_avx512.h: the vector vocabulary of generic/vec.h, said in AVX-512 (F, BW, VL, DQ).
 *
 * TT_EMULATE_AVX512, set by a test, compiles it through SIMDe. */
#ifndef TUTTI_KERNELS_ISA_VEC
#define TUTTI_KERNELS_ISA_VEC

#ifdef TT_EMULATE_AVX512
#include "kernels/isa/emulate_avx512.h"
#else
#include <immintrin.h>
#endif
#include <stdint.h>

#include "tutti/numerics/format.h"

enum { VEC = 16 };
typedef float vec __attribute__((vector_size(64)));
typedef uint32_t vec_bits __attribute__((vector_size(64)));
typedef int32_t vec_ints __attribute__((vector_size(64)));
typedef uint64_t vec_words __attribute__((vector_size(64)));
typedef double vec_doubles __attribute__((vector_size(64)));

static inline vec vec_fma(vec a, vec b, vec c)
{
    return (vec)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
}

static inline vec vec_max(vec a, vec b)
{
    return (vec)_mm512_max_ps((__m512)a, (__m512)b);
}

static inline vec vec_min(vec a, vec b)
{
    return (vec)_mm512_min_ps((__m512)a, (__m512)b);
}

static inline vec vec_sqrt(vec a)
{
    return (vec)_mm512_sqrt_ps((__m512)a);
}

static inline vec vec_below(vec x, vec y, vec a, vec b)
{
    return (vec)_mm512_mask_blend_ps(_mm512_cmp_ps_mask((__m512)x, (__m512)y, _CMP_LT_OQ),
                                     (__m512)b, (__m512)a);
}

static inline vec vec_kept(vec_bits word, uint32_t least, vec x)
{
    __m512i w = (__m512i)word, greater = _mm512_max_epu32(w, _mm512_set1_epi32((int)least));
    return (vec)_mm512_maskz_mov_ps(_mm512_cmpeq_epi32_mask(greater, w), (__m512)x);
}

/* Code i becomes the upper half of element i. */
static inline vec vec_of_bf16(const tt_bf16 *x)
{
    const vec_bits from = (vec_bits){0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15} << 16;
    __m512i codes = _mm512_castsi256_si512(_mm256_loadu_si256((const void *)x));
    return (vec)_mm512_maskz_permutexvar_epi16(0xaaaaaaaau, (__m512i)from, codes);
}

static inline void vec_to_bf16(tt_bf16 *y, const vec *part)
{
    const vec_bits upper = {0x30001,  0x70005,  0xb0009,  0xf000d,
                            0x130011, 0x170015, 0x1b0019, 0x1f001d};
    const __m512i bias = _mm512_set1_epi32(0x7fff), quiet = _mm512_set1_epi32(0x00400000);
    __m512 x = (__m512)part[0];
    __m512i bits = _mm512_castps_si512(x);
    __m512i odd = _mm512_srli_epi32(_mm512_slli_epi32(bits, 15), 31);
    __m512i rounded = _mm512_add_epi32(_mm512_add_epi32(bits, bias), odd);
    __m512i code =
        _mm512_mask_or_epi32(rounded, _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q), bits, quiet);
    __m512i codes = _mm512_permutexvar_epi16((__m512i)upper, code);
    _mm256_storeu_si256((void *)y, _mm512_castsi512_si256(codes));
}

static inline vec_bits vec_of_halves(const uint16_t *x)
{
    return (vec_bits)((vec_ints)vec_of_bf16(x) >> 16);
}

static inline void vec_to_halves(uint16_t *y, const vec_bits *part)
{
    const vec_bits lower = {0x20000,  0x60004,  0xa0008,  0xe000c,
                            0x120010, 0x160014, 0x1a0018, 0x1e001c};
    __m512i halves = _mm512_permutexvar_epi16((__m512i)lower, (__m512i)part[0]);
    _mm256_storeu_si256((void *)y, _mm512_castsi512_si256(halves));
}

/* These instructions take and give subnormal FP16 numbers whatever the mode of the thread. */
static inline vec vec_of_fp16(const tt_fp16 *x)
{
    return (vec)_mm512_cvtph_ps(_mm256_loadu_si256((const void *)x));
}

static inline void vec_to_fp16(tt_fp16 *y, const vec *part)
{
    __m256i codes = _mm512_cvtps_ph((__m512)part[0], _MM_FROUND_TO_NEAREST_INT);
    _mm256_storeu_si256((void *)y, codes);
}

static inline void vec_to_doubles(vec v, vec_doubles *low, vec_doubles *high)
{
    __m256d upper = _mm512_extractf64x4_pd((__m512d)v, 1);
    *low = (vec_doubles)_mm512_cvtps_pd(_mm512_castps512_ps256((__m512)v));
    *high = (vec_doubles)_mm512_cvtps_pd((__m256)upper);
}

static inline vec vec_of_doubles(vec_doubles low, vec_doubles high)
{
    __m512d lower = (__m512d)_mm512_castps256_ps512(_mm512_cvtpd_ps((__m512d)low));
    return (vec)_mm512_insertf64x4(lower, (__m256d)_mm512_cvtpd_ps((__m512d)high), 1);
}

static inline vec_words vec_multiply(vec_words a, vec_words b)
{
    return (vec_words)_mm512_mul_epu32((__m512i)a, (__m512i)b);
}

static inline vec_words vec_spread(void)
{
    return (vec_words){0, 4, 1, 5, 2, 6, 3, 7};
}

static inline vec_words vec_pairs_low(vec_words a, vec_words b)
{
    return (vec_words)_mm512_unpacklo_epi64((__m512i)a, (__m512i)b);
}

static inline vec_words vec_pairs_high(vec_words a, vec_words b)
{
    return (vec_words)_mm512_unpackhi_epi64((__m512i)a, (__m512i)b);
}

#endif
