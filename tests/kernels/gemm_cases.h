/* gemm_cases.h: what a table of matmuls must hold, whatever its format and whatever unit serves it.
 *
 * The yardstick is the product in double precision of the same inputs, as they enter a product; the
 * tolerance follows from the format table. The rest is bit for bit: threads, rows alone against
 * rows together, leaves alone against leaves together, the rounding of the output. Inputs and
 * outputs are heap blocks of the exact size, so that a sanitizer sees a read or write outside;
 * outputs also stand between guards for builds without one.
 *
 * gemm_add_cases(suite, name, table) adds all cases for a table, gemm_add_numbers the few about numbers;
 * they may be called more than once. */
#ifndef TT_GEMM_CASES_H
#define TT_GEMM_CASES_H

#include "sums.h"
#include "tt_test.h"
#include "tutti/base/rng.h"
#include "tutti/kernels/kernels.h"

enum { GEMM_TABLES = 9 };
static const tt_ops *gemm_tables[GEMM_TABLES];
static int gemm_table_count;
/* Each case takes from its loop index the table under test, and whether weights come packed. */
static const tt_ops *gemm_ops;
static bool gemm_packed;

enum { GUARD = 64, ROOM = 1024 };

/* A context with a workspace of the stated size, filled with NaN; free(ctx.workspace). */
static tt_ctx gemm_ctx(int threads)
{
    tt_extents extents = {.rows = ROOM,
                          .tokens = ROOM,
                          .channels = ROOM,
                          .ffn = ROOM,
                          .vocab = ROOM,
                          .heads = 1,
                          .head_size = ROOM,
                          .packed = gemm_packed};
    size_t bytes = gemm_ops->workspace == NULL ? 0 : gemm_ops->workspace(&extents, threads);
    bytes = (bytes / 64 + 1) * 64;
    tt_ctx ctx = {.threads = threads, .workspace_bytes = bytes};
    ctx.workspace = aligned_alloc(64, bytes);
    ck_assert_ptr_nonnull(ctx.workspace);
    memset(ctx.workspace, 0xff, bytes);
    return ctx;
}

enum { TEAMS = 3 };

/* One context per team size, 1 .. TEAMS. */
static void gemm_teams_open(tt_ctx ctx[TEAMS])
{
    for (int i = 0; i < TEAMS; i++) {
        ctx[i] = gemm_ctx(i + 1);
    }
}

static void gemm_teams_close(tt_ctx ctx[TEAMS])
{
    for (int i = 0; i < TEAMS; i++) {
        free(ctx[i].workspace);
    }
}

static size_t gemm_size(void)
{
    return tt_formats[gemm_ops->format].bytes;
}

/* Element i on of an array of acts. */
static void *gemm_item(const void *array, int64_t i)
{
    return (char *)(uintptr_t)array + (size_t)i * gemm_size();
}

static void gemm_put_code(void *array, int64_t i, uint32_t code)
{
    memcpy(gemm_item(array, i), &code, gemm_size()); /* little-endian, as all that is x86 */
}

static void gemm_put(void *array, int64_t i, float value)
{
    gemm_put_code(array, i, tt_format_code(gemm_ops->format, value));
}

static float gemm_get(const void *array, int64_t i)
{
    uint32_t code = 0;
    memcpy(&code, gemm_item(array, i), gemm_size());
    return tt_format_value(gemm_ops->format, code);
}

/* The same as it enters a product. */
static double gemm_factor(const void *array, int64_t i)
{
    tt_format f = gemm_ops->compute;
    return (double)tt_format_value(f, tt_format_code(f, gemm_get(array, i)));
}

/* n reproducible values of mixed sign and size, exactly n on the heap. */
static void *gemm_random(int64_t n, uint64_t stream)
{
    void *v = malloc((size_t)n * gemm_size());
    ck_assert_ptr_nonnull(v);
    tt_key key = tt_rng_key(7, TT_RNG_TEST, 0);
    for (int64_t i = 0; i < n; i++) {
        gemm_put(v, i, tt_rng_normal(key, stream, (uint64_t)i));
    }
    return v;
}

/* `bytes` between two guards; gemm_free checks and frees. */
static void *gemm_output(size_t bytes)
{
    unsigned char *p = malloc(bytes + 2 * GUARD);
    ck_assert_ptr_nonnull(p);
    memset(p, 0x5a, GUARD);
    memset(p + GUARD, 0xff, bytes);
    memset(p + GUARD + bytes, 0x5a, GUARD);
    return p + GUARD;
}

