/* ckpt_test.h: a small state with awkward shapes and values, cut into pieces in several ways, and a
 * folder that goes away.
 *
 * Every process holds all values, so that any of them can check any piece. A cut says which elements
 * a rank holds: other rank counts are imitated by other cuts, because a file knows only pieces. */
#ifndef CKPT_TEST_H
#define CKPT_TEST_H

#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tutti/base/rng.h"
#include "tutti/ckpt/ckpt.h"

#include "tt_test.h"

enum { TENSORS = 9, SCALARS = 4, MOST_PIECES = 80, LARGEST = 61 * 129 };

static const struct {
    const char *name;
    int dims;
    int64_t dim[2];
} shapes[TENSORS] = {
    {"params/wte", 2, {61, 129}},
    {"params/h.0.ln_1.weight", 1, {257}},
    {"params/one", 1, {1}},
    {"params/column", 2, {97, 1}},
    {"params/row", 2, {1, 97}},
    {"adam_m/wte", 2, {61, 129}},
    {"adam_m/one", 1, {1}},
    {"adam_v/h.0.ln_1.weight", 1, {257}},
    {"adam_v/h.0.mlp.fc.bias", 1, {3}},
};

typedef struct fixture {
    tt_state state;
    tt_tensor_row row[TENSORS];
    tt_piece piece[TENSORS][MOST_PIECES];
    float value[TENSORS][LARGEST];
    tt_scalar_row scalar[SCALARS];
    int64_t step, tokens;
    double scale, odd;
} fixture;

/* Ways to cut a tensor over ranks. */
typedef enum cut_kind {
    CUT_RANGES, /* one stretch each, unequal, some empty */
    CUT_COMB,   /* stretches dealt out in turn: many boxes that start and end inside rows */
    CUT_LAST,   /* the last rank holds everything */
    CUT_WHOLE   /* every rank wants everything: for loading only */
} cut_kind;

static inline int64_t elements_of(int i)
{
    return shapes[i].dims > 1 ? shapes[i].dim[0] * shapes[i].dim[1] : shapes[i].dim[0];
}

static inline void add_piece(fixture *f, int i, int64_t first, int64_t end)
{
    ck_assert_int_lt(f->row[i].pieces, MOST_PIECES);
    f->piece[i][f->row[i].pieces++] = (tt_piece){
        .first = first, .count = end - first, .data = end > first ? f->value[i] + first : NULL};
}

static inline void cut_tensor(fixture *f, int i, cut_kind kind, int rank, int size)
{
    int64_t n = elements_of(i);
    f->row[i].pieces = 0;
    if (kind == CUT_WHOLE || kind == CUT_LAST) {
        bool all = kind == CUT_WHOLE || rank == size - 1;
        add_piece(f, i, 0, all ? n : 0);
    } else if (kind == CUT_RANGES) {
        add_piece(f, i, n * rank * rank / (size * size),
                  n * (rank + 1) * (rank + 1) / (size * size));
    } else {
        int64_t width = n / 71 + 1;
        for (int64_t at = 0, turn = 0; at < n; at += width, turn++) {
            if (turn % size == rank) {
                add_piece(f, i, at, at + width < n ? at + width : n);
            }
        }
    }
}

/* The state as rank `rank` of `size` holds it. Scalars and values are zero. */
static inline fixture *fixture_new(cut_kind kind, int rank, int size)
{
    fixture *f = calloc(1, sizeof *f);
    ck_assert_ptr_nonnull(f);
    for (int i = 0; i < TENSORS; i++) {
        f->row[i] = (tt_tensor_row){.name = shapes[i].name,
                                    .dims = shapes[i].dims,
                                    .dim = {shapes[i].dim[0], shapes[i].dim[1]},
                                    .piece = f->piece[i]};
        cut_tensor(f, i, kind, rank, size);
    }
    f->scalar[0] = (tt_scalar_row){.name = "step", .i64 = &f->step};
    f->scalar[1] = (tt_scalar_row){.name = "tokens_seen", .i64 = &f->tokens};
    f->scalar[2] = (tt_scalar_row){.name = "loss_scale", .f64 = &f->scale};
    f->scalar[3] = (tt_scalar_row){.name = "odd", .f64 = &f->odd};
    f->state = (tt_state){.tensors = TENSORS,
                          .scalars = SCALARS,
                          .tensor = f->row,
                          .scalar = f->scalar,
                          .config = "model:\n  layers: 2\n  heads: 4\nrun:\n  steps: 100\n",
                          .tokenizer = "bytes"};
    return f;
}

