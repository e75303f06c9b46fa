/* test_digest.c: digests add up over any split and see every change of one element. */
#include "tt_test.h"
#include "tutti/base/rng.h"
#include "tutti/numerics/digest.h"

enum { N = 1000 };

static void fill(uint32_t *data)
{
    tt_key key = tt_rng_key(7, TT_RNG_TEST, 0);
    for (int i = 0; i < N; i++) {
        data[i] = tt_rng(key, 0, (uint64_t)i).v[0];
    }
}

START_TEST(test_split)
{
    uint32_t data[N];
    fill(data);
    uint64_t whole = tt_digest32(data, 0, N);
    ck_assert_uint_eq(tt_digest32(data, 0, 0), 0);
    for (int a = 0; a <= N; a += 37) {
        for (int b = a; b <= N; b += 101) {
            uint64_t sum = tt_digest32(data + b, b, N - b) + tt_digest32(data, 0, a) +
                           tt_digest32(data + a, a, b - a);
            ck_assert_uint_eq(sum, whole);
        }
    }
    ck_assert_uint_ne(tt_digest32(data, 1, N), whole); /* position counts */
}
END_TEST

START_TEST(test_every_bit)
{
    uint32_t data[N];
    fill(data);
    uint64_t whole = tt_digest32(data, 0, N);
    for (int i = 0; i < N; i++) {
        for (int bit = 0; bit < 32; bit++) {
            data[i] ^= 1u << bit;
            ck_assert_uint_ne(tt_digest32(data, 0, N), whole);
            data[i] ^= 1u << bit;
        }
    }
    ck_assert_uint_eq(tt_digest32(data, 0, N), whole);
}
END_TEST

START_TEST(test_other_changes)
{
    uint32_t data[N];
    fill(data);
    uint64_t whole = tt_digest32(data, 0, N);
    for (int i = 0; i + 1 < N;
         i++) { /* two elements change places; two change against each other */
        uint32_t a = data[i], b = data[i + 1];
        data[i] = b;
        data[i + 1] = a;
        ck_assert_uint_ne(tt_digest32(data, 0, N), whole);
        data[i] = a + 1;
        data[i + 1] = b - 1;
        ck_assert_uint_ne(tt_digest32(data, 0, N), whole);
        data[i] = a;
        data[i + 1] = b;
    }
    uint32_t zeros[N] = {0}; /* zeros are content too: length shows */
    ck_assert_uint_ne(tt_digest32(zeros, 0, N), tt_digest32(zeros, 0, N - 1));
}
END_TEST

/* Digests are stored in checkpoints: these values may never change. */
START_TEST(test_stored_values)
{
    const uint32_t data[3] = {0, 1, 0xffffffffu};
    ck_assert_uint_eq(tt_digest32(data, 0, 3), 0x8f56ffda27d41889u);
    ck_assert_uint_eq(tt_digest32(data, 1000000, 3), 0xa5d5c86ffd937954u);
    ck_assert_uint_eq(tt_digest_bytes("tutti", 5), 0x5883ac25e01c509eu);
}
END_TEST

START_TEST(test_bytes)
{
    const char text[] = "model:\n  layers: 12\n";
    int64_t length = (int64_t)strlen(text);
    uint64_t digest = tt_digest_bytes(text, length);
    char copy[64] = {0};
    for (int64_t i = 0; i < length; i++) {
        memcpy(copy, text, (size_t)length);
        copy[i] ^= 0x20;
        ck_assert_uint_ne(tt_digest_bytes(copy, length), digest);
        ck_assert_uint_ne(tt_digest_bytes(text, i), digest);
    }
    /* A NUL more is a difference, also inside the last word. */
    ck_assert_uint_ne(tt_digest_bytes("abc", 3), tt_digest_bytes("abc\0", 4));
    ck_assert_uint_ne(tt_digest_bytes("", 0), tt_digest_bytes("\0", 1));
}
END_TEST

/* Of a list: which tensors, and in which order. */
START_TEST(test_group)
{
    const uint64_t one[2] = {1, 2}, turned[2] = {2, 1};
    ck_assert_uint_eq(tt_digest_group(one, 2), tt_digest_bytes(one, sizeof one));
    ck_assert_uint_ne(tt_digest_group(one, 2), tt_digest_group(turned, 2));
    ck_assert_uint_ne(tt_digest_group(one, 2), tt_digest_group(one, 1));
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("digest");
    TCase *tcase = tcase_create("digest");
    tcase_add_test(tcase, test_split);
    tcase_add_test(tcase, test_every_bit);
    tcase_add_test(tcase, test_other_changes);
    tcase_add_test(tcase, test_stored_values);
    tcase_add_test(tcase, test_bytes);
    tcase_add_test(tcase, test_group);
    suite_add_tcase(suite, tcase);
    return suite;
}

TT_TEST_MAIN(make_suite)
