/* ckpt.h: checkpoints: whole named tensors in one HDF5 file that knows nothing of ranks.
 *
 * The caller hands over a state table: per tensor its name, natural shape and the pieces that this
 * rank holds; per scalar its name and address. Saving writes beside (".<name>.part"), syncs, checks
 * by reading the digests back, renames, syncs the folder. The last good file is never deleted first.
 *
 * Collectivity: save, load and prune are collective over `world`; a NULL world means one process
 * without MPI. All return the same code on all ranks. */
#ifndef TUTTI_CKPT_CKPT_H
#define TUTTI_CKPT_CKPT_H

#include <stdbool.h>
#include <stdint.h>

#include "tutti/base/fault.h"
#include "tutti/base/status.h"
#include "tutti/base/text.h"
#include "tutti/dist/world.h"

typedef struct tt_piece { /* elements [first, first+count) of the flattened tensor */
    int64_t first, count;
    float *data; /* borrowed: [count]; NULL allowed when count is 0 */
} tt_piece;

typedef struct tt_tensor_row {
    const char *name; /* "params/wte", borrowed */
    int dims;
    int64_t dim[2];
    int pieces;
    tt_piece *piece; /* [pieces], borrowed, ascending. Save: disjoint over ranks, together whole.
                        Load: what this rank wants, may overlap between ranks. */
} tt_tensor_row;

typedef struct tt_scalar_row {
    const char *name; /* "step": stored as /state/step */
    int64_t *i64;     /* exactly one of the two is set; borrowed */
    double *f64;
} tt_scalar_row;

typedef struct tt_state {
    int tensors, scalars;
    tt_tensor_row *tensor; /* borrowed */
    tt_scalar_row *scalar; /* borrowed */
    const char *config;    /* YAML text, stored on save; borrowed */
    const char *tokenizer; /* stored on save; borrowed */
} tt_state;

/* Writes `path`. */
tt_code tt_ckpt_save(tt_world *world, const char *path, const tt_state *state,
                     const tt_fault *fault, int64_t step, tt_err *err);

/* Fills pieces and scalars from `path`. Every tensor row must be there with the same shape
 * (otherwise TT_EUSER naming it: checkpoint of another model) unless params_only, which reads the
 * rows below "params/" and no scalars. Digests of whole tensors are checked (each rank verifies a
 * share); a mismatch or an unreadable file is TT_EWORLD naming file and tensor. */
tt_code tt_ckpt_load(tt_world *world, const char *path, const tt_state *state, bool params_only,
                     tt_err *err);

/* /config and /tokenizer into texts owned by the caller (either may be NULL). Local, no MPI. */
tt_code tt_ckpt_texts(const char *path, tt_text *config, tt_text *tokenizer, tt_err *err);

/* malloc'd path of the newest complete file step-*.h5 in dir that opens and carries the format
 * attribute and a digest per tensor; *path NULL when there is none. `skipped`, when not NULL,
 * collects one line per file passed over. Local. */
tt_code tt_ckpt_latest(const char *dir, char **path, tt_text *skipped, tt_err *err);

/* Deletes the oldest step-*.h5 beyond the newest `keep` (0: keeps all) and leftovers
 * ".step-*.part". Rank 0 deletes; collective. */
tt_code tt_ckpt_prune(tt_world *world, const char *dir, int64_t keep, tt_err *err);

/* For the commands; local, no MPI. */
tt_code tt_ckpt_info(const char *path, tt_text *out, tt_err *err);   /* aligned table */
tt_code tt_ckpt_verify(const char *path, tt_text *out, tt_err *err); /* recomputes every digest */

typedef struct tt_group_diff {
    char group[32];    /* "params", "adam_m", "adam_v", "grads", "state" */
    double largest;    /* largest over tensors of max|a-b| / max(|a|, |b|) */
    char tensor[96];   /* where */
    double l2;         /* ||a-b|| / ||b|| over the whole group */
    int64_t different; /* elements that differ */
} tt_group_diff;

/* Compares two files; *identical when every tensor and scalar is bit-identical. Files with different
 * tensors or shapes are TT_EUSER naming the first. */
tt_code tt_ckpt_diff(const char *a, const char *b, bool *identical, tt_group_diff *group, int room,
                     int *groups, tt_err *err);

#endif
