/* fuzz.h: what the fuzz targets share: bytes as a file with a name. */
#ifndef TT_FUZZ_H
#define TT_FUZZ_H

#include <fcntl.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tutti/base/status.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t room);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t room, unsigned int seed);

/* The path of a file in memory that holds these bytes: the same one each time, this process' own. HDF5
 * follows links, which a memfd's name does not survive. */
static inline const char *fuzz_file(const uint8_t *data, size_t size)
{
    static char path[64];
    snprintf(path, sizeof path, "/dev/shm/tutti-fuzz-%ld", (long)getpid());
    const int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0 || write(fd, data, size) != (ssize_t)size || close(fd) != 0) {
        perror(path);
        abort();
    }
    return path;
}

static inline void fuzz_forget(const char *path)
{
    unlink(path);
}

/* A call that takes `&err`: what the library promises of an error is a code and a sentence. */
#define FUZZ_CALL(call) (err = (tt_err){TT_OK, ""}, fuzz_check((call), &err))

static inline bool fuzz_check(tt_code rc, const tt_err *err)
{
    if (rc != err->code || (rc != TT_OK && (err->text[0] == '\0' || strchr(err->text, '\n')))) {
        fprintf(stderr, "an error without its sentence: %d, %d '%s'\n", rc, err->code, err->text);
        abort();
    }
    return rc == TT_OK;
}

#endif
