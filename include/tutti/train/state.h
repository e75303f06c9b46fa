/* state.h: the state table: every tensor and scalar that influences the next step. If it matters and
 * is not here, it is a bug.
 *
 * Reads and writes trainer memory; next: ckpt/ckpt.h. */
#ifndef TUTTI_TRAIN_STATE_H
#define TUTTI_TRAIN_STATE_H

#include <stdbool.h>
#include <stdint.h>

#include "tutti/base/status.h"
#include "tutti/ckpt/ckpt.h"
#include "tutti/train/trainer.h"

/* Tensor rows "<group>/<parameter>" whose pieces are the intersections of each parameter with the
 * ranges of `shard`; element e of range i lies at data[local[i] + (e - range[i].first)], with `local`
 * of the shard that `data` was laid out by. Appends to rows made by tt_rows_open. */
typedef struct tt_rows {
    tt_tensor_row *row; /* [rows], owned */
    tt_piece *piece;    /* all pieces, owned */
    char (*name)[TT_NAME + 16];
    int rows, pieces;
} tt_rows;

/* groups: names; data[g]: arrays laid out by local offsets, or NULL: that group's elements come and go
 * through form[g] (form may be NULL where there is none such), by their place in the flat vector. Free
 * with tt_rows_free. */
tt_code tt_rows_make(tt_rows *rows, const tt_params *params, const tt_shard *shard,
                     const int64_t *local, int groups, const char *const *group, float *const *data,
                     const tt_form *form, tt_err *err);
/* One row more, of a tensor [m,n] that every rank has whole; `mine`: this rank has it in the file's
 * eyes. Once for rows that were made. */
void tt_rows_add(tt_rows *rows, const char *name, int64_t m, int64_t n, float *data, bool mine);
void tt_rows_free(tt_rows *rows);

/* Rows of params, adam_m and adam_v (in this order), and of what FP8 remembers, for the cut of this
 * rank: together the ranks hold
 * each element once, whatever the ZeRO stage. The pieces are trainer memory; the trainer stays where it
 * is as long as the rows are used. */
tt_code tt_state_rows(tt_rows *rows, const tt_trainer *trainer, tt_err *err);

/* Saves to <run.dir>/step-%08d.h5, then prunes to run.keep when asked. Weights that are not finite are
 * TT_EWORLD and not saved. Collective. */
tt_code tt_state_save(tt_trainer *trainer, bool prune, tt_err *err);

/* Continues from the newest good checkpoint of run.dir, from run.init_from, or from the initial
 * values, as run.resume says; leaves weights gathered. Checkpoints of which none can be used are an
 * error, not a fresh start. Collective. */
tt_code tt_state_begin(tt_trainer *trainer, tt_err *err);

/* Mean gradient of the step just made, true sum * scale, to run.dump_gradients: what the loss scale did
 * to the sum is undone. Collective. */
tt_code tt_state_dump_gradients(tt_trainer *trainer, double scale, tt_err *err);

#endif
