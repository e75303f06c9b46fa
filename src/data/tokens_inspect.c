/* tokens_inspect.c: what a token file holds, by reading all of it.
 *
 * Invariant: after TT_OK every id of both parts has been read and is below the vocabulary.
 *
 * Reads a token file, writes tt_tokens_summary; next: cli/data.c. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "tutti/base/memory.h"
#include "tutti/base/narrow.h"
#include "tutti/data/tokens.h"

enum { PIECE = 65536 }; /* ids read at a time */

/* Counts every id of the part; count[vocab] is zero before. */
static tt_code count_ids(tt_tokens *tokens, int64_t *count, tt_err *err)
{
    tt_code rc = TT_OK;
    int32_t *id = tt_alloc(PIECE, sizeof *id, err);
    if (id == NULL) {
        return err->code;
    }
    int64_t total = tt_tokens_count(tokens);
    for (int64_t first = 0; first < total; first += PIECE) {
        int64_t piece = tt_min(PIECE, total - first);
        TT_TRY(tt_tokens_read(tokens, first, piece, id, err));
        for (int64_t i = 0; i < piece; i++) {
            count[id[i]]++;
        }
    }
out:
    free(id);
    return rc;
}

/* H = -sum p log p, in nats. */
static double entropy(const int64_t *count, int64_t vocab, int64_t total)
{
    double h = 0;
    for (int64_t v = 0; v < vocab; v++) {
        if (count[v] > 0) {
            double p = (double)count[v] / (double)total;
            h -= p * log(p);
        }
    }
    return h;
}

static int64_t longest(const tt_tokens *tokens)
{
    int64_t most = 0;
    for (int64_t d = 0; d < tt_tokens_documents(tokens); d++) {
        int64_t first, end;
        tt_tokens_document(tokens, d, &first, &end);
        most = tt_max(most, end - first);
    }
    return most;
}

static tt_code inspect_part(const char *path, bool valid, tt_tokens_summary *summary, tt_err *err)
{
    tt_code rc = TT_OK;
    int64_t *count = NULL;
    tt_tokens *tokens = NULL;
    TT_TRY(tt_tokens_open(&tokens, path, valid, err));
    int64_t vocab = tt_tokens_vocab(tokens), total = tt_tokens_count(tokens);
    count = tt_alloc(vocab, sizeof *count, err);
    if (count == NULL) {
        rc = err->code;
        goto out;
    }
    TT_TRY(count_ids(tokens, count, err));
    summary->longest_document = tt_max(summary->longest_document, longest(tokens));
    if (valid) {
        summary->valid_documents = tt_tokens_documents(tokens);
        summary->valid_tokens = total;
        goto out;
    }
    summary->documents = tt_tokens_documents(tokens);
    summary->tokens = total;
    summary->vocab = vocab;
    summary->entropy_nats = entropy(count, vocab, total);
    snprintf(summary->tokenizer, sizeof summary->tokenizer, "%.63s", tt_tokens_tokenizer(tokens));
    if (tt_tokens_has_valid(tokens)) {
        rc = inspect_part(path, true, summary, err);
    }
out:
    free(count);
    tt_tokens_close(tokens);
    return rc;
}

tt_code tt_tokens_inspect(const char *path, tt_tokens_summary *summary, tt_err *err)
{
    *summary = (tt_tokens_summary){0};
    return inspect_part(path, false, summary, err);
}
