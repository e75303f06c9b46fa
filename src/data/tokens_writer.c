/* tokens_writer.c: a token file while it grows: ids are gathered into chunks, offsets are kept, and
 * the disk is asked for room before HDF5 writes.
 *
 * HDF5 does not survive a failed write: it can no longer close the file, and crashes when the program
 * ends. So a full disk must be met before HDF5 writes.
 *
 * Invariant: the file reaches at least SPARE bytes beyond what HDF5 uses, which is room enough to
 * close it at any time; what is written next is reserved on the disk first.
 *
 * A writer owns its handles and buffers, not the name of its file. Reads nothing, writes a token
 * file; next: tokens_h5.c. */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "data/data_impl.h"
#include "tutti/base/file.h"
#include "tutti/base/memory.h"
#include "tutti/base/narrow.h"

enum { SPARE = 256 << 10 };

typedef struct writer_part {
    unsigned char *buffer; /* [TT_CHUNK] ids of id_size bytes, in this machine's byte order */
    int64_t held;          /* ids in the buffer */
    int64_t written;       /* ids in the file */
    int64_t *offset;       /* [documents + 1] */
    int64_t documents, room;
} writer_part;

struct tt_tokens_writer {
    const char *path; /* borrowed */
    tt_token_h5_file *h5;
    int fd;           /* the same file, to reserve room on the disk */
    int64_t reserved; /* bytes of the file that the disk has granted */
    size_t id_size;   /* bytes of an id: 2 or 4 */
    int parts;        /* 1, or 2 with a held-out part */
    writer_part part[2];
};

static tt_code disk_error(const tt_tokens_writer *writer, int error, tt_err *err)
{
    return tt_fail(err, TT_EWORLD, "token file %s cannot be written: %s", writer->path,
                   strerror(error));
}

/* Takes room for `bytes` more, and SPARE, from the disk. */
static tt_code reserve(tt_tokens_writer *writer, int64_t bytes, tt_err *err)
{
    int64_t used = 0;
    tt_code rc = tt_token_h5_used(writer->h5, &used, err);
    int64_t wanted = used + bytes + SPARE;
    if (rc != TT_OK || wanted <= writer->reserved) {
        return rc;
    }
    wanted += SPARE; /* so that not every chunk comes here */
    int error = tt_posix_fallocate(writer->fd, writer->reserved, wanted - writer->reserved);
    if (error != 0) {
        return disk_error(writer, error, err);
    }
    writer->reserved = wanted;
    return TT_OK;
}

/* Makes the file with plain calls, because their errors are clearer than HDF5's, and makes sure that
 * HDF5 can begin: it will cut the file to nothing and fill it anew. */
static tt_code create_file(tt_tokens_writer *writer, tt_err *err)
{
    writer->fd = tt_open(writer->path, O_RDWR | O_CREAT | O_TRUNC);
    if (writer->fd < 0) {
        bool user = errno == EACCES || errno == EPERM || errno == EROFS || errno == ENOENT ||
                    errno == ENOTDIR || errno == EISDIR || errno == ENAMETOOLONG;
        return tt_fail(err, user ? TT_EUSER : TT_EWORLD, "token file %s cannot be created: %s",
                       writer->path, strerror(errno));
    }
    int error = tt_posix_fallocate(writer->fd, 0, SPARE);
    if (error != 0) {
        return disk_error(writer, error, err);
    }
    tt_code rc = tt_token_h5_create(&writer->h5, writer->path, err);
    return rc == TT_OK ? reserve(writer, 0, err) : rc;
}

static tt_code open_part(tt_tokens_writer *writer, int p, int64_t documents, tt_err *err)
{
    writer_part *part = &writer->part[p];
    part->room = documents;
    part->buffer = tt_alloc(TT_CHUNK, writer->id_size, err);
    part->offset = part->buffer ? tt_alloc(documents + 1, sizeof *part->offset, err) : NULL;
    return part->offset != NULL ? TT_OK : err->code;
}

