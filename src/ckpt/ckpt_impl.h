/* ckpt_impl.h: what the files of this layer share.
 *
 * h5.c hides HDF5 behind tt_h5; catalog.c lists what a file holds; digest.c sums digests of stored
 * tensors, each rank a share; piece.c moves the elements of pieces; part.c makes the file beside,
 * meta.c fills it but for the elements, elements.c with those; save.c, load.c, scan.c, report.c and
 * diff.c see only these.
 *
 * Invariant: nothing here trusts a file. Every HDF5 call is checked; a file that cannot be read is
 * TT_EWORLD, a file that is something else is TT_EUSER, and no call aborts. */
#ifndef TUTTI_CKPT_CKPT_IMPL_H
#define TUTTI_CKPT_CKPT_IMPL_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tutti/base/status.h"
#include "tutti/base/text.h"
#include "tutti/ckpt/ckpt.h"
#include "tutti/dist/watch.h"
#include "tutti/dist/world.h"

#define TT_CKPT_FORMAT "tutti-checkpoint-1"

enum {
    TT_CKPT_CHUNK = 1 << 21, /* elements: what is read or written at a time, 8 MiB */
    TT_PAGE = 4096           /* bytes: of files, whatever the memory's are */
};

/* --- h5.c ------------------------------------------------------------------------------------- */

typedef struct tt_h5 tt_h5; /* an open file */

typedef enum tt_h5_kind {
    TT_H5_F32,   /* 4-byte IEEE floats, little-endian: what digests are defined on */
    TT_H5_FLOAT, /* other floats, converted when read */
    TT_H5_I64,   /* one signed 8-byte integer */
    TT_H5_U64,   /* one unsigned 8-byte integer */
    TT_H5_F64,   /* one double */
    TT_H5_TEXT,
    TT_H5_OTHER /* anything else, or a tensor of more than 2 dimensions */
} tt_h5_kind;

/* A new file at `path`, for this process alone. `name` (borrowed) is what sentences call the file.
 * On failure nothing is open. */
tt_code tt_h5_create(const char *path, const char *name, tt_h5 **file, tt_err *err);

/* An existing file for reading, for this process alone. TT_EUSER when it is missing, not readable
 * or not HDF5; TT_EWORLD when it is HDF5 and damaged. */
tt_code tt_h5_open(const char *path, const char *name, tt_h5 **file, tt_err *err);

/* Closes and frees; *file becomes NULL. Closing NULL is fine. */
tt_code tt_h5_close(tt_h5 **file, tt_err *err);

/* The attribute `format` of the root: *format is owned by the caller and stays empty when there is
 * none. */
tt_code tt_h5_put_format(tt_h5 *file, const char *format, tt_err *err);
tt_code tt_h5_get_format(tt_h5 *file, tt_text *format, tt_err *err);

/* Datasets by path ("params/wte"); missing groups are made. */
/* *place: of its first element, in bytes from the beginning of the file; the others follow in order. */
tt_code tt_h5_make_tensor(tt_h5 *file, const char *path, int dims, const int64_t *dim,
                          int64_t *place, tt_err *err);
tt_code tt_h5_put_text(tt_h5 *file, const char *path, const char *text, tt_err *err);
tt_code tt_h5_get_text(tt_h5 *file, const char *path, tt_text *text, tt_err *err);
/* One value of kind I64, U64 or F64: *value is an int64_t, uint64_t or double. */
tt_code tt_h5_put(tt_h5 *file, const char *path, tt_h5_kind kind, const void *value, tt_err *err);
tt_code tt_h5_get(tt_h5 *file, const char *path, tt_h5_kind kind, void *value, tt_err *err);

/* Elements [first, first+count) of the flattened tensor. */
tt_code tt_h5_read(tt_h5 *file, const char *path, int64_t first, int64_t count, float *data,
                   tt_err *err);

