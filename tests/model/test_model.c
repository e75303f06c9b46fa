/* test_model.c: the whole model: gradients, independence from the split, memory, generation. */
#include <malloc.h>

#include "dies.h"
#include "model_fixture.h"

/* ---- finite differences through everything ---- */

typedef struct probe {
    fixture *f;
    const tt_param *param;
    float *kept;      /* [count] */
    float *direction; /* [count] */
} probe;

static void move(void *user, double x)
{
    probe *p = user;
    float *moved = (float *)p->f->weights + p->param->offset;
    for (int64_t i = 0; i < p->param->count; i++) {
        moved[i] = (float)(p->kept[i] + x * p->direction[i]);
    }
    tt_model_pack(p->f->model);
}

static double loss_sum(void *user)
{
    probe *p = user;
    tt_loss loss = {0};
    fixture_train(p->f, 0, p->f->B, &loss);
    return sum_of(&loss);
}

/* Truncation is of order h^4 and grows with depth; at h = 1/128 it and rounding are below 1e-3 of
 * the tensor's gradient norm, or of 1e-2 of the whole one where a tensor's own is tiny. */
static void check_differences(const tt_shape *shape, const char *isa)
{
    tt_err err = {0};
    fixture f;
    fixture_open(&f, shape, TT_FP32, isa, 3, 7, true);
    int64_t N = f.params.total;
    tt_loss loss = {0};
    fixture_train(&f, 0, f.B, &loss);
    ck_assert_int_eq(loss.count, 14);
    float *gradient = must(tt_alloc(N, sizeof(float), &err));
    float *kept = must(tt_alloc(N, sizeof(float), &err));
    float *direction = must(tt_alloc(N, sizeof(float), &err));
    memcpy(gradient, f.gradient, tt_bytes(N, sizeof(float)));
    double whole = sqrt(squares_of(&f.ctx, gradient, N));
    memcpy(kept, f.weights, tt_bytes(N, sizeof(float)));
    for (int64_t i = 0; i < N; i++) {
        direction[i] = normal(77, i);
    }
    for (int i = 0; i < f.params.count; i++) {
        const tt_param *param = &f.params.param[i];
        probe p = {&f, param, kept + param->offset, direction + param->offset};
        double expected = 0.0;
        for (int64_t e = 0; e < param->count; e++) {
            expected += (double)gradient[param->offset + e] * p.direction[e];
        }
        double norm = sqrt(squares_of(&f.ctx, gradient + param->offset, param->count));
        double found = slope(move, loss_sum, &p, 1.0 / 128);
        double bound = 1e-3 * fmax(norm, 1e-2 * whole);
        ck_assert_msg(norm > 0.0, "%s has no gradient", param->name);
        ck_assert_msg(fabs(found - expected) <= bound,
                      "%s: differences %.7g, backward %.7g, norm %.7g", param->name, found,
                      expected, norm);
    }
    free(direction);
    free(kept);
    free(gradient);
    fixture_close(&f);
}

START_TEST(gradient_untied_with_dropout)
{
    check_differences(&odd_shape, "ref");
}
END_TEST

START_TEST(gradient_tied_without_dropout)
{
    tt_shape shape = odd_shape;
    shape.tied = true;
    shape.dropout = 0.0;
    check_differences(&shape, "");
}
END_TEST

START_TEST(padding_gets_no_gradient)
{
    fixture f;
    fixture_open(&f, &odd_shape, TT_FP32, "ref", 3, 7, true);
    tt_loss loss = {0};
    fixture_train(&f, 0, 3, &loss);
    const tt_param *head = tt_params_find(&f.params, "head.weight");
    for (int64_t i = f.shape.vocab_used * f.shape.C; i < head->count; i++) {
        ck_assert(f.gradient[head->offset + i] == 0.0f);
    }
    bool *inside = must(calloc(tt_size(f.params.total), sizeof(bool)));
    for (int i = 0; i < f.params.count; i++) {
        memset(inside + f.params.param[i].offset, 1, tt_size(f.params.param[i].count));
    }
    for (int64_t i = 0; i < f.params.total; i++) {
        ck_assert(inside[i] || f.gradient[i] == 0.0f);
    }
    free(inside);
    fixture_close(&f);
}
END_TEST

/* ---- layout never changes what is learned ---- */

