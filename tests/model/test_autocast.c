/* test_autocast.c: the autocast table says what the model does, and the model does what it says. */
#include "model_fixture.h"
#include "tutti/kernels/wide.h"

#define ALL "[qkv, attention, proj, fc, down, head]"

static tt_autocast table(const char *compute, const char *ops, const char *backward)
{
    tt_config config;
    tt_err err = {0};
    tt_autocast a;
    tt_ops kernels = {.format = strcmp(compute, "fp32") == 0 ? TT_FP32 : TT_BF16};
    tt_config_preset(&config);
    snprintf(config.precision.compute, sizeof config.precision.compute, "%s", compute);
    snprintf(config.fp8.backward, sizeof config.fp8.backward, "%s", backward);
    ck_assert_int_eq(tt_config_set(&config, "test", "precision.fp32_ops", ops, &err), TT_OK);
    tt_autocast_make(&a, &config, &kernels, TT_MASTER_FP32);
    return a;
}

/* The words of the option are the rows, in the same order. */
START_TEST(test_names)
{
    tt_text words = {0};
    for (int row = 0; row < TT_ROWS; row++) {
        tt_text_add(&words, "%s%s", row > 0 ? "|" : "", tt_op_row_names[row]);
    }
    const tt_option *option = tt_options;
    while (strcmp(option->path, "precision.fp32_ops") != 0) {
        option++;
    }
    ck_assert_str_eq(words.data, option->choices);
    tt_text_free(&words);
}
END_TEST

/* Matmuls and attention are what moves; in FP32 nothing is left to move. */
START_TEST(test_up)
{
    const tt_op_row products[] = {TT_ROW_QKV, TT_ROW_ATTENTION, TT_ROW_PROJ,
                                  TT_ROW_FC,  TT_ROW_DOWN,      TT_ROW_HEAD};
    tt_autocast all = table("bf16", ALL, "bf16"), none = table("fp32", ALL, "bf16");
    tt_autocast fixed = table("bf16", "[embed, norm, softmax, gelu, loss, optimizer]", "bf16");
    uint32_t bits = 0;
    for (size_t i = 0; i < sizeof products / sizeof *products; i++) {
        bits |= 1u << products[i];
        tt_autocast one = table("fp8", tt_op_row_names[products[i]], "bf16");
        ck_assert_uint_eq(one.up, 1u << products[i]);
        ck_assert(tt_autocast_up(&one, products[i]) && !tt_autocast_e4m3(&one, products[i]));
        ck_assert(tt_autocast_e4m3(&one, products[(i + 1) % 5])); /* any but the head */
    }
    ck_assert_uint_eq(all.up, bits);
    ck_assert_uint_eq(none.up, 0);
    ck_assert_uint_eq(fixed.up, 0);
    ck_assert(!tt_autocast_up(NULL, TT_ROW_HEAD));
}
END_TEST

/* Every application of every program names a row, and each row that moves has its application. */
START_TEST(test_programs)
{
    const uint32_t moves = table("bf16", ALL, "bf16").up;
    uint32_t met = 0;
    for (int stage = 0; stage < 3; stage++) {
        const tt_program *program = tt_stage_program(1, stage);
        for (int i = 0; i < program->length; i++) {
            const tt_apply *a = &program->apply[i];
            const bool product = tt_layers[a->layer].matmul || a->layer == TT_ATTENTION;
            ck_assert_int_eq(product, (moves >> a->op & 1) != 0);
            ck_assert(!product || (met >> a->op & 1) == 0);
            met |= 1u << a->op;
        }
    }
    ck_assert_uint_eq(met, moves | 1u << TT_ROW_EMBED | 1u << TT_ROW_NORM);
}
END_TEST

static void check_row(const tt_autocast *a, tt_op_row row, const char *cells)
{
    const tt_autocast_cells c = tt_autocast_row(a, row);
    char line[200];
    snprintf(line, sizeof line, "%s %s %s %s | %s %s %s", c.reads, c.weights, c.computes, c.writes,
             c.kept, c.gradient_in, c.gradient_out);
    ck_assert_msg(strcmp(line, cells) == 0, "%s: %s, not %s", c.name, line, cells);
}

