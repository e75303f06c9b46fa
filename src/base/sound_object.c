/* sound_object.c: object headers: their chunks and messages, and what kind of object they make. See
 * sound.h.
 *
 * Owns the chunks of a header while the object is looked at. Next: sound_group.c, sound_data.c. */
#include <stdlib.h>

#include "base/sound_impl.h"

enum { MOST_MESSAGES = 65536 };

static const char object[] = "the object";

static void forget(tt_header *header)
{
    for (int i = 0; i < header->chunks; i++) {
        free(header->chunk[i]);
    }
    free(header->message);
}

static bool add_message(tt_look *look, tt_header *header, unsigned type, const unsigned char *data,
                        uint64_t size)
{
    if (header->messages == header->room) {
        const int room = header->room > 0 ? 2 * header->room : 16;
        tt_message *message =
            room <= MOST_MESSAGES ? realloc(header->message, (size_t)room * sizeof *message) : NULL;
        if (message == NULL) {
            return tt_sound_damaged(look, object, header->at, "its header has too many messages");
        }
        header->message = message;
        header->room = room;
    }
    header->message[header->messages++] = (tt_message){type, data, size};
    return true;
}

/* Can a message of this type stand in the header of an object that is read? */
static bool known_type(tt_look *look, const tt_header *header, unsigned type)
{
    switch (type) {
    case 7:
        return tt_sound_unread(look, object, header->at, "its data is in other files");
    case 9:
        return tt_sound_damaged(look, object, header->at, "it has a message that cannot be");
    case 15: /* shared messages, parameters of trees, of drivers, of free space */
    case 19:
    case 20:
        return tt_sound_unread(look, object, header->at, "it has settings of a whole file");
    default:
        return type < 23 ? true
                         : tt_sound_unread(look, object, header->at,
                                           "it has a message of a type that is not known");
    }
}

/* The messages in data[size]; version 1 has wider frames. */
static bool add_messages(tt_look *look, tt_header *header, int version, bool ordered,
                         const unsigned char *data, uint64_t size)
{
    const uint64_t frame = version == 1 ? 8 : ordered ? 6 : 4;
    tt_cursor c = {data, data + size, false};
    while ((uint64_t)(c.end - c.p) >= frame) {
        const unsigned type = (unsigned)tt_take(&c, version == 1 ? 2 : 1);
        const uint64_t length = tt_take(&c, 2), flags = tt_take(&c, 1);
        tt_skip(&c, version == 1 ? 3 : ordered ? 2 : 0);
        const unsigned char *at = c.p;
        tt_skip(&c, length);
        if (c.beyond || (version == 1 && length % 8 != 0)) {
            return tt_sound_damaged(look, object, header->at, "a message of it ends nowhere");
        }
        if ((flags & 2) != 0) {
            return tt_sound_unread(look, object, header->at, "it shares a message with others");
        }
        if (!known_type(look, header, type) || !add_message(look, header, type, at, length)) {
            return false;
        }
    }
    if (version == 1 && c.p != c.end) {
        return tt_sound_damaged(look, object, header->at, "its messages leave a rest");
    }
    return true;
}

/* Keeps the chunk, which a header frees. */
static bool load_chunk(tt_look *look, tt_header *header, uint64_t at, uint64_t size,
                       unsigned char **data)
{
    if (header->chunks == sizeof header->chunk / sizeof *header->chunk) {
        return tt_sound_damaged(look, object, header->at, "its header is in too many pieces");
    }
    if (!tt_sound_load(look, object, at, size, data)) {
        return false;
    }
    header->chunk[header->chunks++] = *data;
    return true;
}

/* The chunks that continuation messages name, and theirs. */
static bool read_continued(tt_look *look, tt_header *header, int version, bool ordered)
{
    for (int i = 0; i < header->messages; i++) {
        unsigned char *data = NULL;
        if (header->message[i].type != TT_MESSAGE_CONTINUED) {
            continue;
        }
        tt_cursor c = {header->message[i].data, header->message[i].data + header->message[i].size,
                       false};
        const uint64_t at = tt_take(&c, 8), size = tt_take(&c, 8);
        const uint64_t around = version == 1 ? 0 : 8; /* signature and checksum */
        if (c.beyond || size < around || size == 0) {
            return tt_sound_damaged(look, object, header->at, "its header goes on nowhere");
        }
        if (!tt_sound_claim(look, "the rest of a header", at) ||
            !load_chunk(look, header, at, size, &data)) {
            return false;
        }
        if (version == 2 && !tt_is_signature(data, "OCHK")) {
            return tt_sound_damaged(look, object, header->at, "its header goes on elsewhere");
        }
        if (version == 2 && !tt_sound_sealed(look, object, at, data, size)) {
            return false;
        }
        if (!add_messages(look, header, version, ordered, data + around / 2, size - around)) {
            return false;
        }
    }
    return true;
}

static bool read_version_1(tt_look *look, tt_header *header)
{
    enum { PREFIX = 16 };
    unsigned char *prefix = NULL, *data = NULL;
    if (!load_chunk(look, header, header->at, PREFIX, &prefix)) {
        return false;
    }
    tt_cursor c = {prefix, prefix + PREFIX, false};
    const uint64_t version = tt_take(&c, 1);
    tt_skip(&c, 7);
    const uint64_t size = tt_take(&c, 4);
    if (version != 1) {
        return tt_sound_damaged(look, object, header->at, "there is no header");
    }
    return load_chunk(look, header, header->at + PREFIX, size, &data) &&
           add_messages(look, header, 1, false, data, size) &&
           read_continued(look, header, 1, false);
}

