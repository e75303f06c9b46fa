/* test_foreign.c: HDF5 files that others made: some carry parameters, some carry anything. Written
 * with HDF5 itself, in its oldest format, as h5py writes. */
#include <hdf5.h>
#include <inttypes.h>

#include "ckpt_test.h"
#include "tutti/numerics/digest.h"

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

/* A dataset of `dims` dimensions; value is of the memory type `have`, stored as `type`. chunk 0:
 * contiguous, else rows per chunk, compressed. */
static void put(hid_t file, const char *path, hid_t type, hid_t have, int dims, const hsize_t *dim,
                const void *value, hsize_t chunk)
{
    hid_t links = H5Pcreate(H5P_LINK_CREATE), list = H5Pcreate(H5P_DATASET_CREATE);
    hid_t space = dims > 0 ? H5Screate_simple(dims, dim, NULL) : H5Screate(H5S_SCALAR);
    H5Pset_create_intermediate_group(links, 1);
    if (chunk > 0) {
        hsize_t size[3] = {chunk, dims > 1 ? dim[1] : 1, dims > 2 ? dim[2] : 1};
        H5Pset_chunk(list, dims, size);
        H5Pset_shuffle(list);
    }
    hid_t set = H5Dcreate2(file, path, type, space, links, list, H5P_DEFAULT);
    ck_assert_int_ge(set, 0);
    ck_assert_int_ge(H5Dwrite(set, have, H5S_ALL, H5S_ALL, H5P_DEFAULT, value), 0);
    H5Dclose(set);
    H5Sclose(space);
    H5Pclose(list);
    H5Pclose(links);
}

static hid_t new_file(const char *path)
{
    hid_t file = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    ck_assert_int_ge(file, 0);
    return file;
}

static const hsize_t w_dim[2] = {3, 4}, b_dim[1] = {3};
static const float w_value[12] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
static const double b_value[3] = {0.5, -0.25, 1024};

/* What the model wants: w [3,4], b [3], and moments that such files lack. */
typedef struct wants {
    float w[12], b[3], m[12];
    tt_piece piece[3];
    tt_tensor_row row[3];
    tt_scalar_row scalar;
    int64_t step;
    tt_state state;
} wants;

static void want(wants *x)
{
    memset(x, 0, sizeof *x);
    x->piece[0] = (tt_piece){.count = 12, .data = x->w};
    x->piece[1] = (tt_piece){.count = 3, .data = x->b};
    x->piece[2] = (tt_piece){.count = 12, .data = x->m};
    x->row[0] = (tt_tensor_row){"params/w", 2, {3, 4}, 1, &x->piece[0]};
    x->row[1] = (tt_tensor_row){"params/b", 1, {3, 0}, 1, &x->piece[1]};
    x->row[2] = (tt_tensor_row){"adam_m/w", 2, {3, 4}, 1, &x->piece[2]};
    x->scalar = (tt_scalar_row){.name = "step", .i64 = &x->step};
    x->state = (tt_state){.tensors = 3, .scalars = 1, .tensor = x->row, .scalar = &x->scalar};
}

static tt_code load_params(const char *path, wants *x)
{
    want(x);
    return tt_ckpt_load(NULL, path, &x->state, true, &err);
}

START_TEST(parameters_from_elsewhere)
{
    const char *path = in_folder(&dir, "made.h5");
    wants x;
    for (hsize_t chunk = 0; chunk < 3; chunk++) {
        hid_t file = new_file(path);
        put(file, "params/w", chunk == 1 ? H5T_IEEE_F32BE : H5T_IEEE_F32LE, H5T_NATIVE_FLOAT, 2,
            w_dim, w_value, chunk);
        put(file, "params/b", H5T_IEEE_F64LE, H5T_NATIVE_DOUBLE, 1, b_dim, b_value, chunk);
        put(file, "notes/loss", H5T_IEEE_F64LE, H5T_NATIVE_DOUBLE, 1, b_dim, b_value, 0);
        H5Fclose(file);
        ck_assert_msg(load_params(path, &x) == TT_OK, "%s", err.text);
        ck_assert_mem_eq(x.w, w_value, sizeof w_value);
        for (int i = 0; i < 3; i++) {
            ck_assert(x.b[i] == (float)b_value[i]);
        }
        /* As a checkpoint to resume from it will not do. */
        ck_assert_int_eq(tt_ckpt_load(NULL, path, &x.state, false, &err), TT_EUSER);
        ck_assert_ptr_nonnull(strstr(err.text, "made.h5 is not a checkpoint: it has no format"));
    }
}
END_TEST

