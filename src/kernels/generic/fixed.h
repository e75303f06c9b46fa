/* fixed.h: where a sum over the batch is accumulated: floats, or integers in fixed point.
 *
 * grad_add and grad_add_block bring summands to the accumulators that a tt_grad has, grad_load reads
 * them. As integers they are those of tt_fixed_of, bit by bit, on every width of vector, so a partial
 * step may go element by element.
 *
 * Out of range is looked for without a branch: floats without their sign order as their bits do, NaN
 * behind infinity, so the limit minus the summand, both as integers, is negative for what is lost.
 * These signs are collected over a whole block and tested once; only then somebody counts.
 *
 * Threads may add to different elements; *lost is shared.
 *
 * Reads vec.h, act.h, tutti/numerics/fixed.h; next: gemm.h, column_sums.h, norm.h, embed.h, adamw.h. */
#ifndef TUTTI_KERNELS_GENERIC_FIXED_H
#define TUTTI_KERNELS_GENERIC_FIXED_H

#include <math.h>

#include "kernels/generic/act.h"

/* What a loop over summands keeps in registers. */
typedef struct fixed_loop {
    vec_doubles middle;
    vec_bits limit;   /* bits of the largest summand */
    vec_bits outside; /* sign bits: something was lost */
} fixed_loop;

static inline fixed_loop fixed_begin(const tt_fixed *point, float limit)
{
    const vec most = vec_all(limit);
    return (fixed_loop){point->middle - (vec_doubles){0}, (vec_bits)most, (vec_bits){0}};
}

static inline bool fixed_lost_any(vec_bits outside)
{
    uint32_t all = 0;
    for (int i = 0; i < VEC; i++) {
        all |= outside[i];
    }
    return all >> 31 != 0;
}

/* Counts what is lost of x[rows, cols] (rows `stride` apart), one by one. */
__attribute__((cold)) static inline void fixed_count_lost(const tt_grad *g, const float *x,
                                                          int64_t stride, int64_t rows,
                                                          int64_t cols, float limit)
{
    int64_t lost = 0;
    for (int64_t m = 0; m < rows; m++) {
        for (int64_t n = 0; n < cols; n++) {
            lost += !(fabsf(x[m * stride + n]) <= limit);
        }
    }
#pragma omp atomic
    *g->lost += lost;
}

/* q[DOUBLES] += x as integers. Unsigned, because a sum with a lost summand may overflow. */
static inline void fixed_add_doubles(int64_t *q, vec_doubles x, vec_doubles middle)
{
    vec_words sum;
    memcpy(&sum, q, sizeof sum);
    sum += (vec_words)(x + middle) - (vec_words)middle;
    memcpy(q, &sum, sizeof sum);
}

/* q[LANES] += x as integers. */
static inline void fixed_add_wide(fixed_loop *loop, int64_t *q, wide x)
{
    EACH_PART(p)
    {
        vec_doubles low, high;
        vec_to_doubles(x.part[p], &low, &high);
        loop->outside |= loop->limit - ((vec_bits)x.part[p] & 0x7fffffffu);
        fixed_add_doubles(q + p * VEC, low, loop->middle);
        fixed_add_doubles(q + p * VEC + DOUBLES, high, loop->middle);
    }
}

/* q[n] += x[n] as integers, n < LANES. */
static inline void fixed_add_few(fixed_loop *loop, const tt_fixed *point, int64_t *q,
                                 const float *x, int64_t n)
{
    float few[LANES] = {0};
#pragma GCC unroll 1
    for (int64_t i = 0; i < n; i++) {
        few[i] = x[i];
        q[i] = (int64_t)((uint64_t)q[i] + (uint64_t)tt_fixed_of(point, few[i]));
    }
    EACH_PART(p)
    {
        loop->outside |= loop->limit - ((vec_bits)vec_load(few + p * VEC) & 0x7fffffffu);
    }
}

/* Largest magnitude of a summand over `rows` rows; floats have none. */
static inline float grad_limit(const tt_grad *g, int64_t rows)
{
    return g->fixed != NULL ? tt_fixed_limit(g->point, rows) : INFINITY;
}

