/* tokens_h5.c: token files on disk: the reader, and the HDF5 half of the writer. The only file of this
 * layer that knows HDF5.
 *
 * Invariant: HDF5 is used with its serial driver and prints nothing of its own; every public function
 * leaves its error printing as it found it. A tt_tokens that was opened has consistent shapes and
 * offsets; ids are checked when they are read. The same documents give the same bytes on disk: no
 * time stamps, one order of writing.
 *
 * A tt_tokens owns its handles, its offsets and its names; a tt_token_h5_file owns its handles.
 *
 * Reads and writes token files; next: sampler.c for the reader, tokens_writer.c for the writer. */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <hdf5.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "data/data_impl.h"
#include "tutti/base/file.h"
#include "tutti/base/memory.h"
#include "tutti/base/narrow.h"
#include "tutti/base/sound.h"
#include "tutti/data/tokens.h"

#define FORMAT "tutti-tokens-1"

enum {
    STRING_BYTES = 16 << 20, /* longest string taken from a file */
    VOCAB_MAX = 1 << 24
};

static const char *const part_names[2] = {"training", "held-out"};
static const char *const token_paths[2] = {"/tokens", "/valid/tokens"};
static const char *const document_paths[2] = {"/documents", "/valid/documents"};

struct tt_tokens {
    char *path, *tokenizer;
    bool valid, has_valid;
    int64_t count, documents, vocab;
    int64_t *offset; /* [documents + 1] */
    size_t id_size;  /* bytes of an id in the file: 2 or 4 */
    hid_t file, ids;
    int fd;        /* HDF5's own, of the file */
    int64_t bytes; /* of the file when it was opened */
};

/* ---- HDF5's own messages -------------------------------------------------------------------- */

/* HDF5's error printing, switched off between quiet_begin and quiet_end. */
typedef struct quiet {
    H5E_auto2_t print;
    void *data;
} quiet;

static quiet quiet_begin(void)
{
    quiet q = {0};
    H5Eget_auto2(H5E_DEFAULT, &q.print, &q.data);
    H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
    return q;
}

static void quiet_end(quiet q)
{
    H5Eset_auto2(H5E_DEFAULT, q.print, q.data);
}

enum { REASON = 256 };

static herr_t take_innermost(unsigned depth, const H5E_error2_t *error, void *data)
{
    char *reason = data;
    if (depth == 0 && error->desc != NULL) {
        /* The file driver wraps the system's message in a line of pointers and offsets. */
        static const char before[] = "error message = '";
        const char *start = strstr(error->desc, before);
        start = start != NULL ? start + sizeof before - 1 : error->desc;
        snprintf(reason, REASON, "%.*s", (int)strcspn(start, "'\n"), start);
    }
    return 0;
}

/* The innermost message of the HDF5 call that just failed, into reason[REASON]. */
static const char *h5_reason(char *reason)
{
    snprintf(reason, REASON, "HDF5 gives no reason");
    H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, take_innermost, reason);
    return reason;
}

static tt_code damaged(const char *path, const char *what, tt_err *err)
{
    return tt_fail(err, TT_EWORLD, "token file %s is damaged: %s", path, what);
}

/* ---- Reading -------------------------------------------------------------------------------- */

/* A file that is there, may be read, has HDF5's signature, and does HDF5 no harm. */
static tt_code check_signature(const char *path, tt_err *err)
{
    struct stat s;
    char why[TT_SOUND_WHY];
    int fd = tt_open(path, O_RDONLY | O_NONBLOCK);
    if (fd < 0) {
        bool world = errno == EIO || errno == EMFILE || errno == ENFILE || errno == ENOMEM;
        return tt_fail(err, world ? TT_EWORLD : TT_EUSER, "token file %s cannot be opened: %s",
                       path, strerror(errno));
    }
    bool regular = fstat(fd, &s) == 0 && S_ISREG(s.st_mode);
    close(fd);
    if (!regular) {
        return tt_fail(err, TT_EUSER, "%s is not a token file: it is not a regular file", path);
    }
    if (H5Fis_hdf5(path) <= 0) {
        return tt_fail(err, TT_EUSER,
                       "%s is not a token file: it is not HDF5; make one with \"tutti data build\"",
                       path);
    }
    switch (tt_sound_check(path, why)) {
    case TT_SOUND_DAMAGED:
        return damaged(path, why, err);
    case TT_SOUND_UNREAD:
        return tt_fail(
            err, TT_EUSER,
            "token file %s is of a kind that is not read: %s; make one with \"tutti data "
            "build\"",
            path, why);
    default:
        return TT_OK;
    }
}

