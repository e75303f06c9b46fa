/* fixed_cases.h: summands reach accumulators of both kinds as tt_fixed_of and tt_fixed_to say, element
 * by element, for any number of them; what is lost is counted once. For vec_cases.h, at the width of
 * the vocabulary that was included before. */
#ifndef TT_FIXED_CASES_H
#define TT_FIXED_CASES_H

#include "kernels/generic/fixed.h"
#include "tt_test.h"

static const struct {
    int64_t sequences, tokens;
    float scale;
} fixed_batches[] = {{1, 1, 1},          {24, 1024, 1}, {24, 1024, 0x1p-15f},     {7, 1000, 0.3f},
                     {2048, 1000, 1e5f}, {3, 9, 1e18f}, {1 << 30, 1 << 30, 0.25f}};
enum { FIXED_BATCHES = sizeof fixed_batches / sizeof *fixed_batches };

static tt_fixed fixed_point_of(int b)
{
    return tt_fixed_make(fixed_batches[b].sequences, fixed_batches[b].tokens,
                         fixed_batches[b].scale);
}

/* Random bits, cut down to a summand. */
static float fixed_summand(uint64_t i, float limit)
{
    tt_u32x4 r = tt_rng(tt_rng_key(11, TT_RNG_TEST, 0), 0, i);
    const float x = ldexpf((float)r.v[0], -32 - (int)(r.v[1] % 48)) * limit;
    return r.v[2] % 16 == 0 ? 0 : r.v[2] % 2 == 0 ? x : -x;
}

static int64_t fixed_total(uint64_t i)
{
    tt_u32x4 r = tt_rng(tt_rng_key(11, TT_RNG_TEST, 1), 0, i);
    return (int64_t)((uint64_t)r.v[0] << 32 | r.v[1]) >> (2 + r.v[2] % 62);
}

/* Arrays end where the heap says. */
static void *fixed_room(int64_t n, size_t size)
{
    void *room = malloc((size_t)n * size + (n == 0));
    ck_assert_ptr_nonnull(room);
    return room;
}

/* One block of rows x cols into a matrix that is wider than it, by the block or step by step. */
static void fixed_block(tt_fixed point, float limit, int64_t rows, int64_t cols, bool steps,
                        bool fixed)
{
    enum { AT = 3, MARGIN_COLS = 2 };
    const int64_t stride = cols + MARGIN_COLS, x_stride = cols + 1;
    const int64_t size = AT + (rows - 1) * stride + cols, x_size = (rows - 1) * x_stride + cols;
    int64_t lost = 5, *q = fixed_room(size, sizeof *q), *was = fixed_room(size, sizeof *was);
    float *x = fixed_room(x_size, sizeof *x), *sum = fixed_room(size, sizeof *sum);
    for (int64_t i = 0; i < x_size; i++) {
        x[i] = fixed_summand((uint64_t)i, limit);
    }
    for (int64_t i = 0; i < size; i++) {
        was[i] = q[i] = fixed_total((uint64_t)i);
        sum[i] = (float)i * 0.1f;
    }
    const tt_grad g =
        fixed ? (tt_grad){.fixed = q, .point = &point, .lost = &lost} : (tt_grad){.sum = sum};
    if (steps) {
        for (int64_t m = 0; m < rows; m++) {
            for (int64_t n = 0; n < cols; n += LANES) {
                wide some = wide_load(x + m * x_stride + n, cols - n);
                if (cols - n < LANES) { /* what lanes beyond hold does not matter */
                    float all[LANES];
                    wide_to(all, some);
                    all[LANES - 1] = NAN;
                    some = wide_of(all);
                }
                grad_add(&g, AT + m * stride + n, some, cols - n, limit);
            }
        }
    } else {
        grad_add_block(&g, AT, stride, x, x_stride, rows, cols, limit);
    }
    ck_assert_int_eq(lost, 5);
    bool right = true;
    for (int64_t i = 0; i < size; i++) {
        const int64_t m = i < AT ? 0 : (i - AT) / stride, n = (i - AT) % stride;
        const bool in = i >= AT && n < cols;
        const float f = in ? x[m * x_stride + n] : 0;
        right = right && q[i] == was[i] + (fixed && in ? tt_fixed_of(&point, f) : 0) &&
                sum[i] == (!fixed && in ? (float)i * 0.1f + f : (float)i * 0.1f);
    }
    ck_assert_msg(right, "%lld x %lld", (long long)rows, (long long)cols);
    free(q);
    free(was);
    free(x);
    free(sum);
}

