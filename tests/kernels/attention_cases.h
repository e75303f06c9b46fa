/* attention_cases.h: what attention must hold, whoever serves it.
 *
 * The yardstick is the definition in double; the backward's yardstick is the derivative written out,
 * which in turn is held against differences of the forward definition on small shapes. Then what is
 * bit for bit: teams, sequences alone against sequences together. Then what must stay finite and what
 * must not.
 *
 * A case gets a rig whose table has the attention under test; attention_rounds() says whether
 * probabilities are rounded where they enter a product: to BF16, where that is all it takes, to TF32. */
#ifndef TT_ATTENTION_CASES_H
#define TT_ATTENTION_CASES_H

#include "kernels/kernels_impl.h"
#include "rig.h"

typedef struct shape {
    int64_t B, T, H, G, D, T_max;
} shape;

static inline bool attention_rounds(const rig *r)
{
    return r->ops.compute == TT_TF32 || strcmp(r->ops.from[TT_OP_attention], "avx512bf16") == 0;
}

/* A rig for a shape: the selected table, with attention taken from `over` when that is not NULL. */
static void attention_open(rig *r, tt_format format, const char *isa, const tt_ops *over,
                           const shape *s, int threads)
{
    tt_err err = {TT_OK, ""};
    memset(r, 0, sizeof *r);
    ck_assert_msg(tt_kernels_select(&r->ops, &r->guarded, format, isa, &err) == TT_OK, "%s",
                  err.text);
    tt_extents extents = {.rows = s->B * s->T,
                          .tokens = s->T,
                          .channels = s->H * s->D,
                          .ffn = s->H * s->D,
                          .vocab = 8,
                          .heads = s->H,
                          .head_size = s->D};
    size_t bytes = tt_kernels_workspace(&r->ops, &r->guarded, &extents, threads);
    if (over != NULL) {
        r->ops.attention = over->attention;
        r->ops.attention_grad = over->attention_grad;
        r->ops.from[TT_OP_attention] = r->ops.from[TT_OP_attention_grad] = over->isa;
        bytes = over->workspace(&extents, threads);
    }
    ck_assert_msg(tt_arena_open(&r->room, "test", tt_arena_cost(bytes), &err) == TT_OK, "%s",
                  err.text);
    r->ctx = tt_kernels_ctx(&r->ops, &r->guarded, threads, tt_arena_take(&r->room, bytes), bytes);
    memset(r->ctx.workspace, 0xff, bytes); /* NaN: contents are undefined between calls */
}

/* Every table with its own attention, in every format; or the one given. */
static const tt_ops *attention_only;

static void attention_each(void (*test)(rig *r, const shape *s), const shape *s)
{
    const char *isa[8];
    int count = attention_only != NULL ? 0 : tt_kernels_isa_list(isa, 7);
    isa[count++] = attention_only != NULL ? "ref" : "guard";
    for (int i = 0; i < count; i++) {
        for (int f = 0; f < RIG_FORMATS; f++) {
            if (attention_only == NULL || attention_only->compute == rig_formats[f]) {
                rig r;
                attention_open(&r, rig_formats[f], isa[i], attention_only, s, 2);
                test(&r, s);
                rig_close(&r);
            }
        }
    }
}

/* Inputs and outputs of one call, on heap blocks of the exact size. */
typedef struct arrays {
    void *qkv, *d_o, *o, *dqkv;
    float *lse;
    int64_t in, out, rows; /* elements of qkv, of o, of lse */
} arrays;

static arrays arrays_open(rig *r, const shape *s, double spread)
{
    arrays a = {.in = s->B * s->T * (s->H + 2 * s->G) * s->D,
                .out = s->B * s->T * s->H * s->D,
                .rows = s->B * s->H * s->T};
    r->stream = 0; /* the same inputs each time */
    a.qkv = rig_random(r, a.in, spread);
    a.d_o = rig_random(r, a.out, 1);
    a.o = rig_acts(r, a.out);
    a.dqkv = rig_acts(r, a.in);
    a.lse = rig_block((size_t)a.rows * sizeof *a.lse);
    return a;
}

static void arrays_close(arrays *a)
{
    free(a->qkv), free(a->d_o), free(a->o), free(a->dqkv), free(a->lse);
}