/* Reads the one string of a dataset or attribute, of fixed or variable length, into *text (owned by
 * the caller). False when it is anything else. */
static bool read_string(hid_t object, bool attribute, char **text)
{
    bool ok = false;
    hid_t space = attribute ? H5Aget_space(object) : H5Dget_space(object);
    hid_t type = attribute ? H5Aget_type(object) : H5Dget_type(object);
    hid_t memory = H5Tcopy(H5T_C_S1);
    char *variable = NULL, *fixed = NULL;
    if (space < 0 || type < 0 || memory < 0 || H5Sget_simple_extent_npoints(space) != 1 ||
        H5Tget_class(type) != H5T_STRING || H5Tset_cset(memory, H5Tget_cset(type)) < 0) {
        goto out;
    }
    void *into = NULL;
    if (H5Tis_variable_str(type) > 0) {
        H5Tset_size(memory, H5T_VARIABLE);
        into = &variable;
    } else {
        size_t size = H5Tget_size(type);
        if (size == 0 || size > STRING_BYTES || (fixed = calloc(size + 1, 1)) == NULL) {
            goto out;
        }
        H5Tset_size(memory, size + 1);
        into = fixed;
    }
    if ((attribute ? H5Aread(object, memory, into)
                   : H5Dread(object, memory, H5S_ALL, H5S_ALL, H5P_DEFAULT, into)) < 0) {
        goto out;
    }
    *text = fixed != NULL ? fixed : variable != NULL ? strdup(variable) : NULL;
    ok = *text != NULL;
    fixed = ok ? NULL : fixed;
out:
    if (variable != NULL) {
        H5free_memory(variable);
    }
    free(fixed);
    H5Tclose(memory);
    H5Tclose(type);
    H5Sclose(space);
    return ok;
}

static bool read_string_attribute(hid_t file, const char *name, char **text)
{
    hid_t attribute = H5Aopen(file, name, H5P_DEFAULT);
    bool ok = attribute >= 0 && read_string(attribute, true, text);
    H5Aclose(attribute);
    return ok;
}

static bool read_int_attribute(hid_t file, const char *name, int64_t *value)
{
    hid_t attribute = H5Aopen(file, name, H5P_DEFAULT);
    hid_t space = attribute >= 0 ? H5Aget_space(attribute) : -1;
    hid_t type = attribute >= 0 ? H5Aget_type(attribute) : -1;
    bool ok = space >= 0 && H5Sget_simple_extent_npoints(space) == 1 &&
              H5Tget_class(type) == H5T_INTEGER && H5Aread(attribute, H5T_NATIVE_INT64, value) >= 0;
    H5Tclose(type);
    H5Sclose(space);
    H5Aclose(attribute);
    return ok;
}

/* Opens a 1-D dataset of integers: its length and the size of an element in the file. */
static hid_t open_vector(hid_t file, const char *name, hid_t access, int64_t *length, size_t *size)
{
    hid_t set = H5Dopen2(file, name, access);
    hid_t space = set >= 0 ? H5Dget_space(set) : -1;
    hid_t type = set >= 0 ? H5Dget_type(set) : -1;
    hsize_t extent = 0;
    bool ok = space >= 0 && H5Sget_simple_extent_ndims(space) == 1 &&
              H5Sget_simple_extent_dims(space, &extent, NULL) == 1 && extent < INT64_MAX / 16 &&
              H5Tget_class(type) == H5T_INTEGER;
    if (ok) {
        *length = (int64_t)extent;
        *size = H5Tget_size(type);
    }
    H5Tclose(type);
    H5Sclose(space);
    if (!ok && set >= 0) {
        H5Dclose(set);
    }
    return ok ? set : -1;
}

