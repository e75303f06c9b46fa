/* emulate_avx512.h: AVX-512 through SIMDe, for tests on processors without it, and what SIMDe may lack.
 *
 * Included under TT_EMULATE_AVX512 instead of the compiler's intrinsics. */
#ifndef TUTTI_KERNELS_EMULATE_AVX512_H
#define TUTTI_KERNELS_EMULATE_AVX512_H

#define SIMDE_ENABLE_NATIVE_ALIASES
#include <simde/x86/avx512.h>
#include <simde/x86/f16c.h>
#include <string.h>

#include "tutti/numerics/format.h"

#ifndef _mm512_cvtps_pd
#define _mm512_cvtps_pd(x) __builtin_convertvector(x, __m512d)
#define _mm512_cvtpd_ps(x) __builtin_convertvector(x, __m256)
#endif

#ifndef _mm512_cvtph_ps
static inline __m512 emulated_cvtph_ps(__m256i x)
{
    tt_fp16 code[16];
    float value[16];
    memcpy(code, &x, sizeof code);
    for (int i = 0; i < 16; i++) {
        value[i] = tt_f32_of_fp16(code[i]);
    }
    return _mm512_loadu_ps(value);
}
#define _mm512_cvtph_ps(x) emulated_cvtph_ps(x)
#endif

#ifndef _mm512_cvtps_ph
static inline __m256i emulated_cvtps_ph(__m512 x)
{
    tt_fp16 code[16];
    float value[16];
    _mm512_storeu_ps(value, x);
    for (int i = 0; i < 16; i++) {
        code[i] = tt_fp16_of_f32(value[i]);
    }
    return _mm256_loadu_si256((const void *)code);
}
#define _mm512_cvtps_ph(x, mode) emulated_cvtps_ph(x)
#endif

#endif
