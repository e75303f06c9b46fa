/* lock.c: one job at a time in run.dir: two would move, replace and delete each other's files. */
#include "tutti/base/lock.h"

#include <stdlib.h>
#include <time.h>

#include "tutti/base/clock.h"
#include "tutti/base/file.h"

#include "train/train_impl.h"

/* Rank 0's work. */
static tt_code take(tt_trainer *t, const char *dir, tt_err *err)
{
    const struct timespec pause = {.tv_nsec = 100000000};
    const double deadline = tt_seconds() + TT_LOCK_PATIENCE;
    tt_code rc = TT_OK;
    tt_lock_state state;
    char who[TT_HOLDER], *path = NULL;
    TT_TRY(tt_make_folders(dir, err));
    path = tt_join(dir, "lock", err);
    if (path == NULL) {
        rc = err->code;
        goto out;
    }
    for (;;) {
        TT_TRY(tt_lock_try(&t->lock, path, &state, who, err));
        if (state != TT_LOCK_BUSY || tt_seconds() > deadline) {
            break;
        }
        tt_beat(t->world, "waiting for the lock of run.dir");
        nanosleep(&pause, NULL);
    }
    if (state == TT_LOCK_BUSY) {
        rc = tt_fail(err, TT_EUSER,
                     "run.dir %s is in use by another job, %s: let it end first, or choose another "
                     "run.dir",
                     dir, who);
    } else if (state == TT_LOCK_REFUSED) {
        tt_warn(
            t->log,
            "the file system of run.dir %s refuses locks (%s): see to it that no other job uses "
            "this folder at the same time",
            dir, who);
    }
out:
    free(path);
    return rc;
}

tt_code tt_run_lock(tt_trainer *t, const char *dir, tt_err *err)
{
    return tt_agree(t->world, t->world->rank == 0 ? take(t, dir, err) : TT_OK, err);
}

tt_code tt_run_lock_again(tt_trainer *t, tt_err *err)
{
    tt_code rc = TT_OK;
    char *path = NULL;
    const char *dir = t->print.config.run.dir;
    if (t->world->rank != 0) {
        goto out;
    }
    if (!t->lock.held) { /* there are none to be had here */
        rc = tt_make_folders(dir, err);
        goto out;
    }
    path = tt_join(dir, "lock", err);
    if (path == NULL) {
        rc = err->code;
        goto out;
    }
    if (tt_is_at(t->lock.fd, path)) {
        goto out;
    }
    tt_warn(t->log,
            "run.dir %s or its lock file was moved or removed while this job ran: it is made anew",
            dir);
    tt_lock_release(&t->lock);
    rc = take(t, dir, err);
out:
    free(path);
    return rc;
}