/* Is it a token file? Fills tokenizer, vocab and has_valid. */
static tt_code open_header(tt_tokens *tokens, tt_err *err)
{
    tt_code rc = TT_OK;
    char reason[REASON];
    char *format = NULL;
    hid_t access = H5Pcreate(H5P_FILE_ACCESS);
    /* As checkpoints are opened: HDF5 refuses to open one file in two ways at once, and then a token
     * file given in a checkpoint's place would be called damaged. */
    H5Pset_fclose_degree(access, H5F_CLOSE_STRONG);
    H5Pset_fapl_sec2(access); /* whose handle is a descriptor */
#if H5_VERSION_GE(1, 10, 7)
    /* Token files appear by renaming and never change, so a reader needs no lock, and file systems
     * without locks are fine. */
    H5Pset_file_locking(access, false, true);
#endif
    tokens->file = H5Fopen(tokens->path, H5F_ACC_RDONLY, access);
    if (tokens->file < 0) {
        rc = damaged(tokens->path, h5_reason(reason), err);
        goto out;
    }
    void *handle = NULL;
    struct stat s;
    if (H5Fget_vfd_handle(tokens->file, H5P_DEFAULT, &handle) < 0 ||
        fstat(*(const int *)handle, &s) != 0) {
        rc = tt_fail(err, TT_EWORLD, "token file %s cannot be read: %s", tokens->path,
                     handle == NULL ? h5_reason(reason) : strerror(errno));
        goto out;
    }
    tokens->fd = *(const int *)handle;
    tokens->bytes = s.st_size;
    if (!read_string_attribute(tokens->file, "format", &format)) {
        rc = tt_fail(err, TT_EUSER,
                     "%s is not a token file: it is HDF5, but without the attribute format = "
                     "\"" FORMAT "\"",
                     tokens->path);
        goto out;
    }
    if (strcmp(format, FORMAT) != 0) {
        rc =
            tt_fail(err, TT_EUSER,
                    "%s is not a token file: its attribute format is \"%.64s\", not \"" FORMAT "\"",
                    tokens->path, format);
        goto out;
    }
    if (!read_int_attribute(tokens->file, "vocab", &tokens->vocab) || tokens->vocab < 1 ||
        tokens->vocab > VOCAB_MAX) {
        rc = damaged(tokens->path, "its attribute vocab is not a number from 1 to 16777216", err);
        goto out;
    }
    hid_t set = H5Dopen2(tokens->file, "/tokenizer", H5P_DEFAULT);
    bool named = set >= 0 && read_string(set, false, &tokens->tokenizer);
    H5Dclose(set);
    if (!named) {
        rc = damaged(tokens->path, "/tokenizer is not a string", err);
        goto out;
    }
    tokens->has_valid = H5Lexists(tokens->file, "/valid", H5P_DEFAULT) > 0;
out:
    free(format);
    H5Pclose(access);
    return rc;
}

/* The ids of one part: opened, not read. Without a chunk cache HDF5 reads just the ids that are asked
 * for; with one it reads whole chunks, most of it in vain when windows are drawn at random. */
static tt_code open_ids(tt_tokens *tokens, tt_err *err)
{
    char text[REASON];
    const char *name = token_paths[tokens->valid];
    hid_t access = H5Pcreate(H5P_DATASET_ACCESS);
    H5Pset_chunk_cache(access, 0, 0, H5D_CHUNK_CACHE_W0_DEFAULT);
    tokens->ids = open_vector(tokens->file, name, access, &tokens->count, &tokens->id_size);
    H5Pclose(access);
    if (tokens->ids < 0 || (tokens->id_size != 2 && tokens->id_size != 4)) {
        snprintf(text, sizeof text, "%s is not a vector of 16-bit or 32-bit integers", name);
        return damaged(tokens->path, text, err);
    }
    return TT_OK;
}