/* Calls visit for every dataset below the group `top` ("" for the root), but not for those of the root
 * in the group `skip`; groups in the order they were made where the file tracks it, else by name. Paths
 * are whole ones ("digests/params/wte" below "digests"). No such group: no visit. A visit that fails
 * ends the walk with its code. */
typedef tt_code (*tt_h5_visit)(void *context, const char *path, tt_h5_kind kind, int dims,
                               const int64_t *dim, tt_err *err);
tt_code tt_h5_walk(tt_h5 *file, const char *top, const char *skip, tt_h5_visit visit, void *context,
                   tt_err *err);

const char *tt_h5_name(const tt_h5 *file);
bool tt_h5_exists(tt_h5 *file, const char *path);

/* --- catalog.c -------------------------------------------------------------------------------- */

typedef struct tt_entry {
    char *path; /* "params/wte", owned */
    tt_h5_kind kind;
    int dims;
    int64_t dim[2];
    int64_t count; /* elements */
    bool sealed;   /* the file holds /digests/<path> */
    uint64_t digest;
} tt_entry;

/* Every dataset of a file outside /digests, in the file's order; and what is lost: paths that have a
 * digest and no dataset. */
typedef struct tt_catalog {
    tt_world *world; /* borrowed: told of progress while it is read; may be NULL */
    int count, room;
    tt_entry *entry; /* [count], owned */
    int *by_name;    /* [count], owned: entries in the order of their paths */
    int lost;
    char **lost_path; /* [lost], owned */
} tt_catalog;

tt_code tt_catalog_read(tt_catalog *catalog, tt_h5 *file, tt_err *err);
void tt_catalog_free(tt_catalog *catalog);

/* Index of a path, or -1. *hint (start with 0) makes searches in the file's order quick. */
int tt_catalog_find(const tt_catalog *catalog, const char *path, int *hint);

bool tt_entry_is_tensor(const tt_entry *entry); /* floats of 1 or 2 dimensions */
/* Length of the group in "group/name"; 0 when there is none. */
size_t tt_group_length(const char *path);
bool tt_same_group(const char *a, const char *b);

enum { TT_SHAPE_ROOM = 64 };
void tt_shape_text(int dims, const int64_t *dim, char out[TT_SHAPE_ROOM]); /* "[64,8]" */

/* TT_OK when `file` carries our format attribute. TT_EUSER when it carries another or none. */
tt_code tt_check_format(tt_h5 *file, tt_err *err);
/* TT_EWORLD naming the first lost dataset whose path begins with `prefix`. */
tt_code tt_check_lost(const tt_catalog *catalog, const char *prefix, const char *name, tt_err *err);
/* TT_EWORLD naming the first tensor, scalar or text that lacks a digest, or a digest that lacks it. */
tt_code tt_check_sealed(const tt_catalog *catalog, const char *name, tt_err *err);

/* --- digest.c --------------------------------------------------------------------------------- */

/* sum[k] = digest of tensor which[k] of the file, read in bounded memory. Each rank reads one share
 * of all the elements. Collective over world; all ranks return the same code. */
tt_code tt_digest_tensors(tt_world *world, tt_h5 *file, const tt_catalog *catalog, const int *which,
                          int count, uint64_t *sum, tt_err *err);

/* Digest of a stored scalar or text. Local. */
tt_code tt_digest_small(tt_h5 *file, const tt_entry *entry, uint64_t *sum, tt_err *err);

/* Below this stand the digests of groups: "group_digests/params". */
#define TT_GROUP_DIGESTS "group_digests/"
bool tt_is_group_digest(const char *path);

/* TT_EWORLD when the digest of a group that entry `at` holds is not that of its tensors' digests. A
 * group that lacks a tensor or a digest is not judged: that is another damage. */
tt_code tt_check_group(const tt_catalog *catalog, tt_h5 *file, int at, tt_err *err);

