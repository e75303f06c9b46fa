/* test_tokens_build.c: what becomes a document, what is held out, and what is refused. */
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>

#include "data_test.h"

static void setup(void)
{
    open_dir();
}

static void teardown(void)
{
    close_dir();
}

/* The text of a part, each end token as '|'; owned by the caller. */
static char *text_of(const char *name, bool valid)
{
    tt_tokens *tokens = open_tokens(name, valid);
    tt_err err = {0};
    int64_t count = tt_tokens_count(tokens);
    int32_t *id = calloc((size_t)count + 1, sizeof *id);
    char *text = calloc((size_t)count + 1, 1);
    ck_assert(id && text);
    ck_assert_msg(tt_tokens_read(tokens, 0, count, id, &err) == TT_OK, "%s", err.text);
    for (int64_t i = 0; i < count; i++) {
        text[i] = id[i] == 256 ? '|' : (char)id[i];
    }
    free(id);
    tt_tokens_close(tokens);
    return text;
}

static void expect_text(const char *name, bool valid, const char *wanted)
{
    char *text = text_of(name, valid);
    ck_assert_str_eq(text, wanted);
    free(text);
}

START_TEST(folders_in_order_of_names)
{
    make_dir("c");
    make_dir("c/b");
    make_dir("c/B");
    put("c/z", "last");
    put("c/a", "first");
    put("c/b/2", "two");
    put("c/b/10", "ten");
    put("c/B/x", "upper");
    put("solo", "solo");
    tt_tokens_summary s;
    tt_err err = {0};
    const char *input[] = {"solo", "c"};
    ck_assert_msg(build("o.h5", 0, 0, 2, input, &s, &err) == TT_OK, "%s", err.text);
    expect_text("o.h5", false, "solo|upper|first|ten|two|last|");
    ck_assert_int_eq(s.documents, 6);
    ck_assert_int_eq(s.tokens, 4 + 5 + 5 + 3 + 3 + 4 + 6);
    ck_assert_int_eq(s.longest_document, 6);
    ck_assert_int_eq(s.valid_documents, 0);
    ck_assert_int_eq(s.valid_tokens, 0);
    ck_assert_int_eq(s.vocab, 257);
    ck_assert_int_eq(s.skipped_files, 0);
    ck_assert_str_eq(s.tokenizer, "bytes");
    ck_assert(!exists("o.h5.part"));
}
END_TEST

START_TEST(hidden_empty_binary_and_repeated_are_skipped)
{
    make_dir("c");
    make_dir("c/.git");
    put("c/.git/objects", "no");
    put("c/.hidden", "no");
    put("c/empty", "");
    put_bytes("c/binary", "a\0b", 3);
    put("c/text", "yes");
    ck_assert_int_eq(symlink("text", in_dir("c/zlink")), 0); /* the same file again */
    ck_assert_int_eq(symlink("nowhere", in_dir("c/dead")), 0);
    ck_assert_int_eq(mkfifo(in_dir("c/pipe"), 0600), 0);
    char late[100001]; /* a NUL behind the first piece that is read */
    memset(late, 'x', sizeof late);
    late[100000] = 0;
    put_bytes("c/late", late, sizeof late);
    tt_tokens_summary s;
    tt_err err = {0};
    const char *input[] = {"c"};
    ck_assert_msg(build("o.h5", 0, 0, 1, input, &s, &err) == TT_OK, "%s", err.text);
    expect_text("o.h5", false, "yes|");
    ck_assert_int_eq(s.skipped_files, 8);
    const char *twice[] = {"c/text", "c", "c/text"}; /* a file is one document, once */
    ck_assert_msg(build("o.h5", 0, 0, 3, twice, &s, &err) == TT_OK, "%s", err.text);
    expect_text("o.h5", false, "yes|");
    const char *hidden[] = {"c/.hidden"}; /* named by the user, so meant */
    ck_assert_msg(build("o.h5", 0, 0, 1, hidden, &s, &err) == TT_OK, "%s", err.text);
    expect_text("o.h5", false, "no|");
}
END_TEST

