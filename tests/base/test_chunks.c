/* test_chunks.c: a scratch file reads as it was written and leaves nothing, and chunks behave as the
 * arrays they stand for, whoever reads and writes in whatever order. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tutti/base/chunks.h"
#include "tutti/base/memory.h"
#include "tutti/base/scratch.h"

#include "tt_test.h"

enum { UNIT = TT_SCRATCH_UNIT };

static char folder[256], path[300];

static void open_folder(void)
{
    const char *base = getenv("TMPDIR");
    snprintf(folder, sizeof folder, "%s/tutti-chunks-XXXXXX", base ? base : "/tmp");
    ck_assert_ptr_nonnull(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/scratch", folder);
}

static void close_folder(void)
{
    ck_assert_int_eq(rmdir(folder), 0); /* which must be empty */
}

static unsigned char *aligned(size_t bytes)
{
    void *memory = NULL;
    ck_assert_int_eq(posix_memalign(&memory, UNIT, bytes), 0);
    return memory;
}

/* _i: around the page cache, where that can be, and through it. */
START_TEST(a_scratch_file)
{
    enum { UNITS = 40 };
    tt_scratch s;
    tt_err err = {TT_OK, ""};
    unsigned char *in = aligned(UNITS * UNIT), *out = aligned(UNITS * UNIT);
    ck_assert_msg(tt_scratch_open(&s, path, UNITS * UNIT, _i == 0, &err) == TT_OK, "%s", err.text);
    ck_assert(_i == 0 || !s.direct);
    ck_assert(access(path, F_OK) != 0); /* it has no name */
    struct stat info;
    ck_assert_int_eq(fstat(s.fd, &info), 0);
    ck_assert_int_eq(info.st_size, UNITS * UNIT);
    ck_assert_int_ge(info.st_blocks * 512, UNITS * UNIT); /* and its space */
    ck_assert_int_eq(info.st_mode & 0777, 0600);
    memset(out, 1, UNITS * UNIT);
    ck_assert_int_eq(tt_scratch_read(&s, out, UNITS * UNIT, 0, &err), TT_OK);
    for (int i = 0; i < UNITS * UNIT; i++) {
        in[i] = (unsigned char)(i * 7 + i / UNIT);
        ck_assert_uint_eq(out[i], 0);
    }
    ck_assert_int_eq(tt_scratch_write(&s, in, 30 * UNIT, 10 * UNIT, &err), TT_OK);
    ck_assert_int_eq(tt_scratch_write(&s, in + 30 * UNIT, 10 * UNIT, 0, &err), TT_OK);
    ck_assert_int_eq(tt_scratch_read(&s, out, UNITS * UNIT, 0, &err), TT_OK);
    ck_assert_mem_eq(out, in + 30 * UNIT, 10 * UNIT);
    ck_assert_mem_eq(out + 10 * UNIT, in, 30 * UNIT);
    /* Beyond the end there is nothing to read. */
    ck_assert_int_eq(tt_scratch_read(&s, out, 2 * UNIT, 39 * UNIT, &err), TT_EWORLD);
    ck_assert_ptr_nonnull(strstr(err.text, "cannot read 8.0 KiB at 156.0 KiB of "));
    ck_assert_ptr_nonnull(strstr(err.text, path));
    tt_scratch_close(&s);
    tt_scratch_close(&s);
    free(in), free(out);
}
END_TEST

