/* test_layers.c: every application of every program against finite differences, in FP32.
 *
 * For an application with output y and a random R, phi(inputs) = sum(y * R); its gradient by
 * backward must give the derivative of phi along random directions of each input and parameter.
 * The head's phi is its loss. A slot that is GELU of another has no gradient of its own: as an output,
 * phi is of the other, and it must be GELU of it; as an input, the other is moved, and it follows.
 * Dropout is on. The derivative comes from two central differences, so
 * its truncation error is of order h^4; with h = 1/32 that and FP32 rounding stay below 2e-5 of the
 * gradient's norm; the bound is 1e-4. A wrong factor, index or missing term is far above. */
#include "model_fixture.h"

enum { DIRECTIONS = 3 };

/* One application under test, and the array that is being moved. */
typedef struct probe {
    fixture *f;
    const tt_apply *a;
    int stage;
    tt_pass pass;
    const float *R;   /* [M,width of out] */
    float *gradient;  /* [N] of the weights; the head adds to the fixture's in every forward */
    float *moved;     /* the array */
    float *kept;      /* its values */
    float *direction; /* as long */
    int64_t count;
} probe;

static double gelu(double x)
{
    return 0.5 * x * (1 + tanh(sqrt(2 / acos(-1.0)) * (x + 0.044715 * x * x * x)));
}

/* The slot whose gradient stands for this one's. */
static tt_slot before_gelu(tt_slot slot)
{
    tt_slot source = slot < TT_SLOTS ? tt_slots[slot].gelu_of : TT_NO_SLOT;
    return source != TT_NO_SLOT ? source : slot;
}

static double run_forward(void *user)
{
    probe *p = user;
    tt_loss loss = {0};
    p->pass.loss = &loss;
    if (before_gelu(p->a->in) != p->a->in) {
        const float *from = tt_pass_slot(&p->pass, before_gelu(p->a->in), p->stage);
        float *in = tt_pass_slot(&p->pass, p->a->in, p->stage);
        for (int64_t i = 0; i < p->pass.M * tt_slot_width(&p->f->shape, p->a->in); i++) {
            in[i] = (float)gelu(from[i]);
        }
    }
    tt_model_pack(p->f->model);
    tt_layers[p->a->layer].forward(&p->pass, p->a, p->stage);
    if (p->a->out == TT_NO_SLOT) {
        return sum_of(&loss);
    }
    const float *y = tt_pass_slot(&p->pass, before_gelu(p->a->out), p->stage);
    int64_t n = p->pass.M * tt_slot_width(&p->f->shape, p->a->out);
    if (before_gelu(p->a->out) != p->a->out) {
        const float *out = tt_pass_slot(&p->pass, p->a->out, p->stage);
        for (int64_t i = 0; i < n; i++) {
            ck_assert(fabs(out[i] - gelu(y[i])) <= 2e-6 * fmax(1.0, fabs(y[i])));
        }
    }
    double phi = 0.0;
    for (int64_t i = 0; i < n; i++) {
        phi += (double)y[i] * p->R[i];
    }
    return phi;
}

static void move(void *user, double x)
{
    probe *p = user;
    for (int64_t i = 0; i < p->count; i++) {
        p->moved[i] = (float)(p->kept[i] + x * p->direction[i]);
    }
}

/* gradient[count] of phi with respect to the array must agree with differences. */
static void check_array(probe *p, const char *what, float *array, const float *gradient,
                        int64_t count)
{
    tt_err err = {0};
    p->moved = array;
    p->count = count;
    p->kept = must(tt_alloc(count, sizeof(float), &err));
    p->direction = must(tt_alloc(count, sizeof(float), &err));
    memcpy(p->kept, array, tt_bytes(count, sizeof(float)));
    for (int d = 0; d < DIRECTIONS; d++) {
        double expected = 0.0, norm = 0.0;
        for (int64_t i = 0; i < count; i++) {
            p->direction[i] = normal(900 + (uint64_t)d, i);
            expected += (double)gradient[i] * p->direction[i];
            norm += (double)gradient[i] * gradient[i];
        }
        double found = slope(move, run_forward, p, 1.0 / 32);
        ck_assert_msg(norm > 0.0 && fabs(found - expected) <= 1e-4 * sqrt(norm),
                      "%s of %s (stage %d): differences %.7g, backward %.7g, norm %.7g", what,
                      tt_layers[p->a->layer].name, p->stage, found, expected, sqrt(norm));
    }
    free(p->direction);
    free(p->kept);
}

