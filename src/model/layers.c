/* layers.c: what each kind of layer does, forward and backward, by calling the kernels.
 *
 * Shapes: M = B*T rows of a micro-batch, C channels, F feed-forward width, V vocabulary, H heads of
 * size D, G key-value heads. Activations and their gradients are act; parameter gradients FP32
 * or fixed point (tt_grad).
 *
 * Invariant: a backward overwrites the gradient of its input, except where that is the residual
 * stream (norm): its gradient is shared by all who read the stream, and is added to, or left alone
 * by who adds to the stream (linear_residual). It adds to parameter gradients, one leaf (T rows, one
 * sequence) at a time.
 *
 * Owns nothing. Reads and writes through tt_pass; next: model.c runs the programs. */
#include <assert.h>

#include "model_impl.h"
#include "tutti/base/narrow.h"

/* The dropout of an application in *room; NULL when there is none. */
static const tt_dropout *dropout(const tt_pass *pass, const tt_apply *a, int stage,
                                 tt_dropout *room)
{
    double p = pass->model->shape.dropout;
    if (a->dropout == TT_NO_DROPOUT || !pass->train || p == 0.0) {
        return NULL;
    }
    *room = (tt_dropout){
        .key = pass->key,
        .site = (uint64_t)stage * TT_SITES_PER_STAGE + a->dropout,
        .threshold = (uint32_t)(p * 4294967296.0),
        .scale = (float)(1.0 / (1.0 - p)),
        .sample = pass->sample,
    };
    return room;
}

/* ---- embed: x = dropout(wte[token] + wpe[t]) ---- */

static void embed_forward(tt_pass *pass, const tt_apply *a, int stage)
{
    tt_ctx *ctx = pass->model->ctx;
    tt_dropout room;
    void *x = tt_pass_slot(pass, a->out, stage);              /* [M,C] */
    const void *wte = tt_pass_weight(pass, a->weight, stage); /* [V,C] */
    const void *wpe = tt_pass_weight(pass, a->bias, stage);   /* [T,C] */
    tt_pass_count(pass, ctx, TT_PART_FORWARD, tt_seen_slot(a->out), 0);
    ctx->ops->embed(ctx, x, wte, wpe, pass->token, pass->B, pass->T, pass->model->shape.C,
                    dropout(pass, a, stage, &room));
}

static void embed_backward(tt_pass *pass, const tt_apply *a, int stage)
{
    tt_ctx *ctx = pass->model->ctx;
    tt_dropout room;
    const tt_grad gwte = tt_pass_weight_gradient(pass, a->weight, stage); /* [V,C] */
    const tt_grad gwpe = tt_pass_weight_gradient(pass, a->bias, stage);   /* [T,C] */
    const void *dx = tt_pass_gradient(pass, a->out);                      /* [M,C] */
    ctx->ops->embed_grad(ctx, &gwte, &gwpe, dx, pass->token, pass->B, pass->T, pass->model->shape.C,
                         dropout(pass, a, stage, &room));
}

/* ---- norm: y = (x - mean) * rstd * gain + bias ---- */

static int64_t norm_stats(const tt_shape *shape, int64_t B, int64_t T)
{
    (void)shape;
    return 2 * tt_mul(B, T); /* mean[M], rstd[M] */
}

static void norm_forward(tt_pass *pass, const tt_apply *a, int stage)
{
    tt_ctx *ctx = pass->model->ctx;
    void *y = tt_pass_slot(pass, a->out, stage);               /* [M,C] */
    float *mean = tt_pass_stats(pass, a->out, stage);          /* [M] */
    float *rstd = mean + pass->M;                              /* [M] */
    const void *x = tt_pass_slot(pass, a->in, stage);          /* [M,C] */
    const void *gain = tt_pass_weight(pass, a->weight, stage); /* [C] */
    const void *bias = tt_pass_weight(pass, a->bias, stage);   /* [C] */
    tt_pass_count(pass, ctx, TT_PART_FORWARD, tt_seen_slot(a->out), 0);
    ctx->ops->norm(ctx, y, mean, rstd, x, gain, bias, pass->M, pass->model->shape.C);
}

static void norm_backward(tt_pass *pass, const tt_apply *a, int stage)
{
    tt_ctx *ctx = pass->model->ctx;
    void *dx = tt_pass_gradient(pass, a->in);                              /* [M,C], added to */
    const tt_grad ggain = tt_pass_weight_gradient(pass, a->weight, stage); /* [C] */
    const tt_grad gbias = tt_pass_weight_gradient(pass, a->bias, stage);   /* [C] */
    const void *dy = tt_pass_gradient(pass, a->out);                       /* [M,C] */
    const void *x = tt_pass_slot(pass, a->in, stage);                      /* [M,C] */
    const void *gain = tt_pass_weight(pass, a->weight, stage);             /* [C] */
    const float *mean = tt_pass_stats(pass, a->out, stage);                /* [M] */
    const float *rstd = mean + pass->M;                                    /* [M] */
    tt_pass_count(pass, ctx, TT_PART_BACKWARD, tt_seen_slot(a->in), 0);
    ctx->ops->norm_grad(ctx, dx, &ggain, &gbias, dy, x, gain, mean, rstd, pass->M,
                        pass->model->shape.C, pass->T);
}