/* The document offsets of one part, read and checked. */
static tt_code open_documents(tt_tokens *tokens, tt_err *err)
{
    tt_code rc = TT_OK;
    char text[REASON];
    const char *name = document_paths[tokens->valid];
    int64_t length = 0;
    size_t size = 0;
    hid_t set = open_vector(tokens->file, name, H5P_DEFAULT, &length, &size);
    if (set < 0 || length < 1) {
        snprintf(text, sizeof text, "%s is not a vector of offsets", name);
        rc = damaged(tokens->path, text, err);
        goto out;
    }
    /* The shape is only a claim; memory is taken for what the file really stores. */
    if (H5Dget_storage_size(set) < (hsize_t)length * size) {
        snprintf(text, sizeof text, "%s stores less than its shape says", name);
        rc = damaged(tokens->path, text, err);
        goto out;
    }
    tokens->offset = tt_alloc(length, sizeof *tokens->offset, err);
    if (tokens->offset == NULL) {
        rc = err->code;
        goto out;
    }
    if (H5Dread(set, H5T_NATIVE_INT64, H5S_ALL, H5S_ALL, H5P_DEFAULT, tokens->offset) < 0) {
        rc = damaged(tokens->path, h5_reason(text), err);
        goto out;
    }
    tokens->documents = length - 1;
    bool ordered = tokens->offset[0] == 0 && tokens->offset[length - 1] == tokens->count;
    for (int64_t d = 1; d < length && ordered; d++) {
        ordered = tokens->offset[d - 1] <= tokens->offset[d];
    }
    if (!ordered) {
        snprintf(text, sizeof text, "%s does not rise from 0 to the number of tokens, %" PRId64,
                 name, tokens->count);
        rc = damaged(tokens->path, text, err);
    }
out:
    if (set >= 0) {
        H5Dclose(set);
    }
    return rc;
}

tt_code tt_tokens_open(tt_tokens **out, const char *path, bool valid, tt_err *err)
{
    tt_code rc = TT_OK;
    quiet q = quiet_begin();
    *out = NULL;
    tt_tokens *tokens = tt_alloc(1, sizeof *tokens, err);
    if (tokens == NULL) {
        rc = err->code;
        goto out;
    }
    tokens->file = tokens->ids = -1;
    tokens->valid = valid;
    tokens->path = tt_strdup(path, err);
    if (tokens->path == NULL) {
        rc = err->code;
        goto out;
    }
    TT_TRY(check_signature(path, err));
    TT_TRY(open_header(tokens, err));
    if (valid && !tokens->has_valid) {
        rc = tt_fail(err, TT_EUSER,
                     "token file %s has no held-out part; build it with a held-out fraction "
                     "(--valid)",
                     path);
        goto out;
    }
    TT_TRY(open_ids(tokens, err));
    TT_TRY(open_documents(tokens, err));
    *out = tokens;
    tokens = NULL;
out:
    tt_tokens_close(tokens);
    quiet_end(q);
    return rc;
}

void tt_tokens_close(tt_tokens *tokens)
{
    if (tokens == NULL) {
        return;
    }
    quiet q = quiet_begin();
    if (tokens->ids >= 0) {
        H5Dclose(tokens->ids);
    }
    if (tokens->file >= 0) {
        H5Fclose(tokens->file);
    }
    quiet_end(q);
    free(tokens->offset);
    free(tokens->tokenizer);
    free(tokens->path);
    free(tokens);
}

bool tt_tokens_has_valid(const tt_tokens *tokens)
{
    return tokens->has_valid;
}

int64_t tt_tokens_count(const tt_tokens *tokens)
{
    return tokens->count;
}