START_TEST(a_file_that_cannot_be)
{
    tt_scratch s;
    tt_err err = {TT_OK, ""};
    struct rlimit before, low;
    char missing[400];
    snprintf(missing, sizeof missing, "%s/no/file", folder);
    ck_assert_int_eq(tt_scratch_open(&s, missing, UNIT, true, &err), TT_EWORLD);
    ck_assert_ptr_nonnull(strstr(err.text, missing));
    ck_assert_ptr_nonnull(strstr(err.text, "No such file or directory"));
    /* What is there is somebody else's. */
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL, 0600);
    ck_assert_int_ge(fd, 0);
    close(fd);
    ck_assert_int_eq(tt_scratch_open(&s, path, UNIT, true, &err), TT_EWORLD);
    ck_assert_ptr_nonnull(strstr(err.text, "File exists"));
    ck_assert_int_eq(unlink(path), 0);
    /* The limit on file sizes is a sentence, not a signal, and leaves nothing. */
    ck_assert_int_eq(getrlimit(RLIMIT_FSIZE, &before), 0);
    low = before;
    low.rlim_cur = 4 * UNIT;
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &low), 0);
    ck_assert_int_eq(tt_scratch_open(&s, path, 5 * UNIT, true, &err), TT_EWORLD);
    ck_assert_ptr_nonnull(strstr(err.text, "20.0 KiB: File too large"));
    ck_assert_int_eq(tt_scratch_open(&s, path, 4 * UNIT, true, &err), TT_OK);
    tt_scratch_close(&s);
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &before), 0);
    /* More than any disk has. */
    ck_assert_int_eq(tt_scratch_open(&s, path, INT64_C(1) << 50, true, &err), TT_EWORLD);
    ck_assert_ptr_nonnull(strstr(err.text, " of 1.0 PiB: "));
    ck_assert(access(path, F_OK) != 0);
}
END_TEST

/* --- chunks ----------------------------------------------------------------------------------- */

/* A part of two units, none, one of one. */
static const tt_chunking layout = {.count = 11, .part = {2 * UNIT, 0, UNIT}, .slots = 3};
enum { PARTS = TT_CHUNK_PARTS };

typedef struct world {
    tt_chunks *chunks;
    void *memory;
    unsigned char *want[PARTS]; /* what the parts must read as */
} world;

static void world_open(world *w)
{
    tt_err err = {TT_OK, ""};
    w->memory = aligned(tt_chunking_memory(&layout));
    memset(w->memory, 0xee, tt_chunking_memory(&layout));
    for (int p = 0; p < PARTS; p++) {
        w->want[p] = calloc((size_t)(layout.count * layout.part[p]) + 1, 1);
        ck_assert_ptr_nonnull(w->want[p]);
    }
    ck_assert_msg(tt_chunks_open(&w->chunks, &layout, path, true, w->memory, &err) == TT_OK, "%s",
                  err.text);
}

static void world_close(world *w)
{
    tt_chunks_close(w->chunks);
    free(w->memory);
    for (int p = 0; p < PARTS; p++) {
        free(w->want[p]);
    }
}

