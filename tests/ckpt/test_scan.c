/* test_scan.c: which checkpoint is the newest whole one, and which may go. */
#include <errno.h>
#include <fcntl.h>

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

static void save(const char *name)
{
    fixture *f = fixture_new(CUT_WHOLE, 0, 1);
    f->state.tensors = 2;
    ck_assert_int_eq(tt_ckpt_save(NULL, in_folder(&dir, name), &f->state, NULL, 0, &err), TT_OK);
    free(f);
}

static void spoil(const char *name)
{
    int64_t length;
    unsigned char *bytes = slurp(in_folder(&dir, name), &length);
    spill(in_folder(&dir, name), bytes, length - 1);
    free(bytes);
}

static bool there(const char *name)
{
    return access(in_folder(&dir, name), F_OK) == 0;
}

/* The newest is `name`, NULL for none, after passing over `passed` files. */
static void latest_before_is(const char *before, const char *name, int passed)
{
    char *path = NULL;
    tt_text skipped = {0};
    int lines = 0;
    ck_assert_msg(tt_ckpt_latest(NULL, dir.path, before, &path, &skipped, &err) == TT_OK, "%s",
                  err.text);
    if (name == NULL) {
        ck_assert_ptr_null(path);
    } else {
        ck_assert_ptr_nonnull(path);
        ck_assert_str_eq(path, in_folder(&dir, name));
    }
    for (size_t i = 0; i < skipped.length; i++) {
        lines += skipped.data[i] == '\n';
    }
    ck_assert_int_eq(lines, passed);
    tt_text_free(&skipped);
    free(path);
}

static void prune_to(int64_t keep)
{
    const tt_prune how = {.keep = keep, .newest = 99};
    ck_assert_int_eq(tt_ckpt_prune(NULL, dir.path, &how, &err), TT_OK);
}

static void latest_is(const char *name, int passed)
{
    latest_before_is(NULL, name, passed);
}

START_TEST(nothing_there)
{
    char *path = NULL;
    latest_is(NULL, 0);
    ck_assert_int_eq(tt_ckpt_latest(NULL, in_folder(&dir, "nowhere"), NULL, &path, NULL, &err),
                     TT_OK);
    ck_assert_ptr_null(path);
    ck_assert_int_eq(
        tt_ckpt_prune(NULL, in_folder(&dir, "nowhere"), &(tt_prune){.keep = 1, .newest = 99}, &err),
        TT_OK);
    spill(in_folder(&dir, "step-1.h5"), "x", 1);
    ck_assert_int_eq(tt_ckpt_latest(NULL, in_folder(&dir, "step-1.h5"), NULL, &path, NULL, &err),
                     TT_EWORLD);
    ck_assert_ptr_nonnull(strstr(err.text, "cannot list"));
}
END_TEST

/* By number, not by letters. */
START_TEST(newest_by_number)
{
    save("step-00000009.h5");
    save("step-10.h5");
    latest_is("step-10.h5", 0);
    save("step-0100.h5");
    latest_is("step-0100.h5", 0);
    save("best.h5");
    save("step-999-copy.h5");
    save("step-.h5");
    save(".step-500.h5");
    save("step-99999999999999999999.h5"); /* no int64 */
    latest_is("step-0100.h5", 0);
}
END_TEST

START_TEST(damaged_are_passed_over)
{
    save("step-1.h5");
    save("step-2.h5");
    save("step-3.h5");
    spill(in_folder(&dir, "step-4.h5"), "text", 4);
    spill(in_folder(&dir, ".step-5.h5.part"), "half", 4);
    spoil("step-3.h5");
    latest_is("step-2.h5", 2);
    ck_assert_int_eq(mkfifo(in_folder(&dir, "step-6.h5"), 0600), 0); /* opening it would wait */
    latest_is("step-2.h5", 3);
    prune_to(2);
    ck_assert(there("step-1.h5") && there("step-6.h5"));
    spoil("step-2.h5");
    spoil("step-1.h5");
    latest_is(NULL, 5);
}
END_TEST

