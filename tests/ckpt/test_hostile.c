/* test_hostile.c: checkpoints that are anything at all: a sentence, and nothing is changed; or what
 * was saved. */
#include <hdf5.h>

#include "fuzz/fuzz_state.h"
#include "fuzz/h5_hostile.h"
#include "tutti/base/clock.h"

static int good, refused, loaded;

static void expect(tt_code rc, const tt_err *err)
{
    ck_assert_msg(rc == err->code && (rc == TT_OK) == (err->text[0] == '\0'), "%d %s", rc,
                  err->text);
    good += rc == TT_OK;
    refused += rc != TT_OK;
}

static void read_all(const char *path, unsigned seed)
{
    static fuzz_state now, before;
    tt_text text = {0};
    tt_err err = {TT_OK, ""};
    expect(tt_ckpt_verify(path, &text, &err), &err);
    err = (tt_err){TT_OK, ""};
    expect(tt_ckpt_info(path, &text, &err), &err);
    tt_text_free(&text);
    for (int way = 0; way < 2; way++) { /* all of the state, or weights alone */
        err = (tt_err){TT_OK, ""};
        fuzz_state_make(&now, seed % 2 == 0 ? FUZZ_FEW : FUZZ_MOST);
        before = now;
        const tt_code rc = tt_ckpt_load(NULL, path, &now.state, way == 1, &err);
        expect(rc, &err);
        ck_assert(rc == TT_OK || memcmp(now.value, before.value, sizeof now.value) == 0);
        loaded += rc == TT_OK;
    }
}

START_TEST(anything_at_all)
{
    ck_assert_int_ge(hostile("checkpoint", 120, read_all), 7);
    ck_assert(good > 50 && refused > 500 && loaded > 10);
}
END_TEST

/* HDF5 sorts all names of a group anew for each that is asked for by its number, and lists may be
 * searched in any order: a file of half a megabyte took minutes. */
START_TEST(many_names)
{
    enum { NAMES = 6000 };
    char path[64], name[32];
    tt_text text = {0};
    tt_err err;
    snprintf(path, sizeof path, "/dev/shm/tutti-hostile-%ld", (long)getpid());
    hid_t access = H5Pcreate(H5P_FILE_ACCESS), links = H5Pcreate(H5P_LINK_CREATE);
    hid_t compact = H5Pcreate(H5P_DATASET_CREATE), one = H5Screate(H5S_SCALAR);
    H5Pset_libver_bounds(access, H5F_LIBVER_V18, H5F_LIBVER_V18);
    H5Pset_create_intermediate_group(links, 1);
    H5Pset_layout(compact, H5D_COMPACT);
    hid_t file = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, access), type = H5Tcopy(H5T_C_S1);
    H5Tset_size(type, 18);
    hid_t format = H5Acreate2(file, "format", type, one, H5P_DEFAULT, H5P_DEFAULT);
    H5Awrite(format, type, "tutti-checkpoint-1");
    H5Aclose(format);
    for (int i = 0; i < 2 * NAMES; i++) {
        snprintf(name, sizeof name, i % 2 ? "digests/state/b%d" : "state/a%d", i);
        H5Dclose(H5Dcreate2(file, name, H5T_STD_I64LE, one, links, compact, H5P_DEFAULT));
    }
    H5Tclose(type);
    H5Sclose(one);
    H5Pclose(compact);
    H5Pclose(links);
    H5Pclose(access);
    H5Fclose(file);
    const double start = tt_seconds();
    ck_assert_int_eq(tt_ckpt_verify(path, &text, &err), TT_EWORLD);
    ck_assert_msg(strstr(err.text, "12000 of 12000 digests do not match") != NULL, "%s", err.text);
    ck_assert_double_lt(tt_seconds() - start, 15); /* takes some tenths of one */
    tt_text_free(&text);
    unlink(path);
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("hostile checkpoints");
    TCase *tcase = tcase_create("hostile");
    tcase_add_test(tcase, anything_at_all);
    tcase_add_test(tcase, many_names);
    suite_add_tcase(suite, tcase);
    return suite;
}

TT_TEST_MAIN(make_suite)
