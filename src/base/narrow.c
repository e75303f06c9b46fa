/* narrow.c: checked narrowing. Out of range aborts in every build: the input was range-checked long
 * before, so getting here with a bad value means that later numbers could not be trusted. */
#include "tutti/base/narrow.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

_Static_assert(sizeof(size_t) == sizeof(int64_t), "tutti needs a 64-bit system");

static _Noreturn void bug(const char *what, int64_t a, int64_t b)
{
    fprintf(stderr, "tutti: bug: %s: %" PRId64 ", %" PRId64 "\n", what, a, b);
    abort();
}

int tt_int(int64_t value)
{
    if (value < INT_MIN || value > INT_MAX) {
        bug("does not fit an int", value, 0);
    }
    return (int)value;
}

size_t tt_size(int64_t value)
{
    if (value < 0) {
        bug("a size below zero", value, 0);
    }
    return (size_t)value;
}

int64_t tt_count(size_t value)
{
    if (value > INT64_MAX) {
        bug("a size beyond int64", (int64_t)value, 0);
    }
    return (int64_t)value;
}

uint32_t tt_u32(int64_t value)
{
    if (value < 0 || value > UINT32_MAX) {
        bug("does not fit 32 bits", value, 0);
    }
    return (uint32_t)value;
}

size_t tt_bytes(int64_t count, size_t size)
{
    size_t bytes;
    if (count < 0 || __builtin_mul_overflow((size_t)count, size, &bytes)) {
        bug("count times size overflows", count, (int64_t)size);
    }
    return bytes;
}

int64_t tt_mul(int64_t a, int64_t b)
{
    int64_t product;
    if (__builtin_mul_overflow(a, b, &product)) {
        bug("a product overflows", a, b);
    }
    return product;
}

int64_t tt_ceil_div(int64_t a, int64_t b)
{
    if (a < 0 || b <= 0) {
        bug("ceil_div wants a >= 0, b > 0", a, b);
    }
    return a / b + (a % b != 0);
}

int64_t tt_round_up(int64_t a, int64_t b)
{
    return tt_mul(tt_ceil_div(a, b), b);
}

int64_t tt_min(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

int64_t tt_max(int64_t a, int64_t b)
{
    return a > b ? a : b;
}
