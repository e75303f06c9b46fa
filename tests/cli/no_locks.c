/* no_locks.c: a file system that refuses locks, as some mounts of network file systems do. Preloaded. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

/* Commands differ in their third argument; an int comes through as a pointer. */
#define REFUSE(name)                                     \
    int name(int fd, int command, ...)                   \
    {                                                    \
        va_list rest;                                    \
        int (*real)(int, int, ...) = NULL;               \
        va_start(rest, command);                         \
        void *argument = va_arg(rest, void *);           \
        va_end(rest);                                    \
        if (command == F_SETLK || command == F_SETLKW) { \
            errno = atoi(getenv("NO_LOCKS"));            \
            return -1;                                   \
        }                                                \
        *(void **)&real = dlsym(RTLD_NEXT, #name);       \
        return real(fd, command, argument);              \
    }

REFUSE(fcntl)
REFUSE(fcntl64)
