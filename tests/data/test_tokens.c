/* test_tokens.c: what a reader gives back, and what it says of files that are missing, foreign or
 * damaged. Damage is done by changing bytes, so no test needs HDF5 itself. */
#include "data_test.h"

static const char *const documents[] = {"alpha", "beta", "gamma", "delta", "epsilon", "zeta"};
enum { DOCUMENTS = sizeof documents / sizeof documents[0] };

static void setup(void)
{
    open_dir();
    build_documents("t.h5", 0.34, DOCUMENTS, documents);
}

static void teardown(void)
{
    close_dir();
}

static tt_code try_open(const char *name, bool valid, tt_err *err)
{
    tt_tokens *tokens = (tt_tokens *)err; /* must be overwritten */
    tt_code rc = tt_tokens_open(&tokens, in_dir(name), valid, err);
    ck_assert((rc == TT_OK) == (tokens != NULL));
    tt_tokens_close(tokens);
    return rc;
}

START_TEST(a_part_tells_what_it_is)
{
    tt_err err;
    int64_t all_documents = 0, all_tokens = 0;
    for (int valid = 0; valid < 2; valid++) {
        tt_tokens *t = open_tokens("t.h5", valid);
        ck_assert(tt_tokens_has_valid(t));
        ck_assert_int_eq(tt_tokens_vocab(t), 257);
        ck_assert_str_eq(tt_tokens_tokenizer(t), "bytes");
        ck_assert_str_eq(tt_tokens_path(t), in_dir("t.h5"));
        int64_t next = 0;
        for (int64_t d = 0; d < tt_tokens_documents(t); d++) {
            int64_t first, end;
            int32_t id[16], last;
            tt_tokens_document(t, d, &first, &end);
            ck_assert_int_eq(first, next);
            ck_assert_int_eq(tt_tokens_read(t, first, end - first, id, &err), TT_OK);
            ck_assert_int_eq(tt_tokens_read(t, end - 1, 1, &last, &err), TT_OK);
            ck_assert_int_eq(id[end - first - 1], 256);
            ck_assert_int_eq(last, 256);
            next = end;
        }
        ck_assert_int_eq(next, tt_tokens_count(t));
        ck_assert_int_eq(tt_tokens_read(t, next, 0, NULL, &err), TT_OK);
        all_documents += tt_tokens_documents(t);
        all_tokens += next;
        tt_tokens_close(t);
    }
    ck_assert_int_eq(all_documents, DOCUMENTS);
    ck_assert_int_eq(all_tokens, 5 + 4 + 5 + 5 + 7 + 4 + DOCUMENTS);
    tt_tokens_close(NULL);
}
END_TEST

START_TEST(many_readers_at_once)
{
    tt_tokens *a = open_tokens("t.h5", false), *b = open_tokens("t.h5", false),
              *c = open_tokens("t.h5", true);
    int32_t x, y;
    tt_err err;
    ck_assert_int_eq(tt_tokens_read(a, 0, 1, &x, &err), TT_OK);
    tt_tokens_close(a);
    ck_assert_int_eq(tt_tokens_read(b, 0, 1, &y, &err), TT_OK);
    ck_assert_int_eq(x, y);
    tt_tokens_close(b);
    ck_assert_int_eq(tt_tokens_read(c, 0, 1, &x, &err), TT_OK);
    tt_tokens_close(c);
}
END_TEST

START_TEST(what_is_no_token_file_is_the_users_to_mend)
{
    tt_err err;
    put("text", "just text, and rather long, so that a signature would fit");
    put("empty", "");
    make_dir("folder");
    expect_error(try_open("missing", false, &err), TT_EUSER,
                 "missing cannot be opened: No such file");
    expect_error(try_open("text/below", false, &err), TT_EUSER, "cannot be opened");
    expect_error(try_open("text", false, &err), TT_EUSER, "it is not HDF5");
    expect_error(try_open("empty", false, &err), TT_EUSER, "it is not HDF5");
    expect_error(try_open("folder", false, &err), TT_EUSER, "it is not a regular file");
    ck_assert_int_eq(mkfifo(in_dir("pipe"), 0600), 0); /* must not wait for a writer */
    expect_error(try_open("pipe", false, &err), TT_EUSER, "it is not a regular file");
    tt_tokens_summary s;
    expect_error(tt_tokens_inspect(in_dir("text"), &s, &err), TT_EUSER, "it is not HDF5");
}
END_TEST

