/* test_census.c: what kernels count while they store, against a slow count of results that are known:
 * products, sums and copies that FP32 holds exactly, or doubles that are far from any border. Every case
 * forces results that the narrowest format cannot hold; and counting changes no bit. */
#include "rig.h"
#include "tutti/base/threads.h"
#include "tutti/kernels/wide.h"
#include "tutti/numerics/fp8.h"

enum { THREADS = 2 };

/* What a kernel of the rig has counted since `counting`. */
typedef struct tally {
    tt_census result[THREADS], beside[THREADS];
} tally;

static void counting(tt_ctx *ctx, tally *t)
{
    memset(t, 0, sizeof *t);
    ctx->count = (tt_counts){t->result, t->beside};
}

static tt_census total(const tt_census *census)
{
    tt_census sum = {0};
    for (int i = 0; i < THREADS; i++) {
        sum.values += census[i].values;
        sum.inf += census[i].inf;
        sum.nan += census[i].nan;
        sum.overflow += census[i].overflow;
        sum.underflow += census[i].underflow;
    }
    return sum;
}

/* The slow count of n results as they are stored: by bits, as threads take subnormal numbers for
 * zero. */
static tt_census slow(const rig *r, const float *result, int64_t n)
{
    tt_census want = {.values = n};
    for (int64_t i = 0; i < n; i++) {
        const uint32_t was = tt_bits_of_f32(result[i]) & 0x7fffffffu;
        uint32_t is = was, infinite = 0x7f800000u;
        if (r->ops.format == TT_BF16) {
            is = tt_bf16_of_f32(result[i]) & 0x7fffu;
            infinite = 0x7f80u;
        } else if (r->ops.format == TT_FP16) {
            is = tt_fp16_of_f32(result[i]) & 0x7fffu;
            infinite = 0x7c00u;
        }
        want.inf += is == infinite;
        want.nan += is > infinite;
        want.overflow += is == infinite && was != 0x7f800000u;
        want.underflow += is == 0 && was != 0;
    }
    return want;
}

static void same(const rig *r, const char *what, const tt_census *got_, tt_census want)
{
    const tt_census got = total(got_);
    ck_assert_msg(
        memcmp(&got, &want, sizeof got) == 0,
        "%s %s %s: values %lld inf %lld nan %lld overflow %lld underflow %lld, not %lld %lld %lld "
        "%lld %lld",
        r->ops.isa, tt_formats[r->ops.compute].name, what, (long long)got.values,
        (long long)got.inf, (long long)got.nan, (long long)got.overflow, (long long)got.underflow,
        (long long)want.values, (long long)want.inf, (long long)want.nan, (long long)want.overflow,
        (long long)want.underflow);
}

/* The case must show something: FP16 has all kinds, whatever it is made of. */
static void shows(const rig *r, tt_census want, bool inf, bool underflow)
{
    if (r->ops.format == TT_FP16) {
        ck_assert(!inf || (want.overflow > 0 && want.overflow < want.values));
        ck_assert(!underflow || (want.underflow > 0 && want.underflow < want.values));
    }
}

/* Magnitudes that products of two of them take over the edges of FP16, and one of BF16: 181 / 128
 * squared is finite in FP32 and rounds to infinity in BF16. */
static double factor(const rig *r, int64_t i)
{
    static const double narrow[] = {1, -300, 0x1p-13, 0x1p-20, 255, -0x1p9, 0, 1.5};
    static const double broad[] = {1, 181.0 / 128 * 0x1p63, -181.0 / 128 * 0x1p64, 0, 0x1p-70, 3};
    return r->ops.format == TT_FP16 ? narrow[i % 8] : broad[i % 6];
}

static float *block(int64_t n)
{
    return rig_block((size_t)n * sizeof(float));
}

static void conversion(rig *r)
{
    enum { N = 1003 };
    static const float special[] = {INFINITY,     -INFINITY, NAN,        0x1.fffffep127f,
                                    -0x1.ffp127f, 0,         65519,      65520,
                                    0x1p-24,      0x1p-25,   0x1.8p-25f, 0x1p-126f};
    float *x = rig_floats(r, N, 1);
    void *y = rig_acts(r, N), *plain = rig_acts(r, N);
    tally t;
    for (int64_t i = 0; i < N; i++) {
        x[i] = i % 3 == 0 ? special[i / 3 % 12] : ldexpf(x[i], (int)(i % 80) - 40);
        x[i] =
            i % 101 == 7 ? tt_f32_of_bits(0x100) : x[i]; /* subnormal: below half of BF16's least */
    }
    r->ops.to_act(&r->ctx, plain, x, N);
    counting(&r->ctx, &t);
    r->ops.to_act(&r->ctx, y, x, N);
    const tt_census want = slow(r, x, N);
    same(r, "to_act", t.result, want);
    shows(r, want, true, true);
    ck_assert_mem_eq(y, plain, N * rig_size(r));
    ck_assert(r->ops.format == TT_FP32 || (want.overflow > 0 && want.underflow > 0));
    free(x), free(y), free(plain);
}

