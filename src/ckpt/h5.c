/* h5.c: the one file that knows HDF5.
 *
 * Files are made by one process with the default driver, in memory (part.c): groups, contiguous
 * tensors whose space is set aside at once, scalars inside their object headers. The elements come to
 * their places without HDF5 (elements.c), so no metadata is ever changed in parallel, and no rank is
 * ever alone in a collective call. Every rank opens a whole file for itself, for reading.
 *
 * The format is HDF5 1.8's: from it on HDF5 checksums all its metadata, so a flipped bit is found
 * and not followed. No times are stored: equal states give equal bytes.
 *
 * Invariant: each HDF5 object opened in a function is closed in it; only tt_h5.id outlives a call.
 * Owns: tt_h5 (tt_h5_close). Reads and writes HDF5 files; next: catalog.c, save.c. */
#include <hdf5.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tutti/base/file.h"
#include "tutti/base/memory.h"
#include "tutti/base/narrow.h"
#include "tutti/base/sound.h"

#include "ckpt/ckpt_impl.h"

enum {
    PATH_ROOM = 256,   /* longest path of a group or dataset inside a file */
    DEEPEST = 4,       /* groups within groups that a walk follows: hard links can form rings */
    REASON_ROOM = 200, /* of HDF5's own words in a sentence */
    LARGEST_TEXT = 1 << 30
};
static const int64_t largest_transfer =
    INT64_C(1) << 28; /* elements: 1 GiB, so that no library counts too far */

struct tt_h5 {
    hid_t id;
    const char *name; /* borrowed */
};

#define TEXT_OF(number) #number
#define VERSION(major, minor, release) TEXT_OF(major) "." TEXT_OF(minor) "." TEXT_OF(release)

const char *tt_ckpt_hdf5_version(void)
{
    return VERSION(H5_VERS_MAJOR, H5_VERS_MINOR, H5_VERS_RELEASE);
}

/* --- HDF5's errors as words ------------------------------------------------------------------- */

/* Innermost entry of HDF5's error stack; what the system said when it quotes it. */
static herr_t innermost(unsigned n, const H5E_error2_t *entry, void *client)
{
    static const char quote[] = "error message = '";
    char *out = client;
    (void)n;
    if (out[0] != '\0' || entry->desc == NULL) {
        return 0;
    }
    const char *from = strstr(entry->desc, quote);
    size_t length = from != NULL ? strcspn(from += sizeof quote - 1, "'") : strlen(entry->desc);
    from = from != NULL ? from : entry->desc;
    length = length < REASON_ROOM - 1 ? length : REASON_ROOM - 1;
    memcpy(out, from, length);
    out[length] = '\0';
    return 0;
}

/* Must be called before any other HDF5 call, for each call starts a new stack. */
static void reason_of(char out[REASON_ROOM])
{
    out[0] = '\0';
    H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, innermost, out);
    if (out[0] == '\0') {
        snprintf(out, REASON_ROOM, "HDF5 gives no reason");
    }
}

static tt_code cannot_write(const tt_h5 *file, const char *path, tt_err *err)
{
    char reason[REASON_ROOM];
    reason_of(reason);
    return tt_fail(err, TT_EWORLD, "cannot write %s to %s: %s", path, file->name, reason);
}

static tt_code cannot_read(const tt_h5 *file, const char *path, tt_err *err)
{
    char reason[REASON_ROOM];
    reason_of(reason);
    return tt_fail(err, TT_EWORLD, "%s is damaged: %s cannot be read (%s)", file->name, path,
                   reason);
}

/* HDF5 prints its error stack to stderr unless told not to. */
static void quiet(void)
{
    H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
}

/* Closes an object of any kind; nothing for one that did not open. */
static void drop(hid_t id)
{
    if (id >= 0) {
        H5Idec_ref(id);
    }
}

/* --- open and close --------------------------------------------------------------------------- */

/* File access list with our format, and without HDF5's buffer of small writes: a write that fails
 * fails where it is asked for, not when something is closed. Owned by the caller; H5I_INVALID_HID
 * on failure. */
