/* guard.c: a table that watches another one.
 *
 * Before a call it fills every output, and the workspace, with a NaN that no computation makes, and
 * digests every input. After it, an output element that still holds the fill was left unwritten, and
 * an input whose digest moved was changed. A kernel that reads what it should overwrite, or scratch
 * that it did not write, turns its results into NaN. Inout arrays are passed through.
 *
 * ctx->base is the watched table; ctx->ops stays this one, so kernels made of kernels are watched
 * inside as well. Owns nothing. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/kernels_impl.h"
#include "tutti/numerics/digest.h"
#include "tutti/numerics/fp8.h"

/* Signalling NaNs: arithmetic and conversions only make quiet ones. */
static const uint32_t fill32 = 0x7fadbeefu;
static const uint16_t fill_bf16 = 0x7fadu, fill_fp16 = 0x7dadu;

/* The fill of elements of so many bytes, 2 or 4. */
static const void *fill_of(const tt_ctx *ctx, size_t size)
{
    const uint16_t *two = ctx->base->format == TT_FP16 ? &fill_fp16 : &fill_bf16;
    return size == sizeof *two ? (const void *)two : &fill32;
}

typedef struct span {
    const char *name;
    const void *in; /* one of in and out is set; both NULL: the caller left the array out */
    void *out;
    size_t size;   /* bytes of an element; of an output 2 or 4 */
    int64_t count; /* elements */
    bool watched;
    uint64_t digest;
} span;

#define IN(array, size, count)                     \
    {                                              \
#array, array, NULL, size, count, false, 0 \
    }
#define OUT(array, size, count)                    \
    {                                              \
#array, NULL, array, size, count, false, 0 \
    }
#define SPANS(spans) spans, (int)(sizeof spans / sizeof spans[0])

static void violation(tt_ctx *ctx, const char *op, const char *what)
{
    if (ctx->violation != NULL) {
        ctx->violation(op, what);
        return;
    }
    fprintf(stderr, "guard: kernel %s of %s %s\n", op, ctx->base->isa, what);
    abort();
}

static void fill(const tt_ctx *ctx, void *array, size_t size, int64_t count)
{
    unsigned char *at = array;
    size_t bytes = tt_bytes(count, size), done = bytes < size ? bytes : size;
    memcpy(at, fill_of(ctx, size), done);
    while (done < bytes) { /* what is filled is copied behind itself */
        size_t more = done < bytes - done ? done : bytes - done;
        memcpy(at + done, at, more);
        done += more;
    }
}

/* Index of the first element that still holds the fill, or -1. */
static int64_t find_fill(const tt_ctx *ctx, const void *array, size_t size, int64_t count)
{
    const unsigned char *at = array, *due = fill_of(ctx, size);
    for (int64_t i = 0; i < count; i++, at += size) {
        bool same = size == sizeof(uint16_t) ? memcmp(at, due, sizeof(uint16_t)) == 0
                                             : memcmp(at, due, sizeof fill32) == 0;
        if (same) {
            return i;
        }
    }
    return -1;
}

static uint64_t digest(const span *input)
{
    return tt_digest_bytes(input->in, tt_count(tt_bytes(input->count, input->size)));
}

static void before(tt_ctx *ctx, span *spans, int count)
{
    for (int i = 0; i < count; i++) {
        spans[i].watched = spans[i].in != NULL || spans[i].out != NULL;
    }
    for (int i = 0; i < count; i++) {
        if (spans[i].watched && spans[i].in != NULL) {
            spans[i].digest = digest(&spans[i]);
        } else if (spans[i].watched) {
            fill(ctx, spans[i].out, spans[i].size, spans[i].count);
        }
    }
    fill(ctx, ctx->workspace, sizeof fill32, tt_count(ctx->workspace_bytes / sizeof fill32));
}

static void after(tt_ctx *ctx, const char *op, const span *spans, int count)
{
    char what[128];
    for (int i = 0; i < count; i++) {
        const span *s = &spans[i];
        if (s->watched && s->in != NULL && digest(s) != s->digest) {
            snprintf(what, sizeof what, "changes its input %s", s->name);
            violation(ctx, op, what);
        } else if (s->watched && s->out != NULL) {
            int64_t at = find_fill(ctx, s->out, s->size, s->count);
            if (at >= 0) {
                snprintf(what, sizeof what, "leaves element %lld of its output %s unwritten",
                         (long long)at, s->name);
                violation(ctx, op, what);
            }
        }
    }
}

static size_t act_size(const tt_ctx *ctx)
{
    return tt_formats[ctx->base->format].bytes;
}

/* Of an element of a matrix: wide tables read FP32. */
static size_t weight_size(const tt_ctx *ctx)
{
    return ctx->full != NULL ? sizeof(float) : act_size(ctx);
}

