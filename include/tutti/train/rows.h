/* rows.h: parameters cut by a shard, as rows of pieces for a checkpoint.
 *
 * Invariant: over all ranks the pieces of a row cover its tensor once, when the shards cover the flat
 * vector once. Rows own names and lists; the data stays the caller's.
 *
 * Reads a parameter table and a cut; next: train/state.h. */
#ifndef TUTTI_TRAIN_ROWS_H
#define TUTTI_TRAIN_ROWS_H

#include <stdbool.h>
#include <stdint.h>

#include "tutti/base/options.h"
#include "tutti/base/status.h"
#include "tutti/ckpt/ckpt.h"
#include "tutti/dist/cut.h"
#include "tutti/model/params.h"

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

#endif
