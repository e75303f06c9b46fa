/* model_fixture.h: a small model with everything it needs, for the tests of this layer.
 *
 * The fixture owns all its memory. One thread, as matrices this small are slower with more;
 * scratch is for FIXTURE_THREADS. Weights are random and larger than GPT-2's initial values, so
 * that every gradient is far above rounding. A fixture that trains keeps packed weights where the
 * table has a packed form, one for evaluation does not. */
#ifndef MODEL_FIXTURE_H
#define MODEL_FIXTURE_H

#include "model/model_impl.h"
#include "sums.h"
#include "tt_test.h"
#include "tutti/base/narrow.h"
#include "tutti/base/rng.h"

enum { FIXTURE_THREADS = 3 };

typedef struct fixture {
    tt_fp8 fp8;
    void *remembered; /* its memory */
    tt_shape shape;
    tt_params params;
    tt_ops ops, guarded;
    tt_ctx ctx;
    tt_arena arena, packed;
    tt_model *model;
    float *master;   /* [N] */
    void *weights;   /* [N] act: rounded master */
    float *gradient; /* [N] */
    int64_t B, T;    /* of the model, and of the arrays below */
    int32_t *token;  /* [B,T] */
    int32_t *target; /* [B,T] some -1 */
    int64_t *sample; /* [B] */
} fixture;

/* Odd in every respect: G < H, padded vocabulary, T below the context. */
static const tt_shape odd_shape = {.L = 2,
                                   .H = 4,
                                   .G = 2,
                                   .D = 4,
                                   .C = 16,
                                   .F = 40,
                                   .T = 11,
                                   .V = 29,
                                   .vocab_used = 23,
                                   .dropout = 0.25};

static inline float normal(uint64_t stream, int64_t index)
{
    return tt_rng_normal(tt_rng_key(1, TT_RNG_TEST, 0), stream, (uint64_t)index);
}

static inline void *must(void *pointer)
{
    ck_assert_ptr_nonnull(pointer);
    return pointer;
}

/* Copies master into weights, in the storage format, and packs them. */
static inline void fixture_publish(fixture *f)
{
    f->ops.to_act(&f->ctx, f->weights, f->master, f->params.total);
    tt_model_pack(f->model);
}

/* fp8: recipe and format of backward, NULL: not FP8. recompute NULL: none. */
static inline void fixture_open_all(fixture *f, const tt_shape *shape, tt_format compute,
                                    const char *isa, int64_t B, int64_t T, bool backward,
                                    const tt_fp8 *fp8, const tt_recompute *recompute)
{
    tt_err err = {0};
    *f = (fixture){.shape = *shape, .B = B, .T = T};
    if (fp8 != NULL) {
        tt_config config;
        tt_config_preset(&config);
        const tt_autocast plain = {.compute = TT_E4M3, .storage = TT_BF16};
        tt_fp8_make(&f->fp8, &config, &plain, shape);
        f->fp8.recipe = fp8->recipe;
        f->fp8.backward = fp8->backward;
        f->fp8.history = fp8->history;
        f->remembered = must(tt_alloc(tt_count(tt_fp8_bytes(&f->fp8)), 1, &err));
        tt_fp8_place(&f->fp8, f->remembered);
    }
    tt_fp8 *used = fp8 != NULL ? &f->fp8 : NULL;
    ck_assert_msg(tt_params_make(&f->params, shape, &err) == TT_OK, "%s", err.text);
    ck_assert_msg(tt_kernels_select(&f->ops, &f->guarded, compute, isa, &err) == TT_OK, "%s",
                  err.text);
    tt_extents extents = tt_model_extents(shape, B, T, backward);
    bool guard = strncmp(isa, "guard", 5) == 0;
    size_t scratch =
        tt_kernels_workspace(&f->ops, guard ? &f->guarded : NULL, &extents, FIXTURE_THREADS);
    size_t act = tt_formats[f->ops.format].bytes;
    size_t bytes = tt_model_activation_bytes(shape, B, T, act, backward, used, recompute, NULL);
    ck_assert_int_eq(tt_arena_open(&f->arena, "test", bytes + tt_arena_cost(scratch), &err), TT_OK);
    size_t packed = backward ? tt_model_packed_bytes(shape, &f->params, &f->ops, NULL) : 0;
    ck_assert_int_eq(tt_arena_open(&f->packed, "packed", packed, &err), TT_OK);
    f->ctx = (tt_ctx){
        .ops = &f->ops,
        .base = guard ? &f->guarded : NULL,
        .threads = 1,
        .workspace = tt_arena_take(&f->arena, scratch),
        .workspace_bytes = scratch,
    };
    int64_t N = f->params.total;
    f->master = must(tt_alloc(N, sizeof(float), &err));
    f->weights = must(tt_alloc(N, act, &err));
    f->gradient = must(tt_alloc(N, sizeof(float), &err));
    for (int i = 0; i < f->params.count; i++) {
        const tt_param *param = &f->params.param[i];
        for (int64_t e = 0; e < param->count; e++) {
            float one = param->init == TT_INIT_ONE ? 1.0f : 0.0f;
            f->master[param->offset + e] = one + 0.3f * normal((uint64_t)i, e);
        }
    }
    f->token = must(tt_alloc(B * T, sizeof(int32_t), &err));
    f->target = must(tt_alloc(B * T, sizeof(int32_t), &err));
    f->sample = must(tt_alloc(B, sizeof(int64_t), &err));
    for (int64_t i = 0; i < B * T; i++) {
        f->token[i] = tt_int((i * i * 7 + 3 * i + 1) % shape->vocab_used);
        f->target[i] = i % 3 == 1 ? -1 : tt_int((i * 5 + 2) % shape->vocab_used);
    }
    for (int64_t b = 0; b < B; b++) {
        f->sample[b] = 1000 + 17 * b;
    }
    ck_assert_int_eq(tt_model_open(&f->model, shape, &f->params, &f->ctx, f->weights,
                                   backward ? GRAD(f->gradient) : NULL, NULL, used, NULL, recompute,
                                   B, T, &f->arena, backward ? &f->packed : NULL, &err),
                     TT_OK);
    ck_assert_uint_eq(f->packed.used, packed);
    fixture_publish(f);
}

