/* test_h5.c: the door to HDF5: boxes of every kind, and writes that the system refuses. */
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>

#include "ckpt/ckpt_impl.h"

#include "ckpt_test.h"

static folder dir;
static tt_err err;

static void set_up(void)
{
    dir = folder_new();
}

static void tear_down(void)
{
    folder_free(&dir);
}

/* A file with one tensor, open for writing. */
static tt_h5 *tensor_file(const char *path, int dims, const int64_t *dim)
{
    tt_h5 *file = NULL;
    ck_assert_msg(tt_h5_create(path, path, &file, &err) == TT_OK, "%s", err.text);
    ck_assert_int_eq(tt_h5_make_tensor(file, "params/w", dims, dim, &err), TT_OK);
    ck_assert_int_eq(tt_h5_close(&file, &err), TT_OK);
    ck_assert_ptr_null(file);
    ck_assert_int_eq(tt_h5_open_shared(NULL, path, path, &file, &err), TT_OK);
    return file;
}

/* Every range of a 4 x 5 matrix, written and read as itself and as its neighbours. */
START_TEST(every_range_of_a_matrix)
{
    const int64_t dim[2] = {4, 5};
    float row[20], got[20], mine[20];
    tt_h5 *file = tensor_file(in_folder(&dir, "a.h5"), 2, dim);
    for (int first = 0; first < 20; first++) {
        for (int count = 0; first + count <= 20; count++) {
            for (int i = 0; i < 20; i++) {
                row[i] = (float)i;
                mine[i] = (float)(1000 * first + 20 * count + i);
            }
            ck_assert_int_eq(tt_h5_write(file, "params/w", 0, 20, row, &err), TT_OK);
            ck_assert_int_eq(tt_h5_write(file, "params/w", first, count, mine, &err), TT_OK);
            memcpy(row + first, mine, (size_t)count * sizeof *row);
            ck_assert_int_eq(tt_h5_read(file, "params/w", 0, 20, got, &err), TT_OK);
            ck_assert_mem_eq(got, row, sizeof row);
            ck_assert_int_eq(tt_h5_read(file, "params/w", first, count, got, &err), TT_OK);
            ck_assert_mem_eq(got, mine, (size_t)count * sizeof *got);
        }
    }
    ck_assert_int_eq(tt_h5_close(&file, &err), TT_OK);
}
END_TEST

START_TEST(what_is_not_there)
{
    const int64_t dim[2] = {4, 5};
    float row[32] = {0};
    int64_t value;
    tt_text text = {0};
    tt_h5 *file = tensor_file(in_folder(&dir, "a.h5"), 2, dim);
    ck_assert(tt_h5_exists(file, "params/w"));
    ck_assert(!tt_h5_exists(file, "params/v") && !tt_h5_exists(file, "other/w"));
    ck_assert_int_eq(tt_h5_read(file, "params/v", 0, 1, row, &err), TT_EWORLD);
    ck_assert_ptr_nonnull(strstr(err.text, "params/v cannot be read"));
    ck_assert_int_eq(tt_h5_read(file, "params/w", 15, 10, row, &err), TT_EWORLD);
    ck_assert_int_eq(tt_h5_write(file, "params/w", 15, 10, row, &err), TT_EWORLD);
    ck_assert_int_eq(tt_h5_get(file, "params/w", TT_H5_I64, &value, &err), TT_EWORLD);
    ck_assert_int_eq(tt_h5_get_text(file, "params/w", &text, &err), TT_EUSER);
    ck_assert_int_eq(tt_h5_get_format(file, &text, &err), TT_OK);
    ck_assert_uint_eq(text.length, 0);
    ck_assert_int_eq(tt_h5_close(&file, &err), TT_OK);
    ck_assert_int_eq(tt_h5_close(&file, &err), TT_OK);
}
END_TEST

/* Elements that the system refuses to write: a sentence with its reason, and a file that closes. */
START_TEST(write_refused_by_the_system)
{
    enum { N = 100000 };
    const int64_t dim[2] = {N, 1};
    struct rlimit before, limit;
    float *value = calloc(N, sizeof *value), back = 1;
    void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
    for (int64_t first = 0; first < N; first += N - 7) { /* a large write, and a small one */
        tt_h5 *file = tensor_file(in_folder(&dir, "a.h5"), 1, dim);
        ck_assert_int_eq(getrlimit(RLIMIT_FSIZE, &before), 0);
        limit = before;
        limit.rlim_cur = 8192;
        int set = setrlimit(RLIMIT_FSIZE, &limit); /* no asserts under it: Check writes files too */
        tt_code wrote = tt_h5_write(file, "params/w", first, N - first, value, &err);
        tt_code closed = tt_h5_close(&file, &err);
        set |= setrlimit(RLIMIT_FSIZE, &before);
        ck_assert_int_eq(set, 0);
        ck_assert_int_eq(wrote, TT_EWORLD);
        ck_assert_msg(strstr(err.text, "a.h5: File too large") != NULL, "%s", err.text);
        ck_assert_int_eq(closed, TT_OK);
        ck_assert_int_eq(tt_h5_open(in_folder(&dir, "a.h5"), "a.h5", &file, &err), TT_OK);
        ck_assert_int_eq(tt_h5_read(file, "params/w", N - 1, 1, &back, &err), TT_OK);
        ck_assert_int_eq(tt_h5_close(&file, &err), TT_OK);
    }
    signal(SIGXFSZ, handler);
    free(value);
}
END_TEST

/* A new file is whole on its disk before HDF5 sees it there: the holes are reserved, the rest is
 * copied. */
START_TEST(part_is_a_copy)
{
    char scratch[TT_SCRATCH_ROOM];
    const int64_t dim[2] = {300, 400};
    int fd;
    int64_t length;
    struct stat status;
    tt_h5 *file = NULL;
    ck_assert_int_eq(tt_part_scratch(1 << 20, "a.h5", &fd, scratch, &err), TT_OK);
    ck_assert_msg(tt_h5_create(scratch, "a.h5", &file, &err) == TT_OK, "%s", err.text);
    ck_assert_int_eq(tt_h5_make_tensor(file, "params/w", 2, dim, &err), TT_OK);
    ck_assert_int_eq(tt_h5_close(&file, &err), TT_OK);
    const char *path = in_folder(&dir, "a.h5");
    spill(path, "something longer than nothing", 29);
    ck_assert_int_eq(tt_part_copy(fd, path, path, &err), TT_OK);
    unsigned char *bytes = slurp(path, &length);
    ck_assert_int_eq(fstat(fd, &status), 0);
    ck_assert_int_eq(length, status.st_size);
    ck_assert_int_lt(status.st_blocks * 512, 100000); /* a hole where the elements will be */
    unsigned char *memory = calloc(1, (size_t)length);
    ck_assert_int_eq(pread(fd, memory, (size_t)length, 0), length);
    ck_assert_mem_eq(memory, bytes, (size_t)length);
    close(fd);
    free(memory);
    free(bytes);
    ck_assert_int_eq(tt_part_copy(-1, path, path, &err), TT_EWORLD);
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("ckpt hdf5");
    TCase *tc = tcase_create("h5");
    tcase_add_checked_fixture(tc, set_up, tear_down);
    tcase_add_test(tc, every_range_of_a_matrix);
    tcase_add_test(tc, what_is_not_there);
    tcase_add_test(tc, write_refused_by_the_system);
    tcase_add_test(tc, part_is_a_copy);
    suite_add_tcase(suite, tc);
    return suite;
}

TT_TEST_MAIN(make_suite)