START_TEST(loops_of_links_end)
{
    make_dir("c");
    make_dir("c/d");
    make_dir("e");
    put("c/a", "a");
    put("c/d/b", "b");
    put("e/f", "f");
    ck_assert_int_eq(symlink("..", in_dir("c/d/up")), 0);
    ck_assert_int_eq(symlink(".", in_dir("c/self")), 0);
    ck_assert_int_eq(symlink("loop", in_dir("c/loop")), 0);
    ck_assert_int_eq(symlink("../e", in_dir("c/other")), 0); /* links are followed */
    ck_assert_int_eq(symlink("../c", in_dir("e/back")), 0);
    /* 2^30 ways through thirty folders, each taken once */
    for (int i = 0; i < 30; i++) {
        char name[32], to[32];
        snprintf(name, sizeof name, "c/n%02d", i);
        make_dir(name);
        snprintf(to, sizeof to, "../n%02d", i + 1);
        snprintf(name, sizeof name, "c/n%02d/x", i);
        ck_assert_int_eq(symlink(to, in_dir(name)), 0);
        snprintf(name, sizeof name, "c/n%02d/y", i);
        ck_assert_int_eq(symlink(to, in_dir(name)), 0);
    }
    tt_err err = {0};
    const char *input[] = {"c"};
    ck_assert_msg(build("o.h5", 0, 0, 1, input, NULL, &err) == TT_OK, "%s", err.text);
    expect_text("o.h5", false, "a|b|f|");
}
END_TEST

START_TEST(two_builds_are_the_same_bytes)
{
    make_dir("c");
    for (int i = 0; i < 40; i++) {
        char name[32], text[64];
        snprintf(name, sizeof name, "c/%d", (i * 17) % 40); /* made in another order than read */
        snprintf(text, sizeof text, "document %d of forty", (i * 17) % 40);
        put(name, text);
    }
    tt_err err = {0};
    const char *input[] = {"c"};
    ck_assert_int_eq(build("a.h5", 0.2, 3, 1, input, NULL, &err), TT_OK);
    sleep(1); /* a time stamp would differ */
    ck_assert_int_eq(build("b.h5", 0.2, 3, 1, input, NULL, &err), TT_OK);
    ck_assert_int_eq(build("c.h5", 0.2, 4, 1, input, NULL, &err), TT_OK);
    size_t la, lb;
    unsigned char *a = get_bytes("a.h5", &la), *b = get_bytes("b.h5", &lb);
    ck_assert_uint_eq(la, lb);
    ck_assert_mem_eq(a, b, la);
    free(a);
    free(b);
    char *one = text_of("a.h5", true), *other = text_of("c.h5", true);
    ck_assert_str_ne(one, other); /* another seed holds out others */
    free(one);
    free(other);
}
END_TEST

/* For many fractions: the number of held-out documents, and that the parts share none and lose none. */
START_TEST(parts_are_disjoint_and_whole)
{
    const struct {
        int documents;
        double fraction;
        int64_t valid;
    } row[] = {{2, 0.01, 1},   {2, 0.99, 1},  {10, 0.25, 3}, {10, 0.1, 1},
               {10, 0.999, 9}, {13, 1e-9, 1}, {13, 0.5, 7},  {13, 0, 0}};
    make_dir("c");
    int made = 0;
    for (size_t r = 0; r < sizeof row / sizeof row[0]; r++) {
        for (; made < row[r].documents; made++) {
            char name[32], text[2] = {(char)('a' + made), 0};
            snprintf(name, sizeof name, "c/%03d", made);
            put(name, text);
        }
        tt_tokens_summary s;
        tt_err err = {0};
        const char *input[] = {"c"};
        ck_assert_msg(build("o.h5", row[r].fraction, r, 1, input, &s, &err) == TT_OK, "%s",
                      err.text);
        ck_assert_int_eq(s.valid_documents, row[r].valid);
        ck_assert_int_eq(s.valid_tokens, 2 * row[r].valid);
        ck_assert_int_eq(s.documents, row[r].documents - row[r].valid);
        int seen[26] = {0};
        for (int valid = 0; valid < (row[r].valid ? 2 : 1); valid++) {
            char *text = text_of("o.h5", valid), last = 0;
            for (char *c = text; *c; c += 2) {
                seen[*c - 'a']++;
                ck_assert_int_gt(*c, last); /* documents keep their order */
                ck_assert_int_eq(c[1], '|');
                last = *c;
            }
            free(text);
        }
        for (int i = 0; i < row[r].documents; i++) {
            ck_assert_int_eq(seen[i], 1);
        }
    }
}
END_TEST