static void gemm_free(void *output, size_t bytes)
{
    unsigned char *p = output;
    unsigned char guard[GUARD];
    memset(guard, 0x5a, GUARD);
    ck_assert_mem_eq(p - GUARD, guard, GUARD);
    ck_assert_mem_eq(p + bytes, guard, GUARD);
    free(p - GUARD);
}

/* One shape: what goes in, x[M,K], w[N,K], dy[M,N], bias[N], and as it enters products. */
typedef struct gemm_shape {
    int64_t M, N, K;
    void *x, *w, *dy, *bias;
    double *x_factor, *w_factor, *dy_factor;
} gemm_shape;

static double *gemm_factors(const void *array, int64_t n)
{
    double *factor = malloc((size_t)n * sizeof *factor);
    ck_assert_ptr_nonnull(factor);
    for (int64_t i = 0; i < n; i++) {
        factor[i] = gemm_factor(array, i);
    }
    return factor;
}

static gemm_shape gemm_open(int64_t M, int64_t N, int64_t K)
{
    gemm_shape s = {.M = M, .N = N, .K = K};
    s.x = gemm_random(M * K, 1);
    s.w = gemm_random(N * K, 2);
    s.dy = gemm_random(M * N, 3);
    s.bias = gemm_random(N, 4);
    s.x_factor = gemm_factors(s.x, M * K);
    s.w_factor = gemm_factors(s.w, N * K);
    s.dy_factor = gemm_factors(s.dy, M * N);
    return s;
}

static void gemm_close(gemm_shape *s)
{
    free(s->x);
    free(s->w);
    free(s->dy);
    free(s->bias);
    free(s->x_factor);
    free(s->w_factor);
    free(s->dy_factor);
}

/* w[N,K] with or without its packed form, a heap block of the exact size; free((void *)w.packed). */
static tt_weight gemm_weight(tt_ctx *ctx, const void *w, int64_t N, int64_t K)
{
    if (!gemm_packed) {
        return (tt_weight){w, NULL};
    }
    size_t bytes = gemm_ops->packed_bytes(N, K);
    void *packed = NULL;
    ck_assert_int_eq(posix_memalign(&packed, 64, bytes), 0);
    memset(packed, 0xff, bytes);
    gemm_ops->pack(ctx, packed, w, N, K);
    return (tt_weight){w, packed};
}

static void gemm_nt_of(tt_ctx *ctx, void *y, const void *x, const void *w, const void *bias,
                       int64_t M, int64_t N, int64_t K)
{
    tt_weight weight = gemm_weight(ctx, w, N, K);
    const tt_epilogue e = {.bias = bias};
    gemm_ops->gemm_nt(ctx, y, x, &weight, bias != NULL ? &e : NULL, M, N, K, M);
    free((void *)weight.packed);
}

static void gemm_nt_f32_of(tt_ctx *ctx, float *y, const void *x, const void *w, int64_t M,
                           int64_t N, int64_t K)
{
    tt_weight weight = gemm_weight(ctx, w, N, K);
    gemm_ops->gemm_nt_f32(ctx, y, x, &weight, M, N, K, M);
    free((void *)weight.packed);
}

static void gemm_nn_of(tt_ctx *ctx, void *dx, const void *dy, const void *w, int64_t M, int64_t N,
                       int64_t K)
{
    tt_weight weight = gemm_weight(ctx, w, N, K);
    gemm_ops->gemm_nn(ctx, dx, dy, &weight, NULL, M, N, K, M);
    free((void *)weight.packed);
}

/* |got - want| against the rounding of `terms` FP32 additions of a sum whose absolute values add up
 * to `size`, and of the output format. */
static void gemm_near(double got, double want, double size, int64_t terms, tt_format format,
                      const char *op, const gemm_shape *s)
{
    double sum = (double)(terms + 2) * tt_formats[TT_FP32].epsilon * size;
    double output = 0.5 * tt_formats[format].epsilon * (fabs(want) + sum);
    /* Check writes to a pipe at every assert; there are millions of elements. */
    if (!(fabs(got - want) <= sum + output + tt_formats[format].min_normal)) {
        ck_abort_msg("%s M=%lld N=%lld K=%lld: %.9g instead of %.9g", op, (long long)s->M,
                     (long long)s->N, (long long)s->K, got, want);
    }
}

