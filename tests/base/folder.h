/* folder.h: a folder of its own for each test: start and finish are a fixture. The file that includes
 * this defines FOLDER first, a path that ends in XXXXXX. */
#ifndef FOLDER_H
#define FOLDER_H

#include <unistd.h>

#include "tt_test.h"
#include "tutti/base/file.h"

static char folder[] = FOLDER;

static void start(void)
{
    strcpy(folder + strlen(folder) - 6, "XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(folder));
}

static void finish(void)
{
    char command[100];
    snprintf(command, sizeof command, "rm -rf %s", folder);
    ck_assert_int_eq(system(command), 0);
}

/* Writes the file `name` below the folder, and the folders above it. */
static inline void put(const char *name, const char *text)
{
    tt_err err;
    char path[512];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    *strrchr(path, '/') = '\0';
    ck_assert_int_eq(tt_make_folders(path, &err), TT_OK);
    snprintf(path, sizeof path, "%s/%s", folder, name);
    ck_assert_int_eq(tt_write_file(path, text, strlen(text), &err), TT_OK);
}

#endif