static hid_t access_list(void)
{
    hid_t list = H5Pcreate(H5P_FILE_ACCESS);
#if H5_VERSION_GE(1, 10, 7)
    /* Files appear by renaming and never change, so nobody needs a lock; and HDF5 refuses to open a
     * file twice in one process with and without. */
    H5Pset_file_locking(list, false, true);
#endif
    if (list >= 0 &&
        (H5Pset_libver_bounds(list, H5F_LIBVER_V18, H5F_LIBVER_V18) < 0 ||
         H5Pset_fclose_degree(list, H5F_CLOSE_STRONG) < 0 || H5Pset_sieve_buf_size(list, 0) < 0)) {
        drop(list);
        list = H5I_INVALID_HID;
    }
    return list;
}

/* Creation list of a group, or of a file and its root: no times, links in the order of their making.
 * Owned by the caller; H5I_INVALID_HID on failure. */
static hid_t group_list(hid_t class)
{
    hid_t list = H5Pcreate(class);
    if (list >= 0 &&
        (H5Pset_link_creation_order(list, H5P_CRT_ORDER_TRACKED | H5P_CRT_ORDER_INDEXED) < 0 ||
         H5Pset_obj_track_times(list, false) < 0)) {
        drop(list);
        list = H5I_INVALID_HID;
    }
    return list;
}

/* An empty handle, made before the file is opened: afterwards nothing can fail. */
static tt_code new_handle(const char *name, tt_h5 **file, tt_err *err)
{
    quiet();
    *file = tt_alloc(1, sizeof **file, err);
    if (*file == NULL) {
        return err->code;
    }
    (*file)->id = H5I_INVALID_HID;
    (*file)->name = name;
    return TT_OK;
}

/* Opens, or creates when `made` is a creation list, and closes both lists. On failure file->id is
 * negative and `reason` says why. */
static void open_with(tt_h5 *file, const char *path, unsigned flags, hid_t made, hid_t access,
                      char reason[REASON_ROOM])
{
    if (access >= 0) {
        file->id = made >= 0 ? H5Fcreate(path, flags, made, access) : H5Fopen(path, flags, access);
    }
    reason_of(reason);
    drop(made);
    drop(access);
}

static void forget(tt_h5 **file)
{
    free(*file);
    *file = NULL;
}

tt_code tt_h5_create(const char *path, const char *name, tt_h5 **file, tt_err *err)
{
    char reason[REASON_ROOM];
    *file = NULL;
    tt_code rc = new_handle(name, file, err);
    if (rc != TT_OK) {
        return rc;
    }
    /* The default driver resolves links, which a file in memory without a name does not survive. */
    hid_t list = access_list();
    /* Large tensors begin at whole pages (elements.c). */
    if (list >= 0 &&
        (H5Pset_fapl_stdio(list) < 0 || H5Pset_alignment(list, 16 * TT_PAGE, TT_PAGE) < 0)) {
        drop(list);
        list = H5I_INVALID_HID;
    }
    open_with(*file, path, H5F_ACC_TRUNC, group_list(H5P_FILE_CREATE), list, reason);
    if ((*file)->id < 0) {
        forget(file);
        return tt_fail(err, TT_EWORLD, "cannot create %s: %s", name, reason);
    }
    return TT_OK;
}

/* Can this process open the file at all? The system's reasons are better than HDF5's. Nothing but a
 * regular file is opened: opening a pipe waits for its other end, opening a device may act on it. */
static tt_code probe(const char *path, const char *name, int flags, tt_err *err)
{
    struct stat info;
    int fd = -1;
    bool there = stat(path, &info) == 0;
    if (there && !S_ISREG(info.st_mode)) {
        return tt_fail(err, TT_EUSER, "%s is not a checkpoint: it is not a regular file", name);
    }
    if (there) {
        fd = tt_open(path, flags);
    }
    if (fd < 0 && errno == ENOENT) {
        return tt_fail(err, TT_EUSER, "checkpoint %s does not exist", name);
    }
    if (fd < 0) {
        const bool ours = errno == EACCES || errno == EPERM || errno == ENOTDIR || errno == ELOOP ||
                          errno == ENAMETOOLONG; /* a mistake in the name or the rights */
        return tt_fail(err, ours ? TT_EUSER : TT_EWORLD, "cannot open checkpoint %s: %s", name,
                       strerror(errno));
    }
    char first;
    const int why = tt_pread(fd, &first, 1, 0) < 0 ? errno : 0;
    close(fd);
    return why == 0 ? TT_OK
                    : tt_fail(err, TT_EWORLD, "cannot read checkpoint %s: %s", name, strerror(why));
}

