/* sum.c: see sum.h. At the speed of memory: one pass where there are two arrays, and where there are
 * more the sums so far stay in cache. */
#include "dist/sum.h"

#include <string.h>

#include "tutti/base/narrow.h"

enum { BLOCK = 1024 }; /* elements at a time */

/* Of BLOCK elements or fewer: a loop of constant length for the most part, which compilers like. `to`
 * may be x or y, as an element depends on those of its own index alone. */
#define SUM_LOOP                                             \
    if (count == BLOCK) {                                    \
        _Pragma("GCC ivdep") for (int i = 0; i < BLOCK; i++) \
        {                                                    \
            to[i] = x[i] + y[i];                             \
        }                                                    \
    } else {                                                 \
        for (int64_t i = 0; i < count; i++) {                \
            to[i] = x[i] + y[i];                             \
        }                                                    \
    }

static void add_floats(float *to, const float *x, const float *y, int64_t count)
{
    SUM_LOOP
}

static void add_fixed(uint64_t *to, const uint64_t *x, const uint64_t *y, int64_t count)
{
    SUM_LOOP
}

static void add_two(bool fixed, void *to, const void *x, const void *y, int64_t count)
{
    if (fixed) {
        add_fixed(to, x, y, count);
    } else {
        add_floats(to, x, y, count);
    }
}

/* Elements of BLOCK at most, `at` bytes into the arrays. */
static void sum_block(unsigned char *to, void *const *from, int n, bool fixed, bool add, size_t at,
                      int64_t count)
{
    uint64_t so_far[BLOCK] = {0};
    const unsigned char *sum = (const unsigned char *)from[0] + at;
    for (int j = 1; j < n; j++) {
        void *next = j == n - 1 && !add ? (void *)(to + at) : so_far;
        add_two(fixed, next, sum, (const unsigned char *)from[j] + at, count);
        sum = next;
    }
    if (add) {
        add_two(fixed, to + at, to + at, sum, count);
    } else if (n == 1) {
        memmove(to + at, sum, tt_bytes(count, fixed ? sizeof(int64_t) : sizeof(float)));
    }
}

void tt_sum_arrays(void *to, void *const *from, int n, bool fixed, bool add, int64_t count,
                   int threads)
{
    const size_t size = fixed ? sizeof(int64_t) : sizeof(float);
#pragma omp parallel for num_threads(threads) if (count > 16 * BLOCK)
    for (int64_t first = 0; first < count; first += BLOCK) {
        sum_block(to, from, n, fixed, add, tt_bytes(first, size), tt_min(BLOCK, count - first));
    }
}
