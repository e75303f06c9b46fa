/* test_epilogue.c: what a matmul does with its sums (tt_epilogue), and how its weight comes. quick: no
 *
 * Every field alone and every combination, in gemm_nt and gemm_nn of every table, against the formula
 * of kernels.h in double. `before` is rounded on the way, so what follows starts from the rounded
 * value that was stored. Bit for bit: packed weights, threads, windows of the result, NULL and empty
 * epilogues. The bias gradient of gemm_tn, which comes beside its sums, leaf by leaf. */
#include "rig.h"

/* Which fields are given. */
enum { BIAS = 1, BEFORE = 2, SLOPE = 4, RESIDUAL = 8, DROP = 16, FIELDS = 32 };

typedef struct scene {
    int64_t M, N, K, T; /* y[M,N] = x[M,K] times w, or w^T; M = B*T */
    bool turned;        /* gemm_nt: w[N,K]; else gemm_nn: w[K,N] */
    void *x, *w, *bias, *slope, *residual;
    int64_t *sample;
    tt_dropout drop;
} scene;

static scene scene_open(rig *r, bool turned, const int64_t shape[4])
{
    scene s = {.M = shape[0], .N = shape[1], .K = shape[2], .T = shape[3], .turned = turned};
    s.x = rig_random(r, s.M * s.K, 1);
    s.w = rig_random(r, s.N * s.K, 0.5);
    s.bias = rig_random(r, s.N, 1);
    s.slope = rig_random(r, s.M * s.N, 2);
    s.residual = rig_random(r, s.M * s.N, 1);
    s.sample = rig_block((size_t)(s.M / s.T) * sizeof *s.sample);
    for (int64_t b = 0; b < s.M / s.T; b++) {
        s.sample[b] = 100003 * b + 5;
    }
    s.drop = rig_dropout(0.3, s.sample);
    return s;
}

static void scene_close(scene *s)
{
    free(s->x), free(s->w), free(s->bias), free(s->slope), free(s->residual), free(s->sample);
}

static tt_weight scene_weight(rig *r, const scene *s, bool packed)
{
    return rig_weight(r, s->w, s->turned ? s->N : s->K, s->turned ? s->K : s->N, packed);
}

static tt_epilogue scene_epilogue(const scene *s, int fields, void *before)
{
    return (tt_epilogue){.bias = fields & BIAS ? s->bias : NULL,
                         .before = fields & BEFORE ? before : NULL,
                         .slope = fields & SLOPE ? s->slope : NULL,
                         .residual = fields & RESIDUAL ? s->residual : NULL,
                         .drop = fields & DROP ? &s->drop : NULL,
                         .T = s->T};
}

static void multiply(rig *r, const scene *s, void *y, const tt_weight *w, const tt_epilogue *e)
{
    if (s->turned) {
        r->ops.gemm_nt(&r->ctx, y, s->x, w, e, s->M, s->N, s->K, s->M);
    } else {
        r->ops.gemm_nn(&r->ctx, y, s->x, w, e, s->M, s->K, s->N, s->M);
    }
}

static double gelu(double x)
{
    return 0.5 * x * (1 + tanh(sqrt(2 / acos(-1.0)) * (x + 0.044715 * x * x * x)));
}

static double gelu_slope(double x)
{
    const double h = 1e-5;
    return (gelu(x + h) - gelu(x - h)) / (2 * h);
}

/* Element (m, n) of y, and of `before` when that is given, must be what the formula says. */
static void check_element(const rig *r, const scene *s, int fields, const void *y,
                          const void *before, int64_t m, int64_t n)
{
    const int64_t at = m * s->N + n;
    double value = 0, size = 0, slack;
    for (int64_t k = 0; k < s->K; k++) {
        int64_t weight = s->turned ? n * s->K + k : k * s->N + n;
        double term = rig_get(r, s->x, m * s->K + k) * rig_get(r, s->w, weight);
        value += term;
        size += fabs(term);
    }
    if (fields & BIAS) {
        value += rig_get(r, s->bias, n);
        size += fabs(rig_get(r, s->bias, n));
    }
    slack = (double)(s->K + 4) * tt_formats[TT_FP32].epsilon * size;
    if (fields & BEFORE) {
        RIG_NEAR(r, rig_get(r, before, at), value, slack, "before");
        value = gelu(rig_get(r, before, at));
        slack = 2e-6 * fmax(1, fabs(value));
    }
    if (fields & SLOPE) {
        double slope = gelu_slope(rig_get(r, s->slope, at));
        slack = slack * fmax(1, fabs(slope)) + 1e-5 * fabs(value);
        value *= slope;
    }
    if (fields & RESIDUAL) {
        double keep = fields & DROP ? rig_keep(&s->drop, m / s->T, m % s->T * s->N + n) : 1;
        value = rig_get(r, s->residual, at) + keep * value;
        slack = slack * fmax(1, keep) + 1e-6 * fmax(1, fabs(value));
    }
    if (!rig_near(r, rig_get(r, y, at), value, slack)) {
        ck_abort_msg("%s %s %s fields %d, M=%lld N=%lld K=%lld at (%lld, %lld): %.9g, not %.9g",
                     r->ops.isa, tt_formats[r->ops.compute].name, s->turned ? "nt" : "nn", fields,
                     (long long)s->M, (long long)s->N, (long long)s->K, (long long)m, (long long)n,
                     rig_get(r, y, at), value);
    }
}