static bool read_version_2(tt_look *look, tt_header *header)
{
    enum { LEAST = 7, CHECKSUM = 4 };
    unsigned char *prefix = NULL, *data = NULL;
    uint64_t head = LEAST;
    if (!load_chunk(look, header, header->at, LEAST, &prefix)) {
        return false;
    }
    const unsigned flags = prefix[5];
    const int width = 1 << (flags & 3);
    const bool ordered = (flags & 4) != 0;
    if (prefix[4] != 2 || (flags & ~63u) != 0) {
        return tt_sound_damaged(look, object, header->at, "its header is of no known version");
    }
    head = 6 + ((flags & 32) != 0 ? 16 : 0) + ((flags & 16) != 0 ? 4 : 0);
    if (!load_chunk(look, header, header->at, head + (uint64_t)width, &prefix)) {
        return false;
    }
    tt_cursor c = {prefix + head, prefix + head + width, false};
    const uint64_t size = tt_take(&c, width);
    head += (uint64_t)width;
    if (size > look->end) {
        return tt_sound_damaged(look, object, header->at, "its header is larger than the file");
    }
    return load_chunk(look, header, header->at, head + size + CHECKSUM, &data) &&
           tt_sound_sealed(look, object, header->at, data, head + size + CHECKSUM) &&
           add_messages(look, header, 2, ordered, data + head, size) &&
           read_continued(look, header, 2, ordered);
}

static bool read_header(tt_look *look, tt_header *header)
{
    unsigned char *signature = NULL;
    if (!load_chunk(look, header, header->at, 4, &signature)) {
        return false;
    }
    return tt_is_signature(signature, "OHDR") ? read_version_2(look, header)
                                              : read_version_1(look, header);
}

const tt_message *tt_sound_message(const tt_header *header, unsigned type)
{
    for (int i = 0; i < header->messages; i++) {
        if (header->message[i].type == type) {
            return &header->message[i];
        }
    }
    return NULL;
}

/* What there may be only one of; HDF5 would take the first, or the last. */
static bool check_once(tt_look *look, const tt_header *header)
{
    unsigned seen = 0;
    for (int i = 0; i < header->messages; i++) {
        const unsigned type = header->message[i].type;
        if (type == 0 || type == TT_MESSAGE_LINK || type == TT_MESSAGE_ATTRIBUTE ||
            type == TT_MESSAGE_CONTINUED) {
            continue;
        }
        if ((seen & 1u << type) != 0) {
            return tt_sound_damaged(look, object, header->at, "it has a message twice");
        }
        seen |= 1u << type;
        if (type == TT_MESSAGE_REFERENCES && header->message[i].size < 5) {
            return tt_sound_damaged(look, object, header->at, "it does not count its links");
        }
    }
    return true;
}

static bool check_object(tt_look *look, const tt_header *header, int depth,
                         const uint64_t symbols[2])
{
    const bool group = tt_sound_message(header, TT_MESSAGE_SYMBOLS) != NULL ||
                       tt_sound_message(header, TT_MESSAGE_LINK_INFO) != NULL;
    const bool dataset = tt_sound_message(header, TT_MESSAGE_TYPE) != NULL &&
                         tt_sound_message(header, TT_MESSAGE_SPACE) != NULL;
    uint64_t bytes = 0;
    if (group && !dataset) {
        tt_sound_block(look, header->at)->kind = TT_BLOCK_GROUP;
        return (depth > 0 || tt_sound_attributes(look, header)) &&
               tt_sound_group(look, header, depth, symbols);
    }
    if (!dataset || group || depth == 0 || symbols != NULL) {
        return tt_sound_unread(look, object, header->at, "it is neither a group nor a dataset");
    }
    if (!tt_sound_dataset(look, header, &bytes)) {
        return false;
    }
    tt_block *block = tt_sound_block(look, header->at);
    block->kind = TT_BLOCK_DATASET;
    block->bytes = bytes;
    return true;
}

/* Each name of a dataset is a time to read it. */
static bool count_data(tt_look *look, uint64_t at)
{
    const uint64_t bytes = tt_sound_block(look, at)->bytes;
    if (bytes > look->data) {
        return tt_sound_damaged(look, object, at, "datasets claim more data than the file has");
    }
    look->data -= bytes;
    return true;
}

bool tt_sound_object(tt_look *look, uint64_t at, int depth, const uint64_t symbols[2])
{
    tt_header header = {.at = at};
    tt_block *block = tt_sound_block(look, at);
    if (block == NULL) {
        return false;
    }
    if (depth > TT_DEEPEST) {
        return tt_sound_unread(look, object, at, "it is too deep in groups within groups");
    }
    if (block->kind == TT_BLOCK_DATASET && symbols == NULL) {
        return count_data(look, at);
    }
    if (block->kind != TT_BLOCK_FREE) {
        return tt_sound_damaged(look, object, at,
                                block->kind == TT_BLOCK_GROUP
                                    ? "a group that has two names"
                                    : "its header is part of something else, too");
    }
    block->kind = TT_BLOCK_OTHER; /* until it is known */
    const bool sound = read_header(look, &header) && check_once(look, &header) &&
                       check_object(look, &header, depth, symbols) &&
                       (tt_sound_block(look, at)->kind != TT_BLOCK_DATASET || count_data(look, at));
    forget(&header);
    return sound;
}
