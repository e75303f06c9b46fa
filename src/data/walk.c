/* walk.c: from the inputs of a build to the list of its files.
 *
 * Invariant: the list depends on names and contents of the inputs alone, not on the order in which
 * the file system returns them; each file is in it once, whatever number of names lead to it, so a
 * held-out document cannot also be a training document under another name. Every folder is entered
 * once, so the walk ends on any web of symbolic links.
 *
 * Reads folders (fts), writes tt_walk, which owns the paths; next: tokens_build.c. */
#include <errno.h>
#include <fts.h>
#include <search.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "data/data_impl.h"
#include "tutti/base/memory.h"
#include "tutti/base/narrow.h"
#include "tutti/base/text.h"

/* What makes two names the same file. */
typedef struct identity {
    dev_t device;
    ino_t node;
} identity;

typedef struct walker {
    tt_walk *walk;
    void *seen;      /* tsearch tree of identity, owned */
    identity own[2]; /* the output and its .part, as far as they exist */
    int owns;
} walker;

static identity identity_of(const struct stat *s)
{
    return (identity){.device = s->st_dev, .node = s->st_ino};
}

static int compare_identity(const void *a, const void *b)
{
    const identity *x = a, *y = b;
    if (x->device != y->device) {
        return x->device < y->device ? -1 : 1;
    }
    return (x->node > y->node) - (x->node < y->node);
}

static int compare_name(const FTSENT **a, const FTSENT **b)
{
    return strcmp((*a)->fts_name, (*b)->fts_name);
}

/* Sets *first when this file or folder was not met before. */
static tt_code meet(walker *w, const struct stat *s, bool *first, tt_err *err)
{
    identity *key = tt_alloc(1, sizeof *key, err);
    if (key == NULL) {
        return err->code;
    }
    *key = identity_of(s);
    void *node = tsearch(key, &w->seen, compare_identity);
    if (node == NULL) {
        free(key);
        return tt_fail(err, TT_EWORLD, "out of memory while listing the inputs");
    }
    *first = *(identity **)node == key;
    if (!*first) {
        free(key);
    }
    return TT_OK;
}

static bool is_own(const walker *w, const struct stat *s)
{
    identity id = identity_of(s);
    for (int i = 0; i < w->owns; i++) {
        if (compare_identity(&id, &w->own[i]) == 0) {
            return true;
        }
    }
    return false;
}

static tt_code add_file(tt_walk *walk, const char *path, tt_err *err)
{
    if (walk->files == walk->room) {
        int64_t room = walk->room ? 2 * walk->room : 64;
        tt_walk_file *file = realloc(walk->file, tt_bytes(room, sizeof *file));
        if (file == NULL) {
            return tt_fail(err, TT_EWORLD, "out of memory while listing the inputs");
        }
        walk->file = file;
        walk->room = room;
    }
    char *copy = tt_strdup(path, err);
    if (copy == NULL) {
        return err->code;
    }
    walk->file[walk->files++] = (tt_walk_file){.path = copy};
    return TT_OK;
}

/* A missing or forbidden input is the user's to mend; anything else is the disk's. */
static tt_code input_error(const char *path, int error, tt_err *err)
{
    bool user = error == ENOENT || error == ENOTDIR || error == EACCES || error == EPERM ||
                error == ELOOP || error == ENAMETOOLONG;
    return tt_fail(err, user ? TT_EUSER : TT_EWORLD, "input %s cannot be read: %s", path,
                   strerror(error));
}

static tt_code visit_folder(walker *w, FTS *fts, FTSENT *entry, tt_err *err)
{
    bool first = true;
    tt_code rc = meet(w, entry->fts_statp, &first, err);
    if (rc == TT_OK && !first) {
        fts_set(fts, entry, FTS_SKIP);
        w->walk->skipped++;
    }
    return rc;
}

static tt_code visit_file(walker *w, FTSENT *entry, tt_err *err)
{
    if (is_own(w, entry->fts_statp)) {
        return entry->fts_level > 0
                   ? TT_OK
                   : tt_fail(err, TT_EUSER, "%s is the output file and cannot also be an input",
                             entry->fts_path);
    }
    bool first = true;
    tt_code rc = meet(w, entry->fts_statp, &first, err);
    if (rc != TT_OK) {
        return rc;
    }
    if (!first) {
        w->walk->skipped++;
        return TT_OK;
    }
    return add_file(w->walk, entry->fts_path, err);
}

static tt_code visit(walker *w, FTS *fts, FTSENT *entry, tt_err *err)
{
    bool given = entry->fts_level == 0; /* named by the user, not found in a folder */
    if (entry->fts_info == FTS_DP) {    /* leaving a folder */
        return TT_OK;
    }
    if (!given && entry->fts_name[0] == '.') {
        fts_set(fts, entry, FTS_SKIP);
        w->walk->skipped++;
        return TT_OK;
    }
    switch (entry->fts_info) {
    case FTS_D:
        return visit_folder(w, fts, entry, err);
    case FTS_F:
        return visit_file(w, entry, err);
    case FTS_DC: /* a folder inside itself, through a link */
        w->walk->skipped++;
        return TT_OK;
    case FTS_SLNONE: /* a link to nothing */
        if (given) {
            return input_error(entry->fts_path, ENOENT, err);
        }
        w->walk->skipped++;
        return TT_OK;
    case FTS_DNR:
    case FTS_NS:
    case FTS_ERR:
        return input_error(entry->fts_path, entry->fts_errno, err);
    default: /* a device, socket or pipe */
        if (given) {
            return tt_fail(err, TT_EUSER, "input %s is neither a file nor a folder",
                           entry->fts_path);
        }
        w->walk->skipped++;
        return TT_OK;
    }
}

static tt_code walk_one(walker *w, char *input, tt_err *err)
{
    if (input[0] == '\0') {
        return tt_fail(err, TT_EUSER, "an input has an empty name; give files or folders");
    }
    tt_code rc = TT_OK;
    char *root[] = {input, NULL};
    FTS *fts = fts_open(root, FTS_LOGICAL | FTS_NOCHDIR, compare_name);
    if (fts == NULL) {
        return input_error(input, errno, err);
    }
    for (;;) {
        errno = 0;
        FTSENT *entry = fts_read(fts);
        if (entry == NULL) {
            if (errno != 0) {
                rc = input_error(input, errno, err);
            }
            break;
        }
        TT_TRY(visit(w, fts, entry, err));
    }
out:
    fts_close(fts);
    return rc;
}

tt_code tt_walk_inputs(tt_walk *walk, int inputs, char *const *input, const char *out, tt_err *err)
{
    tt_code rc = TT_OK;
    walker w = {.walk = walk};
    tt_text part = {0};
    struct stat s;
    tt_text_add(&part, "%s.part", out);
    if (part.failed) {
        rc = tt_fail(err, TT_EWORLD, "out of memory while listing the inputs");
        goto out;
    }
    if (stat(out, &s) == 0) {
        w.own[w.owns++] = identity_of(&s);
    }
    if (stat(part.data, &s) == 0) {
        w.own[w.owns++] = identity_of(&s);
    }
    for (int i = 0; i < inputs; i++) {
        TT_TRY(walk_one(&w, input[i], err));
    }
out:
    tdestroy(w.seen, free);
    tt_text_free(&part);
    if (rc != TT_OK) {
        tt_walk_free(walk);
    }
    return rc;
}

void tt_walk_free(tt_walk *walk)
{
    for (int64_t i = 0; i < walk->files; i++) {
        free(walk->file[i].path);
    }
    free(walk->file);
    *walk = (tt_walk){0};
}
