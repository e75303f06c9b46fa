/* sound_data.c: datasets: their shape, type, filters and fill value, and where their elements are;
 * and the attributes of the root, which are small datasets. See sound.h.
 *
 * A shape is a claim: it must be backed by what the file stores. Filters may reorder bytes and add
 * a checksum. Packed data is refused: HDF5 1.10 believes that it unpacks to a whole chunk.
 *
 * Next: sound_chunks.c. */
#include <stdlib.h>
#include <string.h>

#include "base/sound_impl.h"

enum { SHUFFLE = 2, FLETCHER32 = 3 };

static const char dataset[] = "the dataset";

/* --- shapes ----------------------------------------------------------------------------------- */

bool tt_sound_space(tt_look *look, uint64_t at, const tt_message *message, tt_form_of *form)
{
    enum { SCALAR = 0, SIMPLE = 1, NOTHING = 2 };
    tt_cursor c = {message->data, message->data + message->size, false};
    const uint64_t version = tt_take(&c, 1), dims = tt_take(&c, 1), flags = tt_take(&c, 1);
    const uint64_t kind = tt_take(&c, 1);
    tt_skip(&c, version == 1 ? 4 : 0);
    if (version < 1 || version > 2 || dims > 32 || flags > 1 ||
        (version == 2 && kind != (dims > 0          ? SIMPLE
                                  : kind == NOTHING ? NOTHING
                                                    : SCALAR))) {
        return tt_sound_damaged(look, dataset, at, "its shape cannot be");
    }
    form->dims = (int)dims;
    form->count = version == 2 && kind == NOTHING ? 0 : 1;
    for (uint64_t d = 0; d < dims; d++) {
        form->dim[d] = tt_take(&c, 8);
        if (__builtin_mul_overflow(form->count, form->dim[d], &form->count)) {
            return tt_sound_damaged(look, dataset, at, "it stores less than its shape says");
        }
    }
    for (uint64_t d = 0; d < dims && flags == 1; d++) {
        if (tt_take(&c, 8) < form->dim[d]) {
            return tt_sound_damaged(look, dataset, at, "its shape is larger than it may be");
        }
    }
    return c.beyond ? tt_sound_damaged(look, dataset, at, "its shape ends early") : true;
}

/* --- types ------------------------------------------------------------------------------------ */

/* What follows the head of a number's type: bits, and of a float its fields. */
static const unsigned char halves[3][12] = {
    /* offset, precision, exponent's place and size, mantissa's, bias */
    {0, 0, 16, 0, 10, 5, 0, 10, 15, 0, 0, 0},
    {0, 0, 32, 0, 23, 8, 0, 23, 127, 0, 0, 0},
    {0, 0, 64, 0, 52, 11, 0, 52, 0xff, 3, 0, 0},
};
static const unsigned char bfloat16[12] = {0, 0, 16, 0, 7, 8, 0, 7, 127, 0, 0, 0};

static bool known_float(const tt_message *m, uint64_t size)
{
    const int which = size == 2 ? 0 : size == 4 ? 1 : size == 8 ? 2 : -1;
    const unsigned char *bits = m->data + 8;
    /* Implied leading bit, zeros for padding, the sign on top, either byte order. */
    return which >= 0 && m->size >= 20 && (m->data[1] & ~1u) == 0x20 &&
           m->data[2] == 8 * size - 1 && m->data[3] == 0 &&
           (memcmp(bits, halves[which], 12) == 0 ||
            (which == 0 && memcmp(bits, bfloat16, 12) == 0));
}

static bool known_integer(const tt_message *m, uint64_t size)
{
    const bool whole = size == 1 || size == 2 || size == 4 || size == 8;
    return whole && m->size >= 12 && (m->data[1] & ~9u) == 0 && m->data[2] == 0 &&
           m->data[3] == 0 && m->data[8] == 0 && m->data[9] == 0 && m->data[10] == 8 * size &&
           m->data[11] == 0;
}

/* Padding and letters that HDF5 has names for. */
static bool known_text(const unsigned char *flags)
{
    return (flags[0] & 15) <= 2 && flags[0] >> 4 <= 1 && flags[1] == 0 && flags[2] == 0;
}