/* Rows of a token table that are certain to exist. */
static int64_t rows_used(const int32_t *token, int64_t count)
{
    int64_t rows = 0;
    for (int64_t i = 0; i < count; i++) {
        rows = tt_max(rows, (int64_t)token[i] + 1);
    }
    return rows;
}

static const int64_t *samples(const tt_dropout *drop)
{
    return drop != NULL ? drop->sample : NULL;
}

enum { F32 = sizeof(float) };

static void guard_embed(tt_ctx *ctx, void *x, const void *wte, const void *wpe,
                        const int32_t *token, int64_t B, int64_t T, int64_t C,
                        const tt_dropout *drop)
{
    size_t act = act_size(ctx);
    span s[] = {OUT(x, act, B * T * C),
                IN(wte, act, rows_used(token, B * T) * C),
                IN(wpe, act, T * C),
                IN(token, sizeof *token, B * T),
                IN(samples(drop), sizeof(int64_t), B),
                IN(drop, sizeof *drop, 1)};
    before(ctx, SPANS(s));
    ctx->base->embed(ctx, x, wte, wpe, token, B, T, C, drop);
    after(ctx, "embed", SPANS(s));
}

static void guard_norm(tt_ctx *ctx, void *y, float *mean, float *rstd, const void *x,
                       const void *gain, const void *bias, int64_t M, int64_t C)
{
    size_t act = act_size(ctx);
    span s[] = {OUT(y, act, M * C), OUT(mean, F32, M), OUT(rstd, F32, M),
                IN(x, act, M * C),  IN(gain, act, C),  IN(bias, act, C)};
    before(ctx, SPANS(s));
    ctx->base->norm(ctx, y, mean, rstd, x, gain, bias, M, C);
    after(ctx, "norm", SPANS(s));
}

static int64_t packed_words(const tt_ctx *ctx, int64_t N, int64_t K)
{
    return tt_count(ctx->base->packed_bytes(N, K) / weight_size(ctx));
}

static void guard_pack(tt_ctx *ctx, void *packed, const void *w, int64_t N, int64_t K)
{
    size_t size = weight_size(ctx);
    span s[] = {OUT(packed, size, packed_words(ctx, N, K)), IN(w, size, N * K)};
    before(ctx, SPANS(s));
    ctx->base->pack(ctx, packed, w, N, K);
    after(ctx, "pack", SPANS(s));
}

/* A weight and its packed form. */
#define WEIGHT(w, act, N, K) \
    IN((w)->w, act, (N) * (K)), IN((w)->packed, act, packed_words(ctx, N, K))

/* What an epilogue reads and writes beside y[M,N]. */
#define EPILOGUE(e, act, M, N)                                                               \
    OUT((e)->before, act, (M) * (N)), IN((e)->bias, act, N), IN((e)->slope, act, (M) * (N)), \
        IN((e)->residual, act, (M) * (N)), IN((e)->drop, sizeof(tt_dropout), 1),             \
        IN(samples((e)->drop), sizeof(int64_t), (e)->T > 0 ? tt_ceil_div(M, (e)->T) : 0)

static const tt_epilogue plain;

static void guard_gemm_nt(tt_ctx *ctx, void *y, const void *x, const tt_weight *w,
                          const tt_epilogue *e, int64_t M, int64_t N, int64_t K, int64_t leaf)
{
    size_t act = act_size(ctx);
    const tt_epilogue *at = e != NULL ? e : &plain;
    span s[] = {OUT(y, act, M * N), IN(x, act, M * K), WEIGHT(w, weight_size(ctx), N, K),
                EPILOGUE(at, act, M, N)};
    before(ctx, SPANS(s));
    ctx->base->gemm_nt(ctx, y, x, w, e, M, N, K, leaf);
    after(ctx, "gemm_nt", SPANS(s));
}

static void guard_gemm_nt_f32(tt_ctx *ctx, float *y, const void *x, const tt_weight *w, int64_t M,
                              int64_t N, int64_t K, int64_t leaf)
{
    size_t act = act_size(ctx);
    span s[] = {OUT(y, F32, M * N), IN(x, act, M * K), WEIGHT(w, weight_size(ctx), N, K)};
    before(ctx, SPANS(s));
    ctx->base->gemm_nt_f32(ctx, y, x, w, M, N, K, leaf);
    after(ctx, "gemm_nt_f32", SPANS(s));
}

static void guard_attention(tt_ctx *ctx, void *o, float *lse, const void *qkv, int64_t B, int64_t T,
                            int64_t H, int64_t G, int64_t D, int64_t T_max, const tt_dropout *drop)
{
    size_t act = act_size(ctx);
    span s[] = {OUT(o, act, B * T * H * D), OUT(lse, F32, B * H * T),
                IN(qkv, act, B * T * (H + 2 * G) * D), IN(samples(drop), sizeof(int64_t), B),
                IN(drop, sizeof *drop, 1)};
    before(ctx, SPANS(s));
    ctx->base->attention(ctx, o, lse, qkv, B, T, H, G, D, T_max, drop);
    after(ctx, "attention", SPANS(s));
}