tt_code tt_tokens_writer_open(tt_tokens_writer **out, const char *path,
                              const tt_tokenizer *tokenizer, int64_t documents,
                              int64_t valid_documents, tt_err *err)
{
    tt_code rc = TT_OK;
    *out = NULL;
    tt_tokens_writer *writer = tt_alloc(1, sizeof *writer, err);
    if (writer == NULL) {
        return err->code;
    }
    writer->path = path;
    writer->fd = -1;
    writer->id_size = tokenizer->vocab <= UINT16_MAX + 1 ? sizeof(uint16_t) : sizeof(uint32_t);
    writer->parts = valid_documents > 0 ? 2 : 1;
    TT_TRY(open_part(writer, 0, documents, err));
    if (writer->parts == 2) {
        TT_TRY(open_part(writer, 1, valid_documents, err));
    }
    TT_TRY(create_file(writer, err));
    TT_TRY(tt_token_h5_begin(writer->h5, tokenizer, writer->id_size, writer->parts, err));
    *out = writer;
    writer = NULL;
out:
    tt_tokens_writer_free(writer);
    return rc;
}

/* Appends the buffer to the file. */
static tt_code write_buffer(tt_tokens_writer *writer, bool valid, tt_err *err)
{
    tt_code rc = TT_OK;
    writer_part *part = &writer->part[valid];
    if (part->held > 0) {
        /* HDF5 writes a chunk whole, however few of its ids are there. */
        TT_TRY(reserve(writer, tt_mul(TT_CHUNK, tt_count(writer->id_size)), err));
        TT_TRY(tt_token_h5_append(writer->h5, valid, part->written, part->held, part->buffer, err));
        part->written += part->held;
        part->held = 0;
    }
out:
    return rc;
}

static void store_ids(unsigned char *to, size_t size, const int32_t *id, int64_t count)
{
    if (size == sizeof *id) {
        memcpy(to, id, tt_bytes(count, sizeof *id));
        return;
    }
    for (int64_t i = 0; i < count; i++) {
        uint16_t narrow = (uint16_t)id[i]; /* below the vocabulary, so it fits */
        memcpy(to + i * (int64_t)sizeof narrow, &narrow, sizeof narrow);
    }
}

tt_code tt_tokens_writer_add(tt_tokens_writer *writer, bool valid, const int32_t *id, int64_t count,
                             tt_err *err)
{
    tt_code rc = TT_OK;
    writer_part *part = &writer->part[valid];
    while (count > 0) {
        int64_t piece = tt_min(count, TT_CHUNK - part->held);
        store_ids(part->buffer + part->held * tt_count(writer->id_size), writer->id_size, id,
                  piece);
        part->held += piece;
        id += piece;
        count -= piece;
        if (part->held == TT_CHUNK) {
            TT_TRY(write_buffer(writer, valid, err));
        }
    }
out:
    return rc;
}

void tt_tokens_writer_end_document(tt_tokens_writer *writer, bool valid)
{
    writer_part *part = &writer->part[valid];
    assert(part->documents < part->room);
    part->offset[++part->documents] = part->written + part->held;
}

tt_code tt_tokens_writer_finish(tt_tokens_writer *writer, tt_err *err)
{
    tt_code rc = TT_OK;
    int64_t used = 0;
    for (int p = 0; p < writer->parts; p++) {
        writer_part *part = &writer->part[p];
        assert(part->documents == part->room);
        TT_TRY(write_buffer(writer, p, err));
        TT_TRY(reserve(writer, tt_mul(part->documents + 1, sizeof *part->offset), err));
        TT_TRY(tt_token_h5_write_documents(writer->h5, p, part->offset, part->documents, err));
    }
    TT_TRY(tt_token_h5_flush(writer->h5, err));
    TT_TRY(tt_token_h5_used(writer->h5, &used, err));
    tt_token_h5_file *h5 = writer->h5;
    writer->h5 = NULL;
    TT_TRY(tt_token_h5_close(h5, err));
    if (tt_ftruncate(writer->fd, used) != 0) { /* what was reserved and not needed */
        rc = disk_error(writer, errno, err);
    }
out:
    return rc;
}

void tt_tokens_writer_free(tt_tokens_writer *writer)
{
    if (writer == NULL) {
        return;
    }
    tt_err ignored; /* the file is given up */
    if (writer->h5 != NULL) {
        tt_token_h5_close(writer->h5, &ignored);
    }
    if (writer->fd >= 0) {
        close(writer->fd);
    }
    for (int p = 0; p < 2; p++) {
        free(writer->part[p].buffer);
        free(writer->part[p].offset);
    }
    free(writer);
}
