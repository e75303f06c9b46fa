/* tokens.h: token files (HDF5): built once, read by every rank on its own.
 *
 * /tokens (1-D, uint16 or uint32, chunked), /documents (int64 offsets, one more than documents; each
 * document ends with the end token), /valid/tokens and /valid/documents where a part is held out,
 * /tokenizer (string), attributes format = "tutti-tokens-1" and vocab. Built beside, synced, renamed.
 *
 * Invariant: offsets start at 0, do not decrease, end at the token count; ids are below vocab
 * (checked when read). Opens with the serial driver: no MPI needed, no collectivity. */
#ifndef TUTTI_DATA_TOKENS_H
#define TUTTI_DATA_TOKENS_H

#include <stdbool.h>
#include <stdint.h>

#include "tutti/base/status.h"
#include "tutti/base/text.h"
#include "tutti/data/tokenizer.h"

typedef struct tt_tokens_build {
    const char *out;       /* file to write; replaces only a token file or an empty file */
    const char *tokenizer; /* "bytes" */
    double
        valid_fraction; /* [0, 1): documents held out, rounded, at least one if above 0, never all;
                              chosen by tt_permute with `seed` */
    uint64_t seed;
    int inputs;
    char *const *input; /* files or folders (walked in byte order of the names, links followed, each
                              file once; hidden, empty and binary files (a NUL byte) are skipped) */
} tt_tokens_build;

typedef struct tt_tokens_summary {
    int64_t documents, tokens, valid_documents, valid_tokens, vocab;
    int64_t skipped_files;    /* by a build: hidden, empty, binary, special or met before */
    double entropy_nats;      /* order-0 entropy of the training part, nats per token */
    int64_t longest_document; /* tokens, of both parts */
    char tokenizer[64];
} tt_tokens_summary;

/* Builds the file beside (`<out>.part`), reads it back, syncs, renames. Whatever fails, `out` is as it
 * was before. A mistake in `build` or unreadable inputs: TT_EUSER; the disk: TT_EWORLD. */
tt_code tt_tokens_build_file(const tt_tokens_build *build, tt_tokens_summary *summary, tt_err *err);

/* Writes `count` >= 1 random ids below `vocab` as one document, in place, for measurements; its
 * tokenizer, "noise", cannot decode. The path is TT_EUSER when it cannot be made; the disk TT_EWORLD. */
tt_code tt_tokens_noise_file(const char *path, int64_t vocab, int64_t count, uint64_t seed,
                             tt_err *err);

/* One part (training or held-out) of a token file, open for reading. Owns its HDF5 handles. */
typedef struct tt_tokens tt_tokens;

/* valid false: the training part; true: the held-out part (TT_EUSER when the file has none). A
 * missing, foreign, truncated or inconsistent file: TT_EUSER when it is not there or not a token
 * file, TT_EWORLD when it is damaged. */
tt_code tt_tokens_open(tt_tokens **tokens, const char *path, bool valid, tt_err *err);
void tt_tokens_close(tt_tokens *tokens);
bool tt_tokens_has_valid(const tt_tokens *tokens);
int64_t tt_tokens_count(const tt_tokens *tokens);
int64_t tt_tokens_documents(const tt_tokens *tokens);
int64_t tt_tokens_vocab(const tt_tokens *tokens);
const char *tt_tokens_tokenizer(const tt_tokens *tokens); /* borrowed */
const char *tt_tokens_path(const tt_tokens *tokens);      /* borrowed */
/* Offsets of document d: [first, end). */
void tt_tokens_document(const tt_tokens *tokens, int64_t d, int64_t *first, int64_t *end);
/* Ids first .. first+count-1 into out[count]. Damaged data: TT_EWORLD. */
tt_code tt_tokens_read(tt_tokens *tokens, int64_t first, int64_t count, int32_t *out, tt_err *err);

/* A digest of the part's ids: of 64 stretches of 1024, evenly over it, and of their number. It
 * tells one file from another without reading all of it. */
tt_code tt_tokens_sample(tt_tokens *tokens, uint64_t *digest, tt_err *err);

/* What a file holds, for `data info`; reads all of it. */
tt_code tt_tokens_inspect(const char *path, tt_tokens_summary *summary, tt_err *err);

#endif
