/* attention.h: causal attention, forward; and what forward and backward share.
 *
 *     s[t,j] = q[t] . k[j] / sqrt(D), j <= t;  lse[t] = log sum_j exp(s[t,j])
 *     o[t]   = sum_j p[t,j] mask[t,j] v[j],    p[t,j] = exp(s[t,j] - lse[t])
 *
 * The T x T square is cut into blocks of SIDE queries by SIDE keys, and only blocks on or below the
 * diagonal are visited, a panel of queries at a time. Scores, weights and outputs of a panel lie
 * turned, s[key, query] and o[d, query]: what softmax does to a query it does to a vector of queries
 * at once, without sums across a vector, and the scores of a panel never leave the first cache.
 * Softmax is online: a query keeps the greatest score so far (top), the sum of exp(s - top) and its
 * output relative to top, and is rescaled when a block raises top.
 *
 * One task is a few blocks of queries of one key-value head (several query heads, where they share
 * keys). It goes over the keys once, packs a block of them and lets each of its blocks of queries
 * see it. So scratch depends on D alone, and tasks are many however few the heads.
 *
 * Invariant: the operations of row t and their order follow from t and constants. What a block holds
 * beyond T or above the diagonal is zero before it meets anything.
 *
 * What is multiplied, and how, is attention_fp32.h, or an instruction set's own: it defines the same
 * names and ATTENTION_OPERANDS, and then includes this.
 *
 * Scratch belongs to the thread: the layout is given by a walk over one block of bytes, which
 * measures when its base is NULL. */
#ifndef TUTTI_KERNELS_GENERIC_ATTENTION_H
#define TUTTI_KERNELS_GENERIC_ATTENTION_H

#include <math.h>

#include "kernels/generic/census.h"
#include "kernels/generic/dropout.h"
#include "kernels/generic/exp.h"
#ifndef ATTENTION_OPERANDS
#include "kernels/generic/attention_fp32.h"
#endif

enum {
    UNITS = 8,                              /* blocks of queries in a task of forward */
    ROOM = VEC > LANES / 2 ? PANEL : LANES, /* rows of operands are padded to a multiple of this */
};

/* The arguments, and what follows from them. */
typedef struct attention_call {
    const act *qkv;
    int64_t T, H, G, D, T_max;
    int64_t stride;       /* from token to token in qkv */
    int64_t width, depth; /* D padded: to ROOM, to PAIR */
    float scale;          /* 1 / sqrt(D) */
    const tt_dropout *drop;
    tt_census *census; /* of what is stored */
} attention_call;

static inline attention_call attention_call_of(const tt_ctx *ctx, const void *qkv, int64_t T,
                                               int64_t H, int64_t G, int64_t D, int64_t T_max,
                                               const tt_dropout *drop)
{
    return (attention_call){.qkv = qkv,
                            .T = T,
                            .H = H,
                            .G = G,
                            .D = D,
                            .T_max = T_max,
                            .stride = (H + 2 * G) * D,
                            .width = tt_round_up(D, ROOM),
                            .depth = tt_round_up(D, PAIR),
                            .scale = 1 / sqrtf((float)D),
                            .drop = dropout_on(drop) ? drop : NULL,
                            .census = ctx->count.result};
}

/* Head `at` of token t of sequence b; heads count q.. k.. v.. */
static inline const act *attention_head(const attention_call *c, int64_t b, int64_t t, int64_t at)
{
    return c->qkv + (b * c->T + t) * c->stride + at * c->D;
}

/* The next `count` elements of `size` bytes of a block that is handed out from its front. */
static inline void *attention_take(unsigned char *base, size_t *used, int64_t count, size_t size)
{
    void *here = base == NULL ? NULL : base + *used;
    *used += tt_padded(tt_bytes(count, size));
    return here;
}

typedef struct attention_scratch {
    operand *k, *v;       /* a block of keys: [SIDE, width] along D, and down the keys */
    operand *p;           /* weights of a panel, down the keys; may be s itself */
    float *s, *mask;      /* [SIDE, PANEL]: key, query */
    float *rows;          /* [PANEL, width]: outputs of a panel, turned back */
    operand *q;           /* [UNITS][SIDE / PANEL][depth, PANEL] down D */
    float *o, *top, *sum; /* [UNITS][SIDE / PANEL][width, PANEL], [UNITS][SIDE] */
    size_t bytes;         /* of all */
} attention_scratch;

