/* h5_hostile.h: for tests: every file of a corpus, and mutations of it, one after another at one
 * path. What `make fuzz` does for minutes, without clang and without luck. Included once in a
 * program. */
#ifndef TT_H5_HOSTILE_H
#define TT_H5_HOSTILE_H

#include <dirent.h>
#include <unistd.h>

#include "fuzz/h5_mend.c"
#include "tt_test.h"

/* Calls `read` with a path, for each file of tests/fuzz/corpus/<name> as it is (seed 0) and mutated
 * `mutations` times. Returns the number of files. */
static int hostile(const char *name, unsigned mutations,
                   void (*read)(const char *path, unsigned seed))
{
    enum { ROOM = 1 << 16 };
    static unsigned char file[ROOM], bad[ROOM];
    char folder[128], from[512], path[64];
    int files = 0;
    snprintf(folder, sizeof folder, "tests/fuzz/corpus/%s", name);
    snprintf(path, sizeof path, "/dev/shm/tutti-hostile-%ld", (long)getpid());
    DIR *open = opendir(folder);
    ck_assert_ptr_nonnull(open);
    for (struct dirent *entry = readdir(open); entry != NULL; entry = readdir(open)) {
        snprintf(from, sizeof from, "%s/%s", folder, entry->d_name);
        FILE *f = entry->d_name[0] != '.' ? fopen(from, "rb") : NULL;
        if (f == NULL) {
            continue;
        }
        const size_t size = fread(file, 1, ROOM, f);
        fclose(f);
        files++;
        for (unsigned seed = 0; seed <= mutations; seed++) {
            memcpy(bad, file, size);
            const size_t now = seed > 0 ? tt_h5_mutate(bad, size, ROOM, seed) : size;
            f = fopen(path, "wb");
            ck_assert(f != NULL && fwrite(bad, 1, now, f) == now && fclose(f) == 0);
            read(path, seed);
        }
    }
    closedir(open);
    unlink(path);
    return files;
}

#endif