/* Documents over many chunks, of both parts in turn. */
START_TEST(long_documents_come_back)
{
    enum { FILES = 5, BYTES = 150000 };
    static char text[BYTES + 1];
    make_dir("c");
    for (int f = 0; f < FILES; f++) {
        char name[32];
        for (int i = 0; i < BYTES - f; i++) {
            text[i] = (char)('0' + (i * (f + 3) / 7 + f) % 75);
        }
        snprintf(name, sizeof name, "c/%d", f);
        put_bytes(name, text, (size_t)(BYTES - f));
    }
    tt_tokens_summary s;
    tt_err err = {0};
    const char *input[] = {"c"};
    ck_assert_msg(build("o.h5", 0.4, 1, 1, input, &s, &err) == TT_OK, "%s", err.text);
    ck_assert_int_eq(s.valid_documents, 2);
    ck_assert_int_eq(s.tokens + s.valid_tokens, FILES * BYTES - 10 + FILES);
    int found = 0;
    for (int valid = 0; valid < 2; valid++) {
        char *all = text_of("o.h5", valid), *next = all;
        for (char *end; (end = strchr(next, '|')) != NULL; next = end + 1) {
            int f = BYTES - (int)(end - next);
            ck_assert(f >= 0 && f < FILES);
            found |= 1 << f;
            for (int i = 0; i < BYTES - f; i++) {
                ck_assert_int_eq(next[i], '0' + (i * (f + 3) / 7 + f) % 75);
            }
        }
        free(all);
    }
    ck_assert_int_eq(found, (1 << FILES) - 1);
}
END_TEST

START_TEST(entropy_is_that_of_the_training_part)
{
    put("t", "aaabbbc"); /* with the end token: 3, 3, 1, 1 of 8 */
    tt_tokens_summary s;
    tt_err err = {0};
    const char *input[] = {"t"};
    ck_assert_int_eq(build("o.h5", 0, 0, 1, input, &s, &err), TT_OK);
    double wanted = 2 * (3.0 / 8) * log(8.0 / 3) + 2 * (1.0 / 8) * log(8);
    ck_assert_double_eq_tol(s.entropy_nats, wanted, 1e-12);
    tt_tokens_summary again;
    ck_assert_int_eq(tt_tokens_inspect(in_dir("o.h5"), &again, &err), TT_OK);
    ck_assert_double_eq(again.entropy_nats, s.entropy_nats);
    ck_assert_int_eq(again.tokens, 8);
}
END_TEST

START_TEST(mistakes_are_named_and_change_nothing)
{
    put("a", "some text");
    put("notes", "precious");
    put("empty", "");
    make_dir("c");
    make_dir("c/hollow");
    tt_err err;
    const char *a[] = {"a"}, *missing[] = {"a", "nothere"}, *own[] = {"a", "notes"};
    const char *hollow[] = {"c", "empty"}, *fifo[] = {"pipe"};
    expect_error(build("o.h5", 0, 0, 0, a, NULL, &err), TT_EUSER, "there is no input");
    expect_error(build("o.h5", 0, 0, 2, missing, NULL, &err), TT_EUSER,
                 "nothere cannot be read: No such file or directory");
    expect_error(build("no/o.h5", 0, 0, 1, a, NULL, &err), TT_EUSER, "the folder of the output");
    expect_error(build("a/o.h5", 0, 0, 1, a, NULL, &err), TT_EUSER, "/a is not a folder");
    expect_error(build("c", 0, 0, 1, a, NULL, &err), TT_EUSER, "is a folder");
    expect_error(build("notes", 0, 0, 2, own, NULL, &err), TT_EUSER,
                 "notes is the output file and cannot also be an input");
    expect_error(build("notes", 0, 0, 1, a, NULL, &err), TT_EUSER,
                 "exists and is not a token file");
    expect_error(build("o.h5", 0, 0, 2, hollow, NULL, &err), TT_EUSER,
                 "hold no text file (1 entries skipped");
    ck_assert_int_eq(mkfifo(in_dir("pipe"), 0600), 0);
    expect_error(build("o.h5", 0, 0, 1, fifo, NULL, &err), TT_EUSER, "neither a file nor a folder");
    const double fractions[] = {-0.1, 1, 1.5, NAN, INFINITY};
    for (int i = 0; i < 5; i++) {
        expect_error(build("o.h5", fractions[i], 0, 1, a, NULL, &err), TT_EUSER,
                     "allowed: from 0 to less than 1");
    }
    expect_error(build("o.h5", 0.1, 0, 1, a, NULL, &err), TT_EUSER, "needs at least 2 documents");
    tt_tokens_summary s;
    char *paths[] = {in_dir("a")};
    tt_tokens_build words = {
        .out = in_dir("o.h5"), .tokenizer = "words", .inputs = 1, .input = paths};
    expect_error(tt_tokens_build_file(&words, &s, &err), TT_EUSER, "\"words\" is not known");
    words.tokenizer = "bytes";
    words.out = "";
    expect_error(tt_tokens_build_file(&words, &s, &err), TT_EUSER, "has no name");
    ck_assert(!exists("o.h5"));
    ck_assert(!exists("o.h5.part"));
    ck_assert(!exists("notes.part"));
    size_t length;
    unsigned char *notes = get_bytes("notes", &length);
    ck_assert_str_eq((char *)notes, "precious");
    free(notes);
}
END_TEST

