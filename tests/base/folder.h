/* folder.h: a folder of its own for each test: start and finish are a fixture. The file that includes
 * this defines FOLDER first, a path that ends in XXXXXX. */
#ifndef FOLDER_H
#define FOLDER_H

#include <unistd.h>

#include "tt_test.h"

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

#endif
