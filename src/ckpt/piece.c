/* piece.c: the elements of a piece on their way to a file, from it, and into a digest.
 *
 * Elements that lie in memory as floats go straight. Those that are kept in another form (tt_form) pass
 * through a buffer of TT_CKPT_CHUNK floats, so neither saving nor loading needs a copy of what a rank
 * holds. The transfers are independent of other ranks, so ranks may have any number of pieces and
 * chunks.
 *
 * The buffer is the caller's. Reads tt_state; next: save.c, load.c. */
#include "tutti/base/memory.h"
#include "tutti/base/narrow.h"
#include "tutti/numerics/digest.h"

#include "ckpt/ckpt_impl.h"

enum {
    RUN = 8 * TT_CKPT_CHUNK
}; /* elements that go straight at a time; between two there is a beat */

tt_code tt_piece_buffer(const tt_state *state, float **buffer, tt_err *err)
{
    *buffer = NULL;
    for (int i = 0; i < state->tensors; i++) {
        const tt_tensor_row *row = &state->tensor[i];
        for (int p = 0; p < row->pieces; p++) {
            if (row->piece[p].form.get != NULL && row->piece[p].count > 0) {
                *buffer = tt_alloc(TT_CKPT_CHUNK, sizeof **buffer, err);
                return *buffer != NULL ? TT_OK : err->code;
            }
        }
    }
    return TT_OK;
}

/* Elements `done` .. of a piece: how many of them come at once. */
static int64_t chunk_of(const tt_piece *piece, int64_t done)
{
    const int64_t rest = piece->count - done, most = piece->form.get != NULL ? TT_CKPT_CHUNK : RUN;
    return tt_min(rest, most);
}

/* *floats: these elements, where they lie or in the buffer. */
static tt_code floats_of(const tt_piece *piece, int64_t done, int64_t count, float *buffer,
                         const float **floats, tt_err *err)
{
    if (piece->form.get == NULL) {
        *floats = piece->data + done;
        return TT_OK;
    }
    *floats = buffer;
    return piece->form.get(piece->form.owner, piece->at + done, count, buffer, err);
}

tt_code tt_piece_digest(tt_world *world, const tt_piece *piece, float *buffer, uint64_t *digest,
                        tt_err *err)
{
    tt_code rc = TT_OK;
    const float *floats;
    for (int64_t done = 0, count; done < piece->count; done += count) {
        count = chunk_of(piece, done);
        tt_beat(world, NULL);
        TT_TRY(floats_of(piece, done, count, buffer, &floats, err));
        *digest += tt_digest32(floats, piece->first + done, count);
    }
out:
    return rc;
}

tt_code tt_piece_read(tt_world *world, tt_h5 *file, const char *name, const tt_piece *piece,
                      float *buffer, tt_err *err)
{
    tt_code rc = TT_OK;
    const tt_form *form = &piece->form;
    for (int64_t done = 0, count; done < piece->count; done += count) {
        count = chunk_of(piece, done);
        tt_beat(world, NULL);
        float *into = form->put == NULL ? piece->data + done : buffer;
        TT_TRY(tt_h5_read(file, name, piece->first + done, count, into, err));
        if (form->put != NULL) {
            TT_TRY(form->put(form->owner, piece->at + done, count, buffer, err));
        }
    }
out:
    return rc;
}
