/* test_elementwise.c: embed, norm, the gradient of a dropped branch, conversions, sums and adamw against
 * formulas in double; backwards against differences of those formulas; ragged sizes throughout. */
#include "rig.h"
#include "tutti/base/threads.h"

static const int64_t widths[] = {1, 2, 3, 7, 31, 63, 64, 65, 127, 130};
enum { WIDTHS = sizeof widths / sizeof widths[0] };

/* --- embed ------------------------------------------------------------------------------------ */

static void embed_case(rig *r, int64_t B, int64_t T, int64_t C, int64_t V, const tt_dropout *drop)
{
    void *wte = rig_random(r, V * C, 1), *wpe = rig_random(r, T * C, 1);
    void *x = rig_acts(r, B * T * C), *dx = rig_random(r, B * T * C, 1);
    int32_t *token = rig_tokens(r, B * T, V);
    float *gwte = rig_floats(r, V * C, 1), *gwpe = rig_floats(r, T * C, 1);
    double *want_wte = rig_block((size_t)(V * C) * 8), *want_wpe = rig_block((size_t)(T * C) * 8);
    for (int64_t i = 0; i < V * C; i++) {
        want_wte[i] = (double)gwte[i];
    }
    for (int64_t i = 0; i < T * C; i++) {
        want_wpe[i] = (double)gwpe[i];
    }
    r->ops.embed(&r->ctx, x, wte, wpe, token, B, T, C, drop);
    r->ops.embed_grad(&r->ctx, GRAD(gwte), GRAD(gwpe), dx, token, B, T, C, drop);
    for (int64_t m = 0; m < B * T; m++) {
        for (int64_t c = 0; c < C; c++) {
            double keep = rig_keep(drop, m / T, m % T * C + c);
            double want =
                keep * (rig_get(r, wte, token[m] * C + c) + rig_get(r, wpe, m % T * C + c));
            RIG_NEAR(r, rig_get(r, x, m * C + c), want, 1e-6, "embed");
            want_wte[token[m] * C + c] += keep * rig_get(r, dx, m * C + c);
            want_wpe[m % T * C + c] += keep * rig_get(r, dx, m * C + c);
        }
    }
    for (int64_t i = 0; i < V * C; i++) {
        ck_assert(fabs((double)gwte[i] - want_wte[i]) < 1e-5);
    }
    for (int64_t i = 0; i < T * C; i++) {
        ck_assert(fabs((double)gwpe[i] - want_wpe[i]) < 1e-5);
    }
    free(wte), free(wpe), free(x), free(dx), free(token), free(gwte), free(gwpe);
    free(want_wte), free(want_wpe);
}

static void embed_cases(rig *r)
{
    const int64_t samples[] = {40, 7, 100000};
    tt_dropout drop = rig_dropout(0.25, samples);
    for (int i = 0; i < WIDTHS; i++) {
        embed_case(r, 1, 1, widths[i], 5, NULL);
        embed_case(r, 3, 5, widths[i], 7, &drop);
    }
}

START_TEST(embed)
{
    rig_each(embed_cases);
}
END_TEST

/* --- norm ------------------------------------------------------------------------------------- */

static double norm_formula(const double *x, const double *gain, const double *bias, int64_t C,
                           const double *weight, double *y)
{
    double mean = 0, var = 0, sum = 0;
    for (int64_t c = 0; c < C; c++) {
        mean += x[c] / (double)C;
    }
    for (int64_t c = 0; c < C; c++) {
        var += (x[c] - mean) * (x[c] - mean) / (double)C;
    }
    for (int64_t c = 0; c < C; c++) {
        double out = (x[c] - mean) / sqrt(var + 1e-5) * gain[c] + bias[c];
        if (y != NULL) {
            y[c] = out;
        }
        sum += weight != NULL ? weight[c] * out : 0;
    }
    return sum;
}

