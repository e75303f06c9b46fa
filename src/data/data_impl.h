/* data_impl.h: what the files of this layer share: the list of input files, and the writer of token
 * files. */
#ifndef TT_DATA_IMPL_H
#define TT_DATA_IMPL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tutti/base/status.h"
#include "tutti/data/tokenizer.h"

/* What tt_walk_inputs found. Owns the paths; free with tt_walk_free. */
typedef struct tt_walk_file {
    char *path;
    int64_t bytes; /* 0 until the build has read the file */
} tt_walk_file;

typedef struct tt_walk {
    tt_walk_file *file;
    int64_t files, room;
    int64_t skipped; /* hidden, special, broken or repeated entries */
} tt_walk;

/* Lists the regular files of `input` (files or folders) in the order given, folders in byte order of
 * the names, each file once. `out` and "<out>.part" are left out when a folder holds them; as an
 * input they are refused. Zero-initialise `walk`; after a failure it holds nothing. */
tt_code tt_walk_inputs(tt_walk *walk, int inputs, char *const *input, const char *out, tt_err *err);
void tt_walk_free(tt_walk *walk);

/* A token file being written (tokens_writer.c). */
typedef struct tt_tokens_writer tt_tokens_writer;

/* Starts the file `path`, replacing it. It takes exactly `documents` documents into the training
 * part and `valid_documents` into the held-out part (0: the file has none). */
tt_code tt_tokens_writer_open(tt_tokens_writer **writer, const char *path,
                              const tt_tokenizer *tokenizer, int64_t documents,
                              int64_t valid_documents, tt_err *err);
/* Adds ids to the open document of a part, and ends that document. */
tt_code tt_tokens_writer_add(tt_tokens_writer *writer, bool valid, const int32_t *id, int64_t count,
                             tt_err *err);
void tt_tokens_writer_end_document(tt_tokens_writer *writer, bool valid);
/* Writes what is buffered and closes the file; the writer stays to be freed. */
tt_code tt_tokens_writer_finish(tt_tokens_writer *writer, tt_err *err);
/* Frees, closing first what is open; NULL is allowed. The file stays where it is. */
void tt_tokens_writer_free(tt_tokens_writer *writer);

/* The HDF5 half of a writer (tokens_h5.c). HDF5 must never meet a full disk, see tokens_writer.c. */
typedef struct tt_token_h5_file tt_token_h5_file;

enum { TT_CHUNK = 65536 }; /* ids in one chunk of a dataset: 128 KiB at 16 bits */

/* Creates the file, empty, replacing `path`, which is borrowed until the file is closed. */
tt_code tt_token_h5_create(tt_token_h5_file **file, const char *path, tt_err *err);
/* Writes what comes first: attributes, tokenizer, empty datasets of ids of 2 or 4 bytes. */
tt_code tt_token_h5_begin(tt_token_h5_file *file, const tt_tokenizer *tokenizer, size_t id_size,
                          int parts, tt_err *err);
/* Bytes of the file as far as HDF5 has planned it. */
tt_code tt_token_h5_used(tt_token_h5_file *file, int64_t *bytes, tt_err *err);
/* Ids first .. first+count-1 of a part, from memory of this machine's byte order. */
tt_code tt_token_h5_append(tt_token_h5_file *file, bool valid, int64_t first, int64_t count,
                           const void *id, tt_err *err);
tt_code tt_token_h5_write_documents(tt_token_h5_file *file, bool valid, const int64_t *offset,
                                    int64_t documents, tt_err *err);
tt_code tt_token_h5_flush(tt_token_h5_file *file, tt_err *err);
/* Closes and frees, also when it fails. */
tt_code tt_token_h5_close(tt_token_h5_file *file, tt_err *err);

#endif