/* The gradient and loss of the fixture's sequences, `B` at a time. */
static void accumulate(fixture *f, int64_t B, float *gradient, tt_loss *loss)
{
    fixture_zero_gradient(f);
    *loss = (tt_loss){0};
    for (int64_t first = 0; first < f->B; first += B) {
        fixture_train(f, first, B, loss);
    }
    memcpy(gradient, f->gradient, tt_bytes(f->params.total, sizeof(float)));
}

/* Sequences with 0, 1, some and all targets, as one micro-batch of 4, as 2 of 2 and as 4 of 1.
 * Every table adds leaf by leaf in the same order, so the bits are the same. */
static void check_split(tt_format format, const char *isa)
{
    tt_err err = {0};
    fixture f;
    fixture_open(&f, &odd_shape, format, isa, 4, 7, true);
    for (int64_t i = 0; i < 4 * 7; i++) {
        bool masked = i / 7 == 0 || (i / 7 == 1 && i % 7 != 4) || (i / 7 == 2 && i % 2 == 0);
        f.target[i] = masked ? -1 : tt_int((i * 5 + 2) % f.shape.vocab_used);
    }
    int64_t N = f.params.total;
    float *one = must(tt_alloc(N, sizeof(float), &err));
    float *many = must(tt_alloc(N, sizeof(float), &err));
    tt_loss loss_one, loss_many;
    accumulate(&f, 4, one, &loss_one);
    ck_assert_int_eq(loss_one.count, 0 + 1 + 3 + 7);
    for (int64_t B = 1; B <= 2; B++) {
        accumulate(&f, B, many, &loss_many);
        ck_assert_int_eq(loss_many.count, loss_one.count);
        ck_assert(sum_of(&loss_many) == sum_of(&loss_one));
        ck_assert_mem_eq(one, many, tt_bytes(N, sizeof(float)));
    }
    free(many);
    free(one);
    fixture_close(&f);
}

static const tt_format formats[] = {TT_FP32, TT_TF32, TT_BF16, TT_FP16};
enum { FORMATS = sizeof formats / sizeof formats[0] };

START_TEST(split_of_the_reference)
{
    check_split(formats[_i], "ref");
}
END_TEST

START_TEST(split_of_the_best)
{
    check_split(formats[_i], "");
}
END_TEST

START_TEST(masked_micro_batch_changes_nothing)
{
    fixture f;
    fixture_open(&f, &odd_shape, TT_BF16, "guard", 2, 7, true);
    for (int64_t i = 0; i < 2 * 7; i++) {
        f.target[i] = -1;
    }
    tt_loss loss = {.count = 3};
    tt_exact_add(&loss.sum, 1.5);
    fixture_train(&f, 0, 2, &loss);
    ck_assert(sum_of(&loss) == 1.5 && loss.count == 3);
    for (int64_t i = 0; i < f.params.total; i++) {
        ck_assert(f.gradient[i] == 0.0f);
    }
    fixture_close(&f);
}
END_TEST

/* K equal micro-batches: K g / (K n) = g / n. Adding the same number K times in FP32 is off by at
 * most K / 2 half-epsilons of the sum. */
START_TEST(many_identical_micro_batches)
{
    enum { K = 512 };
    tt_err err = {0};
    tt_shape shape = odd_shape;
    shape.L = 1;
    fixture f;
    fixture_open(&f, &shape, TT_BF16, "ref", 1, 4, true);
    int64_t N = f.params.total;
    float *one = must(tt_alloc(N, sizeof(float), &err));
    tt_loss loss_one = {0}, loss = {0};
    fixture_train(&f, 0, 1, &loss_one);
    memcpy(one, f.gradient, tt_bytes(N, sizeof(float)));
    fixture_zero_gradient(&f);
    for (int k = 0; k < K; k++) {
        fixture_train(&f, 0, 1, &loss);
    }
    ck_assert_int_eq(loss.count, K * loss_one.count);
    ck_assert_double_eq_tol(sum_of(&loss) / (K * sum_of(&loss_one)), 1.0, 1e-13);
    for (int64_t i = 0; i < N; i++) {
        f.gradient[i] /= (float)loss.count;
        one[i] /= (float)loss_one.count;
        ck_assert(fabsf(f.gradient[i] - one[i]) <=
                  (float)(K * tt_formats[TT_FP32].epsilon / 4) * fabsf(one[i]));
    }
    ck_assert(distance(f.gradient, one, N) > 0.0 || loss.count == 0);
    free(one);
    fixture_close(&f);
}
END_TEST

