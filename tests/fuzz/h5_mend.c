/* h5_mend.c: the checksums of HDF5's metadata, as its format specification (version 3) has them.
 * See h5_mend.h.
 *
 * Blocks are found by their signatures, at any place. Where a block's size stands elsewhere, as
 * those of B-trees and heaps do in their headers, it is taken from there: mended files are wrong,
 * so nothing here trusts a length further than the end of the file. Offsets and lengths are 8
 * bytes, as in all files that the project's own programs and the seeds have. */
#include "h5_mend.h"

#include <stdbool.h>
#include <string.h>

#include "base/sound_impl.h"

static uint64_t read_field(const unsigned char *p, int bytes)
{
    uint64_t value = 0;
    for (int i = 0; i < bytes; i++) {
        value |= (uint64_t)p[i] << (8 * i);
    }
    return value;
}

typedef struct image {
    unsigned char *data;
    size_t size;
    int *
        left; /* blocks that may still be followed: those of a mutated file may go around in circles */
} image;

/* The last 4 bytes of a block become the checksum of those before; no block beyond the file. */
static void seal(const image *f, uint64_t at, uint64_t size)
{
    if (size < 8 || at > f->size || size > f->size - at) {
        return;
    }
    const uint32_t sum = tt_sound_checksum(f->data + at, (size_t)size - 4);
    for (int i = 0; i < 4; i++) {
        f->data[at + size - 4 + (uint64_t)i] = (unsigned char)(sum >> (8 * i));
    }
}

static bool is(const image *f, uint64_t at, const char *signature)
{
    return at + 4 <= f->size && at + 4 > at && memcmp(f->data + at, signature, 4) == 0;
}

/* Messages of a chunk of an object header: continuations have chunks of their own. */
static void header_chunk(const image *f, uint64_t at, uint64_t size, int ordered)
{
    const uint64_t end = at + size;
    const uint64_t frame = ordered ? 6 : 4;
    while (--*f->left > 0 && at + frame <= end && end <= f->size) {
        const uint64_t length = read_field(f->data + at + 1, 2);
        if (f->data[at] == 16 && length >= 16 && at + frame + 16 <= f->size) {
            const uint64_t next = read_field(f->data + at + frame, 8),
                           bytes = read_field(f->data + at + frame + 8, 8);
            if (is(f, next, "OCHK") && bytes >= 8 && bytes <= f->size - next) {
                header_chunk(f, next + 4, bytes - 8, ordered);
                seal(f, next, bytes);
            }
        }
        at += frame + length;
    }
}

static void object_header(const image *f, uint64_t at)
{
    if (at + 16 > f->size) {
        return;
    }
    const int flags = f->data[at + 5];
    const int width = 1 << (flags & 3);
    uint64_t head = 6 + (flags & 32 ? 16 : 0) + (flags & 16 ? 4 : 0);
    if (at + head + 8 > f->size) {
        return;
    }
    const uint64_t size = read_field(f->data + at + head, width);
    head += (uint64_t)width;
    if (size > f->size) {
        return;
    }
    header_chunk(f, at + head, size, flags & 4);
    seal(f, at, head + size + 4);
}

/* A node of a version 2 B-tree with `records` of `bytes` each. */
static void tree_node(const image *f, uint64_t at, uint64_t records, uint64_t bytes, int depth,
                      uint64_t node)
{
    uint64_t size = 6 + records * bytes + 4;
    if (--*f->left < 0 || records > f->size || depth > 2 || at + 8 > f->size || at + 8 < at) {
        return;
    }
    if (depth > 0) {
        /* Pointers to children: address, records in it (as wide as a leaf's may be), and one level up
         * records below it. Nodes of the seeds hold less than 256 records. */
        const uint64_t pointer = 8 + 1 + (depth > 1 ? 2 : 0);
        uint64_t p = at + 6 + records * bytes;
        size += (records + 1) * pointer;
        for (uint64_t i = 0; i <= records && p + pointer <= f->size; i++, p += pointer) {
            tree_node(f, read_field(f->data + p, 8), f->data[p + 8], bytes, depth - 1, node);
        }
    }
    if (is(f, at, depth > 0 ? "BTIN" : "BTLF") && size <= node) {
        seal(f, at, size);
    }
}

