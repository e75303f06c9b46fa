/* tokens_build.c: from text files to a token file.
 *
 * Two passes over the files: the first counts the documents, because the held-out ones are chosen by
 * number; the second encodes and writes. Nothing is held whole in memory but the list of files.
 *
 * Invariant: the same inputs, fraction and seed give the same file, byte for byte. `out` holds the
 * file of before or the new one, whole and read back; never half of one.
 *
 * Reads text files, writes "<out>.part", renames it to `out`; next: sampler.c. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "data/data_impl.h"
#include "tutti/base/file.h"
#include "tutti/base/memory.h"
#include "tutti/base/narrow.h"
#include "tutti/base/rng.h"
#include "tutti/data/tokens.h"

enum { PIECE = 65536 }; /* bytes read at a time */

typedef struct builder {
    tt_tokenizer tokenizer;
    tt_walk walk;    /* after the first pass: the documents, in order */
    int64_t skipped; /* empty and binary files */
    char *bytes;     /* [PIECE] */
    int32_t *id;     /* [PIECE] */
} builder;

static tt_code read_error(const char *path, int error, tt_err *err)
{
    bool user = error == ENOENT || error == ENOTDIR || error == EACCES || error == EPERM;
    return tt_fail(err, user ? TT_EUSER : TT_EWORLD, "input %s cannot be read: %s", path,
                   strerror(error));
}

/* ---- The output's name ---------------------------------------------------------------------- */

static tt_code check_folder(const char *out, tt_err *err)
{
    struct stat s;
    tt_text folder = {0};
    const char *slash = strrchr(out, '/');
    if (slash == NULL) {
        tt_text_add(&folder, ".");
    } else {
        tt_text_add(&folder, "%.*s", tt_int(tt_max(1, slash - out)), out);
    }
    tt_code rc = TT_OK;
    if (folder.failed) {
        rc = tt_fail(err, TT_EWORLD, "out of memory");
    } else if (stat(folder.data, &s) != 0) {
        rc = tt_fail(err, TT_EUSER, "the folder of the output file %s cannot be used: %s", out,
                     strerror(errno));
    } else if (!S_ISDIR(s.st_mode)) {
        rc = tt_fail(err, TT_EUSER, "output file %s: %s is not a folder", out, folder.data);
    } else if (stat(out, &s) == 0 && S_ISDIR(s.st_mode)) {
        rc = tt_fail(err, TT_EUSER, "output file %s is a folder; give the name of a file", out);
    }
    tt_text_free(&folder);
    return rc;
}

/* Only a token file (whole or damaged) or an empty file may be replaced. */
static tt_code check_replaceable(const char *out, tt_err *err)
{
    struct stat s;
    if (stat(out, &s) != 0 || (S_ISREG(s.st_mode) && s.st_size == 0)) {
        return TT_OK;
    }
    tt_tokens *before = NULL;
    tt_code rc = tt_tokens_open(&before, out, false, err);
    tt_tokens_close(before);
    return rc != TT_EUSER
               ? TT_OK
               : tt_fail(err, TT_EUSER,
                         "output file %s exists and is not a token file; remove it or choose "
                         "another name",
                         out);
}

/* ---- Pass one: which files are documents ---------------------------------------------------- */

static tt_code scan(builder *b, const char *path, int64_t *length, bool *text, tt_err *err)
{
    tt_code rc = TT_OK;
    int fd = tt_open(path, O_RDONLY);
    if (fd < 0) {
        return read_error(path, errno, err);
    }
    *length = 0;
    *text = true;
    int64_t got;
    while ((got = tt_read(fd, b->bytes, PIECE)) != 0) {
        if (got < 0) {
            rc = read_error(path, errno, err);
            break;
        }
        *length += got;
        if (memchr(b->bytes, '\0', (size_t)got) != NULL) {
            *text = false;
            break;
        }
    }
    if (*length == 0) {
        *text = false;
    }
    close(fd);
    return rc;
}

/* Leaves the documents in the list. */
static tt_code scan_all(builder *b, tt_err *err)
{
    tt_code rc = TT_OK;
    int64_t kept = 0;
    for (int64_t i = 0; i < b->walk.files; i++) {
        tt_walk_file file = b->walk.file[i];
        bool text = false;
        TT_TRY(scan(b, file.path, &file.bytes, &text, err));
        if (!text) {
            b->skipped++;
            continue;
        }
        b->walk.file[i] = b->walk.file[kept];
        b->walk.file[kept++] = file;
    }
    for (int64_t i = kept; i < b->walk.files; i++) {
        free(b->walk.file[i].path);
    }
    b->walk.files = kept;
    b->skipped += b->walk.skipped;
out:
    return rc;
}

/* ---- Pass two: encode and write ------------------------------------------------------------- */

