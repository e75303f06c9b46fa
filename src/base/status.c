/* status.c: how an error is filled, and kept.
 *
 * Formats into a buffer of its own first, so that a caller may wrap the old sentence:
 * tt_fail(err, err->code, "%s: %s", name, err->text). */
#include "tutti/base/status.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

tt_code tt_fail(tt_err *err, tt_code code, const char *fmt, ...)
{
    assert(err != NULL && code != TT_OK);
    char text[TT_ERR_TEXT];
    va_list args;
    va_start(args, fmt);
    int written = vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    if (written < 0) {
        strcpy(text, "an error that could not be put into words");
    }
    /* What a sentence quotes may be anybody's: it stays one line, and gives no orders to a terminal. */
    for (char *c = text; *c != '\0'; c++) {
        *c = (unsigned char)*c < ' ' || *c == 0x7f ? '?' : *c;
    }
    memcpy(err->text, text, sizeof text);
    err->code = code;
    return code;
}

tt_code tt_keep_first(tt_err *first, tt_code code, tt_err *err)
{
    if (first->code != TT_OK) {
        *err = *first;
    } else if (code != TT_OK) {
        assert(err->code == code);
        *first = *err;
    }
    return first->code;
}
