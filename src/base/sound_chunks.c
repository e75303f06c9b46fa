/* sound_chunks.c: the tree of version 1 by which a dataset finds its chunks. See sound.h. */
#include <stdlib.h>

#include "base/sound_impl.h"

static const char chunks[] = "the chunks of a dataset";

typedef struct tree {
    tt_look *look;
    const tt_form_of *form;
    const uint64_t *chunk; /* [form->dims] */
    uint64_t stored, found;
} tree;

/* Where a chunk begins: in elements, and 0 bytes into one. */
static bool check_key(const tree *t, tt_cursor *c, bool leaf)
{
    const uint64_t bytes = tt_take(c, 4), skipped = tt_take(c, 4);
    bool sound = !leaf || (bytes == t->stored && skipped == 0);
    for (int d = 0; d < t->form->dims; d++) {
        sound = tt_take(c, 8) % t->chunk[d] == 0 && sound;
    }
    return (tt_take(c, 8) == 0 || !leaf) && sound;
}

static bool check_node(tree *t, uint64_t at, int level)
{
    enum { HEAD = 24 };
    unsigned char *node = NULL;
    tt_look *look = t->look;
    const uint64_t key = 8 + 8 * ((uint64_t)t->form->dims + 1), most = 2 * look->chunk_k;
    const uint64_t size = HEAD + most * 8 + (most + 1) * key;
    if (!tt_sound_claim(look, chunks, at) || !tt_sound_load(look, chunks, at, size, &node)) {
        return false;
    }
    tt_cursor c = {node + 4, node + size, false};
    bool sound = tt_is_signature(node, "TREE") && tt_take(&c, 1) == 1;
    const int here = (int)tt_take(&c, 1);
    const uint64_t used = tt_take(&c, 2);
    tt_skip(&c, 16);
    if (!sound || used > most || (level >= 0 && here != level) || here > 32 ||
        (used == 0 && (level >= 0 || here > 0))) {
        sound = tt_sound_damaged(look, chunks, at, "their tree is none");
    }
    for (uint64_t i = 0; i < used && sound; i++) {
        if (!check_key(t, &c, here == 0)) {
            sound = tt_sound_damaged(look, chunks, at, "one is not where it can be");
            break;
        }
        const uint64_t child = tt_take(&c, 8);
        if (here > 0) {
            sound = check_node(t, child, here - 1);
        } else if (child > look->end || t->stored > look->end - child) {
            sound = tt_sound_damaged(look, chunks, at, "one reaches beyond the end of the file");
        } else {
            t->found++;
        }
    }
    free(node);
    return sound;
}

bool tt_sound_chunks(tt_look *look, uint64_t at, const tt_form_of *form, const uint64_t *chunk,
                     uint64_t stored, uint64_t *bytes)
{
    tree t = {.look = look, .form = form, .chunk = chunk, .stored = stored};
    uint64_t wanted = 1;
    bool many = false;
    for (int d = 0; d < form->dims; d++) {
        const uint64_t along = form->dim[d] / chunk[d] + (form->dim[d] % chunk[d] != 0);
        many = __builtin_mul_overflow(wanted, along, &wanted) || many;
    }
    if (at != TT_NOWHERE && !check_node(&t, at, -1)) {
        return false;
    }
    if (many || t.found < wanted) {
        return tt_sound_unread(look, chunks, at == TT_NOWHERE ? 0 : at,
                               "not all of them were written");
    }
    if (__builtin_mul_overflow(t.found, stored, bytes)) {
        return tt_sound_damaged(look, chunks, at, "there are too many");
    }
    return true;
}
