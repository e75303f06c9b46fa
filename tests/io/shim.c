/* shim.c: bad weather: a file system that is full, broken, slow or odd, between a program and the
 * real one.
 *
 *     cc -shared -fPIC -o shim.so shim.c
 *     env LD_PRELOAD=shim.so TUTTI_IO="match=*.part write=ENOSPC@70000" PROGRAM ...
 *
 * TUTTI_IO is a list of words with spaces between them:
 *
 *     match=GLOB      files whose path, as it is opened or as the system knows it, matches; "*" matches
 *                     slashes too. Needed: no other file is touched.
 *     ranks=R[,R...]  only in processes of these ranks (OMPI_COMM_WORLD_RANK; none: rank 0)
 *     CALL=WHAT[@N]   CALL: open, open_direct (O_DIRECT), write, read, direct (reads and writes around
 *                     the page cache), sync (fsync, fdatasync, sync_file_range), rename, unlink,
 *                     allocate (fallocate), truncate, lock (flock, fcntl), close.
 *                     WHAT: an error (ENOSPC, EIO, ...), KILL: the process dies by SIGKILL, or HANG:
 *                     the call does not return.
 *                     N of write and read: a byte. So many bytes go through, counted over all files
 *                     that match; the call that would pass it is cut short there, and the next fails.
 *                     N of other calls: the N-th and all that follow; without it all of them.
 *     short=M         a write or a read moves at most M bytes; around the page cache whole pages
 *     eintr=K         every K-th write, read, sync and allocation is interrupted, and does nothing
 *     slow=MS         each call takes MS milliseconds more
 *     late=MS         a file that is there is not to be seen until so long after it was first looked for
 *     flip=N          the lowest bit of the N-th byte written (from 0) is another one on its way
 *
 * TUTTI_IO_LOG=FILE: FILE.RANK gets a line for each fault when it strikes first ("write ENOSPC"), and
 * when the process ends "written BYTES", "read BYTES" and "calls N", of files that match.
 *
 * Calls go straight to the system; the standard library's own files (FILE) do not pass here. A
 * preloaded program built with ASan needs ASAN_OPTIONS=verify_asan_link_order=0. A library that is put
 * in front of another has no place for its state but its own: it is global here. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define PUBLIC __attribute__((visibility("default")))

enum { PAGE = 4096, PATH = 4096, KILL = -1, HANG = -2 };

typedef enum call {
    OPEN,
    OPEN_DIRECT,
    WRITE,
    READ,
    DIRECT,
    SYNC,
    RENAME,
    UNLINK,
    ALLOCATE,
    TRUNCATE,
    LOCK,
    CLOSE,
    CALLS
} call;

static const char *const names[CALLS] = {"open",     "open_direct", "write",  "read",
                                         "direct",   "sync",        "rename", "unlink",
                                         "allocate", "truncate",    "lock",   "close"};

static const struct {
    const char *name;
    int number;
} errors[] = {{"ENOSPC", ENOSPC}, {"EIO", EIO},         {"EDQUOT", EDQUOT},
              {"EINTR", EINTR},   {"EINVAL", EINVAL},   {"ENOLCK", ENOLCK},
              {"EACCES", EACCES}, {"ENOTSUP", ENOTSUP}, {"ENOSYS", ENOSYS},
              {"ESTALE", ESTALE}, {"EROFS", EROFS},     {"EOPNOTSUPP", EOPNOTSUPP},
              {"EMFILE", EMFILE}, {"KILL", KILL},       {"HANG", HANG}};

/* --- what is asked for, and what has happened ------------------------------------------------------ */

static struct {
    char match[PATH];
    int what[CALLS];                          /* 0: nothing; an error number, KILL or HANG */
    int64_t from[CALLS];                      /* the byte, or the number of the call */
    int64_t shortly, eintr, slow, late, flip; /* -1: not asked for */
    char log[PATH];
} weather;

static struct {
    pthread_mutex_t mutex;
    int64_t calls[CALLS], bytes[CALLS], all, interruptible;
    bool said[CALLS], said_flip, said_late, said_short, said_eintr;
    int asked; /* paths that were looked for */
    struct {
        char *path;
        int64_t since;
    } path[64];
} seen = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static int64_t now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

