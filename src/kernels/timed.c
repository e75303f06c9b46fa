/* timed.c: a table that clocks another one.
 *
 * Each entry calls the entry of ctx->base and adds its seconds, and the FLOPs of its products, to
 * ctx->times. ctx->ops stays this table, so the kernels that a kernel calls are clocked as well; what
 * they took is theirs and is taken off the one that called them.
 *
 * Invariant: the seconds of all rows together are the time spent in the table, each counted once.
 * Entries are called one at a time, by the thread that owns ctx. Owns nothing. */
#include "kernels/kernels_impl.h"
#include "tutti/base/clock.h"

/* A call that is open, and what its caller had spent inside before it. */
typedef struct lap {
    double start, before;
    double flops; /* of all operations when it began */
} lap;

static double flops_done(const tt_times *times)
{
    double sum = 0;
    for (int i = 0; i < TT_OP_TOTAL; i++) {
        sum += times->op[i].flops + times->inner[i].flops;
    }
    return sum;
}

static lap begin(tt_ctx *ctx)
{
    tt_times *times = ctx->times;
    lap l = {.before = times->inside, .flops = flops_done(times)};
    times->depth++;
    times->inside = 0;
    l.start = tt_seconds();
    return l;
}

/* `flops` are those of the whole call. Where kernels called inside made products, they have counted
 * them, all that there were. */
static void end(tt_ctx *ctx, const lap *l, int op, double flops)
{
    tt_times *times = ctx->times;
    const double all = tt_seconds() - l->start;
    times->depth--;
    tt_op_time *row = times->depth > 0 ? &times->inner[op] : &times->op[op];
    row->calls++;
    row->seconds += all - times->inside;
    row->flops += flops_done(times) > l->flops ? 0 : flops;
    times->inside = l->before + all;
}

static double product(int64_t M, int64_t N, int64_t K)
{
    return 2.0 * (double)M * (double)N * (double)K;
}

/* One causal product of attention: the lower triangle, with the diagonal. Forward makes two (scores,
 * output), backward five (scores anew, and the gradients of probabilities, values, queries, keys). */
static double triangle(int64_t B, int64_t T, int64_t H, int64_t D)
{
    return (double)B * (double)H * (double)D * (double)T * (double)(T + 1);
}

