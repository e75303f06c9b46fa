/* file.c: durable files, folders, names.
 *
 * A commit is: the bytes reach the disk, then the name changes, then the folder reaches the disk.
 * Whoever looks sees the old file or the new one. */
#include "tutti/base/file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "tutti/base/memory.h"
#include "tutti/base/narrow.h"

bool tt_file_exists(const char *path)
{
    return access(path, F_OK) == 0;
}

bool tt_is_at(int fd, const char *path)
{
    struct stat open, there;
    return fstat(fd, &open) == 0 && stat(path, &there) == 0 && open.st_dev == there.st_dev &&
           open.st_ino == there.st_ino;
}

/* Sets `to` to the call's value, again while a signal interrupts it. */
#define AGAIN(to, call) \
    do {                \
        (to) = (call);  \
    } while ((to) < 0 && errno == EINTR)

int tt_open_mode(const char *path, int flags, unsigned mode)
{
    int fd;
    AGAIN(fd, open(path, flags | O_CLOEXEC, mode));
    return fd;
}

int tt_open(const char *path, int flags)
{
    return tt_open_mode(path, flags, 0666);
}

int tt_fsync(int fd)
{
    int rc;
    AGAIN(rc, fsync(fd));
    return rc;
}

int tt_ftruncate(int fd, int64_t length)
{
    int rc;
    AGAIN(rc, ftruncate(fd, length));
    return rc;
}

int64_t tt_read(int fd, void *data, size_t bytes)
{
    ssize_t moved;
    AGAIN(moved, read(fd, data, bytes));
    return moved;
}

int64_t tt_write(int fd, const void *data, size_t bytes)
{
    ssize_t moved;
    AGAIN(moved, write(fd, data, bytes));
    return moved;
}

int64_t tt_pread(int fd, void *data, size_t bytes, int64_t at)
{
    ssize_t moved;
    AGAIN(moved, pread(fd, data, bytes, at));
    return moved;
}

int64_t tt_pwrite(int fd, const void *data, size_t bytes, int64_t at)
{
    ssize_t moved;
    AGAIN(moved, pwrite(fd, data, bytes, at));
    return moved;
}

int tt_pwrite_all(int fd, const void *data, int64_t bytes, int64_t at)
{
    for (int64_t done = 0; done < bytes;) {
        const int64_t put =
            tt_pwrite(fd, (const char *)data + done, tt_size(bytes - done), at + done);
        if (put <= 0) {
            return put < 0 ? errno : EIO;
        }
        done += put;
    }
    return 0;
}

int tt_fallocate(int fd, int64_t from, int64_t bytes)
{
    int rc;
    AGAIN(rc, fallocate(fd, 0, from, bytes));
    return rc == 0 ? 0 : errno;
}

int tt_posix_fallocate(int fd, int64_t from, int64_t bytes)
{
    int why;
    do {
        why = posix_fallocate(fd, from, bytes);
    } while (why == EINTR);
    return why;
}

int tt_sync_range(int fd, int64_t from, int64_t bytes, unsigned how)
{
    int rc;
    AGAIN(rc, sync_file_range(fd, from, bytes, how));
    return rc == 0 ? 0 : errno;
}

/* Looking through the folder makes a network file system ask its server what is in it. */
static void look_into_folder_of(const char *path)
{
    char *folder = strdup(path);
    char *slash = folder != NULL ? strrchr(folder, '/') : NULL;
    if (slash != NULL) {
        slash[slash == folder ? 1 : 0] = '\0';
    }
    DIR *open = folder != NULL ? opendir(slash != NULL ? folder : ".") : NULL;
    while (open != NULL && readdir(open) != NULL) {
    }
    if (open != NULL) {
        closedir(open);
    }
    free(folder);
}

int tt_open_late(const char *path, int flags, void (*meanwhile)(void *user), void *user)
{
    enum { LOOKS = 300 };
    const struct timespec nap = {0, 100000000}; /* a tenth of a second */
    int fd = tt_open(path, flags);
    for (int i = 0; i < LOOKS && fd < 0 && (errno == ENOENT || errno == ESTALE); i++) {
        if (meanwhile != NULL) {
            meanwhile(user);
        }
        nanosleep(&nap, NULL);
        look_into_folder_of(path);
        fd = tt_open(path, flags);
    }
    return fd;
}