START_TEST(parameters_that_do_not_fit)
{
    const char *path = in_folder(&dir, "made.h5");
    const int whole[12] = {1};
    wants x;
    hid_t file = new_file(path);
    put(file, "weights/w", H5T_IEEE_F32LE, H5T_NATIVE_FLOAT, 2, w_dim, w_value, 0);
    H5Fclose(file);
    ck_assert_int_eq(load_params(path, &x), TT_EUSER);
    ck_assert_ptr_nonnull(strstr(err.text, "it has no group /params"));

    file = new_file(path);
    put(file, "params/w", H5T_STD_I32LE, H5T_NATIVE_INT, 2, w_dim, whole, 0);
    put(file, "params/b", H5T_IEEE_F32LE, H5T_NATIVE_FLOAT, 1, b_dim, w_value, 0);
    H5Fclose(file);
    ck_assert_int_eq(load_params(path, &x), TT_EUSER);
    ck_assert_msg(strstr(err.text, "params/w in ") != NULL, "%s", err.text);
    ck_assert_ptr_nonnull(strstr(err.text, "floating-point"));

    file = new_file(path);
    put(file, "params/w", H5T_IEEE_F32LE, H5T_NATIVE_FLOAT, 2, w_dim, w_value, 0);
    H5Fclose(file);
    ck_assert_int_eq(load_params(path, &x), TT_EUSER);
    ck_assert_ptr_nonnull(strstr(err.text, "made.h5 lacks params/b"));

    file = new_file(path);
    const hsize_t cube[3] = {3, 2, 2};
    put(file, "params/w", H5T_IEEE_F32LE, H5T_NATIVE_FLOAT, 3, cube, w_value, 0);
    put(file, "params/b", H5T_IEEE_F32LE, H5T_NATIVE_FLOAT, 1, b_dim, w_value, 0);
    H5Fclose(file);
    ck_assert_int_eq(load_params(path, &x), TT_EUSER);
    ck_assert_msg(strstr(err.text, "params/w is [3,2,...] in") != NULL, "%s", err.text);

    file = new_file(path);
    put(file, "params/w", H5T_IEEE_F32LE, H5T_NATIVE_FLOAT, 2, w_dim, w_value, 0);
    put(file, "params/b", H5T_IEEE_F32LE, H5T_NATIVE_FLOAT, 1, b_dim, w_value, 0);
    put(file, "params/c", H5T_IEEE_F32LE, H5T_NATIVE_FLOAT, 1, b_dim, w_value, 0);
    H5Fclose(file);
    ck_assert_int_eq(load_params(path, &x), TT_EUSER);
    ck_assert_ptr_nonnull(strstr(err.text, "has params/c, which this model lacks"));
}
END_TEST

/* Where a foreign file has digests they count. */
START_TEST(digests_of_elsewhere)
{
    const char *path = in_folder(&dir, "made.h5");
    const uint64_t wrong = 1;
    wants x;
    hid_t file = new_file(path);
    put(file, "params/w", H5T_IEEE_F32LE, H5T_NATIVE_FLOAT, 2, w_dim, w_value, 0);
    put(file, "params/b", H5T_IEEE_F32LE, H5T_NATIVE_FLOAT, 1, b_dim, w_value, 0);
    put(file, "digests/params/w", H5T_STD_U64LE, H5T_NATIVE_UINT64, 0, NULL, &wrong, 0);
    H5Fclose(file);
    ck_assert_int_eq(load_params(path, &x), TT_EWORLD);
    ck_assert_ptr_nonnull(strstr(err.text, "params/w does not match its digest"));
}
END_TEST

static void delete_link(const char *path, const char *link)
{
    hid_t file = H5Fopen(path, H5F_ACC_RDWR, H5P_DEFAULT);
    ck_assert_int_ge(file, 0);
    ck_assert_int_ge(H5Ldelete(file, link, H5P_DEFAULT), 0);
    H5Fclose(file);
}

