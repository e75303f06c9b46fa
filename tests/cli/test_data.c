/* test_data.c: `tutti data` as a user meets it: results on stdout, one sentence on stderr, exit code. */
#include <fcntl.h>
#include <unistd.h>

#include "../data/data_test.h"
#include "cli/cli_impl.h"

static char said[8192], complained[2048]; /* stdout and stderr of the last command */

static int redirect(int fd, const char *name)
{
    int before = dup(fd), to = open(in_dir(name), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    ck_assert_int_ge(before, 0);
    ck_assert_int_ge(to, 0);
    dup2(to, fd);
    close(to);
    return before;
}

static void take(const char *name, char *text, size_t room)
{
    size_t length;
    unsigned char *bytes = get_bytes(name, &length);
    ck_assert_uint_lt(length, room);
    memcpy(text, bytes, length + 1);
    free(bytes);
}

/* Runs `tutti data` with the words of `line`; the test's folder is the working folder. */
static int run(const char *line)
{
    char command[] = "data", copy[512], *argv[16] = {command}, *state = NULL;
    int argc = 1;
    snprintf(copy, sizeof copy, "%s", line);
    for (char *w = strtok_r(copy, " ", &state); w != NULL; w = strtok_r(NULL, " ", &state)) {
        argv[argc++] = w;
    }
    fflush(stdout);
    fflush(stderr);
    int out = redirect(STDOUT_FILENO, ".stdout"), err = redirect(STDERR_FILENO, ".stderr");
    int code = tt_cmd_data(argc, argv);
    fflush(stdout);
    fflush(stderr);
    dup2(out, STDOUT_FILENO);
    dup2(err, STDERR_FILENO);
    close(out);
    close(err);
    take(".stdout", said, sizeof said);
    take(".stderr", complained, sizeof complained);
    return code;
}

/* A failure is one sentence on stderr, and nothing on stdout. */
static void fails(const char *line, int code, const char *words)
{
    ck_assert_int_eq(run(line), code);
    ck_assert_str_eq(said, "");
    ck_assert_msg(strncmp(complained, "tutti: ", 7) == 0, "%s", complained);
    ck_assert_msg(strstr(complained, words) != NULL, "\"%s\" not in: %s", words, complained);
    ck_assert_ptr_eq(strchr(complained, '\n'), complained + strlen(complained) - 1);
}

static void setup(void)
{
    open_dir();
    ck_assert_int_eq(chdir(test_dir), 0);
    make_dir("c");
    put("c/a", "first document");
    put("c/b", "second");
    put("c/c", "third");
    put("c/empty", "");
}

static void teardown(void)
{
    ck_assert_int_eq(chdir("/"), 0);
    close_dir();
}

START_TEST(build_and_info_agree)
{
    ck_assert_int_eq(run("build c --valid=0.3 --out o.h5 --seed 5"), TT_OK);
    ck_assert_str_eq(complained, "");
    ck_assert_ptr_nonnull(strstr(said, "skipped               1 files"));
    char built[8192];
    snprintf(built, sizeof built, "%s", said);
    ck_assert_int_eq(run("info o.h5"), TT_OK);
    ck_assert_str_eq(complained, "");
    ck_assert_ptr_nonnull(strstr(said, "tokenizer  bytes, vocabulary 257"));
    ck_assert_ptr_nonnull(strstr(said, "training              2 documents"));
    ck_assert_ptr_nonnull(strstr(said, "held out              1 documents"));
    ck_assert_int_eq(strncmp(built, said, strlen(said)), 0);
}
END_TEST

START_TEST(help_is_a_result)
{
    ck_assert_int_eq(run("--help"), TT_OK);
    ck_assert_ptr_nonnull(strstr(said, "usage: tutti data build --out"));
    ck_assert_str_eq(complained, "");
    ck_assert_int_eq(run("build --help"), TT_OK);
}
END_TEST

START_TEST(mistakes_exit_2)
{
    fails("", 2, "wants build");
    fails("biuld --out o.h5 c", 2, "wants build");
    fails("info", 2, "wants build");
    fails("info a.h5 b.h5", 2, "wants build");
    fails("build c", 2, "needs --out");
    fails("build --out o.h5", 2, "there is no input");
    fails("build --out o.h5 c --valid 1", 2, "less than 1");
    fails("build --out o.h5 c --valid -0.1", 2, "--valid");
    fails("build --out o.h5 c --valid nan", 2, "--valid");
    fails("build --out o.h5 c --seed x", 2, "--seed");
    fails("build --out o.h5 c --sed 1", 2, "--sed");
    fails("build --out o.h5 c --tokenizer words", 2, "allowed: bytes");
    fails("build --out no/o.h5 c", 2, "no/o.h5");
    fails("build --out o.h5 missing", 2, "missing");
    fails("build --out o.h5 c/empty", 2, "no text file");
    fails("build --out c/a c/a", 2, "cannot also be an input");
    fails("build --out c/a c/b", 2, "not a token file");
    fails("info missing.h5", 2, "missing.h5");
    fails("info c/a", 2, "not HDF5");
    fails("info c", 2, "not a regular file");
    ck_assert(!exists("o.h5"));
}
END_TEST

START_TEST(damage_exits_1)
{
    ck_assert_int_eq(run("build --out o.h5 c"), TT_OK);
    size_t length;
    unsigned char *bytes = get_bytes("o.h5", &length);
    put_bytes("o.h5", bytes, length - 100);
    free(bytes);
    fails("info o.h5", 1, "o.h5 is damaged: truncated file");
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("cli data");
    TCase *c = tcase_create("data");
    tcase_add_checked_fixture(c, setup, teardown);
    tcase_add_test(c, build_and_info_agree);
    tcase_add_test(c, help_is_a_result);
    tcase_add_test(c, mistakes_exit_2);
    tcase_add_test(c, damage_exits_1);
    suite_add_tcase(s, c);
    return s;
}

TT_TEST_MAIN(suite)