/* d/dp of norm_formula's weighted sum for one of its inputs. */
static double norm_slope(double *p, const double *x, const double *gain, const double *bias,
                         int64_t C, const double *weight)
{
    const double h = 1e-5;
    double keep = *p;
    *p = keep + h;
    double above = norm_formula(x, gain, bias, C, weight, NULL);
    *p = keep - h;
    double below = norm_formula(x, gain, bias, C, weight, NULL);
    *p = keep;
    return (above - below) / (2 * h);
}

static void norm_case(rig *r, int64_t M, int64_t C, int64_t leaf)
{
    void *x = rig_random(r, M * C, 2), *gain = rig_random(r, C, 1), *bias = rig_random(r, C, 1);
    void *y = rig_acts(r, M * C), *dy = rig_random(r, M * C, 1), *dx = rig_random(r, M * C, 1);
    float *mean = rig_floats(r, M, 1), *rstd = rig_floats(r, M, 1);
    float *ggain = rig_floats(r, C, 1), *gbias = rig_floats(r, C, 1);
    double *x_ = rig_doubles(r, x, M * C), *gain_ = rig_doubles(r, gain, C);
    double *bias_ = rig_doubles(r, bias, C), *dy_ = rig_doubles(r, dy, M * C);
    double *dx_ = rig_doubles(r, dx, M * C), *want = rig_block((size_t)C * 8);
    double *ggain_ = rig_block((size_t)C * 8), *gbias_ = rig_block((size_t)C * 8);
    for (int64_t c = 0; c < C; c++) {
        ggain_[c] = (double)ggain[c];
        gbias_[c] = (double)gbias[c];
    }
    r->ops.norm(&r->ctx, y, mean, rstd, x, gain, bias, M, C);
    r->ops.norm_grad(&r->ctx, dx, GRAD(ggain), GRAD(gbias), dy, x, gain, mean, rstd, M, C, leaf);
    for (int64_t m = 0; m < M; m++) {
        norm_formula(x_ + m * C, gain_, bias_, C, NULL, want);
        for (int64_t c = 0; c < C; c++) {
            /* the spread of a row may be tiny (C = 2): what rounding of x - mean leaves grows */
            RIG_NEAR(r, rig_get(r, y, m * C + c), want[c], 2e-5, "norm");
            double slope = norm_slope(&x_[m * C + c], x_ + m * C, gain_, bias_, C, dy_ + m * C);
            RIG_NEAR(r, rig_get(r, dx, m * C + c), dx_[m * C + c] + slope,
                     1e-4 * fmax(1, (double)rstd[m]), "norm_grad dx");
            ggain_[c] += norm_slope(&gain_[c], x_ + m * C, gain_, bias_, C, dy_ + m * C);
            gbias_[c] += dy_[m * C + c];
        }
    }
    for (int64_t c = 0; c < C; c++) {
        ck_assert(fabs((double)ggain[c] - ggain_[c]) < 1e-4 * (double)M);
        ck_assert(fabs((double)gbias[c] - gbias_[c]) < 1e-5 * (double)M);
    }
    free(x), free(gain), free(bias), free(y), free(dy), free(dx), free(mean), free(rstd);
    free(ggain), free(gbias), free(x_), free(gain_), free(bias_), free(dy_), free(dx_);
    free(want), free(ggain_), free(gbias_);
}

static void norm_cases(rig *r)
{
    for (int i = 0; i < WIDTHS; i++) {
        norm_case(r, 1, widths[i], 1);
        norm_case(r, 7, widths[i], 3);
    }
}

START_TEST(norm)
{
    rig_each(norm_cases);
}
END_TEST

/* --- residual --------------------------------------------------------------------------------- */

