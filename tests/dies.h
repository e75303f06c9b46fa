/* dies.h: what nobody may touch under AddressSanitizer. */
#ifndef TT_DIES_H
#define TT_DIES_H

#include <stdbool.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

/* Writes a byte there, in a child: does it die of that? */
static inline bool tt_dies_writing(unsigned char *there)
{
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        fclose(stderr);
        *(volatile unsigned char *)there = 1;
        _exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    return !WIFEXITED(status) || WEXITSTATUS(status) != 0;
}

#endif
