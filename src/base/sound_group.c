/* sound_group.c: groups: links in the header, in symbol tables of old files, or in a heap. See
 * sound.h.
 *
 * An old group is a tree of version 1 over nodes of entries, whose names lie in a local heap. A new
 * one has link messages, in its header or in a fractal heap.
 *
 * Next: sound_heap.c for the last kind. */
#include <stdlib.h>
#include <string.h>

#include "base/sound_impl.h"

enum {
    MOST_LINKS = 1 << 17,     /* of a file */
    MOST_OLD_LINKS = 1 << 14, /* of a group whose list HDF5 goes through for each of them */
    HARD = 0,
    SOFT = 1
};

static const char group[] = "the group", names[] = "the names of a group";

static bool follow_link(tt_look *look, uint64_t from, uint64_t at, int depth,
                        const uint64_t symbols[2])
{
    if (++look->links > MOST_LINKS) {
        return tt_sound_unread(look, group, from, "the file has too many links");
    }
    return tt_sound_object(look, at, depth + 1, symbols);
}

/* --- link messages ---------------------------------------------------------------------------- */

bool tt_sound_link(tt_look *look, uint64_t at, const unsigned char *data, uint64_t size, int depth,
                   bool follow)
{
    tt_cursor c = {data, data + size, false};
    const uint64_t version = tt_take(&c, 1), flags = tt_take(&c, 1);
    const uint64_t type = (flags & 8) != 0 ? tt_take(&c, 1) : HARD;
    tt_skip(&c, (flags & 4) != 0 ? 8 : 0);
    const uint64_t letters = (flags & 16) != 0 ? tt_take(&c, 1) : 0;
    const uint64_t length = tt_take(&c, 1 << (flags & 3));
    const unsigned char *name = c.p;
    tt_skip(&c, length);
    if (c.beyond || version != 1 || flags > 31 || letters > 1 || length == 0 ||
        memchr(name, '\0', (size_t)length) != NULL || memchr(name, '/', (size_t)length) != NULL) {
        return tt_sound_damaged(look, group, at, "a link of it has no name");
    }
    if (type == SOFT) {
        const uint64_t target = tt_take(&c, 2);
        tt_skip(&c, target);
        return c.beyond || target == 0 ? tt_sound_damaged(look, group, at, "a link leads nowhere")
                                       : true;
    }
    if (type != HARD) {
        return tt_sound_unread(look, group, at, "a link leads to another file");
    }
    const uint64_t to = tt_take(&c, 8);
    if (c.beyond) {
        return tt_sound_damaged(look, group, at, "a link leads nowhere");
    }
    return !follow || follow_link(look, at, to, depth, NULL);
}

static bool check_new(tt_look *look, const tt_header *header, int depth)
{
    const tt_message *info = tt_sound_message(header, TT_MESSAGE_LINK_INFO);
    tt_cursor c = {info->data, info->data + info->size, false};
    const uint64_t version = tt_take(&c, 1), flags = tt_take(&c, 1);
    tt_skip(&c, (flags & 1) != 0 ? 8 : 0);
    const uint64_t heap = tt_take(&c, 8), tree = tt_take(&c, 8);
    const uint64_t order = (flags & 2) != 0 ? tt_take(&c, 8) : TT_NOWHERE;
    int links = 0;
    if (c.beyond || version != 0 || flags > 3) {
        return tt_sound_damaged(look, group, header->at, "it does not say how its links are kept");
    }
    for (int i = 0; i < header->messages; i++) {
        const tt_message *m = &header->message[i];
        if (m->type != TT_MESSAGE_LINK) {
            continue;
        }
        if (heap != TT_NOWHERE || ++links > MOST_OLD_LINKS) {
            return tt_sound_damaged(look, group, header->at, "its links are kept in two ways");
        }
        if (!tt_sound_link(look, header->at, m->data, m->size, depth, true)) {
            return false;
        }
    }
    if (heap == TT_NOWHERE) {
        return true;
    }
    if (tree == TT_NOWHERE || ((flags & 2) != 0 && order == TT_NOWHERE)) {
        return tt_sound_damaged(look, group, header->at, "its links cannot be found");
    }
    return tt_sound_dense(look, heap, tree, order, depth);
}