/* By number: step-010.h5 is not before step-10.h5. What is newer is not even looked at. */
START_TEST(only_before)
{
    char *path = NULL;
    save("step-8.h5");
    save("step-9.h5");
    save("step-010.h5");
    save("step-11.h5");
    spoil("step-9.h5");
    ck_assert_int_eq(symlink("step-12.h5", in_folder(&dir, "step-12.h5")), 0);
    latest_before_is("step-12.h5", "step-11.h5", 0);
    latest_before_is("elsewhere/step-11.h5", "step-010.h5", 0);
    latest_before_is("step-10.h5", "step-8.h5", 1);
    latest_before_is("step-8.h5", NULL, 0);
    ck_assert_int_eq(tt_ckpt_latest(NULL, dir.path, "step-9/best.h5", &path, NULL, &err), TT_EUSER);
    ck_assert_ptr_nonnull(strstr(err.text, "step-9/best.h5 is not named step-<digits>.h5"));
    ck_assert_ptr_null(path);
}
END_TEST

static void latest_cannot_open(const char *name, int reason)
{
    char *path = NULL;
    tt_text skipped = {0};
    ck_assert_int_eq(tt_ckpt_latest(NULL, dir.path, NULL, &path, &skipped, &err), TT_EWORLD);
    ck_assert_msg(strstr(err.text, in_folder(&dir, name)) != NULL, "%s", err.text);
    ck_assert_msg(strstr(err.text, strerror(reason)) != NULL, "%s", err.text);
    ck_assert_ptr_null(path);
    ck_assert_uint_eq(skipped.length, 0);
    tt_text_free(&skipped);
}

/* They may be whole: going on from an older one would throw work away. */
START_TEST(unreadable_are_not_passed_over)
{
    enum { SOMEBODY = 65534 };
    save("step-1.h5");
    ck_assert_int_eq(symlink("gone.h5", in_folder(&dir, "step-2.h5")), 0); /* leads nowhere */
    latest_is("step-1.h5", 1);
    ck_assert_int_eq(symlink("step-3.h5", in_folder(&dir, "step-3.h5")), 0); /* leads to itself */
    latest_cannot_open("step-3.h5", ELOOP);

    save("step-4.h5");
    latest_is("step-4.h5", 0);
    ck_assert_int_eq(chmod(in_folder(&dir, "step-4.h5"), 0), 0);
    ck_assert_int_eq(chmod(dir.path, 0755), 0);
    bool root = geteuid() == 0; /* may read everything */
    if (root && seteuid(SOMEBODY) != 0) {
        return;
    }
    if (faccessat(AT_FDCWD, dir.path, R_OK | X_OK, AT_EACCESS) == 0) {
        latest_cannot_open("step-4.h5", EACCES);
    }
    ck_assert(!root || seteuid(0) == 0);
}
END_TEST

START_TEST(prune_keeps_the_newest)
{
    const char *names[] = {"step-8.h5", "step-9.h5", "step-10.h5", "step-11.h5"};
    for (int i = 0; i < 4; i++) {
        save(names[i]);
    }
    save("best.h5");
    spill(in_folder(&dir, ".step-12.h5.part"), "half", 4);
    prune_to(0);
    ck_assert_int_eq(folder_count(&dir), 5);
    ck_assert(!there(".step-12.h5.part"));
    prune_to(4);
    ck_assert_int_eq(folder_count(&dir), 5);
    prune_to(2);
    ck_assert(!there("step-8.h5") && !there("step-9.h5"));
    ck_assert(there("step-10.h5") && there("step-11.h5") && there("best.h5"));
}
END_TEST

