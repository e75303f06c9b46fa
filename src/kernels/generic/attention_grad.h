/* attention_grad.h: causal attention, backward by recomputing the probabilities from lse.
 *
 *     dv[j]   = sum_t p[t,j] mask[t,j] do[t]
 *     ds[t,j] = p[t,j] (mask[t,j] (do[t] . v[j]) - do[t] . o[t])
 *     dq[t]   = sum_j ds[t,j] k[j] / sqrt(D),    dk[j] = sum_t ds[t,j] q[t] / sqrt(D)
 *
 * do . o is the row sum of p times its gradient, dropout included, because o was made with it.
 *
 * The triangle of one head is cut into squares of STEP queries by STEP keys. A square adds to dq of
 * its queries and to dk and dv of its keys, which live in FP32 for the whole sequence. Squares are
 * done in rounds: round r takes queries n and keys n - r, for all n. The squares of a round touch
 * different queries and different keys, so a team may share them out without races; and dq, dk, dv
 * get their shares in the order of rounds, whoever does them. While there are heads for all, each
 * thread takes whole heads, in the same order; the team shares the heads that are left.
 *
 * dk and dv add the query heads of their group in order. */
#ifndef TUTTI_KERNELS_GENERIC_ATTENTION_GRAD_H
#define TUTTI_KERNELS_GENERIC_ATTENTION_GRAD_H

#include "kernels/generic/attention.h"

enum {
    STEP = 3 * SIDE, /* tokens on a side of a square */
    SLICE = 24, /* rows of a product that share one bound at the diagonal; a multiple of TALL */
};

/* What a square is made from and in; one per thread. */
typedef struct attention_grad_scratch {
    operand *k, *k_down, *v;         /* [STEP, width], along D or down the keys */
    operand *q, *d_o;                /* [STEP, width] down the queries */
    operand *q_turned, *d_o_turned;  /* [STEP / PANEL][depth, PANEL] down D */
    operand *rows;                   /* [SIDE, width] along D, on the way to the latter */
    float *lse, *dot;                /* [STEP]; dot = do . o */
    float *s, *ds, *mask;            /* a block: [SIDE, SIDE] key, query; mask [SIDE, PANEL] */
    operand *p, *ds_along, *ds_down; /* the same as operands; may be s and ds themselves */
    size_t bytes;
} attention_grad_scratch;

/* Gradients of one head: FP32 [T padded to SIDE, width] each. */
typedef struct attention_grad_sums {
    float *dq, *dk, *dv;
    size_t bytes;
} attention_grad_sums;

static inline attention_grad_scratch attention_grad_layout(unsigned char *base, int64_t D)
{
    int64_t width = tt_round_up(D, ROOM), block = SIDE * SIDE;
    attention_grad_scratch a = {0};
    bool same = PAIR == 1;
    a.k = attention_take(base, &a.bytes, STEP * width, sizeof *a.k);
    a.k_down = same ? a.k : attention_take(base, &a.bytes, STEP * width, sizeof *a.k_down);
    a.v = attention_take(base, &a.bytes, STEP * width, sizeof *a.v);
    a.q = attention_take(base, &a.bytes, STEP * width, sizeof *a.q);
    a.d_o = attention_take(base, &a.bytes, STEP * width, sizeof *a.d_o);
    a.q_turned = attention_take(base, &a.bytes, STEP * width, sizeof *a.q_turned);
    a.d_o_turned = attention_take(base, &a.bytes, STEP * width, sizeof *a.d_o_turned);
    a.rows = same ? NULL : attention_take(base, &a.bytes, SIDE * width, sizeof *a.rows);
    a.lse = attention_take(base, &a.bytes, STEP, sizeof *a.lse);
    a.dot = attention_take(base, &a.bytes, STEP, sizeof *a.dot);
    a.s = attention_take(base, &a.bytes, block, sizeof *a.s);
    a.ds = attention_take(base, &a.bytes, block, sizeof *a.ds);
    a.mask = attention_take(base, &a.bytes, SIDE * PANEL, sizeof *a.mask);
    a.p = same ? (void *)a.s : attention_take(base, &a.bytes, block, sizeof *a.p);
    a.ds_along = same ? (void *)a.ds : attention_take(base, &a.bytes, block, sizeof *a.ds_along);
    a.ds_down = same ? (void *)a.ds : attention_take(base, &a.bytes, block, sizeof *a.ds_down);
    return a;
}