START_TEST(scale_scales)
{
    tt_err err = {0};
    fixture f;
    fixture_open(&f, &odd_shape, TT_BF16, "", 2, 7, true);
    int64_t N = f.params.total;
    float *one = must(tt_alloc(N, sizeof(float), &err));
    tt_loss loss = {0}, scaled = {0};
    fixture_train(&f, 0, 2, &loss);
    memcpy(one, f.gradient, tt_bytes(N, sizeof(float)));
    fixture_zero_gradient(&f);
    tt_model_train(f.model, f.token, f.target, f.sample, 2, 7, 7, 3, 1024.0f, &scaled, NULL);
    ck_assert(sum_of(&loss) == sum_of(&scaled) && loss.count == scaled.count);
    for (int64_t i = 0; i < N; i++) { /* a power of two: exact */
        ck_assert(f.gradient[i] == 1024.0f * one[i]);
    }
    free(one);
    fixture_close(&f);
}
END_TEST

START_TEST(threads_do_not_matter)
{
    tt_err err = {0};
    for (int format = 0; format < 2; format++) {
        fixture f;
        fixture_open(&f, &odd_shape, format == 0 ? TT_FP32 : TT_BF16, "", 3, 7, true);
        int64_t N = f.params.total;
        float *one = must(tt_alloc(N, sizeof(float), &err));
        float *many = must(tt_alloc(N, sizeof(float), &err));
        tt_loss loss_one, loss_many;
        accumulate(&f, 3, one, &loss_one);
        for (f.ctx.threads = 2; f.ctx.threads <= FIXTURE_THREADS; f.ctx.threads++) {
            accumulate(&f, 3, many, &loss_many);
            ck_assert(sum_of(&loss_one) == sum_of(&loss_many));
            ck_assert_mem_eq(one, many, tt_bytes(N, sizeof(float)));
        }
        free(many);
        free(one);
        fixture_close(&f);
    }
}
END_TEST

START_TEST(dropout_is_a_function_of_seed_step_and_sample)
{
    fixture f;
    fixture_open(&f, &odd_shape, TT_FP32, "ref", 1, 7, true);
    const uint64_t seeds[] = {7, 7, 8, 7, 7};
    const int64_t steps[] = {3, 3, 3, 4, 3};
    const int64_t samples[] = {5, 5, 5, 5, 6};
    double sums[5];
    for (int i = 0; i < 5; i++) {
        tt_loss loss = {0};
        tt_model_train(f.model, f.token, f.target, &samples[i], 1, 7, seeds[i], steps[i], 1.0f,
                       &loss, NULL);
        sums[i] = sum_of(&loss);
    }
    ck_assert(sums[1] == sums[0]);
    for (int i = 2; i < 5; i++) {
        ck_assert(sums[i] != sums[0]);
    }
    fixture_close(&f);
}
END_TEST

/* ---- BF16 against FP32 ---- */

/* Weights and every activation are rounded to BF16 or FP16, or to TF32 where they enter a product:
 * relative errors of half an epsilon each, random in sign. Over the two blocks they add up to about an
 * epsilon of the loss; gradients pass through both directions and stay within eight. */
START_TEST(other_formats_are_near_fp32)
{
    const tt_format format = formats[1 + _i];
    fixture single, half;
    tt_shape shape = odd_shape;
    shape.dropout = 0.0;
    fixture_open(&single, &shape, TT_FP32, "ref", 4, 11, true);
    fixture_open(&half, &shape, format, "ref", 4, 11, true);
    tt_loss loss_single = {0}, loss_half = {0};
    fixture_train(&single, 0, 4, &loss_single);
    fixture_train(&half, 0, 4, &loss_half);
    double epsilon = tt_formats[format].epsilon;
    ck_assert_int_eq(loss_half.count, loss_single.count);
    ck_assert(sum_of(&loss_half) != sum_of(&loss_single));
    ck_assert_double_lt(fabs(sum_of(&loss_half) / sum_of(&loss_single) - 1.0), epsilon);
    ck_assert_double_lt(distance(half.gradient, single.gradient, single.params.total),
                        8.0 * epsilon);
    fixture_close(&half);
    fixture_close(&single);
}
END_TEST