START_TEST(test_cells)
{
    const tt_autocast bf16 = table("bf16", "[]", "bf16"), up = table("bf16", ALL, "bf16");
    const tt_autocast fp32 = table("fp32", "[]", "bf16"), fp8 = table("fp8", "[fc]", "bf16");
    tt_autocast e5m2 = table("fp8", "[head]", "e5m2"), tf32 = table("fp32", "[]", "bf16");
    const char *e4m3 = tt_formats[TT_E4M3].name;
    char line[200];
    check_row(&bf16, TT_ROW_QKV, "bf16 bf16 fp32 bf16 | bf16 bf16 bf16");
    check_row(&up, TT_ROW_QKV, "bf16 fp32 fp32 bf16 | bf16 bf16 bf16");
    check_row(&bf16, TT_ROW_HEAD, "bf16 bf16 fp32 fp32 | bf16 bf16 bf16");
    check_row(&up, TT_ROW_HEAD, "bf16 fp32 fp32 fp32 | bf16 fp32 bf16");
    check_row(&bf16, TT_ROW_LOSS, "fp32 - fp32 - | - - bf16");
    check_row(&up, TT_ROW_LOSS, "fp32 - fp32 - | - - fp32");
    check_row(&bf16, TT_ROW_ATTENTION, "bf16 - fp32 bf16 | bf16 bf16 bf16");
    check_row(&bf16, TT_ROW_GELU, "bf16 - fp32 bf16 | bf16 fp32 bf16");
    for (tt_op_row row = TT_ROW_NORM; row < TT_ROW_LOSS; row++) { /* nothing else is there */
        const tt_autocast_cells c = tt_autocast_row(&fp32, row);
        ck_assert(strcmp(c.reads, "fp32") == 0 && strcmp(c.writes, "fp32") == 0);
    }
    snprintf(line, sizeof line, "%s %s fp32 bf16 | %s bf16 bf16", e4m3, e4m3, e4m3);
    check_row(&fp8, TT_ROW_DOWN, line);
    snprintf(line, sizeof line, "%s %s fp32 bf16 | %s %s bf16", e4m3, e4m3, e4m3,
             tt_formats[TT_E5M2].name);
    check_row(&e5m2, TT_ROW_DOWN, line);
    snprintf(line, sizeof line, "%s - fp32 bf16 | %s bf16 bf16", e4m3, e4m3);
    check_row(&e5m2, TT_ROW_ATTENTION, line);
    check_row(&fp8, TT_ROW_FC, "bf16 fp32 fp32 bf16 | bf16 bf16 bf16");
    check_row(&fp8, TT_ROW_HEAD, "bf16 bf16 fp32 fp32 | bf16 bf16 bf16");
    snprintf(line, sizeof line, "bf16 bf16 fp32 bf16 | %s bf16 bf16", e4m3);
    check_row(&fp8, TT_ROW_NORM, line);
    tf32.compute = TT_TF32;
    tf32.up = 1u << TT_ROW_FC;
    check_row(&tf32, TT_ROW_QKV, "tf32 tf32 fp32 fp32 | tf32 tf32 fp32");
    check_row(&tf32, TT_ROW_FC, "fp32 fp32 fp32 fp32 | fp32 fp32 fp32");
    check_row(&tf32, TT_ROW_HEAD, "tf32 tf32 fp32 fp32 | tf32 tf32 fp32");
    check_row(&tf32, TT_ROW_NORM, "fp32 fp32 fp32 fp32 | fp32 fp32 fp32");
}
END_TEST

/* What attention's kernels do with probabilities is theirs to say. */
START_TEST(test_probabilities)
{
    tt_autocast a = table("bf16", "[]", "bf16");
    ck_assert_ptr_nonnull(strstr(tt_autocast_row(&a, TT_ROW_ATTENTION).note, "in fp32"));
    a.probabilities = TT_BF16;
    ck_assert_ptr_nonnull(strstr(tt_autocast_row(&a, TT_ROW_ATTENTION).note, "in bf16"));
    a.up = 1u << TT_ROW_ATTENTION;
    ck_assert_ptr_nonnull(strstr(tt_autocast_row(&a, TT_ROW_ATTENTION).note, "in fp32"));
    a.exact = true;
    ck_assert_str_eq(tt_autocast_row(&a, TT_ROW_WEIGHT_GRADIENTS).writes, "fixed64");
    ck_assert_str_eq(tt_autocast_row(&a, TT_ROW_REDUCTION).computes, "fixed64");
}
END_TEST

