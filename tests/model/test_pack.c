/* test_pack.c: packed weights: every matmul gets the packed form of its own matrix, made of the weights
 * as they are; nothing else about the model changes.
 *
 * The table here is the reference with a packed form: the matrix behind a header that tells where it
 * came from. Its matmuls refuse one that is missing, of another matrix, or out of date. */
#include "model_fixture.h"

typedef struct header { /* TT_ALIGN bytes with what follows it */
    const void *w;
    int64_t N, K;
} header;

static tt_ops inner;          /* the reference */
static int packs, used, bare; /* calls of pack; matmuls with a packed weight, and without */

static size_t form_bytes(int64_t N, int64_t K)
{
    return TT_ALIGN + (size_t)(N * K) * tt_formats[inner.format].bytes;
}

static void form_pack(tt_ctx *ctx, void *packed, const void *w, int64_t N, int64_t K)
{
    (void)ctx;
    *(header *)packed = (header){w, N, K};
    memcpy((char *)packed + TT_ALIGN, w, form_bytes(N, K) - TT_ALIGN);
    packs++;
}

static void check_weight(const tt_weight *w, int64_t N, int64_t K)
{
    if (w->packed == NULL) {
        bare++;
        return;
    }
    const header *h = w->packed;
    ck_assert(h->w == w->w && h->N == N && h->K == K);
    ck_assert_mem_eq((const char *)w->packed + TT_ALIGN, w->w, form_bytes(N, K) - TT_ALIGN);
    used++;
}

static void form_gemm_nt(tt_ctx *ctx, void *y, const void *x, const tt_weight *w,
                         const tt_epilogue *e, int64_t M, int64_t N, int64_t K, int64_t leaf)
{
    check_weight(w, N, K);
    inner.gemm_nt(ctx, y, x, w, e, M, N, K, leaf);
}

static void form_gemm_nt_f32(tt_ctx *ctx, float *y, const void *x, const tt_weight *w, int64_t M,
                             int64_t N, int64_t K, int64_t leaf)
{
    check_weight(w, N, K);
    inner.gemm_nt_f32(ctx, y, x, w, M, N, K, leaf);
}

static void form_gemm_nn(tt_ctx *ctx, void *dx, const void *dy, const tt_weight *w,
                         const tt_epilogue *e, int64_t M, int64_t N, int64_t K, int64_t leaf)
{
    check_weight(w, N, K);
    inner.gemm_nn(ctx, dx, dy, w, e, M, N, K, leaf);
}

/* A second model over the fixture's weights, gradient and context, on the table with a packed form. */
typedef struct second {
    tt_arena arena, packed;
    tt_model *model;
} second;

static void second_open(second *s, fixture *f, bool keep)
{
    tt_err err = {0};
    const size_t act = tt_formats[f->ops.format].bytes;
    inner = f->ops;
    f->ops.packed_bytes = form_bytes;
    f->ops.pack = form_pack;
    f->ops.gemm_nt = form_gemm_nt;
    f->ops.gemm_nt_f32 = form_gemm_nt_f32;
    f->ops.gemm_nn = form_gemm_nn;
    packs = used = bare = 0;
    *s = (second){0};
    ck_assert_int_eq(
        tt_arena_open(&s->arena, "test",
                      tt_model_activation_bytes(&f->shape, f->B, f->T, act, true, NULL, NULL, NULL),
                      &err),
        TT_OK);
    ck_assert_int_eq(tt_arena_open(&s->packed, "packed",
                                   tt_model_packed_bytes(&f->shape, &f->params, &f->ops, NULL),
                                   &err),
                     TT_OK);
    ck_assert_int_eq(tt_model_open(&s->model, &f->shape, &f->params, &f->ctx, f->weights,
                                   GRAD(f->gradient), NULL, NULL, NULL, NULL, f->B, f->T, &s->arena,
                                   keep ? &s->packed : NULL, &err),
                     TT_OK);
}

static void second_close(second *s)
{
    tt_model_close(s->model);
    tt_arena_close(&s->packed);
    tt_arena_close(&s->arena);
}

typedef struct results {
    tt_loss train, eval;
    float logits[29];
    float *gradient;
} results;

/* All that a model computes. */
static results compute(fixture *f, tt_model *model)
{
    tt_err err = {0};
    results r = {.gradient = must(tt_alloc(f->params.total, sizeof(float), &err))};
    fixture_zero_gradient(f);
    for (int micro = 0; micro < 2; micro++) {
        tt_model_train(model, f->token, f->target, f->sample, f->B, f->T, 7, 3, 1.0f, &r.train,
                       NULL);
    }
    memcpy(r.gradient, f->gradient, tt_bytes(f->params.total, sizeof(float)));
    tt_model_eval(model, f->token, f->target, f->B, f->T, &r.eval, NULL);
    tt_model_next(model, f->token, 4, r.logits);
    return r;
}

