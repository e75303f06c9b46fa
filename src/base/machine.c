/* machine.c: masks of processors, and the system's own files about them. See machine.h.
 *
 * Reads /sys/devices/system/cpu and node, /proc/self/cpuset, and the control group that this names. */
#include "tutti/base/machine.h"

#include <ctype.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    PATH = 4096,   /* longer ones are not found */
    LIST = 16384,  /* bytes of a list of processors */
    DOMAINS = 1024 /* those beyond are not seen */
};

bool tt_mask_has(const tt_mask *mask, int processor)
{
    return (mask->word[processor / 64] >> processor % 64 & 1) != 0;
}

void tt_mask_add(tt_mask *mask, int processor)
{
    mask->word[processor / 64] |= (uint64_t)1 << processor % 64;
}

int tt_mask_count(const tt_mask *mask)
{
    int count = 0;
    for (int i = 0; i < TT_PROCESSORS; i++) {
        count += tt_mask_has(mask, i);
    }
    return count;
}

void tt_mask_meet(tt_mask *mask, const tt_mask *with)
{
    for (int i = 0; i < TT_PROCESSORS / 64; i++) {
        mask->word[i] &= with->word[i];
    }
}

/* The lowest of a mask; -1: it is empty. */
static int lowest(const tt_mask *mask)
{
    for (int i = 0; i < TT_PROCESSORS; i++) {
        if (tt_mask_has(mask, i)) {
            return i;
        }
    }
    return -1;
}

/* A whole number at *text, which moves behind it; -1: there is none. */
static long number(const char **text)
{
    if (!isdigit((unsigned char)**text)) {
        return -1;
    }
    char *end = NULL;
    const long value = strtol(*text, &end, 10);
    *text = end;
    return value;
}

bool tt_mask_parse(tt_mask *mask, const char *list)
{
    memset(mask, 0, sizeof *mask);
    for (const char *at = list; *at != '\0' && *at != '\n'; at += *at == ',') {
        const long first = number(&at);
        long last = first;
        if (*at == '-') {
            at++;
            last = number(&at);
        }
        if (first < 0 || last < first || (*at != ',' && *at != '\n' && *at != '\0')) {
            memset(mask, 0, sizeof *mask);
            return false;
        }
        for (long i = first; i <= last && i < TT_PROCESSORS; i++) {
            tt_mask_add(mask, (int)i);
        }
    }
    return true;
}

bool tt_mask_of(tt_mask *mask, int process)
{
    bool known = false;
    cpu_set_t *set = CPU_ALLOC(TT_PROCESSORS);
    const size_t bytes = CPU_ALLOC_SIZE(TT_PROCESSORS);
    memset(mask, 0, sizeof *mask);
    if (set != NULL) {
        CPU_ZERO_S(bytes, set);
        known = sched_getaffinity(process, bytes, set) == 0;
        for (int i = 0; known && i < TT_PROCESSORS; i++) {
            if (CPU_ISSET_S((size_t)i, bytes, set)) {
                tt_mask_add(mask, i);
            }
        }
        CPU_FREE(set);
    }
    return known;
}

/* The first line of root/path, its end included; false: it is not there. */
static bool read_line(const char *root, const char *path, char line[LIST])
{
    char whole[PATH];
    const int length = snprintf(whole, sizeof whole, "%s/%s", root, path);
    FILE *file = length > 0 && (size_t)length < sizeof whole ? fopen(whole, "re") : NULL;
    const bool there = file != NULL && fgets(line, LIST, file) != NULL;
    if (file != NULL) {
        fclose(file);
    }
    return there;
}

static bool read_mask(tt_mask *mask, const char *root, const char *path)
{
    char line[LIST];
    return read_line(root, path, line) && tt_mask_parse(mask, line) && lowest(mask) >= 0;
}

/* The processors of a control group, or of the nearest above it that says so: in a container the path
 * may be that of the host, of which only the end is seen. */
static bool group_mask(tt_mask *mask, const char *root, const char *mount, const char *file)
{
    char group[LIST], path[LIST + 128];
    if (!read_line(root, "proc/self/cpuset", group)) {
        return false;
    }
    group[strcspn(group, "\n")] = '\0';
    for (;;) {
        char *slash = strrchr(group, '/');
        if (slash != NULL && slash[1] == '\0') {
            *slash = '\0'; /* the root of all groups */
        }
        snprintf(path, sizeof path, "%s%s/%s", mount, group, file);
        if (read_mask(mask, root, path)) {
            return true;
        }
        slash = strrchr(group, '/');
        if (slash == NULL) {
            return false;
        }
        *slash = '\0';
    }
}

void tt_mask_allowed(tt_mask *mask, const char *root, const tt_mask *parent)
{
    tt_mask group;
    if (!read_mask(mask, root, "sys/devices/system/cpu/online")) {
        memset(mask, 0xff, sizeof *mask);
    }
    if (group_mask(&group, root, "sys/fs/cgroup/cpuset", "cpuset.effective_cpus") ||
        group_mask(&group, root, "sys/fs/cgroup", "cpuset.cpus.effective")) {
        tt_mask_meet(mask, &group);
    }
    if (parent != NULL) {
        tt_mask_meet(mask, parent);
    }
}

/* A core is named by the lowest of its processors. */
static int core_of(int processor, const char *root)
{
    char path[PATH];
    tt_mask siblings;
    snprintf(path, sizeof path, "sys/devices/system/cpu/cpu%d/topology/thread_siblings_list",
             processor);
    return read_mask(&siblings, root, path) ? lowest(&siblings) : processor;
}

static int domains_of(const tt_mask *mask, const char *root)
{
    char path[PATH];
    tt_mask online, domain;
    int domains = 0;
    if (!read_mask(&online, root, "sys/devices/system/node/online")) {
        return 1;
    }
    for (int i = 0; i < DOMAINS; i++) {
        snprintf(path, sizeof path, "sys/devices/system/node/node%d/cpulist", i);
        if (tt_mask_has(&online, i) && read_mask(&domain, root, path)) {
            tt_mask_meet(&domain, mask);
            domains += lowest(&domain) >= 0;
        }
    }
    return domains > 0 ? domains : 1;
}

tt_span tt_span_of(const tt_mask *mask, const char *root)
{
    tt_mask cores = {{0}};
    for (int i = 0; i < TT_PROCESSORS; i++) {
        if (tt_mask_has(mask, i)) {
            tt_mask_add(&cores, core_of(i, root));
        }
    }
    return (tt_span){.processors = tt_mask_count(mask),
                     .cores = tt_mask_count(&cores),
                     .domains = domains_of(mask, root)};
}
