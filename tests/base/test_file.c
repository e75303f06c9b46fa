/* test_file.c: commits, folders, whole files, names; all below a folder made for it. */
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#define FOLDER "/tmp/tutti-file-XXXXXX"
#include "folder.h"
#include "tutti/base/file.h"

static char *at(const char *name)
{
    tt_err err;
    char *path = tt_join(folder, name, &err);
    ck_assert_ptr_nonnull(path);
    return path;
}

START_TEST(test_join)
{
    tt_err err;
    const char *const known[][3] = {
        {"a", "b", "a/b"}, {"a/", "b", "a/b"}, {"/", "b", "/b"}, {"", "b", "b"}};
    for (int i = 0; i < 4; i++) {
        char *path = tt_join(known[i][0], known[i][1], &err);
        ck_assert_str_eq(path, known[i][2]);
        free(path);
    }
}
END_TEST

START_TEST(test_folders)
{
    tt_err err = {0};
    char *deep = at("a/b//c/"), *file = at("a/file"), *below = at("a/file/x"), *link = at("link");
    ck_assert_int_eq(tt_make_folders(deep, &err), TT_OK);
    ck_assert_int_eq(tt_make_folders(deep, &err), TT_OK);
    ck_assert_int_eq(tt_make_folders("/", &err), TT_OK);
    struct stat info;
    ck_assert(stat(deep, &info) == 0 && S_ISDIR(info.st_mode));
    ck_assert(tt_file_exists(deep) && !tt_file_exists(file));
    ck_assert_int_eq(tt_write_file(file, "x", 1, &err), TT_OK);
    ck_assert_int_eq(tt_make_folders(file, &err), TT_EWORLD);
    ck_assert_ptr_nonnull(strstr(err.text, file));
    ck_assert_int_eq(tt_make_folders(below, &err), TT_EWORLD);
    ck_assert_int_eq(tt_make_folders("/proc/none/x", &err), TT_EWORLD);
    ck_assert_ptr_nonnull(strstr(err.text, "/proc/none"));
    ck_assert_int_eq(symlink("/proc/none/y", link), 0);
    ck_assert_int_eq(tt_make_folders(link, &err), TT_EWORLD);
    ck_assert_ptr_nonnull(strstr(err.text, "a link to what is not there"));
    free(link);
    free(deep);
    free(file);
    free(below);
}
END_TEST

START_TEST(test_is_at)
{
    tt_err err = {0};
    char *path = at("here"), *other = at("there");
    ck_assert_int_eq(tt_write_file(path, "x", 1, &err), TT_OK);
    const int fd = tt_open(path, O_RDONLY);
    ck_assert(fd >= 0 && tt_is_at(fd, path) && !tt_is_at(fd, other) && !tt_is_at(-1, path));
    ck_assert_int_eq(rename(path, other), 0);
    ck_assert(!tt_is_at(fd, path) && tt_is_at(fd, other));
    ck_assert_int_eq(tt_write_file(path, "x", 1, &err), TT_OK);
    ck_assert(!tt_is_at(fd, path));
    close(fd);
    free(path);
    free(other);
}
END_TEST

START_TEST(test_write_and_read)
{
    tt_err err = {0};
    char *path = at("text"), *part = at("text.part");
    char big[50000];
    for (size_t i = 0; i < sizeof big; i++) {
        big[i] = (char)(i % 251);
    }
    tt_text text;
    ck_assert_int_eq(tt_write_file(path, "", 0, &err), TT_OK);
    ck_assert_int_eq(tt_read_file(path, 10, &text, &err), TT_OK);
    ck_assert_str_eq(text.data, "");
    tt_text_free(&text);
    ck_assert_int_eq(tt_write_file(path, big, sizeof big, &err), TT_OK);
    ck_assert(!tt_file_exists(part));
    ck_assert_int_eq(tt_read_file(path, sizeof big, &text, &err), TT_OK);
    ck_assert_uint_eq(text.length, sizeof big);
    ck_assert_mem_eq(text.data, big, sizeof big);
    tt_text_free(&text);
    ck_assert_int_eq(tt_read_file(path, sizeof big - 1, &text, &err), TT_EWORLD);
    ck_assert_ptr_nonnull(strstr(err.text, "larger than 49999 bytes"));
    ck_assert_ptr_null(text.data);
    ck_assert_int_eq(tt_read_file(part, 10, &text, &err), TT_EWORLD);
    ck_assert_ptr_nonnull(strstr(err.text, part));
    char *device = at("device"), *pipe = at("pipe");
    ck_assert_int_eq(symlink("/dev/full", device), 0);
    ck_assert_int_eq(mkfifo(pipe, 0600), 0); /* must not wait for a writer */
    const char *const odd[] = {folder, device, pipe};
    for (int i = 0; i < 3; i++) {
        ck_assert_int_eq(tt_read_file(odd[i], 10, &text, &err), TT_EWORLD);
        ck_assert_ptr_nonnull(strstr(err.text, odd[i]));
        ck_assert_ptr_nonnull(strstr(err.text, "it is not a regular file"));
        ck_assert_ptr_null(text.data);
    }
    free(device);
    free(pipe);
    ck_assert_int_eq(tt_write_file("/proc/none/x", "x", 1, &err), TT_EWORLD);
    ck_assert_int_eq(tt_write_file(folder, "x", 1, &err), TT_EWORLD); /* a folder is in the way */
    free(path);
    free(part);
}
END_TEST

