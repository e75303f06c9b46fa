/* clock.c: durations from the monotonic clock, stamps in UTC. */
#include "tutti/base/clock.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

double tt_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

void tt_stamp(char out[TT_STAMP])
{
    time_t now = time(NULL);
    struct tm utc;
    if (gmtime_r(&now, &utc) == NULL || strftime(out, TT_STAMP, "%Y-%m-%dT%H:%M:%SZ", &utc) == 0) {
        strcpy(out, "1970-01-01T00:00:00Z");
    }
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double tt_median(double *value, int64_t n)
{
    qsort(value, (size_t)n, sizeof *value, ascending);
    return n % 2 == 1 ? value[n / 2] : (value[n / 2 - 1] + value[n / 2]) / 2;
}