static inline void fixture_open_fp8(fixture *f, const tt_shape *shape, tt_format compute,
                                    const char *isa, int64_t B, int64_t T, bool backward,
                                    const tt_fp8 *fp8)
{
    fixture_open_all(f, shape, compute, isa, B, T, backward, fp8, NULL);
}

static inline void fixture_open(fixture *f, const tt_shape *shape, tt_format format,
                                const char *isa, int64_t B, int64_t T, bool backward)
{
    fixture_open_fp8(f, shape, format, isa, B, T, backward, NULL);
}

static inline void fixture_close(fixture *f)
{
    tt_model_close(f->model);
    free(f->remembered);
    free(f->sample);
    free(f->target);
    free(f->token);
    free(f->gradient);
    free(f->weights);
    free(f->master);
    tt_arena_close(&f->packed);
    tt_arena_close(&f->arena);
    tt_params_free(&f->params);
}

static inline void fixture_zero_gradient(fixture *f)
{
    memset(f->gradient, 0, tt_bytes(f->params.total, sizeof(float)));
}

/* Sequences first .. first+B-1 of the fixture through the model. */
static inline void fixture_train(fixture *f, int64_t first, int64_t B, tt_loss *loss)
{
    tt_model_train(f->model, f->token + first * f->T, f->target + first * f->T, f->sample + first,
                   B, f->T, 7, 3, 1.0f, loss, NULL);
}

/* ||a - b|| / ||b|| */
static inline double distance(const float *a, const float *b, int64_t n)
{
    double difference = 0.0, norm = 0.0;
    for (int64_t i = 0; i < n; i++) {
        difference += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
        norm += (double)b[i] * b[i];
    }
    return sqrt(difference / norm);
}

/* The derivative of phi along one direction, without its h^2 term: from central differences with
 * steps h and h / 2. move(user, x) puts the point to x times the direction; phi(user) evaluates. */
static inline double slope(void (*move)(void *user, double x), double (*phi)(void *user),
                           void *user, double h)
{
    double difference[2];
    for (int i = 0; i < 2; i++) {
        double step = i == 0 ? h : h / 2;
        move(user, step);
        double up = phi(user);
        move(user, -step);
        difference[i] = (up - phi(user)) / (2.0 * step);
    }
    move(user, 0.0);
    return (4.0 * difference[1] - difference[0]) / 3.0;
}

#endif