static void tree(const image *f, uint64_t at)
{
    if (at + 38 > f->size) {
        return;
    }
    const unsigned char *p = f->data + at;
    tree_node(f, read_field(p + 16, 8), read_field(p + 24, 2), read_field(p + 10, 2),
              (int)read_field(p + 12, 2), read_field(p + 6, 4));
    seal(f, at, 38);
}

/* A fractal heap: header, direct blocks by their offset in the heap, indirect blocks by their rows. */
static void heap(const image *f, uint64_t at)
{
    enum { HEADER = 146, WIDTH = 110, START = 112, MOST = 120, BITS = 128, ROOT = 132, ROWS = 140 };
    if (at + HEADER > f->size) {
        return;
    }
    const unsigned char *p = f->data + at;
    const uint64_t width = read_field(p + WIDTH, 2), start = read_field(p + START, 8),
                   most = read_field(p + MOST, 8);
    const uint64_t offset = (read_field(p + BITS, 2) + 7) / 8, rows = read_field(p + ROWS, 2);
    seal(f, at, HEADER + (read_field(p + 7, 2) != 0 ? 12 : 0));
    for (uint64_t b = 0; b + 17 + offset <= f->size && offset <= 8; b++) {
        if (read_field(f->data + b + 5, 8) != at) {
            continue;
        }
        if (is(f, b, "FHDB")) {
            const uint64_t place = read_field(f->data + b + 13, (int)offset);
            uint64_t size = start;
            for (uint64_t row = width * start; place >= row && size < most && row != 0; row *= 2) {
                size = row == width * start ? size : 2 * size;
            }
            if (size > f->size - b || size < 17 + offset + 4) {
                continue;
            }
            unsigned char *sum = f->data + b + 13 + offset;
            memset(sum, 0, 4);
            const uint32_t value = tt_sound_checksum(f->data + b, (size_t)size);
            for (int i = 0; i < 4; i++) {
                sum[i] = (unsigned char)(value >> (8 * i));
            }
        } else if (is(f, b, "FHIB") && rows < 64 && width < 1024) {
            seal(f, b, 13 + offset + rows * width * 8 + 4);
        }
    }
}

/* Does a block seem to begin there? */
static bool begins(const unsigned char *p)
{
    static const char signature[][5] = {"OHDR", "OCHK", "BTHD", "BTLF", "BTIN",    "FRHP", "FHDB",
                                        "FHIB", "TREE", "HEAP", "SNOD", "\211HDF", "GCOL"};
    if (p[0] < 'B' || (p[0] > 'T' && p[0] != 0x89)) {
        return false;
    }
    for (size_t i = 0; i < sizeof signature / sizeof *signature; i++) {
        if (p[0] == (unsigned char)signature[i][0] && memcmp(p, signature[i], 4) == 0) {
            return true;
        }
    }
    return false;
}

void tt_h5_mend(unsigned char *data, size_t size)
{
    int left = 100000;
    const image f = {data, size, &left};
    for (uint64_t at = 0; at + 8 <= size; at++) {
        if (!begins(data + at)) {
            continue;
        }
        if (is(&f, at, "OHDR")) {
            object_header(&f, at);
        } else if (is(&f, at, "BTHD")) {
            tree(&f, at);
        } else if (is(&f, at, "FRHP")) {
            heap(&f, at);
        } else if (is(&f, at, "\211HDF") && at + 48 <= size && data[at + 8] >= 2) {
            seal(&f, at, 48);
        }
    }
}

/* --- mutation --------------------------------------------------------------------------------- */

static uint32_t next(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*state >> 33);
}