START_TEST(foreign_hdf5_is_named)
{
    tt_err err;
    patch("t.h5", "tutti-tokens-1", "tutti-tokens-9", 14);
    expect_error(try_open("t.h5", false, &err), TT_EUSER, "format is \"tutti-tokens-9\"");
    patch("t.h5", "tutti-tokens-9", "tutti-tokens-1", 14);
    ck_assert_int_eq(try_open("t.h5", false, &err), TT_OK);
    patch("t.h5", "format\0", "xormat\0", 7);
    expect_error(try_open("t.h5", false, &err), TT_EUSER, "without the attribute format");
}
END_TEST

START_TEST(no_held_out_part)
{
    tt_err err;
    put("one", "one");
    const char *input[] = {"one"};
    ck_assert_int_eq(build("n.h5", 0, 0, 1, input, NULL, &err), TT_OK);
    tt_tokens *t = open_tokens("n.h5", false);
    ck_assert(!tt_tokens_has_valid(t));
    tt_tokens_close(t);
    expect_error(try_open("n.h5", true, &err), TT_EUSER, "has no held-out part");
}
END_TEST

/* Every shorter piece of the file: refused, never a crash; from the signature on it is damage. */
START_TEST(every_truncation_is_noticed)
{
    tt_err err;
    size_t length;
    unsigned char *bytes = get_bytes("t.h5", &length);
    for (size_t keep = 1; keep < length; keep += 1 + keep / 16) {
        put_bytes("cut.h5", bytes, keep);
        expect_error(try_open("cut.h5", false, &err), keep < 8 ? TT_EUSER : TT_EWORLD, "cut.h5");
    }
    put_bytes("cut.h5", bytes, length - 1);
    expect_error(try_open("cut.h5", false, &err), TT_EWORLD, "is damaged: truncated file");
    free(bytes);
}
END_TEST

START_TEST(damaged_offsets_are_noticed)
{
    tt_err err;
    tt_tokens *t = open_tokens("t.h5", false);
    int64_t n = tt_tokens_documents(t), offset[DOCUMENTS + 1], bad[DOCUMENTS + 1];
    for (int64_t d = 0; d < n; d++) {
        tt_tokens_document(t, d, &offset[d], &offset[d + 1]);
    }
    tt_tokens_close(t);
    const int64_t wrong[] = {INT64_MIN, -1, 1000000, INT64_MAX};
    size_t size = sizeof(int64_t) * (size_t)(n + 1);
    for (int64_t d = 0; d <= n; d++) {
        for (int i = 0; i < 4; i++) {
            memcpy(bad, offset, sizeof bad);
            bad[d] = wrong[i];
            patch("t.h5", offset, bad, size);
            expect_error(try_open("t.h5", false, &err), TT_EWORLD,
                         "is damaged: /documents does not rise from 0");
            patch("t.h5", bad, offset, size);
        }
    }
    ck_assert_int_eq(try_open("t.h5", false, &err), TT_OK);
}
END_TEST

START_TEST(damaged_ids_are_noticed_when_read)
{
    tt_err err;
    tt_tokens *t = open_tokens("t.h5", false);
    int64_t first, end;
    int32_t id[16];
    uint16_t good[16], bad[16];
    tt_tokens_document(t, 1, &first, &end);
    ck_assert_int_eq(tt_tokens_read(t, first, end - first, id, &err), TT_OK);
    tt_tokens_close(t);
    for (int i = 0; i < end - first; i++) {
        good[i] = bad[i] = (uint16_t)id[i];
    }
    bad[2] = 257;
    patch("t.h5", good, bad, sizeof(uint16_t) * (size_t)(end - first));
    t = open_tokens("t.h5", false);
    char words[64];
    snprintf(words, sizeof words, "token %lld of the training part is 257", (long long)first + 2);
    ck_assert_int_eq(tt_tokens_read(t, first, 2, id, &err), TT_OK);
    expect_error(tt_tokens_read(t, first, 3, id, &err), TT_EWORLD, words);
    tt_tokens_close(t);
    tt_tokens_summary s;
    expect_error(tt_tokens_inspect(in_dir("t.h5"), &s, &err), TT_EWORLD, words);
}
END_TEST