__attribute__((format(printf, 1, 2))) static void say(const char *format, ...)
{
    char line[256];
    va_list args;
    if (weather.log[0] == '\0') {
        return;
    }
    va_start(args, format);
    const int length = vsnprintf(line, sizeof line, format, args);
    va_end(args);
    const int fd = (int)syscall(SYS_openat, AT_FDCWD, weather.log,
                                O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (fd >= 0) {
        if (syscall(SYS_write, fd, line, (size_t)length) != length) {
            abort();
        }
        syscall(SYS_close, fd);
    }
}

__attribute__((noreturn)) static void wrong(const char *word)
{
    fprintf(stderr, "tests/io/shim.c: TUTTI_IO: '%s' is not understood\n", word);
    _exit(2);
}

static int64_t number(const char *text, const char *word)
{
    char *end;
    const long long value = strtoll(text, &end, 10);
    if (*text == '\0' || *end != '\0' || value < 0) {
        wrong(word);
    }
    return value;
}

static bool is_ours(const char *ranks, const char *rank)
{
    char copy[256];
    snprintf(copy, sizeof copy, "%s", ranks);
    for (char *rest = copy, *one; (one = strsep(&rest, ",")) != NULL;) {
        if (strcmp(one, rank) == 0) {
            return true;
        }
    }
    return false;
}

/* CALL=WHAT[@N] */
static void take_fault(const char *name, char *value, const char *word)
{
    char *what = strsep(&value, "@");
    for (int c = 0; c < CALLS; c++) {
        for (size_t e = 0; e < sizeof errors / sizeof *errors; e++) {
            if (strcmp(name, names[c]) == 0 && strcmp(what, errors[e].name) == 0) {
                weather.what[c] = errors[e].number;
                weather.from[c] = value != NULL ? number(value, word) : 0;
                return;
            }
        }
    }
    wrong(word);
}

__attribute__((constructor)) static void begin(void)
{
    const char *asked = getenv("TUTTI_IO"), *log = getenv("TUTTI_IO_LOG");
    const char *rank = getenv("OMPI_COMM_WORLD_RANK");
    char copy[PATH], word[PATH];
    bool ours = true;
    rank = rank != NULL ? rank : "0";
    weather.shortly = weather.eintr = weather.slow = weather.late = weather.flip = -1;
    if (asked == NULL) {
        return;
    }
    snprintf(copy, sizeof copy, "%s", asked);
    for (char *rest = copy, *key; (key = strsep(&rest, " ")) != NULL;) {
        if (key[0] == '\0') {
            continue;
        }
        snprintf(word, sizeof word, "%s", key);
        char *value = key;
        const char *name = strsep(&value, "=");
        const struct {
            const char *name;
            int64_t *to;
        } plain[] = {{"short", &weather.shortly},
                     {"eintr", &weather.eintr},
                     {"slow", &weather.slow},
                     {"late", &weather.late},
                     {"flip", &weather.flip}};
        bool taken = false;
        if (value == NULL) {
            wrong(word);
        }
        for (size_t i = 0; i < sizeof plain / sizeof *plain; i++) {
            if (strcmp(name, plain[i].name) == 0) {
                *plain[i].to = number(value, word);
                taken = true;
            }
        }
        if (strcmp(name, "match") == 0) {
            snprintf(weather.match, sizeof weather.match, "%s", value);
        } else if (strcmp(name, "ranks") == 0) {
            ours = is_ours(value, rank);
        } else if (!taken) {
            take_fault(name, value, word);
        }
    }
    if (weather.match[0] == '\0' || weather.shortly == 0 || weather.eintr == 0) {
        wrong(asked);
    }
    if (!ours) {
        weather.match[0] = '\0';
    } else if (log != NULL) {
        snprintf(weather.log, sizeof weather.log, "%s.%s", log, rank);
    }
}

__attribute__((destructor)) static void end(void)
{
    if (weather.match[0] != '\0') {
        say("written %lld\nread %lld\ncalls %lld\n", (long long)seen.bytes[WRITE],
            (long long)seen.bytes[READ], (long long)seen.all);
    }
}

/* --- decisions
 * -------------------------------------------------------------------------------------- */

static bool matches(const char *path)
{
    return weather.match[0] != '\0' && path != NULL && fnmatch(weather.match, path, 0) == 0;
}

static bool matches_fd(int fd)
{
    char link[64], path[PATH];
    if (weather.match[0] == '\0') {
        return false;
    }
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    const ssize_t length = readlink(link, path, sizeof path - 1);
    if (length <= 0 || path[0] != '/') {
        return false;
    }
    path[length] = '\0';
    return matches(path);
}

static bool is_direct(int fd)
{
    return (syscall(SYS_fcntl, fd, F_GETFL) & O_DIRECT) != 0;
}

static const char *error_name(int what)
{
    for (size_t e = 0; e < sizeof errors / sizeof *errors; e++) {
        if (errors[e].number == what) {
            return errors[e].name;
        }
    }
    return "?";
}

/* Strikes: returns -1 with errno, or not at all. */
static int strike(call c)
{
    const int what = weather.what[c];
    pthread_mutex_lock(&seen.mutex);
    const bool first = !seen.said[c];
    seen.said[c] = true;
    pthread_mutex_unlock(&seen.mutex);
    if (first) {
        say("%s %s\n", names[c], error_name(what));
    }
    if (what == KILL) {
        syscall(SYS_kill, getpid(), SIGKILL);
    }
    while (what == KILL || what == HANG) {
        pause();
    }
    errno = what;
    return -1;
}

static void say_once(bool *said, const char *what)
{
    pthread_mutex_lock(&seen.mutex);
    const bool first = !*said;
    *said = true;
    pthread_mutex_unlock(&seen.mutex);
    if (first) {
        say("%s\n", what);
    }
}

/* A call that matches begins; is it one of those that fail? */
static bool fails(call c)
{
    if (weather.slow > 0) {
        const struct timespec nap = {weather.slow / 1000, weather.slow % 1000 * 1000000};
        nanosleep(&nap, NULL);
    }
    pthread_mutex_lock(&seen.mutex);
    const int64_t n = ++seen.calls[c];
    seen.all++;
    pthread_mutex_unlock(&seen.mutex);
    return weather.what[c] != 0 && c != WRITE && c != READ && n >= weather.from[c];
}

static bool interrupted(void)
{
    if (weather.eintr < 0) {
        return false;
    }
    pthread_mutex_lock(&seen.mutex);
    const bool due = ++seen.interruptible % weather.eintr == 0;
    pthread_mutex_unlock(&seen.mutex);
    if (due) {
        say_once(&seen.said_eintr, "eintr");
        errno = EINTR;
    }
    return due;
}

/* Of `count` bytes that are to be moved, how many are: 0 when `count` is not and the fault is due. *at:
 * which bytes of all these are. */
static size_t share_of(call c, size_t count, bool direct, int64_t *at)
{
    size_t take = count;
    if (weather.shortly > 0 && take > (size_t)weather.shortly) {
        take = (size_t)weather.shortly;
        take = !direct ? take : take < PAGE ? PAGE : take / PAGE * PAGE;
        take = take < count ? take : count;
        if (take < count) {
            say_once(&seen.said_short, "short");
        }
    }
    pthread_mutex_lock(&seen.mutex);
    const int64_t done = seen.bytes[c], room = weather.from[c] - done;
    if (weather.what[c] != 0 && (int64_t)take > room) {
        take = room > 0 ? (size_t)room : 0;
        take = direct ? take / PAGE * PAGE : take;
    }
    *at = done;
    seen.bytes[c] += (int64_t)take;
    pthread_mutex_unlock(&seen.mutex);
    return take;
}

/* Is a file that is there not to be seen yet? */
static bool hidden(const char *path)
{
    if (weather.late < 0 || !matches(path)) {
        return false;
    }
    bool hides = false;
    pthread_mutex_lock(&seen.mutex);
    int i = 0;
    while (i < seen.asked && strcmp(seen.path[i].path, path) != 0) {
        i++;
    }
    if (i == seen.asked && i < (int)(sizeof seen.path / sizeof *seen.path)) {
        seen.path[i].path = strdup(path);
        seen.path[i].since = now_ms();
        seen.asked++;
    }
    hides = i < seen.asked && now_ms() - seen.path[i].since < weather.late;
    pthread_mutex_unlock(&seen.mutex);
    if (hides) {
        say_once(&seen.said_late, "late");
    }
    return hides;
}

/* --- calls that name a file ---------------------------------------------------------------------- */

static int open_at(int folder, const char *path, int flags, mode_t mode)
{
    if (matches(path)) {
        const bool direct = (flags & O_DIRECT) != 0;
        if (direct && fails(OPEN_DIRECT)) {
            return strike(OPEN_DIRECT);
        }
        if (fails(OPEN)) {
            return strike(OPEN);
        }
    }
    const int fd = (int)syscall(SYS_openat, folder, path, flags, mode);
    if (fd >= 0 && (flags & O_CREAT) == 0 && hidden(path)) {
        syscall(SYS_close, fd);
        errno = ENOENT;
        return -1;
    }
    return fd;
}

static mode_t mode_of(int flags, va_list args)
{
    return (flags & O_CREAT) != 0 || (flags & O_TMPFILE) == O_TMPFILE ? va_arg(args, mode_t) : 0;
}

#define OPENS(name, before, ...)                             \
    PUBLIC int name(before const char *path, int flags, ...) \
    {                                                        \
        va_list args;                                        \
        va_start(args, flags);                               \
        const mode_t mode = mode_of(flags, args);            \
        va_end(args);                                        \
        return open_at(__VA_ARGS__, path, flags, mode);      \
    }
#define FOLDER int folder,
#define NOTHING
OPENS(open, NOTHING, AT_FDCWD)
OPENS(open64, NOTHING, AT_FDCWD)
OPENS(openat, FOLDER, folder)
OPENS(openat64, FOLDER, folder)

PUBLIC int creat(const char *path, mode_t mode)
{
    return open_at(AT_FDCWD, path, O_WRONLY | O_CREAT | O_TRUNC, mode);
}

PUBLIC int access(const char *path, int how)
{
    const int rc = (int)syscall(SYS_faccessat, AT_FDCWD, path, how);
    if (rc == 0 && hidden(path)) {
        errno = ENOENT;
        return -1;
    }
    return rc;
}

#define STATS(name, type, flags)                                                  \
    PUBLIC int name(const char *restrict path, struct type *restrict info)        \
    {                                                                             \
        const int rc = (int)syscall(SYS_newfstatat, AT_FDCWD, path, info, flags); \
        if (rc == 0 && hidden(path)) {                                            \
            errno = ENOENT;                                                       \
            return -1;                                                            \
        }                                                                         \
        return rc;                                                                \
    }
STATS(stat, stat, 0)
STATS(stat64, stat64, 0)
STATS(lstat, stat, AT_SYMLINK_NOFOLLOW)
STATS(lstat64, stat64, AT_SYMLINK_NOFOLLOW)

static int rename_at(int from_folder, const char *from, int to_folder, const char *to)
{
    if ((matches(from) || matches(to)) && fails(RENAME)) {
        return strike(RENAME);
    }
    return (int)syscall(SYS_renameat2, from_folder, from, to_folder, to, 0);
}

PUBLIC int rename(const char *from, const char *to)
{
    return rename_at(AT_FDCWD, from, AT_FDCWD, to);
}

PUBLIC int renameat(int from_folder, const char *from, int to_folder, const char *to)
{
    return rename_at(from_folder, from, to_folder, to);
}

PUBLIC int unlinkat(int folder, const char *path, int flags)
{
    if (matches(path) && fails(UNLINK)) {
        return strike(UNLINK);
    }
    return (int)syscall(SYS_unlinkat, folder, path, flags);
}

PUBLIC int unlink(const char *path)
{
    return unlinkat(AT_FDCWD, path, 0);
}

/* --- calls that move bytes
 * -------------------------------------------------------------------------- */

enum { CURRENT = -1 }; /* where the file stands, not at a place */

/* One bit of what is written, when it is among these bytes. Returns what to write; *copy is to be
 * freed. */
static const void *spoil(const void *data, size_t count, int64_t at, void **copy)
{
    *copy = NULL;
    if (weather.flip < at || weather.flip >= at + (int64_t)count ||
        posix_memalign(copy, PAGE, count) != 0) {
        return data;
    }
    memcpy(*copy, data, count);
    ((unsigned char *)*copy)[weather.flip - at] ^= 1;
    say_once(&seen.said_flip, "flip");
    return *copy;
}

static ssize_t move(call c, int fd, void *into, const void *from, size_t count, off_t place)
{
    int64_t at = 0;
    size_t take = count;
    void *copy = NULL;
    if (matches_fd(fd)) {
        const bool direct = is_direct(fd);
        if (interrupted()) {
            return -1;
        }
        if (direct && fails(DIRECT)) {
            return strike(DIRECT);
        }
        fails(c);
        take = share_of(c, count, direct, &at);
        if (take == 0 && count > 0) {
            return strike(c);
        }
        from = c == WRITE ? spoil(from, take, at, &copy) : from;
    }
    ssize_t done;
    if (c == WRITE) {
        done = place == CURRENT ? syscall(SYS_write, fd, from, take)
                                : syscall(SYS_pwrite64, fd, from, take, place);
    } else {
        done = place == CURRENT ? syscall(SYS_read, fd, into, take)
                                : syscall(SYS_pread64, fd, into, take, place);
    }
    const int error = errno;
    free(copy);
    errno = error;
    return done;
}

PUBLIC ssize_t write(int fd, const void *data, size_t count)
{
    return move(WRITE, fd, NULL, data, count, CURRENT);
}

PUBLIC ssize_t pwrite(int fd, const void *data, size_t count, off_t at)
{
    return move(WRITE, fd, NULL, data, count, at);
}

PUBLIC ssize_t pwrite64(int fd, const void *data, size_t count, off_t at)
{
    return move(WRITE, fd, NULL, data, count, at);
}

PUBLIC ssize_t read(int fd, void *data, size_t count)
{
    return move(READ, fd, data, NULL, count, CURRENT);
}

PUBLIC ssize_t pread(int fd, void *data, size_t count, off_t at)
{
    return move(READ, fd, data, NULL, count, at);
}

PUBLIC ssize_t pread64(int fd, void *data, size_t count, off_t at)
{
    return move(READ, fd, data, NULL, count, at);
}

/* Of a file that matches the first buffer alone: a short write. */
PUBLIC ssize_t writev(int fd, const struct iovec *part, int parts)
{
    if (parts > 0 && matches_fd(fd)) {
        return move(WRITE, fd, NULL, part[0].iov_base, part[0].iov_len, CURRENT);
    }
    return syscall(SYS_writev, fd, part, parts);
}

/* --- the rest ------------------------------------------------------------------------------------- */

static int sync_by(long number, int fd)
{
    if (matches_fd(fd)) {
        if (interrupted()) {
            return -1;
        }
        if (fails(SYNC)) {
            return strike(SYNC);
        }
    }
    return (int)syscall(number, fd);
}

PUBLIC int fsync(int fd)
{
    return sync_by(SYS_fsync, fd);
}

PUBLIC int fdatasync(int fd)
{
    return sync_by(SYS_fdatasync, fd);
}

PUBLIC int sync_file_range(int fd, off_t at, off_t count, unsigned flags)
{
    return matches_fd(fd) && fails(SYNC) ? strike(SYNC)
                                         : (int)syscall(SYS_sync_file_range, fd, at, count, flags);
}

PUBLIC int fallocate(int fd, int mode, off_t at, off_t count)
{
    if (matches_fd(fd)) {
        if (interrupted()) {
            return -1;
        }
        if (fails(ALLOCATE)) {
            return strike(ALLOCATE);
        }
    }
    return (int)syscall(SYS_fallocate, fd, mode, at, count);
}

PUBLIC int fallocate64(int fd, int mode, off_t at, off_t count)
{
    return fallocate(fd, mode, at, count);
}

PUBLIC int ftruncate(int fd, off_t length)
{
    return matches_fd(fd) && fails(TRUNCATE) ? strike(TRUNCATE)
                                             : (int)syscall(SYS_ftruncate, fd, length);
}

PUBLIC int ftruncate64(int fd, off_t length)
{
    return ftruncate(fd, length);
}

PUBLIC int flock(int fd, int how)
{
    return matches_fd(fd) && fails(LOCK) ? strike(LOCK) : (int)syscall(SYS_flock, fd, how);
}

/* The third argument, whatever it is, goes on as it came. */
PUBLIC int fcntl(int fd, int how, ...)
{
    va_list args;
    va_start(args, how);
    void *what = va_arg(args, void *);
    va_end(args);
    const bool locks = how == F_SETLK || how == F_SETLKW || how == F_GETLK || how == F_OFD_SETLK ||
                       how == F_OFD_SETLKW || how == F_OFD_GETLK;
    return locks && matches_fd(fd) && fails(LOCK) ? strike(LOCK)
                                                  : (int)syscall(SYS_fcntl, fd, how, what);
}

PUBLIC int fcntl64(int fd, int how, ...)
{
    va_list args;
    va_start(args, how);
    void *what = va_arg(args, void *);
    va_end(args);
    return fcntl(fd, how, what);
}

/* What network file systems say here, they say once: it is closed all the same. */
PUBLIC int close(int fd)
{
    const bool due = weather.what[CLOSE] != 0 && matches_fd(fd) && fails(CLOSE);
    const int rc = (int)syscall(SYS_close, fd);
    return due ? strike(CLOSE) : rc;
}
