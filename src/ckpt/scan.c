/* scan.c: the checkpoints of a run's folder: the newest whole one, and which old ones may go.
 *
 * A checkpoint is step-<digits>.h5; its step is the number, however many zeros it carries. Names
 * like step-10-copy.h5 belong to the user and are left alone.
 *
 * Invariant: pruning counts whole files only, so damaged ones never push out the last good one.
 *
 * Owns: the list of names while it works. Reads a folder; next: report.c. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tutti/base/file.h"
#include "tutti/base/memory.h"
#include "tutti/base/narrow.h"

#include "ckpt/ckpt_impl.h"

typedef struct found {
    int64_t step;
    char *path; /* owned */
} found;

typedef struct listing {
    int count, room;
    found *item; /* [count] newest first, owned */
} listing;

static void listing_free(listing *list)
{
    for (int i = 0; i < list->count; i++) {
        free(list->item[i].path);
    }
    free(list->item);
    *list = (listing){0};
}

/* Is `name` prefix<middle>suffix, with at least one character between? */
static bool framed(const char *name, const char *prefix, const char *suffix)
{
    size_t length = strlen(name), before = strlen(prefix), after = strlen(suffix);
    return length > before + after && strncmp(name, prefix, before) == 0 &&
           strcmp(name + length - after, suffix) == 0;
}

/* The step of "step-<digits>.h5". */
static bool parse_step(const char *name, int64_t *step)
{
    char digits[32];
    size_t length = strlen(name);
    if (!framed(name, "step-", ".h5") || length - 8 >= sizeof digits) {
        return false;
    }
    memcpy(digits, name + 5, length - 8);
    digits[length - 8] = '\0';
    return strspn(digits, "0123456789") == length - 8 && tt_parse_int(digits, step);
}

static tt_code add(listing *list, const char *dir, const char *name, int64_t step, tt_err *err)
{
    if (list->count == list->room) {
        int room = list->room > 0 ? 2 * list->room : 16;
        found *item = realloc(list->item, tt_bytes(room, sizeof *item));
        if (item == NULL) {
            return tt_fail(err, TT_EWORLD, "out of memory listing %s", dir);
        }
        list->item = item;
        list->room = room;
    }
    char *path = tt_join(dir, name, err);
    if (path == NULL) {
        return err->code;
    }
    list->item[list->count++] = (found){.step = step, .path = path};
    return TT_OK;
}

/* Newest first; equal steps (step-1.h5, step-01.h5) by name, so the order is always the same. */
static int newest_first(const void *a, const void *b)
{
    const found *x = a, *y = b;
    return x->step != y->step ? (x->step < y->step ? 1 : -1) : strcmp(x->path, y->path);
}

/* Lists checkpoints and, when asked, leftovers (".step-*.part"). A missing folder is empty. */
static tt_code list_folder(const char *dir, listing *steps, listing *leftovers, tt_err *err)
{
    tt_code rc = TT_OK;
    DIR *folder = opendir(dir);
    if (folder == NULL) {
        return errno == ENOENT
                   ? TT_OK
                   : tt_fail(err, TT_EWORLD, "cannot list %s: %s", dir, strerror(errno));
    }
    for (;;) {
        int64_t step = 0;
        errno = 0;
        const struct dirent *entry = readdir(folder);
        if (entry == NULL) {
            rc = errno != 0 ? tt_fail(err, TT_EWORLD, "cannot list %s: %s", dir, strerror(errno))
                            : TT_OK;
            break;
        }
        if (parse_step(entry->d_name, &step)) {
            TT_TRY(add(steps, dir, entry->d_name, step, err));
        } else if (leftovers != NULL && framed(entry->d_name, ".step-", ".part")) {
            TT_TRY(add(leftovers, dir, entry->d_name, 0, err));
        }
    }
    if (steps->count > 0) {
        qsort(steps->item, tt_size(steps->count), sizeof *steps->item, newest_first);
    }
out:
    closedir(folder);
    return rc;
}

tt_code tt_ckpt_complete(tt_world *world, const char *path, tt_err *err)
{
    tt_h5 *file = NULL;
    tt_catalog catalog = {.world = world};
    tt_err closing;
    tt_code rc = TT_OK;
    TT_TRY(tt_h5_open(path, path, &file, err));
    TT_TRY(tt_check_format(file, err));
    TT_TRY(tt_catalog_read(&catalog, file, err));
    TT_TRY(tt_check_sealed(&catalog, path, err));
out:
    tt_catalog_free(&catalog);
    tt_h5_close(&file, &closing);
    return rc;
}

/* A file that cannot be opened says nothing about its contents: passing it over could silently
 * throw away work. One that is gone, or is no regular file, is left to tt_ckpt_complete. */
