/* exp.h: the exponential and the logistic function.
 *
 * exp(x) = 2^n exp(r), n = round(x / ln 2), |r| <= ln 2 / 2; exp(r) = 1 + r + r^2 q(r), where q is
 * the polynomial of degree 4 that is best for the relative error (5 % of half a unit). No branches
 * and no calls.
 *
 * Bounds, in units in the last place of the result, for every float, with and without fusing:
 *     vec_exp              EXP_ULPS (measured: 1.0095), and exp(0) = 1
 *     vec_logistic_inside  LOGISTIC_ULPS (measured: 2.481), in its range
 * Exponentials below the smallest normal number are 0; overflow is infinity; exp(-inf) = 0, exp(inf)
 * = inf; NaN gives NaN. A test holds them to this. */
#ifndef TUTTI_KERNELS_GENERIC_EXP_H
#define TUTTI_KERNELS_GENERIC_EXP_H

#include <math.h>

#include "kernels/generic/vec.h"

#define EXP_ULPS 1.1
#define LOGISTIC_ULPS 2.5
#define EXP_LOW (-87.33654f)  /* the least x whose exponential is a normal number */
#define EXP_OVER 88.72284f    /* the least x whose exponential is infinite */
#define EXP_SHIFT 12582912.0f /* 1.5 * 2^23: adding it rounds to an integer in the low bits */
#define EXP_LOG2_E 1.44269504f
#define EXP_LN2_HIGH 0.693359375f /* few bits: n * EXP_LN2_HIGH is exact */
#define EXP_LN2_LOW (-2.12194440e-4f)

/* exp of EXP_LOW <= x < EXP_OVER; anything elsewhere, NaN included. */
static inline vec vec_exp_inside(vec x)
{
    vec shifted = vec_fma(x, vec_all(EXP_LOG2_E), vec_all(EXP_SHIFT));
    vec n = shifted - EXP_SHIFT;
    vec r = vec_fma(n, vec_all(-EXP_LN2_HIGH), x);
    r = vec_fma(n, vec_all(-EXP_LN2_LOW), r);
    vec q = vec_all(0x1.6a241ap-10f);
    q = vec_fma(q, r, vec_all(0x1.1239f2p-7f));
    q = vec_fma(q, r, vec_all(0x1.5558f2p-5f));
    q = vec_fma(q, r, vec_all(0x1.555492p-3f));
    q = vec_fma(q, r, vec_all(0x1.fffffcp-2f));
    vec y = vec_fma(q, r * r, r) + 1;
    /* y is at least 1 when n is the least, less than 1 when n is the greatest: n reaches the
     * exponent without leaving its range */
    return (vec)((vec_bits)y + ((vec_bits)shifted << 23));
}

static inline vec vec_exp(vec x)
{
    vec y = vec_below(x, vec_all(EXP_LOW), vec_all(0), vec_exp_inside(x));
    return vec_below(x, vec_all(EXP_OVER), y, x + INFINITY); /* NaN stays NaN */
}

/* 1 / (1 + exp(-x)) of -EXP_OVER < x <= -EXP_LOW; anything elsewhere, NaN included. */
static inline vec vec_logistic_inside(vec x)
{
    return 1 / (1 + vec_exp_inside(-x));
}

#endif
