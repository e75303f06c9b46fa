/* act.h: the storage format of one instance of the portable kernels, and blocks of it as FP32.
 *
 * The bodies in generic/ are written once. A file that includes them first defines TT_ACT_BF16,
 * TT_ACT_FP16, TT_ACT_FP32 or TT_ACT_TF32 and gets a table for that format, compiled with that file's
 * flags: the reference under the baseline flags, the AVX2 one under -mavx2 -mfma, .. TF32 is FP32 in
 * memory; it differs in what enters a matrix product (factor_of_act, vec_factor). All functions here
 * are static, so that code compiled for an ISA never serves a caller of the baseline.
 *
 * Bodies go through rows in steps of LANES elements held as FP32 (a `wide`); a last partial step is
 * padded and goes through the same instructions. So an element's result does not depend on where a
 * row, a thread's share or a ZeRO piece begins or ends, on whatever width; nothing is fused but by name.
 * Where tiles of floats are at hand anyway, a block of BLOCK floats serves instead.
 *
 * Reads vec.h; next: exp.h, multiply.h, dropout.h, then one file per noun. */
#ifndef TUTTI_KERNELS_GENERIC_ACT_H
#define TUTTI_KERNELS_GENERIC_ACT_H

#include <stdint.h>
#include <string.h>

#include "kernels/generic/vec.h"
#include "kernels/kernels_impl.h"
#include "tutti/base/narrow.h"
#include "tutti/base/threads.h"
#include "tutti/kernels/kernels.h"

enum { BLOCK = 64 }; /* floats of a block: whole steps */

/* act; and for whole vectors: vec_of_act(x) is VEC elements as floats, vec_to_act(y, part) the other
 * way for LANES. */
#if defined(TT_ACT_BF16)
typedef tt_bf16 act;
static inline float f32_of_act(act x)
{
    return tt_f32_of_bf16(x);
}
static inline act act_of_f32(float x)
{
    return tt_bf16_of_f32(x);
}
#define vec_of_act vec_of_bf16
#define vec_to_act vec_to_bf16
#elif defined(TT_ACT_FP16)
typedef tt_fp16 act;
static inline float f32_of_act(act x)
{
    return tt_f32_of_fp16(x);
}
static inline act act_of_f32(float x)
{
    return tt_fp16_of_f32(x);
}
#define vec_of_act vec_of_fp16
#define vec_to_act vec_to_fp16
#elif defined(TT_ACT_FP32) || defined(TT_ACT_TF32)
typedef float act;
static inline float f32_of_act(act x)
{
    return x;
}
static inline act act_of_f32(float x)
{
    return x;
}
#define vec_of_act vec_load
static inline void vec_to_act(act *y, const vec *part)
{
    EACH_PART(p)
    {
        vec_store(y + p * VEC, part[p]);
    }
}
#else
#error "define TT_ACT_BF16, _FP16, _FP32 or _TF32 before including the portable kernels"
#endif

/* A number as it enters a matrix product. Numbers of the two-byte formats enter as they are: FP32
 * holds them and the products of any two of BF16's or FP16's. TF32 is rounded to here. */
#if defined(TT_ACT_TF32)
static inline float factor_of_act(act x)
{
    return tt_tf32_of_f32(x);
}
static inline vec vec_factor(vec x)
{
    return vec_tf32(x);
}
#else
static inline float factor_of_act(act x)
{
    return f32_of_act(x);
}
static inline vec vec_factor(vec x)
{
    return x;
}
#endif

/* What a partial step needs: y[n] = x[n], n < LANES. A loop of volatile stores stays a loop: would it
 * become a call of memcpy, the compiler would keep the sums of the loop around it in memory. */
#define COPY_FEW(type, y, x, n)                                   \
    do {                                                          \
        volatile type *copy_to = y;                               \
        _Pragma("GCC unroll 1") for (int64_t i = 0; i < (n); i++) \
        {                                                         \
            copy_to[i] = (x)[i];                                  \
        }                                                         \
    } while (0)

/* The first n of LANES floats, or all; 0 in the other lanes. */
static inline wide wide_load(const float *x, int64_t n)
{
    float few[LANES] = {0};
    if (n < LANES) {
        COPY_FEW(float, few, x, n);
        x = few;
    }
    return wide_of(x);
}

static inline void wide_store(float *y, wide w, int64_t n)
{
    if (n >= LANES) {
        wide_to(y, w);
    } else {
        float few[LANES];
        wide_to(few, w);
        COPY_FEW(float, y, few, n);
    }
}

/* The same from and to the storage format. */
static inline wide wide_load_act(const act *x, int64_t n)
{
    wide w;
    act few[LANES] = {0};
    if (n < LANES) {
        COPY_FEW(act, few, x, n);
        x = few;
    }
    EACH_PART(p)
    {
        w.part[p] = vec_of_act(x + p * VEC);
    }
    return w;
}

static inline void wide_store_act(act *y, wide w, int64_t n)
{
    if (n >= LANES) {
        vec_to_act(y, w.part);
    } else {
        act few[LANES];
        vec_to_act(few, w.part);
        COPY_FEW(act, y, few, n);
    }
}

/* Loops over rows that lie too far apart for the processor to look ahead by itself ask the cache for
 * the row that they need so many rows later. */
enum { ROWS_AHEAD = 16 };

/* Asks the cache for so many bytes; they may lie past their array: a prefetch touches nothing. */
static inline void bytes_ahead(const void *x, int64_t bytes)
{
    for (int64_t i = 0; i < bytes; i += 64) {
        __builtin_prefetch((const char *)x + i);
    }
}

/* The same for x[n]. */
static inline void act_ahead(const act *x, int64_t n)
{
    bytes_ahead(x, n * (int64_t)sizeof *x);
}

/* f[BLOCK] out = x[n], 0 beyond n. n may exceed BLOCK. */
static inline void block_load(float *restrict f, const act *restrict x, int64_t n)
{
    if (n >= BLOCK) { /* straight on, so that f can stay in registers */
#pragma GCC unroll 4
        for (int i = 0; i < BLOCK; i += LANES) {
            wide_to(f + i, wide_load_act(x + i, LANES));
        }
    } else {
        for (int i = 0; i < BLOCK; i += LANES) {
            wide_to(f + i, wide_load_act(x + i, n - i));
        }
    }
}

/* y[min(n, BLOCK)] out = f[BLOCK] rounded. */
static inline void block_store(act *restrict y, const float *restrict f, int64_t n)
{
    if (n >= BLOCK) {
#pragma GCC unroll 4
        for (int i = 0; i < BLOCK; i += LANES) {
            wide_store_act(y + i, wide_of(f + i), LANES);
        }
    } else {
        for (int i = 0; i < n; i += LANES) {
            wide_store_act(y + i, wide_of(f + i), n - i);
        }
    }
}

/* Zeroes the padding of a partial block. */
static inline void block_clear(float *f, int64_t n)
{
    for (int64_t i = n; i < BLOCK; i++) {
        f[i] = 0;
    }
}

static inline int64_t blocks_of(int64_t n)
{
    return (n + BLOCK - 1) / BLOCK;
}

#endif
