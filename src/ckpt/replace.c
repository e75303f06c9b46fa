/* replace.c: what a file about to be written may take the place of. */
#include <string.h>

#include "ckpt_impl.h"
#include "tutti/base/file.h"
#include "tutti/ckpt/ckpt.h"

tt_code tt_ckpt_may_replace(const char *path, const char *group, tt_err *err)
{
    tt_code rc = TT_OK;
    tt_h5 *file = NULL;
    tt_catalog catalog = {0};
    tt_err why;
    const size_t length = strlen(group);
    bool same = false;
    if (!tt_file_exists(path)) {
        goto out;
    }
    if (tt_h5_open(path, path, &file, &why) == TT_OK && tt_check_format(file, &why) == TT_OK &&
        tt_catalog_read(&catalog, file, &why) == TT_OK) {
        same = catalog.count > 0;
        for (int i = 0; i < catalog.count; i++) {
            const char *name = catalog.entry[i].path;
            same = same && (tt_is_group_digest(name) ||
                            (strncmp(name, group, length) == 0 && name[length] == '/'));
        }
    }
    if (!same) {
        rc = tt_fail(err, TT_EUSER,
                     "%s exists and holds something other than %s; remove it or name another", path,
                     group);
    }
out:
    tt_catalog_free(&catalog);
    tt_h5_close(&file, &why);
    return rc;
}
