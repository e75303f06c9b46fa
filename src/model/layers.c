/* layers.c: what each kind of layer does, forward and backward, by calling the kernels.
 *
 * Shapes: M = B*T rows of a micro-batch, C channels, F feed-forward width, V vocabulary, H heads of
 * size D, G key-value heads. Activations and their gradients are act; parameter gradients FP32.
 *
 * Invariant: a backward overwrites the gradient of its inputs, except where the input is the
 * residual stream (norm, residual): that gradient is shared by all who read the stream, and is
 * added to. It adds to parameter gradients, one leaf (T rows, one sequence) at a time.
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
    ctx->ops->embed(ctx, x, wte, wpe, pass->token, pass->B, pass->T, pass->model->shape.C,
                    dropout(pass, a, stage, &room));
}

static void embed_backward(tt_pass *pass, const tt_apply *a, int stage)
{
    tt_ctx *ctx = pass->model->ctx;
    tt_dropout room;
    float *gwte = tt_pass_weight_gradient(pass, a->weight, stage); /* [V,C] */
    float *gwpe = tt_pass_weight_gradient(pass, a->bias, stage);   /* [T,C] */
    const void *dx = tt_pass_gradient(pass, a->out);               /* [M,C] */
    ctx->ops->embed_grad(ctx, gwte, gwpe, dx, pass->token, pass->B, pass->T, pass->model->shape.C,
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
    ctx->ops->norm(ctx, y, mean, rstd, x, gain, bias, pass->M, pass->model->shape.C);
}

static void norm_backward(tt_pass *pass, const tt_apply *a, int stage)
{
    tt_ctx *ctx = pass->model->ctx;
    void *dx = tt_pass_gradient(pass, a->in);                       /* [M,C], added to */
    float *ggain = tt_pass_weight_gradient(pass, a->weight, stage); /* [C] */
    float *gbias = tt_pass_weight_gradient(pass, a->bias, stage);   /* [C] */
    const void *dy = tt_pass_gradient(pass, a->out);                /* [M,C] */
    const void *x = tt_pass_slot(pass, a->in, stage);               /* [M,C] */
    const void *gain = tt_pass_weight(pass, a->weight, stage);      /* [C] */
    const float *mean = tt_pass_stats(pass, a->out, stage);         /* [M] */
    const float *rstd = mean + pass->M;                             /* [M] */
    ctx->ops->norm_grad(ctx, dx, ggain, gbias, dy, x, gain, mean, rstd, pass->M,
                        pass->model->shape.C, pass->T);
}

/* ---- linear: y[M,N] = x[M,K] w[N,K]^T + bias[N] ---- */

static double linear_flops(const tt_shape *shape, int64_t weights)
{
    (void)shape;
    return 2.0 * (double)weights;
}

static void linear_forward(tt_pass *pass, const tt_apply *a, int stage)
{
    tt_ctx *ctx = pass->model->ctx;
    int64_t N = tt_slot_width(&pass->model->shape, a->out);
    int64_t K = tt_slot_width(&pass->model->shape, a->in);
    void *y = tt_pass_slot(pass, a->out, stage);             /* [M,N] */
    const void *x = tt_pass_slot(pass, a->in, stage);        /* [M,K] */
    const void *w = tt_pass_weight(pass, a->weight, stage);  /* [N,K] */
    const void *bias = tt_pass_weight(pass, a->bias, stage); /* [N] */
    ctx->ops->gemm_nt(ctx, y, x, w, bias, pass->M, N, K);
}

static void linear_backward(tt_pass *pass, const tt_apply *a, int stage)
{
    tt_ctx *ctx = pass->model->ctx;
    int64_t N = tt_slot_width(&pass->model->shape, a->out);
    int64_t K = tt_slot_width(&pass->model->shape, a->in);
    void *dx = tt_pass_gradient(pass, a->in);                    /* [M,K] */
    float *gw = tt_pass_weight_gradient(pass, a->weight, stage); /* [N,K] */
    float *gb = tt_pass_weight_gradient(pass, a->bias, stage);   /* [N] */
    const void *dy = tt_pass_gradient(pass, a->out);             /* [M,N] */
    const void *x = tt_pass_slot(pass, a->in, stage);            /* [M,K] */
    const void *w = tt_pass_weight(pass, a->weight, stage);      /* [N,K] */
    ctx->ops->gemm_tn(ctx, gw, dy, x, pass->M, N, K, pass->T);
    ctx->ops->bias_grad(ctx, gb, dy, pass->M, N, pass->T);
    ctx->ops->gemm_nn(ctx, dx, dy, w, pass->M, N, K);
}

/* ---- attention: o = dropout(softmax(causal q k^T / sqrt D)) v ---- */

static int64_t attention_stats(const tt_shape *shape, int64_t B, int64_t T)
{
    return tt_mul(tt_mul(B, T), shape->H); /* lse[B,H,T] */
}

static double attention_flops(const tt_shape *shape, int64_t weights)
{
    (void)weights; /* q k^T and p v, 2 T C each; causal: half of that */
    return 2.0 * (double)shape->T * (double)shape->C;
}

static void attention_forward(tt_pass *pass, const tt_apply *a, int stage)
{
    tt_ctx *ctx = pass->model->ctx;
    const tt_shape *shape = &pass->model->shape;
    tt_dropout room;
    void *o = tt_pass_slot(pass, a->out, stage);        /* [M,H*D] */
    float *lse = tt_pass_stats(pass, a->out, stage);    /* [B,H,T] */
    const void *qkv = tt_pass_slot(pass, a->in, stage); /* [M,(H+2G)*D] */
    ctx->ops->attention(ctx, o, lse, qkv, pass->B, pass->T, shape->H, shape->G, shape->D, shape->T,
                        dropout(pass, a, stage, &room));
}