/* A checkpoint of nine tensors, from which somebody deletes `link`. */
static void checkpoint_without(const char *path, const fixture *f, const char *link)
{
    ck_assert_int_eq(tt_ckpt_save(NULL, path, &f->state, NULL, 0, &err), TT_OK);
    delete_link(path, link);
}

/* A digest without its dataset is a loss that all who read the file see. */
START_TEST(lost_datasets)
{
    static const struct {
        const char *link, *first;
        int lost;
    } cases[] = {
        {"adam_m", "adam_m/wte", 2},     {"adam_v/h.0.mlp.fc.bias", "adam_v/h.0.mlp.fc.bias", 1},
        {"params/one", "params/one", 1}, {"state", "state/step", SCALARS},
        {"state/odd", "state/odd", 1},   {"config", "config", 1}};
    fixture *f = fixture_new(CUT_WHOLE, 0, 1);
    const char *path = in_folder(&dir, "step-1.h5");
    fill_values(f, 3);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char words[128], *latest = NULL;
        tt_text out = {0}, skipped = {0};
        bool of_params = strncmp(cases[i].link, "params", 6) == 0;
        checkpoint_without(path, f, cases[i].link);
        snprintf(words, sizeof words, "%s is missing", cases[i].first);
        ck_assert_int_eq(tt_ckpt_verify(path, &out, &err), TT_EWORLD);
        ck_assert_msg(strstr(out.data, words) != NULL, "%s", out.data);
        snprintf(words, sizeof words, "%d of 18 digests do not match", cases[i].lost);
        ck_assert_msg(strstr(err.text, words) != NULL, "%s", err.text);

        snprintf(words, sizeof words, "damaged: %s is missing", cases[i].first);
        ck_assert_int_eq(tt_ckpt_load(NULL, path, &f->state, false, &err), TT_EWORLD);
        ck_assert_msg(strstr(err.text, words) != NULL, "%s", err.text);
        ck_assert_int_eq(tt_ckpt_load(NULL, path, &f->state, true, &err),
                         of_params ? TT_EWORLD : TT_OK);
        ck_assert_int_eq(tt_ckpt_latest(NULL, dir.path, NULL, &latest, &skipped, &err), TT_OK);
        ck_assert_ptr_null(latest);
        ck_assert_msg(strstr(skipped.data, words) != NULL, "%s", skipped.data);
        tt_text_free(&skipped);
        tt_text_free(&out);
    }
    tt_text config = {0};
    ck_assert_int_eq(tt_ckpt_texts(path, &config, NULL, &err), TT_EWORLD);
    ck_assert_ptr_nonnull(strstr(err.text, "damaged: config is missing"));
    tt_text_free(&config);
    free(f);
}
END_TEST

/* Files of version 0.1 have no digests of groups and no arithmetic: they load, are whole, and compare
 * with files that have them. */
