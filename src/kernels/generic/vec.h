/* vec.h: the vector vocabulary: what element-wise and row-wise kernels are written in.
 *
 * A `vec` is VEC floats, as wide as the instruction set has them; +, -, *, / and comparisons come
 * from the compiler. A `wide` is LANES floats in PARTS vecs: one step of every loop and, in a sum,
 * LANES partial sums, so that all instruction sets add in the same order. The few operations that a
 * compiler does not find by itself are the ISA's: isa/vec_avx2.h and isa/vec_avx512.h define them
 * and are included before this file; without one of them the portable definitions below serve.
 *
 * From the ISA: VEC, vec, vec_bits, vec_ints, vec_words, vec_doubles, and
 *     vec_fma(a, b, c)             a b + c, rounded once where the ISA has the instruction
 *     vec_max(a, b), vec_min(a, b) the greater, the smaller; b when one of them is NaN
 *     vec_sqrt(a)                  correctly rounded
 *     vec_below(x, y, a, b)        x < y ? a : b
 *     vec_kept(word, least, x)     word >= least ? x : 0, unsigned
 *     vec_of_bf16(x)               VEC codes as floats
 *     vec_to_bf16(y, part)         LANES floats as codes: nearest, ties to even, NaN quiet
 *     vec_of_halves(x)             VEC 16-bit integers, with their sign, as words
 *     vec_to_halves(y, part)       LANES words below 2^16 as 16-bit integers
 *     vec_of_fp16(x), vec_to_fp16(y, part)  the same for FP16
 *     vec_to_doubles(v, low, high) the lower and the upper half of v
 *     vec_of_doubles(low, high)    the other way: the nearest floats
 *     vec_multiply(a, b)           64-bit products of the lower halves of the 64-bit elements
 *     vec_pairs_low, vec_pairs_high(a, b)   elements 0, 2, .. and 1, 3, .. of a and b, alternating
 *     vec_spread()                 0, 1, .. in the order that comes out right when the pairs of a and
 *                                  b follow each other, low before high
 *
 * Reads tutti/numerics/format.h; next: act.h loads and stores whole steps, exp.h computes with them. */
#ifndef TUTTI_KERNELS_GENERIC_VEC_H
#define TUTTI_KERNELS_GENERIC_VEC_H

#include <stdint.h>
#include <string.h>

#include "tutti/numerics/format.h"

enum { LANES = 16 }; /* floats of a step; partial sums of a sum over a row */

#ifndef TUTTI_KERNELS_ISA_VEC
enum { VEC = 4 };
typedef float vec __attribute__((vector_size(16)));
typedef uint32_t vec_bits __attribute__((vector_size(16)));
typedef int32_t vec_ints __attribute__((vector_size(16)));
typedef uint16_t vec_shorts __attribute__((vector_size(8)));
typedef uint64_t vec_words __attribute__((vector_size(16)));
typedef double vec_doubles __attribute__((vector_size(16)));

static inline vec vec_fma(vec a, vec b, vec c)
{
    return a * b + c;
}

static inline vec vec_select(vec_bits mask, vec a, vec b)
{
    return (vec)((mask & (vec_bits)a) | (~mask & (vec_bits)b));
}

static inline vec vec_max(vec a, vec b)
{
    return vec_select((vec_bits)(a > b), a, b);
}

static inline vec vec_min(vec a, vec b)
{
    return vec_select((vec_bits)(a < b), a, b);
}

static inline vec vec_below(vec x, vec y, vec a, vec b)
{
    return vec_select((vec_bits)(x < y), a, b);
}

static inline vec vec_sqrt(vec a)
{
    for (int i = 0; i < VEC; i++) {
        a[i] = __builtin_sqrtf(a[i]);
    }
    return a;
}

static inline vec vec_kept(vec_bits word, uint32_t least, vec x)
{
    return (vec)((vec_bits)(word >= least) & (vec_bits)x);
}

static inline vec vec_of_bf16(const tt_bf16 *x)
{
    vec_shorts codes;
    memcpy(&codes, x, sizeof codes);
    return (vec)(__builtin_convertvector(codes, vec_bits) << 16);
}

static inline void vec_to_bf16(tt_bf16 *y, const vec *part)
{
    for (int i = 0; i < LANES; i++) {
        y[i] = tt_bf16_of_f32(part[i / VEC][i % VEC]);
    }
}

static inline vec_bits vec_of_halves(const uint16_t *x)
{
    int16_t halves __attribute__((vector_size(2 * VEC)));
    memcpy(&halves, x, sizeof halves);
    return __builtin_convertvector(halves, vec_bits);
}

static inline void vec_to_halves(uint16_t *y, const vec_bits *part)
{
    for (int i = 0; i < LANES; i++) {
        y[i] = (uint16_t)part[i / VEC][i % VEC];
    }
}