tt_code tt_h5_open(const char *path, const char *name, tt_h5 **file, tt_err *err)
{
    char reason[REASON_ROOM], why[TT_SOUND_WHY];
    *file = NULL;
    tt_code rc = TT_OK;
    TT_TRY(probe(path, name, O_RDONLY, err));
    TT_TRY(new_handle(name, file, err));
    if (H5Fis_hdf5(path) <= 0) {
        forget(file);
        return tt_fail(err, TT_EUSER, "%s is not a checkpoint: it is not an HDF5 file", name);
    }
    const tt_soundness sound = tt_sound_check(path, why);
    if (sound != TT_SOUND) {
        forget(file);
        return sound == TT_SOUND_DAMAGED
                   ? tt_fail(err, TT_EWORLD, "%s is damaged or cut short: %s", name, why)
                   : tt_fail(err, TT_EUSER, "%s is not a checkpoint that can be read: %s", name,
                             why);
    }
    open_with(*file, path, H5F_ACC_RDONLY, H5I_INVALID_HID, access_list(), reason);
    if ((*file)->id < 0) {
        forget(file);
        return tt_fail(err, TT_EWORLD, "%s is damaged or cut short: %s", name, reason);
    }
out:
    return rc;
}

tt_code tt_h5_close(tt_h5 **file, tt_err *err)
{
    if (*file == NULL) {
        return TT_OK;
    }
    tt_code rc = H5Fclose((*file)->id) < 0 ? cannot_write(*file, "the last bytes", err) : TT_OK;
    forget(file);
    return rc;
}

const char *tt_h5_name(const tt_h5 *file)
{
    return file->name;
}

/* --- making things: one process --------------------------------------------------------------- */

