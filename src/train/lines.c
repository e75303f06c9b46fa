/* lines.c: files of lines, one JSON object each, cut back to where a run goes on from.
 *
 * A long run's may be larger than memory: they are read in pieces, and what is dropped is nearly always
 * the end, which needs no second copy.
 *
 * Reads and shortens the files of run.dir; next: metrics.c. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tutti/base/file.h"
#include "tutti/base/narrow.h"
#include "tutti/base/text.h"

#include "train/train_impl.h"

enum { PIECE = 1 << 20, LONGEST = 1 << 30 }; /* bytes; a line longer than this is not a run's */

/* A pass over the file. */
typedef struct pass {
    const char *path; /* borrowed */
    int in, out;      /* borrowed; out -1: nothing is written */
    int64_t last;     /* step of the last line that is kept */
    char *room;       /* [size + 1] owned */
    int64_t size;
    int64_t bytes, kept; /* of the file; of its lines that are kept */
    bool at_once;        /* those are the file's beginning */
    bool valid;          /* the evaluation after step `last` is among them */
} pass;

/* Step number of a line, or 0: such lines (a run's first) are kept. */
static int64_t step_of(const char *line)
{
    static const char key[] = "{\"step\": ";
    return strncmp(line, key, sizeof key - 1) == 0 ? strtoll(line + sizeof key - 1, NULL, 10) : 0;
}

/* Is it the evaluation after step `last`? */
static bool is_valid(const char *line, int64_t length, int64_t last)
{
    static const char key[] = "\"valid_loss\": ";
    return step_of(line) == last && memmem(line, tt_size(length), key, sizeof key - 1) != NULL;
}

/* Lines that are kept and stand side by side. */
static tt_code keep(pass *p, const char *from, int64_t length, tt_err *err)
{
    const int why = p->out >= 0 ? tt_pwrite_all(p->out, from, length, p->kept) : 0;
    p->kept += length;
    return why == 0 ? TT_OK
                    : tt_fail(err, TT_EWORLD, "cannot write %s: %s", p->path, strerror(why));
}

/* The whole lines of room[0, held): *done out, their bytes. A line without its end is dropped by not
 * being done, and so is one that holds a NUL byte, as a power cut leaves them where the disk had not yet
 * got what was written. */
static tt_code sort_out(pass *p, int64_t held, int64_t *done, tt_err *err)
{
    tt_code rc = TT_OK;
    const char *at = p->room, *from = at, *const stop = at + held;
    for (const char *end; (end = memchr(at, '\n', tt_size(stop - at))) != NULL; at = end + 1) {
        const int64_t length = end + 1 - at;
        if (!memchr(at, '\0', tt_size(length)) && step_of(at) <= p->last) {
            p->at_once = p->at_once && p->kept + (at - from) == p->bytes + (at - p->room);
            p->valid = p->valid || is_valid(at, length, p->last);
        } else {
            TT_TRY(keep(p, from, at - from, err));
            from = end + 1;
        }
    }
    TT_TRY(keep(p, from, at - from, err));
    *done = at - p->room;
out:
    return rc;
}

static tt_code go_through(pass *p, tt_err *err)
{
    tt_code rc = TT_OK;
    int64_t held = 0, done = 0;
    p->bytes = p->kept = 0;
    p->at_once = true;
    for (;;) {
        if (held == p->size) { /* a line that long */
            char *room = p->size < LONGEST ? realloc(p->room, tt_size(2 * p->size + 1)) : NULL;
            if (room == NULL) {
                rc = tt_fail(err, TT_EWORLD,
                             "cannot read %s: a line of it is longer than %lld bytes", p->path,
                             (long long)held);
                goto out;
            }
            p->room = room;
            p->size *= 2;
        }
        const int64_t got =
            tt_pread(p->in, p->room + held, tt_size(p->size - held), p->bytes + held);
        if (got < 0) {
            rc = tt_fail(err, TT_EWORLD, "cannot read %s: %s", p->path, strerror(errno));
            goto out;
        }
        if (got == 0) {
            p->bytes += held;
            goto out;
        }
        held += got;
        p->room[held] = '\0'; /* where a number at the end of a line ends */
        TT_TRY(sort_out(p, held, &done, err));
        p->bytes += done;
        held -= done;
        memmove(p->room, p->room + done, tt_size(held));
    }
out:
    return rc;
}

static tt_code write_kept(void *user, int fd, tt_err *err)
{
    pass *p = user;
    p->out = fd;
    return go_through(p, err);
}

tt_code tt_lines_cut(const char *path, int64_t last, bool *valid, tt_err *err)
{
    tt_code rc = TT_OK;
    pass p = {.path = path, .in = -1, .out = -1, .last = last, .size = PIECE};
    if (!tt_file_exists(path)) {
        goto out;
    }
    const char *why = tt_open_regular(path, O_RDWR, &p.in);
    if (why != NULL) {
        rc = tt_fail(err, TT_EWORLD, "cannot open %s: %s", path, why);
        goto out;
    }
    p.room = malloc(tt_size(p.size + 1));
    if (p.room == NULL) {
        rc = tt_fail(err, TT_EWORLD, "out of memory for %s", path);
        goto out;
    }
    TT_TRY(go_through(&p, err));
    if (valid != NULL) {
        *valid = p.valid;
    }
    if (p.kept == p.bytes) {
        goto out;
    }
    if (!p.at_once) {
        rc = tt_replace_file(path, write_kept, &p, err);
    } else if (tt_ftruncate(p.in, p.kept) != 0 || tt_fsync(p.in) != 0) {
        rc = tt_fail(err, TT_EWORLD, "cannot shorten %s: %s", path, strerror(errno));
    }
out:
    if (p.in >= 0) {
        close(p.in);
    }
    free(p.room);
    return rc;
}