/* Accumulators at .. at + n - 1, n or LANES of them, += x; a summand is at most `limit`. */
static inline void grad_add(const tt_grad *g, int64_t at, wide x, int64_t n, float limit)
{
    if (g->fixed == NULL) {
        wide sum = wide_load(g->sum + at, n);
        EACH_PART(p)
        {
            sum.part[p] += x.part[p];
        }
        wide_store(g->sum + at, sum, n);
        return;
    }
    float lane[LANES];
    fixed_loop loop = fixed_begin(g->point, limit);
    if (n >= LANES) {
        fixed_add_wide(&loop, g->fixed + at, x);
    } else {
        wide_to(lane, x);
        fixed_add_few(&loop, g->point, g->fixed + at, lane, n);
    }
    if (fixed_lost_any(loop.outside)) {
        wide_to(lane, x);
        fixed_count_lost(g, lane, LANES, 1, tt_min(n, LANES), limit);
    }
}

/* The same for rows x cols accumulators from `at` on, rows `stride` apart, += x, rows `x_stride`
 * apart. */
static inline void grad_add_block(const tt_grad *g, int64_t at, int64_t stride,
                                  const float *restrict x, int64_t x_stride, int64_t rows,
                                  int64_t cols, float limit)
{
    if (g->fixed == NULL) {
        for (int64_t m = 0; m < rows; m++) {
            float *restrict sum = g->sum + at + m * stride;
            bytes_ahead(sum + ROWS_AHEAD * stride, cols * (int64_t)sizeof *sum);
            for (int64_t n = 0; n < cols; n++) {
                sum[n] += x[m * x_stride + n];
            }
        }
        return;
    }
    fixed_loop loop = fixed_begin(g->point, limit);
    for (int64_t m = 0; m < rows; m++) {
        int64_t *restrict q = g->fixed + at + m * stride;
        const float *from = x + m * x_stride;
        int64_t n = 0;
        bytes_ahead(q + ROWS_AHEAD * stride, cols * (int64_t)sizeof *q);
        for (; n + LANES <= cols; n += LANES) {
            fixed_add_wide(&loop, q + n, wide_of(from + n));
        }
        if (n < cols) {
            fixed_add_few(&loop, g->point, q + n, from + n, cols - n);
        }
    }
    if (fixed_lost_any(loop.outside)) {
        fixed_count_lost(g, x, x_stride, rows, cols, limit);
    }
}

/* The nearest doubles. The upper half is taken as a multiple of 2^32 beside 2^84, the lower as a whole
 * number beside 2^52, by writing them into the fractions of these; one addition then rounds. */
static inline vec_doubles fixed_doubles(const int64_t *q)
{
    const vec_words two52 = (vec_words)(0x1p52 - (vec_doubles){0});
    const vec_words two84 = (vec_words)(0x1p84 - (vec_doubles){0});
    vec_words word;
    memcpy(&word, q, sizeof word);
    const vec_words low = (word & 0xffffffffu) | two52;
    const vec_words high = ((word ^ UINT64_C(1) << 63) >> 32) | two84;
    return ((vec_doubles)high - (0x1p84 + 0x1p63 + 0x1p52)) + (vec_doubles)low;
}

/* Accumulators at .. at + n - 1, n or LANES of them, as floats; 0 in the other lanes. */
static inline wide grad_load(const tt_grad *g, int64_t at, int64_t n)
{
    if (g->fixed == NULL) {
        return wide_load(g->sum + at, n);
    }
    const int64_t *q = g->fixed + at;
    if (n < LANES) {
        float few[LANES] = {0};
#pragma GCC unroll 1
        for (int64_t i = 0; i < n; i++) {
            few[i] = tt_fixed_to(g->point, q[i]);
        }
        return wide_of(few);
    }
    wide w;
    EACH_PART(p)
    {
        w.part[p] = vec_of_doubles(fixed_doubles(q + p * VEC) * g->point->unit,
                                   fixed_doubles(q + p * VEC + DOUBLES) * g->point->unit);
    }
    return w;
}

#endif