/* What /digests holds for a scalar (of its 8 bytes) and for a text. */
uint64_t tt_digest_scalar(const void *value);
uint64_t tt_digest_text(const char *text);

/* --- piece.c ---------------------------------------------------------------------------------- */

/* *buffer: [TT_CKPT_CHUNK], the caller's to free, when a piece of the state has a form; else NULL. */
tt_code tt_piece_buffer(const tt_state *state, float **buffer, tt_err *err);

/* Adds to its tensor's digest what a piece adds. `world` is told of progress; so it is below. */
tt_code tt_piece_digest(tt_world *world, const tt_piece *piece, float *buffer, uint64_t *digest,
                        tt_err *err);

/* A piece from the tensor `name`. Local. */
tt_code tt_piece_read(tt_world *world, tt_h5 *file, const char *name, const tt_piece *piece,
                      float *buffer, tt_err *err);

/* --- part.c ----------------------------------------------------------------------------------- */

enum { TT_SCRATCH_ROOM = 32 };

/* malloc'd "folder/.name.part" for "folder/name". */
char *tt_part_path(const char *path, tt_err *err);

/* A file in memory, under a path that HDF5 can open. *fd is the caller's to close, -1 on failure.
 * `bytes`: what the file may come to at most; more than the process may write is refused. */
tt_code tt_part_scratch(int64_t bytes, const char *name, int *fd, char path[TT_SCRATCH_ROOM],
                        tt_err *err);

/* Creates `part` with the contents of the file in memory, all its space reserved. */
tt_code tt_part_copy(int scratch, const char *part, const char *name, tt_err *err);

/* --- save.c, meta.c, elements.c ----------------------------------------------------------------- */

typedef enum tt_act { TT_ACT_WRITE, TT_ACT_LOOK } tt_act;

/* A save under way. */
struct tt_saving {
    tt_world *world; /* borrowed */
    tt_state state;  /* what it points to is borrowed */
    tt_save_how how;
    int rank, ranks;
    char *path, *part;     /* owned: the file to be, and where it is made */
    uint64_t *digest;      /* [tensors] owned, of all ranks' pieces */
    uint64_t *covered;     /* [tensors] elements of the pieces of all ranks; follows digest */
    int64_t *place;        /* [tensors] owned: where each begins in the file, in bytes */
    uint64_t *sum;         /* [tensors] owned: digests of what has been read back */
    unsigned char *buffer; /* [TT_CKPT_CHUNK] floats and two pages, aligned, owned: of the act */
    bool made;             /* there may be a .part */
    tt_act act;
    tt_code own; /* of the act, on this rank */
    tt_err why;
    bool threaded; /* a thread is at it, or has been and is not joined */
    pthread_t thread;
    _Atomic bool busy;
    _Atomic int64_t moved; /* grows while the thread gets on */
    tt_save_times times;
};

/* The act gets on: a beat, or where a thread does it a sign to the one that waits for it. */
void tt_saving_moved(tt_saving *saving);

int64_t tt_row_elements(const tt_tensor_row *row);

/* The .part without its elements, all its space reserved; s->place. Rank 0. */
tt_code tt_meta_make(tt_saving *s, tt_err *err);
/* TT_EWORLD unless the .part holds every row, scalar and text that was put there. Rank 0. */
tt_code tt_meta_check(const tt_saving *s, tt_err *err);

/* This rank's pieces into the .part, and from there to the disk. Local. */
tt_code tt_elements_write(tt_saving *s, tt_err *err);
/* Digests of a share of all elements of the .part into s->sum. Local. */
tt_code tt_elements_look(tt_saving *s, tt_err *err);

/* --- scan.c ----------------------------------------------------------------------------------- */

/* `world`, which may be NULL, is told of progress. TT_OK when the file opens, carries the format,
 * and a digest for each tensor, scalar and text, and each of them for its digest. */
tt_code tt_ckpt_complete(tt_world *world, const char *path, tt_err *err);

#endif
