/* test_attention.c: attention against its definition in double, its backward against differences of
 * that; grouped heads, dropout, sequences shorter than the context, lengths around the tile. */
#include "rig.h"

typedef struct shape {
    int64_t B, T, H, G, D, T_max;
} shape;

static const shape shapes[] = {{1, 1, 1, 1, 1, 1},    {2, 2, 2, 1, 3, 4},    {1, 3, 3, 3, 5, 3},
                               {2, 31, 2, 2, 16, 40}, {1, 32, 4, 2, 8, 32},  {1, 33, 2, 1, 17, 64},
                               {1, 63, 1, 1, 32, 64}, {2, 65, 4, 1, 33, 67}, {1, 97, 2, 2, 64, 97}};
enum { SHAPES = sizeof shapes / sizeof shapes[0] };

/* Sum over outputs of weight * o; o and lse out when not NULL. */
static double formula(const shape *s, const double *qkv, const tt_dropout *drop,
                      const double *weight, double *o, double *lse)
{
    int64_t stride = (s->H + 2 * s->G) * s->D;
    double total = 0, p[128];
    for (int64_t b = 0; b < s->B; b++) {
        for (int64_t h = 0; h < s->H; h++) {
            int64_t g = h / (s->H / s->G);
            for (int64_t t = 0; t < s->T; t++) {
                const double *q = qkv + (b * s->T + t) * stride + h * s->D;
                double max = -INFINITY, sum = 0;
                for (int64_t j = 0; j <= t; j++) {
                    const double *k = qkv + (b * s->T + j) * stride + (s->H + g) * s->D;
                    p[j] = 0;
                    for (int64_t d = 0; d < s->D; d++) {
                        p[j] += q[d] * k[d] / sqrt((double)s->D);
                    }
                    max = fmax(max, p[j]);
                }
                for (int64_t j = 0; j <= t; j++) {
                    p[j] = exp(p[j] - max);
                    sum += p[j];
                }
                if (lse != NULL) {
                    lse[(b * s->H + h) * s->T + t] = max + log(sum);
                }
                for (int64_t j = 0; j <= t; j++) {
                    p[j] *= rig_keep(drop, b, (h * s->T_max + t) * s->T_max + j) / sum;
                }
                for (int64_t d = 0; d < s->D; d++) {
                    double out = 0;
                    for (int64_t j = 0; j <= t; j++) {
                        int64_t at = (b * s->T + j) * stride + (s->H + s->G + g) * s->D + d;
                        out += p[j] * qkv[at];
                    }
                    int64_t to = (b * s->T + t) * s->H * s->D + h * s->D + d;
                    if (o != NULL) {
                        o[to] = out;
                    }
                    total += weight != NULL ? weight[to] * out : 0;
                }
            }
        }
    }
    return total;
}

/* Derivative of the weighted sum at qkv along `way`. */
static double slope(const shape *s, const double *qkv, const double *way, int64_t n,
                    const tt_dropout *drop, const double *weight)
{
    const double h = 1e-4;
    double *at = rig_block((size_t)n * 8), side[2];
    for (int k = 0; k < 2; k++) {
        for (int64_t i = 0; i < n; i++) {
            at[i] = qkv[i] + (k == 0 ? -h : h) * way[i];
        }
        side[k] = formula(s, at, drop, weight, NULL, NULL);
    }
    free(at);
    return (side[1] - side[0]) / (2 * h);
}