static void check_fields(rig *r, const scene *s, int fields)
{
    const size_t bytes = (size_t)(s->M * s->N) * rig_size(r);
    void *first = NULL, *first_before = NULL;
    for (int way = 0; way < 4; way++) { /* plain and packed, on one thread and on two */
        if (way >= 2 && fields != FIELDS - 1) {
            break; /* starting a team is what takes time here */
        }
        void *y = rig_acts(r, s->M * s->N), *before = rig_acts(r, s->M * s->N);
        void *untouched = rig_copy(before, bytes);
        tt_weight w = scene_weight(r, s, way % 2 == 1);
        tt_epilogue e = scene_epilogue(s, fields, before);
        r->ctx.threads = 1 + way / 2;
        multiply(r, s, y, &w, &e);
        rig_unpack(&w);
        if (way == 0) {
            for (int64_t i = 0; i < s->M * s->N; i++) {
                check_element(r, s, fields, y, before, i / s->N, i % s->N);
            }
            ck_assert(fields & BEFORE || memcmp(before, untouched, bytes) == 0);
            first = y;
            first_before = before;
        } else {
            ck_assert_msg(memcmp(y, first, bytes) == 0 && memcmp(before, first_before, bytes) == 0,
                          "%s fields %d: other bits %s", r->ops.isa, fields,
                          way == 1 ? "with a packed weight" : "on two threads");
            free(y), free(before);
        }
        free(untouched);
    }
    free(first), free(first_before);
}

/* M, N, K, T: vectors, ones, edges of blocks, and what divides nothing. */
static const int64_t shapes[][4] = {{1, 1, 1, 1},     {1, 67, 5, 1},    {7, 1, 3, 7},
                                    {6, 16, 1, 3},    {13, 65, 33, 13}, {12, 63, 2, 4},
                                    {66, 130, 7, 22}, {5, 200, 70, 1},  {8, 64, 64, 2}};
enum { SHAPES = sizeof shapes / sizeof shapes[0] };

static void all_fields(rig *r)
{
    for (int i = 0; i < 2 * SHAPES; i++) {
        scene s = scene_open(r, i % 2 == 0, shapes[i / 2]);
        for (int fields = 0; fields < FIELDS; fields++) {
            if (!(fields & DROP) || fields & RESIDUAL) { /* a branch is dropped, nothing else */
                check_fields(r, &s, fields);
            }
        }
        scene_close(&s);
    }
}

START_TEST(every_field_alone_and_together)
{
    rig_each(all_fields);
}
END_TEST

/* No epilogue, one that asks for nothing, and dropout that drops nothing. */
static void nothing_asked(rig *r)
{
    r->ctx.threads = 1;
    for (int i = 0; i < 2 * SHAPES; i++) {
        scene s = scene_open(r, i % 2 == 0, shapes[i / 2]);
        const size_t bytes = (size_t)(s.M * s.N) * rig_size(r);
        void *y = rig_acts(r, s.M * s.N), *same = rig_acts(r, s.M * s.N);
        tt_weight w = scene_weight(r, &s, false);
        tt_epilogue empty = {0}, residual = scene_epilogue(&s, RESIDUAL, NULL);
        tt_dropout off = rig_dropout(0, s.sample);
        multiply(r, &s, y, &w, NULL);
        for (int64_t e = 0; e < s.M * s.N; e++) {
            check_element(r, &s, 0, y, NULL, e / s.N, e % s.N);
        }
        multiply(r, &s, same, &w, &empty);
        ck_assert_mem_eq(y, same, bytes);
        multiply(r, &s, y, &w, &residual);
        residual.drop = &off;
        multiply(r, &s, same, &w, &residual);
        ck_assert_mem_eq(y, same, bytes);
        free(y), free(same);
        scene_close(&s);
    }
}

