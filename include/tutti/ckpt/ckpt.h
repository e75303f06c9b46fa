/* ckpt.h: checkpoints: whole named tensors in one HDF5 file that knows nothing of ranks.
 *
 * The caller hands over a state table: per tensor its name, natural shape and the pieces that this
 * rank holds; per scalar its name and address. Saving writes beside, to ".<name>.part" in the same
 * folder, syncs, reads everything back against its digests, renames, syncs the folder. The last
 * good file is never deleted first; a save that fails removes its .part.
 *
 * In the file, "tutti-checkpoint-1" in the attribute `format` of the root:
 *
 *     /params/wte  /adam_m/wte  ...   one contiguous FP32 dataset per tensor, named by its row
 *     /state/<scalar>                 int64 or double
 *     /config  /arithmetic  /tokenizer   UTF-8 strings of any length, when the state has them
 *     /group_digests/params  ...      uint64, one for each group of tensors: tt_digest_bytes of the
 *                                     digests of its tensors in the file's order. That of params
 *                                     names the weights, as "digest" does in metrics.jsonl. Files
 *                                     of version 0.1 have none
 *     /digests/<path>                 uint64, one for each of the above ("/digests/params/wte"):
 *                                     tt_digest32 of a tensor, tt_digest_bytes of the 8 bytes of a
 *                                     scalar or of a text (numerics/digest.h)
 *
 * Rows of any group are the same to it: a gradient dump is a state of "grads/..." rows. Equal states
 * give equal bytes: the file holds no times and no trace of who wrote which piece.
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

/* Elements that are not kept as floats: both functions or none. Files hold floats whatever the form;
 * saving and loading convert a bounded number of elements at a time. */
typedef struct tt_form {
    const void *owner; /* borrowed; the functions' first argument */
    /* Elements at .. at + count - 1 of the owner, to floats and from them. */
    tt_code (*get)(const void *owner, int64_t at, int64_t count, float *out, tt_err *err);
    tt_code (*put)(const void *owner, int64_t at, int64_t count, const float *in, tt_err *err);
} tt_form;

typedef struct tt_piece { /* elements [first, first+count) of the flattened tensor */
    int64_t first, count;
    float *data;  /* borrowed: [count]; NULL allowed when count is 0, or with a form */
    tt_form form; /* set: in place of data, and the first element is the owner's element `at` */
    int64_t at;
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
    bool optional; /* load: a file without it leaves the value as it is */
} tt_scalar_row;

typedef struct tt_state {
    int tensors, scalars;
    tt_tensor_row *tensor; /* borrowed */
    tt_scalar_row *scalar; /* borrowed */
    /* Texts that saving stores, each may be NULL; borrowed. */
    const char *config;     /* YAML */
    const char *arithmetic; /* what the bits depend on (train/arithmetic.h) */
    const char *tokenizer;
} tt_state;

/* Seconds that a save took on this rank. */
typedef struct tt_save_times {
    double begin; /* digests, and the snapshot */
    double meta;  /* the file without its elements, rank 0 for all */
    double write; /* elements, and until they were on the disk */
    double look;  /* read back */
    double commit;
} tt_save_times;

typedef struct tt_save_how {
    bool read_back; /* everything, from the disk, before the file gets its name */
    bool behind;    /* a thread does what is a rank's own: needs room */
    float *
        room; /* borrowed until the save has ended: [elements of this rank's pieces], gets a snapshot,
                    so that they may change while they are written; NULL: they stay as they are */
    tt_save_times *times;  /* filled when the file has its name; may be NULL */
    const tt_fault *fault; /* borrowed; may be NULL */
    int64_t step;          /* of the fault */
} tt_save_how;

/* A save under way. Until it has ended `state` and all that it points to must stay; with a snapshot
 * the elements may change. */
typedef struct tt_saving tt_saving;

/* Begins to write `path`, replacing what is there. TT_EWORLD naming the file and the reason when it
 * cannot; then nothing is under way and `path` is as it was. Collective. */
tt_code tt_saving_begin(tt_saving **saving, tt_world *world, const char *path,
                        const tt_state *state, const tt_save_how *how, tt_err *err);
/* Is a thread of this rank at work? Then tt_saving_next would wait for it. False for NULL. Local. */
bool tt_saving_busy(const tt_saving *saving);
/* The next act, after waiting for the one before. *saving is NULL afterwards when the file has its name,
 * or when something failed: TT_EWORLD as above. Nothing for NULL. Collective. */
tt_code tt_saving_next(tt_saving **saving, tt_err *err);
/* All acts that are left. Collective. */
tt_code tt_saving_finish(tt_saving **saving, tt_err *err);
/* Gives it up: waits for this rank's thread, and rank 0 removes what has been made. Nothing for
 * NULL. For a run that ends in a failure. Local. */
void tt_saving_drop(tt_saving **saving);

/* Begins and finishes, and reads back. fault may be NULL. Collective. */
tt_code tt_ckpt_save(tt_world *world, const char *path, const tt_state *state,
                     const tt_fault *fault, int64_t step, tt_err *err);

/* Fills pieces and scalars from `path`. Every tensor row must be there with the same shape, every
 * scalar that is not optional, and no other tensor in the groups that rows come from (otherwise
 * TT_EUSER naming it: checkpoint of another model). A missing file and one that is not ours are
 * TT_EUSER too. Digests of whole tensors are checked (each rank verifies a share); a mismatch or an
 * unreadable file is TT_EWORLD naming file and tensor. A refused file changes nothing.
 *
 * params_only reads the rows below "params/" and no scalars. Such a file may be made elsewhere, with
 * nothing but /params: it needs no format attribute, other float widths are converted, and digests
 * are checked where there are any. */
