/* tokens_sample.c: one file of tokens told from another without reading all of it.
 *
 * Stretches from the first token to the last, evenly: files that were built from other texts, or
 * from the same in another order, differ in them.
 *
 * Reads a token file; next: train/state.c. */
#include "tutti/base/narrow.h"
#include "tutti/data/tokens.h"
#include "tutti/numerics/digest.h"

tt_code tt_tokens_sample(tt_tokens *tokens, uint64_t *digest, tt_err *err)
{
    enum { STRETCHES = 64, STRETCH = 1024 };
    tt_code rc = TT_OK;
    int32_t id[STRETCH];
    const int64_t count = tt_tokens_count(tokens), length = tt_min(count, STRETCH);
    *digest = tt_digest_bytes(&count, sizeof count);
    for (int64_t i = 0; i < STRETCHES; i++) {
        const int64_t first = tt_mul(count - length, i) / (STRETCHES - 1);
        TT_TRY(tt_tokens_read(tokens, first, length, id, err));
        *digest += tt_digest32(id, i * STRETCH, length);
    }
out:
    return rc;
}