START_TEST(nothing_asked_changes_nothing)
{
    rig_each(nothing_asked);
}
END_TEST

/* GELU where it is flat, steep and saturated, forward and as a slope, exactly at those values: K = 1
 * and a weight of 1 hand x through. */
static void gelu_range(rig *r)
{
    static const double at[] = {0,  -0.0, 1e-3, -1e-3, 0.5, -0.75, -1.5, 3,
                                -3, 6,    -6,   30,    -30, 90,    -90};
    enum { M = sizeof at / sizeof at[0] };
    void *x = rig_acts(r, M), *w = rig_acts(r, 1), *y = rig_acts(r, M), *before = rig_acts(r, M);
    rig_put(r, w, 0, 1);
    for (int i = 0; i < M; i++) {
        rig_put(r, x, i, at[i]);
    }
    tt_weight weight = rig_weight(r, w, 1, 1, true);
    const tt_epilogue forward = {.before = before}, backward = {.slope = x};
    r->ops.gemm_nt(&r->ctx, y, x, &weight, &forward, M, 1, 1, M);
    for (int i = 0; i < M; i++) {
        double a = rig_get(r, x, i);
        ck_assert(rig_get(r, before, i) == a);
        RIG_NEAR(r, rig_get(r, y, i), gelu(a), 2e-6 * fmax(1, fabs(a)), "GELU");
    }
    for (int i = 0; i < M; i++) {
        rig_put(r, before, i, 1); /* dy */
    }
    r->ops.gemm_nn(&r->ctx, y, before, &weight, &backward, M, 1, 1, M);
    for (int i = 0; i < M; i++) {
        RIG_NEAR(r, rig_get(r, y, i), gelu_slope(rig_get(r, x, i)), 1e-5, "GELU's slope");
    }
    rig_unpack(&weight);
    free(x), free(w), free(y), free(before);
}

/* The operation gelu makes of `before` the very bits that the epilogue made: also of runs that begin and
 * end anywhere, and of what is no number. */
static void gelu_alone(rig *r)
{
    static const int64_t ragged[][4] = {{1, 1, 1, 1}, {6, 17, 5, 3}, {20, 131, 33, 10}};
    for (int i = 0; i < 3; i++) {
        scene s = scene_open(r, true, ragged[i]);
        const int64_t n = s.M * s.N;
        void *y = rig_acts(r, n), *before = rig_acts(r, n), *alone = rig_acts(r, n);
        tt_weight w = scene_weight(r, &s, true);
        if (i == 1) {
            rig_put(r, s.x, 0, INFINITY);
            rig_put(r, s.x, s.K, -INFINITY);
            rig_put(r, s.x, 2 * s.K, NAN);
        }
        const tt_epilogue e = scene_epilogue(&s, BIAS | BEFORE, before);
        multiply(r, &s, y, &w, &e);
        for (int64_t first = 0; first < n; first += 61) {
            const int64_t count = n - first < 61 ? n - first : 61;
            const size_t at = (size_t)first * rig_size(r);
            r->ops.gelu(&r->ctx, (char *)alone + at, (char *)before + at, count);
        }
        ck_assert_mem_eq(alone, y, (size_t)n * rig_size(r));
        rig_unpack(&w);
        free(y), free(before), free(alone);
        scene_close(&s);
    }
}

START_TEST(gelu_again)
{
    rig_each(gelu_alone);
}
END_TEST

START_TEST(gelu_over_its_range)
{
    rig_each(gelu_range);
}
END_TEST

/* The entry for sums that a library made: windows of the result, in any order, are the whole. */
static void windows(rig *r)
{
    static const int64_t shape[] = {10, 150, 1, 5}, cuts[] = {0, 1, 64, 77, 149, 150};
    enum { CUTS = sizeof cuts / sizeof cuts[0] };
    scene s = scene_open(r, true, shape);
    const int64_t n = s.M * s.N;
    const size_t bytes = (size_t)n * rig_size(r);
    float *sums = rig_floats(r, n, 2);
    void *whole = rig_acts(r, n), *whole_before = rig_acts(r, n);
    void *parts = rig_acts(r, n), *parts_before = rig_acts(r, n);
    tt_epilogue e = scene_epilogue(&s, FIELDS - 1, whole_before);
    r->ops.epilogue(&r->ctx, &e, whole, sums, s.N, 0, 0, s.M, s.N, s.N);
    e.before = parts_before;
    for (int64_t m = s.M - 3; m > -3; m -= 3) {
        for (int c = CUTS - 2; c >= 0; c--) {
            int64_t first = m > 0 ? m : 0, rows = m + 3 - first;
            float window[3 * 150];
            for (int64_t i = 0; i < rows; i++) {
                memcpy(window + i * 150, sums + (first + i) * s.N + cuts[c],
                       (size_t)(cuts[c + 1] - cuts[c]) * sizeof *window);
            }
            r->ops.epilogue(&r->ctx, &e, parts, window, 150, first, cuts[c], rows,
                            cuts[c + 1] - cuts[c], s.N);
        }
    }
    ck_assert_mem_eq(whole, parts, bytes);
    ck_assert_mem_eq(whole_before, parts_before, bytes);
    free(sums), free(whole), free(whole_before), free(parts), free(parts_before);
    scene_close(&s);
}

