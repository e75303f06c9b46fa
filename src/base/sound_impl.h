/* sound_impl.h: a look at an HDF5 file that is under way. See tutti/base/sound.h.
 *
 * The file is read block by block, each into memory of its own of exactly its size. Functions
 * return false when the file is not sound, or cannot be read; then `why` has been written, and
 * everybody returns. */
#ifndef TUTTI_SOUND_IMPL_H
#define TUTTI_SOUND_IMPL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tutti/base/sound.h"

#define TT_NOWHERE UINT64_MAX /* the address of what is not there */

/* What a block is part of: HDF5 keeps blocks by their addresses, and must not take one for another. */
typedef enum tt_block_kind {
    TT_BLOCK_FREE,
    TT_BLOCK_GROUP,
    TT_BLOCK_DATASET,
    TT_BLOCK_TEXTS, /* a global heap: the only kind that several things refer to */
    TT_BLOCK_OTHER
} tt_block_kind;

typedef struct tt_block {
    uint64_t at;
    tt_block_kind kind;
    uint64_t bytes; /* of data that a dataset stores */
} tt_block;

typedef struct tt_look {
    int fd;
    uint64_t end;    /* the file as its superblock has it; nothing lies beyond */
    uint64_t budget; /* bytes of metadata that may still be read */
    uint64_t data;   /* bytes of data that may still be claimed */
    uint64_t links;
    uint64_t leaf_k, group_k, chunk_k; /* half the entries of nodes of version 1 */
    tt_block *block;                   /* [blocks] owned: a hash table of those met */
    uint64_t blocks, met;
    unsigned char *texts; /* [texts_size] owned: the global heap looked at last */
    uint64_t texts_at, texts_size;
    unsigned char *window; /* [64 KiB] owned: of the file, from window_at on */
    uint64_t window_at, window_size;
    tt_soundness verdict;
    char *why; /* [TT_SOUND_WHY] */
} tt_look;

/* Both return false. */
bool tt_sound_damaged(tt_look *look, const char *thing, uint64_t at, const char *what);
bool tt_sound_unread(tt_look *look, const char *thing, uint64_t at, const char *what);

/* Reads [at, at + size) into memory that is the caller's to free. */
bool tt_sound_load(tt_look *look, const char *thing, uint64_t at, uint64_t size,
                   unsigned char **data);

/* The last 4 bytes are HDF5's checksum (lookup3) of those before. */
uint32_t tt_sound_checksum(const unsigned char *data, size_t size);
bool tt_sound_sealed(tt_look *look, const char *thing, uint64_t at, const unsigned char *data,
                     uint64_t size);

/* The block at an address, new (kind TT_BLOCK_FREE) or met before; NULL when memory is out. */
tt_block *tt_sound_block(tt_look *look, uint64_t at);
/* A block that nothing else may have. */
bool tt_sound_claim(tt_look *look, const char *thing, uint64_t at);

/* Little-endian numbers in order; what lies beyond the end is 0 and remembered. */
typedef struct tt_cursor {
    const unsigned char *p, *end;
    bool beyond;
} tt_cursor;

uint64_t tt_take(tt_cursor *cursor, int bytes);
void tt_skip(tt_cursor *cursor, uint64_t bytes);
bool tt_is_signature(const unsigned char *data, const char *signature);

/* A message of an object header. */
typedef struct tt_message {
    unsigned type;
    const unsigned char *data;
    uint64_t size;
} tt_message;

typedef struct tt_header {
    uint64_t at;
    int messages, room;
    tt_message *message; /* [messages] owned */
    int chunks;
    unsigned char *chunk[64]; /* [chunks] owned: the messages point into them */
} tt_header;

enum {
    TT_MESSAGE_SPACE = 1,
    TT_MESSAGE_LINK_INFO = 2,
    TT_MESSAGE_TYPE = 3,
    TT_MESSAGE_OLD_FILL = 4,
    TT_MESSAGE_FILL = 5,
    TT_MESSAGE_LINK = 6,
    TT_MESSAGE_LAYOUT = 8,
    TT_MESSAGE_GROUP_INFO = 10,
    TT_MESSAGE_FILTERS = 11,
    TT_MESSAGE_ATTRIBUTE = 12,
    TT_MESSAGE_CONTINUED = 16,
    TT_MESSAGE_SYMBOLS = 17,
    TT_MESSAGE_ATTRIBUTE_INFO = 21,
    TT_MESSAGE_REFERENCES = 22
};

/* The only message of a type; NULL: there is none. */
const tt_message *tt_sound_message(const tt_header *header, unsigned type);

/* A type of elements, and how many there are. */
typedef struct tt_form_of {
    uint64_t size;  /* of an element in the file */
    uint64_t count; /* of elements */
    int dims;       /* 0: one value, or none */
    uint64_t dim[32];
    bool texts; /* of variable length: elements are references to a global heap */
} tt_form_of;

enum { TT_DEEPEST = 16 }; /* groups within groups */

/* The object whose header is at `at`, and everything below. symbols: where its parent says that its
 * links are, or NULL. */
bool tt_sound_object(tt_look *look, uint64_t at, int depth, const uint64_t symbols[2]);
bool tt_sound_group(tt_look *look, const tt_header *header, int depth, const uint64_t symbols[2]);
/* *bytes: that it stores. */
bool tt_sound_dataset(tt_look *look, const tt_header *header, uint64_t *bytes);
/* Those of the root, which alone are ever read. */
bool tt_sound_attributes(tt_look *look, const tt_header *header);

bool tt_sound_space(tt_look *look, uint64_t at, const tt_message *message, tt_form_of *form);
bool tt_sound_type(tt_look *look, uint64_t at, const tt_message *message, tt_form_of *form);
/* A reference of 16 bytes to a text of variable length. */
bool tt_sound_text(tt_look *look, const unsigned char *reference);
/* The tree of chunks at `at`; *bytes: that they store. */
bool tt_sound_chunks(tt_look *look, uint64_t at, const tt_form_of *form, const uint64_t *chunk,
                     uint64_t stored, uint64_t *bytes);

/* A link message, and what it leads to; follow false: that is looked at elsewhere. */
bool tt_sound_link(tt_look *look, uint64_t at, const unsigned char *data, uint64_t size, int depth,
                   bool follow);
/* Links in a fractal heap, by the tree of their names and, unless TT_NOWHERE, of their order. */
bool tt_sound_dense(tt_look *look, uint64_t heap, uint64_t names, uint64_t order, int depth);

#endif
