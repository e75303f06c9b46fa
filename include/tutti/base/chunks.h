/* chunks.h: arrays too large for memory, in a scratch file, a few chunks of them at hand.
 *
 * The arrays ("parts") are cut alike into `count` chunks. In the file a chunk's shares of all parts lie
 * together, so whoever walks the chunks in order reads and writes the file in order:
 *
 *     chunk 0: [part 0][part 1][part 2]   chunk 1: [part 0][part 1][part 2]   ...
 *
 * Chunk c is held in slot c % slots. Threads of its own move chunks between slots and file, in the order
 * in which they are asked for: what is asked for early is there when it is needed, and what was changed
 * is written when its slot is wanted for another.
 *
 * Invariant: a part reads as what was put last, at first as zeros. After the first transfer that fails
 * nothing is transferred any more, tt_chunks_check says why, and what is read means nothing.
 *
 * Memory: the slots are the caller's; the rest is its own. Reads and writes base/scratch.h; next:
 * train/optimizer.h. */
#ifndef TUTTI_BASE_CHUNKS_H
#define TUTTI_BASE_CHUNKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tutti/base/status.h"

enum { TT_CHUNK_PARTS = 3, TT_CHUNK_SLOTS = 8, TT_CHUNK_ALL = (1 << TT_CHUNK_PARTS) - 1 };

typedef struct tt_chunking {
    int64_t count; /* of chunks */
    int64_t part
        [TT_CHUNK_PARTS]; /* bytes of a part in a chunk, multiples of TT_SCRATCH_UNIT; 0: none */
    int slots;            /* at most TT_CHUNK_SLOTS */
} tt_chunking;

/* Bytes of a chunk; of the file; of memory for the slots. */
int64_t tt_chunking_chunk(const tt_chunking *chunking);
int64_t tt_chunking_file(const tt_chunking *chunking);
size_t tt_chunking_memory(const tt_chunking *chunking);

typedef struct tt_chunks tt_chunks;

/* memory: [tt_chunking_memory], borrowed. direct: see tt_scratch_open. On failure nothing is left. */
tt_code tt_chunks_open(tt_chunks **chunks, const tt_chunking *chunking, const char *path,
                       bool direct, void *memory, tt_err *err);
/* NULL is fine. */
void tt_chunks_close(tt_chunks *chunks);

/* Does the file system let transfers pass by the page cache? */
bool tt_chunks_direct(const tt_chunks *chunks);

/* TT_OK, or why a transfer has failed. */
tt_code tt_chunks_check(tt_chunks *chunks, tt_err *err);

/* Advice, which returns at once: these parts (a set of bits) of a chunk will be wanted. */
void tt_chunks_want(tt_chunks *chunks, int64_t chunk, unsigned parts);
/* Waits until they are there: address of the chunk's first part, the others after it; NULL: a transfer
 * has failed. The chunk stays until it is released. A thread holds one chunk at a time. */
unsigned char *tt_chunks_hold(tt_chunks *chunks, int64_t chunk, unsigned parts);
/* changed: which parts were written to. next: the chunk that will be wanted in its slot, of all parts;
 * -1: none is known. */
void tt_chunks_release(tt_chunks *chunks, int64_t chunk, unsigned changed, int64_t next);

/* Bytes first .. first + bytes - 1 of a part, over as many chunks as it takes. Gets may run side by side
 * with gets, and puts with puts of other bytes. */
void tt_chunks_get(tt_chunks *chunks, int part, int64_t first, int64_t bytes, void *out);
void tt_chunks_put(tt_chunks *chunks, int part, int64_t first, int64_t bytes, const void *in);

/* On purpose (base/fault.h): the next transfer fails. */
void tt_chunks_spoil(tt_chunks *chunks);

#endif