static inline attention_grad_sums attention_grad_sums_of(unsigned char *base, int64_t T, int64_t D)
{
    int64_t floats = tt_round_up(T, SIDE) * tt_round_up(D, ROOM);
    attention_grad_sums s = {0};
    s.dq = attention_take(base, &s.bytes, floats, sizeof *s.dq);
    s.dk = attention_take(base, &s.bytes, floats, sizeof *s.dk);
    s.dv = attention_take(base, &s.bytes, floats, sizeof *s.dv);
    return s;
}

static inline size_t attention_bytes(const tt_extents *extents, int threads)
{
    int64_t T = extents->tokens, D = extents->head_size;
    size_t forward = attention_layout(NULL, D).bytes;
    size_t backward = attention_grad_layout(NULL, D).bytes;
    backward += attention_grad_sums_of(NULL, T, D).bytes;
    return (forward > backward ? forward : backward) * (size_t)threads;
}

static inline float attention_dot(const act *restrict x, const act *restrict y, int64_t D)
{
    wide sum = wide_zero();
    for (int64_t d = 0; d < D; d += LANES) {
        wide f = wide_load_act(x + d, D - d), g = wide_load_act(y + d, D - d);
        EACH_PART(p)
        {
            sum.part[p] = vec_fma(f.part[p], g.part[p], sum.part[p]);
        }
    }
    return wide_total(sum);
}

/* In: s = scores, ds = do . v. Out, as they enter products: s = p mask, ds = the gradient of the scores;
 * mask NULL: 1. Panels of `keys` rows SIDE apart; row r is hidden from lanes up to r - open. */
TT_INLINE void attention_grad_panel(float *restrict s, float *restrict ds, int64_t keys,
                                    int64_t open, float scale, const float *restrict lse,
                                    const float *restrict dot, const float *restrict mask)
{
    panel base = panel_of(lse), mean = panel_of(dot);
    for (int64_t r = 0; r < keys; r++, s += SIDE, ds += SIDE) {
        panel p = panel_of(s), slope = panel_of(ds);
        for (int n = 0; n < 2; n++) {
            vec keep = mask != NULL ? vec_load(mask + r * PANEL + n * VEC) : vec_all(1);
            vec w = vec_exp(attention_below(p.part[n], scale, base.part[n]));
            slope.part[n] = vec_factor(w * vec_fma(keep, slope.part[n], -mean.part[n]));
            p.part[n] = vec_factor(w * keep);
        }
        panel_to(s, r < open ? p : panel_hide(p, r - open + 1, 0));
        panel_to(ds, r < open ? slope : panel_hide(slope, r - open + 1, 0));
    }
}

/* One block of head h: queries i.. at `x` of the square, keys j.. at `y` of it. */
static void attention_grad_block(const attention_call *c, const attention_grad_scratch *a,
                                 const attention_grad_sums *sums, int64_t b, int64_t h, int64_t i,
                                 int64_t x, int64_t j, int64_t y)
{
    bool diagonal = i == j;
    int64_t queries = tt_round_up(tt_min(SIDE, c->T - i), STRIP), width = c->width;
    int64_t keys = tt_round_up(tt_min(SIDE, c->T - j), STRIP);
    const operand *q_turned = a->q_turned + x * width, *d_o_turned = a->d_o_turned + x * width;
    const operand *k = a->k + y * width, *v = a->v + y * width;
    for (int64_t n = 0; n < queries; n += PANEL) {
        int64_t seen = diagonal ? tt_min(n + PANEL, keys) : keys;
        int64_t open = diagonal ? n + 1 : keys;
        float *s = a->s + n, *ds = a->ds + n;
        product_along(s, SIDE, k, width, q_turned + n * width, PANEL, seen, PANEL, c->depth, false);
        product_along(ds, SIDE, v, width, d_o_turned + n * width, PANEL, seen, PANEL, c->depth,
                      false);
        if (c->drop != NULL) {
            attention_mask(a->mask, seen, c, b, h, i + n, j);
            attention_grad_panel(s, ds, seen, open, c->scale, a->lse + x + n, a->dot + x + n,
                                 a->mask);
        } else {
            attention_grad_panel(s, ds, seen, open, c->scale, a->lse + x + n, a->dot + x + n, NULL);
        }
        for (int64_t r = seen; r < keys; r++) {
            memset(s + r * SIDE, 0, PANEL * sizeof *s);
            memset(ds + r * SIDE, 0, PANEL * sizeof *ds);
        }
        operand_weights_along(a->p + n, s, SIDE, keys);
        operand_weights_along(a->ds_along + n, ds, SIDE, keys);
        operand_weights_down(a->ds_down + n * PAIR, ds, SIDE, keys);
    }
    for (int64_t n = 0; n < keys; n += SLICE) {
        int64_t first = diagonal ? n : 0, rows = tt_min(SLICE, keys - n), at = (j + n) * width;
        product_along(sums->dv + at, width, a->p + n * SIDE + first, SIDE,
                      a->d_o + (x + first) * width, width, rows, width, queries - first, true);
        product_along(sums->dk + at, width, a->ds_along + n * SIDE + first, SIDE,
                      a->q + (x + first) * width, width, rows, width, queries - first, true);
    }
    for (int64_t n = 0; n < queries; n += SLICE) {
        int64_t rows = tt_min(SLICE, queries - n),
                depth = diagonal ? tt_min(n + SLICE, keys) : keys;
        product_down(sums->dq + (i + n) * width, width, a->ds_down + n * PAIR, SIDE,
                     a->k_down + y * width, width, rows, width, depth, true);
    }
}