/* Every bit pattern may occur; the first elements are the awkward ones. */
static inline void fill_values(fixture *f, uint64_t seed)
{
    static const uint32_t awkward[] = {0x7fa00001, 0x80000000, 0xffc12345, 0x7f800000,
                                       0x00000001, 0x807fffff, 0x7f7fffff};
    tt_key key = tt_rng_key(seed, TT_RNG_TEST, 0);
    for (int i = 0; i < TENSORS; i++) {
        for (int64_t e = 0; e < elements_of(i); e++) {
            uint32_t bits = tt_rng(key, (uint64_t)i, (uint64_t)e).v[0];
            if (e < 7 && i % 2 == 0) {
                bits = awkward[(e + i) % 7];
            }
            memcpy(&f->value[i][e], &bits, sizeof bits);
        }
    }
    f->step = 100;
    f->tokens = INT64_C(0x123456789abcdef);
    f->scale = 0.1;
    uint64_t quiet_nan = 0x7ff8000000000abcu;
    memcpy(&f->odd, &quiet_nan, sizeof quiet_nan);
}

/* Marks every element as not loaded. */
static inline void fill_marks(fixture *f)
{
    memset(f->value, 0xa5, sizeof f->value);
}

/* Do the pieces of `got` hold what `saved` has, bit for bit, and is all else still marked? */
static inline bool pieces_match(const fixture *got, const fixture *saved, const char *group)
{
    static const unsigned char mark[4] = {0xa5, 0xa5, 0xa5, 0xa5};
    for (int i = 0; i < TENSORS; i++) {
        bool wanted[LARGEST] = {false};
        bool loaded = strncmp(shapes[i].name, group, strlen(group)) == 0;
        for (int p = 0; p < got->row[i].pieces && loaded; p++) {
            for (int64_t e = 0; e < got->piece[i][p].count; e++) {
                wanted[got->piece[i][p].first + e] = true;
            }
        }
        for (int64_t e = 0; e < elements_of(i); e++) {
            const void *right = wanted[e] ? (const void *)&saved->value[i][e] : mark;
            if (memcmp(&got->value[i][e], right, 4) != 0) {
                return false;
            }
        }
    }
    return true;
}

static inline bool scalars_match(const fixture *got, const fixture *saved)
{
    return got->step == saved->step && got->tokens == saved->tokens &&
           memcmp(&got->scale, &saved->scale, 8) == 0 && memcmp(&got->odd, &saved->odd, 8) == 0;
}

/* --- files ------------------------------------------------------------------------------------ */

typedef struct folder {
    char path[256];
    char file[640]; /* scratch for in_folder */
} folder;

static inline folder folder_new(void)
{
    folder f;
    const char *base = getenv("TMPDIR");
    snprintf(f.path, sizeof f.path, "%s/tutti-ckpt-XXXXXX", base != NULL ? base : "/tmp");
    ck_assert_ptr_nonnull(mkdtemp(f.path));
    return f;
}

static inline const char *in_folder(folder *f, const char *name)
{
    snprintf(f->file, sizeof f->file, "%s/%s", f->path, name);
    return f->file;
}

/* Names in the folder, "." and ".." aside. */
static inline int folder_count(const folder *f)
{
    int count = 0;
    DIR *dir = opendir(f->path);
    ck_assert_ptr_nonnull(dir);
    for (const struct dirent *e = readdir(dir); e != NULL; e = readdir(dir)) {
        count += strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0;
    }
    closedir(dir);
    return count;
}

static inline void folder_free(folder *f)
{
    DIR *dir = opendir(f->path);
    ck_assert_ptr_nonnull(dir);
    for (const struct dirent *e = readdir(dir); e != NULL; e = readdir(dir)) {
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0) {
            ck_assert_int_eq(unlink(in_folder(f, e->d_name)), 0);
        }
    }
    closedir(dir);
    ck_assert_int_eq(rmdir(f->path), 0);
}

/* Whole file, malloc'd. */
static inline unsigned char *slurp(const char *path, int64_t *length)
{
    struct stat stat_of;
    FILE *file = fopen(path, "rb");
    ck_assert_ptr_nonnull(file);
    ck_assert_int_eq(fstat(fileno(file), &stat_of), 0);
    unsigned char *bytes = malloc((size_t)stat_of.st_size + 1);
    ck_assert_uint_eq(fread(bytes, 1, (size_t)stat_of.st_size, file), (size_t)stat_of.st_size);
    fclose(file);
    *length = stat_of.st_size;
    return bytes;
}

static inline void spill(const char *path, const void *bytes, int64_t length)
{
    FILE *file = fopen(path, "wb");
    ck_assert_ptr_nonnull(file);
    ck_assert_uint_eq(fwrite(bytes, 1, (size_t)length, file), (size_t)length);
    ck_assert_int_eq(fclose(file), 0);
}

#endif