static void gemm_check_nt(tt_ctx *ctx, const gemm_shape *s, const void *bias)
{
    size_t bytes = (size_t)(s->M * s->N) * gemm_size();
    size_t f_bytes = (size_t)(s->M * s->N) * sizeof(float);
    void *y = gemm_output(bytes);
    float *f = gemm_output(f_bytes);
    gemm_nt_of(ctx, y, s->x, s->w, bias, s->M, s->N, s->K);
    gemm_nt_f32_of(ctx, f, s->x, s->w, s->M, s->N, s->K);
    for (int64_t i = 0; i < s->M; i++) {
        for (int64_t j = 0; j < s->N; j++) {
            double sum = 0.0, size = 0.0, b = bias == NULL ? 0.0 : (double)gemm_get(bias, j);
            for (int64_t k = 0; k < s->K; k++) {
                double p = s->x_factor[i * s->K + k] * s->w_factor[j * s->K + k];
                sum += p;
                size += fabs(p);
            }
            gemm_near(gemm_get(y, i * s->N + j), sum + b, size + fabs(b), s->K, gemm_ops->format,
                      "gemm_nt", s);
            gemm_near(f[i * s->N + j], sum, size, s->K, TT_FP32, "gemm_nt_f32", s);
        }
    }
    gemm_free(y, bytes);
    gemm_free(f, f_bytes);
}

static void gemm_check_nn(tt_ctx *ctx, const gemm_shape *s)
{
    size_t bytes = (size_t)(s->M * s->K) * gemm_size();
    void *dx = gemm_output(bytes);
    gemm_nn_of(ctx, dx, s->dy, s->w, s->M, s->N, s->K);
    for (int64_t i = 0; i < s->M; i++) {
        for (int64_t j = 0; j < s->K; j++) {
            double sum = 0.0, size = 0.0;
            for (int64_t n = 0; n < s->N; n++) {
                double p = s->dy_factor[i * s->N + n] * s->w_factor[n * s->K + j];
                sum += p;
                size += fabs(p);
            }
            gemm_near(gemm_get(dx, i * s->K + j), sum, size, s->N, gemm_ops->format, "gemm_nn", s);
        }
    }
    gemm_free(dx, bytes);
}

static void gemm_check_tn(tt_ctx *ctx, const gemm_shape *s, int64_t leaf)
{
    size_t bytes = (size_t)(s->N * s->K) * sizeof(float);
    float *gw = gemm_output(bytes);
    for (int64_t i = 0; i < s->N * s->K; i++) {
        gw[i] = (float)(i % 17) - 8.0f;
    }
    size_t gb_bytes = (size_t)s->N * sizeof(float);
    float *gb = gemm_output(gb_bytes);
    for (int64_t n = 0; n < s->N; n++) {
        gb[n] = (float)n;
    }
    gemm_ops->gemm_tn(ctx, GRAD(gw), GRAD(gb), s->dy, s->x, s->M, s->N, s->K, leaf);
    for (int64_t n = 0; n < s->N; n++) {
        double column = (double)n, total = fabs(column);
        for (int64_t m = 0; m < s->M; m++) {
            const double stored = (double)gemm_get(s->dy, m * s->N + n); /* it enters no product */
            column += stored;
            total += fabs(stored);
        }
        gemm_near(gb[n], column, total, s->M, TT_FP32, "gemm_tn's gb", s);
        for (int64_t j = 0; j < s->K; j++) {
            double sum = (double)((n * s->K + j) % 17) - 8.0, size = fabs(sum);
            for (int64_t m = 0; m < s->M; m++) {
                double p = s->dy_factor[m * s->N + n] * s->x_factor[m * s->K + j];
                sum += p;
                size += fabs(p);
            }
            gemm_near(gw[n * s->K + j], sum, size, s->M, TT_FP32, "gemm_tn", s);
        }
    }
    gemm_free(gw, bytes);
    gemm_free(gb, gb_bytes);
}