/* The gradient's own arguments. */
typedef struct attention_grad_call {
    attention_call c;
    act *dqkv;
    const act *d_o, *o;
    const float *lse;
} attention_grad_call;

/* to out = x[count, D] down its rows; returns the same along D: to itself or `rows`. */
static inline const operand *attention_grad_pack(operand *to, operand *rows, const act *x,
                                                 int64_t stride, int64_t count,
                                                 const attention_call *c)
{
    int64_t room = tt_round_up(count, PANEL);
    operand_down(to, c->width, x, stride, count, room, c->D);
    if (PAIR == 1) {
        return to;
    }
    operand_rows(rows, c->width, x, stride, count, room, c->D);
    return rows;
}

/* Packs queries i .. end of head h. */
static void attention_grad_queries(const attention_grad_call *g, const attention_grad_scratch *a,
                                   int64_t b, int64_t h, int64_t i, int64_t end)
{
    const attention_call *c = &g->c;
    int64_t width = c->width, out = c->H * c->D;
    for (int64_t t = i; t < end; t += SIDE) {
        int64_t count = tt_min(SIDE, end - t), x = t - i;
        const act *q = attention_head(c, b, t, h);
        const act *d_o = g->d_o + (b * c->T + t) * out + h * c->D;
        const act *o = g->o + (b * c->T + t) * out + h * c->D;
        const operand *rows =
            attention_grad_pack(a->q + x * width, a->rows, q, c->stride, count, c);
        attention_turn(a->q_turned + x * width, rows, width, tt_round_up(count, PANEL), c->depth);
        rows = attention_grad_pack(a->d_o + x * width, a->rows, d_o, out, count, c);
        attention_turn(a->d_o_turned + x * width, rows, width, tt_round_up(count, PANEL), c->depth);
        for (int64_t n = 0; n < SIDE; n++) {
            bool inside = n < count;
            act_ahead(o + (n + ROWS_AHEAD) * out, inside ? c->D : 0);
            a->lse[x + n] = inside ? g->lse[(b * c->H + h) * c->T + t + n] : 0;
            a->dot[x + n] = inside ? attention_dot(d_o + n * out, o + n * out, c->D) : 0;
        }
    }
}

/* Packs keys j .. end of key-value head kv. */
static void attention_grad_keys(const attention_call *c, const attention_grad_scratch *a, int64_t b,
                                int64_t kv, int64_t j, int64_t end)
{
    for (int64_t t = j; t < end; t += SIDE) {
        int64_t count = tt_min(SIDE, end - t), room = tt_round_up(count, STRIP);
        int64_t at = (t - j) * c->width;
        const act *k = attention_head(c, b, t, c->H + kv);
        operand_rows(a->k + at, c->width, k, c->stride, count, room, c->D);
        if (PAIR > 1) {
            operand_down(a->k_down + at, c->width, k, c->stride, count, room, c->D);
        }
        operand_rows(a->v + at, c->width, attention_head(c, b, t, c->H + c->G + kv), c->stride,
                     count, room, c->D);
    }
}

