/* data_test.h: what the tests of this layer share: a folder of their own, small files, token files
 * built from strings, and bytes changed on purpose. Helpers abort the test when the system fails. */
#ifndef TT_DATA_TEST_H
#define TT_DATA_TEST_H

#include <ftw.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tt_test.h"
#include "tutti/data/batch.h"
#include "tutti/data/tokenizer.h"
#include "tutti/data/tokens.h"

enum { DIR_MAX = 256, PATH_MAX_ = 512 };

static char test_dir[DIR_MAX]; /* absolute, made by open_dir, removed by close_dir */

static inline void open_dir(void)
{
    const char *base = getenv("TMPDIR");
    snprintf(test_dir, sizeof test_dir, "%s/tutti-data-XXXXXX", base ? base : "/tmp");
    ck_assert_ptr_nonnull(mkdtemp(test_dir));
}

static inline int remove_entry(const char *path, const struct stat *s, int kind, struct FTW *ftw)
{
    (void)s, (void)kind, (void)ftw;
    return remove(path);
}

static inline void close_dir(void)
{
    ck_assert_int_eq(nftw(test_dir, remove_entry, 16, FTW_DEPTH | FTW_PHYS), 0);
}

/* The path of a name in the test's folder, in one of eight static buffers that take turns. */
static inline char *in_dir(const char *name)
{
    static char paths[8][PATH_MAX_];
    static int turn;
    char *path = paths[turn++ % 8];
    snprintf(path, PATH_MAX_, "%s/%s", test_dir, name);
    return path;
}

static inline void put_bytes(const char *name, const void *bytes, size_t length)
{
    FILE *f = fopen(in_dir(name), "wb");
    ck_assert_ptr_nonnull(f);
    ck_assert_uint_eq(fwrite(bytes, 1, length, f), length);
    ck_assert_int_eq(fclose(f), 0);
}

static inline void put(const char *name, const char *text)
{
    put_bytes(name, text, strlen(text));
}

static inline void make_dir(const char *name)
{
    ck_assert_int_eq(mkdir(in_dir(name), 0777), 0);
}

static inline bool exists(const char *name)
{
    struct stat s;
    return lstat(in_dir(name), &s) == 0;
}

/* The bytes of a file, owned by the caller. */
static inline unsigned char *get_bytes(const char *name, size_t *length)
{
    FILE *f = fopen(in_dir(name), "rb");
    ck_assert_ptr_nonnull(f);
    fseek(f, 0, SEEK_END);
    *length = (size_t)ftell(f);
    rewind(f);
    unsigned char *bytes = malloc(*length + 1);
    ck_assert_ptr_nonnull(bytes);
    ck_assert_uint_eq(fread(bytes, 1, *length, f), *length);
    bytes[*length] = 0;
    fclose(f);
    return bytes;
}

/* Changes the only place where a file holds `length` bytes `from` into `to`. */
static inline void patch(const char *name, const void *from, const void *to, size_t length)
{
    size_t total;
    unsigned char *bytes = get_bytes(name, &total);
    unsigned char *at = memmem(bytes, total, from, length);
    ck_assert_msg(at != NULL, "%s does not hold the bytes to change", name);
    ck_assert_ptr_null(memmem(at + 1, total - (size_t)(at + 1 - bytes), from, length));
    memcpy(at, to, length);
    put_bytes(name, bytes, total);
    free(bytes);
}

/* Builds `name` from up to eight inputs of the test's folder. */
static inline tt_code build(const char *name, double valid, uint64_t seed, int inputs,
                            const char *const *input, tt_tokens_summary *summary, tt_err *err)
{
    char *paths[8], out[PATH_MAX_];
    ck_assert_int_le(inputs, 8);
    for (int i = 0; i < inputs; i++) {
        paths[i] = strdup(in_dir(input[i]));
    }
    snprintf(out, sizeof out, "%s", in_dir(name));
    tt_tokens_build b = {.out = out,
                         .tokenizer = "bytes",
                         .valid_fraction = valid,
                         .seed = seed,
                         .inputs = inputs,
                         .input = paths};
    tt_tokens_summary unused;
    tt_code rc = tt_tokens_build_file(&b, summary ? summary : &unused, err);
    for (int i = 0; i < inputs; i++) {
        free(paths[i]);
    }
    return rc;
}

/* Builds a token file from a folder "corpus" that it makes, one document per string. */
static inline void build_documents(const char *name, double valid, int documents,
                                   const char *const *text)
{
    tt_err err = {0};
    char file[64];
    make_dir("corpus");
    for (int i = 0; i < documents; i++) {
        snprintf(file, sizeof file, "corpus/%04d.txt", i);
        put(file, text[i]);
    }
    const char *input[] = {"corpus"};
    ck_assert_msg(build(name, valid, 1, 1, input, NULL, &err) == TT_OK, "%s", err.text);
}

static inline tt_tokens *open_tokens(const char *name, bool valid)
{
    tt_err err = {0};
    tt_tokens *tokens = NULL;
    ck_assert_msg(tt_tokens_open(&tokens, in_dir(name), valid, &err) == TT_OK, "%s", err.text);
    return tokens;
}

#define expect_error(call, wanted, words)                                                     \
    do {                                                                                      \
        err = (tt_err){0};                                                                    \
        tt_code got_ = (call);                                                                \
        ck_assert_msg(got_ == (wanted) && err.code == got_, "code %d: %s", got_, err.text);   \
        ck_assert_msg(strstr(err.text, words) != NULL, "\"%s\" not in: %s", words, err.text); \
    } while (0)

#endif