static void gemm_check(tt_ctx *ctx, int64_t M, int64_t N, int64_t K)
{
    gemm_shape s = gemm_open(M, N, K), copy = gemm_open(M, N, K);
    gemm_check_nt(ctx, &s, M % 2 == 0 ? s.bias : NULL);
    gemm_check_nn(ctx, &s);
    gemm_check_tn(ctx, &s, M);
    gemm_check_tn(ctx, &s, (M + 2) / 3);
    ck_assert_mem_eq(s.x, copy.x, (size_t)(M * K) * gemm_size());
    ck_assert_mem_eq(s.w, copy.w, (size_t)(N * K) * gemm_size());
    ck_assert_mem_eq(s.dy, copy.dy, (size_t)(M * N) * gemm_size());
    ck_assert_mem_eq(s.bias, copy.bias, (size_t)N * gemm_size());
    gemm_close(&s);
    gemm_close(&copy);
}

START_TEST(ragged_shapes)
{
    gemm_ops = gemm_tables[_i / 2];
    gemm_packed = _i % 2 == 1;
    tt_ctx ctx[TEAMS];
    gemm_teams_open(ctx);
    tt_key key = tt_rng_key(1, TT_RNG_TEST, 0);
    for (uint64_t i = 0; i < 80; i++) {
        tt_u32x4 r = tt_rng(key, 0, i);
        gemm_check(&ctx[i % TEAMS], 1 + r.v[0] % 41, 1 + r.v[1] % 41, 1 + r.v[2] % 41);
    }
    for (int64_t n = 1; n <= 9; n += 4) { /* vectors and vectors of one */
        gemm_check(&ctx[1], n, 1, 1);
        gemm_check(&ctx[1], 1, n, 1);
        gemm_check(&ctx[1], 1, 1, n);
    }
    gemm_teams_close(ctx);
}
END_TEST

START_TEST(edges_of_tiles_and_blocks)
{
    gemm_ops = gemm_tables[_i / 2];
    gemm_packed = _i % 2 == 1;
    /* tile widths 6, 8, 12 and 16, 32, 48; tasks 96 x 384; steps of k 16, slabs 1024 */
    static const int64_t shapes[][3] = {
        {6, 16, 256},    {8, 48, 257},   {7, 17, 255},   {9, 49, 258},  {96, 96, 33},
        {97, 97, 31},    {95, 95, 384},  {5, 15, 385},   {12, 32, 513}, {2, 1153, 40},
        {3, 40, 1153},   {1538, 18, 5},  {1537, 4, 49},  {18, 1537, 6}, {41, 1160, 7},
        {64, 50, 1030},  {50, 70, 2050}, {1030, 33, 20}, {20, 1030, 9}, {580, 575, 11},
        {1540, 1155, 2},
    };
    tt_ctx ctx[TEAMS];
    gemm_teams_open(ctx);
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        gemm_check(&ctx[i % TEAMS], shapes[i][0], shapes[i][1], shapes[i][2]);
    }
    gemm_teams_close(ctx);
}
END_TEST

/* All outputs of a shape in one block, to compare runs bit for bit; free it. */
static unsigned char *gemm_outputs(tt_ctx *ctx, const gemm_shape *s, int64_t leaf, size_t *bytes)
{
    size_t nt = (size_t)(s->M * s->N), nn = (size_t)(s->M * s->K), tn = (size_t)(s->N * s->K);
    size_t gb_floats = (size_t)s->N;
    *bytes = (nt + tn + gb_floats) * sizeof(float) + (nt + nn) * gemm_size();
    unsigned char *all = calloc(*bytes, 1);
    ck_assert_ptr_nonnull(all);
    float *f = (float *)all, *gw = f + nt, *gb = gw + tn;
    void *y = gb + gb_floats, *dx = gemm_item(y, s->M * s->N);
    gemm_nt_f32_of(ctx, f, s->x, s->w, s->M, s->N, s->K);
    gemm_nt_of(ctx, y, s->x, s->w, s->bias, s->M, s->N, s->K);
    gemm_nn_of(ctx, dx, s->dy, s->w, s->M, s->N, s->K);
    gemm_ops->gemm_tn(ctx, GRAD(gw), GRAD(gb), s->dy, s->x, s->M, s->N, s->K, leaf);
    return all;
}

