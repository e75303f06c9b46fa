/* shape.c: from the configuration to a shape: zeros filled in, what single rows cannot see checked.
 *
 * Invariant: after tt_shape_resolve returned TT_OK, C = H * D, G divides H, and
 * 1 <= vocab_used <= V.
 *
 * Owns nothing. Reads tt_config, writes tt_shape; next: params.c. */
#include <assert.h>
#include <inttypes.h>

#include "model_impl.h"
#include "tutti/model/params.h"

/* The divisors of n next to `value`, from below and above; `value` lies in [1, n] or above n. */
static void nearest_divisors(int64_t n, int64_t value, int64_t *below, int64_t *above)
{
    *below = value < n ? value : n;
    while (n % *below != 0) {
        (*below)--;
    }
    *above = value < n ? value : n;
    while (n % *above != 0) {
        (*above)++;
    }
}

static tt_code refuse_divisor(tt_err *err, const char *key, int64_t value, const char *of,
                              int64_t n)
{
    int64_t below = 0, above = 0;
    nearest_divisors(n, value, &below, &above);
    if (below == above) {
        return tt_fail(err, TT_EUSER,
                       "%s: %" PRId64 " does not divide %s (%" PRId64 "); the nearest is %" PRId64
                       ".",
                       key, value, of, n, below);
    }
    return tt_fail(err, TT_EUSER,
                   "%s: %" PRId64 " does not divide %s (%" PRId64 "); the nearest are %" PRId64
                   " and %" PRId64 ".",
                   key, value, of, n, below, above);
}

tt_code tt_shape_resolve(tt_shape *shape, const tt_config *config, int64_t data_vocab, tt_err *err)
{
    int64_t L = config->model.layers, H = config->model.heads, C = config->model.channels;
    int64_t G = config->model.kv_heads != 0 ? config->model.kv_heads : H;
    int64_t F = config->model.ffn != 0 ? config->model.ffn : 4 * C;
    int64_t V = config->model.vocab != 0 ? config->model.vocab : data_vocab;
    assert(L >= 1 && H >= 1 && C >= 1 && G >= 1 && F >= 1 && config->model.context >= 1);

    if (L > TT_MAX_LAYERS) {
        return tt_fail(err, TT_EUSER, "model.layers: %" PRId64 "; allowed are 1 to %d.", L,
                       TT_MAX_LAYERS);
    }
    if (C % H != 0) {
        return refuse_divisor(err, "model.heads", H, "model.channels", C);
    }
    if (H % G != 0) {
        return refuse_divisor(err, "model.kv_heads", G, "model.heads", H);
    }
    if (V == 0) {
        return tt_fail(err, TT_EUSER,
                       "model.vocab: not set, and there is no token file to take it from; give the "
                       "number of token ids.");
    }
    if (V < data_vocab) {
        return tt_fail(err, TT_EUSER,
                       "model.vocab: %" PRId64 " is too small for the data, which has %" PRId64
                       " token ids; allowed are 0 (as the data) and %" PRId64 " or more.",
                       V, data_vocab, data_vocab);
    }
    *shape = (tt_shape){
        .L = L,
        .H = H,
        .G = G,
        .D = C / H,
        .C = C,
        .F = F,
        .T = config->model.context,
        .V = V,
        .vocab_used = data_vocab != 0 ? data_vocab : V,
        .dropout = config->model.dropout,
        .tied = config->model.tie_embeddings,
    };
    return TT_OK;
}
