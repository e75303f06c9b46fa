/* part.c: the file that is not a checkpoint yet.
 *
 * HDF5 (1.10) cannot be told to give up a file whose metadata it cannot write: closing fails and the
 * process dies at exit. So HDF5 makes the metadata in memory, in a file without a name, where
 * nothing can fail; then the system's own calls reserve the space of the whole checkpoint on the
 * disk and copy the metadata there. A full disk, a quota or a limit is met here, with its reason,
 * before any element is written.
 *
 * The file in memory is as long as the checkpoint, but the space of its tensors is a hole: it costs
 * only what the metadata needs.
 *
 * Owns: nothing after a call but the descriptor that tt_part_scratch returns. Next: save.c. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tutti/base/file.h"
#include "tutti/base/narrow.h"

#include "ckpt/ckpt_impl.h"

static tt_code cannot_write(const char *name, int why, tt_err *err)
{
    return tt_fail(err, TT_EWORLD, "cannot write %s: %s", name, strerror(why));
}

char *tt_part_path(const char *path, tt_err *err)
{
    tt_text part = {0};
    const char *slash = strrchr(path, '/');
    const char *name = slash != NULL ? slash + 1 : path;
    tt_text_add_bytes(&part, path, (size_t)(name - path));
    tt_text_add(&part, ".%s.part", name);
    if (part.failed) {
        tt_text_free(&part);
        tt_fail(err, TT_EWORLD, "out of memory saving %s", path);
    }
    return part.data;
}

tt_code tt_part_scratch(int64_t bytes, const char *name, int *fd, char path[TT_SCRATCH_ROOM],
                        tt_err *err)
{
    struct rlimit limit;
    *fd = -1;
    /* The limit on file sizes binds files in memory too. */
    if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
        limit.rlim_cur < (rlim_t)bytes) {
        return cannot_write(name, EFBIG, err);
    }
    *fd = memfd_create("tutti-checkpoint", MFD_CLOEXEC);
    if (*fd < 0) {
        return cannot_write(name, errno, err);
    }
    snprintf(path, TT_SCRATCH_ROOM, "/proc/self/fd/%d", *fd);
    return TT_OK;
}

/* Sets aside the space of the whole file; on file systems that cannot, a full disk shows later. */
static int reserve(int fd, off_t length)
{
    int failed = tt_ftruncate(fd, length) != 0 ? errno : 0;
    if (failed != 0 || length == 0) {
        return failed;
    }
    failed = tt_fallocate(fd, 0, length);
    return failed == EOPNOTSUPP || failed == ENOSYS ? 0 : failed;
}

/* Copies [at, end). */
static int copy_range(int from, int to, off_t at, off_t end)
{
    char buffer[65536];
    while (at < end) {
        size_t want = (size_t)tt_min(end - at, (int64_t)sizeof buffer);
        int64_t got = tt_pread(from, buffer, want, at);
        if (got <= 0) {
            return got < 0 ? errno : EIO;
        }
        const int failed = tt_pwrite_all(to, buffer, got, at);
        if (failed != 0) {
            return failed;
        }
        at += got;
    }
    return 0;
}

/* Copies what is not a hole. */
static int copy_data(int from, int to)
{
    off_t at = 0;
    for (;;) {
        off_t data = lseek(from, at, SEEK_DATA);
        if (data < 0) {
            return errno == ENXIO ? 0 : errno; /* ENXIO: only a hole is left */
        }
        at = lseek(from, data, SEEK_HOLE);
        int failed = at < 0 ? errno : copy_range(from, to, data, at);
        if (failed != 0) {
            return failed;
        }
    }
}

tt_code tt_part_copy(int scratch, const char *part, const char *name, tt_err *err)
{
    struct stat stat;
    int fd = -1;
    /* What is in its place goes away first: it may be a pipe, and opening that would wait. */
    if (unlink(part) == 0 || errno == ENOENT) {
        fd = tt_open(part, O_WRONLY | O_CREAT | O_EXCL);
    }
    if (fd < 0) {
        return tt_fail(err, TT_EWORLD, "cannot create %s: %s", name, strerror(errno));
    }
    int failed = fstat(scratch, &stat) != 0 ? errno : reserve(fd, stat.st_size);
    if (failed == 0) {
        failed = copy_data(scratch, fd);
    }
    /* Forgotten here, so that nothing of these pages is left to be written again: they hold zeros where
     * elements will be, and the client of a network file system may write a whole page that it still has
     * when a part of it changes, over what other nodes have put there meanwhile. */
    tt_code rc = failed == 0 ? TT_OK : cannot_write(name, failed, err);
    if (rc == TT_OK && tt_fsync(fd) != 0) {
        rc = tt_fail(err, TT_EWORLD, "cannot bring %s to the disk: %s", name, strerror(errno));
    }
    posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    if (close(fd) != 0 && errno != EINTR && rc == TT_OK) {
        rc = cannot_write(name, errno, err);
    }
    return rc;
}