#define TIMED(name, args, call, flops)     \
    static void timed_##name args          \
    {                                      \
        lap l = begin(ctx);                \
        ctx->base->name call;              \
        end(ctx, &l, TT_OP_##name, flops); \
    }

TIMED(pack, (tt_ctx * ctx, void *packed, const void *w, int64_t N, int64_t K),
      (ctx, packed, w, N, K), 0)

TIMED(embed,
      (tt_ctx * ctx, void *x, const void *wte, const void *wpe, const int32_t *token, int64_t B,
       int64_t T, int64_t C, const tt_dropout *drop),
      (ctx, x, wte, wpe, token, B, T, C, drop), 0)

TIMED(norm,
      (tt_ctx * ctx, void *y, float *mean, float *rstd, const void *x, const void *gain,
       const void *bias, int64_t M, int64_t C),
      (ctx, y, mean, rstd, x, gain, bias, M, C), 0)

TIMED(gemm_nt,
      (tt_ctx * ctx, void *y, const void *x, const tt_weight *w, const tt_epilogue *e, int64_t M,
       int64_t N, int64_t K, int64_t leaf),
      (ctx, y, x, w, e, M, N, K, leaf), product(M, N, K))

TIMED(gemm_nt_f32,
      (tt_ctx * ctx, float *y, const void *x, const tt_weight *w, int64_t M, int64_t N, int64_t K,
       int64_t leaf),
      (ctx, y, x, w, M, N, K, leaf), product(M, N, K))

TIMED(attention,
      (tt_ctx * ctx, void *o, float *lse, const void *qkv, int64_t B, int64_t T, int64_t H,
       int64_t G, int64_t D, int64_t T_max, const tt_dropout *drop),
      (ctx, o, lse, qkv, B, T, H, G, D, T_max, drop), 2 * triangle(B, T, H, D))

TIMED(head_loss,
      (tt_ctx * ctx, tt_exact *loss_sum, int64_t *count, float *row_loss, void *dx,
       const tt_grad *gw, const void *x, const tt_weight *w, const int32_t *target, int64_t M,
       int64_t V, int64_t vocab_used, int64_t C, int64_t leaf, float scale),
      (ctx, loss_sum, count, row_loss, dx, gw, x, w, target, M, V, vocab_used, C, leaf, scale),
      (dx != NULL ? 3 : 1) * product(M, V, C))

TIMED(residual_grad,
      (tt_ctx * ctx, void *db, const void *dy, int64_t B, int64_t T, int64_t C,
       const tt_dropout *drop),
      (ctx, db, dy, B, T, C, drop), 0)

TIMED(gemm_nn,
      (tt_ctx * ctx, void *dx, const void *dy, const tt_weight *w, const tt_epilogue *e, int64_t M,
       int64_t N, int64_t K, int64_t leaf),
      (ctx, dx, dy, w, e, M, N, K, leaf), product(M, N, K))

TIMED(gemm_tn,
      (tt_ctx * ctx, const tt_grad *gw, const tt_grad *gb, const void *dy, const void *x, int64_t M,
       int64_t N, int64_t K, int64_t leaf),
      (ctx, gw, gb, dy, x, M, N, K, leaf), product(M, N, K))

TIMED(norm_grad,
      (tt_ctx * ctx, void *dx, const tt_grad *ggain, const tt_grad *gbias, const void *dy,
       const void *x, const void *gain, const float *mean, const float *rstd, int64_t M, int64_t C,
       int64_t leaf),
      (ctx, dx, ggain, gbias, dy, x, gain, mean, rstd, M, C, leaf), 0)

TIMED(attention_grad,
      (tt_ctx * ctx, void *dqkv, const void *d_o, const void *o, const void *qkv, const float *lse,
       int64_t B, int64_t T, int64_t H, int64_t G, int64_t D, int64_t T_max,
       const tt_dropout *drop),
      (ctx, dqkv, d_o, o, qkv, lse, B, T, H, G, D, T_max, drop), 5 * triangle(B, T, H, D))

TIMED(embed_grad,
      (tt_ctx * ctx, const tt_grad *gwte, const tt_grad *gwpe, const void *dx, const int32_t *token,
       int64_t B, int64_t T, int64_t C, const tt_dropout *drop),
      (ctx, gwte, gwpe, dx, token, B, T, C, drop), 0)

TIMED(adamw,
      (tt_ctx * ctx, const tt_master *master, float *m, float *v, void *w, const tt_grad *g,
       int64_t n, const tt_adamw *step),
      (ctx, master, m, v, w, g, n, step), 0)

TIMED(sum_squares, (tt_ctx * ctx, tt_exact *sum, const tt_grad *g, int64_t n), (ctx, sum, g, n), 0)

TIMED(to_act, (tt_ctx * ctx, void *y, const float *x, int64_t n), (ctx, y, x, n), 0)

TIMED(from_act, (tt_ctx * ctx, float *y, const void *x, int64_t n), (ctx, y, x, n), 0)

TIMED(gelu, (tt_ctx * ctx, void *y, const void *x, int64_t n), (ctx, y, x, n), 0)

TIMED(fp8_scale,
      (tt_ctx * ctx, int8_t *exponent, float *amax, const void *x, int64_t rows, int64_t width,
       int64_t size, tt_format format),
      (ctx, exponent, amax, x, rows, width, size, format), 0)

TIMED(fp8_round,
      (tt_ctx * ctx, uint8_t *code, void *x, const int8_t *exponent, int64_t rows, int64_t width,
       int64_t size, tt_format format, bool replace),
      (ctx, code, x, exponent, rows, width, size, format, replace), 0)

TIMED(fp8_value,
      (tt_ctx * ctx, void *x, const uint8_t *code, const int8_t *exponent, int64_t rows,
       int64_t width, int64_t size, tt_format format),
      (ctx, x, code, exponent, rows, width, size, format), 0)

static double timed_peak(tt_ctx *ctx, double seconds)
{
    lap l = begin(ctx);
    double result = ctx->base->peak(ctx, seconds);
    end(ctx, &l, TT_OP_peak, 0);
    return result;
}

#define TAKE(name, type, args) timed->name = timed_##name;
tt_code tt_kernels_time(tt_ctx *ctx, tt_ops *timed, tt_times *times, tt_err *err)
{
    if (ctx->base != NULL) {
        return tt_fail(err, TT_EUSER,
                       "TUTTI_ISA=%s watches every kernel, so its times mean nothing; time another "
                       "table",
                       ctx->ops->isa);
    }
    *times = (tt_times){0};
    *timed = *ctx->ops; /* name, format, sizes and sources are the wrapped table's */
    TT_OPS(TAKE)
    ctx->base = ctx->ops;
    ctx->ops = timed;
    ctx->times = times;
    return TT_OK;
}
