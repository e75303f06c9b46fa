/* test_memory.c: arenas, what of them is in memory and what nobody may touch, small allocations,
 * checked narrowing. */
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "dies.h"
#include "tt_test.h"
#include "tutti/base/memory.h"
#include "tutti/base/narrow.h"

/* Does the call die by abort? In a child, with its message thrown away. */
static bool aborts(void (*call)(void))
{
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        fclose(stderr);
        call();
        _exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    return WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT;
}

START_TEST(test_arena)
{
    tt_err err;
    tt_arena arena;
    const size_t sizes[] = {1, 4096, 100000, (size_t)5 << 20};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        ck_assert_int_eq(tt_arena_open(&arena, "test", sizes[s], &err), TT_OK);
        ck_assert_uint_ge(arena.bytes, sizes[s]);
        unsigned char *end = NULL;
        size_t left = sizes[s], piece = 1;
        while (left >= tt_arena_cost(piece)) {
            unsigned char *p = tt_arena_take(&arena, piece);
            ck_assert_uint_eq((uintptr_t)p % TT_ALIGN, 0);
            ck_assert(end == NULL || p >= end);
            for (size_t i = 0; i < piece; i += piece < 8192 ? 1 : 509) {
                ck_assert_uint_eq(p[i], 0);
            }
            memset(p, 0xff, piece);
            end = p + piece;
            left -= tt_arena_cost(piece);
            piece = piece * 3 + 7;
        }
        tt_arena_close(&arena);
        ck_assert(arena.base == NULL && arena.bytes == 0 && arena.used == 0);
        tt_arena_close(&arena);
    }
}
END_TEST

START_TEST(test_arena_exact_fit)
{
    tt_err err;
    tt_arena arena;
    size_t plan = tt_arena_cost(1) + tt_arena_cost(64) + tt_arena_cost(65) + tt_arena_cost(0);
    ck_assert_uint_eq(plan, 64 + 64 + 128 + 3 * TT_REDZONE);
    ck_assert_int_eq(tt_arena_open(&arena, "exact", 4096 - TT_REDZONE, &err), TT_OK);
    ck_assert_uint_eq(arena.bytes, 4096);
    ck_assert_ptr_nonnull(tt_arena_take(&arena, 4096 - plan - TT_REDZONE));
    ck_assert_ptr_nonnull(tt_arena_take(&arena, 1));
    ck_assert_ptr_nonnull(tt_arena_take(&arena, 64));
    ck_assert_ptr_nonnull(tt_arena_take(&arena, 65));
    ck_assert_uint_eq(arena.used, 4096);
    ck_assert_ptr_nonnull(tt_arena_take(&arena, 0));
    tt_arena_close(&arena);
}
END_TEST

START_TEST(test_arena_empty)
{
    tt_err err;
    tt_arena arena;
    ck_assert_int_eq(tt_arena_open(&arena, "empty", 0, &err), TT_OK);
    ck_assert_ptr_nonnull(tt_arena_take(&arena, 0));
    tt_arena_close(&arena);
    tt_arena zeroed = {0};
    tt_arena_close(&zeroed);
}
END_TEST

START_TEST(test_arena_refused)
{
    tt_err err;
    tt_arena arena;
    const size_t sizes[] = {(size_t)1 << 55, SIZE_MAX - 1, SIZE_MAX};
    for (int i = 0; i < 3; i++) {
        ck_assert_int_eq(tt_arena_open(&arena, "the moon", sizes[i], &err), TT_EWORLD);
        ck_assert_ptr_nonnull(strstr(err.text, "the moon"));
        ck_assert_ptr_nonnull(strstr(err.text, "iB"));
        ck_assert_ptr_null(arena.base);
        tt_arena_close(&arena);
    }
}
END_TEST

static void run_over(void)
{
    tt_err err;
    tt_arena arena;
    if (tt_arena_open(&arena, "small", 4096, &err) == TT_OK) {
        tt_arena_take(&arena, 4000);
        tt_arena_take(&arena, arena.bytes - 4000);
    }
}

static void run_far_over(void)
{
    tt_err err;
    tt_arena arena;
    if (tt_arena_open(&arena, "small", 4096, &err) == TT_OK) {
        tt_arena_take(&arena, SIZE_MAX);
    }
}

START_TEST(test_arena_overrun_aborts)
{
    ck_assert(aborts(run_over));
    ck_assert(aborts(run_far_over));
}
END_TEST

enum { BIG = 2 << 20, PIECES = 8 };

/* Of eight huge pages some are used; only those are resident, whatever the system's pages are. */
START_TEST(test_resident)
{
    tt_err err;
    tt_arena arena;
    const int threads = 1 + _i;
    ck_assert_int_eq(tt_arena_open(&arena, "test", PIECES * BIG, &err), TT_OK);
    ck_assert_uint_eq(tt_arena_resident(&arena), 0);
    unsigned char *first = tt_arena_take(&arena, 3 * BIG - TT_REDZONE);
    first[BIG + 5] = 7;
    ck_assert_uint_ge(tt_arena_resident(&arena), 4096);
    ck_assert_uint_le(tt_arena_resident(&arena), BIG);
    tt_touch(first + BIG - 1, 2, threads); /* the last byte of one, the first of another */
    ck_assert_uint_ge(tt_arena_resident(&arena), 2 * 4096);
    ck_assert_uint_le(tt_arena_resident(&arena), 2 * BIG);
    tt_touch(first, 0, threads);
    tt_touch(first, 3 * BIG - TT_REDZONE, threads);
    ck_assert_uint_eq(tt_arena_resident(&arena), 3 * BIG);
    int changed = 0;
    for (int i = 0; i < 3 * BIG - TT_REDZONE; i++) {
        changed += first[i] != (i == BIG + 5 ? 7 : 0);
    }
    ck_assert_int_eq(changed, 0);
    tt_arena_take(&arena, BIG - TT_REDZONE);
    ck_assert_uint_eq(tt_arena_resident(&arena), 3 * BIG);
    tt_arena_touch(&arena, threads);
    ck_assert_uint_eq(tt_arena_resident(&arena), 4 * BIG);
    ck_assert_int_eq(first[BIG + 5], 7);
    tt_arena_close(&arena);
    ck_assert_uint_eq(tt_arena_resident(&arena), 0);
}
END_TEST