bool tt_sound_type(tt_look *look, uint64_t at, const tt_message *m, tt_form_of *form)
{
    enum { INTEGER = 0, FLOAT = 1, TEXT = 3, SEQUENCE = 9, REFERENCE = 16, LONGEST = 1 << 30 };
    tt_cursor c = {m->data, m->data + m->size, false};
    const uint64_t head = tt_take(&c, 4), size = tt_take(&c, 4);
    const unsigned kind = head & 15, version = (unsigned)(head >> 4 & 15);
    bool known = false;
    form->size = size;
    form->texts = false;
    if (c.beyond || version < 1 || size == 0) {
        return tt_sound_damaged(look, dataset, at, "its type cannot be");
    }
    if (version > 3) {
        known = false;
    } else if (kind == INTEGER) {
        known = known_integer(m, size);
    } else if (kind == FLOAT) {
        known = known_float(m, size);
    } else if (kind == TEXT) {
        known = size <= LONGEST && known_text(m->data + 1);
    } else if (kind == SEQUENCE && (head >> 8 & 15) == 1 && size == REFERENCE) {
        /* A text of variable length; of what it is a sequence, its base says: bytes. */
        const tt_message base = {m->type, c.p, (uint64_t)(c.end - c.p)};
        const uint64_t of = tt_take(&c, 4) & 15, bytes = tt_take(&c, 4);
        form->texts = true;
        known = !c.beyond && bytes == 1 && m->data[1] >> 4 <= 2 && m->data[2] <= 1 &&
                m->data[3] == 0 &&
                (of == INTEGER ? known_integer(&base, 1) : of == TEXT && known_text(base.data + 1));
    }
    return known ? true
                 : tt_sound_unread(look, dataset, at, "it is of a type that is not read here");
}

/* --- texts of variable length ----------------------------------------------------------------- */

static const char texts[] = "the texts";

/* The heap at an address, unless it is the last one looked at. */
static bool load_texts(tt_look *look, uint64_t at)
{
    enum { HEAD = 16, LEAST = 4096 };
    unsigned char *head = NULL;
    tt_block *block = tt_sound_block(look, at);
    if (block == NULL || (look->texts != NULL && look->texts_at == at)) {
        return block != NULL;
    }
    if (block->kind != TT_BLOCK_FREE && block->kind != TT_BLOCK_TEXTS) {
        return tt_sound_damaged(look, texts, at, "there are none");
    }
    block->kind = TT_BLOCK_TEXTS;
    if (!tt_sound_load(look, texts, at, HEAD, &head)) {
        return false;
    }
    tt_cursor c = {head + 8, head + HEAD, false};
    const uint64_t size = tt_take(&c, 8);
    const bool ours = tt_is_signature(head, "GCOL") && head[4] == 1 && size >= LEAST;
    free(head);
    if (!ours) {
        return tt_sound_damaged(look, texts, at, "there are none");
    }
    free(look->texts);
    look->texts_at = at;
    look->texts_size = size;
    return tt_sound_load(look, texts, at, size, &look->texts);
}

bool tt_sound_text(tt_look *look, const unsigned char *reference)
{
    enum { HEAD = 16, OBJECT = 16 };
    tt_cursor r = {reference, reference + 16, false};
    const uint64_t length = tt_take(&r, 4), at = tt_take(&r, 8), index = tt_take(&r, 4);
    bool found = false, sound = true;
    if (length == 0) {
        return true;
    }
    if (!load_texts(look, at)) {
        return false;
    }
    tt_cursor c = {look->texts + HEAD, look->texts + look->texts_size, false};
    while (sound && (uint64_t)(c.end - c.p) >= OBJECT) {
        const uint64_t number = tt_take(&c, 2);
        tt_skip(&c, 6);
        const uint64_t bytes = tt_take(&c, 8), rest = (uint64_t)(c.end - c.p);
        if (number == 0) { /* what is free, up to the end, its own head included */
            sound = bytes == rest + OBJECT;
            tt_skip(&c, rest);
            continue;
        }
        sound = bytes <= rest && (bytes + 7) / 8 * 8 <= rest && !(found && number == index);
        found = found || (number == index && bytes == length);
        tt_skip(&c, (bytes + 7) / 8 * 8);
    }
    return sound && found ? true : tt_sound_damaged(look, texts, at, "one of them is not there");
}

/* --- datasets --------------------------------------------------------------------------------- */

/* *extra: bytes that filters add to a chunk. */
static bool check_filters(tt_look *look, uint64_t at, const tt_message *m, uint64_t *extra)
{
    tt_cursor c = {m->data, m->data + m->size, false};
    const uint64_t version = tt_take(&c, 1), filters = tt_take(&c, 1);
    tt_skip(&c, version == 1 ? 6 : 0);
    *extra = 0;
    if (version < 1 || version > 2 || filters > 2) {
        return tt_sound_unread(look, dataset, at, "its filters are not known");
    }
    for (uint64_t i = 0; i < filters; i++) {
        const uint64_t filter = tt_take(&c, 2), length = version == 1 ? tt_take(&c, 2) : 0;
        tt_skip(&c, 2);
        const uint64_t values = tt_take(&c, 2);
        const unsigned char *name = c.p;
        tt_skip(&c, length);
        if (c.beyond || length % 8 != 0 ||
            (length > 0 && memchr(name, '\0', (size_t)length) == NULL)) {
            return tt_sound_damaged(look, dataset, at, "its filters have no names");
        }
        tt_skip(&c, 4 * values + (version == 1 && values % 2 != 0 ? 4 : 0));
        /* The checksum is the last: else it would be looked for in what another filter makes. */
        const bool ours = (filter == SHUFFLE && values == 1) ||
                          (filter == FLETCHER32 && values == 0 && i + 1 == filters);
        if (!ours) {
            return tt_sound_unread(look, dataset, at, "its data is packed; write it unpacked");
        }
        *extra += filter == FLETCHER32 ? 4 : 0;
    }
    return c.beyond ? tt_sound_damaged(look, dataset, at, "its filters end early") : true;
}