static inline attention_scratch attention_layout(unsigned char *base, int64_t D)
{
    int64_t width = tt_round_up(D, ROOM);
    attention_scratch a = {0};
    a.k = attention_take(base, &a.bytes, SIDE * width, sizeof *a.k);
    a.v = attention_take(base, &a.bytes, SIDE * width, sizeof *a.v);
    a.s = attention_take(base, &a.bytes, SIDE * PANEL, sizeof *a.s);
    a.p = PAIR == 1 ? (void *)a.s : attention_take(base, &a.bytes, SIDE * PANEL, sizeof *a.p);
    a.mask = attention_take(base, &a.bytes, SIDE * PANEL, sizeof *a.mask);
    a.rows = attention_take(base, &a.bytes, PANEL * width, sizeof *a.rows);
    a.q = attention_take(base, &a.bytes, UNITS * SIDE * width, sizeof *a.q);
    a.o = attention_take(base, &a.bytes, UNITS * SIDE * width, sizeof *a.o);
    a.top = attention_take(base, &a.bytes, UNITS * SIDE, sizeof *a.top);
    a.sum = attention_take(base, &a.bytes, UNITS * SIDE, sizeof *a.sum);
    return a;
}

/* to[4, 4] out = from[4, 4] turned: elements of 32 bits, rows a stride of them apart. */
static inline void attention_turn_four(uint32_t *restrict to, int64_t to_stride,
                                       const uint32_t *restrict from, int64_t stride)
{
    typedef uint32_t four __attribute__((vector_size(16)));
    four in[4], out[4];
#pragma GCC unroll 4
    for (int n = 0; n < 4; n++) {
        memcpy(&in[n], from + n * stride, sizeof in[n]);
    }
    four low = __builtin_shuffle(in[0], in[1], (four){0, 4, 1, 5});
    four high = __builtin_shuffle(in[2], in[3], (four){0, 4, 1, 5});
    out[0] = __builtin_shuffle(low, high, (four){0, 1, 4, 5});
    out[1] = __builtin_shuffle(low, high, (four){2, 3, 6, 7});
    low = __builtin_shuffle(in[0], in[1], (four){2, 6, 3, 7});
    high = __builtin_shuffle(in[2], in[3], (four){2, 6, 3, 7});
    out[2] = __builtin_shuffle(low, high, (four){0, 1, 4, 5});
    out[3] = __builtin_shuffle(low, high, (four){2, 3, 6, 7});
#pragma GCC unroll 4
    for (int n = 0; n < 4; n++) {
        memcpy(to + n * to_stride, &out[n], sizeof out[n]);
    }
}

/* to out, panels [depth, PANEL] down D, width apart = x[room, width] along D; room: of PANEL. */
static inline void attention_turn(operand *restrict to, const operand *restrict x, int64_t width,
                                  int64_t room, int64_t depth)
{
    for (int64_t i = 0; i < room; i += 4) {
        operand *panel = to + i / PANEL * PANEL * width + i % PANEL * PAIR;
        for (int64_t d = 0; d < depth; d += 4 * PAIR) {
            attention_turn_four((void *)(panel + d * PANEL), PANEL,
                                (const void *)(x + i * width + d), width / PAIR);
        }
    }
}

/* y[D] out = f[D padded to LANES] times scale. */
static inline void attention_store(tt_census *census, act *restrict y, const float *restrict f,
                                   int64_t D, float scale)
{
    for (int64_t d = 0; d < D; d += LANES) {
        wide w = wide_of(f + d);
        EACH_PART(p)
        {
            w.part[p] *= scale;
        }
        wide_store_seen(census, y + d, w, D - d);
    }
}

/* mask[SIDE, PANEL] out: the multipliers of `keys` keys j.. for the queries t.. of head h; any where
 * there is no such query or the key is hidden from it. */
static inline void attention_mask(float *restrict mask, int64_t keys, const attention_call *c,
                                  int64_t b, int64_t h, int64_t t, int64_t j)
{
    int64_t first = (h * c->T_max + t) * c->T_max + j;
    if (c->T_max % 4 == 0) { /* rows of the mask begin with a counter */
        for (int64_t l = 0; l < PANEL; l += VEC) {
            dropout_columns(mask + l, PANEL, tt_round_up(keys, 4), c->drop, b, first + l * c->T_max,
                            c->T_max);
        }
        return;
    }
    for (int64_t l = 0; l < PANEL; l++) {
        float row[SIDE];
        dropout_mask(row, keys, c->drop, b, first + l * c->T_max);
        for (int64_t r = 0; r < keys; r++) {
            mask[r * PANEL + l] = row[r];
        }
    }
}

/* A panel's numbers of queries: PANEL of them. */
typedef struct panel {
    vec part[2];
} panel;

static inline panel panel_of(const float *x)
{
    return (panel){{vec_load(x), vec_load(x + VEC)}};
}

