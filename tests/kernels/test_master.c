/* test_master.c: adamw with every kind of master, in every table: a split master has the bits of an FP32
 * one; a weight without a master is what AdamW makes of it, rounded by definition; random bits belong
 * to the element and the update alone. */
#include "rig.h"
#include "tutti/base/narrow.h"
#include "tutti/numerics/bf16_weight.h"

enum { N = 64 * 9 + 29, STEPS = 40 };
static const int64_t sizes[] = {1, 15, 16, 17, 63, 64, 65, 200, N};
enum { SIZES = sizeof sizes / sizeof *sizes };

static const tt_adamw update = {1e-2f, 0.9f, 0.95f, 1e-8f, 0.1f, 0.1f, 0.05f, 0.5f};

/* Masters of all sizes: ordinary ones; beyond the greatest BF16; halfway between two; tiny; zero. */
static float *masters(rig *r, int64_t n)
{
    static const uint32_t special[] = {0x7f7f8000u, 0xff7fffffu, 0x3f808000u, 0x3f818000u,
                                       0x00012345u, 0x80008000u, 0x00000000u, 0x80000000u};
    float *master = rig_floats(r, n, 1);
    for (int64_t i = 0; i < n; i += 3) {
        master[i] = tt_f32_of_bits(special[i / 3 % 8]);
    }
    return master;
}

static void split_cases(rig *r)
{
    if (r->ops.format != TT_BF16) {
        return;
    }
    for (int s = 0; s < SIZES; s++) {
        const int64_t n = sizes[s];
        const size_t bytes = (size_t)n * sizeof(float);
        float *full = masters(r, n), *state[2][2];
        uint16_t *low = rig_block((size_t)n * sizeof *low);
        tt_bf16 *w[2] = {rig_acts(r, n), rig_acts(r, n)};
        const tt_master split = {.kind = TT_MASTER_SPLIT, .low = low};
        for (int k = 0; k < 2; k++) {
            state[k][0] = rig_block(bytes), state[k][1] = rig_block(bytes);
            memset(state[k][0], 0, bytes), memset(state[k][1], 0, bytes);
        }
        for (int64_t i = 0; i < n; i++) {
            const tt_split_f32 half = tt_split_of_f32(full[i]);
            w[1][i] = half.high;
            low[i] = half.low;
        }
        int wrong = 0, moved = 0;
        for (int t = 0; t < STEPS; t++) {
            float *g = rig_floats(r, n, t % 3 == 0 ? 1e-20 : 1);
            for (int k = 0; k < 2; k++) {
                r->ops.adamw(&r->ctx, k == 0 ? FULL(full) : &split, state[k][0], state[k][1], w[k],
                             GRAD(g), n, &update);
            }
            for (int64_t i = 0; i < n; i++) {
                const tt_split_f32 half = tt_split_of_f32(full[i]);
                wrong += half.high != w[1][i] || half.low != low[i];
                wrong +=
                    tt_bits_of_f32(tt_f32_of_split(w[1][i], low[i])) != tt_bits_of_f32(full[i]);
                moved += low[i] != 0;
            }
            free(g);
        }
        ck_assert_msg(wrong == 0, "%s: %d", r->ops.isa, wrong);
        ck_assert(moved > 0);
        for (int k = 0; k < 2; k++) {
            ck_assert_mem_eq(state[0][k], state[1][k], bytes);
        }
        for (int k = 0; k < 2; k++) {
            free(state[k][0]), free(state[k][1]), free(w[k]);
        }
        free(full), free(low);
    }
}

START_TEST(split_has_the_bits_of_fp32)
{
    rig_each(split_cases);
}
END_TEST

