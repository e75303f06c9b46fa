/* machine.h: sets of processors, and what they come to: cores, NUMA domains.
 *
 * A processor is what the system schedules on; processors of one core (hyper-threads) are siblings. What
 * is read lies below a root, "" for this machine, so that tests can make up others. What the system
 * does not tell is taken as nothing special: a processor without siblings, one domain, no limit.
 *
 * Plain values. Next: train/advice.h. */
#ifndef TUTTI_BASE_MACHINE_H
#define TUTTI_BASE_MACHINE_H

#include <stdbool.h>
#include <stdint.h>

enum { TT_PROCESSORS = 8192 }; /* those beyond are not seen */

typedef struct tt_mask {
    uint64_t word[TT_PROCESSORS / 64];
} tt_mask;

bool tt_mask_has(const tt_mask *mask, int processor);
void tt_mask_add(tt_mask *mask, int processor);
int tt_mask_count(const tt_mask *mask);
/* Keeps what `with` has too. */
void tt_mask_meet(tt_mask *mask, const tt_mask *with);
/* "0-3,8", as the system writes it; false: it is not such a list, and the mask is empty. */
bool tt_mask_parse(tt_mask *mask, const char *list);

/* Processors that a process may run on, 0: this one; false: not known. */
bool tt_mask_of(tt_mask *mask, int process);
/* Processors of which this process may be given any: those online, within its control group, and where
 * `parent` is not NULL within that. */
void tt_mask_allowed(tt_mask *mask, const char *root, const tt_mask *parent);

typedef struct tt_span {
    int processors, cores;
    int domains; /* NUMA domains with processors of the set, at least 1 */
} tt_span;

tt_span tt_span_of(const tt_mask *mask, const char *root);

#endif
