/* narrow.h: checked narrowing and sizes. Narrowing goes only through here; out of range is a bug of
 * ours (inputs are range-checked by the option table) and aborts with the value, in every build. */
#ifndef TUTTI_BASE_NARROW_H
#define TUTTI_BASE_NARROW_H

#include <stddef.h>
#include <stdint.h>

int tt_int(int64_t value);                   /* int64 -> int */
size_t tt_size(int64_t value);               /* int64 >= 0 -> size_t */
int64_t tt_count(size_t value);              /* size_t -> int64 */
uint32_t tt_u32(int64_t value);              /* int64 in [0, 2^32) -> uint32 */
size_t tt_bytes(int64_t count, size_t size); /* count * size, overflow aborts */
int64_t tt_mul(int64_t a, int64_t b);        /* a * b, overflow aborts */
int64_t tt_ceil_div(int64_t a, int64_t b);   /* ceil(a / b), a >= 0, b > 0 */
int64_t tt_round_up(int64_t a, int64_t b);   /* least multiple of b >= a */
int64_t tt_min(int64_t a, int64_t b);
int64_t tt_max(int64_t a, int64_t b);

#endif