/* ---- evaluation and generation ---- */

START_TEST(evaluation_equals_training_without_dropout)
{
    tt_shape shape = odd_shape;
    shape.dropout = 0.0;
    fixture train, eval;
    fixture_open(&train, &shape, TT_BF16, "", 3, 7, true);
    shape.dropout = 0.5; /* evaluation drops nothing */
    fixture_open(&eval, &shape, TT_BF16, "guard", 3, 7, false);
    tt_loss loss_train = {0}, loss_eval = {0}, loss_both = {0};
    fixture_train(&train, 0, 3, &loss_train);
    tt_model_eval(eval.model, eval.token, eval.target, 3, 7, &loss_eval, NULL);
    tt_model_eval(train.model, eval.token, eval.target, 3, 7, &loss_both, NULL);
    ck_assert(sum_of(&loss_eval) == sum_of(&loss_train) && loss_eval.count == loss_train.count);
    ck_assert(sum_of(&loss_both) == sum_of(&loss_train));
    fixture_close(&eval);
    fixture_close(&train);
}
END_TEST

START_TEST(smaller_batches_fit)
{
    fixture f;
    fixture_open(&f, &odd_shape, TT_FP32, "ref", 3, 7, true);
    tt_loss whole = {0}, parts = {0};
    tt_model_eval(f.model, f.token, f.target, 3, 7, &whole, NULL);
    for (int64_t b = 0; b < 3; b++) {
        tt_model_eval(f.model, f.token + 7 * b, f.target + 7 * b, 1, 7, &parts, NULL);
    }
    ck_assert_int_eq(parts.count, whole.count);
    ck_assert_double_eq_tol(sum_of(&parts) / sum_of(&whole), 1.0, 1e-14);

    /* Causal: a prefix has the loss of its targets whatever follows. */
    for (int64_t n = 1; n <= 7; n++) {
        tt_loss prefix = {0}, masked = {0};
        int32_t target[7];
        for (int64_t t = 0; t < 7; t++) {
            target[t] = t < n ? 3 : -1;
        }
        tt_model_eval(f.model, f.token, target, 1, n, &prefix, NULL);
        tt_model_eval(f.model, f.token, target, 1, 7, &masked, NULL);
        ck_assert_int_eq(prefix.count, n);
        ck_assert_double_eq_tol(sum_of(&prefix) / sum_of(&masked), 1.0, 1e-6);
    }
    fixture_close(&f);
}
END_TEST

static void check_next(tt_format format, const char *isa, double tolerance)
{
    fixture f;
    fixture_open(&f, &odd_shape, format, isa, 1, 7, false);
    float logits[29]; /* V; 23 of them are of ids that exist */
    for (int64_t n = 1; n <= 7; n++) {
        tt_model_next(f.model, f.token, n, logits);
        double sum = 0.0;
        for (int i = 0; i < 23; i++) {
            sum += exp((double)logits[i]);
        }
        for (int wanted = 0; wanted < 23; wanted += 11) {
            int32_t target[7] = {-1, -1, -1, -1, -1, -1, -1};
            target[n - 1] = wanted;
            tt_loss loss = {0};
            tt_model_eval(f.model, f.token, target, 1, n, &loss, NULL);
            ck_assert_double_eq_tol(log(sum) - logits[wanted], sum_of(&loss), tolerance);
        }
    }
    fixture_close(&f);
}

START_TEST(next_agrees_with_the_loss)
{
    check_next(TT_FP32, "ref", 1e-5);
    check_next(TT_FP32, "", 1e-5);
    check_next(TT_BF16, "guard", 1e-4); /* the logits are FP32 in both, of the same BF16 inputs */
}
END_TEST

/* ---- stages, memory, FLOPs ---- */

typedef struct watch {
    fixture *f;
    int next;         /* the stage that must come now */
    float *when_told; /* [N] gradient of each stage when it was reported */
} watch;

static void told(void *user, int stage)
{
    watch *w = user;
    ck_assert_int_eq(stage, w->next);
    w->next--;
    const tt_params *params = &w->f->params;
    int64_t first = stage == 0 ? 0 : params->stage_end[stage - 1];
    memcpy(w->when_told + first, w->f->gradient + first,
           tt_bytes(params->stage_end[stage] - first, sizeof(float)));
}

