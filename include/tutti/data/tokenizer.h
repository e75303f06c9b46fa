/* tokenizer.h: bytes to tokens and back.
 *
 * "bytes": token = byte value, 256 = end of document; vocabulary 257. A tokenizer is named by a
 * string, stored as /tokenizer in token files and checkpoints. */
#ifndef TUTTI_DATA_TOKENIZER_H
#define TUTTI_DATA_TOKENIZER_H

#include <stdint.h>

#include "tutti/base/status.h"
#include "tutti/base/text.h"

typedef struct tt_tokenizer {
    const char *name; /* static */
    int64_t vocab;    /* number of token ids */
    int32_t end;      /* end-of-document token */
} tt_tokenizer;

/* Opens by name; unknown names are TT_EUSER listing the known. */
tt_code tt_tokenizer_open(tt_tokenizer *tokenizer, const char *name, tt_err *err);

/* Encodes `length` bytes into token[*count], room for at least `length` ids; no end token added. */
void tt_encode(const tt_tokenizer *tokenizer, const char *bytes, int64_t length, int32_t *token,
               int64_t *count);

/* Appends the bytes of one token; the end token and ids outside the vocabulary append nothing. */
void tt_decode(const tt_tokenizer *tokenizer, int32_t token, tt_text *out);

#endif
