/* digests.h: what a run's state is, in a few numbers: run.digest_every.
 *
 * The digest of a tensor is that of its FP32 elements (numerics/digest.h), the one that a checkpoint
 * stores for it; the digest of the weights is that of the digests of all params/ tensors in the order
 * of the parameter table, a checkpoint's /group_digests/params. Each rank adds its cut, so neither
 * depends on the number of ranks or on the ZeRO stage: equal digests are equal bits.
 *
 * Memory is taken when it opens, none in a step. Reads trainer memory; next: train/metrics.h. */
#ifndef TUTTI_TRAIN_DIGESTS_H
#define TUTTI_TRAIN_DIGESTS_H

#include <stdbool.h>
#include <stdint.h>

#include "tutti/base/status.h"
#include "tutti/base/text.h"
#include "tutti/train/state.h"
#include "tutti/train/trainer.h"

typedef struct tt_digests {
    tt_rows rows;     /* owned: this rank's cut of params, adam_m, adam_v */
    uint64_t *sum;    /* [rows] owned: digests of whole tensors, as taken last */
    uint64_t weights; /* digest of the weights, as taken last */
    tt_text line;     /* owned */
} tt_digests;

/* Local. */
tt_code tt_digests_open(tt_digests *digests, const tt_trainer *trainer, tt_err *err);
/* Of the state as it is now. Collective: one sum over ranks. */
tt_code tt_digests_take(tt_digests *digests, const tt_trainer *trainer, tt_err *err);
/* The line of digests.jsonl for what was taken last; lives until the next call. The caller checks
 * its `failed`. */
const tt_text *tt_digests_line(tt_digests *digests, int64_t step);
/* Safe on a zeroed one. */
void tt_digests_close(tt_digests *digests);

#endif
