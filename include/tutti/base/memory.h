/* memory.h: arenas for big memory, checked malloc for small, and what the system has to give.
 *
 * Big memory comes from arenas sized by the plan: one mapping, huge pages where the system gives
 * them, filled by bumping a pointer, freed as one. Small start-up memory comes from tt_alloc.
 *
 * Invariant: every pointer from an arena is TT_ALIGN-aligned, zeroed, and valid until
 * tt_arena_close. Under AddressSanitizer only what was taken may be used: behind every piece lie
 * TT_REDZONE bytes that nobody may read or write. */
#ifndef TUTTI_BASE_MEMORY_H
#define TUTTI_BASE_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tutti/base/status.h"

enum { TT_ALIGN = 64 }; /* bytes: one cache line, one AVX-512 vector */

#ifdef __SANITIZE_ADDRESS__
enum { TT_REDZONE = 64 }; /* bytes behind a piece of an arena; part of what it costs */
#else
enum { TT_REDZONE = 0 };
#endif

typedef struct tt_arena {
    const char *name; /* borrowed, static: named in errors and in the plan */
    unsigned char *base;
    size_t bytes; /* capacity */
    size_t used;  /* high-water mark: arenas only grow until closed */
    bool lent;    /* the memory is somebody else's */
} tt_arena;

/* Maps `bytes` (rounded up to pages; 0 is allowed), and room for the red zone of one piece that takes
 * them all. Fails with TT_EWORLD naming the arena and the size when the system refuses. On failure the
 * arena is closed. Nothing is touched: what stays unused costs no memory. */
tt_code tt_arena_open(tt_arena *arena, const char *name, size_t bytes, tt_err *err);

/* The same over memory that somebody else owns, TT_ALIGN-aligned and zeroed; it outlives the arena. */
void tt_arena_lend(tt_arena *arena, const char *name, void *memory, size_t bytes);

/* The next `bytes` of the arena, TT_ALIGN-aligned, owned by the arena. Running over is a bug in the
 * plan, not a user's mistake: it aborts with the arena's name. */
void *tt_arena_take(tt_arena *arena, size_t bytes);

/* Bytes that tt_arena_take(bytes) uses up: `bytes` rounded up to TT_ALIGN, and TT_REDZONE behind them
 * unless there are none. Plans add these, so that they are exact in every build. */
size_t tt_arena_cost(size_t bytes);

/* Unmaps; safe on a zeroed or closed arena. */
void tt_arena_close(tt_arena *arena);

/* Has every page of the piece come into memory, contents unchanged. The piece is divided into
 * `threads` equal runs, as kernels divide elements and rows, and each thread touches its own: where
 * memory has nodes, a page lies on that of the thread that will use it. What the system promised and
 * does not have ends the process here, not hours later. */
void tt_touch(void *piece, size_t bytes, int threads);
/* The same for all that was taken: what tt_touch has not seen piece by piece. */
void tt_arena_touch(const tt_arena *arena, int threads);

/* Bytes of the arena, capacity included, that are in memory now. */
size_t tt_arena_resident(const tt_arena *arena);

/* Of `room` bytes the first `used` are in use: under AddressSanitizer nobody may read or write the
 * others any more, elsewhere nothing happens. The memory is an arena's, which forgives when closed. */
void tt_redzone(void *memory, size_t used, size_t room);

/* Bytes that processes of this node can still have: the least of what the system calls available and
 * what the limits of this process's control groups leave (v1 and v2, pages that hold files counted as
 * free). root: "", or a folder in whose proc/ and sys/ the system's files are found. SIZE_MAX: not
 * known. */
size_t tt_memory_available(const char *root);
/* Bytes that this process can still have by its own limits (ulimit -v and -d); SIZE_MAX: it has none. */
size_t tt_memory_allowed(void);

/* Zeroed memory for `count` items of `size` bytes, owned by the caller (free with free). NULL only
 * on failure, which also fills err. count 0 gives a valid pointer. */
void *tt_alloc(int64_t count, size_t size, tt_err *err);

/* A copy of the string, owned by the caller; NULL on failure, which fills err. */
char *tt_strdup(const char *text, tt_err *err);

#endif
