/* clock.h: time. Durations from the monotonic clock, stamps in UTC. */
#ifndef TUTTI_BASE_CLOCK_H
#define TUTTI_BASE_CLOCK_H

#include <stddef.h>
#include <stdint.h>

double tt_seconds(void); /* monotonic, arbitrary origin */
/* Median of n >= 1 values, which it sorts: what is said of times on a machine that others use too. */
double tt_median(double *value, int64_t n);

enum { TT_STAMP = 32 };
/* "2026-01-31T17:00:00Z" into out[TT_STAMP]. */
void tt_stamp(char out[TT_STAMP]);

#endif