static void attention_backward(tt_pass *pass, const tt_apply *a, int stage)
{
    tt_ctx *ctx = pass->model->ctx;
    const tt_shape *shape = &pass->model->shape;
    tt_dropout room;
    void *dqkv = tt_pass_gradient(pass, a->in);            /* [M,(H+2G)*D] */
    const void *d_o = tt_pass_gradient(pass, a->out);      /* [M,H*D] */
    const void *o = tt_pass_slot(pass, a->out, stage);     /* [M,H*D] */
    const void *qkv = tt_pass_slot(pass, a->in, stage);    /* [M,(H+2G)*D] */
    const float *lse = tt_pass_stats(pass, a->out, stage); /* [B,H,T] */
    ctx->ops->attention_grad(ctx, dqkv, d_o, o, qkv, lse, pass->B, pass->T, shape->H, shape->G,
                             shape->D, shape->T, dropout(pass, a, stage, &room));
}

/* ---- gelu ---- */

static void gelu_forward(tt_pass *pass, const tt_apply *a, int stage)
{
    tt_ctx *ctx = pass->model->ctx;
    int64_t n = tt_mul(pass->M, tt_slot_width(&pass->model->shape, a->in));
    void *y = tt_pass_slot(pass, a->out, stage);      /* [M,F] */
    const void *x = tt_pass_slot(pass, a->in, stage); /* [M,F] */
    ctx->ops->gelu(ctx, y, x, n);
}

static void gelu_backward(tt_pass *pass, const tt_apply *a, int stage)
{
    tt_ctx *ctx = pass->model->ctx;
    int64_t n = tt_mul(pass->M, tt_slot_width(&pass->model->shape, a->in));
    void *dx = tt_pass_gradient(pass, a->in);         /* [M,F], the same memory as dy */
    const void *dy = tt_pass_gradient(pass, a->out);  /* [M,F] */
    const void *x = tt_pass_slot(pass, a->in, stage); /* [M,F] */
    ctx->ops->gelu_grad(ctx, dx, dy, x, n);
}

/* ---- residual: y = x + dropout(branch) ---- */

static void residual_forward(tt_pass *pass, const tt_apply *a, int stage)
{
    tt_ctx *ctx = pass->model->ctx;
    tt_dropout room;
    void *y = tt_pass_slot(pass, a->out, stage);            /* [M,C] */
    const void *x = tt_pass_slot(pass, a->in, stage);       /* [M,C] */
    const void *branch = tt_pass_slot(pass, a->add, stage); /* [M,C] */
    ctx->ops->residual(ctx, y, x, branch, pass->B, pass->T, pass->model->shape.C,
                       dropout(pass, a, stage, &room));
}

/* The stream's gradient passes through unchanged: x and y share its buffer. So does the branch's
 * when nothing is dropped; then the branch reads the stream's gradient instead of a copy. */
static void residual_backward(tt_pass *pass, const tt_apply *a, int stage)
{
    tt_ctx *ctx = pass->model->ctx;
    tt_dropout room;
    const tt_dropout *drop = dropout(pass, a, stage, &room);
    void *dy = tt_pass_gradient(pass, a->out); /* [M,C] */
    assert(dy == tt_pass_gradient(pass, a->in));
    if (drop == NULL) {
        pass->gradient[a->add] = dy;
        return;
    }
    void *dbranch = tt_pass_gradient(pass, a->add); /* [M,C] */
    ctx->ops->residual_grad(ctx, dbranch, dy, pass->B, pass->T, pass->model->shape.C, drop);
}

/* ---- head_loss: -log softmax(x w^T)[target], with its gradient in the same call ---- */

static void head_loss_forward(tt_pass *pass, const tt_apply *a, int stage)
{
    tt_ctx *ctx = pass->model->ctx;
    const tt_shape *shape = &pass->model->shape;
    const void *x = tt_pass_slot(pass, a->in, stage);       /* [M,C] */
    const void *w = tt_pass_weight(pass, a->weight, stage); /* [V,C] */
    void *dx = NULL;
    float *gw = NULL;
    if (pass->train) {
        dx = tt_pass_gradient(pass, a->in);                   /* [M,C] */
        gw = tt_pass_weight_gradient(pass, a->weight, stage); /* [V,C] */
    }
    ctx->ops->head_loss(ctx, &pass->loss->sum, &pass->loss->count, NULL, dx, gw, x, w, pass->target,
                        pass->M, shape->V, shape->vocab_used, shape->C, pass->T, pass->scale);
}

/* name, forward, backward, reads input, reads output, statistics, FLOPs */
const tt_layer tt_layers[TT_LAYERS] = {
    [TT_EMBED] = {"embed", embed_forward, embed_backward, false, false, NULL, NULL},
    [TT_NORM] = {"norm", norm_forward, norm_backward, true, false, norm_stats, NULL},
    [TT_LINEAR] = {"linear", linear_forward, linear_backward, true, false, NULL, linear_flops},
    [TT_ATTENTION] = {"attention", attention_forward, attention_backward, true, true,
                      attention_stats, attention_flops},
    [TT_GELU] = {"gelu", gelu_forward, gelu_backward, true, false, NULL, NULL},
    [TT_RESIDUAL] = {"residual", residual_forward, residual_backward, false, false, NULL, NULL},
    [TT_HEAD_LOSS] = {"head_loss", head_loss_forward, NULL, false, false, NULL, linear_flops},
};
