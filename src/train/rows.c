/* rows.c: parameters cut by a shard, as rows of pieces for a checkpoint. See rows.h. */
#include "tutti/train/rows.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tutti/base/memory.h"
#include "tutti/base/narrow.h"

tt_code tt_rows_make(tt_rows *rows, const tt_params *params, const tt_shard *shard,
                     const int64_t *local, int groups, const char *const *group, float *const *data,
                     const tt_form *form, tt_err *err)
{
    tt_code rc = TT_OK;
    const int64_t count = tt_mul(params->count, groups);
    memset(rows, 0, sizeof *rows);
    /* Ranges and parameters both tile the flat vector in order, so they meet in at most
     * ranges + parameters pieces a group. */
    rows->row = tt_alloc(count + 1, sizeof *rows->row, err); /* the last for tt_rows_add */
    rows->name = tt_alloc(count, sizeof *rows->name, err);
    rows->piece =
        tt_alloc(tt_mul(groups, params->count + shard->count) + 1, sizeof *rows->piece, err);
    if (!rows->row || !rows->name || !rows->piece) {
        tt_rows_free(rows);
        rc = err->code;
        goto out;
    }
    for (int g = 0; g < groups; g++) {
        for (int i = 0, r = 0; i < params->count; i++) {
            const tt_param *p = &params->param[i];
            tt_tensor_row *row = &rows->row[rows->rows];
            snprintf(rows->name[rows->rows], sizeof rows->name[0], "%s/%s", group[g], p->name);
            *row = (tt_tensor_row){.name = rows->name[rows->rows],
                                   .dims = p->dims,
                                   .dim = {p->dim[0], p->dim[1]},
                                   .piece = &rows->piece[rows->pieces]};
            while (r > 0 && shard->range[r - 1].end > p->offset) {
                r--; /* the last range of the parameter before may reach into this one */
            }
            for (; r < shard->count && shard->range[r].first < p->offset + p->count; r++) {
                int64_t first = tt_max(shard->range[r].first, p->offset);
                int64_t end = tt_min(shard->range[r].end, p->offset + p->count);
                if (first < end) {
                    tt_piece *piece = &row->piece[row->pieces++];
                    *piece = (tt_piece){.first = first - p->offset, .count = end - first};
                    if (data[g] != NULL) {
                        piece->data = data[g] + local[r] + (first - shard->range[r].first);
                    } else {
                        piece->form = form[g];
                        piece->at = first;
                    }
                }
            }
            rows->pieces += row->pieces;
            rows->rows++;
        }
    }
out:
    return rc;
}

void tt_rows_add(tt_rows *rows, const char *name, int64_t m, int64_t n, float *data, bool mine)
{
    tt_piece *piece = &rows->piece[rows->pieces++];
    *piece = (tt_piece){.count = tt_mul(m, n), .data = data};
    rows->row[rows->rows++] = (tt_tensor_row){
        .name = name, .dims = 2, .dim = {m, n}, .pieces = mine ? 1 : 0, .piece = piece};
}

void tt_rows_free(tt_rows *rows)
{
    free(rows->row);
    free(rows->name);
    free(rows->piece);
    memset(rows, 0, sizeof *rows);
}