const char *tt_open_regular(const char *path, int flags, int *fd)
{
    struct stat info;
    const char *why = NULL;
    *fd = tt_open(path, flags | O_NONBLOCK);
    if (*fd < 0) {
        return errno == ENXIO ? "it is not a regular file" : strerror(errno);
    }
    if (fstat(*fd, &info) != 0) {
        why = strerror(errno);
    } else if (!S_ISREG(info.st_mode)) {
        why = "it is not a regular file";
    }
    if (why != NULL) {
        close(*fd);
        *fd = -1;
    }
    return why;
}

tt_code tt_fopen(FILE **file, const char *path, const char *mode, tt_err *err)
{
    int fd;
    const char *why =
        tt_open_regular(path, mode[0] == 'a' ? O_WRONLY | O_CREAT | O_APPEND : O_RDONLY, &fd);
    *file = why == NULL ? fdopen(fd, mode) : NULL;
    if (*file == NULL) {
        tt_fail(err, TT_EWORLD, "cannot open %s: %s", path, why != NULL ? why : strerror(errno));
        if (fd >= 0) {
            close(fd);
        }
        return err->code;
    }
    return TT_OK;
}

tt_code tt_make_folders(const char *path, tt_err *err)
{
    tt_code rc = TT_OK;
    char *part = tt_strdup(path, err);
    if (part == NULL) {
        return err->code;
    }
    for (char *end = part; *end != '\0';) {
        end += strspn(end, "/");
        end += strcspn(end, "/");
        char kept = *end;
        *end = '\0';
        struct stat info;
        if (mkdir(part, 0777) != 0) {
            int why = errno;
            if (stat(part, &info) != 0) {
                rc = tt_fail(err, TT_EWORLD, "cannot create folder %s: %s", part,
                             why == EEXIST ? "it is a link to what is not there" : strerror(why));
                break;
            }
            if (!S_ISDIR(info.st_mode)) {
                rc = tt_fail(err, TT_EWORLD, "cannot create folder %s: %s is not a folder", path,
                             part);
                break;
            }
        }
        *end = kept;
    }
    free(part);
    return rc;
}

/* fsync by name; a file system that cannot sync folders says EINVAL, and then there is no more to
 * be had. */
static int sync_path(const char *path, int flags)
{
    int fd = tt_open(path, flags);
    if (fd < 0) {
        return errno;
    }
    int why = tt_fsync(fd) == 0 ? 0 : errno;
    close(fd);
    return why;
}

static int sync_folder_of(const char *path)
{
    char *folder = strdup(path);
    if (folder == NULL) {
        return ENOMEM;
    }
    char *slash = strrchr(folder, '/');
    const char *name = folder;
    if (slash == NULL) {
        name = ".";
    } else if (slash == folder) {
        name = "/";
    } else {
        *slash = '\0';
    }
    int why = sync_path(name, O_RDONLY | O_DIRECTORY);
    free(folder);
    return why == EINVAL || why == ENOTSUP ? 0 : why;
}

tt_code tt_commit_file(const char *path, const char *to, tt_err *err)
{
    int why = sync_path(path, O_RDONLY);
    if (why != 0) {
        return tt_fail(err, TT_EWORLD, "cannot bring %s to the disk: %s", path, strerror(why));
    }
    if (rename(path, to) != 0) {
        return tt_fail(err, TT_EWORLD, "cannot rename %s to %s: %s", path, to, strerror(errno));
    }
    why = sync_folder_of(to);
    if (why != 0) {
        return tt_fail(err, TT_EWORLD, "cannot bring the folder of %s to the disk: %s", to,
                       strerror(why));
    }
    return TT_OK;
}

tt_code tt_read_file(const char *path, size_t limit, tt_text *text, tt_err *err)
{
    tt_code rc = TT_OK;
    *text = (tt_text){0};
    FILE *file = NULL;
    int fd;
    const char *why = tt_open_regular(path, O_RDONLY, &fd);
    if (why != NULL) {
        rc = tt_fail(err, TT_EWORLD, "cannot read %s: %s", path, why);
        goto out;
    }
    file = fdopen(fd, "rb");
    if (file == NULL) {
        rc = tt_fail(err, TT_EWORLD, "cannot read %s: %s", path, strerror(errno));
        goto out;
    }
    fd = -1; /* now the stream's */
    char piece[16384];
    size_t got;
    tt_text_add_bytes(text, "", 0); /* an empty file is an empty string */
    while ((got = fread(piece, 1, sizeof piece, file)) > 0) {
        if (got > limit - text->length) {
            rc =
                tt_fail(err, TT_EWORLD, "cannot read %s: it is larger than %zu bytes", path, limit);
            goto out;
        }
        tt_text_add_bytes(text, piece, got);
    }
    if (ferror(file)) {
        rc = tt_fail(err, TT_EWORLD, "cannot read %s: %s", path, strerror(errno));
    } else if (text->failed) {
        rc = tt_fail(err, TT_EWORLD, "cannot read %s: out of memory", path);
    }
out:
    if (file != NULL) {
        fclose(file);
    }
    if (fd >= 0) {
        close(fd);
    }
    if (rc != TT_OK) {
        tt_text_free(text);
    }
    return rc;
}