/* One summand each, so that a sum is a product. */
static void products(rig *r)
{
    enum { M = 70, N = 67, K = 33, LEAF = 35 };
    void *x = rig_acts(r, M * K), *w = rig_acts(r, N * K), *y = rig_acts(r, M * N);
    void *turned = rig_acts(r, K * N), *residual = rig_acts(r, M * N), *before = rig_acts(r, M * N);
    void *plain = rig_acts(r, M * N);
    float *product = block(M * N), *sum = block(M * N);
    tally t;
    for (int64_t i = 0; i < M * K; i++) {
        rig_put(r, x, i, i % K == i / K % K ? factor(r, i / K) : 0);
    }
    for (int64_t i = 0; i < N * K; i++) {
        rig_put(r, w, i, factor(r, i / K * 5 + i % K));
        rig_put(r, turned, i % K * N + i / K, rig_get(r, w, i));
    }
    for (int64_t i = 0; i < M * N; i++) {
        const int64_t k = i / N % K;
        product[i] = (float)rig_get(r, x, i / N * K + k) * (float)rig_get(r, w, i % N * K + k);
        rig_put(r, residual, i, factor(r, i * 3));
        sum[i] = product[i] + (float)rig_get(r, residual, i);
    }
    const tt_census want = slow(r, product, M * N);
    shows(r, want, true, true);
    ck_assert(r->ops.format != TT_BF16 || want.overflow > 0);
    for (int packed = 0; packed < 2; packed++) {
        tt_weight nt = rig_weight(r, w, N, K, packed), nn = rig_weight(r, turned, K, N, packed);
        r->ctx.count = (tt_counts){.result = NULL};
        r->ops.gemm_nt(&r->ctx, plain, x, &nt, NULL, M, N, K, LEAF);
        counting(&r->ctx, &t);
        r->ops.gemm_nt(&r->ctx, y, x, &nt, NULL, M, N, K, LEAF);
        same(r, "gemm_nt", t.result, want);
        ck_assert_mem_eq(y, plain, M * N * rig_size(r));
        counting(&r->ctx, &t);
        r->ops.gemm_nn(&r->ctx, y, x, &nn, NULL, M, K, N, LEAF);
        same(r, "gemm_nn", t.result, want);
        same(r, "gemm_nn beside", t.beside, (tt_census){0});
        tt_epilogue e = {.residual = residual, .T = LEAF};
        counting(&r->ctx, &t);
        r->ops.gemm_nt(&r->ctx, y, x, &nt, &e, M, N, K, LEAF);
        same(r, "gemm_nt with a residual", t.result, slow(r, sum, M * N));
        e = (tt_epilogue){.before = before, .T = LEAF};
        counting(&r->ctx, &t);
        r->ops.gemm_nt(&r->ctx, y, x, &nt, &e, M, N, K, LEAF);
        same(r, "gemm_nt before GELU", t.beside, want);
        ck_assert(total(t.result).values == M * N && total(t.result).overflow == 0);
        rig_unpack(&nt), rig_unpack(&nn);
    }
    free(x), free(w), free(y), free(turned), free(residual), free(before), free(plain);
    free(product), free(sum);
}