/* The head at `to` out = scale f[count, width]. */
static inline void attention_grad_store(const attention_call *c, act *to, const float *f,
                                        int64_t count, float scale)
{
    for (int64_t x = 0; x < count; x++) {
        act_ahead(to + (x + ROWS_AHEAD) * c->stride, c->D);
        attention_store(c->census, to + x * c->stride, f + x * c->width, c->D, scale);
    }
}

/* The square of queries `row` * STEP.. and keys `col` * STEP.. of query head h. The first that touches
 * a sum clears it, the last writes it out. */
static void attention_grad_square(const attention_grad_call *g, const attention_grad_scratch *a,
                                  const attention_grad_sums *sums, int64_t b, int64_t h,
                                  int64_t row, int64_t col)
{
    const attention_call *c = &g->c;
    int64_t group = c->H / c->G, kv = h / group, width = c->width;
    int64_t i = row * STEP, i_end = tt_min(i + STEP, c->T);
    int64_t j = col * STEP, j_end = tt_min(j + STEP, c->T);
    size_t size = tt_bytes(tt_round_up(j_end - j, SIDE) * width, sizeof *sums->dq);
    if (row == col) {
        memset(sums->dq + i * width, 0, size);
        if (h % group == 0) {
            memset(sums->dk + j * width, 0, size);
            memset(sums->dv + j * width, 0, size);
        }
    }
    attention_grad_queries(g, a, b, h, i, i_end);
    attention_grad_keys(c, a, b, kv, j, j_end);
    for (int64_t y = j; y < j_end; y += SIDE) {
        for (int64_t x = i; x < i_end; x += SIDE) {
            if (x >= y) {
                attention_grad_block(c, a, sums, b, h, x, x - i, y, y - j);
            }
        }
    }
    if (col == 0) {
        attention_grad_store(c, g->dqkv + (b * c->T + i) * c->stride + h * c->D,
                             sums->dq + i * width, i_end - i, c->scale);
    }
    if (i_end == c->T && h % group == group - 1) {
        act *to = g->dqkv + (b * c->T + j) * c->stride + (c->H + kv) * c->D;
        attention_grad_store(c, to, sums->dk + j * width, j_end - j, c->scale);
        attention_grad_store(c, to + c->G * c->D, sums->dv + j * width, j_end - j, 1);
    }
}

static void generic_attention_grad(tt_ctx *ctx, void *dqkv, const void *d_o, const void *o,
                                   const void *qkv, const float *lse, int64_t B, int64_t T,
                                   int64_t H, int64_t G, int64_t D, int64_t T_max,
                                   const tt_dropout *drop)
{
    attention_grad_call g = {.c = attention_call_of(ctx, qkv, T, H, G, D, T_max, drop),
                             .dqkv = dqkv,
                             .d_o = d_o,
                             .o = o,
                             .lse = lse};
    size_t scratch = attention_grad_layout(NULL, D).bytes;
    size_t sums = attention_grad_sums_of(NULL, T, D).bytes;
    unsigned char *all_sums = ctx->workspace + scratch * (size_t)ctx->threads;
    int64_t group = H / G, squares = tt_ceil_div(T, STEP);
    int64_t whole = B * G / ctx->threads * ctx->threads, rest = B * G - whole;
#pragma omp parallel num_threads(ctx->threads)
    {
        size_t me = (size_t)tt_thread_id();
        attention_grad_scratch a = attention_grad_layout(ctx->workspace + scratch * me, D);
        attention_grad_sums own = attention_grad_sums_of(all_sums + sums * me, T, D);
#pragma omp for schedule(dynamic)
        for (int64_t head = 0; head < whole; head++) {
            for (int64_t h = 0; h < group; h++) {
                for (int64_t round = 0; round < squares; round++) {
                    for (int64_t n = round; n < squares; n++) {
                        attention_grad_square(&g, &a, &own, head / G, head % G * group + h, n,
                                              n - round);
                    }
                }
            }
        }
        for (int64_t h = 0; rest > 0 && h < group; h++) {
            for (int64_t round = 0; round < squares; round++) {
#pragma omp for schedule(dynamic)
                for (int64_t task = 0; task < rest * (squares - round); task++) {
                    int64_t slot = task % rest, head = whole + slot, n = round + task / rest;
                    attention_grad_sums its =
                        attention_grad_sums_of(all_sums + sums * (size_t)slot, T, D);
                    attention_grad_square(&g, &a, &its, head / G, head % G * group + h, n,
                                          n - round);
                }
            }
        }
    }
}

#endif
