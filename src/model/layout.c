/* layout.c: where a micro-batch's activations lie: which slots live until backward, in how many copies.
 *
 * A slot that some backward reads has a copy for each block that is between its forward and its
 * backward at a time: all blocks, or, of those that go forward again, as many as a segment has. The
 * residual stream, which segments begin with, has one for each segment beside.
 *
 * Invariant: the layout is a function of (shape, B, T, bytes per element, backward or not, FP8's recipe,
 * tt_recompute); the stages of a segment never share a copy of what is saved.
 *
 * Owns nothing. Reads the tables of program.c and layers.c; next: model.c. */
#include <assert.h>

#include "model_impl.h"
#include "tutti/base/narrow.h"
#include "tutti/numerics/fp8.h"

/* Is it this slot, or GELU of it? */
static bool covers(tt_slot named, tt_slot slot)
{
    return named == slot || (named < TT_SLOTS && tt_slots[named].gelu_of == slot);
}

/* Does some backward of the programs read the slot? Then it must live until then. */
static bool slot_saved(tt_slot slot)
{
    for (int p = 0; p < TT_PROGRAMS; p++) {
        for (int i = 0; i < tt_programs[p].length; i++) {
            const tt_apply *a = &tt_programs[p].apply[i];
            const tt_layer *layer = &tt_layers[a->layer];
            if ((layer->reads_in && covers(a->in, slot)) ||
                (layer->reads_out && covers(a->out, slot))) {
                return true;
            }
        }
    }
    return false;
}

bool tt_slot_rounded(tt_slot slot, const tt_fp8 *fp8)
{
    for (int p = 0; p < TT_PROGRAMS; p++) {
        for (int i = 0; i < tt_programs[p].length; i++) {
            const tt_apply *a = &tt_programs[p].apply[i];
            if (a->in == slot && tt_autocast_e4m3(&fp8->autocast, a->op)) {
                return true;
            }
        }
    }
    return false;
}

/* Does an operation that is up multiply the slot in backward? Then it must live as act. */
static bool slot_up(tt_slot slot, const tt_fp8 *fp8)
{
    for (int p = 0; p < TT_PROGRAMS; p++) {
        for (int i = 0; i < tt_programs[p].length; i++) {
            const tt_apply *a = &tt_programs[p].apply[i];
            if (a->in == slot && tt_autocast_up(&fp8->autocast, a->op)) {
                return true;
            }
        }
    }
    return false;
}

/* The layer that writes the slot within a block or the crown; NULL: the slot comes from outside. */
static const tt_layer *slot_writer(tt_slot slot)
{
    for (int p = 0; p < TT_PROGRAMS; p++) {
        for (int i = 0; i < tt_programs[p].length; i++) {
            if (tt_programs[p].apply[i].out == slot) {
                return &tt_layers[tt_programs[p].apply[i].layer];
            }
        }
    }
    return NULL;
}

bool tt_slot_cheap(tt_slot slot)
{
    const tt_layer *writer = slot < TT_SLOTS ? slot_writer(slot) : NULL;
    return writer != NULL && (writer->cheap || tt_slots[slot].gelu_of != TT_NO_SLOT);
}

/* ---- copies ---- */

static int64_t copies_of(const tt_recompute *r, int64_t L, tt_order order)
{
    const int64_t edges = r->blocks / r->segment + 1;
    switch (order) {
    case TT_ONE:
        break;
    case TT_OF_BLOCK:
        return tt_max(r->segment, L - r->blocks);
    case TT_OF_STREAM:
        return edges + tt_max(r->segment - 1, L - r->blocks);
    case TT_OF_EDGE:
        return edges;
    }
    return 1;
}

/* The copy of a stage: `k` counts blocks from 0, and the crown after them. */
static int64_t copy_index(const tt_recompute *r, tt_order order, int64_t k)
{
    const int64_t edges = r->blocks / r->segment + 1;
    const bool again = k < r->blocks;
    const int64_t within = again ? k % r->segment : k - r->blocks; /* of its segment */
    const int64_t edge = again ? k / r->segment : edges - 1;
    switch (order) {
    case TT_ONE:
        break;
    case TT_OF_BLOCK:
        return within;
    case TT_OF_STREAM:
        return within == 0 ? edge : edges + within - 1;
    case TT_OF_EDGE:
        return within == 0 ? edge : edges - 1;
    }
    return 0;
}

size_t tt_layout_at(const tt_layout *layout, const tt_span *span, int stage)
{
    assert(stage >= 1); /* the stem has no slots of its own */
    const int64_t copy = copy_index(&layout->recompute, span->order, stage - 1);
    assert(copy < span->copies);
    return span->first + tt_bytes(copy, span->bytes);
}

/* ---- the layout ---- */

/* The next copies of `bytes` each, at the end of the layout. */
static tt_span place(tt_layout *layout, size_t bytes, tt_order order)
{
    const int64_t copies = copies_of(&layout->recompute, layout->blocks, order);
    const tt_span span = {layout->bytes, tt_arena_cost(bytes), bytes, copies, order};
    layout->bytes += tt_bytes(copies, span.bytes);
    return span;
}