int64_t tt_tokens_documents(const tt_tokens *tokens)
{
    return tokens->documents;
}

int64_t tt_tokens_vocab(const tt_tokens *tokens)
{
    return tokens->vocab;
}

const char *tt_tokens_tokenizer(const tt_tokens *tokens)
{
    return tokens->tokenizer;
}

const char *tt_tokens_path(const tt_tokens *tokens)
{
    return tokens->path;
}

void tt_tokens_document(const tt_tokens *tokens, int64_t d, int64_t *first, int64_t *end)
{
    assert(d >= 0 && d < tokens->documents);
    *first = tokens->offset[d];
    *end = tokens->offset[d + 1];
}

/* HDF5 reads without converting, which is slow: 16-bit ids go into the second half of `out` and are
 * widened from there, front to back, so none is overwritten before it is read. 32-bit ids past
 * INT32_MAX become negative and are refused like any other that is not below the vocabulary. */
static herr_t read_ids(tt_tokens *tokens, hid_t to, hid_t from, int64_t count, int32_t *out)
{
    if (tokens->id_size == sizeof(uint32_t)) {
        return H5Dread(tokens->ids, H5T_NATIVE_UINT32, to, from, H5P_DEFAULT, out);
    }
    unsigned char *half = (unsigned char *)out + count * (int64_t)sizeof(uint16_t);
    herr_t status = H5Dread(tokens->ids, H5T_NATIVE_UINT16, to, from, H5P_DEFAULT, half);
    for (int64_t i = 0; i < count && status >= 0; i++) {
        uint16_t id;
        memcpy(&id, half + i * (int64_t)sizeof id, sizeof id);
        out[i] = id;
    }
    return status;
}

/* HDF5 reads zeros beyond a file's end: one that was cut, or copied over, while it is open would teach
 * them without a word. Asked after each read. */
static tt_code check_length(const tt_tokens *tokens, tt_err *err)
{
    struct stat s;
    if (fstat(tokens->fd, &s) != 0) {
        return tt_fail(err, TT_EWORLD, "token file %s cannot be read: %s", tokens->path,
                       strerror(errno));
    }
    return s.st_size == tokens->bytes
               ? TT_OK
               : tt_fail(err, TT_EWORLD,
                         "token file %s had %" PRId64 " bytes when it was opened and has %" PRId64
                         " now: it was changed while it was read",
                         tokens->path, tokens->bytes, (int64_t)s.st_size);
}

tt_code tt_tokens_read(tt_tokens *tokens, int64_t first, int64_t count, int32_t *out, tt_err *err)
{
    assert(first >= 0 && count >= 0 && first <= tokens->count - count);
    if (count == 0) {
        return TT_OK;
    }
    tt_code rc = TT_OK;
    char reason[REASON];
    hsize_t start = (hsize_t)first, length = (hsize_t)count;
    quiet q = quiet_begin();
    hid_t from = H5Dget_space(tokens->ids);
    hid_t to = H5Screate_simple(1, &length, NULL);
    if (H5Sselect_hyperslab(from, H5S_SELECT_SET, &start, NULL, &length, NULL) < 0 ||
        read_ids(tokens, to, from, count, out) < 0) {
        rc = tt_fail(err, TT_EWORLD, "token file %s cannot be read at token %" PRId64 ": %s",
                     tokens->path, first, h5_reason(reason));
        goto out;
    }
    TT_TRY(check_length(tokens, err));
    for (int64_t i = 0; i < count; i++) {
        if (out[i] < 0 || out[i] >= tokens->vocab) {
            rc = tt_fail(err, TT_EWORLD,
                         "token file %s is damaged: token %" PRId64 " of the %s part is %" PRId32
                         ", not below its vocabulary, %" PRId64,
                         tokens->path, first + i, part_names[tokens->valid], out[i], tokens->vocab);
            goto out;
        }
    }
out:
    H5Sclose(to);
    H5Sclose(from);
    quiet_end(q);
    return rc;
}