#ifdef __SANITIZE_ADDRESS__
/* Every byte of a piece may be written, and none of the red zone behind it, nor what nobody took. */
START_TEST(test_red_zones)
{
    static const size_t sizes[] = {1, 63, 64, 100};
    tt_err err;
    tt_arena arena;
    ck_assert_int_eq(tt_arena_open(&arena, "test", 4096, &err), TT_OK);
    for (int i = 0; i < 4; i++) {
        unsigned char *piece = tt_arena_take(&arena, sizes[i]);
        memset(piece, 1, sizes[i]);
        ck_assert_msg(tt_dies_writing(piece + sizes[i]), "behind a piece of %zu", sizes[i]);
        ck_assert_msg(tt_dies_writing(arena.base + arena.used - 1),
                      "the end of the red zone of %zu", sizes[i]);
    }
    ck_assert(tt_dies_writing(arena.base + arena.bytes - 1));
    unsigned char *parted = tt_arena_take(&arena, 256);
    tt_redzone(parted, 100, 192);
    ck_assert(!tt_dies_writing(parted + 99));
    ck_assert(tt_dies_writing(parted + 100));
    ck_assert(tt_dies_writing(parted + 191));
    ck_assert(!tt_dies_writing(parted + 192));
    tt_arena_close(&arena);
}
END_TEST
#endif

START_TEST(test_alloc)
{
    tt_err err;
    int64_t *many = tt_alloc(1000, sizeof *many, &err);
    ck_assert_ptr_nonnull(many);
    for (int i = 0; i < 1000; i++) {
        ck_assert_int_eq(many[i], 0);
    }
    free(many);
    void *none = tt_alloc(0, 8, &err);
    ck_assert_ptr_nonnull(none);
    free(none);
    char *copy = tt_strdup("tutti", &err);
    ck_assert_str_eq(copy, "tutti");
    free(copy);
}
END_TEST

static void int_high(void)
{
    tt_int((int64_t)INT32_MAX + 1);
}
static void int_low(void)
{
    tt_int((int64_t)INT32_MIN - 1);
}
static void size_negative(void)
{
    tt_size(-1);
}
static void count_high(void)
{
    tt_count((size_t)INT64_MAX + 1);
}
static void u32_high(void)
{
    tt_u32((int64_t)UINT32_MAX + 1);
}
static void u32_low(void)
{
    tt_u32(-1);
}
static void bytes_overflow(void)
{
    tt_bytes((int64_t)1 << 62, 8);
}
static void bytes_negative(void)
{
    tt_bytes(-1, 8);
}
static void mul_overflow(void)
{
    tt_mul((int64_t)1 << 32, (int64_t)1 << 31);
}
static void ceil_zero(void)
{
    tt_ceil_div(1, 0);
}
static void round_overflow(void)
{
    tt_round_up(INT64_MAX, 64);
}

START_TEST(test_narrow)
{
    ck_assert_int_eq(tt_int(INT32_MAX), INT32_MAX);
    ck_assert_int_eq(tt_int(INT32_MIN), INT32_MIN);
    ck_assert_uint_eq(tt_size(INT64_MAX), (size_t)INT64_MAX);
    ck_assert_int_eq(tt_count(7), 7);
    ck_assert_uint_eq(tt_u32(UINT32_MAX), UINT32_MAX);
    ck_assert_uint_eq(tt_bytes(3, 8), 24);
    ck_assert_int_eq(tt_mul(-3, 8), -24);
    ck_assert_int_eq(tt_ceil_div(0, 5), 0);
    ck_assert_int_eq(tt_ceil_div(10, 5), 2);
    ck_assert_int_eq(tt_ceil_div(11, 5), 3);
    ck_assert_int_eq(tt_ceil_div(INT64_MAX, 2), INT64_MAX / 2 + 1);
    ck_assert_int_eq(tt_round_up(0, 64), 0);
    ck_assert_int_eq(tt_round_up(65, 64), 128);
    ck_assert_int_eq(tt_min(-1, 2), -1);
    ck_assert_int_eq(tt_max(-1, 2), 2);
    void (*const bad[])(void) = {int_high,     int_low,   size_negative,  count_high,
                                 u32_high,     u32_low,   bytes_overflow, bytes_negative,
                                 mul_overflow, ceil_zero, round_overflow};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        ck_assert_msg(aborts(bad[i]), "case %zu", i);
    }
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("memory");
    TCase *tcase = tcase_create("memory");
    tcase_add_test(tcase, test_arena);
    tcase_add_test(tcase, test_arena_exact_fit);
    tcase_add_test(tcase, test_arena_empty);
    tcase_add_test(tcase, test_arena_refused);
    tcase_add_test(tcase, test_arena_overrun_aborts);
    tcase_add_loop_test(tcase, test_resident, 0, 3);
#ifdef __SANITIZE_ADDRESS__
    tcase_add_test(tcase, test_red_zones);
#endif
    tcase_add_test(tcase, test_alloc);
    tcase_add_test(tcase, test_narrow);
    suite_add_tcase(suite, tcase);
    return suite;
}

TT_TEST_MAIN(make_suite)