/* Exponents of x[B*T, width] in FP8. */
static int64_t exponents(const tt_fp8 *fp8, int64_t B, int64_t T, int64_t width)
{
    return fp8->recipe == TT_FP8_MXFP8 ? tt_mul(tt_mul(B, T), tt_fp8_blocks(width, TT_FP8_MX)) : B;
}

/* In FP8: codes for backward, exponents for whoever rounds. */
static void place_fp8(tt_layout *layout, const tt_shape *shape, tt_slot slot, int64_t B, int64_t T,
                      bool kept, const tt_fp8 *fp8)
{
    const int64_t width = tt_slot_width(shape, slot);
    const tt_order order = kept ? TT_OF_BLOCK : TT_ONE;
    if (kept) {
        layout->code[slot] = place(layout, tt_bytes(tt_mul(tt_mul(B, T), width), 1), order);
    }
    if (kept || tt_slot_rounded(slot, fp8)) {
        layout->exponent[slot] = place(layout, tt_bytes(exponents(fp8, B, T, width), 1), order);
    }
}

/* Exponents of the largest weight of a block, or of the widest gradient. */
static int64_t spare_exponents(const tt_shape *shape, int64_t B, int64_t T, const tt_fp8 *fp8)
{
    const int64_t wide = tt_buffer_width(shape, TT_BUF_WIDE);
    const int64_t weight = tt_mul(tt_max(wide, shape->C), tt_fp8_blocks(shape->C, TT_FP8_MX));
    const int64_t turned = tt_mul(shape->C, tt_fp8_blocks(wide, TT_FP8_MX));
    return tt_max(tt_max(weight, turned), exponents(fp8, B, T, tt_max(wide, shape->C)));
}

/* Which copies a slot has as act. A coded one has one to work in, and where a segment that goes forward
 * again begins, the stream as it was. */
static tt_order order_of(tt_slot slot, bool saved, bool coded, const tt_recompute *r)
{
    if (!saved) {
        return TT_ONE;
    }
    if (slot == TT_X) {
        return coded ? TT_OF_EDGE : TT_OF_STREAM;
    }
    return coded || (r->selective && tt_slot_cheap(slot)) ? TT_ONE : TT_OF_BLOCK;
}

void tt_layout_make(tt_layout *layout, const tt_shape *shape, int64_t B, int64_t T,
                    size_t act_bytes, bool backward, const tt_fp8 *fp8,
                    const tt_recompute *recompute)
{
    static const tt_recompute none = {.segment = 1};
    const int64_t M = tt_mul(B, T);
    *layout = (tt_layout){.blocks = shape->L,
                          .recompute = recompute != NULL && backward ? *recompute : none};
    const tt_recompute *r = &layout->recompute;
    assert(fp8 == NULL || !r->selective);
    for (tt_slot slot = 0; slot < TT_SLOTS; slot++) {
        const bool saved = backward && slot_saved(slot);
        const bool coded = fp8 != NULL && !slot_up(slot, fp8);
        const tt_order order = order_of(slot, saved, coded, r);
        const size_t before = layout->bytes;
        const tt_layer *writer = slot_writer(slot);
        const int64_t stats =
            writer != NULL && writer->stats != NULL ? writer->stats(shape, B, T) : 0;
        const bool kept = saved && (coded || order != TT_ONE); /* not made anew */
        layout->slot[slot] =
            place(layout, tt_bytes(tt_mul(M, tt_slot_width(shape, slot)), act_bytes), order);
        const size_t open = coded ? layout->slot[slot].bytes : 0; /* the copy to work in */
        layout->stats[slot] =
            place(layout, tt_bytes(stats, sizeof(float)), kept ? TT_OF_BLOCK : TT_ONE);
        if (fp8 != NULL) {
            place_fp8(layout, shape, slot, B, T, saved && coded, fp8);
        }
        layout->kept += kept ? layout->bytes - before - open : 0;
    }
    for (int buffer = 0; backward && buffer < TT_BUFFERS; buffer++) {
        const int64_t count = tt_mul(M, tt_buffer_width(shape, buffer));
        layout->gradient[buffer] = place(layout, tt_bytes(count, act_bytes), TT_ONE);
    }
    if (fp8 != NULL) {
        layout->spare = place(layout, tt_bytes(spare_exponents(shape, B, T, fp8), 1), TT_ONE);
    }
}

size_t tt_model_activation_bytes(const tt_shape *shape, int64_t B, int64_t T, size_t act_bytes,
                                 bool backward, const tt_fp8 *fp8, const tt_recompute *recompute,
                                 size_t *kept)
{
    tt_layout layout;
    tt_layout_make(&layout, shape, B, T, act_bytes, backward, fp8, recompute);
    if (kept != NULL) {
        *kept = layout.kept;
    }
    return tt_arena_cost(layout.bytes);
}