static void assert_same(const fixture *f, results *a, results *b)
{
    ck_assert(sum_of(&a->train) == sum_of(&b->train) && sum_of(&a->eval) == sum_of(&b->eval));
    ck_assert_mem_eq(a->logits, b->logits, sizeof a->logits);
    ck_assert_mem_eq(a->gradient, b->gradient, tt_bytes(f->params.total, sizeof(float)));
    free(a->gradient);
    free(b->gradient);
}

/* Matmuls that read a weight: four a block, and head_loss's one for each of 2 sequences, forward and
 * backward in two micro-batches, forward alone in evaluation; for the next token the head needs one. */
enum { L = 2, MATMULS = 2 * 2 * (4 * L + 2) + (4 * L + 2) + (4 * L + 1) };

START_TEST(every_matmul_gets_its_own_matrix)
{
    tt_shape shape = odd_shape;
    shape.tied = _i % 2 == 1;
    fixture f;
    second s;
    fixture_open(&f, &shape, _i / 2 == 0 ? TT_FP32 : TT_BF16, "ref", 2, 7, true);
    results plain = compute(&f, f.model);
    second_open(&s, &f, true);
    tt_model_pack(s.model);
    results packed = compute(&f, s.model);
    ck_assert_int_eq(packs, 4 * L + 1);
    ck_assert_int_eq(used, MATMULS);
    ck_assert_int_eq(bare, 0);
    assert_same(&f, &plain, &packed);

    for (int64_t i = 0; i < f.params.total; i++) { /* other weights, packed anew */
        f.master[i] *= 0.75f;
    }
    f.ops.to_act(&f.ctx, f.weights, f.master, f.params.total);
    tt_model_pack(s.model);
    packed = compute(&f, s.model);
    plain = compute(&f, f.model);
    ck_assert_int_eq(packs, 2 * (4 * L + 1));
    assert_same(&f, &plain, &packed);
    second_close(&s);
    fixture_close(&f);
}
END_TEST

START_TEST(nothing_is_packed_unasked)
{
    fixture f;
    second s;
    fixture_open(&f, &odd_shape, TT_FP32, "ref", 2, 7, true);
    results plain = compute(&f, f.model);
    second_open(&s, &f, false);
    tt_model_pack(s.model);
    results other = compute(&f, s.model);
    ck_assert_int_eq(packs + used, 0);
    ck_assert_int_eq(bare, MATMULS);
    ck_assert_uint_eq(s.packed.used, 0);
    assert_same(&f, &plain, &other);
    second_close(&s);
    fixture_close(&f);
}
END_TEST

/* By hand: qkv, proj, fc and down of each block, and the head, which is wte when tied. */
START_TEST(packed_bytes_by_hand)
{
    fixture f;
    second s;
    fixture_open(&f, &odd_shape, TT_BF16, "ref", 2, 7, true);
    ck_assert_uint_eq(tt_model_packed_bytes(&f.shape, &f.params, &f.ops, NULL),
                      0); /* it has no form */
    second_open(&s, &f, true);
    const size_t C = 16, F = 40, QKV = (4 + 2 * 2) * 4, V = 29;
    const size_t each[] = {QKV * C, C * C, F * C, C * F};
    size_t bytes = tt_arena_cost(TT_ALIGN + 2 * V * C);
    for (int i = 0; i < 4; i++) {
        bytes += L * tt_arena_cost(TT_ALIGN + 2 * each[i]);
    }
    ck_assert_uint_eq(tt_model_packed_bytes(&f.shape, &f.params, &f.ops, NULL), bytes);
    ck_assert_uint_eq(s.packed.used, bytes);
    ck_assert(tt_model_extents(&f.shape, 2, 7, true).packed);
    ck_assert(!tt_model_extents(&f.shape, 2, 7, false).packed);
    second_close(&s);
    fixture_close(&f);
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("pack");
    TCase *tests = tcase_create("pack");
    tcase_add_loop_test(tests, every_matmul_gets_its_own_matrix, 0, 4);
    tcase_add_test(tests, nothing_is_packed_unasked);
    tcase_add_test(tests, packed_bytes_by_hand);
    suite_add_tcase(suite, tests);
    return suite;
}

TT_TEST_MAIN(make_suite)