/* ---- Writing -------------------------------------------------------------------------------- */

struct tt_token_h5_file {
    const char *path; /* borrowed */
    hid_t file, ids[2], id_type;
};

static tt_code write_error(const tt_token_h5_file *file, tt_err *err)
{
    char reason[REASON];
    return tt_fail(err, TT_EWORLD, "token file %s cannot be written: %s", file->path,
                   h5_reason(reason));
}

tt_code tt_token_h5_create(tt_token_h5_file **out, const char *path, tt_err *err)
{
    *out = NULL;
    tt_token_h5_file *file = tt_alloc(1, sizeof *file, err);
    if (file == NULL) {
        return err->code;
    }
    tt_code rc = TT_OK;
    quiet q = quiet_begin();
    file->path = path;
    file->ids[0] = file->ids[1] = -1;
    file->file = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    if (file->file < 0) {
        rc = write_error(file, err);
        free(file);
    } else {
        *out = file;
    }
    quiet_end(q);
    return rc;
}

/* Strings of fixed length: of a damaged variable one HDF5 would ask for any amount of memory. */
static bool write_string(hid_t file, const char *name, bool attribute, const char *text)
{
    hid_t type = H5Tcopy(H5T_C_S1);
    H5Tset_size(type, strlen(text) + 1);
    hid_t space = H5Screate(H5S_SCALAR);
    bool ok = false;
    if (attribute) {
        hid_t a = H5Acreate2(file, name, type, space, H5P_DEFAULT, H5P_DEFAULT);
        ok = a >= 0 && H5Awrite(a, type, text) >= 0;
        ok = H5Aclose(a) >= 0 && ok;
    } else {
        hid_t create = H5Pcreate(H5P_DATASET_CREATE);
        H5Pset_obj_track_times(create, false);
        hid_t d = H5Dcreate2(file, name, type, space, H5P_DEFAULT, create, H5P_DEFAULT);
        ok = d >= 0 && H5Dwrite(d, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, text) >= 0;
        ok = H5Dclose(d) >= 0 && ok;
        H5Pclose(create);
    }
    H5Sclose(space);
    H5Tclose(type);
    return ok;
}

static bool write_vocab(hid_t file, int64_t vocab)
{
    hid_t space = H5Screate(H5S_SCALAR);
    hid_t a = H5Acreate2(file, "vocab", H5T_STD_I64LE, space, H5P_DEFAULT, H5P_DEFAULT);
    bool ok = a >= 0 && H5Awrite(a, H5T_NATIVE_INT64, &vocab) >= 0;
    ok = H5Aclose(a) >= 0 && ok;
    H5Sclose(space);
    return ok;
}