/* ---- linear: y[M,N] = x[M,K] w[N,K]^T + bias[N], and what its epilogue makes of the sum ---- */

static void multiply_forward(tt_pass *pass, const tt_apply *a, int stage, tt_epilogue e)
{
    tt_ctx *ctx = tt_pass_ctx(pass, a);
    int64_t N = tt_slot_width(&pass->model->shape, a->out);
    int64_t K = tt_slot_width(&pass->model->shape, a->in);
    void *y = tt_pass_slot(pass, a->out, stage);        /* [M,N] */
    const void *x = tt_pass_slot(pass, a->in, stage);   /* [M,K] */
    const tt_weight w = tt_pass_matrix(pass, a, stage); /* [N,K] */
    e.bias = tt_pass_weight(pass, a->bias, stage);      /* [N] */
    tt_pass_count(pass, ctx, TT_PART_FORWARD, tt_seen_slot(a->out),
                  e.before != NULL ? tt_seen_slot(tt_slots[a->out].gelu_of) : 0);
    ctx->ops->gemm_nt(ctx, y, x, &w, &e, pass->M, N, K, pass->T);
}

/* From dy[M,N], the gradient of x w^T + bias. Where x is GELU of a slot, it goes on to that slot. */
static void multiply_backward(tt_pass *pass, const tt_apply *a, int stage, void *dy)
{
    tt_ctx *ctx = tt_pass_ctx(pass, a);
    int64_t N = tt_slot_width(&pass->model->shape, a->out);
    int64_t K = tt_slot_width(&pass->model->shape, a->in);
    const tt_slot source = tt_slots[a->in].gelu_of;
    const bool gelu = source != TT_NO_SLOT;
    void *dx = tt_pass_gradient(pass, gelu ? source : a->in);                         /* [M,K] */
    const tt_grad gw = tt_pass_weight_gradient(pass, a->weight, stage);               /* [N,K] */
    const tt_grad gb = tt_pass_weight_gradient(pass, a->bias, stage);                 /* [N] */
    const void *x = tt_pass_slot(pass, a->in, stage);                                 /* [M,K] */
    const tt_weight w = tt_pass_matrix(pass, a, stage);                               /* [N,K] */
    const tt_epilogue e = {.slope = gelu ? tt_pass_slot(pass, source, stage) : NULL}; /* [M,K] */
    tt_pass_round_gradient(pass, dy, a, stage);
    ctx->ops->gemm_tn(ctx, &gw, &gb, dy, x, pass->M, N, K, pass->T);
    tt_pass_count(pass, ctx, TT_PART_BACKWARD, tt_seen_slot(gelu ? source : a->in), 0);
    ctx->ops->gemm_nn(ctx, dx, dy, &w, gelu ? &e : NULL, pass->M, N, K, pass->T);
}

static void linear_forward(tt_pass *pass, const tt_apply *a, int stage)
{
    multiply_forward(pass, a, stage, (tt_epilogue){0});
}

static void linear_backward(tt_pass *pass, const tt_apply *a, int stage)
{
    multiply_backward(pass, a, stage, tt_pass_gradient(pass, a->out));
}

/* ---- linear_gelu: y = gelu(z), z = x w^T + bias; both are kept, the gradient is z's ---- */

static void linear_gelu_forward(tt_pass *pass, const tt_apply *a, int stage)
{
    void *z = tt_pass_slot(pass, tt_slots[a->out].gelu_of, stage); /* [M,N] */
    multiply_forward(pass, a, stage, (tt_epilogue){.before = z});
}

static void linear_gelu_backward(tt_pass *pass, const tt_apply *a, int stage)
{
    multiply_backward(pass, a, stage, tt_pass_gradient(pass, tt_slots[a->out].gelu_of));
}

/* ---- linear_residual: y = r + dropout(x w^T + bias) ---- */

static void linear_residual_forward(tt_pass *pass, const tt_apply *a, int stage)
{
    tt_dropout room;
    const tt_epilogue e = {.residual = tt_pass_slot(pass, a->add, stage), /* [M,C] */
                           .drop = dropout(pass, a, stage, &room),
                           .T = pass->T};
    multiply_forward(pass, a, stage, e);
}

/* The stream's gradient passes through unchanged: r and y share its buffer. It is the branch's too
 * when nothing is dropped or rounded. */
static void linear_residual_backward(tt_pass *pass, const tt_apply *a, int stage)
{
    tt_ctx *ctx = pass->model->ctx;
    tt_dropout room;
    const tt_dropout *drop = dropout(pass, a, stage, &room);
    void *dy = tt_pass_gradient(pass, a->out); /* [M,C] */
    assert(dy == tt_pass_gradient(pass, a->add));
    if (drop != NULL || tt_pass_rounds_gradient(pass, a)) {
        void *branch = tt_pass_buffer(pass, TT_BUF_NARROW); /* [M,C] */
        tt_pass_count(pass, ctx, TT_PART_BACKWARD, tt_seen_gradient(a), 0);
        ctx->ops->residual_grad(ctx, branch, dy, pass->B, pass->T, pass->model->shape.C, drop);
        dy = branch;
    }
    multiply_backward(pass, a, stage, dy);
}

