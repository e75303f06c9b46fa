/* optimizer.c: one window over arrays in memory, or many that pass through it. See optimizer.h. */
#include "tutti/train/optimizer.h"

#include <string.h>

#include "tutti/base/narrow.h"
#include "tutti/base/scratch.h"

/* Elements of a chunk: few enough that the slots cost little, enough that a disk is not kept waiting. A
 * small shard has small chunks, so that there are more of them than slots. */
enum { MOST = 1 << 19, LEAST = TT_SCRATCH_UNIT / sizeof(uint16_t), CHUNKS = 16, SLOTS = 5 };

static void element_bytes(tt_master_kind kind, size_t bytes[TT_KEPT])
{
    bytes[TT_KEPT_MASTER] = kind == TT_MASTER_FP32    ? sizeof(float)
                            : kind == TT_MASTER_SPLIT ? sizeof(uint16_t)
                                                      : 0;
    bytes[TT_KEPT_M] = bytes[TT_KEPT_V] = sizeof(float);
}

static int64_t chunk_elements(int64_t elements)
{
    return tt_min(MOST, tt_round_up(tt_ceil_div(elements, CHUNKS), LEAST));
}

static tt_chunking chunking_of(tt_master_kind kind, int64_t elements)
{
    size_t bytes[TT_KEPT];
    const int64_t chunk = chunk_elements(elements);
    tt_chunking c = {.count = tt_ceil_div(elements, chunk)};
    _Static_assert((int)TT_KEPT == (int)TT_CHUNK_PARTS, "an array is a part");
    element_bytes(kind, bytes);
    for (int i = 0; i < TT_KEPT; i++) {
        c.part[i] = tt_mul(chunk, tt_count(bytes[i]));
    }
    c.slots = tt_int(tt_min(SLOTS, c.count));
    return c;
}

size_t tt_optimizer_memory(tt_master_kind kind, int64_t elements, bool in_file)
{
    size_t bytes[TT_KEPT], sum = 0;
    if (in_file && elements > 0) {
        const tt_chunking chunking = chunking_of(kind, elements);
        return tt_arena_cost(tt_chunking_memory(&chunking));
    }
    element_bytes(kind, bytes);
    for (int i = 0; i < TT_KEPT; i++) {
        sum += tt_arena_cost(tt_bytes(elements, bytes[i]));
    }
    return sum;
}

size_t tt_optimizer_file(tt_master_kind kind, int64_t elements, bool in_file)
{
    if (!in_file || elements == 0) {
        return 0;
    }
    const tt_chunking chunking = chunking_of(kind, elements);
    return tt_size(tt_chunking_file(&chunking));
}

/* A window over a chunk's arrays, or over those in memory. */
static tt_window window_of(const tt_optimizer *o, int64_t first, int64_t count, void *array[])
{
    const size_t master = o->bytes[TT_KEPT_MASTER];
    return (tt_window){.first = first,
                       .count = count,
                       .master = master == sizeof(float) ? array[TT_KEPT_MASTER] : NULL,
                       .low = master == sizeof(uint16_t) ? array[TT_KEPT_MASTER] : NULL,
                       .m = array[TT_KEPT_M],
                       .v = array[TT_KEPT_V]};
}

tt_code tt_optimizer_open(tt_optimizer *o, tt_master_kind kind, int64_t elements, const char *path,
                          tt_arena *arena, tt_err *err)
{
    void *array[TT_KEPT];
    *o = (tt_optimizer){.elements = elements};
    element_bytes(kind, o->bytes);
    if (path != NULL && elements > 0) {
        const tt_chunking chunking = chunking_of(kind, elements);
        o->chunk = chunk_elements(elements);
        tt_err why;
        const tt_code rc =
            tt_chunks_open(&o->chunks, &chunking, path, true,
                           tt_arena_take(arena, tt_chunking_memory(&chunking)), &why);
        return rc == TT_OK ? TT_OK : tt_fail(err, rc, "memory.optimizer_file: %s", why.text);
    }
    for (int i = 0; i < TT_KEPT; i++) {
        array[i] = tt_arena_take(arena, tt_bytes(elements, o->bytes[i]));
    }
    o->all = window_of(o, 0, elements, array);
    return TT_OK;
}

void tt_optimizer_close(tt_optimizer *o)
{
    tt_chunks_close(o->chunks);
    *o = (tt_optimizer){.chunks = NULL};
}

tt_code tt_optimizer_check(const tt_optimizer *o, tt_err *err)
{
    tt_err why = {TT_OK, ""};
    if (o->chunks == NULL || tt_chunks_check(o->chunks, &why) == TT_OK) {
        return TT_OK;
    }
    return tt_fail(err, why.code, "memory.optimizer_file: %s", why.text);
}

/* Of chunk c, in memory now. */
static tt_window chunk_window(const tt_optimizer *o, int64_t c, unsigned char *data)
{
    const int64_t first = c * o->chunk;
    void *array[TT_KEPT];
    for (int i = 0; i < TT_KEPT; i++) {
        array[i] = data;
        data += tt_bytes(o->chunk, o->bytes[i]);
    }
    return window_of(o, first, tt_min(o->chunk, o->elements - first), array);
}

bool tt_optimizer_next(const tt_optimizer *o, tt_window *w)
{
    const int64_t at = w->first + w->count;
    if (o->chunks == NULL) {
        *w = o->all;
        return at == 0 && w->count > 0;
    }
    const int64_t chunks = tt_ceil_div(o->elements, o->chunk);
    const int64_t slots = tt_min(SLOTS, chunks), c = tt_ceil_div(at, o->chunk);
    for (int64_t i = 0; i < slots && c == 0; i++) {
        tt_chunks_want(o->chunks, i, TT_CHUNK_ALL);
    }
    if (c > 0) { /* its slot is next for the chunk that is so many on, or for the next update's */
        const int64_t next = c - 1 + slots;
        tt_chunks_release(o->chunks, c - 1, TT_CHUNK_ALL, next < chunks ? next : (c - 1) % slots);
    }
    unsigned char *data = c < chunks ? tt_chunks_hold(o->chunks, c, TT_CHUNK_ALL) : NULL;
    if (data != NULL) {
        *w = chunk_window(o, c, data);
    }
    return data != NULL;
}

/* Element `first` of an array in memory. */
static void *element_at(const tt_optimizer *o, tt_kept what, int64_t first)
{
    const tt_window *all = &o->all;
    void *const master = all->low != NULL ? (void *)all->low : all->master;
    unsigned char *const array[TT_KEPT] = {master, (void *)all->m, (void *)all->v};
    return array[what] + tt_bytes(first, o->bytes[what]);
}

void tt_optimizer_get(const tt_optimizer *o, tt_kept what, int64_t first, int64_t count, void *out)
{
    const int64_t size = tt_count(o->bytes[what]);
    if (o->chunks != NULL) {
        tt_chunks_get(o->chunks, what, tt_mul(first, size), tt_mul(count, size), out);
        return;
    }
    memcpy(out, element_at(o, what, first), tt_size(count * size));
}

void tt_optimizer_put(const tt_optimizer *o, tt_kept what, int64_t first, int64_t count,
                      const void *in)
{
    const int64_t size = tt_count(o->bytes[what]);
    if (o->chunks != NULL) {
        tt_chunks_put(o->chunks, what, tt_mul(first, size), tt_mul(count, size), in);
        return;
    }
    memcpy(element_at(o, what, first), in, tt_size(count * size));
}