START_TEST(summands_are_added)
{
    for (int b = 0; b < FIXED_BATCHES; b++) {
        const tt_fixed point = fixed_point_of(b);
        for (int64_t cols = 1; cols < 3 * LANES; cols++) {
            for (int kind = 0; kind < 4; kind++) {
                fixed_block(point, tt_fixed_limit(&point, fixed_batches[b].tokens), 1 + cols % 5,
                            cols, kind % 2 != 0, kind / 2 != 0);
            }
        }
    }
}
END_TEST

/* Each kind of bad summand at each place of a block with a partial step is counted once, and alone. */
START_TEST(what_is_lost_is_counted)
{
    enum { ROWS = 3, COLS = 2 * LANES + 5 };
    const tt_fixed point = tt_fixed_make(24, 64, 0x1.8p-3f);
    const float limit = tt_fixed_limit(&point, 64), beyond = nextafterf(limit, INFINITY);
    const float bad[] = {NAN, -NAN, INFINITY, -INFINITY, beyond, -beyond, 3e38f};
    const float good[] = {limit, -limit, 0.0f, -0.0f};
    float x[ROWS * COLS];
    int64_t q[ROWS * COLS];
    for (int i = 0; i < ROWS * COLS; i++) {
        for (size_t k = 0; k < sizeof bad / sizeof *bad; k++) {
            int64_t lost = 0, steps = 0;
            for (int j = 0; j < ROWS * COLS; j++) {
                x[j] = good[j % 4];
                q[j] = 0;
            }
            const tt_grad g = {.fixed = q, .point = &point, .lost = &lost};
            const tt_grad other = {.fixed = q, .point = &point, .lost = &steps};
            x[i] = bad[k];
            grad_add_block(&g, 0, COLS, x, COLS, ROWS, COLS, limit);
            for (int64_t n = 0; n < COLS; n += LANES) {
                grad_add(&other, n, wide_load(x + i / COLS * COLS + n, COLS - n), COLS - n, limit);
            }
            ck_assert_int_eq(lost, 1);
            ck_assert_int_eq(steps, 1);
            x[ROWS * COLS - 1 - i] = bad[k]; /* another one, or the same */
            grad_add_block(&g, 0, COLS, x, COLS, ROWS, COLS, limit);
            ck_assert_int_eq(lost, ROWS * COLS - 1 - i == i ? 2 : 3);
        }
    }
}
END_TEST

START_TEST(totals_are_read)
{
    const int64_t some_totals[] = {0,
                                   1,
                                   -1,
                                   INT64_MAX / 2,
                                   -INT64_MAX / 2,
                                   1 << 24,
                                   (1 << 24) + 1,
                                   INT64_C(1) << 32,
                                   -(INT64_C(1) << 32),
                                   (INT64_C(1) << 53) + 1,
                                   (INT64_C(1) << 54) + 2,
                                   (INT64_C(1) << 61) + (INT64_C(1) << 37) + 1,
                                   INT64_MAX,
                                   INT64_MIN};
    enum { GIVEN = sizeof some_totals / sizeof *some_totals, ALL = GIVEN + 5000 };
    int64_t *q = fixed_room(ALL, sizeof *q);
    float *sum = fixed_room(ALL, sizeof *sum);
    for (int i = 0; i < ALL; i++) {
        q[i] = i < GIVEN ? some_totals[i] : fixed_total((uint64_t)i);
        sum[i] = (float)i;
    }
    for (int b = 0; b < FIXED_BATCHES; b++) {
        const tt_fixed point = fixed_point_of(b);
        const tt_grad g = {.fixed = q, .point = &point}, floats = {.sum = sum};
        for (int64_t n = 1; n <= LANES; n++) {
            bool right = true;
            for (int64_t at = 0; at < ALL; at += n) { /* n at a time, to the very end */
                const int64_t count = tt_min(n, ALL - at);
                float f[LANES], s[LANES];
                wide_to(f, grad_load(&g, at, count));
                wide_to(s, grad_load(&floats, at, count));
                for (int l = 0; l < LANES; l++) {
                    right = right && f[l] == (l < count ? tt_fixed_to(&point, q[at + l]) : 0) &&
                            s[l] == (l < count ? sum[at + l] : 0);
                }
            }
            ck_assert_msg(right, "%lld at a time", (long long)n);
        }
    }
    free(q);
    free(sum);
}
END_TEST

static void fixed_tests(TCase *tcase)
{
    tcase_add_test(tcase, summands_are_added);
    tcase_add_test(tcase, what_is_lost_is_counted);
    tcase_add_test(tcase, totals_are_read);
}

#endif