/* Large numbers that dropout doubles, small ones that attention divides by the number of keys. */
static void rows(rig *r)
{
    enum { B = 3, T = 7, C = 42, D = 21, V = 5 };
    const int64_t sample[B] = {4, 0, 9};
    const tt_dropout drop = rig_dropout(0.5, sample);
    const double big = r->ops.format == TT_FP16 ? 40000 : 0x1.8p127;
    const double least = r->ops.format == TT_FP16 ? 0x1p-24 : 0x1p-120;
    void *wte = rig_acts(r, V * C), *wpe = rig_acts(r, T * C), *x = rig_acts(r, B * T * C);
    void *y = rig_acts(r, B * T * C), *plain = rig_acts(r, B * T * C);
    int32_t *token = rig_tokens(r, B * T, V);
    float *want = block(B * T * C);
    tally t;
    for (int64_t i = 0; i < V * C; i++) {
        rig_put(r, wte, i, i % 4 == 0 ? big : 1);
    }
    for (int64_t i = 0; i < T * C; i++) {
        rig_put(r, wpe, i, i % 7 == 0 ? big : 2);
    }
    for (int64_t i = 0; i < B * T * C; i++) {
        const float kept = (float)rig_keep(&drop, i / C / T, i / C % T * C + i % C);
        rig_put(r, x, i, i % 5 == 0 ? -big : i == 8 ? (double)NAN : 1);
        want[i] = ((float)rig_get(r, wte, token[i / C] * C + i % C) +
                   (float)rig_get(r, wpe, i / C % T * C + i % C)) *
                  kept;
    }
    counting(&r->ctx, &t);
    r->ops.embed(&r->ctx, y, wte, wpe, token, B, T, C, &drop);
    same(r, "embed", t.result, slow(r, want, B * T * C));
    shows(r, slow(r, want, B * T * C), true, false);
    for (int64_t i = 0; i < B * T * C; i++) {
        want[i] =
            (float)rig_get(r, x, i) * (float)rig_keep(&drop, i / C / T, i / C % T * C + i % C);
    }
    counting(&r->ctx, &t);
    r->ops.residual_grad(&r->ctx, y, x, B, T, C, &drop);
    same(r, "residual_grad", t.result, slow(r, want, B * T * C));
    shows(r, slow(r, want, B * T * C), true, false);

    /* Scores are 0, so weights are 1 / (t + 1); values are 0 but for the first token's. */
    float *lse = block(B * 2 * T);
    void *qkv = rig_acts(r, B * T * 3 * C), *grad = rig_acts(r, B * T * 3 * C);
    for (int64_t i = 0; i < B * T * 3 * C; i++) {
        rig_put(r, qkv, i, i % (3 * C) >= 2 * C && i / 3 / C % T == 0 ? least : 0);
    }
    for (int64_t i = 0; i < B * T * C; i++) {
        want[i] = (float)least * (1 / (float)(i / C % T + 1));
    }
    r->ctx.count = (tt_counts){.result = NULL};
    r->ops.attention(&r->ctx, plain, lse, qkv, B, T, 2, 2, D, T, NULL);
    counting(&r->ctx, &t);
    r->ops.attention(&r->ctx, y, lse, qkv, B, T, 2, 2, D, T, NULL);
    same(r, "attention", t.result, slow(r, want, B * T * C));
    shows(r, slow(r, want, B * T * C), false, true);
    ck_assert_mem_eq(y, plain, B * T * C * rig_size(r));

    /* The gradient of values is the sum of d_o over queries, with equal weights; of the rest 0. */
    for (int64_t i = 0; i < B * T * 3 * C; i++) {
        rig_put(r, qkv, i, 0);
    }
    r->ops.attention(&r->ctx, y, lse, qkv, B, T, 2, 2, D, T, NULL);
    for (int64_t i = 0; i < B * T * C; i++) {
        rig_put(r, x, i, i / C % T == T - 1 ? (i % 2 ? least : i % 3 == 0 ? (double)NAN : 1) : 0);
    }
    counting(&r->ctx, &t);
    r->ops.attention_grad(&r->ctx, grad, x, y, qkv, lse, B, T, 2, 2, D, T, NULL);
    tt_census least_of = {.values = B * T * 3 * C};
    for (int64_t i = 0; i < B * T * 3 * C; i++) {
        least_of.nan += isnan(rig_get(r, grad, i));
        least_of.underflow += r->ops.format == TT_FP16 && i % (3 * C) >= 2 * C && i % 2 == 1;
    }
    ck_assert(least_of.nan > 0 && least_of.nan < least_of.values);
    same(r, "attention_grad", t.result, least_of);
    free(wte), free(wpe), free(x), free(y), free(plain), free(token), free(want), free(lse);
    free(qkv), free(grad);
}

