/* share.c: one rank's text for all. See share.h. */
#include "tutti/dist/share.h"

#include <stdlib.h>
#include <string.h>

#include "dist/dist_impl.h"
#include "tutti/base/memory.h"
#include "tutti/base/narrow.h"

tt_code tt_share_text(tt_world *world, tt_text *text, tt_err *err)
{
    tt_code rc = TT_OK;
    char *copy = NULL;
    int64_t length = !tt_alone(world) && world->rank == 0 ? tt_count(text->length) : 0;
    if (tt_alone(world)) {
        goto out;
    }
    TT_TRY(tt_bcast(world, &length, sizeof length, 0, err));
    if (length == 0) {
        goto out;
    }
    copy = tt_alloc(length, 1, err);
    TT_TRY(tt_agree(world, copy ? TT_OK : err->code, err));
    if (world->rank == 0) {
        memcpy(copy, text->data, tt_size(length));
    }
    TT_TRY(tt_bcast(world, copy, tt_size(length), 0, err));
    if (world->rank != 0) {
        tt_text_add_bytes(text, copy, tt_size(length));
    }
    if (text->failed) {
        rc = tt_fail(err, TT_EWORLD, "out of memory for a text of %lld bytes", (long long)length);
    }
    rc = tt_agree(world, rc, err);
out:
    free(copy);
    return rc;
}
