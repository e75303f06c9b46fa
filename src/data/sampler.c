/* sampler.c: from a global sample number to a window or a document.
 *
 * Invariant: in every epoch of n consecutive samples each element comes exactly once; which, depends
 * on (seed, epoch, n) alone.
 *
 * Borrows the tokens. Reads data/tokens.h, writes tt_sampler; next: batch.c. */
#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "tutti/base/rng.h"
#include "tutti/data/batch.h"

tt_code tt_sampler_open(tt_sampler *sampler, tt_tokens *tokens, const char *mode, uint64_t seed,
                        int64_t context, bool shuffle, tt_err *err)
{
    assert(context >= 1);
    int64_t count = tt_tokens_count(tokens);
    bool documents = strcmp(mode, "documents") == 0;
    if (!documents && strcmp(mode, "stream") != 0) {
        return tt_fail(err, TT_EUSER, "data.mode \"%s\" is not known; allowed: stream, documents",
                       mode);
    }
    if (documents && count < 1) {
        return tt_fail(err, TT_EUSER, "token file %s holds no document in this part",
                       tt_tokens_path(tokens));
    }
    if (!documents && count - 1 < context) {
        return tt_fail(err, TT_EUSER,
                       "token file %s holds %" PRId64 " tokens in this part, too few for one "
                       "sequence: model.context %" PRId64 " needs %" PRId64,
                       tt_tokens_path(tokens), count, context, context + 1);
    }
    /* Each document ends with the end token, and so does the part. */
    int32_t end = 0;
    tt_code rc = tt_tokens_read(tokens, count - 1, 1, &end, err);
    if (rc != TT_OK) {
        return rc;
    }
    *sampler =
        (tt_sampler){.tokens = tokens,
                     .documents = documents,
                     .shuffle = shuffle,
                     .seed = seed,
                     .context = context,
                     .samples = documents ? tt_tokens_documents(tokens) : (count - 1) / context,
                     .end = end};
    return TT_OK;
}

int64_t tt_sampler_element(const tt_sampler *sampler, int64_t global_sample)
{
    assert(global_sample >= 0);
    int64_t epoch = global_sample / sampler->samples, index = global_sample % sampler->samples;
    if (!sampler->shuffle) {
        return index;
    }
    tt_key key = tt_rng_key(sampler->seed, TT_RNG_SHUFFLE, (uint64_t)epoch);
    return tt_permute(key, sampler->samples, index);
}