static void check_weight(probe *p, tt_role role)
{
    const tt_param *param = role == TT_ROLES ? NULL : tt_params_role(&p->f->params, role, p->stage);
    if (param != NULL) {
        float *weights = p->f->weights;
        check_array(p, param->name, weights + param->offset, p->gradient + param->offset,
                    param->count);
    }
}

/* A copy of a slot's gradient, owned by the caller. */
static float *gradient_copy(const probe *p, tt_slot slot)
{
    tt_err err = {0};
    int64_t n = p->pass.M * tt_slot_width(&p->f->shape, slot);
    float *copy = must(tt_alloc(n, sizeof(float), &err));
    memcpy(copy, tt_pass_gradient(&p->pass, slot), tt_bytes(n, sizeof(float)));
    return copy;
}

static void check_slot(probe *p, tt_slot slot, const float *gradient)
{
    check_array(p, tt_slots[slot].name, tt_pass_slot(&p->pass, slot, p->stage), gradient,
                p->pass.M * tt_slot_width(&p->f->shape, slot));
}

static void check_application(fixture *f, const tt_apply *a, int stage)
{
    tt_err err = {0};
    tt_loss loss = {0};
    probe p = {.f = f, .a = a, .stage = stage};
    p.pass = tt_pass_make(f->model, f->token, f->B, f->T);
    tt_pass_train(&p.pass, f->target, f->sample, 7, 3, 1.0f, &loss);
    for (int slot = 0; stage > 0 && slot < TT_SLOTS; slot++) { /* the stem writes the next X only */
        if (stage > f->shape.L && slot != TT_X && slot != TT_NF) {
            continue; /* the crown has no other */
        }
        float *x = tt_pass_slot(&p.pass, slot, stage);
        for (int64_t i = 0; i < p.pass.M * tt_slot_width(&f->shape, slot); i++) {
            x[i] = normal(100 + (uint64_t)slot, i);
        }
    }
    float *R = NULL;
    fixture_zero_gradient(f);
    memset(tt_pass_gradient(&p.pass, TT_X), 0, tt_bytes(p.pass.M * f->shape.C, sizeof(float)));
    if (a->out != TT_NO_SLOT) {
        int64_t n = p.pass.M * tt_slot_width(&f->shape, a->out);
        R = must(tt_alloc(n, sizeof(float), &err));
        for (int64_t i = 0; i < n; i++) {
            R[i] = normal(200, i);
        }
        memcpy(tt_pass_gradient(&p.pass, before_gelu(a->out)), R, tt_bytes(n, sizeof(float)));
        p.R = R;
    }
    run_forward(&p);
    if (tt_layers[a->layer].backward != NULL) {
        tt_layers[a->layer].backward(&p.pass, a, stage);
    }
    const tt_slot in = before_gelu(a->in);
    float *din = in != TT_NO_SLOT ? gradient_copy(&p, in) : NULL;
    float *dadd = a->add != TT_NO_SLOT ? gradient_copy(&p, a->add) : NULL;

    p.gradient = must(tt_alloc(f->params.total, sizeof(float), &err));
    memcpy(p.gradient, f->gradient, tt_bytes(f->params.total, sizeof(float)));
    check_weight(&p, a->weight);
    check_weight(&p, a->bias);
    if (din != NULL) {
        check_slot(&p, in, din);
    }
    if (dadd != NULL) {
        check_slot(&p, a->add, dadd);
    }
    free(p.gradient);
    free(dadd);
    free(din);
    free(R);
}

static void check_programs(const char *isa, double dropout)
{
    tt_shape shape = odd_shape;
    shape.dropout = dropout;
    fixture f;
    fixture_open(&f, &shape, TT_FP32, isa, 3, 7, true);
    bool seen[TT_LAYERS] = {false};
    const int stages[] = {0, 1, 3}; /* stem, a block, crown */
    for (int s = 0; s < 3; s++) {
        const tt_program *program = tt_stage_program(shape.L, stages[s]);
        for (int i = 0; i < program->length; i++) {
            seen[program->apply[i].layer] = true;
            check_application(&f, &program->apply[i], stages[s]);
        }
    }
    for (int layer = 0; layer < TT_LAYERS; layer++) {
        ck_assert_msg(seen[layer], "no program has a %s", tt_layers[layer].name);
    }
    fixture_close(&f);
}

START_TEST(gradients_of_reference)
{
    check_programs("ref", 0.25);
}
END_TEST

START_TEST(gradients_of_best)
{
    check_programs("", 0.25);
}
END_TEST

START_TEST(gradients_under_guard)
{
    check_programs("guard", 0.25);
    check_programs("guard", 0.0); /* buffers are shared in other ways */
}
END_TEST

/* Which of the ones that application `a` drops: 0 or scale per element of its [M,C] output. Its weight
 * is zeroed and its bias set to one, so its branch is one everywhere. */
