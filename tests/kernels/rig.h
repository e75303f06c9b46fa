/* rig.h: a selected table with its workspace, and arrays to feed it, for the kernel tests.
 *
 * rig_each(test) runs a test for every compute format and for every table this processor can have,
 * and for the best one under guard; rig_each_for does it for other extents. Arrays are heap blocks of
 * the exact size, so that a sanitizer sees a step outside; values are rounded to the compute format
 * first, so that a yardstick in double starts from the same numbers. */
#ifndef TT_RIG_H
#define TT_RIG_H

#include "sums.h"
#include "tt_test.h"
#include "tutti/base/memory.h"
#include "tutti/base/rng.h"
#include "tutti/kernels/kernels.h"

typedef struct rig {
    tt_ops ops, guarded;
    tt_ctx ctx;
    tt_arena room;
    uint64_t stream; /* of the next random array */
} rig;

static const tt_extents rig_extents = {.rows = 1200,
                                       .tokens = 160,
                                       .channels = 200,
                                       .ffn = 400,
                                       .vocab = 400,
                                       .heads = 4,
                                       .head_size = 72};

static const tt_format rig_formats[] = {TT_FP32, TT_TF32, TT_BF16, TT_FP16};
enum { RIG_FORMATS = sizeof rig_formats / sizeof rig_formats[0] };

static inline void rig_open_for(rig *r, tt_format compute, const char *isa, int threads,
                                const tt_extents *extents)
{
    tt_err err = {TT_OK, ""};
    memset(r, 0, sizeof *r);
    ck_assert_msg(tt_kernels_select(&r->ops, &r->guarded, compute, isa, &err) == TT_OK, "%s",
                  err.text);
    size_t bytes = tt_kernels_workspace(&r->ops, NULL, extents, threads);
    ck_assert_msg(tt_arena_open(&r->room, "test", bytes, &err) == TT_OK, "%s", err.text);
    r->ctx = (tt_ctx){.ops = &r->ops,
                      .base = strncmp(r->ops.isa, "guard", 5) == 0 ? &r->guarded : NULL,
                      .threads = threads,
                      .workspace = tt_arena_take(&r->room, bytes),
                      .workspace_bytes = bytes};
    memset(r->ctx.workspace, 0xff, bytes); /* NaN: contents are undefined between calls */
}

static inline void rig_open(rig *r, tt_format compute, const char *isa, int threads)
{
    rig_open_for(r, compute, isa, threads, &rig_extents);
}

static inline void rig_close(rig *r)
{
    tt_arena_close(&r->room);
}

static inline void rig_each_for(void (*test)(rig *r), int threads, const tt_extents *extents)
{
    const char *isa[8];
    int count = tt_kernels_isa_list(isa, 7);
    isa[count++] = "guard";
    for (int i = 0; i < count; i++) {
        for (int f = 0; f < RIG_FORMATS; f++) {
            rig r;
            rig_open_for(&r, rig_formats[f], isa[i], threads, extents);
            test(&r);
            rig_close(&r);
        }
    }
}

static inline void rig_each(void (*test)(rig *r))
{
    rig_each_for(test, 2, &rig_extents);
}

static inline size_t rig_size(const rig *r)
{
    return tt_formats[r->ops.format].bytes;
}

/* Exactly `bytes` on the heap (free with free). */
static inline void *rig_block(size_t bytes)
{
    void *block = malloc(bytes > 0 ? bytes : 1);
    ck_assert_ptr_nonnull(block);
    memset(block, 0xff, bytes);
    return block;
}

static inline void *rig_acts(const rig *r, int64_t n)
{
    return rig_block((size_t)n * rig_size(r));
}

static inline double rig_get(const rig *r, const void *array, int64_t i)
{
    switch (r->ops.format) {
    case TT_BF16:
        return (double)tt_f32_of_bf16(((const tt_bf16 *)array)[i]);
    case TT_FP16:
        return (double)tt_f32_of_fp16(((const tt_fp16 *)array)[i]);
    default:
        return (double)((const float *)array)[i];
    }
}

static inline void rig_put(const rig *r, void *array, int64_t i, double value)
{
    const float rounded = (float)value;
    switch (r->ops.format) {
    case TT_BF16:
        ((tt_bf16 *)array)[i] = tt_bf16_of_f32(rounded);
        break;
    case TT_FP16:
        ((tt_fp16 *)array)[i] = tt_fp16_of_f32(rounded);
        break;
    default:
        ((float *)array)[i] = r->ops.compute == TT_TF32 ? tt_tf32_of_f32(rounded) : rounded;
    }
}

