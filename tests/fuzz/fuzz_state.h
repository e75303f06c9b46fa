/* fuzz_state.h: the states that checkpoint seeds hold, and that the target loads: one of few
 * tensors, whose groups HDF5 keeps in object headers, and one of many, whose groups it keeps in
 * heaps and trees. */
#ifndef TT_FUZZ_STATE_H
#define TT_FUZZ_STATE_H

#include <stdio.h>
#include <string.h>

#include "tutti/ckpt/ckpt.h"

enum {
    FUZZ_GROUPS = 2,
    FUZZ_FEW = 2,
    FUZZ_MOST = 9,
    FUZZ_LARGEST = 8,
    FUZZ_TENSORS = FUZZ_GROUPS * FUZZ_MOST
};

typedef struct fuzz_state {
    tt_state state;
    tt_tensor_row row[FUZZ_TENSORS];
    tt_scalar_row scalar[3];
    tt_piece piece[FUZZ_TENSORS];
    char name[FUZZ_TENSORS][32];
    float value[FUZZ_TENSORS][FUZZ_LARGEST];
    int64_t step, tokens;
    double scale;
} fuzz_state;

static inline void fuzz_state_make(fuzz_state *s, int tensors)
{
    static const char *const group[FUZZ_GROUPS] = {"params", "adam_m"};
    memset(s, 0, sizeof *s);
    s->state = (tt_state){.tensors = FUZZ_GROUPS * tensors,
                          .scalars = 3,
                          .tensor = s->row,
                          .scalar = s->scalar,
                          .config = "model:\n  layers: 1\n",
                          .arithmetic = "none",
                          .tokenizer = "bytes"};
    for (int i = 0; i < s->state.tensors; i++) {
        const int64_t rows = 1 + i % 2, columns = 1 + i % 4;
        snprintf(s->name[i], sizeof s->name[i], "%s/t%d", group[i / tensors], i % tensors);
        s->piece[i] = (tt_piece){.first = 0, .count = rows * columns, .data = s->value[i]};
        s->row[i] = (tt_tensor_row){.name = s->name[i],
                                    .dims = (int)rows,
                                    .dim = {rows > 1 ? rows : columns, columns},
                                    .pieces = 1,
                                    .piece = &s->piece[i]};
        for (int e = 0; e < FUZZ_LARGEST; e++) {
            s->value[i][e] = (float)(i + e) / 4;
        }
    }
    s->scalar[0] = (tt_scalar_row){.name = "step", .i64 = &s->step};
    s->scalar[1] = (tt_scalar_row){.name = "tokens_seen", .i64 = &s->tokens};
    s->scalar[2] = (tt_scalar_row){.name = "loss_scale", .f64 = &s->scale, .optional = true};
}

#endif
