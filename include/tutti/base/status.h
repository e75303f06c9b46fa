/* status.h: one status for every call that can fail.
 *
 * A function that can fail returns a tt_code and takes a `tt_err *err` owned by the caller. On
 * failure it fills err with one sentence (what, where, what is allowed) and returns err->code. On
 * success it does not touch err. The codes are the exit codes of the program, so main returns what
 * it was handed.
 *
 * Invariant: code != TT_OK exactly when text is a complete sentence, on one line and without control
 * characters, which tt_fail replaces.
 *
 * Reads nothing, writes nothing; next: every other header. */
#ifndef TUTTI_BASE_STATUS_H
#define TUTTI_BASE_STATUS_H

typedef enum tt_code {
    TT_OK = 0,     /* done */
    TT_EWORLD = 1, /* the world failed: disk, MPI, corrupt file */
    TT_EUSER = 2,  /* the user's input is wrong */
    TT_ESTOP = 75  /* stopped by a signal or run.max_seconds, after saving: requeue me */
} tt_code;

enum { TT_ERR_TEXT = 1024 };

typedef struct tt_err {
    tt_code code;
    char text[TT_ERR_TEXT];
} tt_err;

/* Fills err (code, printf-formatted sentence) and returns code. Text beyond TT_ERR_TEXT is cut. */
tt_code tt_fail(tt_err *err, tt_code code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* For whoever goes on after an error and reports the first. *first is zeroed until there is one. An
 * error, which is code and *err, becomes the first, or where there has been one *err becomes that again,
 * whatever code is. Returns first->code. */
tt_code tt_keep_first(tt_err *first, tt_code code, tt_err *err);

/* The idiom of the house: `tt_code rc = TT_OK;` first, `out:` last, TT_TRY between. */
#define TT_TRY(call)       \
    do {                   \
        rc = (call);       \
        if (rc != TT_OK) { \
            goto out;      \
        }                  \
    } while (0)

#endif
