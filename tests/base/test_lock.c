/* test_lock.c: one holder at a time, whatever becomes of it. Other processes are forked. */
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define FOLDER "/tmp/tutti-lock-XXXXXX"
#include "folder.h"
#include "tutti/base/lock.h"

static char path[64];

static void begin(void)
{
    start();
    snprintf(path, sizeof path, "%s/lock", folder);
}

static void content(char *out, size_t room)
{
    tt_err err;
    tt_text text;
    ck_assert_int_eq(tt_read_file(path, 4096, &text, &err), TT_OK);
    snprintf(out, room, "%s", text.data);
    tt_text_free(&text);
}

/* What another process comes to: a state, or -1; who[] is what it was told. */
static int of_another(char who[TT_HOLDER])
{
    int ends[2], status;
    ck_assert_int_eq(pipe(ends), 0);
    fflush(NULL);
    const pid_t child = fork();
    ck_assert_int_ge(child, 0);
    if (child == 0) {
        tt_lock lock = {0};
        tt_lock_state state;
        tt_err err;
        char told[TT_HOLDER] = "";
        const tt_code rc = tt_lock_try(&lock, path, &state, told, &err);
        _exit(write(ends[1], told, sizeof told) != sizeof told || rc != TT_OK ? 99 : (int)state);
    }
    close(ends[1]);
    ck_assert_int_eq(read(ends[0], who, TT_HOLDER), TT_HOLDER);
    close(ends[0]);
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert(WIFEXITED(status));
    return WEXITSTATUS(status) == 99 ? -1 : WEXITSTATUS(status);
}

START_TEST(one_at_a_time)
{
    tt_lock lock = {0};
    tt_lock_state state;
    tt_err err;
    char who[TT_HOLDER], told[TT_HOLDER], text[TT_HOLDER], wanted[64];
    setenv("SLURM_JOB_ID", "4711", 1);
    ck_assert_int_eq(tt_lock_try(&lock, path, &state, who, &err), TT_OK);
    unsetenv("SLURM_JOB_ID");
    ck_assert(state == TT_LOCK_TAKEN && lock.held);
    ck_assert_int_eq(fcntl(lock.fd, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
    snprintf(wanted, sizeof wanted, "process %ld on ", (long)getpid());
    ck_assert_msg(strncmp(who, wanted, strlen(wanted)) == 0, "%s", who);
    ck_assert_ptr_nonnull(strstr(who, " since 2"));
    ck_assert_ptr_nonnull(strstr(who, "Z (Slurm job 4711)"));
    ck_assert_int_eq(of_another(told), TT_LOCK_BUSY);
    ck_assert_str_eq(told, who);
    content(text, sizeof text);
    text[strcspn(text, "\n")] = '\0';
    ck_assert_str_eq(text, who); /* the other has changed nothing */
    tt_lock_release(&lock);
    ck_assert(!lock.held);
    content(text, sizeof text);
    ck_assert_str_eq(text, "");
    ck_assert_int_eq(of_another(told), TT_LOCK_TAKEN);
    tt_lock_release(&lock);
}
END_TEST

/* The holder is killed while a child of it lives on: the text stays, the lock does not. */
START_TEST(a_holder_that_is_killed)
{
    tt_lock lock = {0};
    tt_lock_state state;
    tt_err err;
    char who[TT_HOLDER], told[TT_HOLDER], text[TT_HOLDER], byte;
    int ends[2], status;
    pid_t orphan = 0;
    ck_assert_int_eq(pipe(ends), 0);
    fflush(NULL);
    const pid_t holder = fork();
    ck_assert_int_ge(holder, 0);
    if (holder == 0) {
        if (tt_lock_try(&lock, path, &state, who, &err) != TT_OK || state != TT_LOCK_TAKEN) {
            _exit(1);
        }
        const pid_t child = fork();
        if (child == 0) {
            close(ends[0]), close(ends[1]);
            sleep(60);
            _exit(0);
        }
        byte = write(ends[1], &child, sizeof child) == sizeof child;
        pause();
        _exit(byte);
    }
    close(ends[1]);
    ck_assert_int_eq(read(ends[0], &orphan, sizeof orphan), sizeof orphan);
    close(ends[0]);
    ck_assert_int_eq(of_another(told), TT_LOCK_BUSY);
    ck_assert_int_eq(kill(holder, SIGKILL), 0);
    ck_assert_int_eq(waitpid(holder, &status, 0), holder);
    ck_assert_int_eq(kill(orphan, 0), 0);
    content(text, sizeof text);
    ck_assert_int_eq(strncmp(text, told, strlen(told)), 0);
    ck_assert_int_eq(tt_lock_try(&lock, path, &state, who, &err), TT_OK);
    ck_assert_int_eq(state, TT_LOCK_TAKEN);
    content(text, sizeof text);
    ck_assert_int_eq(strncmp(text, who, strlen(who)), 0);
    tt_lock_release(&lock);
    kill(orphan, SIGKILL);
}
END_TEST

/* Control characters in the file are not passed on to a terminal; a holder may have no name. */
START_TEST(what_the_file_says)
{
    tt_lock lock = {0};
    tt_lock_state state;
    tt_err err;
    char who[TT_HOLDER], told[TT_HOLDER];
    ck_assert_int_eq(tt_lock_try(&lock, path, &state, who, &err), TT_OK);
    ck_assert_int_eq(pwrite(lock.fd, "process \033[2J\nmore", 16, 0), 16);
    ck_assert_int_eq(of_another(told), TT_LOCK_BUSY);
    ck_assert_str_eq(told, "process ?[2J");
    ck_assert_int_eq(ftruncate(lock.fd, 0), 0);
    ck_assert_int_eq(of_another(told), TT_LOCK_BUSY);
    ck_assert_str_eq(told, "a process that has not said who it is");
    tt_lock_release(&lock);
}
END_TEST

START_TEST(other_files)
{
    tt_lock lock = {0};
    tt_lock_state state;
    tt_err err;
    char who[TT_HOLDER], text[TT_HOLDER], beside[64];
    put("lock", "my notes\n");
    ck_assert_int_eq(tt_lock_try(&lock, path, &state, who, &err), TT_EUSER);
    ck_assert_ptr_nonnull(strstr(err.text, path));
    content(text, sizeof text);
    ck_assert_str_eq(text, "my notes\n");
    ck_assert(!lock.held);
    snprintf(beside, sizeof beside, "%s/notes", folder);
    ck_assert_int_eq(rename(path, beside), 0);
    ck_assert_int_eq(symlink(beside, path), 0);
    ck_assert_int_eq(tt_lock_try(&lock, path, &state, who, &err), TT_EWORLD);
    ck_assert_ptr_nonnull(strstr(err.text, path));
    ck_assert_int_eq(tt_lock_try(&lock, "/proc/none/lock", &state, who, &err), TT_EWORLD);
    ck_assert(!lock.held);
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("lock");
    TCase *tcase = tcase_create("lock");
    tcase_add_checked_fixture(tcase, begin, finish);
    tcase_add_test(tcase, one_at_a_time);
    tcase_add_test(tcase, a_holder_that_is_killed);
    tcase_add_test(tcase, what_the_file_says);
    tcase_add_test(tcase, other_files);
    suite_add_tcase(suite, tcase);
    return suite;
}

TT_TEST_MAIN(make_suite)