static int write_all(int fd, const char *bytes, size_t length)
{
    while (length > 0) {
        const int64_t wrote = tt_write(fd, bytes, length);
        if (wrote <= 0) {
            return wrote < 0 ? errno : EIO;
        }
        bytes += wrote;
        length -= (size_t)wrote;
    }
    return 0;
}

tt_code tt_replace_file(const char *path, tt_code (*fill)(void *user, int fd, tt_err *err),
                        void *user, tt_err *err)
{
    tt_code rc = TT_OK;
    tt_text beside = {0};
    tt_text_add(&beside, "%s.part", path);
    if (beside.failed) {
        rc = tt_fail(err, TT_EWORLD, "cannot write %s: out of memory", path);
        goto out;
    }
    int fd = tt_open(beside.data, O_WRONLY | O_CREAT | O_TRUNC);
    if (fd < 0) {
        rc = tt_fail(err, TT_EWORLD, "cannot write %s: %s", path, strerror(errno));
        goto out;
    }
    rc = fill(user, fd, err);
    /* A network file system may report a full disk only here. */
    if (close(fd) != 0 && rc == TT_OK) {
        rc = tt_fail(err, TT_EWORLD, "cannot write %s: %s", path, strerror(errno));
    }
    if (rc == TT_OK) {
        rc = tt_commit_file(beside.data, path, err);
    }
    if (rc != TT_OK) {
        unlink(beside.data);
    }
out:
    tt_text_free(&beside);
    return rc;
}

/* A whole text, for a file of that path. */
typedef struct text_of {
    const char *path, *bytes;
    size_t length;
} text_of;

static tt_code fill_text(void *user, int fd, tt_err *err)
{
    const text_of *t = user;
    const int why = write_all(fd, t->bytes, t->length);
    return why == 0 ? TT_OK
                    : tt_fail(err, TT_EWORLD, "cannot write %s: %s", t->path, strerror(why));
}

tt_code tt_write_file(const char *path, const char *bytes, size_t length, tt_err *err)
{
    text_of text = {path, bytes, length};
    return tt_replace_file(path, fill_text, &text, err);
}

tt_code tt_append(int fd, const char *bytes, size_t length, const char *name, tt_err *err)
{
    struct stat info;
    if (fstat(fd, &info) != 0) {
        return tt_fail(err, TT_EWORLD, "cannot write to %s: %s", name, strerror(errno));
    }
    const int why = write_all(fd, bytes, length);
    if (why == 0) {
        return TT_OK;
    }
    const bool back = tt_ftruncate(fd, info.st_size) == 0;
    return tt_fail(err, TT_EWORLD, "cannot write to %s: %s%s", name, strerror(why),
                   back ? "" : "; a part of what was to be added may stand at its end");
}

char *tt_join(const char *dir, const char *name, tt_err *err)
{
    size_t length = strlen(dir);
    const char *between = length == 0 || dir[length - 1] == '/' ? "" : "/";
    tt_text path = {0};
    tt_text_add(&path, "%s%s%s", dir, between, name);
    if (path.failed) {
        tt_text_free(&path);
        tt_fail(err, TT_EWORLD, "out of memory for the path of %s", name);
    }
    return path.data;
}

size_t tt_rss(void)
{
    FILE *file = fopen("/proc/self/statm", "re");
    if (file == NULL) {
        return 0;
    }
    size_t whole = 0, resident = 0;
    if (fscanf(file, "%zu %zu", &whole, &resident) != 2) {
        resident = 0;
    }
    fclose(file);
    return resident * (size_t)sysconf(_SC_PAGESIZE);
}

size_t tt_pss(void)
{
    FILE *file = fopen("/proc/self/smaps_rollup", "re");
    char line[256];
    size_t kib = 0;
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        if (sscanf(line, "Pss: %zu kB", &kib) == 1) {
            break;
        }
    }
    if (file != NULL) {
        fclose(file);
    }
    return kib * 1024;
}

size_t tt_rss_peak(void)
{
    struct rusage usage;
    if (getrusage(RUSAGE_SELF, &usage) != 0 || usage.ru_maxrss < 0) {
        return 0;
    }
    return (size_t)usage.ru_maxrss * 1024;
}