static inline void panel_to(float *y, panel x)
{
    vec_store(y, x.part[0]);
    vec_store(y + VEC, x.part[1]);
}

/* s with `hidden` in the lanes below `first`. */
static inline panel panel_hide(panel s, int64_t first, float hidden)
{
    float lane[PANEL];
    for (int l = 0; l < PANEL; l++) {
        lane[l] = (float)l;
    }
    for (int n = 0; n < 2; n++) {
        s.part[n] =
            vec_below(vec_load(lane + n * VEC), vec_all((float)first), vec_all(hidden), s.part[n]);
    }
    return s;
}

/* scale s - top, where top is no less than scale s but for rounding. Not fused: where top is the rounded
 * product of this very score, the difference is 0. NaN stays NaN. */
TT_INLINE vec attention_below(vec s, float scale, vec top)
{
    return vec_min(vec_all(0), s * scale - top);
}

/* s[keys, PANEL] inout: scores become exp(scale s - top) times mask (NULL: 1), as they enter a product.
 * Returns total plus the sum of the exponentials. */
TT_INLINE panel attention_exp(float *restrict s, int64_t keys, float scale, panel top, panel total,
                              const float *restrict mask)
{
    for (int64_t r = 0; r < keys; r++) {
        for (int n = 0; n < 2; n++) {
            float *at = s + r * PANEL + n * VEC;
            vec p = vec_exp(attention_below(vec_load(at), scale, top.part[n]));
            total.part[n] += p;
            p = mask != NULL ? p * vec_load(mask + r * PANEL + n * VEC) : p;
            vec_store(at, vec_factor(p));
        }
    }
    return total;
}

/* s[keys, PANEL] inout: scores become weights relative to top, times mask (NULL: 1). Row r is hidden
 * from lanes up to r - open. top, sum[PANEL] inout. Returns what the old sum and output are multiplied
 * with. */
static inline panel attention_softmax(float *restrict s, int64_t keys, int64_t open, float scale,
                                      float *restrict top, float *restrict sum,
                                      const float *restrict mask)
{
    for (int64_t r = open; r < keys; r++) {
        panel_to(s + r * PANEL, panel_hide(panel_of(s + r * PANEL), r - open + 1, -INFINITY));
    }
    panel most = panel_of(s), old = panel_of(top), total = panel_of(sum), factor;
    for (int64_t r = 1; r < keys; r++) {
        panel row = panel_of(s + r * PANEL);
        most.part[0] = vec_max(row.part[0], most.part[0]);
        most.part[1] = vec_max(row.part[1], most.part[1]);
    }
    for (int n = 0; n < 2; n++) {
        most.part[n] = vec_max(most.part[n] * scale, old.part[n]);
        factor.part[n] = vec_exp(old.part[n] - most.part[n]);
        total.part[n] *= factor.part[n];
    }
    panel_to(top, most);
    if (mask != NULL) {
        panel_to(sum, attention_exp(s, keys, scale, most, total, mask));
    } else {
        panel_to(sum, attention_exp(s, keys, scale, most, total, NULL));
    }
    return factor;
}

/* o[rows, PANEL] inout *= factor. */
static inline void attention_rescale(float *restrict o, int64_t rows, panel factor)
{
    for (int64_t d = 0; d < rows; d++) {
        panel x = panel_of(o + d * PANEL);
        x.part[0] *= factor.part[0];
        x.part[1] *= factor.part[1];
        panel_to(o + d * PANEL, x);
    }
}

/* Queries i.. of head h, unit u of the task, see the packed block of keys j.. */
static void attention_block(const attention_call *c, const attention_scratch *a, int64_t u,
                            int64_t b, int64_t h, int64_t i, int64_t j)
{
    bool diagonal = i == j;
    int64_t width = c->width, lines = tt_round_up(c->D, STRIP);
    int64_t keys = tt_round_up(tt_min(SIDE, c->T - j), STRIP);
    for (int64_t x = 0; x < tt_min(SIDE, c->T - i); x += PANEL) {
        int64_t seen = diagonal ? tt_min(x + PANEL, keys) : keys, at = u * SIDE + x;
        float *o = a->o + at * width;
        product_along(a->s, PANEL, a->k, width, a->q + at * width, PANEL, seen, PANEL, c->depth,
                      false);
        if (c->drop != NULL) {
            attention_mask(a->mask, seen, c, b, h, i + x, j);
        }
        panel factor = attention_softmax(a->s, seen, diagonal ? x + 1 : seen, c->scale, a->top + at,
                                         a->sum + at, c->drop != NULL ? a->mask : NULL);
        operand_weights_down(a->p, a->s, PANEL, seen);
        if (j > 0) {
            attention_rescale(o, lines, factor);
        }
        product_down(o, PANEL, a->v, width, a->p, PANEL, lines, PANEL, seen, j > 0);
    }
}

