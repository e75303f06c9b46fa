/* sound.c: may HDF5 be let near this file? The superblock, and what all blocks have in common. See
 * sound.h.
 *
 * The format is described in HDF5's "File Format Specification", version 3.0. Of what it allows,
 * this accepts addresses and lengths of 8 bytes, groups of all kinds, and datasets of numbers and
 * texts that are compact, contiguous, or in chunks under a tree of version 1. Everything else
 * HDF5's default settings, and h5py's, do not make, or (compressed data) HDF5 1.10 cannot read
 * safely.
 *
 * Owns nothing after it returns. Reads the file; next: sound_object.c. */
#include "tutti/base/sound.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tutti/base/file.h"

#include "base/sound_impl.h"

enum {
    LARGEST_BLOCK = 64 << 20, /* bytes: the names of a million links */
    WINDOW = 64 << 10
};

static bool say(tt_look *look, tt_soundness verdict, const char *thing, uint64_t at,
                const char *what)
{
    look->verdict = verdict;
    snprintf(look->why, TT_SOUND_WHY, "%s at byte %llu: %s", thing, (unsigned long long)at, what);
    return false;
}

bool tt_sound_damaged(tt_look *look, const char *thing, uint64_t at, const char *what)
{
    return say(look, TT_SOUND_DAMAGED, thing, at, what);
}

bool tt_sound_unread(tt_look *look, const char *thing, uint64_t at, const char *what)
{
    return say(look, TT_SOUND_UNREAD, thing, at, what);
}

/* --- blocks ----------------------------------------------------------------------------------- */

/* Bytes as they are; 0, or what the system says. */
static int read_at(int fd, unsigned char *data, uint64_t at, uint64_t size)
{
    while (size > 0) {
        const int64_t got = tt_pread(fd, data, (size_t)size, (int64_t)at);
        if (got <= 0) {
            return got < 0 ? errno : ENODATA;
        }
        data += got;
        at += (uint64_t)got;
        size -= (uint64_t)got;
    }
    return 0;
}

/* The same out of the window, which moves there: metadata lies close together in hundreds of small
 * pieces, and each call may be a journey. What cannot be had with its surroundings is asked for
 * alone. */
static int read_near(tt_look *look, unsigned char *data, uint64_t at, uint64_t size)
{
    if (look->window == NULL) {
        look->window = malloc(WINDOW); /* without it every piece is read alone */
    }
    if (look->window == NULL || size > WINDOW / 2) {
        return read_at(look->fd, data, at, size);
    }
    if (at < look->window_at || at + size > look->window_at + look->window_size) {
        look->window_at = at / (WINDOW / 2) * (WINDOW / 2);
        const int64_t got = tt_pread(look->fd, look->window, WINDOW, (int64_t)look->window_at);
        look->window_size = got > 0 ? (uint64_t)got : 0;
        if (at + size > look->window_at + look->window_size) {
            look->window_size = 0;
            return read_at(look->fd, data, at, size);
        }
    }
    memcpy(data, look->window + (at - look->window_at), (size_t)size);
    return 0;
}

bool tt_sound_load(tt_look *look, const char *thing, uint64_t at, uint64_t size,
                   unsigned char **data)
{
    *data = NULL;
    if (at > look->end || size > look->end - at) {
        return tt_sound_damaged(look, thing, at, "it reaches beyond the end of the file");
    }
    if (size > look->budget || size > LARGEST_BLOCK) {
        return tt_sound_damaged(look, thing, at, "it is larger than the file has room for");
    }
    look->budget -= size;
    *data = malloc(size > 0 ? (size_t)size : 1);
    if (*data == NULL) {
        return tt_sound_damaged(look, thing, at, "out of memory");
    }
    const int failed = read_near(look, *data, at, size);
    if (failed != 0) {
        free(*data);
        *data = NULL;
        return tt_sound_damaged(look, thing, at, strerror(failed));
    }
    return true;
}

static uint64_t slot_of(const tt_look *look, uint64_t at)
{
    uint64_t slot = at * UINT64_C(0x9e3779b97f4a7c15) >> 20;
    for (;; slot++) {
        slot &= look->blocks - 1;
        if (look->block[slot].kind == TT_BLOCK_FREE || look->block[slot].at == at) {
            return slot;
        }
    }
}

/* Twice the room, when half is used. */
static bool grow(tt_look *look)
{
    const tt_look old = *look;
    if (look->block != NULL && 2 * (look->met + 1) <= look->blocks) {
        return true;
    }
    look->blocks = old.blocks > 0 ? 2 * old.blocks : 256;
    look->block = calloc((size_t)look->blocks, sizeof *look->block);
    if (look->block == NULL) {
        *look = old;
        return false;
    }
    for (uint64_t i = 0; i < old.blocks; i++) {
        if (old.block[i].kind != TT_BLOCK_FREE) {
            look->block[slot_of(look, old.block[i].at)] = old.block[i];
        }
    }
    free(old.block);
    return true;
}