static void norms(rig *r)
{
    enum { M = 37, C = 50, LEAF = 37 };
    static const float scale[] = {1, 1e5f, 1e-9f, INFINITY, -3e38f, 2, NAN};
    void *x = rig_acts(r, M * C), *dy = rig_acts(r, M * C), *dx = rig_acts(r, M * C);
    void *y = rig_acts(r, M * C), *gain = rig_acts(r, C), *bias = rig_acts(r, C);
    float *mean = block(M), *rstd = block(M), *want = block(M * C), *gg = block(C), *gb = block(C);
    const tt_grad ggain = {.sum = gg}, gbias = {.sum = gb};
    const double big = r->ops.format == TT_FP16 ? 65504 : 0x1.fep127;
    tally t;
    /* x is 1 or -1, in equal numbers: y = (rstd x) gain + bias. */
    for (int64_t i = 0; i < M * C; i++) {
        rig_put(r, x, i, i % 2 ? 1 : -1);
        rig_put(r, dy, i, (i % C) % 2 ? 1 : -1);
        rig_put(r, dx, i, 0);
    }
    for (int64_t c = 0; c < C; c++) {
        rig_put(r, gain, c, c % 3 == 0 ? big / 2 : 1e-7);
        rig_put(r, bias, c, c % 3 == 0 ? big : c % 3 == 1 ? 0 : -1e-7);
    }
    const float root = 1 / sqrtf(1 + 1e-5f);
    for (int64_t i = 0; i < M * C; i++) {
        want[i] = (float)(rig_get(r, x, i) * (double)root * rig_get(r, gain, i % C) +
                          rig_get(r, bias, i % C));
    }
    counting(&r->ctx, &t);
    r->ops.norm(&r->ctx, y, mean, rstd, x, gain, bias, M, C);
    same(r, "norm", t.result, slow(r, want, M * C));
    shows(r, slow(r, want, M * C), true, true);

    /* x is its mean and the mean of dy is 0: dx = rstd dy. */
    for (int64_t m = 0; m < M; m++) {
        mean[m] = 0;
        rstd[m] = scale[m % 7];
        for (int64_t c = 0; c < C; c++) {
            rig_put(r, x, m * C + c, 0);
            want[m * C + c] = rstd[m] * (float)rig_get(r, dy, m * C + c);
        }
    }
    for (int64_t c = 0; c < C; c++) {
        rig_put(r, gain, c, 1);
        gg[c] = gb[c] = 0;
    }
    counting(&r->ctx, &t);
    r->ops.norm_grad(&r->ctx, dx, &ggain, &gbias, dy, x, gain, mean, rstd, M, C, LEAF);
    tt_census seen = slow(r, want, M * C);
    for (int64_t i = 0; i < M * C; i++) { /* infinity times 0 is in it too */
        seen.nan += isinf(rstd[i / C]) && isnan(rig_get(r, dx, i));
        seen.inf -= isinf(rstd[i / C]) && isnan(rig_get(r, dx, i));
    }
    same(r, "norm_grad", t.result, seen);
    shows(r, seen, true, true);
    free(x), free(dy), free(dx), free(y), free(gain), free(bias), free(mean), free(rstd);
    free(want), free(gg), free(gb);
}

/* The slow count of the gradient of the logits. z[M,V] as the table makes them. */
static tt_census slow_head(const rig *r, const float *z, const int32_t *target, int64_t M,
                           int64_t V, int64_t used, float scale)
{
    float *dz = block(M * used);
    int64_t n = 0;
    for (int64_t m = 0; m < M; m++) {
        double top = -INFINITY, sum = 0;
        for (int64_t v = 0; v < used; v++) {
            top = fmax(top, (double)z[m * V + v]);
        }
        for (int64_t v = 0; v < used; v++) {
            sum += exp((double)z[m * V + v] - top);
        }
        for (int64_t v = 0; v < used && target[m] >= 0; v++) {
            const double e = exp((double)z[m * V + v] - top), p = e < 0x1p-126 ? 0 : e / sum;
            dz[n++] = (float)((p - (v == target[m])) * (double)scale);
        }
    }
    ck_assert(dz[target[0]] == 0);
    const tt_census want = slow(r, dz, n);
    free(dz);
    return want;
}

/* So that the first row is sure of its target, whose gradient is 0, and where nothing is lost. */
static void sharpen(const rig *r, void *x, int64_t C)
{
    for (int64_t c = 0; c < C; c++) {
        rig_put(r, x, c, c == 0 ? 60000 : 0);
    }
}