/* Makes the groups above `path`. */
static tt_code make_groups(tt_h5 *file, const char *path, tt_err *err)
{
    char group[PATH_ROOM];
    tt_code rc = TT_OK;
    hid_t list = group_list(H5P_GROUP_CREATE);
    if (list < 0) {
        rc = cannot_write(file, path, err);
        goto out;
    }
    for (const char *slash = strchr(path, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        size_t length = (size_t)(slash - path);
        if (length >= sizeof group) {
            rc = tt_fail(err, TT_EWORLD, "cannot write %s to %s: name too long", path, file->name);
            goto out;
        }
        memcpy(group, path, length);
        group[length] = '\0';
        htri_t there = H5Lexists(file->id, group, H5P_DEFAULT);
        hid_t made = there != 0 ? H5I_INVALID_HID
                                : H5Gcreate2(file->id, group, H5P_DEFAULT, list, H5P_DEFAULT);
        if (there < 0 || (there == 0 && made < 0)) {
            rc = cannot_write(file, path, err);
            goto out;
        }
        drop(made);
    }
out:
    drop(list);
    return rc;
}

/* A dataset of `type`, with `value` written to it when not NULL. `space` may be a scalar. *place, when
 * not NULL: where its elements will be. */
static tt_code make_dataset(tt_h5 *file, const char *path, hid_t type, hid_t space,
                            H5D_layout_t layout, const void *value, int64_t *place, tt_err *err)
{
    hid_t list = H5I_INVALID_HID, set = H5I_INVALID_HID;
    tt_code rc = TT_OK;
    TT_TRY(make_groups(file, path, err));
    list = H5Pcreate(H5P_DATASET_CREATE);
    if (list < 0 || H5Pset_layout(list, layout) < 0 ||
        H5Pset_alloc_time(list, H5D_ALLOC_TIME_EARLY) < 0 ||
        H5Pset_fill_time(list, H5D_FILL_TIME_NEVER) < 0 ||
        H5Pset_obj_track_times(list, false) < 0) {
        rc = cannot_write(file, path, err);
        goto out;
    }
    set = H5Dcreate2(file->id, path, type, space, H5P_DEFAULT, list, H5P_DEFAULT);
    if (set < 0 ||
        (value != NULL && H5Dwrite(set, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, value) < 0)) {
        rc = cannot_write(file, path, err);
        goto out;
    }
    if (place != NULL) {
        const haddr_t offset = H5Dget_offset(set);
        if (offset == HADDR_UNDEF || offset > INT64_MAX) {
            rc = cannot_write(file, path, err);
            goto out;
        }
        *place = (int64_t)offset;
    }
out:
    if (set >= 0 && H5Dclose(set) < 0 && rc == TT_OK) {
        rc = cannot_write(file, path, err);
    }
    drop(list);
    return rc;
}

tt_code tt_h5_make_tensor(tt_h5 *file, const char *path, int dims, const int64_t *dim,
                          int64_t *place, tt_err *err)
{
    hsize_t extent[2] = {(hsize_t)dim[0], dims > 1 ? (hsize_t)dim[1] : 1};
    hid_t space = H5Screate_simple(dims, extent, NULL);
    if (space < 0) {
        return cannot_write(file, path, err);
    }
    tt_code rc = make_dataset(file, path, H5T_IEEE_F32LE, space, H5D_CONTIGUOUS, NULL, place, err);
    drop(space);
    return rc;
}

static hid_t scalar_type(tt_h5_kind kind)
{
    return kind == TT_H5_I64 ? H5T_STD_I64LE : kind == TT_H5_U64 ? H5T_STD_U64LE : H5T_IEEE_F64LE;
}

/* Stored in the object header, where HDF5's checksum covers it. */
tt_code tt_h5_put(tt_h5 *file, const char *path, tt_h5_kind kind, const void *value, tt_err *err)
{
    hid_t space = H5Screate(H5S_SCALAR);
    if (space < 0) {
        return cannot_write(file, path, err);
    }
    tt_code rc = make_dataset(file, path, scalar_type(kind), space, H5D_COMPACT, value, NULL, err);
    drop(space);
    return rc;
}

/* Fixed-length UTF-8; the empty text is one zero byte, since HDF5 has no empty strings. */
static hid_t text_type(const char *text)
{
    hid_t type = H5Tcopy(H5T_C_S1);
    size_t length = strlen(text);
    if (type >= 0 &&
        (H5Tset_size(type, length > 0 ? length : 1) < 0 ||
         H5Tset_strpad(type, H5T_STR_NULLPAD) < 0 || H5Tset_cset(type, H5T_CSET_UTF8) < 0)) {
        drop(type);
        type = H5I_INVALID_HID;
    }
    return type;
}

tt_code tt_h5_put_text(tt_h5 *file, const char *path, const char *text, tt_err *err)
{
    tt_code rc = TT_OK;
    hid_t space = H5Screate(H5S_SCALAR), type = text_type(text);
    if (space < 0 || type < 0) {
        rc = cannot_write(file, path, err);
    } else {
        rc = make_dataset(file, path, type, space, H5D_CONTIGUOUS, text, NULL, err);
    }
    drop(type);
    drop(space);
    return rc;
}

tt_code tt_h5_put_format(tt_h5 *file, const char *format, tt_err *err)
{
    tt_code rc = TT_OK;
    hid_t space = H5Screate(H5S_SCALAR), type = text_type(format), attribute = H5I_INVALID_HID;
    if (space >= 0 && type >= 0) {
        attribute = H5Acreate2(file->id, "format", type, space, H5P_DEFAULT, H5P_DEFAULT);
    }
    if (attribute < 0 || H5Awrite(attribute, type, format) < 0) {
        rc = cannot_write(file, "the format attribute", err);
    }
    drop(attribute);
    drop(type);
    drop(space);
    return rc;
}

/* --- elements --------------------------------------------------------------------------------- */

/* The longest run from element `first` on, at most `count`, that is one box of the dataset: part of
 * a row, or whole rows. Any range of a matrix is at most three boxes below largest_transfer. */
static int64_t next_box(int dims, const hsize_t *extent, int64_t first, int64_t count,
                        hsize_t *start, hsize_t *size)
{
    count = tt_min(count, largest_transfer);
    if (dims == 1) {
        start[0] = (hsize_t)first;
        size[0] = (hsize_t)count;
        return count;
    }
    int64_t row = (int64_t)extent[1];
    int64_t column = first % row;
    start[0] = (hsize_t)(first / row);
    start[1] = (hsize_t)column;
    if (column == 0 && count >= row) {
        size[0] = (hsize_t)(count / row);
        size[1] = (hsize_t)row;
        return count / row * row;
    }
    size[0] = 1;
    size[1] = (hsize_t)tt_min(count, row - column);
    return (int64_t)size[1];
}

tt_code tt_h5_read(tt_h5 *file, const char *path, int64_t first, int64_t count, float *data,
                   tt_err *err)
{
    tt_code rc = TT_OK;
    hid_t set = H5I_INVALID_HID, space = H5I_INVALID_HID;
    hsize_t extent[2] = {0, 1}, start[2], size[2];
    bool failed = true;
    if (count == 0) {
        return TT_OK;
    }
    set = H5Dopen2(file->id, path, H5P_DEFAULT);
    if (set < 0 || (space = H5Dget_space(set)) < 0) {
        goto out;
    }
    int dims = H5Sget_simple_extent_ndims(space);
    if (dims < 1 || dims > 2 || H5Sget_simple_extent_dims(space, extent, NULL) < 0) {
        goto out;
    }
    for (int64_t done = 0; done < count;) {
        int64_t run = next_box(dims, extent, first + done, count - done, start, size);
        hid_t memory = H5Screate_simple(dims, size, NULL);
        failed = memory < 0 ||
                 H5Sselect_hyperslab(space, H5S_SELECT_SET, start, NULL, size, NULL) < 0 ||
                 H5Dread(set, H5T_NATIVE_FLOAT, memory, space, H5P_DEFAULT, data + done) < 0;
        if (failed) {
            rc = cannot_read(file, path, err);
        }
        drop(memory);
        if (failed) {
            break;
        }
        done += run;
    }
out:
    if (failed && rc == TT_OK) {
        rc = cannot_read(file, path, err);
    }
    drop(space);
    drop(set);
    return rc;
}

/* --- scalars and texts ------------------------------------------------------------------------ */

tt_code tt_h5_get(tt_h5 *file, const char *path, tt_h5_kind kind, void *value, tt_err *err)
{
    tt_code rc = TT_OK;
    hid_t set = H5Dopen2(file->id, path, H5P_DEFAULT);
    hid_t space = set >= 0 ? H5Dget_space(set) : H5I_INVALID_HID;
    if (space < 0 || H5Sget_simple_extent_npoints(space) != 1 ||
        H5Dread(set, scalar_type(kind), H5S_ALL, H5S_ALL, H5P_DEFAULT, value) < 0) {
        rc = cannot_read(file, path, err);
    }
    drop(space);
    drop(set);
    return rc;
}

/* Reads a fixed-length string, or one of the variable length that h5py makes. */
static tt_code read_string(tt_h5 *file, const char *path, hid_t object, hid_t type, hid_t space,
                           tt_text *text, tt_err *err)
{
    tt_code rc = TT_OK;
    bool variable = H5Tis_variable_str(type) > 0, attribute = H5Iget_type(object) == H5I_ATTR;
    size_t size = variable ? 0 : H5Tget_size(type);
    char *fixed = NULL, *made = NULL; /* made: by HDF5 */
    if (size > LARGEST_TEXT || (fixed = tt_alloc(tt_count(size) + 1, 1, err)) == NULL) {
        return tt_fail(err, TT_EWORLD, "%s: %s is too large a text", file->name, path);
    }
    void *into = variable ? (void *)&made : fixed;
    if ((attribute ? H5Aread(object, type, into)
                   : H5Dread(object, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, into)) < 0) {
        rc = cannot_read(file, path, err);
        goto out;
    }
    tt_text_add(text, "%s", variable ? (made != NULL ? made : "") : fixed);
    if (variable) {
        H5Dvlen_reclaim(type, space, H5P_DEFAULT, &made);
    }
    if (text->failed) {
        rc = tt_fail(err, TT_EWORLD, "out of memory reading %s", file->name);
    }
out:
    free(fixed);
    return rc;
}

/* A string from an open dataset or attribute. */
static tt_code get_string(tt_h5 *file, const char *path, hid_t object, tt_text *text, tt_err *err)
{
    tt_code rc = TT_OK;
    bool attribute = H5Iget_type(object) == H5I_ATTR;
    hid_t type = attribute ? H5Aget_type(object) : H5Dget_type(object);
    hid_t space = attribute ? H5Aget_space(object) : H5Dget_space(object);
    if (type < 0 || space < 0) {
        rc = cannot_read(file, path, err);
    } else if (H5Tget_class(type) != H5T_STRING || H5Sget_simple_extent_npoints(space) != 1) {
        rc = tt_fail(err, TT_EUSER, "%s: %s is not a text", file->name, path);
    } else {
        rc = read_string(file, path, object, type, space, text, err);
    }
    drop(space);
    drop(type);
    return rc;
}

tt_code tt_h5_get_text(tt_h5 *file, const char *path, tt_text *text, tt_err *err)
{
    hid_t set = H5Dopen2(file->id, path, H5P_DEFAULT);
    if (set < 0) {
        return cannot_read(file, path, err);
    }
    tt_code rc = get_string(file, path, set, text, err);
    drop(set);
    return rc;
}

tt_code tt_h5_get_format(tt_h5 *file, tt_text *format, tt_err *err)
{
    static const char what[] = "the format attribute";
    htri_t there = H5Aexists(file->id, "format");
    if (there == 0) {
        return TT_OK;
    }
    hid_t attribute = there > 0 ? H5Aopen(file->id, "format", H5P_DEFAULT) : H5I_INVALID_HID;
    if (attribute < 0) {
        return cannot_read(file, what, err);
    }
    tt_code rc = get_string(file, what, attribute, format, err);
    drop(attribute);
    return rc;
}

/* --- what a file holds ------------------------------------------------------------------------ */

bool tt_h5_exists(tt_h5 *file, const char *path)
{
    char group[PATH_ROOM];
    size_t length = strlen(path);
    if (length >= sizeof group) {
        return false;
    }
    /* H5Lexists fails when a group on the way is missing, so each is asked for in turn. */
    for (size_t i = 1; i < length; i++) {
        if (path[i] == '/') {
            memcpy(group, path, i);
            group[i] = '\0';
            if (H5Lexists(file->id, group, H5P_DEFAULT) <= 0) {
                return false;
            }
        }
    }
    return H5Lexists(file->id, path, H5P_DEFAULT) > 0;
}

static tt_h5_kind kind_of(hid_t type, int dims)
{
    switch (H5Tget_class(type)) {
    case H5T_FLOAT:
        if (dims == 0) {
            return H5Tequal(type, H5T_IEEE_F64LE) > 0 ? TT_H5_F64 : TT_H5_OTHER;
        }
        if (dims > 2) {
            return TT_H5_OTHER;
        }
        return H5Tequal(type, H5T_IEEE_F32LE) > 0 ? TT_H5_F32 : TT_H5_FLOAT;
    case H5T_INTEGER:
        if (dims != 0) {
            return TT_H5_OTHER;
        }
        if (H5Tequal(type, H5T_STD_I64LE) > 0) {
            return TT_H5_I64;
        }
        return H5Tequal(type, H5T_STD_U64LE) > 0 ? TT_H5_U64 : TT_H5_OTHER;
    case H5T_STRING:
        return dims == 0 ? TT_H5_TEXT : TT_H5_OTHER;
    default:
        return TT_H5_OTHER;
    }
}

static tt_code visit_dataset(tt_h5 *file, hid_t set, const char *path, tt_h5_visit visit,
                             void *context, tt_err *err)
{
    tt_code rc = TT_OK;
    hsize_t extent[H5S_MAX_RANK] = {0};
    hid_t type = H5Dget_type(set), space = H5Dget_space(set);
    int dims = space >= 0 ? H5Sget_simple_extent_ndims(space) : -1;
    if (type < 0 || dims < 0 || H5Sget_simple_extent_dims(space, extent, NULL) < 0) {
        rc = cannot_read(file, path, err);
        goto out;
    }
    tt_h5_kind kind = kind_of(type, dims);
    int64_t elements = 1, dim[2] = {(int64_t)extent[0], (int64_t)extent[1]};
    for (int d = 0; d < dims; d++) {
        if (extent[d] > INT64_MAX ||
            __builtin_mul_overflow(elements, (int64_t)extent[d], &elements)) {
            kind = TT_H5_OTHER;
        }
    }
    TT_TRY(visit(context, path, kind, dims, dim, err));
out:
    drop(space);
    drop(type);
    return rc;
}

/* Order in which to list a group: as made when the file tracks that, else by name. */
static H5_index_t order_of(hid_t group)
{
    unsigned flags = 0;
    hid_t list = H5Gget_create_plist(group);
    if (list >= 0) {
        H5Pget_link_creation_order(list, &flags);
        drop(list);
    }
    return (flags & H5P_CRT_ORDER_INDEXED) != 0 ? H5_INDEX_CRT_ORDER : H5_INDEX_NAME;
}

/* A walk that has come to a group. */
typedef struct walk {
    tt_h5 *file;
    const char *prefix, *skip;
    int depth;
    tt_h5_visit visit;
    void *context;
    tt_code rc;
    tt_err *err;
} walk;

static tt_code walk_group(walk *w, hid_t group);

/* One link of a group. Soft and external links are not followed. */
static tt_code walk_link(walk *w, hid_t group, const char *name, const H5L_info_t *info)
{
    char path[PATH_ROOM];
    int needed =
        snprintf(path, sizeof path, "%s%s%s", w->prefix, w->prefix[0] != '\0' ? "/" : "", name);
    if (needed >= (int)sizeof path) {
        return tt_fail(w->err, TT_EUSER, "%s is not a checkpoint: the name %s... in it is too long",
                       w->file->name, path);
    }
    if (info->type != H5L_TYPE_HARD || (w->depth == 0 && strcmp(name, w->skip) == 0)) {
        return TT_OK;
    }
    tt_code rc = TT_OK;
    hid_t object = H5Oopen(group, name, H5P_DEFAULT);
    if (object < 0) {
        rc = cannot_read(w->file, path, w->err);
    } else if (H5Iget_type(object) == H5I_DATASET) {
        rc = visit_dataset(w->file, object, path, w->visit, w->context, w->err);
    } else if (H5Iget_type(object) == H5I_GROUP && w->depth < DEEPEST) {
        walk below = *w;
        below.prefix = path;
        below.depth++;
        rc = walk_group(&below, object);
    }
    drop(object);
    return rc;
}

/* HDF5 hands out links one by one; a positive value stops it. */
static herr_t each_link(hid_t group, const char *name, const H5L_info_t *info, void *client)
{
    walk *w = client;
    w->rc = walk_link(w, group, name, info);
    return w->rc == TT_OK ? 0 : 1;
}

static tt_code walk_group(walk *w, hid_t group)
{
    hsize_t from = 0;
    w->rc = TT_OK;
    /* To ask for the i-th name would sort all names anew each time. */
    if (H5Literate(group, order_of(group), H5_ITER_INC, &from, each_link, w) < 0) {
        return cannot_read(w->file, w->prefix[0] != '\0' ? w->prefix : "the root group", w->err);
    }
    return w->rc;
}

tt_code tt_h5_walk(tt_h5 *file, const char *top, const char *skip, tt_h5_visit visit, void *context,
                   tt_err *err)
{
    tt_code rc = TT_OK;
    bool root = top[0] == '\0';
    if (!root && !tt_h5_exists(file, top)) {
        return TT_OK;
    }
    hid_t group = H5Oopen(file->id, root ? "/" : top, H5P_DEFAULT);
    if (group < 0) {
        rc = cannot_read(file, root ? "the root group" : top, err);
    } else if (H5Iget_type(group) == H5I_GROUP) {
        walk w = {file, top, skip, 0, visit, context, TT_OK, err};
        rc = walk_group(&w, group);
    }
    drop(group);
    return rc;
}
