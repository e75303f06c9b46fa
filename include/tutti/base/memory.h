/* memory.h: arenas for big memory, checked malloc for small.
 *
 * Big memory comes from arenas sized by the plan: one mapping, huge pages where the system gives
 * them, filled by bumping a pointer, freed as one. Small start-up memory comes from tt_alloc.
 *
 * Invariant: every pointer from an arena is TT_ALIGN-aligned, zeroed, and valid until
 * tt_arena_close. */
#ifndef TUTTI_BASE_MEMORY_H
#define TUTTI_BASE_MEMORY_H

#include <stddef.h>
#include <stdint.h>

#include "tutti/base/status.h"

enum { TT_ALIGN = 64 }; /* bytes: one cache line, one AVX-512 vector */

typedef struct tt_arena {
    const char *name; /* borrowed, static: named in errors and in the plan */
    unsigned char *base;
    size_t bytes; /* capacity */
    size_t used;  /* high-water mark: arenas only grow until closed */
} tt_arena;

/* Maps `bytes` (rounded up to pages; 0 is allowed). Fails with TT_EWORLD naming the arena and the
 * size when the system refuses. On failure the arena is closed. */
tt_code tt_arena_open(tt_arena *arena, const char *name, size_t bytes, tt_err *err);

/* The next `bytes` of the arena, TT_ALIGN-aligned, owned by the arena. Running over is a bug in the
 * plan, not a user's mistake: it aborts with the arena's name. */
void *tt_arena_take(tt_arena *arena, size_t bytes);

/* Bytes that tt_arena_take(bytes) uses up: `bytes` rounded up to TT_ALIGN. Plans add these. */
size_t tt_arena_cost(size_t bytes);

/* Unmaps; safe on a zeroed or closed arena. */
void tt_arena_close(tt_arena *arena);

/* Zeroed memory for `count` items of `size` bytes, owned by the caller (free with free). NULL only
 * on failure, which also fills err. count 0 gives a valid pointer. */
void *tt_alloc(int64_t count, size_t size, tt_err *err);

/* A copy of the string, owned by the caller; NULL on failure, which fills err. */
char *tt_strdup(const char *text, tt_err *err);

#endif
