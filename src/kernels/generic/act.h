/* act.h: the storage format of one instance of the portable kernels, and blocks of it as FP32.
 *
 * The bodies in generic/ are written once. A file that includes them first defines TT_ACT_BF16 or
 * TT_ACT_FP32 and gets a table for that format, compiled with that file's flags: the reference under
 * the baseline flags, the AVX2 one under -mavx2 -mfma. All functions here are static, so that code
 * compiled for an ISA never serves a caller of the baseline.
 *
 * Element-wise bodies work on blocks of BLOCK elements held as FP32; a last partial block is padded
 * and goes through the same instructions. So an element's result does not depend on where a row, a
 * thread's share or a ZeRO piece begins or ends, however the compiler vectorises and contracts.
 *
 * Reads tutti/numerics/format.h; next: exp.h, multiply.h, dropout.h, then one file per noun. */
#ifndef TUTTI_KERNELS_GENERIC_ACT_H
#define TUTTI_KERNELS_GENERIC_ACT_H

#include <stdint.h>
#include <string.h>

#include "kernels/kernels_impl.h"
#include "tutti/base/narrow.h"
#include "tutti/base/threads.h"
#include "tutti/kernels/kernels.h"

enum {
    BLOCK = 64, /* elements per block */
    LANES = 16  /* partial sums of a sum over a row, added pairwise at its end */
};

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
#elif defined(TT_ACT_FP32)
typedef float act;
static inline float f32_of_act(act x)
{
    return x;
}
static inline act act_of_f32(float x)
{
    return x;
}
#else
#error "define TT_ACT_BF16 or TT_ACT_FP32 before including the portable kernels"
#endif

/* f[BLOCK] out = x[n], 0 beyond n. n may exceed BLOCK. */
static inline void block_load(float *restrict f, const act *restrict x, int64_t n)
{
    if (n >= BLOCK) {
        for (int i = 0; i < BLOCK; i++) {
            f[i] = f32_of_act(x[i]);
        }
    } else {
        for (int i = 0; i < BLOCK; i++) {
            f[i] = i < n ? f32_of_act(x[i]) : 0;
        }
    }
}

/* y[min(n, BLOCK)] out = f[BLOCK] rounded. */
static inline void block_store(act *restrict y, const float *restrict f, int64_t n)
{
    if (n >= BLOCK) {
        for (int i = 0; i < BLOCK; i++) {
            y[i] = act_of_f32(f[i]);
        }
    } else {
        for (int i = 0; i < n; i++) {
            y[i] = act_of_f32(f[i]);
        }
    }
}

/* The same for arrays that are FP32 in every table. */
static inline void block_load_f32(float *restrict f, const float *restrict x, int64_t n)
{
    if (n >= BLOCK) {
        memcpy(f, x, BLOCK * sizeof *f);
    } else {
        memset(f, 0, BLOCK * sizeof *f);
        memcpy(f, x, tt_size(n) * sizeof *f);
    }
}

static inline void block_store_f32(float *restrict y, const float *restrict f, int64_t n)
{
    memcpy(y, f, tt_size(n < BLOCK ? n : BLOCK) * sizeof *y);
}

/* Zeroes the padding of a partial block. */
static inline void block_clear(float *f, int64_t n)
{
    for (int64_t i = n; i < BLOCK; i++) {
        f[i] = 0;
    }
}

/* lanes[LANES] inout += f[BLOCK]. */
static inline void lanes_add(float *restrict lanes, const float *restrict f)
{
    for (int i = 0; i < BLOCK; i += LANES) {
        for (int l = 0; l < LANES; l++) {
            lanes[l] += f[i + l];
        }
    }
}

static inline float lanes_total(const float *lanes)
{
    float sum[LANES];
    memcpy(sum, lanes, sizeof sum);
    for (int width = LANES / 2; width > 0; width /= 2) {
        for (int l = 0; l < width; l++) {
            sum[l] += sum[l + width];
        }
    }
    return sum[0];
}

static inline int64_t blocks_of(int64_t n)
{
    return (n + BLOCK - 1) / BLOCK;
}

#endif