static bool create_group(hid_t file, const char *name)
{
    hid_t group = H5Gcreate2(file, name, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    return group >= 0 && H5Gclose(group) >= 0;
}

/* The extendable dataset of a part's ids. Without a chunk cache chunks go to the disk as they come. */
static hid_t create_ids(hid_t file, const char *name, hid_t type)
{
    hsize_t none = 0, unlimited = H5S_UNLIMITED, chunk = TT_CHUNK;
    hid_t space = H5Screate_simple(1, &none, &unlimited);
    hid_t create = H5Pcreate(H5P_DATASET_CREATE);
    hid_t access = H5Pcreate(H5P_DATASET_ACCESS);
    H5Pset_chunk(create, 1, &chunk);
    H5Pset_obj_track_times(create, false);
    H5Pset_chunk_cache(access, 0, 0, H5D_CHUNK_CACHE_W0_DEFAULT);
    hid_t set = H5Dcreate2(file, name, type, space, H5P_DEFAULT, create, access);
    H5Pclose(access);
    H5Pclose(create);
    H5Sclose(space);
    return set;
}

tt_code tt_token_h5_begin(tt_token_h5_file *file, const tt_tokenizer *tokenizer, size_t id_size,
                          int parts, tt_err *err)
{
    quiet q = quiet_begin();
    bool narrow = id_size == sizeof(uint16_t);
    hid_t h = file->file;
    file->id_type = narrow ? H5T_NATIVE_UINT16 : H5T_NATIVE_UINT32;
    bool ok = write_string(h, "format", true, FORMAT) && write_vocab(h, tokenizer->vocab) &&
              write_string(h, "/tokenizer", false, tokenizer->name) &&
              (parts == 1 || create_group(h, "/valid"));
    for (int p = 0; p < parts && ok; p++) {
        file->ids[p] = create_ids(h, token_paths[p], narrow ? H5T_STD_U16LE : H5T_STD_U32LE);
        ok = file->ids[p] >= 0;
    }
    tt_code rc = ok ? TT_OK : write_error(file, err);
    quiet_end(q);
    return rc;
}

tt_code tt_token_h5_used(tt_token_h5_file *file, int64_t *bytes, tt_err *err)
{
    quiet q = quiet_begin();
    hsize_t used = 0;
    tt_code rc = H5Fget_filesize(file->file, &used) >= 0 ? TT_OK : write_error(file, err);
    *bytes = (int64_t)used;
    quiet_end(q);
    return rc;
}

tt_code tt_token_h5_append(tt_token_h5_file *file, bool valid, int64_t first, int64_t count,
                           const void *id, tt_err *err)
{
    tt_code rc = TT_OK;
    hsize_t start = (hsize_t)first, length = (hsize_t)count, extent = start + length;
    hid_t set = file->ids[valid], from = -1, to = -1;
    quiet q = quiet_begin();
    if (H5Dset_extent(set, &extent) < 0) {
        rc = write_error(file, err);
        goto out;
    }
    from = H5Screate_simple(1, &length, NULL);
    to = H5Dget_space(set);
    if (H5Sselect_hyperslab(to, H5S_SELECT_SET, &start, NULL, &length, NULL) < 0 ||
        H5Dwrite(set, file->id_type, from, to, H5P_DEFAULT, id) < 0) {
        rc = write_error(file, err);
    }
out:
    H5Sclose(to);
    H5Sclose(from);
    quiet_end(q);
    return rc;
}

tt_code tt_token_h5_write_documents(tt_token_h5_file *file, bool valid, const int64_t *offset,
                                    int64_t documents, tt_err *err)
{
    quiet q = quiet_begin();
    hsize_t length = (hsize_t)documents + 1;
    hid_t space = H5Screate_simple(1, &length, NULL);
    hid_t create = H5Pcreate(H5P_DATASET_CREATE);
    H5Pset_obj_track_times(create, false);
    hid_t set = H5Dcreate2(file->file, document_paths[valid], H5T_STD_I64LE, space, H5P_DEFAULT,
                           create, H5P_DEFAULT);
    bool ok =
        set >= 0 && H5Dwrite(set, H5T_NATIVE_INT64, H5S_ALL, H5S_ALL, H5P_DEFAULT, offset) >= 0;
    tt_code rc = ok ? TT_OK : write_error(file, err);
    H5Dclose(set);
    H5Pclose(create);
    H5Sclose(space);
    quiet_end(q);
    return rc;
}

tt_code tt_token_h5_flush(tt_token_h5_file *file, tt_err *err)
{
    quiet q = quiet_begin();
    tt_code rc = H5Fflush(file->file, H5F_SCOPE_GLOBAL) >= 0 ? TT_OK : write_error(file, err);
    quiet_end(q);
    return rc;
}

tt_code tt_token_h5_close(tt_token_h5_file *file, tt_err *err)
{
    quiet q = quiet_begin();
    for (int p = 0; p < 2; p++) {
        if (file->ids[p] >= 0) {
            H5Dclose(file->ids[p]);
        }
    }
    tt_code rc = H5Fclose(file->file) >= 0 ? TT_OK : write_error(file, err);
    free(file);
    quiet_end(q);
    return rc;
}