START_TEST(stages_are_final_when_told)
{
    tt_err err = {0};
    for (int tied = 0; tied < 2; tied++) {
        tt_shape shape = odd_shape;
        shape.tied = tied;
        fixture f;
        fixture_open(&f, &shape, TT_BF16, "guard", 2, 7, true);
        watch w = {.f = &f, .next = f.params.stages - 1};
        w.when_told = must(tt_alloc(f.params.total, sizeof(float), &err));
        tt_loss loss = {0};
        tt_model_train(f.model, f.token, f.target, f.sample, 2, 7, 7, 3, 1.0f, &loss,
                       &(tt_hooks){.grad_ready = told, .user = &w});
        ck_assert_int_eq(w.next, -1);
        ck_assert_mem_eq(w.when_told, f.gradient, tt_bytes(f.params.total, sizeof(float)));
        free(w.when_told);
        fixture_close(&f);
    }
}
END_TEST

START_TEST(activation_bytes_are_what_open_takes)
{
    tt_err err = {0};
    for (int backward = 0; backward < 2; backward++) {
        fixture f;
        fixture_open(&f, &odd_shape, TT_BF16, "ref", 3, 7, backward != 0);
        size_t planned =
            tt_model_activation_bytes(&odd_shape, 3, 7, 2, backward != 0, NULL, NULL, NULL);
        tt_arena arena;
        ck_assert_int_eq(tt_arena_open(&arena, "test", planned, &err), TT_OK);
        tt_model *model = NULL;
        ck_assert_int_eq(tt_model_open(&model, &odd_shape, &f.params, &f.ctx, f.weights,
                                       backward ? GRAD(f.gradient) : NULL, NULL, NULL, NULL, NULL,
                                       3, 7, &arena, NULL, &err),
                         TT_OK);
        ck_assert_uint_eq(arena.used, planned);
        const size_t page = (size_t)sysconf(_SC_PAGESIZE); /* and it is all in memory */
        ck_assert_uint_gt(planned, 2 * page);
        ck_assert_uint_ge(tt_arena_resident(&arena) + page, planned);
        tt_model_close(model);
        tt_arena_close(&arena);
        fixture_close(&f);
    }
}
END_TEST

#ifdef __SANITIZE_ADDRESS__
/* Between two copies of a slot, and behind the last, nobody may write. */
START_TEST(gaps_of_the_layout_are_red)
{
    fixture f;
    fixture_open(&f, &odd_shape, TT_BF16, "", 3, 7, true);
    const tt_layout *layout = &f.model->layout;
    const tt_span *const spans[] = {&layout->slot[TT_X], &layout->slot[TT_FC],
                                    &layout->stats[TT_N1], &layout->gradient[TT_BUF_WIDE]};
    for (int i = 0; i < 4; i++) {
        const tt_span *s = spans[i];
        ck_assert_uint_ge(s->bytes, s->used + TT_REDZONE);
        for (int64_t copy = 0; copy < s->copies; copy++) {
            unsigned char *at = f.model->memory + s->first + tt_bytes(copy, s->bytes);
            ck_assert(!tt_dies_writing(at + s->used - 1));
            ck_assert(tt_dies_writing(at + s->used));
            ck_assert(tt_dies_writing(at + s->bytes - 1));
        }
    }
    fixture_close(&f);
}
END_TEST
#endif

/* By hand, in C-wide rows of M = 64 (so that nothing is rounded up): saved per block are x, norm_1,
 * qkv (3), attention, x_mid, norm_2, fc (4), gelu (4); once norm_f and the last x; the gradient buffers
 * are three narrow and one of 4 C. Statistics: 2 M per norm, H M per block. */
