/* test_golden.c: parity with PyTorch on two tiny models, in FP32.
 *
 * golden_gpt2.h holds what PyTorch computes in float64: the loss, the whole gradient, and five
 * AdamW steps with active clipping and decay on matrices only. Here the same is computed as
 * training does it: micro-batches whose un-normalised gradients add up, one division by the count
 * of valid targets at the end. The sequences have unequal counts, so a mean of means would fail.
 *
 * Bounds. FP32 rounds to 6e-8; sums of some ten to a hundred terms and two blocks make that some
 * 1e-6 of the largest element of a tensor: loss 1e-6, gradient and weights 1e-5. AdamW divides by
 * sqrt(v) + eps, which turns noise in a vanishing gradient (a key's bias has none: softmax does not
 * see it) into full steps; the models therefore use eps = 1e-4. */
#include "golden_gpt2.h"
#include "model_fixture.h"
#include "tutti/optim/optim.h"

/* The formulas of make_golden.py. */
static float hashed(int64_t p, int64_t e)
{
    uint64_t h = (uint64_t)(p * 7919 + e * 104729 + 12345) * 2654435761u;
    return (float)((h & 0xffffffffu) >> 16) / 65536.0f - 0.5f;
}

static int32_t token_at(int64_t V, int64_t step, int64_t b, int64_t t)
{
    return tt_int(((b * 31 + t * 7 + step * 5) * (t + 3) + b) % V);
}

static void fill_batch(fixture *f, int64_t step)
{
    for (int64_t b = 0; b < f->B; b++) {
        for (int64_t t = 0; t < f->T; t++) {
            f->token[b * f->T + t] = token_at(f->shape.V, step, b, t);
            f->target[b * f->T + t] = t < b ? -1 : token_at(f->shape.V, step, b, t + 1);
        }
    }
}

static void fill_weights(fixture *f)
{
    for (int i = 0; i < f->params.count; i++) {
        const tt_param *param = &f->params.param[i];
        for (int64_t e = 0; e < param->count; e++) {
            float one = param->init == TT_INIT_ONE ? 1.0f : 0.0f;
            f->master[param->offset + e] = one + hashed(i, e);
        }
    }
    fixture_publish(f);
}

/* values[N] scaled by `factor` against golden numbers without gaps, tensor by tensor. */
static void compare(const fixture *f, const char *what, const float *values, double factor,
                    const double *golden, double bound)
{
    for (int i = 0; i < f->params.count; i++) {
        const tt_param *param = &f->params.param[i];
        double largest = 0.0, worst = 0.0;
        for (int64_t e = 0; e < param->count; e++) {
            double difference = factor * values[param->offset + e] - golden[e];
            largest = fmax(largest, fabs(golden[e]));
            worst = fmax(worst, fabs(difference));
        }
        ck_assert_msg(worst <= bound * largest, "%s of %s: off by %.3g of the largest element",
                      what, param->name, worst / largest);
        golden += param->count;
    }
}

typedef struct golden {
    const tt_shape *shape;
    const double *loss, *norm;        /* [GOLDEN_STEPS + 1], [GOLDEN_STEPS] */
    const double *gradient, *weights; /* without gaps; NULL: not stored */
} golden;

static const golden tied = {&golden_tied_shape, golden_tied_loss, golden_tied_norm,
                            golden_tied_gradient, golden_tied_weights};
static const golden untied = {&golden_untied_shape, golden_untied_loss, golden_untied_norm, NULL,
                              NULL};

static tt_config golden_config(void)
{
    tt_config config;
    tt_config_preset(&config);
    config.optim.beta1 = GOLDEN_BETA1;
    config.optim.beta2 = GOLDEN_BETA2;
    config.optim.eps = GOLDEN_EPS;
    config.optim.weight_decay = GOLDEN_DECAY;
    return config;
}

/* Trains as the golden run did, B sequences per micro-batch. */
static void replay(const golden *g, const char *isa, int64_t B)
{
    tt_err err = {0};
    tt_config config = golden_config();
    fixture f;
    fixture_open(&f, g->shape, TT_FP32, isa, GOLDEN_B, g->shape->T, true);
    fill_weights(&f);
    int64_t N = f.params.total;
    float *m = must(tt_alloc(N, sizeof(float), &err));
    float *v = must(tt_alloc(N, sizeof(float), &err));
    for (int64_t step = 0; step < GOLDEN_STEPS; step++) {
        fixture_zero_gradient(&f);
        fill_batch(&f, step);
        tt_loss loss = {0};
        for (int64_t first = 0; first < GOLDEN_B; first += B) {
            fixture_train(&f, first, B, &loss);
        }
        double count = (double)loss.count;
        double norm = sqrt(squares_of(&f.ctx, f.gradient, N)) / count;
        ck_assert_double_eq_tol(sum_of(&loss) / count / g->loss[step], 1.0, 1e-6);
        ck_assert_double_eq_tol(norm / g->norm[step], 1.0, 1e-5);
        if (step == 0 && g->gradient != NULL) {
            compare(&f, "gradient", f.gradient, 1.0 / count, g->gradient, 1e-5);
        }
        double scale = tt_clip_factor(norm, GOLDEN_CLIP) / count;
        for (int i = 0; i < f.params.count; i++) {
            const tt_param *param = &f.params.param[i];
            tt_adamw constants = tt_adamw_step(&config, GOLDEN_LR, step + 1, param->decay, scale);
            int64_t at = param->offset;
            f.ops.adamw(&f.ctx, FULL(f.master + at), m + at, v + at, (float *)f.weights + at,
                        GRAD(f.gradient + at), param->count, &constants);
        }
        tt_model_pack(f.model);
    }
    tt_loss loss = {0};
    fill_batch(&f, GOLDEN_STEPS);
    tt_model_eval(f.model, f.token, f.target, GOLDEN_B, f.T, &loss, NULL);
    ck_assert_double_eq_tol(sum_of(&loss) / (double)loss.count / g->loss[GOLDEN_STEPS], 1.0, 1e-5);
    if (g->weights != NULL) {
        compare(&f, "weights", f.master, 1.0, g->weights, 1e-5);
    }
    free(v);
    free(m);
    fixture_close(&f);
}

START_TEST(tied_as_one_micro_batch)
{
    replay(&tied, "ref", GOLDEN_B);
}
END_TEST

START_TEST(tied_as_single_sequences)
{
    replay(&tied, "ref", 1);
}
END_TEST

START_TEST(tied_with_best_kernels)
{
    replay(&tied, "", 2);
}
END_TEST

START_TEST(untied_with_grouped_heads)
{
    replay(&untied, "ref", GOLDEN_B);
    replay(&untied, "", 1);
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("golden");
    TCase *tc = tcase_create("pytorch");
    tcase_add_test(tc, tied_as_one_micro_batch);
    tcase_add_test(tc, tied_as_single_sequences);
    tcase_add_test(tc, tied_with_best_kernels);
    tcase_add_test(tc, untied_with_grouped_heads);
    suite_add_tcase(suite, tc);
    return suite;
}

TT_TEST_MAIN(make_suite)