START_TEST(test_text)
{
    static const char *const lines[] = {
        "Formats (precision.compute bf16)\n",
        "\n  qkv               bf16      bf16      fp32      bf16      bf16      bf16      bf16\n",
        "\n  fc              * bf16      fp32      fp32      bf16      bf16      bf16      bf16\n",
        "\n  head            * bf16      fp32      fp32      fp32      bf16      fp32      bf16\n",
        "\n  * moved up by precision.fp32_ops\n"};
    const tt_autocast a = table("bf16", "[fc, head]", "bf16"), plain = table("bf16", "[]", "bf16");
    tt_text text = {0};
    tt_autocast_text(&a, &text);
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        ck_assert_msg(strstr(text.data, lines[i]) != NULL, "%s\nin\n%s", lines[i], text.data);
    }
    tt_text_free(&text);
    tt_autocast_text(&plain, &text);
    ck_assert_ptr_null(strchr(text.data, '*'));
    tt_text_free(&text);
}
END_TEST

/* ---- a model with operations up ---- */

typedef struct raised {
    fixture *f; /* borrowed: parameters, masters, weights, gradient, inputs */
    tt_model *model;
    tt_wide_ops ops;
    tt_ctx ctx;
    tt_arena arena, packed;
    float *copies;
} raised;

static void raise(raised *r, fixture *f, const char *ops)
{
    tt_err err = {0};
    const tt_autocast a = table("bf16", ops, "bf16");
    const tt_extents extents = tt_model_extents(&f->shape, f->B, f->T, true);
    *r = (raised){.f = f};
    tt_model_place_wide(&f->params, &f->shape, &a);
    ck_assert_int_eq(tt_kernels_select_wide(&r->ops, TT_BF16, f->ops.isa, &err), TT_OK);
    const size_t scratch = tt_kernels_wide_workspace(&r->ops, &extents, 1);
    const size_t acts = tt_model_activation_bytes(&f->shape, f->B, f->T, 2, true, NULL, NULL, NULL);
    ck_assert_int_eq(tt_arena_open(&r->arena, "test", acts + tt_arena_cost(scratch), &err), TT_OK);
    const size_t packed = tt_model_packed_bytes(&f->shape, &f->params, &f->ops, NULL);
    ck_assert_int_eq(tt_arena_open(&r->packed, "packed", packed, &err), TT_OK);
    void *room = tt_arena_take(&r->arena, scratch);
    r->ctx = tt_kernels_wide_ctx(&r->ops, 1, room, scratch);
    r->copies = must(tt_alloc(f->params.wide, sizeof(float), &err));
    for (int i = 0; i < f->params.count; i++) {
        const tt_param *p = &f->params.param[i];
        ck_assert_int_eq(p->wide >= 0, p->up);
        if (p->wide >= 0) {
            ck_assert_int_eq(p->wide % 32, 0);
            memcpy(r->copies + p->wide, f->master + p->offset, tt_bytes(p->count, sizeof(float)));
        }
    }
    const tt_wide wide = {.autocast = a, .ctx = &r->ctx, .weights = r->copies};
    ck_assert_int_eq(tt_model_open(&r->model, &f->shape, &f->params, &f->ctx, f->weights,
                                   GRAD(f->gradient), NULL, NULL, &wide, NULL, f->B, f->T,
                                   &r->arena, &r->packed, &err),
                     TT_OK);
    ck_assert_uint_eq(r->packed.used, packed); /* no more than is read */
    tt_model_pack(r->model);
}

static void raised_close(raised *r)
{
    tt_model_close(r->model);
    free(r->copies);
    tt_arena_close(&r->arena);
    tt_arena_close(&r->packed);
}

/* Loss and gradient of both sequences. */
static double train(fixture *f, tt_model *model)
{
    tt_loss loss = {.count = 0};
    fixture_zero_gradient(f);
    tt_model_train(model, f->token, f->target, f->sample, f->B, f->T, 7, 3, 1.0f, &loss, NULL);
    return tt_loss_mean(&loss);
}

static void round_slot(float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        x[i] = tt_f32_of_bf16(tt_bf16_of_f32(x[i]));
    }
}

/* What the table promises of forward, by an FP32 model: matrices as they are, all other weights and
 * whatever a layer writes rounded to BF16. Untied, as the embedding is rounded and the head is not. */