START_TEST(only_token_files_are_replaced)
{
    put("a", "some text");
    put("o.h5", ""); /* mktemp makes these */
    tt_err err = {0};
    const char *a[] = {"a"};
    ck_assert_msg(build("o.h5", 0, 0, 1, a, NULL, &err) == TT_OK, "%s", err.text);
    expect_text("o.h5", false, "some text|");
    put("a", "other text");
    ck_assert_msg(build("o.h5", 0, 0, 1, a, NULL, &err) == TT_OK, "%s", err.text);
    expect_text("o.h5", false, "other text|");
    size_t length; /* a damaged token file may go too */
    unsigned char *bytes = get_bytes("o.h5", &length);
    put_bytes("o.h5", bytes, length / 2);
    free(bytes);
    ck_assert_msg(build("o.h5", 0, 0, 1, a, NULL, &err) == TT_OK, "%s", err.text);
    expect_text("o.h5", false, "other text|");
}
END_TEST

START_TEST(an_output_inside_an_input_is_left_out)
{
    make_dir("c");
    put("c/a", "text");
    tt_tokens_summary s;
    tt_err err = {0};
    const char *c[] = {"c"};
    for (int i = 0; i < 2; i++) {
        ck_assert_msg(build("c/o.h5", 0, 0, 1, c, &s, &err) == TT_OK, "%s", err.text);
        ck_assert_int_eq(s.documents, 1);
        ck_assert_int_eq(s.skipped_files, 0);
    }
}
END_TEST

/* A disk that is full, at many points of the file: exit 1, the old file as it was, nothing beside. */
START_TEST(a_full_disk_changes_nothing)
{
    static char text[2000000];
    memset(text, 'x', sizeof text);
    put_bytes("a", text, sizeof text);
    put("b", "old");
    tt_err err = {0};
    const char *a[] = {"a"}, *b[] = {"b"};
    ck_assert_int_eq(build("o.h5", 0, 0, 1, b, NULL, &err), TT_OK);
    char *paths[] = {in_dir("a")};
    tt_tokens_build full = {
        .out = in_dir("o.h5"), .tokenizer = "bytes", .inputs = 1, .input = paths};
    tt_tokens_summary summary;
    struct rlimit before, small;
    ck_assert_int_eq(getrlimit(RLIMIT_FSIZE, &before), 0);
    void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
    const int limits[] = {0, 100, 300000, 530000, 800000, 2000000, 4100000};
    tt_code rc[7];
    tt_err errs[7] = {0};
    for (int i = 0; i < 7; i++) { /* no assert in here: Check writes files itself */
        small = before;
        small.rlim_cur = (rlim_t)limits[i];
        setrlimit(RLIMIT_FSIZE, &small);
        rc[i] = tt_tokens_build_file(&full, &summary, &errs[i]);
        setrlimit(RLIMIT_FSIZE, &before);
    }
    signal(SIGXFSZ, handler);
    for (int i = 0; i < 7; i++) {
        ck_assert_msg(rc[i] == TT_EWORLD, "limit %d: code %d", limits[i], rc[i]);
        ck_assert_msg(strstr(errs[i].text, "cannot be written: File too large") != NULL, "%d: %s",
                      limits[i], errs[i].text);
    }
    expect_text("o.h5", false, "old|");
    ck_assert(!exists("o.h5.part"));
    ck_assert_msg(build("o.h5", 0, 0, 1, a, NULL, &err) == TT_OK, "%s", err.text); /* and goes on */
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("tokens_build");
    TCase *c = tcase_create("tokens_build");
    tcase_add_checked_fixture(c, setup, teardown);
    tcase_add_test(c, folders_in_order_of_names);
    tcase_add_test(c, hidden_empty_binary_and_repeated_are_skipped);
    tcase_add_test(c, loops_of_links_end);
    tcase_add_test(c, two_builds_are_the_same_bytes);
    tcase_add_test(c, parts_are_disjoint_and_whole);
    tcase_add_test(c, long_documents_come_back);
    tcase_add_test(c, entropy_is_that_of_the_training_part);
    tcase_add_test(c, mistakes_are_named_and_change_nothing);
    tcase_add_test(c, only_token_files_are_replaced);
    tcase_add_test(c, an_output_inside_an_input_is_left_out);
    tcase_add_test(c, a_full_disk_changes_nothing);
    suite_add_tcase(s, c);
    return s;
}

TT_TEST_MAIN(suite)