/* A value that stands for what was never written is as large as an element. */
static bool check_fill(tt_look *look, uint64_t at, const tt_message *m, const tt_form_of *form)
{
    enum { HAS_NONE = 16, HAS_VALUE = 32 };
    tt_cursor c = {m->data, m->data + m->size, false};
    uint64_t size = 0;
    if (m->type == TT_MESSAGE_OLD_FILL) {
        size = tt_take(&c, 4);
    } else {
        const uint64_t version = tt_take(&c, 1), flags = tt_take(&c, 1);
        if (version < 1 || version > 3 ||
            (version == 3 && (flags > 63 || (flags & 48) == (HAS_NONE | HAS_VALUE)))) {
            return tt_sound_damaged(look, dataset, at, "its fill value cannot be");
        }
        bool there = (flags & HAS_VALUE) != 0;
        if (version < 3) {
            tt_skip(&c, 1);
            there = tt_take(&c, 1) != 0;
        }
        size = there ? tt_take(&c, 4) : 0;
    }
    tt_skip(&c, size);
    if (c.beyond || (size != 0 && (size != form->size || form->texts))) {
        return tt_sound_damaged(look, dataset, at, "its fill value is not one of its elements");
    }
    return true;
}

/* The one text of variable length that may be read. */
static bool check_texts(tt_look *look, const tt_form_of *form, uint64_t place,
                        const unsigned char *data)
{
    unsigned char *reference = NULL;
    if (!form->texts || form->count != 1) {
        return true;
    }
    if (data != NULL) {
        return tt_sound_text(look, data);
    }
    if (!tt_sound_load(look, dataset, place, form->size, &reference)) {
        return false;
    }
    const bool sound = tt_sound_text(look, reference);
    free(reference);
    return sound;
}

/* Elements in chunks, behind the version and class of the message. */
static bool check_chunked(tt_look *look, uint64_t at, tt_cursor *c, const tt_form_of *form,
                          uint64_t extra, uint64_t *bytes)
{
    uint64_t chunk[33], size = form->size;
    const uint64_t dims = tt_take(c, 1), tree = tt_take(c, 8);
    if (dims != (uint64_t)form->dims + 1 || form->dims == 0) {
        return tt_sound_damaged(look, dataset, at, "its chunks have another shape");
    }
    for (int d = 0; d < form->dims; d++) {
        chunk[d] = tt_take(c, 4);
        if (chunk[d] == 0 || __builtin_mul_overflow(size, chunk[d], &size)) {
            return tt_sound_damaged(look, dataset, at, "its chunks cannot be");
        }
    }
    if (tt_take(c, 4) != form->size || c->beyond || size + extra > UINT32_MAX) {
        return tt_sound_damaged(look, dataset, at, "its chunks are of other elements");
    }
    if (form->texts && form->count == 1) {
        return tt_sound_unread(look, dataset, at, "it is a text in chunks");
    }
    return tt_sound_chunks(look, tree, form, chunk, size + extra, bytes);
}

