/* attention.h: causal attention, forward; and what forward and backward share.
 *
 *     s[t,j] = q[t] . k[j] / sqrt(D), j <= t;  lse[t] = log sum_j exp(s[t,j])
 *     o[t]   = sum_j p[t,j] mask[t,j] v[j],    p[t,j] = exp(s[t,j] - lse[t])
 *
 * One task is one head of one sequence. Its keys and values are widened to FP32 once, then QUERIES
 * rows of scores at a time are made, turned into probabilities and multiplied with the values. The
 * scores of QUERIES rows are all that is ever stored of the T x T square, and above the diagonal
 * only what shares a square of QUERIES with it is computed; it is set to zero, which adds nothing.
 *
 * Scratch belongs to the thread: the layout is given by a walk over one block of floats, which
 * measures when its base is NULL. */
#ifndef TUTTI_KERNELS_GENERIC_ATTENTION_H
#define TUTTI_KERNELS_GENERIC_ATTENTION_H

#include <math.h>

#include "kernels/generic/dropout.h"
#include "kernels/generic/exp.h"
#include "kernels/generic/multiply.h"

enum { QUERIES = 32 }; /* a multiple of STRIP and PANEL that divides BLOCK */

typedef struct attention_scratch {
    int64_t T, D;                 /* padded: T to QUERIES, D to PANEL */
    int64_t row;                  /* floats in a row of scores: T padded to BLOCK */
    float *k_turned;              /* panels of k^T [D, T] */
    float *v;                     /* panels of v [T, D] (forward) or of v^T [D, T] (backward) */
    float *q;                     /* rows of q / sqrt(D) [QUERIES, D] */
    float *s, *mask;              /* [QUERIES, row], [row] */
    float *out;                   /* [QUERIES, D]: o or dq */
    float *k;                     /* the rest backward only: panels of k [T, D] */
    float *dk, *dv;               /* [T, D] */
    float *ds;                    /* [QUERIES, row] */
    float *d_o;                   /* rows of do [QUERIES, D] */
    float *q_panels, *d_o_panels; /* panels of [QUERIES, D] */
    size_t bytes;                 /* of all */
} attention_scratch;

static inline float *attention_take(attention_scratch *s, unsigned char *base, int64_t floats)
{
    float *here = base == NULL ? NULL : (void *)(base + s->bytes);
    s->bytes += tt_padded(tt_bytes(floats, sizeof(float)));
    return here;
}

static inline attention_scratch attention_layout(unsigned char *base, int64_t T, int64_t D,
                                                 bool backward)
{
    attention_scratch s = {
        .T = tt_round_up(T, QUERIES), .D = tt_round_up(D, PANEL), .row = tt_round_up(T, BLOCK)};
    s.k_turned = attention_take(&s, base, s.T * s.D);
    s.v = attention_take(&s, base, s.T * s.D);
    s.q = attention_take(&s, base, QUERIES * s.D);
    s.s = attention_take(&s, base, QUERIES * s.row);
    s.mask = attention_take(&s, base, s.row);
    s.out = attention_take(&s, base, QUERIES * s.D);
    if (backward) {
        s.k = attention_take(&s, base, s.T * s.D);
        s.dk = attention_take(&s, base, s.T * s.D);
        s.dv = attention_take(&s, base, s.T * s.D);
        s.ds = attention_take(&s, base, QUERIES * s.row);
        s.d_o = attention_take(&s, base, QUERIES * s.D);
        s.q_panels = attention_take(&s, base, QUERIES * s.D);
        s.d_o_panels = attention_take(&s, base, QUERIES * s.D);
    }
    return s;
}

static inline attention_scratch attention_scratch_of(tt_ctx *ctx, int64_t T, int64_t D,
                                                     bool backward)
{
    size_t each = attention_layout(NULL, T, D, backward).bytes;
    return attention_layout(ctx->workspace + each * (size_t)tt_thread_id(), T, D, backward);
}

static inline size_t attention_bytes(const tt_extents *extents, int threads)
{
    return attention_layout(NULL, extents->tokens, extents->head_size, true).bytes *
           (size_t)threads;
}

/* a[room, D] out = rows of x times scale, zero from row `count` on. */
static inline void attention_rows(float *restrict a, const act *restrict x, int64_t stride,
                                  int64_t count, int64_t room, int64_t D, float scale)
{
    for (int64_t i = 0; i < room; i++) {
        for (int64_t d = 0; d < D; d++) {
            a[i * D + d] = i < count ? f32_of_act(x[i * stride + d]) * scale : 0;
        }
    }
}

/* b out = panels of the same as [room, D] padded to whole panels. */
static inline void attention_panels(float *restrict b, const act *restrict x, int64_t stride,
                                    int64_t count, int64_t room, int64_t D, float scale)
{
    for (int64_t panel = 0; panel < D; panel += PANEL, b += room * PANEL) {
        int64_t width = tt_min(PANEL, D - panel);
        for (int64_t i = 0; i < room; i++) {
            for (int64_t d = 0; d < PANEL; d++) {
                bool inside = i < count && d < width;
                b[i * PANEL + d] = inside ? f32_of_act(x[i * stride + panel + d]) * scale : 0;
            }
        }
    }
}

