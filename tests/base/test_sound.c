/* test_sound.c: which HDF5 files are let through to HDF5, and that no other does any harm. The
 * small files of tests/fuzz/corpus are of every kind that is read; others are made here. */
#include <fcntl.h>
#include <hdf5.h>
#include <unistd.h>

#define FOLDER "/dev/shm/tutti-sound-XXXXXX" /* thousands of files */
#include "folder.h"
#include "fuzz/h5_mend.c"
#include "fuzz/h5_tour.h"
#include "tutti/base/sound.h"

static char path[80], why[TT_SOUND_WHY];

static void begin(void)
{
    start();
    snprintf(path, sizeof path, "%s/file.h5", folder);
    H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
}

static const struct {
    const char *name;
    tt_soundness verdict;
} corpus[] = {{"checkpoint/few.h5", TT_SOUND},
              {"checkpoint/many.h5", TT_SOUND},
              {"checkpoint/foreign-few.h5", TT_SOUND},
              {"checkpoint/foreign-many.h5", TT_SOUND},
              {"checkpoint/foreign-18.h5", TT_SOUND},
              {"checkpoint/foreign-110.h5", TT_SOUND},
              {"tokens/ours.h5", TT_SOUND},
              {"tokens/wide.h5", TT_SOUND},
              {"tokens/foreign.h5", TT_SOUND},
              {"tokens/foreign-18.h5", TT_SOUND},
              {"checkpoint/foreign-packed.h5", TT_SOUND_UNREAD},
              {"tokens/foreign-110.h5", TT_SOUND_UNREAD}};
enum { CORPUS = sizeof corpus / sizeof *corpus, ROOM = 1 << 16 };

static unsigned char file[ROOM], bad[ROOM];

static size_t load(const char *name)
{
    char from[128];
    snprintf(from, sizeof from, "tests/fuzz/corpus/%s", name);
    FILE *f = fopen(from, "rb");
    ck_assert_msg(f != NULL, "%s", from);
    const size_t size = fread(file, 1, ROOM, f);
    fclose(f);
    ck_assert(size > 100 && size < ROOM);
    return size;
}

static tt_soundness judge(const unsigned char *bytes, size_t size)
{
    FILE *f = fopen(path, "wb");
    ck_assert(f != NULL && fwrite(bytes, 1, size, f) == size && fclose(f) == 0);
    return tt_sound_check(path, why);
}

START_TEST(of_every_kind)
{
    const size_t size = load(corpus[_i].name);
    ck_assert_msg(judge(file, size) == corpus[_i].verdict, "%s: %s", corpus[_i].name, why);
    ck_assert((why[0] == '\0') == (corpus[_i].verdict == TT_SOUND));
    for (size_t cut = 0; cut < size; cut += 1 + cut / 64) {
        ck_assert_int_ne(judge(file, cut), TT_SOUND);
        ck_assert(cut < 12 || cut >= 100 || strstr(why, "truncated file") != NULL);
    }
    ck_assert_int_eq(judge(file, size - 1), TT_SOUND_DAMAGED);
    ck_assert_ptr_nonnull(strstr(why, "truncated file: "));
}
END_TEST

/* A byte of metadata that has checksums is turned over: damage, and not something foreign. Bytes
 * that are in no block that is read, and data, may be anything. */
START_TEST(every_byte_turned_over)
{
    static const char *const sealed[] = {"checkpoint/few.h5", "checkpoint/many.h5"};
    const size_t size = load(sealed[_i]);
    int found = 0, turns = 0;
    ck_assert_int_eq(judge(file, size), TT_SOUND);
    const int fd = open(path, O_WRONLY);
    for (size_t i = 12; i < size; i += 5 + 8 * (size_t)_i, turns++) {
        const unsigned char turned = file[i] ^ 0x55;
        ck_assert_int_eq(pwrite(fd, &turned, 1, (off_t)i), 1);
        const tt_soundness verdict = tt_sound_check(path, why);
        ck_assert_msg(verdict != TT_SOUND_UNREAD, "byte %zu: %s", i, why);
        found += verdict == TT_SOUND_DAMAGED;
        ck_assert_int_eq(pwrite(fd, &file[i], 1, (off_t)i), 1);
    }
    close(fd);
    ck_assert_msg(2 * found > turns, "%d of %d", found, turns);
}
END_TEST