/* --- symbol tables ---------------------------------------------------------------------------- */

typedef struct table {
    tt_look *look;
    uint64_t at; /* of the group */
    int depth;
    unsigned char *name; /* [room] owned: the local heap's data */
    uint64_t room;
    int links;
} table;

/* A name that begins there ends within the heap. */
static bool check_name(const table *t, uint64_t offset)
{
    return (offset < t->room && memchr(t->name + offset, '\0', (size_t)(t->room - offset)) != NULL)
               ? true
               : tt_sound_damaged(t->look, names, t->at, "one of them has no end");
}

/* The list of what is free in a heap: it goes through the heap, and not in circles. */
static bool check_free(table *t, uint64_t at, uint64_t offset)
{
    enum { LAST = 1, ENTRY = 16 };
    for (uint64_t steps = 0; offset != LAST; steps++) {
        if (steps > t->room / ENTRY || offset >= t->room || t->room - offset < ENTRY) {
            return tt_sound_damaged(t->look, names, at, "their list of free space has no end");
        }
        tt_cursor c = {t->name + offset, t->name + offset + ENTRY, false};
        const uint64_t next = tt_take(&c, 8), size = tt_take(&c, 8);
        if (next == 0 || size > t->room - offset) {
            return tt_sound_damaged(t->look, names, at, "their free space is larger than all");
        }
        offset = next;
    }
    return true;
}

static bool load_names(table *t, uint64_t at)
{
    enum { HEAD = 32 };
    unsigned char *head = NULL;
    if (!tt_sound_claim(t->look, names, at) || !tt_sound_load(t->look, names, at, HEAD, &head)) {
        return false;
    }
    tt_cursor c = {head + 4, head + HEAD, false};
    const bool ours = tt_is_signature(head, "HEAP") && tt_take(&c, 1) == 0;
    tt_skip(&c, 3);
    t->room = tt_take(&c, 8);
    const uint64_t free_list = tt_take(&c, 8), data = tt_take(&c, 8);
    free(head);
    if (!ours) {
        return tt_sound_damaged(t->look, names, at, "there are none");
    }
    return tt_sound_claim(t->look, names, data) &&
           tt_sound_load(t->look, names, data, t->room, &t->name) && check_free(t, at, free_list);
}

static bool check_entry(table *t, tt_cursor *c)
{
    enum { NOTHING = 0, SYMBOLS = 1, LINK = 2 };
    const uint64_t name = tt_take(c, 8), at = tt_take(c, 8), cached = tt_take(c, 4);
    tt_skip(c, 4);
    const unsigned char *scratch = c->p;
    const uint64_t symbols[2] = {tt_take(c, 8), tt_take(c, 8)};
    if (!check_name(t, name)) {
        return false;
    }
    if (++t->links > MOST_OLD_LINKS) {
        return tt_sound_unread(t->look, group, t->at, "it has too many links for a symbol table");
    }
    if (cached == LINK) {
        tt_cursor to = {scratch, scratch + 4, false};
        return check_name(t, tt_take(&to, 4));
    }
    if (cached > LINK) {
        return tt_sound_damaged(t->look, group, t->at, "a link of it is of no kind");
    }
    return follow_link(t->look, t->at, at, t->depth, cached == SYMBOLS ? symbols : NULL);
}

static bool check_node(table *t, uint64_t at)
{
    enum { HEAD = 8, ENTRY = 40 };
    unsigned char *node = NULL;
    tt_look *look = t->look;
    const uint64_t size = HEAD + 2 * look->leaf_k * ENTRY;
    if (!tt_sound_claim(look, group, at) || !tt_sound_load(look, group, at, size, &node)) {
        return false;
    }
    tt_cursor c = {node + 4, node + size, false};
    bool sound = tt_is_signature(node, "SNOD") && tt_take(&c, 1) == 1;
    tt_skip(&c, 1);
    const uint64_t used = tt_take(&c, 2);
    if (!sound || used > 2 * look->leaf_k) {
        sound = tt_sound_damaged(look, group, at, "a node of its links is none");
    }
    for (uint64_t i = 0; i < used && sound; i++) {
        sound = check_entry(t, &c);
    }
    free(node);
    return sound;
}