static tt_code copy_document(builder *b, const tt_walk_file *file, tt_tokens_writer *writer,
                             bool valid, tt_err *err)
{
    tt_code rc = TT_OK;
    int64_t length = 0, count = 0;
    int fd = tt_open(file->path, O_RDONLY);
    if (fd < 0) {
        return read_error(file->path, errno, err);
    }
    int64_t got;
    while ((got = tt_read(fd, b->bytes, PIECE)) != 0) {
        if (got < 0) {
            rc = read_error(file->path, errno, err);
            goto out;
        }
        length += got;
        tt_encode(&b->tokenizer, b->bytes, got, b->id, &count);
        TT_TRY(tt_tokens_writer_add(writer, valid, b->id, count, err));
    }
    if (length != file->bytes) {
        rc = tt_fail(err, TT_EWORLD,
                     "input %s changed while it was read (%" PRId64 " bytes, then %" PRId64
                     "); build again when nothing writes to it",
                     file->path, file->bytes, length);
        goto out;
    }
    TT_TRY(tt_tokens_writer_add(writer, valid, &b->tokenizer.end, 1, err));
    tt_tokens_writer_end_document(writer, valid);
out:
    close(fd);
    return rc;
}

static tt_code write_all(builder *b, const tt_tokens_build *build, const char *part, tt_err *err)
{
    tt_code rc = TT_OK;
    tt_tokens_writer *writer = NULL;
    int64_t documents = b->walk.files, valid = 0;
    if (build->valid_fraction > 0) {
        valid = llround(build->valid_fraction * (double)documents);
        valid = tt_min(tt_max(valid, 1), documents - 1);
    }
    tt_key key = tt_rng_key(build->seed, TT_RNG_SPLIT, 0);
    TT_TRY(tt_tokens_writer_open(&writer, part, &b->tokenizer, documents - valid, valid, err));
    for (int64_t i = 0; i < documents; i++) {
        bool held_out = tt_permute(key, documents, i) < valid;
        TT_TRY(copy_document(b, &b->walk.file[i], writer, held_out, err));
    }
    TT_TRY(tt_tokens_writer_finish(writer, err));
out:
    tt_tokens_writer_free(writer);
    return rc;
}

/* ---- The build ------------------------------------------------------------------------------ */

static tt_code list_documents(builder *b, const tt_tokens_build *build, tt_err *err)
{
    tt_code rc = TT_OK;
    TT_TRY(tt_walk_inputs(&b->walk, build->inputs, build->input, build->out, err));
    TT_TRY(scan_all(b, err));
    if (b->walk.files == 0) {
        rc = tt_fail(err, TT_EUSER,
                     "the inputs hold no text file (%" PRId64
                     " entries skipped as hidden, empty, binary or not regular files)",
                     b->skipped);
        goto out;
    }
    if (build->valid_fraction > 0 && b->walk.files == 1) {
        rc = tt_fail(err, TT_EUSER,
                     "a held-out fraction of %g needs at least 2 documents, but %s is the only "
                     "one; split it into several files, or hold nothing out",
                     build->valid_fraction, b->walk.file[0].path);
    }
out:
    return rc;
}

tt_code tt_tokens_build_file(const tt_tokens_build *build, tt_tokens_summary *summary, tt_err *err)
{
    tt_code rc = TT_OK;
    builder b = {0};
    tt_text part = {0};
    bool started = false;
    if (build->out[0] == '\0') {
        return tt_fail(err, TT_EUSER, "the output file has no name");
    }
    if (build->inputs < 1) {
        return tt_fail(err, TT_EUSER, "there is no input; give text files or folders");
    }
    if (!(build->valid_fraction >= 0 && build->valid_fraction < 1)) {
        return tt_fail(err, TT_EUSER, "the held-out fraction is %g; allowed: from 0 to less than 1",
                       build->valid_fraction);
    }
    tt_text_add(&part, "%s.part", build->out);
    b.bytes = tt_alloc(PIECE, sizeof *b.bytes, err);
    b.id = b.bytes ? tt_alloc(PIECE, sizeof *b.id, err) : NULL;
    if (part.failed || b.id == NULL) {
        rc = tt_fail(err, TT_EWORLD, "out of memory");
        goto out;
    }
    TT_TRY(tt_tokenizer_open(&b.tokenizer, build->tokenizer, err));
    TT_TRY(check_folder(build->out, err));
    TT_TRY(list_documents(&b, build, err));
    TT_TRY(check_replaceable(build->out, err));
    started = true;
    TT_TRY(write_all(&b, build, part.data, err));
    TT_TRY(tt_tokens_inspect(part.data, summary, err)); /* reads back what the disk took */
    summary->skipped_files = b.skipped;
    TT_TRY(tt_commit_file(part.data, build->out, err));
out:
    if (rc != TT_OK && started) {
        unlink(part.data);
    }
    tt_walk_free(&b.walk);
    tt_text_free(&part);
    free(b.id);
    free(b.bytes);
    return rc;
}