START_TEST(threads_do_not_matter)
{
    gemm_ops = gemm_tables[_i / 2];
    gemm_packed = _i % 2 == 1;
    static const int64_t shapes[][3] = {
        {100, 70, 90}, {205, 130, 300}, {1600, 40, 33}, {66, 1200, 64}};
    tt_ctx ctx[TEAMS];
    gemm_teams_open(ctx);
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        gemm_shape s = gemm_open(shapes[i][0], shapes[i][1], shapes[i][2]);
        size_t bytes;
        unsigned char *one = gemm_outputs(&ctx[0], &s, 64, &bytes);
        for (int team = 1; team < TEAMS; team++) {
            unsigned char *more = gemm_outputs(&ctx[team], &s, 64, &bytes);
            ck_assert_mem_eq(one, more, bytes);
            free(more);
        }
        free(one);
        gemm_close(&s);
    }
    gemm_teams_close(ctx);
}
END_TEST

START_TEST(rows_do_not_know_each_other)
{
    gemm_ops = gemm_tables[_i / 2];
    gemm_packed = _i % 2 == 1;
    enum { M = 101, N = 50, K = 530 };
    static const int64_t cuts[] = {1, 2, 5, 6, 7, 8, 13, 96};
    gemm_shape s = gemm_open(M, N, K);
    size_t bytes;
    tt_ctx ctx = gemm_ctx(2);
    unsigned char *all = gemm_outputs(&ctx, &s, M, &bytes);
    const float *f = (const float *)all;
    const void *y = f + M * N + N * K + N, *dx = gemm_item(y, M * N);
    for (size_t c = 0; c < sizeof cuts / sizeof *cuts; c++) {
        float f_part[96 * N];
        float y_part[96 * N]; /* acts, room for any */
        void *dx_part = malloc(gemm_size() * 96 * K);
        ck_assert_ptr_nonnull(dx_part);
        for (int64_t i = 0; i < M; i += cuts[c]) {
            int64_t m = i + cuts[c] > M ? M - i : cuts[c];
            gemm_nt_f32_of(&ctx, f_part, gemm_item(s.x, i * K), s.w, m, N, K);
            gemm_nt_of(&ctx, y_part, gemm_item(s.x, i * K), s.w, s.bias, m, N, K);
            gemm_nn_of(&ctx, dx_part, gemm_item(s.dy, i * N), s.w, m, N, K);
            ck_assert_mem_eq(f_part, f + i * N, sizeof(float) * (size_t)(m * N));
            ck_assert_mem_eq(y_part, gemm_item(y, i * N), gemm_size() * (size_t)(m * N));
            ck_assert_mem_eq(dx_part, gemm_item(dx, i * K), gemm_size() * (size_t)(m * K));
        }
        free(dx_part);
    }
    free(ctx.workspace);
    free(all);
    gemm_close(&s);
}
END_TEST

START_TEST(leaves_do_not_know_each_other)
{
    gemm_ops = gemm_tables[_i / 2];
    gemm_packed = _i % 2 == 1;
    static const int64_t leaves[] = {1, 7, 64, 300, 530};
    enum { N = 21, K = 50 };
    tt_ctx ctx = gemm_ctx(2);
    for (size_t l = 0; l < sizeof leaves / sizeof *leaves; l++) {
        int64_t leaf = leaves[l];
        gemm_shape s = gemm_open(3 * leaf, N, K);
        /* gw, and gb behind it */
        float together[N * K + N], apart[N * K + N], sum[N * K + N], start[N * K + N];
        for (int i = 0; i < N * K + N; i++) {
            start[i] = together[i] = apart[i] = 1000.0f / (float)(i + 1);
        }
        gemm_ops->gemm_tn(&ctx, GRAD(together), GRAD(together + N * K), s.dy, s.x, 3 * leaf, N, K,
                          leaf);
        for (int64_t i = 0; i < 3; i++) {
            const void *dy = gemm_item(s.dy, i * leaf * N), *x = gemm_item(s.x, i * leaf * K);
            gemm_ops->gemm_tn(&ctx, GRAD(apart), GRAD(apart + N * K), dy, x, leaf, N, K, leaf);
            /* A leaf is added once: sum it from zero, then add. */
            memset(sum, 0, sizeof sum);
            gemm_ops->gemm_tn(&ctx, GRAD(sum), GRAD(sum + N * K), dy, x, leaf, N, K, leaf);
            for (int e = 0; e < N * K + N; e++) {
                start[e] += sum[e];
            }
        }
        ck_assert_mem_eq(together, apart, sizeof together);
        ck_assert_mem_eq(together, start, sizeof together);
        gemm_close(&s);
    }
    free(ctx.workspace);
}
END_TEST

