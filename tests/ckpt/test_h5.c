/* test_h5.c: the door to HDF5: boxes of every kind, and what is not there. */
#include <fcntl.h>

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

/* A file with one tensor of these values; *place: where they begin. */
static void tensor_file(const char *path, int dims, const int64_t *dim, const float *value,
                        int64_t *place)
{
    tt_h5 *file = NULL;
    const size_t bytes = (size_t)(dim[0] * (dims > 1 ? dim[1] : 1)) * sizeof *value;
    ck_assert_msg(tt_h5_create(path, path, &file, &err) == TT_OK, "%s", err.text);
    ck_assert_int_eq(tt_h5_make_tensor(file, "params/w", dims, dim, place, &err), TT_OK);
    ck_assert_int_eq(tt_h5_close(&file, &err), TT_OK);
    ck_assert_ptr_null(file);
    const int fd = open(path, O_WRONLY);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(pwrite(fd, value, bytes, *place), (ssize_t)bytes);
    close(fd);
}

/* Elements are in order from the place that making the tensor tells: every range of a 4 x 5 matrix. */
START_TEST(every_range_of_a_matrix)
{
    const int64_t dim[2] = {4, 5};
    float row[20], got[20];
    int64_t place;
    tt_h5 *file = NULL;
    const char *path = in_folder(&dir, "a.h5");
    for (int i = 0; i < 20; i++) {
        row[i] = (float)(i * i) - 7.5f;
    }
    tensor_file(path, 2, dim, row, &place);
    ck_assert_int_eq(tt_h5_open(path, path, &file, &err), TT_OK);
    for (int first = 0; first < 20; first++) {
        for (int count = 0; first + count <= 20; count++) {
            ck_assert_int_eq(tt_h5_read(file, "params/w", first, count, got, &err), TT_OK);
            ck_assert_mem_eq(got, row + first, (size_t)count * sizeof *got);
        }
    }
    ck_assert_int_eq(tt_h5_close(&file, &err), TT_OK);
}
END_TEST

START_TEST(what_is_not_there)
{
    const int64_t dim[2] = {4, 5};
    float row[32] = {0};
    int64_t value, place;
    tt_text text = {0};
    tt_h5 *file = NULL;
    const char *path = in_folder(&dir, "a.h5");
    tensor_file(path, 2, dim, row, &place);
    ck_assert_int_eq(tt_h5_open(path, path, &file, &err), TT_OK);
    ck_assert(tt_h5_exists(file, "params/w"));
    ck_assert(!tt_h5_exists(file, "params/v") && !tt_h5_exists(file, "other/w"));
    ck_assert_int_eq(tt_h5_read(file, "params/v", 0, 1, row, &err), TT_EWORLD);
    ck_assert_ptr_nonnull(strstr(err.text, "params/v cannot be read"));
    ck_assert_int_eq(tt_h5_read(file, "params/w", 15, 10, row, &err), TT_EWORLD);
    ck_assert_int_eq(tt_h5_get(file, "params/w", TT_H5_I64, &value, &err), TT_EWORLD);
    ck_assert_int_eq(tt_h5_get_text(file, "params/w", &text, &err), TT_EUSER);
    ck_assert_int_eq(tt_h5_get_format(file, &text, &err), TT_OK);
    ck_assert_uint_eq(text.length, 0);
    ck_assert_int_eq(tt_h5_close(&file, &err), TT_OK);
    ck_assert_int_eq(tt_h5_close(&file, &err), TT_OK);
}
END_TEST

/* A new file is whole on its disk before HDF5 sees it there: the holes are reserved, the rest is
 * copied. */
START_TEST(part_is_a_copy)
{
    char scratch[TT_SCRATCH_ROOM];
    const int64_t dim[2] = {300, 400};
    int fd;
    int64_t length, place;
    struct stat status;
    tt_h5 *file = NULL;
    ck_assert_int_eq(tt_part_scratch(1 << 20, "a.h5", &fd, scratch, &err), TT_OK);
    ck_assert_msg(tt_h5_create(scratch, "a.h5", &file, &err) == TT_OK, "%s", err.text);
    ck_assert_int_eq(tt_h5_make_tensor(file, "params/w", 2, dim, &place, &err), TT_OK);
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
    tcase_add_test(tc, part_is_a_copy);
    suite_add_tcase(suite, tc);
    return suite;
}

TT_TEST_MAIN(make_suite)