/* Any mutation with mended checksums, as `make fuzz` has them by the million: no crash, no hang;
 * and what is let through HDF5 survives. */
START_TEST(mutations)
{
    const size_t size = load(corpus[_i].name);
    int verdicts[3] = {0};
    for (unsigned seed = 1; seed <= 150; seed++) {
        memcpy(bad, file, size);
        const size_t now = tt_h5_mutate(bad, size, ROOM, seed);
        const tt_soundness verdict = judge(bad, now);
        verdicts[verdict]++;
        ck_assert((why[0] == '\0') == (verdict == TT_SOUND));
        if (verdict == TT_SOUND) {
            tour(path);
        }
    }
    ck_assert(verdicts[TT_SOUND_DAMAGED] > 20);
    ck_assert(corpus[_i].verdict != TT_SOUND || verdicts[TT_SOUND] > 5);
}
END_TEST

/* --- made here -------------------------------------------------------------------------------- */

static hid_t new_file(void)
{
    hid_t made = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    ck_assert_int_ge(made, 0);
    return made;
}

static hid_t new_set(hid_t at, const char *name, hid_t type, hsize_t count, hid_t list)
{
    hid_t space = H5Screate_simple(1, &count, NULL);
    hid_t set = H5Dcreate2(at, name, type, space, H5P_DEFAULT, list, H5P_DEFAULT);
    ck_assert_int_ge(set, 0);
    H5Sclose(space);
    return set;
}

/* Closes the file and sees it refused. */
static void refused(hid_t made, tt_soundness verdict, const char *words)
{
    H5Fclose(made);
    ck_assert_msg(tt_sound_check(path, why) == verdict, "%s", why);
    ck_assert_msg(strstr(why, words) != NULL, "%s", why);
}

START_TEST(what_is_not_read)
{
    static const double value[1000];
    hid_t h = new_file(), list = H5Pcreate(H5P_DATASET_CREATE);
    H5Lcreate_external("other.h5", "/x", h, "link", H5P_DEFAULT, H5P_DEFAULT);
    refused(h, TT_SOUND_UNREAD, "a link leads to another file");

    h = new_file();
    H5Dclose(new_set(h, "never", H5T_NATIVE_FLOAT, 1000, H5P_DEFAULT));
    refused(h, TT_SOUND_UNREAD, "it was never written");

    h = new_file();
    const hsize_t chunk = 10;
    H5Pset_chunk(list, 1, &chunk);
    H5Dclose(new_set(h, "chunks", H5T_NATIVE_FLOAT, 1000, list));
    refused(h, TT_SOUND_UNREAD, "not all of them were written");

    h = new_file();
    H5Pset_deflate(list, 1);
    hid_t set = new_set(h, "packed", H5T_NATIVE_DOUBLE, 1000, list);
    H5Dwrite(set, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, value);
    H5Dclose(set);
    refused(h, TT_SOUND_UNREAD, "its data is packed");
    H5Pclose(list);

    h = new_file();
    hid_t type = H5Tcreate(H5T_COMPOUND, 8);
    H5Tinsert(type, "a", 0, H5T_NATIVE_FLOAT);
    set = new_set(h, "pairs", type, 10, H5P_DEFAULT);
    H5Dwrite(set, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, value);
    H5Dclose(set);
    refused(h, TT_SOUND_UNREAD, "it is of a type that is not read here");
    H5Tclose(type);

    list = H5Pcreate(H5P_FILE_CREATE);
    H5Pset_userblock(list, 512);
    h = H5Fcreate(path, H5F_ACC_TRUNC, list, H5P_DEFAULT);
    refused(h, TT_SOUND_UNREAD, "HDF5 does not begin with the file's first byte");
    H5Pclose(list);
    ck_assert_int_eq(tt_sound_check("/proc/none", why), TT_SOUND_DAMAGED);
    ck_assert_ptr_nonnull(strstr(why, "No such file"));
}
END_TEST

