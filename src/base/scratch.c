/* scratch.c: a file without a name. See scratch.h.
 *
 * A file system refuses O_DIRECT when it is asked for or, some of them, at the first transfer; so the
 * first unit is written while the file opens, and either refusal means the page cache. The flag is set
 * after the file has been made: where it is refused in the same call, the file would stay behind. */
#include "tutti/base/scratch.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "tutti/base/file.h"
#include "tutti/base/memory.h"
#include "tutti/base/narrow.h"
#include "tutti/base/text.h"

enum { BLANK = 1 << 20 }; /* bytes of zeros that are written at a time */

/* One transfer, from or to `buffer`; returns 0 or an errno. */
static int transfer(int fd, bool write, unsigned char *buffer, int64_t bytes, int64_t at)
{
    for (int64_t done = 0; done < bytes;) {
        const size_t rest = tt_size(bytes - done);
        const int64_t moved = write ? tt_pwrite(fd, buffer + done, rest, at + done)
                                    : tt_pread(fd, buffer + done, rest, at + done);
        const int64_t whole = moved / TT_SCRATCH_UNIT * TT_SCRATCH_UNIT; /* the rest goes again */
        if (moved < 0 || whole == 0) {
            return moved < 0 ? errno : EIO;
        }
        done += whole;
    }
    return 0;
}

/* Pages of the cache that a transfer has left; best effort. */
static void drop(int fd, bool write, int64_t bytes, int64_t at)
{
    if (write) { /* pages that are not on disk yet would stay */
        (void)tt_sync_range(fd, at, bytes,
                            SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE |
                                SYNC_FILE_RANGE_WAIT_AFTER);
    }
    (void)posix_fadvise(fd, at, bytes, POSIX_FADV_DONTNEED);
}

/* Sets aside the space; a file system that cannot is made to by zeros. */
static int reserve(const tt_scratch *s, unsigned char *zeros, int64_t bytes)
{
    int why = tt_fallocate(s->fd, 0, bytes);
    if (why != EOPNOTSUPP && why != ENOSYS) {
        return why;
    }
    why = 0;
    for (int64_t at = 0; at < bytes && why == 0; at += BLANK) {
        const int64_t some = tt_min(BLANK, bytes - at);
        why = transfer(s->fd, true, zeros, some, at);
        if (!s->direct) {
            drop(s->fd, true, some, at);
        }
    }
    return why;
}

/* Turns O_DIRECT on if it is to be had. */
static int go_direct(tt_scratch *s, unsigned char *zeros)
{
    s->direct = fcntl(s->fd, F_SETFL, O_DIRECT) == 0;
    if (!s->direct) {
        return errno == EINVAL ? 0 : errno;
    }
    const int why = transfer(s->fd, true, zeros, TT_SCRATCH_UNIT, 0);
    if (why != EINVAL) {
        return why;
    }
    s->direct = false;
    return fcntl(s->fd, F_SETFL, 0) == 0 ? 0 : errno;
}

/* A file beyond the limit on file sizes would end the process by a signal. */
static int within_limit(int64_t bytes)
{
    struct rlimit limit;
    const bool beyond = getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
                        limit.rlim_cur < (rlim_t)bytes;
    return beyond ? EFBIG : 0;
}

/* Another job's file of the same path has a name for a moment only, so it is waited for; what stays is
 * somebody else's. */
static int open_new(const char *path)
{
    enum { TRIES = 20 };
    const struct timespec moment = {.tv_nsec = 20000000};
    int fd = -1;
    for (int i = 0; i < TRIES; i++) {
        fd = tt_open_mode(path, O_RDWR | O_CREAT | O_EXCL, 0600);
        if (fd >= 0 || errno != EEXIST) {
            break;
        }
        nanosleep(&moment, NULL);
        errno = EEXIST;
    }
    return fd;
}

tt_code tt_scratch_open(tt_scratch *s, const char *path, int64_t bytes, bool direct, tt_err *err)
{
    tt_code rc = TT_OK;
    char size[32];
    void *zeros = NULL;
    *s = (tt_scratch){.fd = -1};
    s->path = tt_strdup(path, err);
    if (s->path == NULL) {
        return err->code;
    }
    if (posix_memalign(&zeros, TT_SCRATCH_UNIT, BLANK) != 0) {
        rc = tt_fail(err, TT_EWORLD, "out of memory for %s", path);
        goto out;
    }
    memset(zeros, 0, BLANK);
    int why = within_limit(bytes);
    if (why == 0) {
        s->fd = open_new(path);
        why = s->fd < 0 || unlink(path) != 0 ? errno : 0;
    }
    if (why == 0 && direct) {
        why = go_direct(s, zeros);
    }
    if (why == 0 && bytes > 0) {
        why = reserve(s, zeros, bytes);
    }
    if (why != 0) {
        tt_human_bytes((double)bytes, size);
        rc =
            tt_fail(err, TT_EWORLD, "cannot make the file %s of %s: %s", path, size, strerror(why));
    }
out:
    free(zeros);
    if (rc != TT_OK) {
        tt_scratch_close(s);
    }
    return rc;
}

void tt_scratch_close(tt_scratch *s)
{
    if (s->path != NULL && s->fd >= 0) {
        close(s->fd); /* with it goes the file: there is nothing to lose */
    }
    free(s->path);
    *s = (tt_scratch){.fd = -1};
}

static tt_code move(const tt_scratch *s, bool write, void *buffer, int64_t bytes, int64_t at,
                    tt_err *err)
{
    const int why = transfer(s->fd, write, buffer, bytes, at);
    if (why != 0) {
        char size[32], place[32];
        tt_human_bytes((double)bytes, size);
        tt_human_bytes((double)at, place);
        return tt_fail(err, TT_EWORLD, "cannot %s %s at %s of %s: %s", write ? "write" : "read",
                       size, place, s->path, strerror(why));
    }
    if (!s->direct) {
        drop(s->fd, write, bytes, at);
    }
    return TT_OK;
}

tt_code tt_scratch_read(const tt_scratch *s, void *to, int64_t bytes, int64_t at, tt_err *err)
{
    return move(s, false, to, bytes, at, err);
}

tt_code tt_scratch_write(const tt_scratch *s, const void *from, int64_t bytes, int64_t at,
                         tt_err *err)
{
    return move(s, true, (void *)(uintptr_t)from, bytes, at, err); /* which it only reads */
}