/* Packs the queries of unit u: t.. of head h. */
static void attention_begin(const attention_call *c, const attention_scratch *a, int64_t u,
                            int64_t b, int64_t h, int64_t t, int64_t count)
{
    int64_t room = tt_round_up(count, PANEL);
    operand_rows(a->k, c->width, attention_head(c, b, t, h), c->stride, count, room, c->D);
    attention_turn(a->q + u * SIDE * c->width, a->k, c->width, room, c->depth);
    for (int64_t x = u * SIDE; x < (u + 1) * SIDE; x++) {
        a->top[x] = -INFINITY;
        a->sum[x] = 0;
    }
}

/* o and lse of the queries of unit u. */
static void attention_end(const attention_call *c, const attention_scratch *a, act *o, float *lse,
                          int64_t u, int64_t b, int64_t h, int64_t t, int64_t count)
{
    int64_t width = c->width;
    for (int64_t x = 0; x < count; x += PANEL) {
        int64_t at = u * SIDE + x;
        for (int64_t l = 0; l < PANEL; l += 4) {
            for (int64_t d = 0; d < c->D; d += 4) {
                attention_turn_four((void *)(a->rows + l * width + d), width,
                                    (const void *)(a->o + at * width + d * PANEL + l), PANEL);
            }
        }
        for (int64_t l = 0; l < tt_min(PANEL, count - x); l++) {
            int64_t row = t + x + l;
            act *to = o + ((b * c->T + row) * c->H + h) * c->D;
            float sum = a->sum[at + l];
            act_ahead(to + ROWS_AHEAD * c->H * c->D, c->D);
            lse[(b * c->H + h) * c->T + row] = a->top[at + l] + logf(sum);
            attention_store(c->census, to, a->rows + l * width, c->D, 1 / sum);
        }
    }
}

/* o and lse of queries i .. end of `heads` heads from h on, which share key-value head g. */
static void attention_task(const attention_call *c, const attention_scratch *a, act *o, float *lse,
                           int64_t b, int64_t g, int64_t h, int64_t heads, int64_t i, int64_t end)
{
    int64_t each = tt_ceil_div(end - i, SIDE); /* blocks of queries of a head */
    for (int64_t u = 0; u < heads * each; u++) {
        int64_t t = i + u % each * SIDE;
        attention_begin(c, a, u, b, h + u / each, t, tt_min(SIDE, end - t));
    }
    for (int64_t j = 0; j < end; j += SIDE) {
        int64_t keys = tt_min(SIDE, c->T - j), room = tt_round_up(keys, STRIP);
        const act *k = attention_head(c, b, j, c->H + g);
        operand_rows(a->k, c->width, k, c->stride, keys, room, c->D);
        operand_down(a->v, c->width, k + c->G * c->D, c->stride, keys, room, c->D);
        for (int64_t u = 0; u < heads * each; u++) {
            int64_t t = i + u % each * SIDE;
            if (t >= j) {
                attention_block(c, a, u, b, h + u / each, t, j);
            }
        }
    }
    for (int64_t u = 0; u < heads * each; u++) {
        int64_t t = i + u % each * SIDE;
        attention_end(c, a, o, lse, u, b, h + u / each, t, tt_min(SIDE, end - t));
    }
}

static void generic_attention(tt_ctx *ctx, void *o, float *lse, const void *qkv, int64_t B,
                              int64_t T, int64_t H, int64_t G, int64_t D, int64_t T_max,
                              const tt_dropout *drop)
{
    attention_call c = attention_call_of(ctx, qkv, T, H, G, D, T_max, drop);
    size_t each = attention_layout(NULL, D).bytes;
    int64_t group = H / G, heads = tt_min(group, UNITS), tokens = UNITS / heads * SIDE;
    int64_t across = tt_ceil_div(group, heads), down = tt_ceil_div(T, tokens);
    /* Late queries see most keys: their tasks go first, short ones fill the gaps at the end. */
#pragma omp parallel for schedule(dynamic) num_threads(ctx->threads)
    for (int64_t task = 0; task < B * G * across * down; task++) {
        attention_scratch a = attention_layout(ctx->workspace + each * (size_t)tt_thread_id(), D);
        int64_t i = (down - 1 - task / (B * G * across)) * tokens, rest = task % (B * G * across);
        int64_t b = rest / (G * across), g = rest / across % G, h = rest % across * heads;
        attention_task(&c, &a, o, lse, b, g, g * group + h, tt_min(heads, group - h), i,
                       tt_min(i + tokens, T));
    }
}

#endif