tt_block *tt_sound_block(tt_look *look, uint64_t at)
{
    if (look->blocks > 0 && look->block[slot_of(look, at)].kind != TT_BLOCK_FREE) {
        return &look->block[slot_of(look, at)];
    }
    if (!grow(look)) {
        tt_sound_damaged(look, "the block", at, "out of memory");
        return NULL;
    }
    tt_block *block = &look->block[slot_of(look, at)];
    block->at = at;
    look->met++; /* the caller gives it a kind */
    return block;
}

bool tt_sound_claim(tt_look *look, const char *thing, uint64_t at)
{
    tt_block *block = tt_sound_block(look, at);
    if (block == NULL) {
        return false;
    }
    if (block->kind != TT_BLOCK_FREE) {
        return tt_sound_damaged(look, thing, at, "it is part of something else, too");
    }
    block->kind = TT_BLOCK_OTHER;
    return true;
}

/* --- checksums -------------------------------------------------------------------------------- */

static uint32_t rotate(uint32_t x, int k)
{
    return (x << k) | (x >> (32 - k));
}

/* Bob Jenkins' lookup3, hashlittle() with an initial value of 0. */
uint32_t tt_sound_checksum(const unsigned char *data, size_t size)
{
    static const int middle[6] = {4, 6, 8, 16, 19, 4}, last[7] = {14, 11, 25, 16, 4, 14, 24};
    uint32_t s[3];
    s[0] = s[1] = s[2] = 0xdeadbeefu + (uint32_t)size;
    while (size > 0) {
        const size_t n = size < 12 ? size : 12;
        for (size_t i = 0; i < n; i++) {
            s[i / 4] += (uint32_t)data[i] << (8 * (i % 4));
        }
        data += n;
        size -= n;
        for (int i = 0; i < 6 && size > 0; i++) {
            const int a = i % 3, b = (i + 1) % 3, c = (i + 2) % 3;
            s[a] -= s[c];
            s[a] ^= rotate(s[c], middle[i]);
            s[c] += s[b];
        }
    }
    for (int i = 0; i < 7; i++) {
        const int a = (i + 2) % 3, b = (i + 1) % 3;
        s[a] ^= s[b];
        s[a] -= rotate(s[b], last[i]);
    }
    return s[2];
}

bool tt_sound_sealed(tt_look *look, const char *thing, uint64_t at, const unsigned char *data,
                     uint64_t size)
{
    tt_cursor c = {data + size - 4, data + size, false};
    return tt_sound_checksum(data, (size_t)size - 4) == tt_take(&c, 4)
               ? true
               : tt_sound_damaged(look, thing, at, "its checksum is wrong");
}

/* --- numbers ---------------------------------------------------------------------------------- */

void tt_skip(tt_cursor *cursor, uint64_t bytes)
{
    if (bytes > (uint64_t)(cursor->end - cursor->p)) {
        cursor->beyond = true;
        cursor->p = cursor->end;
        return;
    }
    cursor->p += bytes;
}

uint64_t tt_take(tt_cursor *cursor, int bytes)
{
    const unsigned char *p = cursor->p;
    uint64_t value = 0;
    tt_skip(cursor, (uint64_t)bytes);
    for (int i = 0; i < bytes && !cursor->beyond; i++) {
        value |= (uint64_t)p[i] << (8 * i);
    }
    return value;
}

bool tt_is_signature(const unsigned char *data, const char *signature)
{
    return memcmp(data, signature, 4) == 0;
}

/* --- the superblock --------------------------------------------------------------------------- */

static const char superblock[] = "the superblock";

/* Of versions 0 and 1, behind the signature and the version; the root is told of in a symbol table's
 * entry, with the places of its links perhaps. */