START_TEST(activation_bytes_by_hand)
{
    tt_shape shape = {
        .L = 5, .H = 2, .G = 2, .D = 16, .C = 32, .F = 128, .T = 32, .V = 11, .vocab_used = 11};
    size_t row = 64 * 32 * 2, stat = 64 * sizeof(float);
    ck_assert_uint_eq(tt_model_activation_bytes(&shape, 2, 32, 2, true, NULL, NULL, NULL),
                      (5 * 16 + 2 + 7) * row + (5 * (2 + 2 + 2) + 2) * stat +
                          (5 * 8 + 2 + 4 + 5 * 3 + 1 + 1) * TT_REDZONE);
    /* Without backward one block's memory serves all: x is dead when the next x is written. */
    ck_assert_uint_eq(tt_model_activation_bytes(&shape, 2, 32, 2, false, NULL, NULL, NULL),
                      (16 + 1) * row + (2 + 2 + 2 + 2) * stat + (9 + 4 + 1) * TT_REDZONE);
}
END_TEST

START_TEST(nothing_is_allocated_after_open)
{
    fixture f;
    fixture_open(&f, &odd_shape, TT_BF16, "", 3, 7, true);
    f.ctx.threads = 2;
    tt_loss loss = {0};
    float logits[29];
    struct mallinfo2 before = {0};
    for (int round = 0; round < 3; round++) {
        tt_model_pack(f.model);
        fixture_train(&f, 0, 3, &loss);
        tt_model_eval(f.model, f.token, f.target, 2, 5, &loss, NULL);
        tt_model_next(f.model, f.token, 4, logits);
        if (round == 0) { /* the first round starts the threads */
            before = mallinfo2();
        }
    }
    struct mallinfo2 after = mallinfo2();
    ck_assert_uint_eq(after.uordblks, before.uordblks);
    ck_assert_uint_eq(after.hblkhd, before.hblkhd);
    fixture_close(&f);
}
END_TEST

START_TEST(flops_of_gpt2)
{
    tt_err err = {0};
    tt_shape gpt2 = {.L = 12,
                     .H = 12,
                     .G = 12,
                     .D = 64,
                     .C = 768,
                     .F = 3072,
                     .T = 1024,
                     .V = 50257,
                     .vocab_used = 50257,
                     .tied = true};
    double matmul = 50257.0 * 768 + 12.0 * 12 * 768 * 768;
    for (int tied = 0; tied < 2; tied++) {
        gpt2.tied = tied;
        tt_params params;
        ck_assert_int_eq(tt_params_make(&params, &gpt2, &err), TT_OK);
        ck_assert_double_eq_tol(tt_model_flops_per_token(&gpt2, &params),
                                6.0 * matmul + 6.0 * 12 * 768 * 1024, 1.0);
        tt_params_free(&params);
    }
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("model");
    TCase *gradients = tcase_create("gradients");
    tcase_set_timeout(gradients, 120);
    tcase_add_test(gradients, gradient_untied_with_dropout);
    tcase_add_test(gradients, gradient_tied_without_dropout);
    tcase_add_test(gradients, padding_gets_no_gradient);
    suite_add_tcase(suite, gradients);
    TCase *layout = tcase_create("layout");
    tcase_set_timeout(layout, 120);
    tcase_add_loop_test(layout, split_of_the_reference, 0, FORMATS);
    tcase_add_loop_test(layout, split_of_the_best, 0, FORMATS);
    tcase_add_test(layout, masked_micro_batch_changes_nothing);
    tcase_add_test(layout, many_identical_micro_batches);
    tcase_add_test(layout, scale_scales);
    tcase_add_test(layout, threads_do_not_matter);
    tcase_add_test(layout, dropout_is_a_function_of_seed_step_and_sample);
    tcase_add_loop_test(layout, other_formats_are_near_fp32, 0, FORMATS - 1);
    suite_add_tcase(suite, layout);
    TCase *forward = tcase_create("forward");
    tcase_add_test(forward, evaluation_equals_training_without_dropout);
    tcase_add_test(forward, smaller_batches_fit);
    tcase_add_test(forward, next_agrees_with_the_loss);
    suite_add_tcase(suite, forward);
    TCase *plan = tcase_create("plan");
    tcase_add_test(plan, stages_are_final_when_told);
    tcase_add_test(plan, activation_bytes_are_what_open_takes);
    tcase_add_test(plan, activation_bytes_by_hand);
#ifdef __SANITIZE_ADDRESS__
    tcase_add_test(plan, gaps_of_the_layout_are_red);
#endif
    tcase_add_test(plan, nothing_is_allocated_after_open);
    tcase_add_test(plan, flops_of_gpt2);
    suite_add_tcase(suite, plan);
    return suite;
}

TT_TEST_MAIN(make_suite)
