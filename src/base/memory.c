/* memory.c: arenas and small checked allocations.
 *
 * An arena is one private anonymous mapping. The kernel zeroes it page by page on first touch, so
 * an arena that is planned but not used costs nothing. Big arenas start on a huge-page boundary:
 * otherwise the first and last part of the mapping would stay in 4 kB pages.
 *
 * Under AddressSanitizer an arena is poisoned as a whole, and a piece is opened when it is taken.
 * Closing opens all of it again: the next mapping there may be somebody else's.
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
#include "tutti/base/threads.h"

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(memory, bytes) ((void)(memory), (void)(bytes))
#define ASAN_UNPOISON_MEMORY_REGION(memory, bytes) ((void)(memory), (void)(bytes))
#endif

static const size_t huge_page = (size_t)2 << 20; /* on x86-64; elsewhere a harmless alignment */

static size_t round_up(size_t bytes, size_t unit)
{
    return (bytes + unit - 1) / unit * unit;
}

static size_t page_bytes(void)
{
    return tt_size(sysconf(_SC_PAGESIZE));
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
    const size_t page = page_bytes();
    unsigned char *base = NULL;
    if (bytes < SIZE_MAX / 2) {
        size_t whole = bytes > 0 ? round_up(bytes + TT_REDZONE, page) : page; /* never none */
        base = map_aligned(whole, whole >= huge_page ? huge_page : page);
        if (base != NULL) {
            /* Advice: a kernel without huge pages refuses it, and 4 kB pages are still right. */
            (void)madvise(base, whole, MADV_HUGEPAGE);
            ASAN_POISON_MEMORY_REGION(base, whole);
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

void tt_arena_lend(tt_arena *arena, const char *name, void *memory, size_t bytes)
{
    assert((uintptr_t)memory % TT_ALIGN == 0);
    ASAN_POISON_MEMORY_REGION(memory, bytes);
    *arena = (tt_arena){.name = name, .base = memory, .bytes = bytes, .lent = true};
}

size_t tt_arena_cost(size_t bytes)
{
    return bytes > 0 ? round_up(bytes, TT_ALIGN) + TT_REDZONE : 0;
}

void *tt_arena_take(tt_arena *arena, size_t bytes)
{
    const size_t room = arena->bytes - arena->used; /* a multiple of TT_ALIGN */
    if (bytes > room || tt_arena_cost(bytes) > room) {
        fprintf(stderr, "tutti: bug: arena %s holds %zu bytes, %zu used, %zu more wanted\n",
                arena->name, arena->bytes, arena->used, bytes);
        abort();
    }
    void *taken = arena->base + arena->used;
    ASAN_UNPOISON_MEMORY_REGION(taken, bytes);
    arena->used += tt_arena_cost(bytes);
    return taken;
}

void tt_arena_close(tt_arena *arena)
{
    if (arena->base != NULL) {
        ASAN_UNPOISON_MEMORY_REGION(arena->base, arena->bytes);
        if (!arena->lent) {
            munmap(arena->base, arena->bytes);
        }
    }
    *arena = (tt_arena){.name = arena->name};
}

/* One byte of each page is written, with what it holds: a read would bring in the page of zeros that
 * all share. Red zones are touched like the rest. */
__attribute__((noinline, no_sanitize("address"))) static void
touch_pages(unsigned char *first, const unsigned char *end, size_t page)
{
    for (; first < end; first += page) {
        __atomic_fetch_or(first, 0, __ATOMIC_RELAXED);
    }
}

void tt_touch(void *piece, size_t bytes, int threads)
{
    assert(threads >= 1);
    const size_t page = page_bytes(), before = (uintptr_t)piece % page;
    if (bytes == 0) {
        return;
    }
    unsigned char *first = (unsigned char *)piece - before; /* as mappings are whole pages */
    const size_t pages = (before + bytes + page - 1) / page;
#pragma omp parallel num_threads(threads)
    {
        const size_t team = tt_size(tt_threads_now()), me = tt_size(tt_thread_id());
        touch_pages(first + pages * me / team * page, first + pages * (me + 1) / team * page, page);
    }
}

void tt_arena_touch(const tt_arena *arena, int threads)
{
    tt_touch(arena->base, arena->used, threads);
}

size_t tt_arena_resident(const tt_arena *arena)
{
    enum { SOME = 4096 }; /* pages a call */
    const size_t page = page_bytes();
    unsigned char in_memory[SOME];
    size_t resident = 0;
    for (size_t at = 0; at < arena->bytes; at += SOME * page) {
        const size_t rest = arena->bytes - at, bytes = rest < SOME * page ? rest : SOME * page;
        if (mincore(arena->base + at, bytes, in_memory) != 0) {
            return 0; /* not on this system */
        }
        for (size_t i = 0; i < bytes / page; i++) {
            resident += (in_memory[i] & 1) * page;
        }
    }
    return resident;
}

void tt_redzone(void *memory, size_t used, size_t room)
{
    assert(used <= room);
    ASAN_POISON_MEMORY_REGION((unsigned char *)memory + used, room - used);
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