/* With one summand the FP32 value is known exactly, so the output must have the exact bits. */
START_TEST(output_rounds_as_the_format_says)
{
    gemm_ops = gemm_tables[_i / 2];
    gemm_packed = _i % 2 == 1;
    enum { M = 13, N = 67 };
    const tt_format format = gemm_ops->format;
    const tt_format_info *f = &tt_formats[format];
    const float half = (float)(f->epsilon / 2);
    gemm_shape s = gemm_open(M, N, 1);
    for (int64_t j = 0; j < N; j += 3) { /* 1.5 (1 + an odd number of steps): a tie */
        gemm_put(s.w, j, 1.0f + (float)(2 * j + 1) * 2 * half);
        gemm_put(s.bias, j, 0);
    }
    gemm_put(s.x, 0, 1.5f);
    gemm_put(s.x, 3, INFINITY); /* times zero: NaN */
    gemm_put(s.x, 5, NAN);
    gemm_put(s.w, 4, 0);
    for (int64_t j = 7; j <= 20; j += 13) { /* overflows with a large bias */
        gemm_put(s.w, j, (float)(f->max / 2));
        gemm_put(s.bias, j, (float)f->max);
    }
    void *y = malloc(M * N * gemm_size());
    ck_assert_ptr_nonnull(y);
    tt_ctx ctx = gemm_ctx(1);
    gemm_nt_of(&ctx, y, s.x, s.w, s.bias, M, N, 1);
    int overflowed = 0;
    for (int64_t i = 0; i < M; i++) {
        for (int64_t j = 0; j < N; j++) {
            float sum =
                (float)gemm_factor(s.x, i) * (float)gemm_factor(s.w, j) + gemm_get(s.bias, j);
            float got = gemm_get(y, i * N + j);
            overflowed += isinf(got) && isfinite(gemm_get(s.x, i));
            if (isnan(sum)) {
                ck_assert_msg(isnan(got), "row %lld column %lld lost a NaN", (long long)i,
                              (long long)j);
            } else {
                float want = tt_format_value(format, tt_format_code(format, sum));
                ck_assert_msg(got == want, "%.9g became %.9g", sum, got);
            }
        }
    }
    ck_assert_int_gt(overflowed, 0);
    free(y);
    free(ctx.workspace);
    gemm_close(&s);
}
END_TEST

/* Small integers: all products and all sums are exact, so every kernel gives the very numbers. */
START_TEST(integers_are_exact)
{
    gemm_ops = gemm_tables[_i / 2];
    gemm_packed = _i % 2 == 1;
    enum { M = 29, N = 45, K = 70 };
    gemm_shape s = gemm_open(M, N, K);
    for (int64_t i = 0; i < M * K; i++) {
        gemm_put(s.x, i, (float)(i * 7 % 9 - 4));
    }
    for (int64_t i = 0; i < N * K; i++) {
        gemm_put(s.w, i, (float)(i * 5 % 7 - 3));
    }
    tt_ctx ctx = gemm_ctx(2);
    float *f = malloc(sizeof *f * M * N);
    ck_assert_ptr_nonnull(f);
    gemm_nt_f32_of(&ctx, f, s.x, s.w, M, N, K);
    int wrong = 0;
    for (int64_t i = 0; i < M; i++) {
        for (int64_t j = 0; j < N; j++) {
            int sum = 0;
            for (int64_t k = 0; k < K; k++) {
                sum += (int)((i * K + k) * 7 % 9 - 4) * (int)((j * K + k) * 5 % 7 - 3);
            }
            wrong += f[i * N + j] != (float)sum;
        }
    }
    ck_assert_int_eq(wrong, 0);
    free(f);
    free(ctx.workspace);
    gemm_close(&s);
}
END_TEST

/* What enters a product, seen in products of one term: 1 + 2^-10 and 1 + 2^-11, a tie, the last above
 * it, and so in both operands and in all four matmuls. BF16 and FP16 get what they hold. */