static void head(rig *r, tt_ctx *ctx, const tt_weight *w, const void *x, int64_t M, int64_t V,
                 int64_t C, const rig *stored)
{
    const int64_t used = V - 3, leaf = M / 2;
    int32_t *target = rig_tokens(r, M, used);
    float *z = block(M * V), *gw = block(V * C);
    const tt_grad g = {.sum = gw};
    void *dx = rig_acts(r, M * C), *plain = rig_acts(r, M * C);
    const float scale = 70000;
    tt_exact loss = {0};
    int64_t count = 0;
    tally t;
    memset(gw, 0, (size_t)(V * C) * sizeof *gw);
    target[3] = target[M - 1] = -1;
    ctx->count = (tt_counts){.result = NULL};
    r->ops.gemm_nt_f32(ctx, z, x, w, M, V, C, leaf);
    for (int32_t v = target[0] = 0; v < used; v++) {
        target[0] = z[v] > z[target[0]] ? v : target[0];
    }
    r->ops.head_loss(ctx, &loss, &count, NULL, plain, &g, x, w, target, M, V, used, C, leaf, scale);
    counting(ctx, &t);
    r->ops.head_loss(ctx, &loss, &count, NULL, dx, &g, x, w, target, M, V, used, C, leaf, scale);
    const tt_census want = slow_head(stored, z, target, M, V, used, scale);
    same(r, "head_loss beside", t.beside, want);
    shows(stored, want, true, true);
    ck_assert_mem_eq(dx, plain, (size_t)(M * C) * rig_size(r));
    const tt_census got = total(t.result);
    tt_census is = {.values = M * C};
    for (int64_t i = 0; i < M * C; i++) {
        is.inf += isinf(rig_get(r, dx, i)) != 0;
        is.nan += isnan(rig_get(r, dx, i)) != 0;
    }
    is.overflow = got.overflow;
    is.underflow = got.underflow;
    same(r, "head_loss", t.result, is);
    free(target), free(z), free(gw), free(dx), free(plain);
}

static void heads(rig *r)
{
    enum { M = 22, V = 90, C = 30 };
    void *x = rig_random(r, M * C, 1), *matrix = rig_random(r, V * C, 1);
    const tt_weight w = {matrix, NULL};
    sharpen(r, x, C);
    head(r, &r->ctx, &w, x, M, V, C, r);
    free(x), free(matrix);
}

static void updates(rig *r)
{
    enum { N = 333 };
    static const float master[] = {1, 1e5f, 1e-9f, -0x1.ffffp127f, 0, -65504, 0x1p-14f, 3e-8f};
    float *p = block(N), *m = block(N), *v = block(N), *g = block(N);
    void *w = rig_acts(r, N);
    uint16_t *low = rig_block(N * sizeof *low);
    const tt_adamw step = {
        .lr = 0, .beta1 = 0.9f, .beta2 = 0.99f, .eps = 1, .correction1 = 1, .correction2 = 1};
    const tt_grad grad = {.sum = g};
    tally t;
    for (int64_t i = 0; i < N; i++) {
        p[i] = master[i * 5 % 8];
        m[i] = v[i] = g[i] = 0;
    }
    const tt_census want = slow(r, p, N);
    const tt_master full = {.kind = TT_MASTER_FP32, .full = p};
    counting(&r->ctx, &t);
    r->ops.adamw(&r->ctx, &full, m, v, w, &grad, N, &step);
    same(r, "adamw", t.result, want);
    shows(r, want, true, true);
    if (r->ops.format == TT_BF16) {
        for (int64_t i = 0; i < N; i++) { /* halves, of which the upper is rounded half up */
            const uint32_t bits = tt_bits_of_f32(p[i]);
            ((tt_bf16 *)w)[i] = (tt_bf16)((bits + 0x8000u) >> 16);
            low[i] = (uint16_t)bits;
        }
        const tt_master split = {.kind = TT_MASTER_SPLIT, .low = low};
        counting(&r->ctx, &t);
        r->ops.adamw(&r->ctx, &split, m, v, w, &grad, N, &step);
        same(r, "adamw of halves", t.result, want);
        ck_assert_int_gt(want.overflow, 0);
    }
    free(p), free(m), free(v), free(g), free(w), free(low);
}