/* Both calls on sequences b .. b + count - 1. */
static void attend(rig *r, const shape *s, arrays *a, int64_t b, int64_t count,
                   const tt_dropout *drop)
{
    size_t size = rig_size(r);
    size_t in = (size_t)(b * (a->in / s->B)) * size, out = (size_t)(b * (a->out / s->B)) * size;
    float *lse = a->lse + b * (a->rows / s->B);
    tt_dropout its = drop != NULL ? *drop : (tt_dropout){0};
    its.sample += drop != NULL ? b : 0;
    const tt_dropout *use = drop != NULL ? &its : NULL;
    char *qkv = a->qkv, *o = a->o, *d_o = a->d_o, *dqkv = a->dqkv;
    r->ops.attention(&r->ctx, o + out, lse, qkv + in, count, s->T, s->H, s->G, s->D, s->T_max, use);
    r->ops.attention_grad(&r->ctx, dqkv + in, d_o + out, o + out, qkv + in, lse, count, s->T, s->H,
                          s->G, s->D, s->T_max, use);
}

/* The definition in double: returns the sum over outputs of weight * o (weight NULL: 0). Out when not
 * NULL: o, lse, and dqkv = the derivative of that sum. */
static double definition(const shape *s, const double *qkv, const tt_dropout *drop,
                         const double *weight, double *o, double *lse, double *dqkv)
{
    int64_t stride = (s->H + 2 * s->G) * s->D;
    double total = 0, scale = 1 / sqrt((double)s->D);
    double *p = rig_block((size_t)s->T * 8), *keep = rig_block((size_t)s->T * 8);
    for (int64_t i = 0; dqkv != NULL && i < s->B * s->T * stride; i++) {
        dqkv[i] = 0;
    }
    for (int64_t row = 0; row < s->B * s->H * s->T; row++) {
        int64_t b = row / (s->H * s->T), h = row / s->T % s->H, t = row % s->T;
        int64_t g = h / (s->H / s->G), at = (b * s->T + t) * stride + h * s->D;
        int64_t k = b * s->T * stride + (s->H + g) * s->D, v = k + s->G * s->D;
        int64_t to = (b * s->T + t) * s->H * s->D + h * s->D;
        double max = -INFINITY, sum = 0, dot = 0;
        for (int64_t j = 0; j <= t; j++) {
            p[j] = 0;
            for (int64_t d = 0; d < s->D; d++) {
                p[j] += qkv[at + d] * qkv[k + j * stride + d] * scale;
            }
            max = fmax(max, p[j]);
        }
        for (int64_t j = 0; j <= t; j++) {
            p[j] = exp(p[j] - max);
            sum += p[j];
            keep[j] = rig_keep(drop, b, (h * s->T_max + t) * s->T_max + j);
        }
        if (lse != NULL) {
            lse[row] = max + log(sum);
        }
        for (int64_t d = 0; d < s->D; d++) {
            double out = 0;
            for (int64_t j = 0; j <= t; j++) {
                out += p[j] / sum * keep[j] * qkv[v + j * stride + d];
            }
            if (o != NULL) {
                o[to + d] = out;
            }
            dot += weight != NULL ? weight[to + d] * out : 0;
        }
        total += dot;
        for (int64_t j = 0; dqkv != NULL && j <= t; j++) {
            double slope = 0, w = p[j] / sum;
            for (int64_t d = 0; d < s->D; d++) {
                slope += weight[to + d] * qkv[v + j * stride + d];
                dqkv[v + j * stride + d] += w * keep[j] * weight[to + d];
            }
            slope = w * (keep[j] * slope - dot) * scale;
            for (int64_t d = 0; d < s->D; d++) {
                dqkv[at + d] += slope * qkv[k + j * stride + d];
                dqkv[k + j * stride + d] += slope * qkv[at + d];
            }
        }
    }
    free(p), free(keep);
    return total;
}