/* ---- attention: o = dropout(softmax(causal q k^T / sqrt D)) v ---- */

static int64_t attention_stats(const tt_shape *shape, int64_t B, int64_t T)
{
    return tt_mul(tt_mul(B, T), shape->H); /* lse[B,H,T] */
}

static double attention_flops(const tt_shape *shape)
{
    /* q k^T and p v, 2 T C each; causal: half of that */
    return 2.0 * (double)shape->T * (double)shape->C;
}

static void attention_forward(tt_pass *pass, const tt_apply *a, int stage)
{
    tt_ctx *ctx = tt_pass_ctx(pass, a);
    const tt_shape *shape = &pass->model->shape;
    tt_dropout room;
    void *o = tt_pass_slot(pass, a->out, stage);        /* [M,H*D] */
    float *lse = tt_pass_stats(pass, a->out, stage);    /* [B,H,T] */
    const void *qkv = tt_pass_slot(pass, a->in, stage); /* [M,(H+2G)*D] */
    tt_pass_count(pass, ctx, TT_PART_FORWARD, tt_seen_slot(a->out), 0);
    ctx->ops->attention(ctx, o, lse, qkv, pass->B, pass->T, shape->H, shape->G, shape->D, shape->T,
                        dropout(pass, a, stage, &room));
}

static void attention_backward(tt_pass *pass, const tt_apply *a, int stage)
{
    tt_ctx *ctx = tt_pass_ctx(pass, a);
    const tt_shape *shape = &pass->model->shape;
    tt_dropout room;
    void *dqkv = tt_pass_gradient(pass, a->in);            /* [M,(H+2G)*D] */
    const void *d_o = tt_pass_gradient(pass, a->out);      /* [M,H*D] */
    const void *o = tt_pass_slot(pass, a->out, stage);     /* [M,H*D] */
    const void *qkv = tt_pass_slot(pass, a->in, stage);    /* [M,(H+2G)*D] */
    const float *lse = tt_pass_stats(pass, a->out, stage); /* [B,H,T] */
    tt_pass_count(pass, ctx, TT_PART_BACKWARD, tt_seen_slot(a->in), 0);
    ctx->ops->attention_grad(ctx, dqkv, d_o, o, qkv, lse, pass->B, pass->T, shape->H, shape->G,
                             shape->D, shape->T, dropout(pass, a, stage, &room));
}

/* ---- head_loss: -log softmax(x w^T)[target], with its gradient in the same call ---- */

static void head_loss_forward(tt_pass *pass, const tt_apply *a, int stage)
{
    tt_ctx *ctx = tt_pass_ctx(pass, a);
    const tt_shape *shape = &pass->model->shape;
    const void *x = tt_pass_slot(pass, a->in, stage);   /* [M,C] */
    const tt_weight w = tt_pass_matrix(pass, a, stage); /* [V,C] */
    void *dx = NULL;
    tt_grad gw = {.sum = NULL};
    if (pass->train) {
        dx = tt_pass_gradient(pass, a->in);                   /* [M,C] */
        gw = tt_pass_weight_gradient(pass, a->weight, stage); /* [V,C] */
    }
    tt_pass_count(pass, ctx, TT_PART_BACKWARD, tt_seen_slot(a->in), TT_SEEN_LOGITS);
    ctx->ops->head_loss(ctx, &pass->loss->sum, &pass->loss->count, NULL, dx, &gw, x, &w,
                        pass->target, pass->M, shape->V, shape->vocab_used, shape->C, pass->T,
                        pass->scale);
}

/* clang-format off */
const tt_layer tt_layers[TT_LAYERS] = {
    /* name, forward, backward, matmul, reads input, reads output, cheap, statistics, FLOPs */
    [TT_EMBED] = {"embed", embed_forward, embed_backward, false, false, false, false, NULL, NULL},
    [TT_NORM] = {"norm", norm_forward, norm_backward, false, true, false, true, norm_stats, NULL},
    [TT_LINEAR] = {"linear", linear_forward, linear_backward,
                   true, true, false, false, NULL, NULL},
    [TT_LINEAR_GELU] = {"linear_gelu", linear_gelu_forward, linear_gelu_backward,
                        true, true, false, false, NULL, NULL},
    [TT_LINEAR_RESIDUAL] = {"linear_residual", linear_residual_forward, linear_residual_backward,
                            true, true, false, false, NULL, NULL},
    [TT_ATTENTION] = {"attention", attention_forward, attention_backward,
                      false, true, true, false, attention_stats, attention_flops},
    [TT_HEAD_LOSS] = {"head_loss", head_loss_forward, NULL,
                      true, false, false, false, NULL, NULL},
};
/* clang-format on */