static void drop_ones(fixture *f, const tt_apply *a, int stage, float *out)
{
    tt_loss loss = {0};
    tt_pass pass = tt_pass_make(f->model, f->token, f->B, f->T);
    tt_pass_train(&pass, f->target, f->sample, 7, 3, 1.0f, &loss);
    int64_t n = pass.M * f->shape.C;
    float *weights = f->weights;
    const tt_param *weight = tt_params_role(&f->params, a->weight, stage);
    const tt_param *bias = tt_params_role(&f->params, a->bias, stage);
    memset(weights + weight->offset, 0, tt_bytes(weight->count, sizeof *weights));
    for (int64_t i = 0; i < bias->count; i++) {
        weights[bias->offset + i] = 1.0f;
    }
    tt_model_pack(f->model);
    memset(tt_pass_slot(&pass, a->in, stage), 0,
           tt_bytes(pass.M * tt_slot_width(&f->shape, a->in), sizeof *weights));
    memset(tt_pass_slot(&pass, a->add, stage), 0, tt_bytes(n, sizeof *weights));
    tt_layers[a->layer].forward(&pass, a, stage);
    memcpy(out, tt_pass_slot(&pass, a->out, stage), tt_bytes(n, sizeof *out));
}

/* Both residuals of both blocks: about a quarter is dropped, and no two masks, nor the masks of two
 * sequences, agree by more than chance (0.75^2 + 0.25^2 = 0.625). */
START_TEST(masks_differ_by_layer_place_and_sample)
{
    enum { B = 3, T = 11, N = B * T * 16, SITES = 4 };
    static float mask[SITES][N];
    fixture f;
    fixture_open(&f, &odd_shape, TT_FP32, "ref", B, T, true);
    int sites = 0;
    for (int stage = 1; stage <= 2; stage++) {
        const tt_program *program = tt_stage_program(f.shape.L, stage);
        for (int i = 0; i < program->length; i++) {
            if (program->apply[i].layer == TT_LINEAR_RESIDUAL) {
                ck_assert_int_lt(sites, SITES);
                drop_ones(&f, &program->apply[i], stage, mask[sites++]);
            }
        }
    }
    ck_assert_int_eq(sites, SITES);
    for (int a = 0; a < SITES; a++) {
        int dropped = 0, same_sequence = 0;
        for (int i = 0; i < N; i++) {
            ck_assert(mask[a][i] == 0.0f || mask[a][i] == (float)(1.0 / 0.75));
            dropped += mask[a][i] == 0.0f;
            same_sequence += mask[a][i % (N / B)] == mask[a][N / B + i % (N / B)];
        }
        ck_assert_double_eq_tol((double)dropped / N, 0.25, 0.08);
        ck_assert_double_eq_tol((double)same_sequence / N, 0.625, 0.15);
        for (int b = 0; b < a; b++) {
            int same = 0;
            for (int i = 0; i < N; i++) {
                same += mask[a][i] == mask[b][i];
            }
            ck_assert_double_eq_tol((double)same / N, 0.625, 0.1);
        }
    }
    fixture_close(&f);
}
END_TEST

/* No backward writes over what it or a later one still reads. */
START_TEST(gradients_do_not_overlap)
{
    for (int stage = 0; stage < 3; stage++) {
        const tt_program *program = tt_stage_program(1, stage);
        for (int i = 0; i < program->length; i++) {
            const tt_apply *a = &program->apply[i];
            if (a->in >= TT_SLOTS || a->out == TT_NO_SLOT) {
                continue;
            }
            tt_buffer in = tt_slots[before_gelu(a->in)].gradient;
            tt_buffer out = tt_slots[a->out == TT_NEXT ? TT_X : before_gelu(a->out)].gradient;
            ck_assert_msg(in != out, "%s", tt_layers[a->layer].name);
            if (a->layer == TT_LINEAR_RESIDUAL) { /* the stream stays, the branch is NARROW */
                ck_assert(tt_slots[a->add].gradient == TT_BUF_STREAM && out == TT_BUF_STREAM);
                ck_assert(in != TT_BUF_NARROW);
            }
        }
    }
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("layers");
    TCase *tc = tcase_create("differences");
    tcase_set_timeout(tc, 120);
    tcase_add_test(tc, gradients_of_reference);
    tcase_add_test(tc, gradients_of_best);
    tcase_add_test(tc, gradients_under_guard);
    tcase_add_test(tc, masks_differ_by_layer_place_and_sample);
    tcase_add_test(tc, gradients_do_not_overlap);
    suite_add_tcase(suite, tc);
    return suite;
}

TT_TEST_MAIN(make_suite)