/* Two damaged new ones do not push out the last good one. */
START_TEST(prune_never_deletes_the_last_good)
{
    const char *names[] = {"step-1.h5", "step-2.h5", "step-3.h5", "step-4.h5"};
    for (int i = 0; i < 4; i++) {
        save(names[i]);
    }
    spoil("step-3.h5");
    spoil("step-4.h5");
    prune_to(1);
    ck_assert(!there("step-1.h5") && there("step-2.h5"));
    ck_assert(there("step-3.h5") && there("step-4.h5"));
    latest_is("step-2.h5", 2);
}
END_TEST

/* What looks whole may have been passed over for its digests, or be of another run: it pushes out
 * nothing, and when the run has gone beyond it, it goes in its turn. */
START_TEST(what_was_passed_over_does_not_count)
{
    const char *names[] = {"step-2.h5", "step-4.h5", "step-6.h5", "step-8.h5", "step-30.h5"};
    int64_t *steps = NULL;
    int count = 0;
    for (int i = 0; i < 5; i++) {
        save(names[i]);
    }
    ck_assert_int_eq(tt_ckpt_beyond(dir.path, 4, &steps, &count, &err), TT_OK);
    ck_assert_int_eq(count, 3);
    ck_assert(steps[0] == 30 && steps[1] == 8 && steps[2] == 6);
    tt_prune how = {.keep = 2, .newest = 5, .doubtful = steps, .doubts = count};
    save("step-5.h5");
    ck_assert_int_eq(tt_ckpt_prune(NULL, dir.path, &how, &err), TT_OK);
    ck_assert(!there("step-2.h5") && there("step-4.h5") && there("step-5.h5"));
    ck_assert(there("step-6.h5") && there("step-8.h5") && there("step-30.h5"));
    how.newest = 7;
    save("step-7.h5");
    ck_assert_int_eq(tt_ckpt_prune(NULL, dir.path, &how, &err), TT_OK);
    ck_assert(!there("step-4.h5") && there("step-5.h5") && there("step-6.h5"));
    how.newest = 9;
    save("step-9.h5");
    ck_assert_int_eq(tt_ckpt_prune(NULL, dir.path, &how, &err), TT_OK);
    ck_assert(!there("step-5.h5") && !there("step-6.h5") && there("step-7.h5"));
    ck_assert(there("step-8.h5") && there("step-9.h5") && there("step-30.h5"));
    free(steps);
    ck_assert_int_eq(tt_ckpt_beyond(dir.path, 30, &steps, &count, &err), TT_OK);
    ck_assert(count == 0 && steps == NULL);
}
END_TEST

START_TEST(a_folder_is_in_the_way)
{
    int64_t *steps = NULL;
    int count = 0;
    save("step-2.h5");
    ck_assert_int_eq(mkdir(in_folder(&dir, "step-4.h5"), 0777), 0);
    ck_assert_int_eq(tt_ckpt_beyond(dir.path, 4, &steps, &count, &err), TT_OK); /* is behind */
    ck_assert_int_eq(tt_ckpt_beyond(dir.path, 1, &steps, &count, &err), TT_EUSER);
    ck_assert(strstr(err.text, "step-4.h5 is a folder") && steps == NULL && count == 0);
    ck_assert_int_eq(rmdir(in_folder(&dir, "step-4.h5")), 0);
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("ckpt scan");
    TCase *tc = tcase_create("scan");
    tcase_add_checked_fixture(tc, set_up, tear_down);
    tcase_add_test(tc, nothing_there);
    tcase_add_test(tc, newest_by_number);
    tcase_add_test(tc, damaged_are_passed_over);
    tcase_add_test(tc, only_before);
    tcase_add_test(tc, unreadable_are_not_passed_over);
    tcase_add_test(tc, prune_keeps_the_newest);
    tcase_add_test(tc, prune_never_deletes_the_last_good);
    tcase_add_test(tc, what_was_passed_over_does_not_count);
    tcase_add_test(tc, a_folder_is_in_the_way);
    suite_add_tcase(suite, tc);
    return suite;
}

TT_TEST_MAIN(make_suite)