static unsigned draw(unsigned *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

static void check_whole(world *w)
{
    for (int p = 0; p < PARTS; p++) {
        const int64_t bytes = layout.count * layout.part[p];
        unsigned char *got = malloc((size_t)bytes + 1);
        tt_chunks_get(w->chunks, p, 0, bytes, got);
        ck_assert_mem_eq(got, w->want[p], (size_t)bytes);
        free(got);
    }
}

/* Walks in order, as an update does, with reads and writes of any range between them. */
START_TEST(chunks_are_arrays)
{
    world w;
    tt_err err = {TT_OK, ""};
    unsigned state = 1;
    world_open(&w);
    check_whole(&w);
    for (int round = 0; round < 6; round++) {
        for (int64_t c = 0; c < layout.count; c++) {
            unsigned char *data = tt_chunks_hold(w.chunks, c, TT_CHUNK_ALL);
            ck_assert_ptr_nonnull(data);
            ck_assert_uint_eq((uintptr_t)data % UNIT, 0);
            for (int p = 0; p < PARTS; p++) {
                unsigned char *want = w.want[p] + c * layout.part[p];
                ck_assert_mem_eq(data, want, (size_t)layout.part[p]);
                for (int64_t i = 0; i < layout.part[p]; i++) {
                    data[i] = want[i] = (unsigned char)(want[i] * 3 + c + i + round);
                }
                data += layout.part[p];
            }
            const int64_t next = c + layout.slots;
            tt_chunks_release(w.chunks, c, TT_CHUNK_ALL,
                              next < layout.count ? next : c % layout.slots);
        }
        for (int i = 0; i < 40; i++) {
            const int p = draw(&state) % 2 == 0 ? 0 : 2;
            const int64_t all = layout.count * layout.part[p], first = draw(&state) % all;
            const int64_t bytes = draw(&state) % (all - first) % (5 * UNIT) + 1;
            unsigned char some[5 * UNIT];
            if (i % 3 == 0) {
                memset(w.want[p] + first, i + round, (size_t)bytes);
                tt_chunks_put(w.chunks, p, first, bytes, w.want[p] + first);
            } else {
                tt_chunks_get(w.chunks, p, first, bytes, some);
                ck_assert_mem_eq(some, w.want[p] + first, (size_t)bytes);
            }
        }
        tt_chunks_want(w.chunks, round, TT_CHUNK_ALL);
    }
    check_whole(&w);
    ck_assert_int_eq(tt_chunks_check(w.chunks, &err), TT_OK);
    world_close(&w);
}
END_TEST

/* More threads than slots, each with places of its own, far apart: nobody waits for ever. */
START_TEST(threads_share_the_slots)
{
    enum { THREADS = 6, SOME = 100 };
    world w;
    int wrong = 0;
    world_open(&w);
    const int64_t all = layout.count * layout.part[0], share = all / THREADS;
#pragma omp parallel for num_threads(THREADS) schedule(static, 1)
    for (int t = 0; t < THREADS; t++) {
        for (int64_t at = t * share; at < (t + 1) * share; at += SOME) {
            const int64_t bytes = SOME < (t + 1) * share - at ? SOME : (t + 1) * share - at;
            memset(w.want[0] + at, (int)(at / SOME * 5 + 1), (size_t)bytes);
            tt_chunks_put(w.chunks, 0, at, bytes, w.want[0] + at);
        }
    }
    check_whole(&w);
#pragma omp parallel for num_threads(THREADS) schedule(static, 1) reduction(+ : wrong)
    for (int t = 0; t < THREADS; t++) {
        unsigned char got[SOME];
        for (int64_t at = (t + 1) * share - SOME; at >= t * share; at -= SOME) {
            tt_chunks_get(w.chunks, 0, at, SOME, got);
            wrong += memcmp(got, w.want[0] + at, SOME) != 0;
        }
    }
    ck_assert_int_eq(wrong, 0);
    world_close(&w);
}
END_TEST

/* A failure is remembered, and nobody waits for what cannot come. */
START_TEST(a_transfer_that_fails)
{
    world w;
    tt_err err = {TT_OK, ""};
    unsigned char got[UNIT];
    world_open(&w);
    check_whole(&w);
    tt_chunks_spoil(w.chunks);
    for (int64_t c = 0; c < layout.count; c++) {
        tt_chunks_want(w.chunks, c, TT_CHUNK_ALL);
        tt_chunks_get(w.chunks, 0, c * layout.part[0], UNIT, got);
        tt_chunks_put(w.chunks, 2, c * layout.part[2], UNIT, got);
    }
    ck_assert_ptr_null(tt_chunks_hold(w.chunks, 0, TT_CHUNK_ALL));
    ck_assert_int_eq(tt_chunks_check(w.chunks, &err), TT_EWORLD);
    ck_assert_ptr_nonnull(strstr(err.text, path));
    world_close(&w);
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("base/chunks");
    TCase *tests = tcase_create("chunks");
    tcase_add_checked_fixture(tests, open_folder, close_folder);
    tcase_add_loop_test(tests, a_scratch_file, 0, 2);
    tcase_add_test(tests, a_file_that_cannot_be);
    tcase_add_test(tests, chunks_are_arrays);
    tcase_add_test(tests, threads_share_the_slots);
    tcase_add_test(tests, a_transfer_that_fails);
    suite_add_tcase(suite, tests);
    return suite;
}

TT_TEST_MAIN(make_suite)