tt_code tt_ckpt_access(const char *path, tt_err *err)
{
    struct stat info;
    int fd = -1;
    int failed = stat(path, &info) != 0 ? errno : 0;
    if (failed == 0 && S_ISREG(info.st_mode)) {
        fd = tt_open(path, O_RDONLY);
        failed = fd < 0 ? errno : 0;
    }
    if (fd >= 0) {
        close(fd);
    }
    return failed == 0 || failed == ENOENT
               ? TT_OK
               : tt_fail(err, TT_EWORLD, "cannot open checkpoint %s: %s", path, strerror(failed));
}

tt_code tt_ckpt_step(const char *path, int64_t *step, tt_err *err)
{
    const char *slash = strrchr(path, '/');
    return parse_step(slash != NULL ? slash + 1 : path, step)
               ? TT_OK
               : tt_fail(err, TT_EUSER, "%s is not named step-<digits>.h5: it has no step", path);
}

tt_code tt_ckpt_latest(tt_world *world, const char *dir, const char *before, char **path,
                       tt_text *skipped, tt_err *err)
{
    listing steps = {0};
    int64_t limit = 0;
    tt_err why;
    tt_code rc = TT_OK;
    *path = NULL;
    if (before != NULL) {
        TT_TRY(tt_ckpt_step(before, &limit, err));
    }
    TT_TRY(list_folder(dir, &steps, NULL, err));
    for (int i = 0; i < steps.count && *path == NULL; i++) {
        if (before != NULL && steps.item[i].step >= limit) {
            continue;
        }
        TT_TRY(tt_ckpt_access(steps.item[i].path, err));
        if (tt_ckpt_complete(world, steps.item[i].path, &why) == TT_OK) {
            *path = steps.item[i].path;
            steps.item[i].path = NULL; /* now the caller's */
        } else if (skipped != NULL) {
            tt_text_add(skipped, "%s\n", why.text);
        }
    }
    if (skipped != NULL && skipped->failed) {
        free(*path);
        *path = NULL;
        rc = tt_fail(err, TT_EWORLD, "out of memory listing %s", dir);
    }
out:
    listing_free(&steps);
    return rc;
}

static tt_code delete_file(const char *path, tt_err *err)
{
    return unlink(path) == 0 || errno == ENOENT
               ? TT_OK
               : tt_fail(err, TT_EWORLD, "cannot delete %s: %s", path, strerror(errno));
}

tt_code tt_ckpt_beyond(const char *dir, int64_t step, int64_t **steps, int *count, tt_err *err)
{
    listing all = {0};
    tt_code rc = TT_OK;
    *steps = NULL;
    *count = 0;
    TT_TRY(list_folder(dir, &all, NULL, err));
    while (*count < all.count && all.item[*count].step > step) { /* newest first */
        ++*count;
    }
    if (*count > 0) {
        *steps = tt_alloc(*count, sizeof **steps, err);
        rc = *steps != NULL ? TT_OK : err->code;
    }
    for (int i = 0; i < *count && rc == TT_OK; i++) {
        struct stat info;
        const char *path = all.item[i].path;
        (*steps)[i] = all.item[i].step;
        if (stat(path, &info) == 0 && S_ISDIR(info.st_mode)) {
            rc = tt_fail(err, TT_EUSER,
                         "%s is a folder where a checkpoint belongs: move it, or choose another "
                         "run.dir",
                         path);
        }
    }
out:
    if (rc != TT_OK) {
        free(*steps);
        *steps = NULL;
        *count = 0;
    }
    listing_free(&all);
    return rc;
}

static bool counts(tt_world *world, const tt_prune *how, int64_t step, const char *path)
{
    tt_err why;
    bool good = step <= how->newest;
    for (int i = 0; i < how->doubts; i++) {
        good = good && step != how->doubtful[i];
    }
    return good && tt_ckpt_complete(world, path, &why) == TT_OK;
}

/* Rank 0's work. */
static tt_code prune(tt_world *world, const char *dir, const tt_prune *how, tt_err *err)
{
    listing steps = {0}, leftovers = {0};
    int64_t whole = 0;
    tt_code rc = TT_OK;
    TT_TRY(list_folder(dir, &steps, &leftovers, err));
    for (int i = 0; i < leftovers.count; i++) {
        TT_TRY(delete_file(leftovers.item[i].path, err));
    }
    for (int i = 0; i < steps.count && how->keep > 0; i++) {
        const int64_t step = steps.item[i].step;
        if (whole < how->keep) {
            whole += counts(world, how, step, steps.item[i].path);
        } else if (how->every == 0 || step % how->every != 0) {
            TT_TRY(delete_file(steps.item[i].path, err));
        }
    }
out:
    listing_free(&steps);
    listing_free(&leftovers);
    return rc;
}

tt_code tt_ckpt_prune(tt_world *world, const char *dir, const tt_prune *how, tt_err *err)
{
    bool mine = world == NULL || world->rank == 0;
    return tt_agree(world, mine ? prune(world, dir, how, err) : TT_OK, err);
}