static void write_field(unsigned char *p, uint64_t value, int bytes)
{
    for (int i = 0; i < bytes; i++) {
        p[i] = (unsigned char)(value >> (8 * i));
    }
}

/* Where blocks seem to begin. */
typedef struct blocks {
    size_t at[256], count;
} blocks;

static void find_blocks(const unsigned char *data, size_t size, blocks *b)
{
    b->count = 0;
    for (size_t i = 0; i + 4 <= size && b->count < sizeof b->at / sizeof *b->at; i++) {
        if (begins(data + i)) {
            b->at[b->count++] = i;
        }
    }
}

/* A place in metadata: behind a signature, or anywhere. What stands far behind one is rarely looked
 * at. */
static size_t place(const blocks *b, size_t size, uint64_t *state)
{
    if (b->count == 0 || next(state) % 4 == 0) {
        return next(state) % size;
    }
    const size_t from = b->at[next(state) % b->count];
    const size_t at = from + next(state) % (next(state) % 2 ? 48 : 256);
    return at < size ? at : from;
}

size_t tt_h5_mutate(unsigned char *data, size_t size, size_t room, unsigned seed)
{
    static const uint64_t odd[] = {0,
                                   1,
                                   2,
                                   3,
                                   4,
                                   7,
                                   8,
                                   16,
                                   31,
                                   32,
                                   33,
                                   64,
                                   127,
                                   128,
                                   255,
                                   256,
                                   4096,
                                   32767,
                                   32768,
                                   65535,
                                   65536,
                                   0x7fffffff,
                                   0x80000000,
                                   0xffffffff,
                                   (uint64_t)1 << 32,
                                   (uint64_t)1 << 48,
                                   INT64_MAX,
                                   UINT64_MAX,
                                   UINT64_MAX - 1,
                                   (uint64_t)1 << 63};
    enum { ODD = sizeof odd / sizeof *odd };
    uint64_t state = seed * 2654435761u + 12345;
    blocks b;
    next(&state);
    if (size < 16) {
        return size;
    }
    find_blocks(data, size, &b);
    for (uint32_t changes = 1 + next(&state) % (next(&state) % 4 ? 2 : 6); changes > 0; changes--) {
        const int bytes = 1 << next(&state) % 4;
        const size_t at = place(&b, size, &state);
        if (at + 8 > size) {
            continue;
        }
        const uint64_t value = read_field(data + at, bytes);
        switch (next(&state) % 10) {
        case 0:
        case 1:
            write_field(data + at, odd[next(&state) % ODD], bytes);
            break;
        case 2:
            write_field(data + at, value + 1 + next(&state) % 16, bytes);
            break;
        case 3:
            write_field(data + at, value - 1 - next(&state) % 16, bytes);
            break;
        case 4:
            data[at] ^= (unsigned char)(1u << next(&state) % 8);
            break;
        case 5: /* a field of somewhere else */
            memmove(data + at, data + next(&state) % (size - 8), (size_t)bytes);
            break;
        case 6: /* an address: of some block */
            write_field(data + at, place(&b, size, &state), 8);
            break;
        case 7: { /* a stretch of somewhere else */
            const size_t from = place(&b, size, &state), most = next(&state) % 64;
            const size_t count = most < size - at ? most : size - at;
            memmove(data + at, data + from, count < size - from ? count : size - from);
            break;
        }
        case 8:
            write_field(data + at, size - next(&state) % 64, bytes);
            break;
        default:
            data[at] = (unsigned char)next(&state);
        }
    }
    if (next(&state) % 64 == 0) { /* cut short, or longer */
        const size_t to = next(&state) % 2 ? size - next(&state) % size : size + next(&state) % 512;
        const size_t bounded = to < 16 ? 16 : to > room ? room : to;
        if (bounded > size) {
            memset(data + size, 0, bounded - size);
        }
        size = bounded;
    }
    if (next(&state) % 16 != 0) {
        tt_h5_mend(data, size);
    }
    return size;
}