START_TEST(files_before_group_digests)
{
    char old[640];
    fixture *f = fixture_new(CUT_WHOLE, 0, 1);
    tt_text out = {0}, arithmetic = {0};
    tt_group_diff group[4];
    tt_first_diff first;
    bool same = false;
    int groups;
    fill_values(f, 3);
    snprintf(old, sizeof old, "%s", in_folder(&dir, "step-1.h5"));
    checkpoint_without(old, f, "group_digests");
    delete_link(old, "digests/group_digests");
    ck_assert_msg(tt_ckpt_load(NULL, old, &f->state, false, &err) == TT_OK, "%s", err.text);
    ck_assert_msg(tt_ckpt_arithmetic(old, &arithmetic, &err) == TT_OK, "%s", err.text);
    ck_assert_uint_eq(arithmetic.length, 0);
    ck_assert_msg(tt_ckpt_verify(old, &out, &err) == TT_OK, "%s", err.text);
    f->state.arithmetic = "by hand";
    const char *path = in_folder(&dir, "step-2.h5");
    ck_assert_int_eq(tt_ckpt_save(NULL, path, &f->state, NULL, 0, &err), TT_OK);
    ck_assert_int_eq(tt_ckpt_arithmetic(path, &arithmetic, &err), TT_OK);
    ck_assert_str_eq(arithmetic.data, "by hand");
    ck_assert_int_eq(tt_ckpt_diff(old, path, &same, group, 4, &groups, &first, &err), TT_OK);
    ck_assert(same && groups == 4);
    checkpoint_without(path, f, "arithmetic");
    ck_assert_int_eq(tt_ckpt_arithmetic(path, &arithmetic, &err), TT_EWORLD);
    ck_assert_ptr_nonnull(strstr(err.text, "damaged: arithmetic is missing"));
    /* Something else in its place is damage too, which a resume passes over. */
    hid_t file = H5Fopen(path, H5F_ACC_RDWR, H5P_DEFAULT);
    const int32_t two[2] = {1, 2};
    const hsize_t dim[1] = {2};
    put(file, "arithmetic", H5T_STD_I32LE, H5T_NATIVE_INT32, 1, dim, two, 0);
    H5Fclose(file);
    ck_assert_int_eq(tt_ckpt_arithmetic(path, &arithmetic, &err), TT_EWORLD);
    ck_assert_msg(strstr(err.text, "damaged: /arithmetic is not a text") != NULL, "%s", err.text);
    tt_text_free(&arithmetic);
    tt_text_free(&out);
    free(f);
}
END_TEST

/* Replaces a stored digest. */
static void put_digest(const char *path, const char *name, uint64_t value)
{
    hid_t file = H5Fopen(path, H5F_ACC_RDWR, H5P_DEFAULT);
    hid_t set = H5Dopen2(file, name, H5P_DEFAULT);
    ck_assert_int_ge(H5Dwrite(set, H5T_NATIVE_UINT64, H5S_ALL, H5S_ALL, H5P_DEFAULT, &value), 0);
    H5Dclose(set);
    H5Fclose(file);
}

/* A group's digest is that of its tensors' digests in the order of the table, and is held to it. */
START_TEST(digests_of_groups)
{
    const char *path = in_folder(&dir, "step-1.h5");
    fixture *f = fixture_new(CUT_WHOLE, 0, 1);
    tt_text out = {0};
    char words[64];
    uint64_t sum[TENSORS];
    fill_values(f, 3);
    for (int i = 0; i < 5; i++) { /* params come first */
        sum[i] = tt_digest32(f->value[i], 0, elements_of(i));
    }
    const uint64_t params = tt_digest_bytes(sum, 5 * sizeof *sum), wrong = params ^ 1;
    ck_assert_int_eq(tt_ckpt_save(NULL, path, &f->state, NULL, 0, &err), TT_OK);
    ck_assert_int_eq(tt_ckpt_info(path, &out, &err), TT_OK);
    snprintf(words, sizeof words, "\ngroup_digests/params     %016" PRIx64 "\n", params);
    ck_assert_msg(strstr(out.data, words) != NULL, "%s is not in\n%s", words, out.data);
    tt_text_free(&out);

    put_digest(path, "group_digests/params", wrong);
    put_digest(path, "digests/group_digests/params", tt_digest_bytes(&wrong, sizeof wrong));
    ck_assert_int_eq(tt_ckpt_load(NULL, path, &f->state, false, &err), TT_EWORLD);
    ck_assert_msg(strstr(err.text, "group_digests/params is not the digest") != NULL, "%s",
                  err.text);
    ck_assert_int_eq(tt_ckpt_verify(path, &out, &err), TT_EWORLD);
    ck_assert_msg(strstr(out.data, "group_digests/params is not the digest") != NULL, "%s",
                  out.data);
    ck_assert_ptr_nonnull(strstr(err.text, "1 of 18 digests do not match"));
    tt_text_free(&out);
    free(f);
}
END_TEST