static void guard_head_loss(tt_ctx *ctx, tt_exact *loss_sum, int64_t *count, float *row_loss,
                            void *dx, const tt_grad *gw, const void *x, const tt_weight *w,
                            const int32_t *target, int64_t M, int64_t V, int64_t vocab_used,
                            int64_t C, int64_t leaf, float scale)
{
    size_t act = act_size(ctx);
    span s[] = {OUT(row_loss, F32, M),
                OUT(dx, act, M * C),
                IN(x, act, M * C),
                WEIGHT(w, weight_size(ctx), V, C),
                IN(target, sizeof *target, M),
                IN(gw, sizeof *gw, 1)};
    before(ctx, SPANS(s));
    ctx->base->head_loss(ctx, loss_sum, count, row_loss, dx, gw, x, w, target, M, V, vocab_used, C,
                         leaf, scale);
    after(ctx, "head_loss", SPANS(s));
}

static void guard_residual_grad(tt_ctx *ctx, void *db, const void *dy, int64_t B, int64_t T,
                                int64_t C, const tt_dropout *drop)
{
    size_t act = act_size(ctx);
    span s[] = {OUT(db, act, B * T * C), IN(dy, act, B * T * C),
                IN(samples(drop), sizeof(int64_t), B), IN(drop, sizeof *drop, 1)};
    before(ctx, SPANS(s));
    ctx->base->residual_grad(ctx, db, dy, B, T, C, drop);
    after(ctx, "residual_grad", SPANS(s));
}

static void guard_gemm_nn(tt_ctx *ctx, void *dx, const void *dy, const tt_weight *w,
                          const tt_epilogue *e, int64_t M, int64_t N, int64_t K, int64_t leaf)
{
    size_t act = act_size(ctx);
    const tt_epilogue *at = e != NULL ? e : &plain;
    span s[] = {OUT(dx, act, M * K), IN(dy, act, M * N), WEIGHT(w, weight_size(ctx), N, K),
                EPILOGUE(at, act, M, K)};
    before(ctx, SPANS(s));
    ctx->base->gemm_nn(ctx, dx, dy, w, e, M, N, K, leaf);
    after(ctx, "gemm_nn", SPANS(s));
}

static void guard_gemm_tn(tt_ctx *ctx, const tt_grad *gw, const tt_grad *gb, const void *dy,
                          const void *x, int64_t M, int64_t N, int64_t K, int64_t leaf)
{
    size_t act = act_size(ctx);
    span s[] = {IN(dy, act, M * N), IN(x, act, M * K), IN(gw, sizeof *gw, 1),
                IN(gb, sizeof *gb, 1)};
    before(ctx, SPANS(s));
    ctx->base->gemm_tn(ctx, gw, gb, dy, x, M, N, K, leaf);
    after(ctx, "gemm_tn", SPANS(s));
}

static void guard_norm_grad(tt_ctx *ctx, void *dx, const tt_grad *ggain, const tt_grad *gbias,
                            const void *dy, const void *x, const void *gain, const float *mean,
                            const float *rstd, int64_t M, int64_t C, int64_t leaf)
{
    size_t act = act_size(ctx);
    span s[] = {IN(dy, act, M * C), IN(x, act, M * C), IN(gain, act, C), IN(mean, F32, M),
                IN(rstd, F32, M)};
    before(ctx, SPANS(s));
    ctx->base->norm_grad(ctx, dx, ggain, gbias, dy, x, gain, mean, rstd, M, C, leaf);
    after(ctx, "norm_grad", SPANS(s));
}

static void guard_attention_grad(tt_ctx *ctx, void *dqkv, const void *d_o, const void *o,
                                 const void *qkv, const float *lse, int64_t B, int64_t T, int64_t H,
                                 int64_t G, int64_t D, int64_t T_max, const tt_dropout *drop)
{
    size_t act = act_size(ctx);
    int64_t wide = B * T * (H + 2 * G) * D, narrow = B * T * H * D;
    span s[] = {OUT(dqkv, act, wide),     IN(d_o, act, narrow),
                IN(o, act, narrow),       IN(qkv, act, wide),
                IN(lse, F32, B * H * T),  IN(samples(drop), sizeof(int64_t), B),
                IN(drop, sizeof *drop, 1)};
    before(ctx, SPANS(s));
    ctx->base->attention_grad(ctx, dqkv, d_o, o, qkv, lse, B, T, H, G, D, T_max, drop);
    after(ctx, "attention_grad", SPANS(s));
}