static void one_case(rig *r, const shape *s, const tt_dropout *drop)
{
    int64_t in = s->B * s->T * (s->H + 2 * s->G) * s->D, out = s->B * s->T * s->H * s->D;
    int64_t rows = s->B * s->H * s->T;
    void *qkv = rig_random(r, in, 1), *o = rig_acts(r, out), *d_o = rig_random(r, out, 1);
    void *dqkv = rig_acts(r, in);
    float *lse = rig_floats(r, rows, 1);
    double *qkv_ = rig_doubles(r, qkv, in), *d_o_ = rig_doubles(r, d_o, out);
    double *o_ = rig_block((size_t)out * 8), *lse_ = rig_block((size_t)rows * 8);
    r->ops.attention(&r->ctx, o, lse, qkv, s->B, s->T, s->H, s->G, s->D, s->T_max, drop);
    formula(s, qkv_, drop, NULL, o_, lse_);
    for (int64_t i = 0; i < out; i++) {
        RIG_NEAR(r, rig_get(r, o, i), o_[i], 1e-5, "attention");
    }
    for (int64_t i = 0; i < rows; i++) {
        ck_assert(fabs((double)lse[i] - lse_[i]) < 1e-5);
    }
    r->ops.attention_grad(&r->ctx, dqkv, d_o, o, qkv, lse, s->B, s->T, s->H, s->G, s->D, s->T_max,
                          drop);
    /* in BF16, do . o inherits the rounding of o */
    double slack = r->ops.format == TT_BF16 ? 0.02 * sqrt((double)s->D) : 1e-4;
    double *way = rig_block((size_t)in * 8), along = 0;
    /* one element at a time: all where they are few, some where they are many */
    for (int64_t i = 0; i < in; i += in / 10 + 1) {
        memset(way, 0, (size_t)in * 8);
        way[i] = 1;
        RIG_NEAR(r, rig_get(r, dqkv, i), slope(s, qkv_, way, in, drop, d_o_), slack,
                 "attention_grad");
    }
    /* and all at once, with signs that let nothing cancel by habit */
    for (int64_t i = 0; i < in; i++) {
        way[i] = (i * i / 3 + i) % 2 == 0 ? 1 : -1;
        along += way[i] * rig_get(r, dqkv, i);
    }
    RIG_NEAR(r, along, slope(s, qkv_, way, in, drop, d_o_), slack * sqrt((double)in),
             "attention_grad along a direction");
    free(way);
    free(qkv), free(o), free(d_o), free(dqkv), free(lse), free(qkv_), free(d_o_), free(o_);
    free(lse_);
}

static void cases(rig *r)
{
    const int64_t samples[] = {12, 3};
    tt_dropout drop = rig_dropout(0.3, samples);
    for (int i = 0; i < SHAPES; i++) {
        one_case(r, &shapes[i], NULL);
        one_case(r, &shapes[i], &drop);
    }
}

START_TEST(definition_and_slopes)
{
    rig_each(cases);
}
END_TEST

/* A row's own key dominates by far: the exponentials of the others underflow, sums stay finite. */
static void extreme(rig *r)
{
    enum { T = 40, D = 4 };
    void *qkv = rig_random(r, T * 3 * D, 1), *o = rig_acts(r, T * D);
    float *lse = rig_floats(r, T, 1);
    for (int64_t t = 0; t < T; t++) {
        for (int64_t d = 0; d < 2 * D; d++) {
            rig_put(r, qkv, t * 3 * D + d, (double)(t + 1) * 8);
        }
    }
    r->ops.attention(&r->ctx, o, lse, qkv, 1, T, 1, 1, D, T, NULL);
    for (int64_t t = 0; t < T; t++) {
        for (int64_t d = 0; d < D; d++) {
            double v = rig_get(r, qkv, t * 3 * D + 2 * D + d);
            ck_assert(fabs(rig_get(r, o, t * D + d) - v) < 1e-4);
        }
        double s = (double)((t + 1) * (t + 1)) * 64 * D / sqrt(D);
        ck_assert(fabs((double)lse[t] - s) <= 1e-5 * s);
    }
    free(qkv), free(o), free(lse);
}

START_TEST(large_scores)
{
    rig_each(extreme);
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("attention");
    TCase *tests = tcase_create("attention");
    tcase_add_test(tests, definition_and_slopes);
    tcase_add_test(tests, large_scores);
    suite_add_tcase(suite, tests);
    return suite;
}

TT_TEST_MAIN(make_suite)