/* Strings as h5py writes them: of variable length. */
START_TEST(texts_from_elsewhere)
{
    const char *path = in_folder(&dir, "made.h5"), *yaml = "model: {layers: 2}";
    hid_t file = new_file(path), type = H5Tcopy(H5T_C_S1);
    H5Tset_size(type, H5T_VARIABLE);
    put(file, "config", type, type, 0, NULL, &yaml, 0);
    put(file, "tokenizer", H5T_IEEE_F64LE, H5T_NATIVE_DOUBLE, 1, b_dim, b_value, 0);
    H5Tclose(type);
    H5Fclose(file);
    tt_text config = {0}, tokenizer = {0};
    ck_assert_msg(tt_ckpt_texts(path, &config, NULL, &err) == TT_OK, "%s", err.text);
    ck_assert_str_eq(config.data, yaml);
    ck_assert_int_eq(tt_ckpt_texts(path, NULL, &tokenizer, &err), TT_EUSER);
    ck_assert_ptr_nonnull(strstr(err.text, "tokenizer is not a text"));
    tt_text_free(&config);
    tt_text_free(&tokenizer);
}
END_TEST

/* Other formats and links to nowhere; rings of groups, links to other files and huge shapes. */
START_TEST(anything_at_all)
{
    const char *path = in_folder(&dir, "step-1.h5");
    const hsize_t huge[2] = {INT64_C(1) << 62, 8}, chunk[2] = {1, 8};
    static const char *const bad[] = {"a group that has two names", "a link leads to another file",
                                      "it stores less than its shape says"};
    char *latest = NULL;
    tt_text out = {0};
    wants x;
    hid_t file = new_file(path);
    hid_t group = H5Gcreate2(file, "params", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    H5Lcreate_soft("/nowhere", file, "/params/w", H5P_DEFAULT, H5P_DEFAULT);
    hid_t type = H5Tcopy(H5T_C_S1), one = H5Screate(H5S_SCALAR);
    H5Tset_size(type, 5);
    hid_t format = H5Acreate2(file, "format", type, one, H5P_DEFAULT, H5P_DEFAULT);
    H5Awrite(format, type, "other");
    H5Aclose(format);
    H5Sclose(one);
    H5Tclose(type);
    H5Gclose(group);
    H5Fclose(file);
    ck_assert_int_eq(load_params(path, &x), TT_EUSER);
    ck_assert_msg(strstr(err.text, "lacks params/w") != NULL, "%s", err.text);
    ck_assert_int_eq(tt_ckpt_verify(path, &out, &err), TT_EUSER);
    ck_assert_ptr_nonnull(strstr(err.text, "its format is other, not tutti-checkpoint-1"));
    for (int i = 0; i < 3; i++) {
        file = new_file(path);
        group = H5Gcreate2(file, "params", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
        if (i == 0) {
            H5Lcreate_hard(file, "/params", file, "/params/again", H5P_DEFAULT, H5P_DEFAULT);
        } else if (i == 1) {
            H5Lcreate_external("none.h5", "/x", file, "/params/b", H5P_DEFAULT, H5P_DEFAULT);
        } else {
            hid_t space = H5Screate_simple(2, huge, NULL), list = H5Pcreate(H5P_DATASET_CREATE);
            H5Pset_chunk(list, 2, chunk);
            H5Dclose(
                H5Dcreate2(file, "huge", H5T_IEEE_F32LE, space, H5P_DEFAULT, list, H5P_DEFAULT));
            H5Pclose(list);
            H5Sclose(space);
        }
        H5Gclose(group);
        H5Fclose(file);
        ck_assert_int_ne(load_params(path, &x), TT_OK);
        ck_assert_msg(strstr(err.text, bad[i]) != NULL, "%s", err.text);
    }
    ck_assert_int_eq(tt_ckpt_latest(NULL, dir.path, NULL, &latest, NULL, &err), TT_OK);
    ck_assert_ptr_null(latest);
    tt_text_free(&out);
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("ckpt foreign files");
    TCase *tc = tcase_create("foreign");
    tcase_add_checked_fixture(tc, set_up, tear_down);
    tcase_add_test(tc, parameters_from_elsewhere);
    tcase_add_test(tc, parameters_that_do_not_fit);
    tcase_add_test(tc, digests_of_elsewhere);
    tcase_add_test(tc, lost_datasets);
    tcase_add_test(tc, files_before_group_digests);
    tcase_add_test(tc, digests_of_groups);
    tcase_add_test(tc, texts_from_elsewhere);
    tcase_add_test(tc, anything_at_all);
    suite_add_tcase(suite, tc);
    return suite;
}

TT_TEST_MAIN(make_suite)