/* As tt_f32_of_fp16 has it. */
static inline vec vec_of_fp16(const tt_fp16 *x)
{
    vec_shorts codes;
    memcpy(&codes, x, sizeof codes);
    const vec_bits code = __builtin_convertvector(codes, vec_bits);
    const vec_bits size = code & 0x7fffu, sign = (code & 0x8000u) << 16;
    const vec_bits normal = (size << 13) + (112u << 23);
    const vec_bits quiet = (vec_bits)(size > 0x7c00u) & 0x00400000u;
    const vec tiny = __builtin_convertvector((vec_ints)size, vec) * 0x1p-24f;
    vec y = vec_select((vec_bits)(size < 0x400u), tiny, (vec)normal);
    y = vec_select((vec_bits)(size < 0x7c00u), y, (vec)(size << 13 | 0x7f800000u | quiet));
    return (vec)((vec_bits)y | sign);
}

/* As tt_fp16_of_f32 has it; a subnormal is rounded by an addition, whose result is normal. */
static inline void vec_to_fp16(tt_fp16 *y, const vec *part)
{
    for (int p = 0; p < LANES / VEC; p++) {
        const vec_bits bits = (vec_bits)part[p], size = bits & 0x7fffffffu;
        const vec_bits normal = (size - (112u << 23) + 0xfffu + ((size >> 13) & 1u)) >> 13;
        const vec_bits tiny = (vec_bits)((vec)size + 0.5f) - 0x3f000000u;
        const vec_bits nan = (vec_bits)(size > 0x7f800000u);
        const vec_bits special = 0x7c00u | (nan & (0x200u | ((size >> 13) & 0x3ffu)));
        vec_bits code =
            (vec_bits)vec_select((vec_bits)(size < 0x38800000u), (vec)tiny, (vec)normal);
        code = (vec_bits)vec_select((vec_bits)(size < 0x47800000u), (vec)code, (vec)special);
        code |= (bits >> 16) & 0x8000u;
        const vec_shorts codes = __builtin_convertvector(code, vec_shorts);
        memcpy(y + p * VEC, &codes, sizeof codes);
    }
}

static inline void vec_to_doubles(vec v, vec_doubles *low, vec_doubles *high)
{
    *low = (vec_doubles){(double)v[0], (double)v[1]};
    *high = (vec_doubles){(double)v[2], (double)v[3]};
}

static inline vec vec_of_doubles(vec_doubles low, vec_doubles high)
{
    return (vec){(float)low[0], (float)low[1], (float)high[0], (float)high[1]};
}

static inline vec_words vec_multiply(vec_words a, vec_words b)
{
    return (a & 0xffffffffu) * (b & 0xffffffffu);
}

static inline vec_words vec_spread(void)
{
    return (vec_words){0, 1};
}

static inline vec_words vec_pairs_low(vec_words a, vec_words b)
{
    return (vec_words){a[0], b[0]};
}

static inline vec_words vec_pairs_high(vec_words a, vec_words b)
{
    return (vec_words){a[1], b[1]};
}
#endif

enum { PARTS = LANES / VEC, DOUBLES = VEC / 2 };

typedef struct wide {
    vec part[PARTS];
} wide;

/* Repeats what follows for each part of a step; the compiler unrolls it. */
#define EACH_PART(p) _Pragma("GCC unroll 4") for (int p = 0; p < PARTS; p++)

/* The lanes of `a` where the mask is set, of b elsewhere. */
static inline vec_bits vec_where(vec_bits mask, vec_bits a, vec_bits b)
{
    return (mask & a) | (~mask & b);
}

/* The same number everywhere. */
static inline vec vec_all(float x)
{
    return x - (vec){0};
}

static inline vec vec_load(const float *x)
{
    vec v;
    memcpy(&v, x, sizeof v);
    return v;
}

static inline void vec_store(float *y, vec v)
{
    memcpy(y, &v, sizeof v);
}

/* tt_tf32_of_f32 of each element. */
static inline vec vec_tf32(vec x)
{
    const vec_bits bits = (vec_bits)x, nan = (vec_bits)(x != x);
    const vec_bits rounded = bits + 0xfffu + ((bits >> 13) & 1u), quiet = bits | 0x00400000u;
    return (vec)(((nan & quiet) | (~nan & rounded)) & 0xffffe000u);
}

/* Zero in all lanes. */
static inline wide wide_zero(void)
{
    wide w;
    EACH_PART(p)
    {
        w.part[p] = (vec){0};
    }
    return w;
}

static inline wide wide_of(const float *x)
{
    wide w;
    EACH_PART(p)
    {
        w.part[p] = vec_load(x + p * VEC);
    }
    return w;
}

static inline void wide_to(float *y, wide w)
{
    EACH_PART(p)
    {
        vec_store(y + p * VEC, w.part[p]);
    }
}

/* The first n lanes as they are, 0 in the others. */
static inline wide wide_clear(wide w, int64_t n)
{
    if (n < LANES) {
        float f[LANES];
        wide_to(f, w);
        for (int64_t i = n; i < LANES; i++) {
            f[i] = 0;
        }
        w = wide_of(f);
    }
    return w;
}

/* The sum of the lanes, added pairwise. */
static inline float wide_total(wide w)
{
    float sum[LANES];
    wide_to(sum, w);
    for (int width = LANES / 2; width > 0; width /= 2) {
        for (int l = 0; l < width; l++) {
            sum[l] += sum[l + width];
        }
    }
    return sum[0];
}

#endif
