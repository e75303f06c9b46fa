/* test_tokenizer.c: bytes to tokens and back. */
#include "tt_test.h"
#include "tutti/data/tokenizer.h"

START_TEST(every_byte_comes_back)
{
    tt_tokenizer t;
    tt_err err;
    ck_assert_int_eq(tt_tokenizer_open(&t, "bytes", &err), TT_OK);
    ck_assert_str_eq(t.name, "bytes");
    ck_assert_int_eq(t.vocab, 257);
    ck_assert_int_eq(t.end, 256);
    char bytes[512];
    int32_t token[512];
    int64_t count = 0;
    for (int i = 0; i < 512; i++) {
        bytes[i] = (char)(unsigned char)(i * 7);
    }
    tt_encode(&t, bytes, 512, token, &count);
    ck_assert_int_eq(count, 512);
    tt_text back = {0};
    for (int i = 0; i < 512; i++) {
        ck_assert_int_eq(token[i], (unsigned char)(i * 7));
        tt_decode(&t, token[i], &back);
    }
    ck_assert_uint_eq(back.length, 512);
    ck_assert_mem_eq(back.data, bytes, 512);
    tt_text_free(&back);
}
END_TEST

START_TEST(end_and_foreign_ids_are_silent)
{
    tt_tokenizer t;
    tt_err err;
    ck_assert_int_eq(tt_tokenizer_open(&t, "bytes", &err), TT_OK);
    tt_text text = {0};
    tt_decode(&t, 256, &text);
    tt_decode(&t, 257, &text);
    tt_decode(&t, -1, &text);
    ck_assert_uint_eq(text.length, 0);
    tt_text_free(&text);
}
END_TEST

START_TEST(unknown_names_are_refused)
{
    tt_tokenizer t;
    tt_err err = {0};
    ck_assert_int_eq(tt_tokenizer_open(&t, "words", &err), TT_EUSER);
    ck_assert_ptr_nonnull(strstr(err.text, "\"words\""));
    ck_assert_ptr_nonnull(strstr(err.text, "allowed: bytes"));
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("tokenizer");
    TCase *c = tcase_create("tokenizer");
    tcase_add_test(c, every_byte_comes_back);
    tcase_add_test(c, end_and_foreign_ids_are_silent);
    tcase_add_test(c, unknown_names_are_refused);
    suite_add_tcase(s, c);
    return s;
}

TT_TEST_MAIN(suite)