START_TEST(groups_in_rings_and_pits)
{
    hid_t h = new_file(), group = H5Gcreate2(h, "a", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    H5Lcreate_hard(h, "/a", group, "a", H5P_DEFAULT, H5P_DEFAULT);
    H5Gclose(group);
    refused(h, TT_SOUND_DAMAGED, "a group that has two names");

    h = new_file();
    hid_t links = H5Pcreate(H5P_LINK_CREATE);
    H5Pset_create_intermediate_group(links, 1);
    H5Gclose(H5Gcreate2(h, "a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a", links, H5P_DEFAULT, H5P_DEFAULT));
    H5Fclose(h);
    ck_assert_msg(tt_sound_check(path, why) == TT_SOUND, "%s", why);
    h = new_file();
    H5Gclose(H5Gcreate2(h, "a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a", links, H5P_DEFAULT, H5P_DEFAULT));
    H5Pclose(links);
    refused(h, TT_SOUND_UNREAD, "it is too deep in groups within groups");
}
END_TEST

/* A thousand names for the same data are a thousand times to read it. */
START_TEST(data_of_many_names)
{
    static const double value[1000];
    char name[16];
    hid_t h = new_file();
    hid_t set = new_set(h, "data", H5T_NATIVE_DOUBLE, 1000, H5P_DEFAULT);
    H5Dwrite(set, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, value);
    H5Dclose(set);
    H5Lcreate_hard(h, "data", h, "again", H5P_DEFAULT, H5P_DEFAULT);
    H5Lcreate_soft("/nowhere", h, "soft", H5P_DEFAULT, H5P_DEFAULT);
    H5Fflush(h, H5F_SCOPE_GLOBAL);
    ck_assert_msg(tt_sound_check(path, why) == TT_SOUND, "%s", why);
    for (int i = 0; i < 1000; i++) {
        snprintf(name, sizeof name, "%d", i);
        H5Lcreate_hard(h, "data", h, name, H5P_DEFAULT, H5P_DEFAULT);
    }
    refused(h, TT_SOUND_DAMAGED, "datasets claim more data than the file has");
}
END_TEST

/* As many links as a large model has, in each kind of group. */
START_TEST(many_links)
{
    char name[32];
    hid_t access = H5Pcreate(H5P_FILE_ACCESS), order = H5Pcreate(H5P_GROUP_CREATE);
    if (_i > 0) {
        H5Pset_libver_bounds(access, H5F_LIBVER_V18, H5F_LIBVER_V18);
    }
    if (_i > 1) {
        H5Pset_link_creation_order(order, H5P_CRT_ORDER_TRACKED | H5P_CRT_ORDER_INDEXED);
    }
    hid_t h = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, access);
    hid_t group = H5Gcreate2(h, "params", H5P_DEFAULT, order, H5P_DEFAULT);
    hid_t one = H5Screate(H5S_SCALAR), compact = H5Pcreate(H5P_DATASET_CREATE);
    H5Pset_layout(compact, H5D_COMPACT);
    for (int i = 0; i < 5000; i++) {
        snprintf(name, sizeof name, "h.%d.attn.qkv.weight", i);
        H5Dclose(H5Dcreate2(group, name, H5T_NATIVE_INT, one, H5P_DEFAULT, compact, H5P_DEFAULT));
    }
    H5Pclose(compact);
    H5Sclose(one);
    H5Pclose(order);
    H5Pclose(access);
    H5Gclose(group);
    H5Fclose(h);
    ck_assert_msg(tt_sound_check(path, why) == TT_SOUND, "%s", why);
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("sound");
    TCase *tcase = tcase_create("sound");
    tcase_add_checked_fixture(tcase, begin, finish);
    tcase_add_loop_test(tcase, of_every_kind, 0, CORPUS);
    tcase_add_loop_test(tcase, every_byte_turned_over, 0, 2);
    tcase_add_loop_test(tcase, mutations, 0, CORPUS);
    tcase_add_test(tcase, what_is_not_read);
    tcase_add_test(tcase, groups_in_rings_and_pits);
    tcase_add_test(tcase, data_of_many_names);
    tcase_add_loop_test(tcase, many_links, 0, 3);
    suite_add_tcase(suite, tcase);
    return suite;
}

TT_TEST_MAIN(make_suite)