/* n acts, normal with this spread. */
static inline void *rig_random(rig *r, int64_t n, double spread)
{
    void *array = rig_acts(r, n);
    tt_key key = tt_rng_key(11, TT_RNG_TEST, 0);
    for (int64_t i = 0; i < n; i++) {
        rig_put(r, array, i, spread * (double)tt_rng_normal(key, r->stream, (uint64_t)i));
    }
    r->stream++;
    return array;
}

static inline float *rig_floats(rig *r, int64_t n, double spread)
{
    float *array = rig_block((size_t)n * sizeof *array);
    tt_key key = tt_rng_key(11, TT_RNG_TEST, 1);
    for (int64_t i = 0; i < n; i++) {
        array[i] = (float)(spread * (double)tt_rng_normal(key, r->stream, (uint64_t)i));
    }
    r->stream++;
    return array;
}

static inline int32_t *rig_tokens(rig *r, int64_t n, int64_t below)
{
    int32_t *token = rig_block((size_t)n * sizeof *token);
    tt_key key = tt_rng_key(11, TT_RNG_TEST, 2);
    for (int64_t i = 0; i < n; i++) {
        token[i] = (int32_t)(tt_rng(key, r->stream, (uint64_t)i).v[0] % (uint32_t)below);
    }
    r->stream++;
    return token;
}

static inline void *rig_copy(const void *array, size_t bytes)
{
    void *copy = rig_block(bytes);
    memcpy(copy, array, bytes);
    return copy;
}

/* w[N,K] for a matmul; `packed` asks for its packed form too, where the table has one. */
static inline tt_weight rig_weight(rig *r, const void *w, int64_t N, int64_t K, bool packed)
{
    size_t bytes = packed ? r->ops.packed_bytes(N, K) : 0;
    void *form = NULL;
    if (bytes > 0) {
        ck_assert_int_eq(posix_memalign(&form, TT_ALIGN, bytes), 0);
        memset(form, 0xff, bytes);
        r->ops.pack(&r->ctx, form, w, N, K);
    }
    return (tt_weight){w, form};
}

static inline void rig_unpack(tt_weight *w)
{
    free((void *)(uintptr_t)w->packed);
    w->packed = NULL;
}

/* The values as doubles. */
static inline double *rig_doubles(const rig *r, const void *array, int64_t n)
{
    double *x = rig_block((size_t)n * sizeof *x);
    for (int64_t i = 0; i < n; i++) {
        x[i] = rig_get(r, array, i);
    }
    return x;
}

/* Is what is computed inside a kernel rounded to more than FP32 before it enters a product? */
static inline bool rig_coarse(const rig *r)
{
    return r->ops.compute != TT_FP32;
}

/* Half a unit of the storage format at `want`, which for FP32 is left to the slack of its arithmetic. */
static inline double rig_half(const rig *r, double want)
{
    const tt_format_info *f = &tt_formats[r->ops.format];
    return f->bytes == 2 ? 0.5 * (f->epsilon * fabs(want) * 1.01 + f->min_subnormal) : 0;
}

/* Is x within half a unit of the storage format of `want`, plus slack for FP32 arithmetic? */
static inline bool rig_near(const rig *r, double x, double want, double slack)
{
    return fabs(x - want) <= rig_half(r, want) + slack;
}

#define RIG_NEAR(r, x, want, slack, what)                                                     \
    ck_assert_msg(rig_near(r, x, want, slack), "%s %s %s: %.9g, expected %.9g", (r)->ops.isa, \
                  tt_formats[(r)->ops.compute].name, what, (double)(x), (double)(want))

/* Dropout at probability p for `samples`; test words come from tt_rng, as kernels.h defines them. */
static inline tt_dropout rig_dropout(double p, const int64_t *samples)
{
    return (tt_dropout){.key = tt_rng_key(5, TT_RNG_DROPOUT, 3),
                        .site = 9,
                        .threshold = (uint32_t)(p * 4294967296.0),
                        .scale = (float)(1 / (1 - p)),
                        .sample = samples};
}

static inline double rig_keep(const tt_dropout *drop, int64_t b, int64_t element)
{
    if (drop == NULL || drop->threshold == 0) {
        return 1;
    }
    uint64_t stream = tt_dropout_stream(drop->sample[b], drop->site);
    tt_u32x4 words = tt_rng(drop->key, stream, (uint64_t)element / 4);
    return words.v[element % 4] >= drop->threshold ? (double)drop->scale : 0;
}

#endif