static void guard_embed_grad(tt_ctx *ctx, const tt_grad *gwte, const tt_grad *gwpe, const void *dx,
                             const int32_t *token, int64_t B, int64_t T, int64_t C,
                             const tt_dropout *drop)
{
    size_t act = act_size(ctx);
    span s[] = {IN(dx, act, B * T * C), IN(token, sizeof *token, B * T),
                IN(samples(drop), sizeof(int64_t), B), IN(drop, sizeof *drop, 1)};
    before(ctx, SPANS(s));
    ctx->base->embed_grad(ctx, gwte, gwpe, dx, token, B, T, C, drop);
    after(ctx, "embed_grad", SPANS(s));
}

/* Accumulators that are read. */
#define GRAD(g, n) IN((g)->sum, F32, n), IN((g)->fixed, sizeof(int64_t), n), IN(g, sizeof *(g), 1)

static void guard_sum_squares(tt_ctx *ctx, tt_exact *sum, const tt_grad *g, int64_t n)
{
    span s[] = {GRAD(g, n)};
    before(ctx, SPANS(s));
    ctx->base->sum_squares(ctx, sum, g, n);
    after(ctx, "sum_squares", SPANS(s));
}

static void guard_adamw(tt_ctx *ctx, const tt_master *master, float *m, float *v, void *w,
                        const tt_grad *g, int64_t n, const tt_adamw *step)
{
    size_t act = act_size(ctx);
    void *rounded = master->kind == TT_MASTER_FP32 ? w : NULL; /* else inout */
    span s[] = {OUT(rounded, act, n), GRAD(g, n), IN(step, sizeof *step, 1),
                IN(master, sizeof *master, 1)};
    before(ctx, SPANS(s));
    ctx->base->adamw(ctx, master, m, v, w, g, n, step);
    after(ctx, "adamw", SPANS(s));
}

static void guard_to_act(tt_ctx *ctx, void *y, const float *x, int64_t n)
{
    size_t act = act_size(ctx);
    span s[] = {OUT(y, act, n), IN(x, F32, n)};
    before(ctx, SPANS(s));
    ctx->base->to_act(ctx, y, x, n);
    after(ctx, "to_act", SPANS(s));
}

static void guard_from_act(tt_ctx *ctx, float *y, const void *x, int64_t n)
{
    size_t act = act_size(ctx);
    span s[] = {OUT(y, F32, n), IN(x, act, n)};
    before(ctx, SPANS(s));
    ctx->base->from_act(ctx, y, x, n);
    after(ctx, "from_act", SPANS(s));
}

static void guard_gelu(tt_ctx *ctx, void *y, const void *x, int64_t n)
{
    size_t act = act_size(ctx);
    span s[] = {OUT(y, act, n), IN(x, act, n)};
    before(ctx, SPANS(s));
    ctx->base->gelu(ctx, y, x, n);
    after(ctx, "gelu", SPANS(s));
}

/* Codes and exponents are bytes, of which every pattern means something, so as outputs they are not
 * watched. */
static void guard_fp8_scale(tt_ctx *ctx, int8_t *exponent, float *amax, const void *x, int64_t rows,
                            int64_t width, int64_t size, tt_format format)
{
    span s[] = {IN(x, act_size(ctx), rows * width)};
    before(ctx, SPANS(s));
    ctx->base->fp8_scale(ctx, exponent, amax, x, rows, width, size, format);
    after(ctx, "fp8_scale", SPANS(s));
}

static void guard_fp8_round(tt_ctx *ctx, uint8_t *code, void *x, const int8_t *exponent,
                            int64_t rows, int64_t width, int64_t size, tt_format format,
                            bool replace)
{
    span s[] = {IN(exponent, 1, rows * tt_fp8_blocks(width, size)),
                IN(replace ? NULL : x, act_size(ctx), rows * width)};
    before(ctx, SPANS(s));
    ctx->base->fp8_round(ctx, code, x, exponent, rows, width, size, format, replace);
    after(ctx, "fp8_round", SPANS(s));
}

static void guard_fp8_value(tt_ctx *ctx, void *x, const uint8_t *code, const int8_t *exponent,
                            int64_t rows, int64_t width, int64_t size, tt_format format)
{
    span s[] = {OUT(x, act_size(ctx), rows * width), IN(code, 1, rows * width),
                IN(exponent, 1, rows * tt_fp8_blocks(width, size))};
    before(ctx, SPANS(s));
    ctx->base->fp8_value(ctx, x, code, exponent, rows, width, size, format);
    after(ctx, "fp8_value", SPANS(s));
}

static double guard_peak(tt_ctx *ctx, double seconds)
{
    return ctx->base->peak(ctx, seconds);
}

#define GUARD_ENTRY(name, type, args) .name = guard_##name,
const tt_ops tt_table_guard = {TT_OPS(GUARD_ENTRY)};
