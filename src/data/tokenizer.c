/* tokenizer.c: the table of tokenizers. Today one row: bytes.
 *
 * Invariant: every id that tt_encode writes is below `vocab` and is not `end`.
 *
 * Reads nothing; next: tokens_build.c. */
#include "tutti/data/tokenizer.h"

#include <string.h>

static const tt_tokenizer table[] = {
    {.name = "bytes", .vocab = 257, .end = 256},
};

tt_code tt_tokenizer_open(tt_tokenizer *tokenizer, const char *name, tt_err *err)
{
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        if (strcmp(name, table[i].name) == 0) {
            *tokenizer = table[i];
            return TT_OK;
        }
    }
    tt_text known = {0};
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        tt_text_add(&known, "%s%s", i ? ", " : "", table[i].name);
    }
    tt_fail(err, TT_EUSER, "tokenizer \"%s\" is not known; allowed: %s", name,
            known.failed ? "bytes" : known.data);
    tt_text_free(&known);
    return TT_EUSER;
}

void tt_encode(const tt_tokenizer *tokenizer, const char *bytes, int64_t length, int32_t *token,
               int64_t *count)
{
    (void)tokenizer; /* one row, one rule */
    for (int64_t i = 0; i < length; i++) {
        token[i] = (unsigned char)bytes[i];
    }
    *count = length;
}

void tt_decode(const tt_tokenizer *tokenizer, int32_t token, tt_text *out)
{
    if (token < 0 || token >= tokenizer->end) {
        return;
    }
    char byte = (char)(unsigned char)token;
    tt_text_add_bytes(out, &byte, 1);
}