/* Each x within half a unit and `spread` of what is wanted, and all together within a unit. */
static void near_all(const rig *r, const void *x, const double *want, int64_t n, double spread,
                     const char *what)
{
    double square = 0, size = 0;
    for (int64_t i = 0; i < n; i++) {
        double difference = rig_get(r, x, i) - want[i];
        if (!rig_near(r, rig_get(r, x, i), want[i],
                      spread)) { /* an assertion each takes too long */
            RIG_NEAR(r, rig_get(r, x, i), want[i], spread, what);
        }
        square += difference * difference;
        size += want[i] * want[i];
    }
    double unit = rig_coarse(r) ? tt_formats[r->ops.compute].epsilon : 1e-5;
    ck_assert_msg(sqrt(square) <= unit * sqrt(size) + 1e-6 * sqrt((double)n),
                  "%s %s %s: off by %g of %g", r->ops.isa, tt_formats[r->ops.compute].name, what,
                  sqrt(square), sqrt(size));
}

static void against_definition(rig *r, const shape *s)
{
    const int64_t samples[] = {12, 3};
    tt_dropout drop = rig_dropout(0.3, samples);
    for (int dropped = 0; dropped < 2; dropped++) {
        const tt_dropout *use = dropped ? &drop : NULL;
        arrays a = arrays_open(r, s, 1);
        double *qkv = rig_doubles(r, a.qkv, a.in), *d_o = rig_doubles(r, a.d_o, a.out);
        double *o = rig_block((size_t)a.out * 8), *lse = rig_block((size_t)a.rows * 8);
        double *dqkv = rig_block((size_t)a.in * 8);
        attend(r, s, &a, 0, s->B, use);
        definition(s, qkv, use, d_o, o, lse, dqkv);
        const double unit = tt_formats[r->ops.compute].epsilon;
        near_all(r, a.o, o, a.out, attention_rounds(r) ? 2.5 * unit : 2e-5, "attention");
        double off = 0;
        for (int64_t i = 0; i < a.rows; i++) {
            off = fmax(off, fabs((double)a.lse[i] - lse[i]));
        }
        ck_assert(off < 1e-5);
        /* but in FP32, do . o inherits the rounding of o */
        near_all(r, a.dqkv, dqkv, a.in,
                 rig_coarse(r) ? 2.5 * unit * sqrt((double)s->D) + 1e-4 : 1e-4, "attention_grad");
        free(qkv), free(d_o), free(o), free(lse), free(dqkv);
        arrays_close(&a);
    }
}

/* The derivative that the others are measured with, against differences of the definition. */
static void derivative_of_definition(void)
{
    static const shape shapes[] = {{1, 1, 1, 1, 1, 1}, {2, 5, 4, 2, 3, 6}, {1, 17, 2, 1, 4, 20}};
    const int64_t samples[] = {12, 3};
    tt_dropout drop = rig_dropout(0.3, samples);
    for (int i = 0; i < 3; i++) {
        const shape *s = &shapes[i];
        int64_t in = s->B * s->T * (s->H + 2 * s->G) * s->D, out = s->B * s->T * s->H * s->D;
        tt_key key = tt_rng_key(11, TT_RNG_TEST, 7);
        double *qkv = rig_block((size_t)in * 8), *weight = rig_block((size_t)out * 8);
        double *slope = rig_block((size_t)in * 8);
        for (int64_t n = 0; n < in; n++) {
            qkv[n] = (double)tt_rng_normal(key, 0, (uint64_t)n);
        }
        for (int64_t n = 0; n < out; n++) {
            weight[n] = (double)tt_rng_normal(key, 1, (uint64_t)n);
        }
        definition(s, qkv, &drop, weight, NULL, NULL, slope);
        for (int64_t n = 0; n < in; n += in / 40 + 1) {
            const double h = 1e-4, x = qkv[n];
            qkv[n] = x + h;
            double above = definition(s, qkv, &drop, weight, NULL, NULL, NULL);
            qkv[n] = x - h;
            double below = definition(s, qkv, &drop, weight, NULL, NULL, NULL);
            qkv[n] = x;
            ck_assert(fabs((above - below) / (2 * h) - slope[n]) < 1e-6);
        }
        free(qkv), free(weight), free(slope);
    }
}

static void same(const rig *r, const arrays *a, const arrays *b, const char *how)
{
    bool equal = memcmp(a->o, b->o, (size_t)a->out * rig_size(r)) == 0 &&
                 memcmp(a->lse, b->lse, (size_t)a->rows * sizeof *a->lse) == 0 &&
                 memcmp(a->dqkv, b->dqkv, (size_t)a->in * rig_size(r)) == 0;
    ck_assert_msg(equal, "%s %s: differs %s", r->ops.isa, tt_formats[r->ops.compute].name, how);
}