static void residual_case(rig *r, int64_t B, int64_t T, int64_t C, const tt_dropout *drop)
{
    int64_t n = B * T * C;
    void *dy = rig_random(r, n, 1), *db = rig_acts(r, n);
    r->ops.residual_grad(&r->ctx, db, dy, B, T, C, drop);
    for (int64_t i = 0; i < n; i++) {
        double keep = rig_keep(drop, i / (T * C), i % (T * C));
        RIG_NEAR(r, rig_get(r, db, i), keep * rig_get(r, dy, i), 1e-6, "residual_grad");
    }
    free(dy), free(db);
}

static void residual_cases(rig *r)
{
    const int64_t samples[] = {0, 99};
    tt_dropout drop = rig_dropout(0.4, samples), off = rig_dropout(0, samples);
    for (int i = 0; i < WIDTHS; i++) {
        residual_case(r, 1, 1, widths[i], NULL);
        residual_case(r, 2, 3, widths[i], &off);
        residual_case(r, 2, 3, widths[i], &drop);
    }
}

START_TEST(residual_grad)
{
    rig_each(residual_cases);
}
END_TEST

/* --- conversions, sums ------------------------------------------------------------------------ */

static void convert_cases(rig *r)
{
    for (int i = 0; i < WIDTHS; i++) {
        int64_t n = widths[i];
        float *x = rig_floats(r, n, 1), *back = rig_floats(r, n, 1);
        void *y = rig_acts(r, n);
        x[0] = INFINITY;
        x[n - 1] = n > 1 ? NAN : x[0];
        r->ops.to_act(&r->ctx, y, x, n);
        r->ops.from_act(&r->ctx, back, y, n);
        for (int64_t k = 0; k < n; k++) {
            const tt_format f = r->ops.format;
            float want = tt_format_value(f, tt_format_code(f, x[k]));
            ck_assert_mem_eq(&back[k], &want, sizeof want);
        }
        free(x), free(back), free(y);
    }
}

START_TEST(convert)
{
    rig_each(convert_cases);
}
END_TEST

static void sum_cases(rig *r)
{
    static const int64_t sizes[] = {0, 1, 2, 63, 64, 65, 4095, 4096, 4097, 20001};
    for (int s = 0; s < 10; s++) {
        int64_t n = sizes[s];
        float *x = rig_floats(r, n, 1e-3);
        double want = 0;
        for (int64_t i = 0; i < n; i++) {
            want += (double)x[i] * (double)x[i];
        }
        double sum = squares_of(&r->ctx, x, n);
        ck_assert(fabs(sum - want) <= 1e-13 * want);
        if (n > 0) {
            x[n - 1] = NAN;
            ck_assert(!isfinite(squares_of(&r->ctx, x, n)));
            x[n - 1] = -INFINITY;
            ck_assert(!isfinite(squares_of(&r->ctx, x, n)));
        }
        free(x);
    }
}

START_TEST(sums)
{
    rig_each(sum_cases);
}
END_TEST

/* --- adamw ------------------------------------------------------------------------------------ */

