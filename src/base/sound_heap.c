/* sound_heap.c: groups of many links: link messages in a fractal heap, found by trees of version 2.
 * See sound.h.
 *
 * HDF5 makes such heaps and trees with constants of its own; others are refused. Blocks of a heap
 * stand in rows of four: of 512 bytes in the first two, twice as large from row to row, and from
 * row 9 on each has rows of its own. */
#include <stdlib.h>
#include <string.h>

#include "base/sound_impl.h"

enum {
    WIDTH = 4,
    START = 512,
    LARGEST = 65536,
    DIRECT_ROWS = 9,
    MOST_ROWS = 22,
    MOST_LINK = 4096,
    OVERHEAD = 21, /* of a direct block, before what it holds */
    NODE = 512,    /* bytes of a tree's */
    MOST_DEPTH = 8
};

static const char heap[] = "the heap of a group", tree[] = "the tree of a group";

typedef struct part { /* a direct block */
    uint64_t offset, size;
    unsigned char *data; /* [size] owned */
} part;

typedef struct dense {
    tt_look *look;
    uint64_t at; /* of the heap's header */
    int depth;
    part *part; /* [parts] owned, ascending */
    uint64_t parts, room;
    uint64_t managed;                          /* bytes of all blocks, as HDF5 has counted them */
    bool follow;                               /* in the tree of names alone */
    uint64_t most[MOST_DEPTH + 1];             /* records of a node, by its height */
    uint64_t all[MOST_DEPTH + 1];              /* of it and all below */
    uint64_t width, all_width[MOST_DEPTH + 1]; /* bytes of such numbers in a pointer */
    int type;
    uint64_t record; /* bytes */
} dense;

/* --- the heap --------------------------------------------------------------------------------- */

static uint64_t size_of_row(uint64_t row)
{
    return row == 0 ? START : (uint64_t)START << (row - 1);
}

static bool add_part(dense *d, uint64_t offset, uint64_t size, uint64_t at)
{
    unsigned char *data = NULL;
    if (d->parts == d->room) {
        const uint64_t room = d->room > 0 ? 2 * d->room : 16;
        part *bigger = realloc(d->part, (size_t)room * sizeof *bigger);
        if (bigger == NULL) {
            return tt_sound_damaged(d->look, heap, d->at, "out of memory");
        }
        d->part = bigger;
        d->room = room;
    }
    if (!tt_sound_claim(d->look, heap, at) || !tt_sound_load(d->look, heap, at, size, &data)) {
        return false;
    }
    d->part[d->parts++] = (part){offset, size, data};
    tt_cursor c = {data + 4, data + OVERHEAD, false};
    if (!tt_is_signature(data, "FHDB") || tt_take(&c, 1) != 0 || tt_take(&c, 8) != d->at ||
        tt_take(&c, 4) != offset) {
        return tt_sound_damaged(d->look, heap, at, "a block of it is none");
    }
    /* The checksum stands before what it is of, and counts as 0 there. */
    const uint64_t sum = tt_take(&c, 4);
    memset(data + OVERHEAD - 4, 0, 4);
    return tt_sound_checksum(data, (size_t)size) == sum
               ? true
               : tt_sound_damaged(d->look, heap, at, "its checksum is wrong");
}

/* An indirect block of so many rows, which begins at `offset` of the heap. */
static bool add_parts(dense *d, uint64_t offset, uint64_t rows, uint64_t at, bool outer)
{
    enum { HEAD = 17, CHECKSUM = 4 };
    unsigned char *block = NULL;
    const uint64_t size = HEAD + rows * WIDTH * 8 + CHECKSUM;
    if (!tt_sound_claim(d->look, heap, at) || !tt_sound_load(d->look, heap, at, size, &block)) {
        return false;
    }
    tt_cursor c = {block + 4, block + size, false};
    bool sound = tt_is_signature(block, "FHIB") && tt_take(&c, 1) == 0 && tt_take(&c, 8) == d->at &&
                 tt_take(&c, 4) == offset;
    if (!sound) {
        sound = tt_sound_damaged(d->look, heap, at, "a block of it is none");
    }
    for (uint64_t i = 0; i < rows * WIDTH && sound; i++) {
        const uint64_t row = i / WIDTH, bytes = size_of_row(row), child = tt_take(&c, 8);
        if (child == TT_NOWHERE) {
        } else if (row < DIRECT_ROWS) {
            sound = add_part(d, offset, bytes, child);
        } else { /* so many rows that they come to `bytes` */
            sound = outer ? add_parts(d, offset, row - 2, child, false)
                          : tt_sound_unread(d->look, heap, at, "it is larger than any group needs");
        }
        offset += bytes;
    }
    free(block);
    return sound;
}