/* Teams of 1, 3 and 5, more than there are heads; sequences one by one. */
static void against_layouts(rig *r, const shape *s)
{
    const int64_t samples[] = {12, 3};
    tt_dropout drop = rig_dropout(0.3, samples);
    arrays whole = arrays_open(r, s, 1);
    attend(r, s, &whole, 0, s->B, &drop);
    for (int threads = 1; threads <= 5; threads += 2) {
        rig team;
        attention_open(&team, r->ops.compute, r->ops.isa, attention_only, s, threads);
        arrays other = arrays_open(&team, s, 1);
        attend(&team, s, &other, 0, s->B, &drop);
        same(r, &whole, &other, "in another team");
        arrays_close(&other);
        rig_close(&team);
    }
    arrays other = arrays_open(r, s, 1);
    for (int64_t b = 0; b < s->B; b++) {
        attend(r, s, &other, b, 1, &drop);
    }
    same(r, &whole, &other, "sequence by sequence");
    arrays_close(&other);
    arrays_close(&whole);
}

static bool all_finite(const rig *r, const void *x, int64_t from, int64_t end)
{
    bool finite = true;
    for (int64_t i = from; i < end; i++) {
        finite = finite && isfinite(rig_get(r, x, i));
    }
    return finite;
}

/* Scores of up to 1e4 either way: one key takes all, sums stay finite, and o is that key's value. */
static void large_scores(rig *r, const shape *s)
{
    arrays a = arrays_open(r, s, 1);
    int64_t width = 3 * s->D; /* one head */
    for (int64_t t = 0; t < s->T; t++) {
        double k = t % 2 == 0 ? (double)(t + 1) : -(double)(t + 1);
        for (int64_t d = 0; d < s->D; d++) {
            rig_put(r, a.qkv, t * width + d, 1e4 / (double)s->T / sqrt((double)s->D));
            rig_put(r, a.qkv, t * width + s->D + d, k);
        }
    }
    attend(r, s, &a, 0, 1, NULL);
    for (int64_t t = 0; t < s->T; t++) {
        int64_t most = t / 2 * 2; /* the greatest key that t sees */
        double q = rig_get(r, a.qkv, t * width), k = rig_get(r, a.qkv, most * width + s->D);
        double score = q * k * sqrt((double)s->D);
        ck_assert(fabs((double)a.lse[t] - score) <= 1e-4 * fabs(score) + 1e-4);
        for (int64_t d = 0; d < s->D; d++) {
            double v = rig_get(r, a.qkv, most * width + 2 * s->D + d);
            ck_assert(fabs(rig_get(r, a.o, t * s->D + d) - v) < 1e-4);
        }
    }
    ck_assert(all_finite(r, a.dqkv, 0, a.in));
    arrays_close(&a);
}

/* Scores so large that the rounding of one is worth many powers of e: weights are at most 1 all the
 * same, and everything stays finite. */
static void huge_scores(rig *r, const shape *s)
{
    arrays a = arrays_open(r, s, 1);
    int64_t width = 3 * s->D;
    const double size = r->ops.format == TT_FP16 ? 1e3 : 1e5; /* no gradient overflows */
    for (int64_t t = 0; t < s->T; t++) {
        for (int64_t i = 0; i < 2 * s->D; i++) {
            rig_put(r, a.qkv, t * width + i, size * rig_get(r, a.qkv, t * width + i));
        }
    }
    attend(r, s, &a, 0, 1, NULL);
    ck_assert(all_finite(r, a.o, 0, s->T * s->D));
    ck_assert(all_finite(r, a.dqkv, 0, a.in));
    arrays_close(&a);
}

