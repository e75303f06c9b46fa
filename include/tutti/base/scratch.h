/* scratch.h: a file for this process alone, which nobody else sees and nothing outlives.
 *
 * It loses its name as soon as it is open, so that the system takes it away whatever ends the process.
 * All its space is reserved when it opens: a full disk, a quota or a limit is met there. Transfers go
 * around the page cache where the file system can (O_DIRECT); elsewhere through it, and its pages are
 * dropped behind them, so that what is on disk does not fill memory as well.
 *
 * Invariant: before anything is written the file reads as zeros. Reads and writes of ranges that do not
 * overlap may run at the same time.
 *
 * Owns a descriptor. Next: base/chunks.h. */
#ifndef TUTTI_BASE_SCRATCH_H
#define TUTTI_BASE_SCRATCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tutti/base/status.h"

enum { TT_SCRATCH_UNIT = 4096 }; /* bytes: addresses, sizes and places of transfers are multiples */

typedef struct tt_scratch {
    char *path; /* owned: what sentences call it */
    int fd;
    bool direct; /* around the page cache */
} tt_scratch;

/* Creates `path`, where nothing may be, with `bytes` (a multiple of the unit) of zeros. direct false:
 * through the page cache in any case. TT_EWORLD naming path, size and reason; then nothing is left. */
tt_code tt_scratch_open(tt_scratch *scratch, const char *path, int64_t bytes, bool direct,
                        tt_err *err);
/* Safe on a zeroed one. */
void tt_scratch_close(tt_scratch *scratch);

/* All of it or TT_EWORLD naming path, size, place and reason. */
tt_code tt_scratch_read(const tt_scratch *scratch, void *to, int64_t bytes, int64_t at,
                        tt_err *err);
tt_code tt_scratch_write(const tt_scratch *scratch, const void *from, int64_t bytes, int64_t at,
                         tt_err *err);

#endif