static double promised(fixture *full)
{
    float *weights = full->weights;
    tt_loss loss = {.count = 0};
    tt_pass pass = tt_pass_make(full->model, full->token, full->B, full->T);
    pass.target = full->target;
    pass.loss = &loss;
    for (int i = 0; i < full->params.count; i++) {
        const tt_param *p = &full->params.param[i];
        if (p->dims == 1 || p->role == TT_WTE || p->role == TT_WPE) {
            round_slot(weights + p->offset, p->count);
        }
    }
    for (int stage = 0; stage < full->model->stages; stage++) {
        const tt_program *program = tt_stage_program(full->shape.L, stage);
        for (int i = 0; i < program->length; i++) {
            const tt_apply *a = &program->apply[i];
            tt_layers[a->layer].forward(&pass, a, stage);
            if (a->out == TT_NO_SLOT) {
                continue;
            }
            const int64_t n = pass.M * tt_slot_width(&full->shape, a->out);
            float *y = tt_pass_slot(&pass, a->out, stage);
            const tt_slot source = a->out == TT_NEXT ? TT_NO_SLOT : tt_slots[a->out].gelu_of;
            if (source != TT_NO_SLOT) { /* GELU of what is stored */
                float *z = tt_pass_slot(&pass, source, stage);
                round_slot(z, n);
                for (int64_t e = 0; e < n; e++) {
                    const double x = (double)z[e], inner = 0.79788456 * (x + 0.044715 * x * x * x);
                    y[e] = (float)(0.5 * x * (1 + tanh(inner)));
                }
            }
            round_slot(y, n);
        }
    }
    return tt_loss_mean(&loss);
}

static double eval(fixture *f, tt_model *model)
{
    tt_loss loss = {.count = 0};
    tt_model_eval(model, f->token, f->target, f->B, f->T, &loss, NULL);
    return tt_loss_mean(&loss);
}

/* Everything up: FP32 but for what is stored. */
static void check_raised(const tt_shape *shape, const char *isa)
{
    enum { B = 3, T = 9, V = 29 };
    fixture full, narrow;
    raised up, head;
    fixture_open(&full, shape, TT_FP32, isa, B, T, true);
    fixture_open(&narrow, shape, TT_BF16, isa, B, T, true);
    const int64_t N = full.params.total;
    const double want = train(&full, full.model), bf16 = train(&narrow, narrow.model);
    const double narrow_eval = eval(&narrow, narrow.model);
    float logits[2][V];
    raise(&up, &narrow, ALL);
    const double loss = train(&narrow, up.model), up_eval = eval(&narrow, up.model);
    const double apart = distance(narrow.gradient, full.gradient, N);
    ck_assert(loss != bf16 && fabs(loss - want) < 2e-3 * want);
    ck_assert_msg(apart < 0.02, "%s: gradients are %g apart", isa, apart);
    raised_close(&up);
    raise(&head, &narrow, "[head]");
    const double head_loss = train(&narrow, head.model);
    ck_assert(head_loss != bf16 && head_loss != loss);
    ck_assert(distance(narrow.gradient, full.gradient, N) < 0.02);
    tt_model_next(narrow.model, narrow.token, T, logits[0]);
    tt_model_next(head.model, narrow.token, T, logits[1]);
    const double moved = distance(logits[1], logits[0], shape->vocab_used);
    ck_assert_msg(moved > 1e-5 && moved < 0.01, "%g", moved);
    raised_close(&head);
    if (!shape->tied) {
        const double promise = promised(&full);
        ck_assert_msg(fabs(up_eval - promise) < 2e-5 * promise, "%s: %.8f, promised %.8f", isa,
                      up_eval, promise);
        ck_assert_msg(fabs(narrow_eval - promise) > 1e-4 * promise, "%s: bf16 %.8f", isa,
                      narrow_eval);
    }
    fixture_close(&narrow);
    fixture_close(&full);
}

START_TEST(test_raised)
{
    tt_shape tied = odd_shape;
    const char *isa[8];
    int count = tt_kernels_isa_list(isa, 7);
    isa[count++] = "guard";
    tied.tied = true;
    for (int i = 0; i < count; i++) {
        check_raised(&odd_shape, isa[i]);
        check_raised(&tied, isa[i]);
    }
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("autocast");
    TCase *tcase = tcase_create("autocast");
    tcase_add_test(tcase, test_names);
    tcase_add_test(tcase, test_up);
    tcase_add_test(tcase, test_programs);
    tcase_add_test(tcase, test_cells);
    tcase_add_test(tcase, test_probabilities);
    tcase_add_test(tcase, test_text);
    tcase_add_test(tcase, test_raised);
    suite_add_tcase(suite, tcase);
    return suite;
}

TT_TEST_MAIN(make_suite)