/* b out = panels of x^T as [D, room]. */
static inline void attention_panels_turned(float *restrict b, const act *restrict x, int64_t stride,
                                           int64_t count, int64_t room, int64_t D)
{
    for (int64_t panel = 0; panel < room; panel += PANEL, b += D * PANEL) {
        for (int64_t j = 0; j < PANEL; j++) {
            bool inside = panel + j < count;
            const act *row = x + (inside ? (panel + j) * stride : 0);
            for (int64_t d = 0; d < D; d++) {
                b[d * PANEL + j] = inside ? f32_of_act(row[d]) : 0;
            }
        }
    }
}

/* y out = the first `count` rows and D columns of f[.., stride_f] times scale. */
static inline void attention_store(act *restrict y, int64_t stride, const float *restrict f,
                                   int64_t stride_f, int64_t count, int64_t D, float scale)
{
    for (int64_t i = 0; i < count; i++) {
        for (int64_t d = 0; d < D; d++) {
            y[i * stride + d] = act_of_f32(f[i * stride_f + d] * scale);
        }
    }
}

/* s[count padded to BLOCK] inout: scores become exp(s - max), zero beyond count. Returns the log of
 * the sum of the exponentials of the scores; *inverse out = 1 / sum of exp(s - max). */
static inline float attention_softmax(float *s, int64_t count, float *inverse)
{
    int64_t room = tt_round_up(count, BLOCK);
    for (int64_t j = count; j < room; j++) {
        s[j] = s[0];
    }
    float top[LANES];
    memcpy(top, s, sizeof top);
    for (int64_t j = 0; j < room; j += LANES) {
        for (int l = 0; l < LANES; l++) {
            top[l] = s[j + l] > top[l] ? s[j + l] : top[l];
        }
    }
    float max = top[0];
    for (int l = 1; l < LANES; l++) {
        max = top[l] > max ? top[l] : max;
    }
    float lanes[LANES] = {0};
    for (int64_t j = 0; j < room; j += BLOCK) {
        for (int i = 0; i < BLOCK; i++) {
            s[j + i] = exp_f32(s[j + i] - max);
        }
        block_clear(s + j, count - j);
        lanes_add(lanes, s + j);
    }
    float sum = lanes_total(lanes);
    *inverse = 1 / sum;
    return max + logf(sum);
}

/* s[count] inout *= the multipliers of row t of head h. */
static inline void attention_dropout(float *restrict s, float *restrict mask, int64_t count,
                                     const tt_dropout *drop, int64_t b, int64_t h, int64_t t,
                                     int64_t T_max)
{
    dropout_mask(mask, count, drop, b, (h * T_max + t) * T_max);
    for (int64_t j = 0; j < count; j++) {
        s[j] *= mask[j];
    }
}

static void generic_attention(tt_ctx *ctx, void *o_, float *lse, const void *qkv_, int64_t B,
                              int64_t T, int64_t H, int64_t G, int64_t D, int64_t T_max,
                              const tt_dropout *drop)
{
    act *o = o_;
    const act *qkv = qkv_;
    int64_t stride = (H + 2 * G) * D;
    float scale = 1 / sqrtf((float)D);
#pragma omp parallel for num_threads(ctx->threads)
    for (int64_t task = 0; task < B * H; task++) {
        int64_t b = task / H, h = task % H, g = h / (H / G);
        attention_scratch a = attention_scratch_of(ctx, T, D, false);
        const act *q = qkv + b * T * stride + h * D;
        attention_panels_turned(a.k_turned, qkv + b * T * stride + (H + g) * D, stride, T, a.T, D);
        attention_panels(a.v, qkv + b * T * stride + (H + G + g) * D, stride, T, a.T, D, 1);
        for (int64_t t = 0; t < T; t += QUERIES) {
            int64_t rows = tt_min(QUERIES, T - t), keys = t + QUERIES;
            attention_rows(a.q, q + t * stride, stride, rows, QUERIES, D, scale);
            multiply(a.s, a.row, a.q, D, 1, a.k_turned, D * PANEL, QUERIES, keys, D, false);
            float inverse[QUERIES];
            for (int64_t i = 0; i < rows; i++) {
                float *s = a.s + i * a.row;
                lse[(b * H + h) * T + t + i] = attention_softmax(s, t + i + 1, &inverse[i]);
                if (dropout_on(drop)) {
                    attention_dropout(s, a.mask, t + i + 1, drop, b, h, t + i, T_max);
                }
            }
            multiply(a.out, a.D, a.s, a.row, 1, a.v, a.T * PANEL, QUERIES, a.D, keys, false);
            for (int64_t i = 0; i < rows; i++) {
                attention_store(o + (b * T + t + i) * H * D + h * D, H * D, a.out + i * a.D, a.D, 1,
                                D, inverse[i]);
            }
        }
    }
}

#endif
