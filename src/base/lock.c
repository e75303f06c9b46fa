/* lock.c: one holder of a file at a time. See lock.h.
 *
 * Of the locks that Linux has, this is POSIX's, fcntl(F_SETLK): NFS (lockd, and version 4 itself) and
 * Lustre (mounted with flock; else it refuses) keep it for all their clients, and MPI-IO stands on it
 * too. A child never inherits it, so nothing that outlives the process can keep it; a forked child
 * would share flock() and the locks of an open file description. The price is the invariant in lock.h.
 *
 * Owns nothing but the descriptor in tt_lock. */
#include "tutti/base/lock.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tutti/base/clock.h"
#include "tutti/base/file.h"

/* What a scheduler calls the job that this process is of. */
static const struct {
    const char *variable, *name;
} jobs[] = {
    {"SLURM_JOB_ID", "Slurm"}, {"PBS_JOBID", "PBS"}, {"LSB_JOBID", "LSF"}, {"FLUX_JOB_ID", "Flux"}};

static const char opening[] = "process "; /* of the line in every lock file */

static void describe_self(char *who)
{
    char host[128] = "an unknown host", stamp[TT_STAMP];
    int length;
    if (gethostname(host, sizeof host) == 0) {
        host[sizeof host - 1] = '\0';
    }
    tt_stamp(stamp);
    length = snprintf(who, TT_HOLDER, "%s%ld on %s since %s", opening, (long)getpid(), host, stamp);
    for (size_t i = 0; i < sizeof jobs / sizeof *jobs; i++) {
        const char *id = getenv(jobs[i].variable);
        if (id != NULL && id[0] != '\0') {
            snprintf(who + length, (size_t)(TT_HOLDER - length), " (%s job %.64s)", jobs[i].name,
                     id);
            break;
        }
    }
}

/* The file's first line, as far as it can be printed; false when the file is empty. */
static bool read_holder(int fd, char *who)
{
    const int64_t length = tt_pread(fd, who, TT_HOLDER - 1, 0);
    who[length > 0 ? length : 0] = '\0';
    who[strcspn(who, "\n")] = '\0';
    for (char *c = who; *c != '\0'; c++) {
        *c = isprint((unsigned char)*c) ? *c : '?';
    }
    return length > 0;
}

/* Every error of locking that is not somebody else's lock means that there are none to be had; which one
 * it is depends on the file system and its mount. */
static bool lock_whole(int fd, int *why)
{
    const struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    int status;
    do {
        status = fcntl(fd, F_SETLK, &whole);
    } while (status != 0 && errno == EINTR);
    *why = status == 0 ? 0 : errno;
    return status == 0;
}

/* On a full disk the lock holds all the same, and others see a holder without a name. */
static void write_holder(int fd, char *who)
{
    char line[TT_HOLDER + 1];
    describe_self(who);
    const int length = snprintf(line, sizeof line, "%s\n", who);
    if (tt_ftruncate(fd, 0) != 0 || tt_pwrite(fd, line, (size_t)length, 0) != length) {
        (void)!tt_ftruncate(fd, 0);
    }
}

tt_code tt_lock_try(tt_lock *lock, const char *path, tt_lock_state *state, char *who, tt_err *err)
{
    int why = 0;
    const int fd = tt_open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0) {
        return tt_fail(err, TT_EWORLD, "cannot open the lock file %s: %s", path, strerror(errno));
    }
    const bool locked = lock_whole(fd, &why);
    const bool written = read_holder(fd, who);
    if (locked && written && strncmp(who, opening, sizeof opening - 1) != 0) {
        close(fd);
        return tt_fail(err, TT_EUSER,
                       "%s would be the lock file, but is something else: move it, or choose "
                       "another folder",
                       path);
    }
    if (locked) {
        write_holder(fd, who);
        *lock = (tt_lock){.held = true, .fd = fd};
        *state = TT_LOCK_TAKEN;
        return TT_OK;
    }
    if (why == EACCES || why == EAGAIN) {
        if (who[0] == '\0') {
            strcpy(who, "a process that has not said who it is");
        }
        *state = TT_LOCK_BUSY;
    } else {
        snprintf(who, TT_HOLDER, "%s", strerror(why));
        *state = TT_LOCK_REFUSED;
    }
    close(fd);
    return TT_OK;
}

void tt_lock_release(tt_lock *lock)
{
    if (lock->held) {
        (void)!tt_ftruncate(lock->fd, 0);
        close(lock->fd);
    }
    *lock = (tt_lock){0};
}