/* A full disk: nothing half-written stays, the old text is kept. */
START_TEST(test_full_disk)
{
    tt_err err = {0};
    char *path = at("full"), *part = at("full.part");
    ck_assert_int_eq(tt_write_file(path, "old", 3, &err), TT_OK);
    ck_assert_int_eq(symlink("/dev/full", part), 0);
    ck_assert_int_eq(tt_write_file(path, "new", 3, &err), TT_EWORLD);
    ck_assert_ptr_nonnull(strstr(err.text, "No space left"));
    struct stat info;
    ck_assert_int_ne(lstat(part, &info), 0);
    tt_text text;
    ck_assert_int_eq(tt_read_file(path, 10, &text, &err), TT_OK);
    ck_assert_str_eq(text.data, "old");
    tt_text_free(&text);
    free(path);
    free(part);
}
END_TEST

/* A line that only a part of has room for is not there at all, and the next one is whole. */
START_TEST(test_append)
{
    tt_err err = {0};
    char *path = at("lines");
    struct rlimit room;
    tt_text text;
    const int fd = tt_open(path, O_WRONLY | O_CREAT | O_APPEND);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(getrlimit(RLIMIT_FSIZE, &room), 0);
    const struct rlimit little = {14, room.rlim_max};
    signal(SIGXFSZ, SIG_IGN);
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &little), 0);
    const tt_code whole = tt_append(fd, "line one\n", 9, "lines", &err);
    const tt_code cut = tt_append(fd, "line two\n", 9, "lines", &err);
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &room), 0); /* before anything else is written */
    ck_assert_int_eq(whole, TT_OK);
    ck_assert_int_eq(cut, TT_EWORLD);
    ck_assert_str_eq(err.text, "cannot write to lines: File too large");
    ck_assert_int_eq(tt_append(fd, "3\n", 2, "lines", &err), TT_OK);
    ck_assert_int_eq(tt_read_file(path, 100, &text, &err), TT_OK);
    ck_assert_str_eq(text.data, "line one\n3\n");
    tt_text_free(&text);
    close(fd);
    ck_assert_int_eq(tt_append(fd, "4\n", 2, "lines", &err), TT_EWORLD);
    ck_assert_ptr_nonnull(strstr(err.text, "Bad file descriptor"));
    free(path);
}
END_TEST

START_TEST(test_commit)
{
    tt_err err = {0};
    char *from = at("from"), *to = at("to"), *none = at("none");
    ck_assert_int_eq(tt_write_file(from, "1", 1, &err), TT_OK);
    ck_assert_int_eq(tt_write_file(to, "22", 2, &err), TT_OK);
    ck_assert_int_eq(tt_commit_file(from, to, &err), TT_OK);
    ck_assert(!tt_file_exists(from));
    tt_text text;
    ck_assert_int_eq(tt_read_file(to, 10, &text, &err), TT_OK);
    ck_assert_str_eq(text.data, "1");
    tt_text_free(&text);
    ck_assert_int_eq(tt_commit_file(none, to, &err), TT_EWORLD);
    ck_assert_ptr_nonnull(strstr(err.text, none));
    ck_assert(tt_file_exists(to));
    char here[4096];
    ck_assert_ptr_nonnull(getcwd(here, sizeof here));
    ck_assert_int_eq(chdir(folder), 0); /* names without a folder */
    ck_assert_int_eq(tt_commit_file("to", "renamed", &err), TT_OK);
    ck_assert(tt_file_exists("renamed"));
    ck_assert_int_eq(chdir(here), 0);
    free(from);
    free(to);
    free(none);
}
END_TEST

START_TEST(test_rss)
{
    ck_assert_uint_gt(tt_rss(), 100000);
    ck_assert_uint_ge(tt_rss_peak(), 100000);
    ck_assert_uint_lt(tt_rss(), (size_t)1 << 50);
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("file");
    TCase *tcase = tcase_create("file");
    tcase_add_checked_fixture(tcase, start, finish);
    tcase_add_test(tcase, test_join);
    tcase_add_test(tcase, test_folders);
    tcase_add_test(tcase, test_is_at);
    tcase_add_test(tcase, test_write_and_read);
    tcase_add_test(tcase, test_full_disk);
    tcase_add_test(tcase, test_append);
    tcase_add_test(tcase, test_commit);
    tcase_add_test(tcase, test_rss);
    suite_add_tcase(suite, tcase);
    return suite;
}

TT_TEST_MAIN(make_suite)