/* A node of the tree; level < 0: the root, which may be at any. */
static bool check_tree(table *t, uint64_t at, int level)
{
    enum { HEAD = 24 };
    unsigned char *node = NULL;
    tt_look *look = t->look;
    const uint64_t size = HEAD + 2 * look->group_k * 16 + 8;
    if (!tt_sound_claim(look, group, at) || !tt_sound_load(look, group, at, size, &node)) {
        return false;
    }
    tt_cursor c = {node + 4, node + size, false};
    bool sound = tt_is_signature(node, "TREE") && tt_take(&c, 1) == 0;
    const int here = (int)tt_take(&c, 1);
    const uint64_t used = tt_take(&c, 2);
    tt_skip(&c, 16);
    if (!sound || used > 2 * look->group_k || (level >= 0 && here != level) || here > 32 ||
        (used == 0 && (level >= 0 || here > 0))) {
        sound = tt_sound_damaged(look, group, at, "the tree of its links is none");
    }
    for (uint64_t i = 0; i < used && sound; i++) {
        const uint64_t key = tt_take(&c, 8), child = tt_take(&c, 8);
        sound = check_name(t, key) &&
                (here > 0 ? check_tree(t, child, here - 1) : check_node(t, child));
    }
    if (sound && used > 0) {
        sound = check_name(t, tt_take(&c, 8));
    }
    free(node);
    return sound;
}

static bool check_old(tt_look *look, const tt_header *header, int depth, const uint64_t symbols[2])
{
    const tt_message *m = tt_sound_message(header, TT_MESSAGE_SYMBOLS);
    table t = {.look = look, .at = header->at, .depth = depth};
    tt_cursor c = {m->data, m->data + m->size, false};
    const uint64_t tree = tt_take(&c, 8), heap = tt_take(&c, 8);
    if (c.beyond || (symbols != NULL && (symbols[0] != tree || symbols[1] != heap))) {
        return tt_sound_damaged(look, group, header->at, "its links are said to be in two places");
    }
    const bool sound = load_names(&t, heap) && check_tree(&t, tree, -1);
    free(t.name);
    return sound;
}

bool tt_sound_group(tt_look *look, const tt_header *header, int depth, const uint64_t symbols[2])
{
    const tt_message *info = tt_sound_message(header, TT_MESSAGE_GROUP_INFO);
    const bool old = tt_sound_message(header, TT_MESSAGE_SYMBOLS) != NULL;
    const bool new = tt_sound_message(header, TT_MESSAGE_LINK_INFO) != NULL;
    if (tt_sound_message(header, TT_MESSAGE_FILTERS) != NULL) {
        return tt_sound_unread(look, group, header->at, "its links are packed");
    }
    if (info != NULL) {
        tt_cursor c = {info->data, info->data + info->size, false};
        const uint64_t version = tt_take(&c, 1), flags = tt_take(&c, 1);
        tt_skip(&c, ((flags & 1) != 0 ? 4 : 0) + ((flags & 2) != 0 ? 4 : 0));
        if (c.beyond || version != 0 || flags > 3) {
            return tt_sound_damaged(look, group, header->at, "what it says of itself cannot be");
        }
    }
    if (old && (new || tt_sound_message(header, TT_MESSAGE_LINK) != NULL)) {
        return tt_sound_damaged(look, group, header->at, "its links are kept in two ways");
    }
    /* A group that has become a new one may still be said to be an old one; HDF5 sees that, too. */
    return old ? check_old(look, header, depth, symbols) : check_new(look, header, depth);
}