static void adamw_cases(rig *r)
{
    for (int i = 0; i < WIDTHS; i++) {
        int64_t n = widths[i];
        float *master = rig_floats(r, n, 1), *m = rig_floats(r, n, 0), *v = rig_floats(r, n, 0);
        void *w = rig_acts(r, n);
        double *p_ = rig_block((size_t)n * 8), *m_ = rig_block((size_t)n * 8);
        double *v_ = rig_block((size_t)n * 8);
        for (int64_t k = 0; k < n; k++) {
            p_[k] = (double)master[k];
            m_[k] = v_[k] = 0;
        }
        const double lr = 0.01, beta1 = 0.9, beta2 = 0.95, eps = 1e-8, decay = 0.1, scale = 0.25;
        for (int t = 1; t <= 5; t++) {
            double c1 = 1 - pow(beta1, t), c2 = 1 - pow(beta2, t);
            tt_adamw step = {.lr = (float)lr,
                             .beta1 = (float)beta1,
                             .beta2 = (float)beta2,
                             .eps = (float)eps,
                             .weight_decay = (float)decay,
                             .correction1 = (float)c1,
                             .correction2 = (float)c2,
                             .grad_scale = (float)scale};
            float *g = rig_floats(r, n, 3);
            r->ops.adamw(&r->ctx, FULL(master), m, v, w, GRAD(g), n, &step);
            for (int64_t k = 0; k < n; k++) {
                double grad = (double)g[k] * scale;
                p_[k] *= 1 - lr * decay;
                m_[k] = beta1 * m_[k] + (1 - beta1) * grad;
                v_[k] = beta2 * v_[k] + (1 - beta2) * grad * grad;
                p_[k] -= lr / c1 * m_[k] / (sqrt(v_[k]) / sqrt(c2) + eps);
                ck_assert(fabs((double)master[k] - p_[k]) < 1e-6 * fmax(1, fabs(p_[k])));
                ck_assert(fabs((double)m[k] - m_[k]) < 1e-6 * fmax(1, fabs(m_[k])));
                ck_assert(fabs((double)v[k] - v_[k]) < 1e-6 * fmax(1, fabs(v_[k])));
                RIG_NEAR(r, rig_get(r, w, k), (double)master[k], 0, "adamw weights");
            }
            free(g);
        }
        free(master), free(m), free(v), free(w), free(p_), free(m_), free(v_);
    }
}

START_TEST(adamw)
{
    rig_each(adamw_cases);
}
END_TEST

/* --- subnormals ------------------------------------------------------------------------------- */

static bool all_zero(const float *x, int64_t n)
{
    uint32_t bits = 0;
    for (int64_t i = 0; i < n; i++) {
        bits |= tt_bits_of_f32(x[i]) & 0x7fffffffu;
    }
    return bits == 0;
}

/* What kernels.h says of them, on both threads. */
static void subnormal_cases(rig *r)
{
    enum { N = 1000 };
    float *tiny = rig_floats(r, N, 0), *back = rig_floats(r, N, 1);
    float *master = rig_floats(r, N, 1), *m = rig_floats(r, N, 0), *v = rig_floats(r, N, 0);
    void *code = rig_acts(r, N);
    tt_adamw step = {1e-3f, 0.9f, 0.95f, 1e-8f, 0, 0.1f, 0.05f, 1};
    for (int i = 0; i < N; i++) {
        tiny[i] = tt_format_value(r->ops.format, 1 + (uint32_t)i % 7);
    }
    r->ops.to_act(&r->ctx, code, tiny, N);
    r->ops.from_act(&r->ctx, back, code, N);
    ck_assert_mem_eq(back, tiny, N * sizeof *tiny); /* conversions keep them */
    for (int i = 0; i < N; i++) {
        tiny[i] = tt_f32_of_bits(1u << 16);
    }
    r->ops.adamw(&r->ctx, FULL(master), m, v, code, GRAD(tiny), N, &step);
    ck_assert(all_zero(m, N)); /* operands count as 0 */
    for (int i = 0; i < N; i++) {
        tiny[i] = 1e-20f;
    }
    r->ops.adamw(&r->ctx, FULL(master), m, v, code, GRAD(tiny), N, &step);
    ck_assert(all_zero(v, N)); /* the square is subnormal, and 0 */
    free(tiny), free(back), free(master), free(m), free(v), free(code);
}

START_TEST(subnormals)
{
#ifdef __SSE__
    tt_flush_denormals(2);
    rig_each(subnormal_cases);
#endif
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("elementwise");
    TCase *tests = tcase_create("elementwise");
    tcase_add_test(tests, embed);
    tcase_add_test(tests, norm);
    tcase_add_test(tests, residual_grad);
    tcase_add_test(tests, convert);
    tcase_add_test(tests, sums);
    tcase_add_test(tests, adamw);
    tcase_add_test(tests, subnormals); /* last: it sets the mode of the program */
    suite_add_tcase(suite, tests);
    return suite;
}

TT_TEST_MAIN(make_suite)
