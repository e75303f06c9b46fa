/* test_head_loss.c: the fused output layer and cross-entropy against their definition in double,
 * backward against differences of it; masked targets, unused vocabulary, chunks, leaves. */
#include "kernels/kernels_impl.h"
#include "rig.h"

typedef struct head {
    int64_t M, V, used, C, leaf;
} head;

static double row_formula(const head *s, const double *x, const double *w, int32_t target)
{
    double max = -INFINITY, sum = 0, z[400];
    if (target < 0) {
        return 0;
    }
    for (int64_t v = 0; v < s->used; v++) {
        z[v] = 0;
        for (int64_t c = 0; c < s->C; c++) {
            z[v] += x[c] * w[v * s->C + c];
        }
        max = fmax(max, z[v]);
    }
    for (int64_t v = 0; v < s->used; v++) {
        sum += exp(z[v] - max);
    }
    return max + log(sum) - z[target];
}

static double formula(const head *s, const double *x, const double *w, const int32_t *target)
{
    double sum = 0;
    for (int64_t m = 0; m < s->M; m++) {
        sum += row_formula(s, x + m * s->C, w, target[m]);
    }
    return sum;
}

static double slope(const head *s, double *p, const double *x, const double *w,
                    const int32_t *target)
{
    const double h = 1e-4;
    double keep = *p, side[2];
    for (int k = 0; k < 2; k++) {
        *p = keep + (k == 0 ? -h : h);
        side[k] = formula(s, x, w, target);
    }
    *p = keep;
    return (side[1] - side[0]) / (2 * h);
}

static void one_case(rig *r, const head *s, int masked_every)
{
    const float scale = 0.5f;
    int64_t MC = s->M * s->C, VC = s->V * s->C, valid = 0, count = 3;
    void *x = rig_random(r, MC, 1), *w = rig_random(r, VC, 0.5), *dx = rig_acts(r, MC);
    int32_t *target = rig_tokens(r, s->M, s->used);
    for (int64_t m = 0; m < s->M; m++) {
        target[m] = masked_every > 0 && (m + 1) % masked_every == 0 ? -1 : target[m];
        valid += target[m] >= 0;
    }
    for (int64_t v = s->used; v < s->V; v++) { /* would win every softmax, were it to take part */
        for (int64_t c = 0; c < s->C; c++) {
            rig_put(r, w, v * s->C + c, 30);
        }
    }
    float *gw = rig_floats(r, VC, 1), *before = rig_copy(gw, (size_t)VC * sizeof *gw);
    float *row_loss = rig_floats(r, s->M, 1);
    double *x_ = rig_doubles(r, x, MC), *w_ = rig_doubles(r, w, VC);
    tt_exact loss = {.pending = 0}, again = {.pending = 0};
    tt_exact_add(&loss, 10);
    tt_weight weight = rig_weight(r, w, s->V, s->C, masked_every != 1);
    r->ops.head_loss(&r->ctx, &loss, &count, row_loss, dx, GRAD(gw), x, &weight, target, s->M, s->V,
                     s->used, s->C, s->leaf, scale);
    ck_assert_int_eq(count, 3 + valid);
    double want = formula(s, x_, w_, target);
    double got = tt_exact_value(&loss) - 10;
    ck_assert_msg(fabs(got - want) < 1e-5 * (double)s->M, "loss %.9g, expected %.9g", got, want);
    for (int64_t m = 0; m < s->M; m++) {
        double row = row_formula(s, x_ + m * s->C, w_, target[m]);
        ck_assert(fabs((double)row_loss[m] - row) < 1e-4);
        ck_assert(target[m] >= 0 || row_loss[m] == 0);
        for (int64_t c = 0; c < s->C && target[m] < 0; c++) {
            ck_assert(rig_get(r, dx, m * s->C + c) == 0);
        }
    }
    /* but in FP32, each logit's gradient was rounded before the matmuls */
    const double unit = tt_formats[r->ops.compute].epsilon / tt_formats[TT_BF16].epsilon;
    double slack = rig_coarse(r) ? 0.01 * unit + 1e-4 : 1e-4;
    double slack_w = rig_coarse(r) ? 0.02 * unit * sqrt((double)s->M) + 1e-3 : 1e-3;
    for (int64_t i = 0; i < MC; i += MC / 8 + 1) {
        RIG_NEAR(r, rig_get(r, dx, i), (double)scale * slope(s, &x_[i], x_, w_, target), slack,
                 "head_loss dx");
    }
    for (int64_t i = 0; i < VC; i += VC / 8 + 1) {
        double d = (double)scale * slope(s, &w_[i], x_, w_, target);
        ck_assert_msg(fabs((double)gw[i] - (double)before[i] - d) < slack_w, "gw %g, expected %g",
                      (double)gw[i] - (double)before[i], d);
    }
    for (int64_t i = s->used * s->C; i < VC; i++) {
        ck_assert(gw[i] == before[i]);
    }
    /* evaluation: the same loss, nothing else wanted */
    count = 0;
    r->ops.head_loss(&r->ctx, &again, &count, NULL, NULL, NULL, x, &weight, target, s->M, s->V,
                     s->used, s->C, s->leaf, scale);
    ck_assert(fabs(tt_exact_value(&again) - want) < 1e-5 * (double)s->M && count == valid);
    rig_unpack(&weight);
    free(x), free(w), free(dx), free(target), free(gw), free(before), free(row_loss);
    free(x_), free(w_);
}

static void cases(rig *r)
{
    static const head heads[] = {{1, 1, 1, 1, 1},
                                 {3, 5, 3, 2, 1},
                                 {7, 64, 63, 5, 7},
                                 {8, 65, 65, 17, 4},
                                 {13, 131, 67, 9, 5}};
    for (int i = 0; i < 5; i++) {
        one_case(r, &heads[i], 0);
        one_case(r, &heads[i], 2);
        one_case(r, &heads[i], 1);
    }
}

START_TEST(definition_and_slopes)
{
    rig_each(cases);
}
END_TEST

/* More rows than a chunk, in one leaf and in leaves that a chunk does not divide. */
static void chunks(rig *r)
{
    static const head heads[] = {{TT_HEAD_ROWS + 37, 9, 8, 3, TT_HEAD_ROWS + 37},
                                 {2 * TT_HEAD_ROWS + 5, 5, 5, 2, 100},
                                 {TT_HEAD_DEPTH + 37, 9, 8, 3, TT_HEAD_DEPTH + 37}};
    for (int i = 0; i < 3; i++) {
        one_case(r, &heads[i], 3);
    }
}

START_TEST(more_rows_than_a_chunk)
{
    rig_each(chunks);
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("head_loss");
    TCase *tests = tcase_create("head_loss");
    tcase_add_test(tests, definition_and_slopes);
    tcase_add_test(tests, more_rows_than_a_chunk);
    suite_add_tcase(suite, tests);
    return suite;
}

TT_TEST_MAIN(make_suite)