/* Every number of a grid four times as fine as the format's, and what is beyond. */
static void rounding_to(rig *r, tt_format format, bool replace)
{
    enum { N = 4096 + 77 };
    const tt_format_info *f = &tt_formats[format];
    const int8_t exponent[] = {5, 0};
    void *x = rig_acts(r, 2 * N), *y;
    uint8_t *code = rig_block(2 * N);
    tt_census want = {.values = 2 * N};
    tally t;
    for (int64_t i = 0; i < 2 * N; i++) {
        const int e = (int)(i % 40) - 22;
        rig_put(r, x, i, ldexp((double)(i * 37 % 64) / 32 * (i % 2 ? -1 : 1), e));
    }
    rig_put(r, x, 17, (double)NAN);
    for (int64_t i = 0; i < 2 * N; i++) {
        const double scaled = ldexp(rig_get(r, x, i), exponent[i / N]), size = fabs(scaled);
        const uint32_t at = tt_format_saturated(format, (float)scaled) & 0x7fu;
        /* The number behind the largest would be a unit of its binade further. */
        const double unit = ldexp(f->epsilon, ilogb(f->max)), half = f->max + unit / 2;
        want.nan += isnan(scaled);
        want.overflow += format == TT_E4M3 ? size > half : size >= half; /* ties to even */
        want.underflow += at == 0 && scaled != 0;
    }
    ck_assert(want.overflow > 100 && want.underflow > 100);
    y = rig_copy(x, 2 * N * rig_size(r));
    r->ctx.count = (tt_counts){.result = NULL};
    r->ops.fp8_round(&r->ctx, code, y, exponent, 2, N, N, format, replace);
    counting(&r->ctx, &t);
    r->ops.fp8_round(&r->ctx, code, x, exponent, 2, N, N, format, replace);
    same(r, f->name, t.result, want);
    ck_assert_mem_eq(x, y, 2 * N * rig_size(r));
    free(x), free(y), free(code);
}

static void rounding(rig *r)
{
    for (int replace = 0; replace < 2 && r->ops.format != TT_FP16; replace++) {
        rounding_to(r, TT_E4M3, replace);
        rounding_to(r, TT_E5M2, replace);
    }
}

#define EACH(name)                   \
    START_TEST(test_##name)          \
    {                                \
        tt_flush_denormals(THREADS); \
        rig_each(name);              \
    }                                \
    END_TEST

EACH(conversion)
EACH(products)
EACH(rows)
EACH(norms)
EACH(heads)
EACH(updates)
EACH(rounding)

/* A table of FP32 products over a narrow act: once each, and the gradient of the logits as FP32. */
START_TEST(test_wide)
{
    enum { M = 22, V = 90, C = 30 };
    static const tt_extents extents = {
        .rows = M, .tokens = M, .channels = V, .ffn = V, .vocab = V, .heads = 1, .head_size = C};
    tt_err err = {TT_OK, ""};
    tt_wide_ops wide;
    rig r, full;
    memset(&r, 0, sizeof r);
    rig_open(&full, TT_FP32, "", THREADS);
    ck_assert_int_eq(tt_kernels_select_wide(&wide, TT_FP16, "", &err), TT_OK);
    const size_t bytes = tt_kernels_wide_workspace(&wide, &extents, THREADS);
    ck_assert_int_eq(tt_arena_open(&r.room, "test", bytes, &err), TT_OK);
    r.ops = wide.ops;
    r.ctx = tt_kernels_wide_ctx(&wide, THREADS, tt_arena_take(&r.room, bytes), bytes);
    float *matrix = rig_floats(&r, V * C, 300), *product = block(M * V);
    void *x = rig_random(&r, M * C, 300), *y = rig_acts(&r, M * V);
    const tt_weight w = {matrix, NULL};
    tally t;
    r.ops.gemm_nt_f32(&r.ctx, product, x, &w, M, V, C, M);
    counting(&r.ctx, &t);
    r.ops.gemm_nt(&r.ctx, y, x, &w, NULL, M, V, C, M);
    same(&r, "wide gemm_nt", t.result, slow(&r, product, M * V));
    shows(&r, slow(&r, product, M * V), true, false);
    for (int64_t i = 0; i < V * C; i++) {
        matrix[i] /= 90000;
    }
    matrix[7 * C] = 0.03f; /* more than others have there */
    sharpen(&r, x, C);
    head(&r, &r.ctx, &w, x, M, V, C, &full);
    free(matrix), free(product), free(x), free(y);
    rig_close(&r), rig_close(&full);
}
END_TEST

static Suite *make_suite(void)
{
    Suite *s = suite_create("census");
    TCase *c = tcase_create("census");
    tcase_set_timeout(c, 60);
    tcase_add_test(c, test_conversion);
    tcase_add_test(c, test_products);
    tcase_add_test(c, test_rows);
    tcase_add_test(c, test_norms);
    tcase_add_test(c, test_heads);
    tcase_add_test(c, test_updates);
    tcase_add_test(c, test_rounding);
    tcase_add_test(c, test_wide);
    suite_add_tcase(s, c);
    return s;
}

TT_TEST_MAIN(make_suite)