START_TEST(windows_make_the_whole)
{
    rig_each(windows);
}
END_TEST

/* --- the bias gradient -------------------------------------------------------------------------- */

static void bias_case(rig *r, int64_t M, int64_t N, int64_t K, int64_t leaf)
{
    void *dy = rig_random(r, M * N, 1), *x = rig_random(r, M * K, 1);
    const size_t nb = (size_t)N * sizeof(float), nw = (size_t)(N * K) * sizeof(float);
    float *gb = rig_floats(r, N, 1), *gw = rig_floats(r, N * K, 1);
    float *want_gb = rig_copy(gb, nb), *plain_gw = rig_copy(gw, nw), *start = rig_copy(gb, nb);
    r->ops.gemm_tn(&r->ctx, GRAD(gw), GRAD(gb), dy, x, M, N, K, leaf);
    r->ops.gemm_tn(&r->ctx, GRAD(plain_gw), NULL, dy, x, M, N, K, leaf);
    ck_assert_mem_eq(gw, plain_gw, nw);
    for (int64_t n = 0; n < N; n++) {
        double want = (double)start[n], size = fabs(want);
        for (int64_t m = 0; m < M; m++) {
            want += rig_get(r, dy, m * N + n);
            size += fabs(rig_get(r, dy, m * N + n));
        }
        ck_assert_msg(fabs((double)gb[n] - want) <=
                          (double)(M + 2) * tt_formats[TT_FP32].epsilon * size,
                      "%s gb[%lld] of N=%lld K=%lld: %.9g, not %.9g", r->ops.isa, (long long)n,
                      (long long)N, (long long)K, (double)gb[n], want);
    }
    /* Each leaf from zero, by itself, then added once. */
    float *leaf_gb = rig_block(nb);
    for (int64_t m = 0; m < M; m += leaf) {
        int64_t rows = leaf < M - m ? leaf : M - m;
        memset(leaf_gb, 0, nb);
        r->ops.gemm_tn(&r->ctx, GRAD(plain_gw), GRAD(leaf_gb),
                       (char *)dy + (size_t)(m * N) * rig_size(r),
                       (char *)x + (size_t)(m * K) * rig_size(r), rows, N, K, rows);
        for (int64_t n = 0; n < N; n++) {
            want_gb[n] += leaf_gb[n];
        }
    }
    ck_assert_mem_eq(gb, want_gb, nb);
    /* On another number of threads. */
    r->ctx.threads = 3 - r->ctx.threads;
    r->ops.gemm_tn(&r->ctx, GRAD(plain_gw), GRAD(start), dy, x, M, N, K, leaf);
    r->ctx.threads = 3 - r->ctx.threads;
    ck_assert_mem_eq(gb, start, nb);
    free(dy), free(x), free(gb), free(gw), free(want_gb), free(plain_gw), free(start),
        free(leaf_gb);
}

static void bias_cases(rig *r)
{
    static const int64_t cases[][4] = {{1, 1, 1, 1},      {5, 7, 3, 5},     {12, 1, 9, 4},
                                       {11, 65, 1, 4},    {30, 130, 17, 7}, {300, 20, 40, 150},
                                       {64, 200, 200, 64}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        bias_case(r, cases[i][0], cases[i][1], cases[i][2], cases[i][3]);
    }
}

START_TEST(bias_gradient_by_leaf)
{
    rig_each(bias_cases);
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("epilogue");
    TCase *tests = tcase_create("epilogue");
    tcase_set_timeout(tests, 60);
    tcase_add_test(tests, every_field_alone_and_together);
    tcase_add_test(tests, nothing_asked_changes_nothing);
    tcase_add_test(tests, gelu_over_its_range);
    tcase_add_test(tests, gelu_again);
    tcase_add_test(tests, windows_make_the_whole);
    tcase_add_test(tests, bias_gradient_by_leaf);
    suite_add_tcase(suite, tests);
    return suite;
}

TT_TEST_MAIN(make_suite)
