/* tokens_noise.c: a token file of random ids, for measurements: text of bytes would exercise a corner
 * of a large vocabulary only.
 *
 * Invariant: the same vocabulary, count and seed give the same file. It is written in place: whoever
 * measures owns the folder. Writes a token file; next: tokens_writer.c. */
#include <stdlib.h>

#include "data/data_impl.h"
#include "tutti/base/memory.h"
#include "tutti/base/narrow.h"
#include "tutti/base/rng.h"
#include "tutti/data/tokens.h"

enum { PIECE = 4096 }; /* ids made at a time */

/* A number below `vocab` of a random word: its share of 2^32. */
static int32_t share(uint32_t word, int64_t vocab)
{
    return (int32_t)((uint64_t)word * (uint64_t)vocab >> 32);
}

tt_code tt_tokens_noise_file(const char *path, int64_t vocab, int64_t count, uint64_t seed,
                             tt_err *err)
{
    tt_code rc = TT_OK;
    const tt_key key = tt_rng_key(seed, TT_RNG_TEST, 0);
    const tt_tokenizer noise = {.name = "noise", .vocab = vocab, .end = tt_int(vocab - 1)};
    tt_tokens_writer *writer = NULL;
    int32_t *id = tt_alloc(PIECE, sizeof *id, err);
    if (id == NULL) {
        rc = err->code;
        goto out;
    }
    TT_TRY(tt_tokens_writer_open(&writer, path, &noise, 1, 0, err));
    for (int64_t at = 0; at < count; at += PIECE) {
        const int64_t piece = tt_min(PIECE, count - at);
        for (int64_t i = 0; i < piece; i++) {
            id[i] = share(tt_rng(key, 0, (uint64_t)(at + i)).v[0], vocab);
        }
        id[piece - 1] = at + piece == count ? noise.end : id[piece - 1];
        TT_TRY(tt_tokens_writer_add(writer, false, id, piece, err));
    }
    tt_tokens_writer_end_document(writer, false);
    TT_TRY(tt_tokens_writer_finish(writer, err));
out:
    tt_tokens_writer_free(writer);
    free(id);
    return rc;
}
