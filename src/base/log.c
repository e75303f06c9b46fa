/* log.c: lines for a person on stderr.
 *
 * A line leaves in one write, so that lines of several ranks do not cut into each other. A live line
 * is cut at the width of the terminal, because a wrapped line cannot be redrawn in place. */
#include "tutti/base/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { LINE = 4096 };

tt_log tt_log_open(int rank)
{
    return (tt_log){.rank = rank, .terminal = rank == 0 && isatty(STDERR_FILENO) != 0};
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

static size_t terminal_width(void)
{
    struct winsize size;
    if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col < 20) {
        return 79;
    }
    return size.ws_col - 1u;
}

void tt_live(tt_log *log, const char *fmt, ...)
{
    if (log->rank != 0 || !log->terminal) {
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
    fprintf(stderr, "\r%.*s\033[K", (int)terminal_width(), line);
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
