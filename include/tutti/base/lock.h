/* lock.h: one holder of a file at a time, on all machines that see it.
 *
 * The lock is the operating system's (fcntl), and vanishes with the process that holds it, however that
 * ends. The file only says who that is, and may stay behind: its existence means nothing.
 *
 * Invariant: while a lock is held, this process opens its file nowhere else. To close any descriptor of
 * the file would give the lock up. */
#ifndef TUTTI_BASE_LOCK_H
#define TUTTI_BASE_LOCK_H

#include <stdbool.h>

#include "tutti/base/status.h"

enum { TT_HOLDER = 320 };

/* Zero-initialise; owns the open file while it is held. */
typedef struct tt_lock {
    bool held;
    int fd;
} tt_lock;

typedef enum tt_lock_state {
    TT_LOCK_TAKEN,  /* it is ours, and the file says so */
    TT_LOCK_BUSY,   /* another process has it: `who` is what the file says of it */
    TT_LOCK_REFUSED /* the file system knows no locks: `who` is its reason */
} tt_lock_state;

/* Tries once, without waiting; the file is made when it is not there, and changes only when the lock is
 * taken. who[TT_HOLDER]: "process P on HOST since TIME (Slurm job J)". TT_EWORLD when the file cannot be
 * opened, TT_EUSER when it is there and is no lock file: it is left as it is. */
tt_code tt_lock_try(tt_lock *lock, const char *path, tt_lock_state *state, char *who, tt_err *err);

/* Gives it up, and empties the file, which stays: to delete it would let two others hold one each. Safe
 * on a lock that is not held. */
void tt_lock_release(tt_lock *lock);

#endif
