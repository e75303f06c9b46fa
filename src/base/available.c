/* available.c: how much memory the system can still give, from its own files.
 *
 * A file that is missing, or that says something else, is a limit that is not known; one that is known
 * stands however little the others say. A control group is held by the limits of all groups above it,
 * so the path is followed up to the root; where a container hides the upper part of the path, what is
 * left of it is found on the way.
 *
 * Reads /proc/meminfo, /proc/self/cgroup, /proc/self/status and the memory controllers below
 * /sys/fs/cgroup. Next: train/memory.c compares the plan with it. */
#include <ctype.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "tutti/base/memory.h"

static const size_t unknown = SIZE_MAX;

enum { PATH = 4096 }; /* longer ones are not found */

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* What is left of a limit. */
static size_t left(size_t limit, size_t used)
{
    return limit == unknown ? unknown : limit > used ? limit - used : 0;
}

/* The number at the start of a text in units of `unit`; "max", and what is no number: unknown. */
static size_t number(const char *text, size_t unit)
{
    while (isspace((unsigned char)*text)) {
        text++;
    }
    if (!isdigit((unsigned char)*text)) {
        return unknown;
    }
    const unsigned long long value = strtoull(text, NULL, 10);
    return value > unknown / unit ? unknown : (size_t)value * unit;
}

/* Opens folder/name; NULL: it is not there, or has too long a path. */
static FILE *open_in(const char *folder, const char *name)
{
    char path[PATH];
    const int length = snprintf(path, sizeof path, "%s/%s", folder, name);
    return length > 0 && (size_t)length < sizeof path ? fopen(path, "re") : NULL;
}

/* Of the file folder/name: the number that stands first (key ""), or behind the key in the line that
 * starts with it. */
static size_t read_number(const char *folder, const char *name, const char *key, size_t unit)
{
    size_t value = unknown;
    char line[256];
    FILE *file = open_in(folder, name);
    if (file == NULL) {
        return unknown;
    }
    while (value == unknown && fgets(line, sizeof line, file) != NULL) {
        if (strncmp(line, key, strlen(key)) == 0) {
            value = number(line + strlen(key), unit);
        }
    }
    fclose(file);
    return value;
}

/* The files of one kind of control group. */
typedef struct controller {
    const char *mount, *limit, *used;
    const char *files; /* in memory.stat, the key of what holds files alone and can be given back */
} controller;

static const controller v1 = {"/sys/fs/cgroup/memory", "memory.limit_in_bytes",
                              "memory.usage_in_bytes", "total_inactive_file "};
static const controller v2 = {"/sys/fs/cgroup", "memory.max", "memory.current", "inactive_file "};

/* What the limits of a group and of those above it leave. */
static size_t group_left(const char *root, const controller *c, const char *group)
{
    char at[PATH];
    size_t room = unknown;
    const int base = snprintf(at, sizeof at, "%s%s", root, c->mount);
    const int whole = snprintf(at, sizeof at, "%s%s%s", root, c->mount, group);
    if (whole < 0 || (size_t)whole >= sizeof at) {
        return unknown;
    }
    for (;;) {
        const size_t used = read_number(at, c->used, "", 1);
        const size_t files = read_number(at, "memory.stat", c->files, 1);
        if (used != unknown) {
            const size_t held = files != unknown ? left(used, files) : used;
            room = least(room, left(read_number(at, c->limit, "", 1), held));
        }
        char *slash = strrchr(at + base, '/');
        if (slash == NULL) {
            return room;
        }
        *slash = '\0';
    }
}

/* Is `word` in a list with commas? */
static int listed(const char *list, const char *word)
{
    const size_t length = strlen(word);
    for (; *list != '\0'; list += *list == ',') {
        const size_t item = strcspn(list, ",");
        if (item == length && strncmp(list, word, length) == 0) {
            return 1;
        }
        list += item;
    }
    return 0;
}

/* Lines "number:controllers:path"; without controllers it is v2's. */
static size_t groups_left(const char *root)
{
    char line[PATH];
    size_t room = unknown;
    FILE *file = open_in(root, "proc/self/cgroup");
    if (file == NULL) {
        return unknown;
    }
    while (fgets(line, sizeof line, file) != NULL) {
        line[strcspn(line, "\n")] = '\0';
        char *names = strchr(line, ':');
        char *group = names != NULL ? strchr(names + 1, ':') : NULL;
        if (group == NULL || group[1] != '/') {
            continue;
        }
        *group++ = '\0';
        names++;
        if (names[0] == '\0') {
            room = least(room, group_left(root, &v2, group));
        } else if (listed(names, "memory")) {
            room = least(room, group_left(root, &v1, group));
        }
    }
    fclose(file);
    return room;
}

size_t tt_memory_available(const char *root)
{
    return least(read_number(root, "proc/meminfo", "MemAvailable:", 1024), groups_left(root));
}

static size_t limit_left(int which, const char *key)
{
    struct rlimit limit;
    if (getrlimit(which, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) {
        return unknown;
    }
    const size_t used = read_number("", "proc/self/status", key, 1024);
    return left((size_t)limit.rlim_cur, used != unknown ? used : 0);
}

size_t tt_memory_allowed(void)
{
    return least(limit_left(RLIMIT_AS, "VmSize:"), limit_left(RLIMIT_DATA, "VmData:"));
}