START_TEST(missing_and_senseless_pieces_are_noticed)
{
    tt_err err;
    put("one", "one");
    const char *input[] = {"one"};
    ck_assert_int_eq(build("n.h5", 0, 0, 1, input, NULL, &err), TT_OK);
    const struct {
        const char *from, *to;
        size_t length;
        const char *words;
    } row[] = {
        {"tokens\0", "tokenz\0", 7, "is damaged: /tokens is not a vector"},
        {"documents\0", "dokuments\0", 10, "is damaged: /documents is not a vector"},
        {"tokenizer\0", "tokeniser\0", 10, "is damaged: /tokenizer is not a string"},
        {"vocab\0", "vokab\0", 6, "is damaged: its attribute vocab is not a number"},
    };
    for (size_t i = 0; i < sizeof row / sizeof row[0]; i++) {
        patch("n.h5", row[i].from, row[i].to, row[i].length);
        expect_error(try_open("n.h5", false, &err), TT_EWORLD, row[i].words);
        patch("n.h5", row[i].to, row[i].from, row[i].length);
    }
    const int64_t vocab = 257, wrong[] = {0, -257, 1 << 25};
    for (int i = 0; i < 3; i++) {
        size_t length;
        unsigned char *bytes = get_bytes("n.h5", &length);
        unsigned char *at = memmem(bytes, length, "vocab", 6);
        ck_assert_ptr_nonnull(at);
        at = memmem(at, 128, &vocab, sizeof vocab);
        ck_assert_ptr_nonnull(at);
        memcpy(at, &wrong[i], sizeof vocab);
        put_bytes("v.h5", bytes, length);
        free(bytes);
        expect_error(try_open("v.h5", false, &err), TT_EWORLD, "not a number from 1 to 16777216");
    }
    ck_assert_int_eq(try_open("n.h5", false, &err), TT_OK);
}
END_TEST

/* Random ids fill the vocabulary, also one that needs 32 bits, and the last is the end token. */
START_TEST(noise_uses_the_whole_vocabulary)
{
    tt_err err = {TT_OK, ""};
    const int64_t vocab[] = {257, 65536, 65537}, count = 70000;
    for (int i = 0; i < 3; i++) {
        char *path = in_dir("noise.h5");
        ck_assert_msg(tt_tokens_noise_file(path, vocab[i], count, 3, &err) == TT_OK, "%s",
                      err.text);
        tt_tokens *tokens = open_tokens("noise.h5", false);
        ck_assert_int_eq(tt_tokens_count(tokens), count);
        ck_assert_int_eq(tt_tokens_documents(tokens), 1);
        ck_assert_int_eq(tt_tokens_vocab(tokens), vocab[i]);
        int32_t *id = calloc((size_t)count, sizeof *id);
        int64_t half = 0;
        ck_assert_ptr_nonnull(id);
        ck_assert_int_eq(tt_tokens_read(tokens, 0, count, id, &err), TT_OK);
        for (int64_t t = 0; t < count; t++) {
            half += id[t] >= vocab[i] / 2;
        }
        ck_assert_int_eq(id[count - 1], vocab[i] - 1);
        ck_assert(half > 2 * count / 5 && half < 3 * count / 5);
        ck_assert_int_ne(id[0], id[1]);
        free(id);
        tt_tokens_close(tokens);
    }
    expect_error(tt_tokens_noise_file(in_dir("absent/noise.h5"), 257, 10, 3, &err), TT_EUSER,
                 "cannot be created");
}
END_TEST

/* Beyond the end of a file HDF5 reads zeros. */
START_TEST(a_file_that_changes_while_it_is_read)
{
    tt_err err;
    tt_tokens *tokens;
    int32_t id;
    struct stat s;
    ck_assert_int_eq(tt_tokens_open(&tokens, in_dir("t.h5"), false, &err), TT_OK);
    ck_assert_int_eq(tt_tokens_read(tokens, 0, 1, &id, &err), TT_OK);
    ck_assert_int_eq(stat(in_dir("t.h5"), &s), 0);
    for (int longer = 0; longer < 2; longer++) {
        ck_assert_int_eq(truncate(in_dir("t.h5"), longer ? s.st_size + 1 : s.st_size / 2), 0);
        ck_assert_int_eq(tt_tokens_read(tokens, 0, 1, &id, &err), TT_EWORLD);
        ck_assert_ptr_nonnull(strstr(err.text, "it was changed while it was read"));
    }
    tt_tokens_close(tokens);
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("tokens");
    TCase *c = tcase_create("tokens");
    tcase_add_checked_fixture(c, setup, teardown);
    tcase_add_test(c, noise_uses_the_whole_vocabulary);
    tcase_add_test(c, a_part_tells_what_it_is);
    tcase_add_test(c, many_readers_at_once);
    tcase_add_test(c, what_is_no_token_file_is_the_users_to_mend);
    tcase_add_test(c, foreign_hdf5_is_named);
    tcase_add_test(c, no_held_out_part);
    tcase_add_test(c, every_truncation_is_noticed);
    tcase_add_test(c, a_file_that_changes_while_it_is_read);
    tcase_add_test(c, damaged_offsets_are_noticed);
    tcase_add_test(c, damaged_ids_are_noticed_when_read);
    tcase_add_test(c, missing_and_senseless_pieces_are_noticed);
    suite_add_tcase(s, c);
    return s;
}

TT_TEST_MAIN(suite)
