/* file.c: durable files, folders, names.
 *
 * A commit is: the bytes reach the disk, then the name changes, then the folder reaches the disk.
 * Whoever looks sees the old file or the new one. */
#include "tutti/base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tutti/base/memory.h"

bool tt_file_exists(const char *path)
{
    return access(path, F_OK) == 0;
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
                rc = tt_fail(err, TT_EWORLD, "cannot create folder %s: %s", part, strerror(why));
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
    int fd = open(path, flags | O_CLOEXEC);
    if (fd < 0) {
        return errno;
    }
    int why = fsync(fd) == 0 ? 0 : errno;
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
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC); /* a pipe must not wait for a writer */
    struct stat info;
    if (fd < 0 || fstat(fd, &info) != 0) {
        rc = tt_fail(err, TT_EWORLD, "cannot read %s: %s", path, strerror(errno));
        goto out;
    }
    if (!S_ISREG(info.st_mode)) { /* a device may never end, and a pipe reads only once */
        rc = tt_fail(err, TT_EWORLD, "cannot read %s: it is not a regular file", path);
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
        ssize_t wrote = write(fd, bytes, length);
        if (wrote < 0 && errno != EINTR) {
            return errno;
        }
        if (wrote > 0) {
            bytes += wrote;
            length -= (size_t)wrote;
        }
    }
    return 0;
}

tt_code tt_write_file(const char *path, const char *bytes, size_t length, tt_err *err)
{
    tt_code rc = TT_OK;
    tt_text beside = {0};
    tt_text_add(&beside, "%s.part", path);
    if (beside.failed) {
        rc = tt_fail(err, TT_EWORLD, "cannot write %s: out of memory", path);
        goto out;
    }
    int fd = open(beside.data, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0) {
        rc = tt_fail(err, TT_EWORLD, "cannot write %s: %s", path, strerror(errno));
        goto out;
    }
    int why = write_all(fd, bytes, length);
    if (close(fd) != 0 && why == 0) {
        why = errno; /* a network file system may report a full disk only here */
    }
    if (why != 0) {
        rc = tt_fail(err, TT_EWORLD, "cannot write %s: %s", path, strerror(why));
    } else {
        rc = tt_commit_file(beside.data, path, err);
    }
    if (rc != TT_OK) {
        unlink(beside.data);
    }
out:
    tt_text_free(&beside);
    return rc;
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