START_TEST(factors_round_as_the_format_says)
{
    gemm_ops = gemm_tables[_i / 2];
    gemm_packed = _i % 2 == 1;
    enum { N = 40 };
    static const float some[] = {1.0f,
                                 1 + 0x1p-10f,
                                 1 + 0x1p-11f,
                                 1 + 0x3p-11f,
                                 1 + 0x1p-11f + 0x1p-23f,
                                 -(1 + 0x1p-11f),
                                 0x1.fffp0f,
                                 3 + 0x1p-20f};
    gemm_shape s = gemm_open(1, N, 1);
    void *one = malloc(gemm_size());
    ck_assert_ptr_nonnull(one);
    gemm_put(one, 0, 1);
    for (int64_t j = 0; j < N; j++) {
        gemm_put(s.w, j, some[j % 8]);
    }
    tt_ctx ctx = gemm_ctx(1);
    float nt[N], tn[N] = {0}, turned[N] = {0};
    float nn[N]; /* acts */
    gemm_nt_f32_of(&ctx, nt, one, s.w, 1, N, 1);
    gemm_nn_of(&ctx, nn, one, s.w, 1, 1, N); /* w[1,N] */
    gemm_ops->gemm_tn(&ctx, GRAD(tn), NULL, one, s.w, 1, 1, N, 1);
    gemm_ops->gemm_tn(&ctx, GRAD(turned), NULL, s.w, one, 1, N, 1, 1);
    for (int64_t j = 0; j < N; j++) {
        const float want = (float)gemm_factor(s.w, j);
        ck_assert(nt[j] == want && tn[j] == want && turned[j] == want);
        ck_assert(gemm_get(nn, j) == want);
    }
    gemm_nt_f32_of(&ctx, nt, s.w, one, N, 1, 1); /* and as rows of a */
    for (int64_t j = 0; j < N; j++) {
        ck_assert(nt[j] == (float)gemm_factor(s.w, j));
    }
    if (gemm_ops->compute == TT_TF32) {
        ck_assert(nt[2] == 1 && nt[3] == 1 + 0x2p-10f && nt[4] == 1 + 0x1p-10f && nt[5] == -1);
        ck_assert(nt[6] == 2 && nt[7] == 3);
    }
    free(one);
    free(ctx.workspace);
    gemm_close(&s);
}
END_TEST

START_TEST(peak_is_a_rate)
{
    gemm_ops = gemm_tables[_i / 2];
    gemm_packed = _i % 2 == 1;
    tt_ctx ctx = gemm_ctx(1);
    double rate = gemm_ops->peak(&ctx, 0.01);
    ck_assert(isfinite(rate) && rate > 0.0);
    free(ctx.workspace);
}
END_TEST

static TCase *gemm_case(const char *name, const tt_ops *table, int *at)
{
    *at = gemm_table_count++;
    if (*at >= GEMM_TABLES) {
        abort();
    }
    gemm_tables[*at] = table;
    TCase *cases = tcase_create(name);
    tcase_set_timeout(cases, 60);
    tcase_add_loop_test(cases, ragged_shapes, 2 * *at, 2 * *at + 2);
    tcase_add_loop_test(cases, output_rounds_as_the_format_says, 2 * *at, 2 * *at + 2);
    tcase_add_loop_test(cases, integers_are_exact, 2 * *at, 2 * *at + 2);
    tcase_add_loop_test(cases, factors_round_as_the_format_says, 2 * *at, 2 * *at + 2);
    return cases;
}

/* What is asked of a table that is slow and has no tiles: the numbers. */
static inline void gemm_add_numbers(Suite *suite, const char *name, const tt_ops *table)
{
    int at;
    suite_add_tcase(suite, gemm_case(name, table, &at));
}

static void gemm_add_cases(Suite *suite, const char *name, const tt_ops *table)
{
    int at;
    TCase *cases = gemm_case(name, table, &at);
    tcase_add_loop_test(cases, edges_of_tiles_and_blocks, 2 * at, 2 * at + 2);
    tcase_add_loop_test(cases, threads_do_not_matter, 2 * at, 2 * at + 2);
    tcase_add_loop_test(cases, rows_do_not_know_each_other, 2 * at, 2 * at + 2);
    tcase_add_loop_test(cases, leaves_do_not_know_each_other, 2 * at, 2 * at + 2);
    tcase_add_loop_test(cases, peak_is_a_rate, 2 * at, 2 * at + 2);
    suite_add_tcase(suite, cases);
}

#endif