tt_code tt_ckpt_load(tt_world *world, const char *path, const tt_state *state, bool params_only,
                     tt_err *err);

/* A file that rank 0 sees, network file systems may show to other ranks somewhat later: they wait
 * for it, half a minute at most. Whether it is there then, whoever opens it will find. tt_ckpt_load
 * does this. Collective. */
tt_code tt_ckpt_await(tt_world *world, const char *path, tt_err *err);

/* TT_EWORLD naming the file and the reason when a regular file is at `path` and this process may not or
 * cannot open it. Local, no MPI. */
tt_code tt_ckpt_access(const char *path, tt_err *err);

/* /config and /tokenizer into texts owned by the caller (either may be NULL). TT_EUSER when a text
 * that is asked for is not in the file; TT_EWORLD when it does not match its digest. Local, no MPI. */
tt_code tt_ckpt_texts(const char *path, tt_text *config, tt_text *tokenizer, tt_err *err);

/* /arithmetic into a text owned by the caller, which stays empty when the file has none. TT_EWORLD
 * when it does not match its digest. Local, no MPI. */
tt_code tt_ckpt_arithmetic(const char *path, tt_text *arithmetic, tt_err *err);

/* malloc'd path of the newest complete file step-*.h5 in dir that opens and carries the format
 * attribute and a digest per tensor; *path NULL when there is none. `before`, when not NULL, is the
 * path of a step file: only files of smaller steps count. `skipped`, when not NULL, collects one line
 * per file passed over: half-written, damaged, not ours. A file that this process may not or cannot
 * open is none of these: TT_EWORLD naming it and the reason. `world`, which may be NULL, is told of
 * progress. Local. */
tt_code tt_ckpt_latest(tt_world *world, const char *dir, const char *before, char **path,
                       tt_text *skipped, tt_err *err);

/* The step that `path` is named for; TT_EUSER where it is not named step-<digits>.h5. Local. */
tt_code tt_ckpt_step(const char *path, int64_t *step, tt_err *err);
/* The steps beyond `step` of which dir has a step-*.h5, in *steps: malloc'd, the caller's to free, NULL
 * when there are none. TT_EUSER when one of them is a folder, which no file can replace. Local. */
tt_code tt_ckpt_beyond(const char *dir, int64_t step, int64_t **steps, int *count, tt_err *err);

typedef struct tt_prune {
    int64_t keep;   /* so many newest stay; 0: all */
    int64_t every;  /* those of steps that are multiples of it stay; 0: none do */
    int64_t newest; /* the step just saved: files of later ones are not of this run, and stay */
    const int64_t *doubtful; /* [doubts] borrowed: steps whose files the run has passed over */
    int doubts;
} tt_prune;

/* Deletes the step-*.h5 that are older than the newest `keep` that count, and leftovers
 * ".step-*.part". Files that are not complete, doubtful or later than `newest` do not count, so a
 * damaged file never pushes out a good one. Age is the number in the name. Rank 0 deletes;
 * collective. */
tt_code tt_ckpt_prune(tt_world *world, const char *dir, const tt_prune *how, tt_err *err);

/* TT_OK when nothing is at `path`, or a file of ours whose tensors are all in `group` ("grads");
 * otherwise TT_EUSER: writing there would destroy something else. Local, no MPI. */
tt_code tt_ckpt_may_replace(const char *path, const char *group, tt_err *err);

/* For the commands; local, no MPI. */
tt_code tt_ckpt_info(const char *path, tt_text *out, tt_err *err);   /* aligned table */
tt_code tt_ckpt_verify(const char *path, tt_text *out, tt_err *err); /* recomputes every digest */

typedef struct tt_group_diff {
    char group[32];  /* "params", "adam_m", "adam_v", "grads", "fp8", "state" */
    double largest;  /* largest over tensors of max|a-b| / max(|a|, |b|), maxima over the tensor */
    char tensor[96]; /* where, "" when nothing differs */
    double l2;       /* ||a-b|| / ||b|| over the whole group */
    int64_t different; /* elements whose bits differ */
} tt_group_diff;

/* The first element, in the order of file A, whose bits differ. */
typedef struct tt_first_diff {
    char path[128];    /* "params/wte", "state/step"; "" when nothing differs */
    int dims;          /* of the tensor; 0: a scalar */
    int64_t at[2];     /* its coordinates there, `dims` of them */
    char value[2][48]; /* in A and in B, with the bits where the numbers look alike */
} tt_first_diff;

/* Compares two files; *identical when every tensor and scalar is bit-identical, otherwise *first says
 * where they part. Texts are not compared, and digests follow from the rest. A NaN or infinity that
 * differs makes `largest` and `l2` infinite; so does what a number format keeps (fp8/amax) and one file
 * lacks: *first then says "there" and "missing". Files with different weights, moments or shapes are
 * TT_EUSER naming the first. group[room] gets the first `room` groups. */
tt_code tt_ckpt_diff(const char *a, const char *b, bool *identical, tt_group_diff *group, int room,
                     int *groups, tt_first_diff *first, tt_err *err);

/* "1.10.8": the HDF5 that this was built with. */
const char *tt_ckpt_hdf5_version(void);

#endif