/* A NaN of any payload stays one in both halves, and infinities stay themselves. */
static void special_cases(rig *r)
{
    enum { SPECIAL = 6 };
    static const uint32_t bits[SPECIAL] = {0x7fffffffu, 0xffffffffu, 0x7f800001u,
                                           0xffc00000u, 0x7f800000u, 0xff800000u};
    float g[SPECIAL] = {0};
    if (r->ops.format != TT_BF16) {
        return;
    }
    for (int kind = 0; kind < 3; kind++) {
        float m[SPECIAL] = {0}, v[SPECIAL] = {0};
        tt_bf16 w[SPECIAL];
        uint16_t low[SPECIAL];
        const tt_master master = {.kind = kind == 0 ? TT_MASTER_SPLIT : TT_MASTER_NONE,
                                  .low = kind == 0 ? low : NULL,
                                  .stochastic = kind == 2,
                                  .key = tt_rng_key(1, TT_RNG_ROUND, 1)};
        for (int i = 0; i < SPECIAL; i++) {
            w[i] = (tt_bf16)(bits[i] >> 16);
            low[i] = (uint16_t)bits[i];
        }
        r->ops.adamw(&r->ctx, &master, m, v, w, GRAD(g), SPECIAL, &update);
        for (int i = 0; i < SPECIAL; i++) {
            const float read = tt_f32_of_bf16(w[i]);
            const float kept = kind == 0 ? tt_f32_of_split(w[i], low[i]) : read;
            ck_assert_msg(i < 4 ? isnan(read) || (kind > 0 && i == 2)
                                : w[i] == bits[i] >> 16 && isinf(kept),
                          "%s kind %d: %08x became %04x", r->ops.isa, kind, bits[i], w[i]);
            ck_assert(isnan(read) == isnan(kept));
        }
    }
}

START_TEST(special_numbers_stay)
{
    rig_each(special_cases);
}
END_TEST

/* What rounding makes of FP32 masters that began as these weights. */
static void rounded_cases(rig *r)
{
    static const int64_t firsts[] = {0, 32, 61, ((int64_t)1 << 34) - 40};
    if (r->ops.format != TT_BF16) {
        return;
    }
    for (int s = 0; s < SIZES * 4 * 2; s++) {
        const int64_t n = sizes[s % SIZES], first = firsts[s / SIZES % 4];
        const size_t bytes = (size_t)n * sizeof(float);
        float *full = masters(r, n), *g = rig_floats(r, n, 1);
        float *m = rig_floats(r, n, 1), *v = rig_floats(r, n, 0);
        float *m_full = rig_copy(m, bytes), *v_full = rig_copy(v, bytes);
        tt_bf16 *w = rig_acts(r, n), *w_full = rig_acts(r, n);
        const tt_master none = {.kind = TT_MASTER_NONE,
                                .stochastic = s / SIZES / 4 > 0,
                                .key = tt_rng_key(9, TT_RNG_ROUND, 77),
                                .first = first};
        for (int64_t i = 0; i < n; i++) {
            w[i] = tt_bf16_of_f32(full[i]);
            full[i] = tt_f32_of_bf16(w[i]);
        }
        r->ops.adamw(&r->ctx, FULL(full), m_full, v_full, w_full, GRAD(g), n, &update);
        r->ops.adamw(&r->ctx, &none, m, v, w, GRAD(g), n, &update);
        int wrong = 0;
        for (int64_t i = 0; i < n; i++) {
            const uint64_t e = (uint64_t)(first + i);
            const uint32_t word = tt_rng(none.key, 0, e / 8).v[e / 2 % 4];
            const uint16_t random = (uint16_t)(e % 2 == 0 ? word : word >> 16);
            wrong += w[i] !=
                     (none.stochastic ? tt_bf16_random(full[i], random) : tt_bf16_of_f32(full[i]));
        }
        ck_assert_msg(wrong == 0, "%s, n %d: %d", r->ops.isa, (int)n, wrong);
        ck_assert_mem_eq(m, m_full, bytes);
        ck_assert_mem_eq(v, v_full, bytes);
        free(full), free(g), free(m), free(v), free(m_full), free(v_full), free(w), free(w_full);
    }
}

START_TEST(without_a_master_the_result_is_rounded)
{
    rig_each(rounded_cases);
}
END_TEST

