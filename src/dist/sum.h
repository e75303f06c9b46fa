/* sum.h: arrays added up element by element, in the order in which they are given.
 *
 * Owns nothing. Reads and writes arrays; next: reduce.c. */
#ifndef TUTTI_DIST_SUM_H
#define TUTTI_DIST_SUM_H

#include <stdbool.h>
#include <stdint.h>

/* to[i] = (add: to[i] +) (from[0][i] + ... + from[n-1][i]) of `count` elements, int64_t when
 * `fixed`, else float; `to` may be one of them. Integers wrap around: that no sum can is the
 * caller's care (numerics/fixed.h). n >= 1. */
void tt_sum_arrays(void *to, void *const *from, int n, bool fixed, bool add, int64_t count,
                   int threads);

#endif