/* All scores equal, at one of three heights: o is the mean of the values seen. */
static void equal_scores(rig *r, const shape *s)
{
    for (int height = -1; height <= 1; height++) {
        arrays a = arrays_open(r, s, 1);
        int64_t width = 3 * s->D;
        double mean = 0;
        for (int64_t t = 0; t < s->T; t++) {
            for (int64_t d = 0; d < s->D; d++) {
                rig_put(r, a.qkv, t * width + d, 64);
                rig_put(r, a.qkv, t * width + s->D + d, height * 64);
                rig_put(r, a.qkv, t * width + 2 * s->D + d, (double)(t % 4));
            }
        }
        attend(r, s, &a, 0, 1, NULL);
        for (int64_t t = 0; t < s->T; t++) {
            mean += ((double)(t % 4) - mean) / (double)(t + 1);
            for (int64_t d = 0; d < s->D; d++) {
                RIG_NEAR(r, rig_get(r, a.o, t * s->D + d), mean, 1e-4, "mean of values");
            }
        }
        arrays_close(&a);
    }
}

/* A value that is not finite, in q, k, v or do, shows in every row that sees it, forward or backward,
 * and in no row of another sequence. */
static void not_finite(rig *r, const shape *s)
{
    static const double bad[] = {NAN, INFINITY, -INFINITY};
    int64_t width = 3 * s->D, where = s->T / 2;
    for (int place = 0; place < 3; place++) {
        for (int i = 0; i < 3; i++) {
            arrays a = arrays_open(r, s, 1);
            rig_put(r, a.qkv, where * width + place * s->D + s->D / 2, bad[i]);
            attend(r, s, &a, 0, s->B, NULL);
            for (int64_t t = where; t < (place == 0 ? where + 1 : s->T); t++) {
                double sum = 0;
                for (int64_t d = 0; d < s->D; d++) {
                    sum += rig_get(r, a.o, t * s->D + d);
                }
                ck_assert_msg(!isfinite(sum), "%s: row %d hides what is not finite in place %d",
                              r->ops.isa, (int)t, place);
            }
            ck_assert(all_finite(r, a.o, a.out / 2, a.out));
            ck_assert(all_finite(r, a.dqkv, a.in / 2, a.in));
            arrays_close(&a);
        }
    }
}

START_TEST(derivative)
{
    derivative_of_definition();
}
END_TEST

START_TEST(definition_small)
{
    static const shape shapes[] = {
        {1, 1, 1, 1, 1, 1},    {2, 2, 2, 1, 3, 4},    {1, 3, 3, 3, 5, 3},
        {2, 31, 2, 2, 16, 40}, {1, 95, 4, 2, 8, 100}, {1, 96, 2, 1, 17, 96},
        {1, 97, 1, 1, 32, 97}, {2, 65, 4, 1, 33, 67}, {1, 130, 2, 2, 64, 130}};
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        attention_each(against_definition, &shapes[i]);
    }
}
END_TEST

/* More than one square of backward and one task of forward, in both directions. */
START_TEST(definition_long)
{
    static const shape s = {1, 780, 2, 1, 3, 800};
    attention_each(against_definition, &s);
}
END_TEST

/* More query heads to a key-value head than one task takes. */
START_TEST(definition_many_heads)
{
    static const shape s = {1, 40, 11, 1, 9, 40};
    attention_each(against_definition, &s);
}
END_TEST

START_TEST(layouts)
{
    static const shape shapes[] = {{2, 450, 2, 1, 5, 500}, {2, 33, 3, 3, 40, 33}};
    attention_each(against_layouts, &shapes[0]);
    attention_each(against_layouts, &shapes[1]);
}
END_TEST

START_TEST(extremes)
{
    static const shape one = {1, 210, 1, 1, 4, 210}, two = {2, 110, 1, 1, 6, 110};
    static const shape uneven = {1, 210, 1, 1, 48, 210}; /* 1 / sqrt(D) is no power of two */
    attention_each(large_scores, &one);
    attention_each(huge_scores, &uneven);
    attention_each(equal_scores, &one);
    attention_each(not_finite, &two);
}
END_TEST

static Suite *attention_suite(const char *name)
{
    Suite *suite = suite_create(name);
    TCase *tests = tcase_create("attention");
    tcase_add_test(tests, derivative);
    tcase_add_test(tests, definition_small);
    tcase_add_test(tests, definition_long);
    tcase_add_test(tests, definition_many_heads);
    tcase_add_test(tests, layouts);
    tcase_add_test(tests, extremes);
    tcase_set_timeout(tests, 60);
    suite_add_tcase(suite, tests);
    return suite;
}

#endif
