/* log.c: lines for a person on stderr.
 *
 * A line leaves in one write, so that lines of several ranks do not cut into each other. A live line
 * is cut at the width of the terminal, because a wrapped line cannot be redrawn in place. */
#include "tutti/base/log.h"

#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { LINE = 4096 };

/* Columns of the terminal behind a descriptor; 0: it is none, and 80 where it does not say. */
static int terminal_columns(int descriptor)
{
    struct winsize size;
    if (isatty(descriptor) == 0) {
        return 0;
    }
    bool says = ioctl(descriptor, TIOCGWINSZ, &size) == 0 && size.ws_col >= 20;
    return says ? size.ws_col : 80;
}

/* A person sees what goes to stderr when it is a terminal, or (Linux) a pipe to a launcher whose own
 * stderr is one: mpirun gives a rank a pipe and copies it to its own stderr. A rank on another node
 * has a daemon for a parent, which has no terminal. */
static int seen_columns(void)
{
    char path[64];
    if (isatty(STDERR_FILENO) != 0) {
        return terminal_columns(STDERR_FILENO);
    }
    if (getenv("OMPI_COMM_WORLD_RANK") == NULL && getenv("PMI_RANK") == NULL) {
        return 0; /* not launched: a redirected stderr is meant */
    }
    snprintf(path, sizeof path, "/proc/%ld/fd/2", (long)getppid());
    int descriptor = open(path, O_WRONLY | O_NOCTTY | O_NONBLOCK | O_CLOEXEC);
    int columns = descriptor >= 0 ? terminal_columns(descriptor) : 0;
    if (descriptor >= 0) {
        close(descriptor);
    }
    return columns;
}

tt_log tt_log_open(int rank)
{
    return (tt_log){.rank = rank, .columns = rank == 0 ? seen_columns() : 0};
}

/* prefix, text, end of line; what does not fit is cut. */
static void write_line(const char *prefix, const char *fmt, va_list args)
{
    char line[LINE];
    size_t length = strlen(prefix);
    memcpy(line, prefix, length);
    int written = vsnprintf(line + length, sizeof line - length - 1, fmt, args);
    if (written < 0) {
        return;
    }
    length = strlen(line);
    line[length] = '\n';
    fwrite(line, 1, length + 1, stderr);
    fflush(stderr);
}

void tt_info(tt_log *log, const char *fmt, ...)
{
    if (log->rank != 0) {
        return;
    }
    tt_live_end(log);
    va_list args;
    va_start(args, fmt);
    write_line("", fmt, args);
    va_end(args);
}

void tt_warn(tt_log *log, const char *fmt, ...)
{
    tt_live_end(log);
    char prefix[64];
    snprintf(prefix, sizeof prefix,
             log->rank == 0 ? "warning: " : "warning from rank %d: ", log->rank);
    va_list args;
    va_start(args, fmt);
    write_line(prefix, fmt, args);
    va_end(args);
}

void tt_live(tt_log *log, const char *fmt, ...)
{
    if (log->rank != 0 || log->columns == 0) {
        return;
    }
    char line[LINE];
    va_list args;
    va_start(args, fmt);
    int written = vsnprintf(line, sizeof line, fmt, args);
    va_end(args);
    if (written < 0) {
        return;
    }
    fprintf(stderr, "\r%.*s\033[K", log->columns - 1, line);
    fflush(stderr);
    log->live = true;
}

void tt_live_end(tt_log *log)
{
    if (log->live) {
        fputc('\n', stderr);
        log->live = false;
    }
}