/* The header, and all blocks. */
static bool load_heap(dense *d)
{
    enum { HEAD = 146 };
    unsigned char *head = NULL;
    if (!tt_sound_claim(d->look, heap, d->at) ||
        !tt_sound_load(d->look, heap, d->at, HEAD, &head)) {
        return false;
    }
    tt_cursor c = {head + 4, head + HEAD, false};
    const bool ours = tt_is_signature(head, "FRHP") && tt_take(&c, 1) == 0;
    const bool sealed = !ours || tt_sound_sealed(d->look, heap, d->at, head, HEAD);
    bool usual = tt_take(&c, 2) == 7 && tt_take(&c, 2) == 0 && tt_take(&c, 1) == 2 &&
                 tt_take(&c, 4) == MOST_LINK;
    tt_skip(&c, 8);
    usual = tt_take(&c, 8) == TT_NOWHERE && usual; /* no objects outside of blocks */
    tt_skip(&c, 16);
    d->managed = tt_take(&c, 8);
    tt_skip(&c, 24);
    for (int i = 0; i < 4; i++) { /* nor within their own addresses */
        usual = tt_take(&c, 8) == 0 && usual;
    }
    usual = usual && tt_take(&c, 2) == WIDTH && tt_take(&c, 8) == START &&
            tt_take(&c, 8) == LARGEST && tt_take(&c, 2) == 32 && tt_take(&c, 2) == 1;
    const uint64_t root = tt_take(&c, 8), rows = tt_take(&c, 2);
    free(head);
    if (!ours) {
        return tt_sound_damaged(d->look, heap, d->at, "there is none");
    }
    if (!sealed) {
        return false;
    }
    if (!usual || rows > MOST_ROWS) {
        return tt_sound_unread(d->look, heap, d->at, "it is not made as groups make theirs");
    }
    if (root == TT_NOWHERE) {
        return true;
    }
    return rows == 0 ? add_part(d, 0, START, root) : add_parts(d, 0, rows, root, true);
}