static bool old_superblock(tt_look *look, tt_cursor *c, unsigned version, uint64_t place[4],
                           uint64_t *root, uint64_t symbols[2])
{
    tt_skip(c, 4);
    const bool wide = tt_take(c, 1) == 8 && tt_take(c, 1) == 8;
    tt_skip(c, 1);
    if (!wide) {
        return tt_sound_unread(look, superblock, 0, "its addresses are not of 8 bytes");
    }
    look->leaf_k = tt_take(c, 2);
    look->group_k = tt_take(c, 2);
    tt_skip(c, 4);
    if (version == 1) {
        look->chunk_k = tt_take(c, 2);
        tt_skip(c, 2);
    }
    for (int i = 0; i < 4; i++) {
        place[i] = tt_take(c, 8);
    }
    tt_skip(c, 8);
    *root = tt_take(c, 8);
    const uint64_t cached = tt_take(c, 4);
    tt_skip(c, 4);
    symbols[0] = tt_take(c, 8);
    symbols[1] = tt_take(c, 8);
    if (cached > 1) {
        return tt_sound_damaged(look, superblock, 0, "its root is no group");
    }
    if (cached == 0) {
        symbols[0] = symbols[1] = TT_NOWHERE;
    }
    return true;
}

static bool new_superblock(tt_look *look, tt_cursor *c, uint64_t place[4], uint64_t *root)
{
    const bool wide = tt_take(c, 1) == 8 && tt_take(c, 1) == 8;
    tt_skip(c, 1);
    if (!wide) {
        return tt_sound_unread(look, superblock, 0, "its addresses are not of 8 bytes");
    }
    for (int i = 0; i < 3; i++) {
        place[i] = tt_take(c, 8);
    }
    *root = tt_take(c, 8);
    return true;
}

static bool cut_short(tt_look *look, uint64_t size, uint64_t whole)
{
    look->verdict = TT_SOUND_DAMAGED;
    snprintf(look->why, TT_SOUND_WHY, "truncated file: %llu of %llu bytes are there",
             (unsigned long long)size, (unsigned long long)whole);
    return false;
}

static bool check_file(tt_look *look)
{
    enum { LEAST = 48, MOST = 100, BASE = 0, MORE = 1, END = 2, DRIVER = 3 };
    static const unsigned char signature[8] = {0x89, 'H', 'D', 'F', '\r', '\n', 0x1a, '\n'};
    unsigned char head[MOST] = {0};
    struct stat info;
    uint64_t place[4] = {0, TT_NOWHERE, 0, TT_NOWHERE}, root = 0;
    uint64_t symbols[2] = {TT_NOWHERE, TT_NOWHERE};
    if (fstat(look->fd, &info) != 0) {
        return tt_sound_damaged(look, superblock, 0, strerror(errno));
    }
    const uint64_t size = (uint64_t)info.st_size;
    const int failed = read_near(look, head, 0, size < MOST ? size : MOST);
    if (failed != 0) {
        return tt_sound_damaged(look, superblock, 0, strerror(failed));
    }
    if (memcmp(head, signature, sizeof signature) != 0) {
        return tt_sound_unread(look, superblock, 0,
                               "HDF5 does not begin with the file's first byte");
    }
    const unsigned version = head[8];
    const uint64_t needed = version == 0 ? 96 : version == 1 ? 100 : LEAST;
    if (size < needed) {
        return cut_short(look, size, needed);
    }
    tt_cursor c = {head + 9, head + needed, false};
    if (version > 3) {
        return tt_sound_unread(look, superblock, 0, "its version is not known");
    }
    if (version > 1 && !tt_sound_sealed(look, superblock, 0, head, LEAST)) {
        return false;
    }
    if (!(version < 2 ? old_superblock(look, &c, version, place, &root, symbols)
                      : new_superblock(look, &c, place, &root))) {
        return false;
    }
    if (place[BASE] != 0 || place[MORE] != TT_NOWHERE || place[DRIVER] != TT_NOWHERE) {
        return tt_sound_unread(look, superblock, 0, "the file is made for special drivers or uses");
    }
    if (look->leaf_k < 1 || look->group_k < 1 || look->chunk_k < 1) {
        return tt_sound_damaged(look, superblock, 0, "its nodes have no entries");
    }
    if (place[END] > size) {
        return cut_short(look, size, place[END]);
    }
    look->end = place[END];
    look->budget = 2 * look->end + 65536; /* heads are read twice */
    look->data = 4 * look->end + 65536;
    return tt_sound_object(look, root, 0, symbols[0] == TT_NOWHERE ? NULL : symbols);
}

tt_soundness tt_sound_check(const char *path, char *why)
{
    /* The halves that files without such fields have. */
    tt_look look = {.leaf_k = 4, .group_k = 16, .chunk_k = 32, .verdict = TT_SOUND, .why = why};
    why[0] = '\0';
    look.fd = tt_open(path, O_RDONLY | O_NONBLOCK);
    if (look.fd < 0) {
        snprintf(why, TT_SOUND_WHY, "%s", strerror(errno));
        return TT_SOUND_DAMAGED;
    }
    check_file(&look);
    close(look.fd);
    free(look.texts);
    free(look.window);
    free(look.block);
    return look.verdict;
}
