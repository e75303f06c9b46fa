/* aside.c: what an earlier run left in a folder makes room for a new one, and nothing is lost. */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "tutti/base/clock.h"
#include "tutti/base/file.h"

#include "train/train_impl.h"

static bool of_a_run(const char *name)
{
    size_t n = strlen(name);
    bool checkpoint = strncmp(name, "step-", 5) == 0 && n > 3 && strcmp(name + n - 3, ".h5") == 0;
    return checkpoint || strcmp(name, "metrics.jsonl") == 0 || strcmp(name, "data.jsonl") == 0 ||
           strcmp(name, "digests.jsonl") == 0 || strcmp(name, "numerics.jsonl") == 0 ||
           strcmp(name, "nonfinite.jsonl") == 0;
}

/* A folder below dir that was not there before: "earlier-<time>", or that with a number when two
 * starts fall into one second. *path is malloc'd. */
static tt_code new_folder(const char *dir, char **path, tt_err *err)
{
    tt_code rc = TT_OK;
    char stamp[TT_STAMP], name[TT_STAMP + 32];
    tt_stamp(stamp);
    for (int i = 1; !*path; i++) {
        snprintf(name, sizeof name, i == 1 ? "earlier-%s" : "earlier-%s-%d", stamp, i);
        *path = tt_join(dir, name, err);
        if (!*path) {
            rc = err->code;
            goto out;
        }
        if (mkdir(*path, 0777) != 0) {
            if (errno != EEXIST) {
                rc = tt_fail(err, TT_EWORLD, "cannot make the folder %s: %s", *path,
                             strerror(errno));
                goto out;
            }
            free(*path);
            *path = NULL;
        }
    }
out:
    return rc;
}

tt_code tt_run_set_aside(const char *dir, tt_log *log, tt_err *err)
{
    tt_code rc = TT_OK;
    DIR *open = opendir(dir);
    char *aside = NULL, *from = NULL, *to = NULL;
    if (!open) {
        goto out; /* nothing there yet */
    }
    for (struct dirent *entry = readdir(open); entry; entry = readdir(open)) {
        if (!of_a_run(entry->d_name)) {
            continue;
        }
        if (!aside) {
            TT_TRY(new_folder(dir, &aside, err));
            tt_info(log, "run.resume is never: files of an earlier run moved to %s", aside);
        }
        from = tt_join(dir, entry->d_name, err);
        to = tt_join(aside, entry->d_name, err);
        if (!from || !to) {
            rc = err->code;
            goto out;
        }
        if (rename(from, to) != 0) {
            rc = tt_fail(err, TT_EWORLD, "cannot move %s to %s: %s", from, to, strerror(errno));
            goto out;
        }
        free(from);
        free(to);
        from = to = NULL;
    }
out:
    if (open) {
        closedir(open);
    }
    free(aside);
    free(from);
    free(to);
    return rc;
}