static const part *find(const dense *d, uint64_t offset)
{
    uint64_t low = 0, high = d->parts;
    while (low < high) {
        const uint64_t middle = low + (high - low) / 2;
        if (d->part[middle].offset + d->part[middle].size <= offset) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low < d->parts && d->part[low].offset <= offset ? &d->part[low] : NULL;
}

/* The link that the 7 bytes of a record name. */
static bool check_object(dense *d, tt_cursor *c)
{
    const uint64_t kind = tt_take(c, 1), offset = tt_take(c, 4), size = tt_take(c, 2);
    const part *p = find(d, offset);
    if (kind != 0 || p == NULL || offset > d->managed || size > MOST_LINK ||
        offset - p->offset < OVERHEAD || size == 0 || size > p->size - (offset - p->offset)) {
        return tt_sound_damaged(d->look, heap, d->at, "a link is not in it");
    }
    return tt_sound_link(d->look, d->at, p->data + (offset - p->offset), size, d->depth, d->follow);
}

/* --- the trees -------------------------------------------------------------------------------- */

static int bytes_for(uint64_t most)
{
    int bytes = 1;
    while (most >>= 8) {
        bytes++;
    }
    return bytes;
}

static void measure(dense *d, uint64_t record)
{
    d->record = record;
    d->most[0] = d->all[0] = (NODE - 10) / record;
    d->width = (uint64_t)bytes_for(d->most[0]);
    d->all_width[0] = 0;
    for (int h = 1; h <= MOST_DEPTH; h++) {
        const uint64_t pointer = 8 + d->width + d->all_width[h - 1];
        d->most[h] = (NODE - 10 - pointer) / (record + pointer);
        d->all[h] = (d->most[h] + 1) * d->all[h - 1] + d->most[h];
        d->all_width[h] = (uint64_t)bytes_for(d->all[h]);
    }
}

/* A node of so many records, and *all with those below. */
static bool check_node(dense *d, uint64_t at, uint64_t records, int height, uint64_t *all)
{
    unsigned char *node = NULL;
    if (records > d->most[height] || (records == 0 && height > 0)) {
        return tt_sound_damaged(d->look, tree, at, "a node of it is too full");
    }
    if (!tt_sound_claim(d->look, tree, at) || !tt_sound_load(d->look, tree, at, NODE, &node)) {
        return false;
    }
    tt_cursor c = {node + 4, node + NODE, false};
    bool sound = tt_is_signature(node, height > 0 ? "BTIN" : "BTLF") && tt_take(&c, 1) == 0 &&
                 tt_take(&c, 1) == (uint64_t)d->type;
    /* Behind the records and the pointers of a node that is full only in part stands its checksum. */
    const uint64_t pointer = 8 + d->width + (height > 1 ? d->all_width[height - 1] : 0);
    const uint64_t size = 10 + records * d->record + (height > 0 ? (records + 1) * pointer : 0);
    sound = sound ? tt_sound_sealed(d->look, tree, at, node, size)
                  : tt_sound_damaged(d->look, tree, at, "a node of it is none");
    for (uint64_t i = 0; i < records && sound; i++) {
        tt_skip(&c, d->record - 7);
        sound = check_object(d, &c);
    }
    *all = records;
    for (uint64_t i = 0; i <= records && height > 0 && sound; i++) {
        const uint64_t child = tt_take(&c, 8), own = tt_take(&c, (int)d->width);
        const uint64_t told = height > 1 ? tt_take(&c, (int)d->all_width[height - 1]) : own;
        uint64_t below = 0;
        sound = check_node(d, child, own, height - 1, &below);
        if (sound && below != told) {
            sound = tt_sound_damaged(d->look, tree, at, "its records are not as many as it says");
        }
        *all += below;
    }
    free(node);
    return sound;
}

/* type 5: by name, 6: by order. *all: its records. */
static bool check_tree(dense *d, uint64_t at, int type, uint64_t *all)
{
    enum { HEAD = 38 };
    unsigned char *head = NULL;
    d->type = type;
    d->follow = type == 5;
    measure(d, type == 5 ? 11 : 15);
    if (!tt_sound_claim(d->look, tree, at) || !tt_sound_load(d->look, tree, at, HEAD, &head)) {
        return false;
    }
    tt_cursor c = {head + 4, head + HEAD, false};
    const bool ours = tt_is_signature(head, "BTHD") && tt_take(&c, 1) == 0 &&
                      tt_take(&c, 1) == (uint64_t)type && tt_take(&c, 4) == NODE &&
                      tt_take(&c, 2) == d->record;
    const uint64_t height = tt_take(&c, 2);
    const bool usual = tt_take(&c, 1) == 100 && tt_take(&c, 1) == 40 && height <= MOST_DEPTH;
    const uint64_t root = tt_take(&c, 8), records = tt_take(&c, 2), told = tt_take(&c, 8);
    const bool sealed = !ours || tt_sound_sealed(d->look, tree, at, head, HEAD);
    free(head);
    if (!sealed) {
        return false;
    }
    if (!ours || !usual) {
        return tt_sound_damaged(d->look, tree, at, "there is none");
    }
    *all = 0;
    if (root == TT_NOWHERE && records == 0 && told == 0 && height == 0) {
        return true;
    }
    if (!check_node(d, root, records, (int)height, all)) {
        return false;
    }
    return *all == told ? true : tt_sound_damaged(d->look, tree, at, "it counts its links wrongly");
}

bool tt_sound_dense(tt_look *look, uint64_t at, uint64_t names, uint64_t order, int depth)
{
    dense d = {.look = look, .at = at, .depth = depth};
    uint64_t by_name = 0, by_order = 0;
    bool sound = load_heap(&d) && check_tree(&d, names, 5, &by_name);
    if (sound && order != TT_NOWHERE) {
        sound = check_tree(&d, order, 6, &by_order);
        if (sound && by_order != by_name) {
            sound = tt_sound_damaged(look, tree, order, "it counts its links wrongly");
        }
    }
    for (uint64_t i = 0; i < d.parts; i++) {
        free(d.part[i].data);
    }
    free(d.part);
    return sound;
}