bool tt_sound_dataset(tt_look *look, const tt_header *header, uint64_t *bytes)
{
    enum { COMPACT = 0, CONTIGUOUS = 1, CHUNKED = 2 };
    const uint64_t at = header->at;
    const tt_message *layout = tt_sound_message(header, TT_MESSAGE_LAYOUT);
    const tt_message *filters = tt_sound_message(header, TT_MESSAGE_FILTERS);
    tt_form_of form = {0};
    uint64_t wanted, extra = 0;
    if (!tt_sound_space(look, at, tt_sound_message(header, TT_MESSAGE_SPACE), &form) ||
        !tt_sound_type(look, at, tt_sound_message(header, TT_MESSAGE_TYPE), &form) ||
        (filters != NULL && !check_filters(look, at, filters, &extra))) {
        return false;
    }
    for (int type = TT_MESSAGE_OLD_FILL; type <= TT_MESSAGE_FILL; type++) {
        const tt_message *fill = tt_sound_message(header, (unsigned)type);
        if (fill != NULL && !check_fill(look, at, fill, &form)) {
            return false;
        }
    }
    if (layout == NULL || __builtin_mul_overflow(form.count, form.size, &wanted)) {
        return tt_sound_damaged(look, dataset, at, "it stores less than its shape says");
    }
    tt_cursor c = {layout->data, layout->data + layout->size, false};
    const uint64_t version = tt_take(&c, 1), kind = tt_take(&c, 1);
    if (version < 3 || version > 4 || kind > CHUNKED || (version == 4 && kind == CHUNKED)) {
        return tt_sound_unread(look, dataset, at, "its elements are kept in a way not read here");
    }
    if (kind == CHUNKED) {
        return check_chunked(look, at, &c, &form, extra, bytes);
    }
    const uint64_t place = kind == CONTIGUOUS ? tt_take(&c, 8) : 0;
    const uint64_t stored = tt_take(&c, kind == CONTIGUOUS ? 8 : 2);
    const unsigned char *data = kind == COMPACT ? c.p : NULL;
    tt_skip(&c, kind == COMPACT ? stored : 0);
    *bytes = wanted;
    if (!c.beyond && kind == CONTIGUOUS && wanted > 0 && place == TT_NOWHERE) {
        return tt_sound_unread(look, dataset, at, "it was never written");
    }
    if (c.beyond || (stored != wanted && wanted > 0) || filters != NULL ||
        (kind == CONTIGUOUS && wanted > 0 && (place > look->end || wanted > look->end - place))) {
        return tt_sound_damaged(look, dataset, at, "it stores less than its shape says");
    }
    return check_texts(look, &form, place, data);
}

/* --- attributes of the root ------------------------------------------------------------------- */

/* A part of an attribute, up to the next multiple of 8 in version 1. */
static tt_message take_part(tt_cursor *c, unsigned type, uint64_t size, uint64_t version)
{
    const tt_message part = {type, c->p, size};
    tt_skip(c, version == 1 ? (size + 7) / 8 * 8 : size);
    return part;
}

static bool check_attribute(tt_look *look, uint64_t at, const tt_message *m)
{
    static const char attribute[] = "an attribute of the root";
    tt_form_of form = {0};
    uint64_t size = 0;
    tt_cursor c = {m->data, m->data + m->size, false};
    const uint64_t version = tt_take(&c, 1), flags = tt_take(&c, 1);
    const uint64_t letters = tt_take(&c, 2), type_size = tt_take(&c, 2),
                   space_size = tt_take(&c, 2);
    tt_skip(&c, version == 3 ? 1 : 0);
    const tt_message name = take_part(&c, 0, letters, version);
    const tt_message type = take_part(&c, TT_MESSAGE_TYPE, type_size, version);
    const tt_message space = take_part(&c, TT_MESSAGE_SPACE, space_size, version);
    if (c.beyond || version < 1 || version > 3 || letters == 0 ||
        memchr(name.data, '\0', (size_t)letters) != name.data + letters - 1) {
        return tt_sound_damaged(look, attribute, at, "it has no name");
    }
    if (version > 1 && flags != 0) {
        return tt_sound_unread(look, attribute, at, "it shares its type with others");
    }
    if (!tt_sound_space(look, at, &space, &form) || !tt_sound_type(look, at, &type, &form)) {
        return false;
    }
    if (__builtin_mul_overflow(form.count, form.size, &size) || size > (uint64_t)(c.end - c.p)) {
        return tt_sound_damaged(look, attribute, at, "it holds less than its shape says");
    }
    return check_texts(look, &form, 0, c.p);
}

bool tt_sound_attributes(tt_look *look, const tt_header *header)
{
    const tt_message *info = tt_sound_message(header, TT_MESSAGE_ATTRIBUTE_INFO);
    if (info != NULL) {
        tt_cursor c = {info->data, info->data + info->size, false};
        const uint64_t version = tt_take(&c, 1), flags = tt_take(&c, 1);
        tt_skip(&c, (flags & 1) != 0 ? 2 : 0);
        const uint64_t heap = tt_take(&c, 8), names = tt_take(&c, 8);
        tt_skip(&c, (flags & 2) != 0 ? 8 : 0);
        if (c.beyond || version != 0 || flags > 3) {
            return tt_sound_damaged(look, "the root", header->at, "its attributes cannot be found");
        }
        if (heap != TT_NOWHERE || names != TT_NOWHERE) {
            return tt_sound_unread(look, "the root", header->at, "it has too many attributes");
        }
    }
    for (int i = 0; i < header->messages; i++) {
        if (header->message[i].type == TT_MESSAGE_ATTRIBUTE &&
            !check_attribute(look, header->at, &header->message[i])) {
            return false;
        }
    }
    return true;
}