/* In one piece or in many that begin anywhere, on one thread or two. */
static void cut_cases(rig *r)
{
    static const int64_t cuts[] = {N, 129, 64, 32, 7};
    if (r->ops.format != TT_BF16) {
        return;
    }
    for (int kind = TT_MASTER_SPLIT; kind <= TT_MASTER_NONE; kind++) {
        float *g = rig_floats(r, N, 1), *start = rig_floats(r, N, 1), *m[5], *v[5];
        tt_bf16 *w[5];
        uint16_t *low[5];
        for (int c = 0; c < 5; c++) {
            m[c] = rig_copy(start, N * sizeof *g), v[c] = rig_block(N * sizeof *g);
            memset(v[c], 0, N * sizeof *g);
            w[c] = rig_acts(r, N), low[c] = rig_block(N * sizeof *low[c]);
            for (int i = 0; i < N; i++) {
                const tt_split_f32 half = tt_split_of_f32(start[i]);
                w[c][i] = half.high;
                low[c][i] = half.low;
            }
            r->ctx.threads = 1 + c % 2;
            for (int64_t i = 0; i < N; i += cuts[c]) {
                const tt_master part = {.kind = (tt_master_kind)kind,
                                        .low = low[c] + i,
                                        .stochastic = kind == TT_MASTER_NONE,
                                        .key = tt_rng_key(9, TT_RNG_ROUND, 3),
                                        .first = 1000 + i};
                r->ops.adamw(&r->ctx, &part, m[c] + i, v[c] + i, w[c] + i, GRAD(g + i),
                             tt_min(cuts[c], N - i), &update);
            }
            ck_assert_mem_eq(w[0], w[c], N * sizeof *w[c]);
            ck_assert_mem_eq(low[0], low[c], N * sizeof *low[c]);
        }
        for (int c = 0; c < 5; c++) {
            free(m[c]), free(v[c]), free(w[c]), free(low[c]);
        }
        free(g), free(start);
    }
}

START_TEST(cuts_and_threads_do_not_show)
{
    rig_each(cut_cases);
}
END_TEST

/* A weight of 1 that should go down by a hundredth of the gap below it: to nearest it never does; at
 * random, on average over keys, exactly so far; and no two elements or updates share their bits. */
static void mean_cases(rig *r)
{
    enum { KEYS = 300 };
    const double gap = 0x1p-8, share = 0.01;
    const tt_adamw tiny = {
        .lr = (float)(share * gap), .eps = 1e-20f, .correction1 = 1, .correction2 = 1};
    float *g = rig_floats(r, N, 0), *m = rig_block(N * sizeof *m), *v = rig_block(N * sizeof *v);
    tt_bf16 *w = rig_acts(r, N);
    double down = 0, pairs = 0, again = 0;
    bool before[N] = {false};
    if (r->ops.format != TT_BF16) {
        goto out;
    }
    for (int i = 0; i < N; i++) {
        g[i] = 1;
    }
    for (int key = -1; key < KEYS; key++) {
        const tt_master none = {.kind = TT_MASTER_NONE,
                                .stochastic = key >= 0,
                                .key = tt_rng_key(4, TT_RNG_ROUND, (uint64_t)key)};
        tt_adamw step = tiny;
        step.grad_scale = 1;
        for (int i = 0; i < N; i++) {
            m[i] = v[i] = 0;
            w[i] = tt_bf16_of_f32(1);
        }
        r->ops.adamw(&r->ctx, &none, m, v, w, GRAD(g), N, &step);
        for (int i = 0; i < N; i++) {
            const bool moved = w[i] == tt_bf16_of_f32((float)(1 - gap));
            ck_assert(moved ? key >= 0 : w[i] == tt_bf16_of_f32(1));
            down += moved;
            pairs += i > 0 && moved && w[i] == w[i - 1];
            again += moved && before[i];
            before[i] = moved;
        }
    }
    const double count = (double)N * KEYS, p = share;
    ck_assert_msg(fabs(down / count - p) < 5 * sqrt(p * (1 - p) / count), "%g", down / count);
    ck_assert_msg(fabs(pairs / count - p * p) < 5 * p / sqrt(count), "%g", pairs / count);
    ck_assert_msg(fabs(again / count - p * p) < 5 * p / sqrt(count), "%g", again / count);
out:
    free(g), free(m), free(v), free(w);
}

START_TEST(lost_updates_are_kept_on_average)
{
    rig_each(mean_cases);
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("master");
    TCase *tests = tcase_create("master");
    tcase_set_timeout(tests, 120);
    tcase_add_test(tests, split_has_the_bits_of_fp32);
    tcase_add_test(tests, special_numbers_stay);
    tcase_add_test(tests, without_a_master_the_result_is_rounded);
    tcase_add_test(tests, cuts_and_threads_do_not_show);
    tcase_add_test(tests, lost_updates_are_kept_on_average);
    suite_add_tcase(suite, tests);
    return suite;
}

TT_TEST_MAIN(make_suite)
