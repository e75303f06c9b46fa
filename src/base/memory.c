/* memory.c: arenas and small checked allocations.
 *
 * An arena is one private anonymous mapping. The kernel zeroes it page by page on first touch, so
 * an arena that is planned but not used costs nothing. Big arenas start on a huge-page boundary:
 * otherwise the first and last part of the mapping would stay in 4 kB pages.
 *
 * The arena owns its mapping; pointers taken from it are borrowed by everybody else. */
#include "tutti/base/memory.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tutti/base/narrow.h"
#include "tutti/base/text.h"

static const size_t huge_page = (size_t)2 << 20; /* on x86-64; elsewhere a harmless alignment */

static size_t round_up(size_t bytes, size_t unit)
{
    return (bytes + unit - 1) / unit * unit;
}

/* Maps `bytes` (whole pages) at a multiple of `align` (whole pages too): maps more and gives the
 * ends back. NULL on failure. */
static unsigned char *map_aligned(size_t bytes, size_t align)
{
    size_t whole = bytes + align;
    unsigned char *start =
        mmap(NULL, whole, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (start == MAP_FAILED) {
        return NULL;
    }
    size_t head = round_up((uintptr_t)start, align) - (uintptr_t)start;
    size_t tail = whole - head - bytes;
    if (head > 0) {
        munmap(start, head);
    }
    if (tail > 0) {
        munmap(start + head + bytes, tail);
    }
    return start + head;
}

tt_code tt_arena_open(tt_arena *arena, const char *name, size_t bytes, tt_err *err)
{
    *arena = (tt_arena){.name = name};
    size_t page = tt_size(sysconf(_SC_PAGESIZE));
    unsigned char *base = NULL;
    if (bytes < SIZE_MAX / 2) {
        size_t whole = bytes > 0 ? round_up(bytes, page) : page; /* base is never NULL */
        base = map_aligned(whole, whole >= huge_page ? huge_page : page);
        if (base != NULL) {
            /* Advice: a kernel without huge pages refuses it, and 4 kB pages are still right. */
            (void)madvise(base, whole, MADV_HUGEPAGE);
            arena->base = base;
            arena->bytes = whole;
            return TT_OK;
        }
    } else {
        errno = ENOMEM;
    }
    char size[32];
    int why = errno;
    tt_human_bytes((double)bytes, size);
    return tt_fail(err, TT_EWORLD, "the system refused %s of memory for %s: %s", size, name,
                   strerror(why));
}

size_t tt_arena_cost(size_t bytes)
{
    return round_up(bytes, TT_ALIGN);
}

void *tt_arena_take(tt_arena *arena, size_t bytes)
{
    size_t room = arena->bytes - arena->used;
    if (bytes > room) { /* room is a multiple of TT_ALIGN, so the rounded size fits as well */
        fprintf(stderr, "tutti: bug: arena %s holds %zu bytes, %zu used, %zu more wanted\n",
                arena->name, arena->bytes, arena->used, bytes);
        abort();
    }
    void *taken = arena->base + arena->used;
    arena->used += tt_arena_cost(bytes);
    return taken;
}

void tt_arena_close(tt_arena *arena)
{
    if (arena->base != NULL) {
        munmap(arena->base, arena->bytes);
    }
    *arena = (tt_arena){.name = arena->name};
}

void *tt_alloc(int64_t count, size_t size, tt_err *err)
{
    size_t items = tt_size(count);
    assert(size > 0);
    void *memory = calloc(items > 0 ? items : 1, size);
    if (memory == NULL) {
        char text[32];
        tt_human_bytes((double)items * (double)size, text);
        tt_fail(err, TT_EWORLD, "out of memory: %s more were wanted", text);
    }
    return memory;
}

char *tt_strdup(const char *text, tt_err *err)
{
    char *copy = strdup(text);
    if (copy == NULL) {
        tt_fail(err, TT_EWORLD, "out of memory: %zu more bytes were wanted", strlen(text) + 1);
    }
    return copy;
}
