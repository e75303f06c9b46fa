/* attention.h: causal attention, forward; and what forward and backward share.
 *
 *     s[t,j] = q[t] . k[j] / sqrt(D), j <= t;  lse[t] = log sum_j exp(s[t,j])
 *     o[t]   = sum_j p[t,j] mask[t,j] v[j],    p[t,j] = exp(s[t,j] - lse[t])
 *
 * The T x T square is cut into blocks of SIDE queries by SIDE keys, and only blocks on or below the
 * diagonal are visited. A block of scores is made turned, s[key, query], a panel of queries at a
 * time, so that what softmax does to a query it does to a vector of queries at once, without sums
 * across a vector. Softmax is online: a query keeps the greatest score so far (top), the sum of
 * exp(s - top) and its output relative to top, and is rescaled when a block raises top.
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

#include "kernels/generic/dropout.h"
#include "kernels/generic/exp.h"
#ifndef ATTENTION_OPERANDS
#include "kernels/generic/attention_fp32.h"
#endif

enum {
    UNITS = 8,  /* blocks of queries in a task of forward */
    SLICE = 24, /* rows of a product that share one bound at the diagonal; a multiple of TALL */
};

/* The arguments, and what follows from them. */
typedef struct attention_call {
    const act *qkv;
    int64_t T, H, G, D, T_max;
    int64_t stride;       /* from token to token in qkv */
    int64_t width, depth; /* D padded: to PANEL, to PAIR */
    float scale;          /* 1 / sqrt(D) */
    const tt_dropout *drop;
} attention_call;

static inline attention_call attention_call_of(const void *qkv, int64_t T, int64_t H, int64_t G,
                                               int64_t D, int64_t T_max, const tt_dropout *drop)
{
    return (attention_call){.qkv = qkv,
                            .T = T,
                            .H = H,
                            .G = G,
                            .D = D,
                            .T_max = T_max,
                            .stride = (H + 2 * G) * D,
                            .width = tt_round_up(D, PANEL),
                            .depth = tt_round_up(D, PAIR),
                            .scale = 1 / sqrtf((float)D),
                            .drop = dropout_on(drop) ? drop : NULL};
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
    operand *p;           /* weights of a block, down the keys; may be s itself */
    float *s;             /* [SIDE, SIDE]: key, query */
    float *mask;          /* [SIDE, PANEL] */
    operand *q;           /* [UNITS][depth, SIDE] down D */
    float *o, *top, *sum; /* [UNITS][SIDE, width], [UNITS][SIDE] */
    size_t bytes;         /* of all */
} attention_scratch;

static inline attention_scratch attention_layout(unsigned char *base, int64_t D)
{
    int64_t width = tt_round_up(D, PANEL);
    attention_scratch a = {0};
    a.k = attention_take(base, &a.bytes, SIDE * width, sizeof *a.k);
    a.v = attention_take(base, &a.bytes, SIDE * width, sizeof *a.v);
    a.s = attention_take(base, &a.bytes, SIDE * SIDE, sizeof *a.s);
    a.p = PAIR == 1 ? (void *)a.s : attention_take(base, &a.bytes, SIDE * SIDE, sizeof *a.p);
    a.mask = attention_take(base, &a.bytes, SIDE * PANEL, sizeof *a.mask);
    a.q = attention_take(base, &a.bytes, UNITS * SIDE * width, sizeof *a.q);
    a.o = attention_take(base, &a.bytes, UNITS * SIDE * width, sizeof *a.o);
    a.top = attention_take(base, &a.bytes, UNITS * SIDE, sizeof *a.top);
    a.sum = attention_take(base, &a.bytes, UNITS * SIDE, sizeof *a.sum);
    return a;
}

/* Asks the cache for x[count, D]: rows lie far apart, where the processor does not look ahead. */
static inline void attention_ahead(const act *x, int64_t stride, int64_t count, int64_t D)
{
    enum { LINE = 64 / sizeof(act) };
    for (int64_t i = 0; i < count; i++) {
        for (int64_t d = 0; d < D; d += LINE) {
            __builtin_prefetch(x + i * stride + d);
        }
    }
}

/* to out, down the columns of x: x^T[depth, SIDE], from rows [room, width] along D. Words of PAIR
 * neighbours along D, four by four; room is a multiple of PANEL. */
static inline void attention_turn(operand *restrict to, const operand *restrict x, int64_t width,
                                  int64_t room, int64_t depth)
{
    typedef uint32_t four __attribute__((vector_size(16)));
    for (int64_t i = 0; i < room; i += 4) {
        for (int64_t d = 0; d < depth; d += 4 * PAIR) {
            four in[4], out[4];
            for (int n = 0; n < 4; n++) {
                memcpy(&in[n], x + (i + n) * width + d, sizeof in[n]);
            }
            four low = __builtin_shuffle(in[0], in[1], (four){0, 4, 1, 5});
            four high = __builtin_shuffle(in[2], in[3], (four){0, 4, 1, 5});
            out[0] = __builtin_shuffle(low, high, (four){0, 1, 4, 5});
            out[1] = __builtin_shuffle(low, high, (four){2, 3, 6, 7});
            low = __builtin_shuffle(in[0], in[1], (four){2, 6, 3, 7});
            high = __builtin_shuffle(in[2], in[3], (four){2, 6, 3, 7});
            out[2] = __builtin_shuffle(low, high, (four){0, 1, 4, 5});
            out[3] = __builtin_shuffle(low, high, (four){2, 3, 6, 7});
            for (int n = 0; n < 4; n++) {
                memcpy(to + (d + n * PAIR) * SIDE + i * PAIR, &out[n], sizeof out[n]);
            }
        }
    }
}

/* y[count, D] out = f[count, width] times factor[count] (NULL: 1) times scale. */
static inline void attention_store(act *restrict y, int64_t stride, const float *restrict f,
                                   int64_t width, const float *restrict factor, int64_t count,
                                   int64_t D, float scale)
{
    for (int64_t i = 0; i < count; i++) {
        float by = factor != NULL ? factor[i] * scale : scale;
        for (int64_t d = 0; d < D; d++) {
            y[i * stride + d] = act_of_f32(f[i * width + d] * by);
        }
    }
}

/* mask[keys, PANEL] out: the multipliers of keys j.. for the queries t.. of head h, 0 where none. */
static inline void attention_mask(float *restrict mask, int64_t keys, const attention_call *c,
                                  int64_t b, int64_t h, int64_t t, int64_t j)
{
    memset(mask, 0, tt_bytes(keys * PANEL, sizeof *mask));
    for (int64_t l = 0; l < tt_min(PANEL, c->T - t); l++) {
        float row[SIDE];
        int64_t count = tt_min(keys, t + l + 1 - j);
        if (count > 0) {
            dropout_mask(row, count, c->drop, b, (h * c->T_max + t + l) * c->T_max + j);
        }
        for (int64_t r = 0; r < count; r++) {
            mask[r * PANEL + l] = row[r];
        }
    }
}

/* s[rows, PANEL] inout: scores become exp(scale s - top), added to total. hidden: row r is hidden
 * from lanes below `first` + r, and its weight there is 0. */
static inline void attention_exp(float *restrict s, int64_t rows, bool hidden, int64_t first,
                                 float scale, const float *restrict top, float *restrict total)
{
    for (int64_t r = 0; r < rows; r++, s += SIDE) {
        for (int l = 0; l < PANEL; l++) {
            float p = exp_f32(s[l] * scale - top[l]);
            p = hidden && l < first + r ? 0 : p;
            s[l] = p;
            total[l] += p;
        }
    }
}

/* s[keys, PANEL] inout: scores of a panel become weights relative to top. Rows below `open` are seen
 * by all lanes, row open + r by those above r. top, sum[PANEL] inout; factor[PANEL] out: what the old
 * sum and output are multiplied with. */
static inline void attention_softmax(float *restrict s, int64_t keys, int64_t open, float scale,
                                     float *restrict top, float *restrict sum,
                                     float *restrict factor)
{
    float high[PANEL], total[PANEL];
    for (int64_t r = open; r < keys; r++) {
        for (int l = 0; l < PANEL; l++) {
            s[r * SIDE + l] = l > r - open ? s[r * SIDE + l] : -INFINITY;
        }
    }
    vector low_lanes = vector_load(s), high_lanes = vector_load(s + VECTOR);
    for (int64_t r = 1; r < keys; r++) {
        low_lanes = vector_max(vector_load(s + r * SIDE), low_lanes);
        high_lanes = vector_max(vector_load(s + r * SIDE + VECTOR), high_lanes);
    }
    vector_store(high, low_lanes);
    vector_store(high + VECTOR, high_lanes);
    for (int l = 0; l < PANEL; l++) {
        high[l] = high[l] * scale > top[l] ? high[l] * scale : top[l];
        factor[l] = exp_f32(top[l] - high[l]);
        top[l] = high[l];
        total[l] = sum[l] * factor[l];
    }
    open = tt_min(open, keys);
    attention_exp(s, open, false, 0, scale, high, total);
    attention_exp(s + open * SIDE, keys - open, true, 1, scale, high, total);
    memcpy(sum, total, sizeof total);
}

/* Queries i.. of head h, unit u of the task, see the packed block of keys j.. */
static void attention_block(const attention_call *c, const attention_scratch *a, int64_t u,
                            int64_t b, int64_t h, int64_t i, int64_t j)
{
    bool diagonal = i == j;
    int64_t queries = tt_min(SIDE, c->T - i), width = c->width;
    int64_t keys = tt_round_up(tt_min(SIDE, c->T - j), STRIP);
    const operand *q = a->q + u * SIDE * width;
    float *o = a->o + u * SIDE * width, *top = a->top + u * SIDE, *sum = a->sum + u * SIDE;
    for (int64_t x = 0; x < queries; x += PANEL) {
        int64_t seen = diagonal ? tt_min(x + PANEL, keys) : keys;
        float *s = a->s + x, factor[PANEL];
        product_along(s, SIDE, a->k, width, q + x * PAIR, SIDE, seen, PANEL, c->depth, false);
        attention_softmax(s, seen, diagonal ? x + 1 : keys, c->scale, top + x, sum + x, factor);
        if (c->drop != NULL) {
            attention_mask(a->mask, seen, c, b, h, i + x, j);
            for (int64_t r = 0; r < seen; r++) {
                for (int l = 0; l < PANEL; l++) {
                    s[r * SIDE + l] *= a->mask[r * PANEL + l];
                }
            }
        }
        for (int64_t r = seen; r < keys; r++) {
            memset(s + r * SIDE, 0, PANEL * sizeof *s);
        }
        operand_weights_down(a->p, a->s, x, keys);
        for (int64_t l = 0; j > 0 && l < tt_min(PANEL, queries - x); l++) {
            for (int64_t d = 0; factor[l] != 1 && d < width; d++) {
                o[(x + l) * width + d] *= factor[l];
            }
        }
    }
    for (int64_t x = 0; x < queries; x += SLICE) {
        int64_t rows = tt_min(SLICE, tt_round_up(queries - x, STRIP));
        int64_t depth = diagonal ? tt_min(x + SLICE, keys) : keys;
        product_down(o + x * width, width, a->p + x * PAIR, SIDE, a->v, width, rows, width, depth,
                     j > 0);
    }
}

/* o and lse of queries i .. end of `heads` heads from h on, which share key-value head g. */
static void attention_task(const attention_call *c, const attention_scratch *a, act *o, float *lse,
                           int64_t b, int64_t g, int64_t h, int64_t heads, int64_t i, int64_t end)
{
    int64_t width = c->width, u = 0;
    for (int64_t n = h; n < h + heads; n++) {
        for (int64_t t = i; t < end; t += SIDE, u++) {
            int64_t count = tt_min(SIDE, end - t), room = tt_round_up(count, PANEL);
            operand_rows(a->k, width, attention_head(c, b, t, n), c->stride, count, room, c->D);
            attention_turn(a->q + u * SIDE * width, a->k, width, room, c->depth);
        }
    }
    for (int64_t x = 0; x < u * SIDE; x++) {
        a->top[x] = -INFINITY;
        a->sum[x] = 0;
    }
    for (int64_t j = 0; j < end; j += SIDE) {
        int64_t keys = tt_min(SIDE, c->T - j), room = tt_round_up(keys, STRIP);
        int64_t next = tt_min(SIDE, tt_max(c->T - j - SIDE, 0)), ahead = SIDE * c->stride;
        const act *k = attention_head(c, b, j, c->H + g), *v = k + c->G * c->D;
        operand_rows(a->k, width, k, c->stride, keys, room, c->D);
        operand_down(a->v, width, v, c->stride, keys, room, c->D);
        attention_ahead(next > 0 ? k + ahead : k, c->stride, next, c->D);
        attention_ahead(next > 0 ? v + ahead : v, c->stride, next, c->D);
        u = 0;
        for (int64_t n = h; n < h + heads; n++) {
            for (int64_t t = i; t < end; t += SIDE, u++) {
                if (t >= j) {
                    attention_block(c, a, u, b, n, t, j);
                }
            }
        }
    }
    u = 0;
    for (int64_t n = h; n < h + heads; n++) {
        for (int64_t t = i; t < end; t += SIDE, u++) {
            float *top = a->top + u * SIDE, *sum = a->sum + u * SIDE;
            int64_t count = tt_min(SIDE, end - t);
            for (int64_t x = 0; x < count; x++) {
                lse[(b * c->H + n) * c->T + t + x] = top[x] + logf(sum[x]);
                sum[x] = 1 / sum[x];
            }
            attention_store(o + (b * c->T + t) * c->H * c->D + n * c->D, c->H * c->D,
                            a->o + u * SIDE * width, width, sum, count, c->D, 1);
        }
    }
}

static void generic_attention(tt_ctx *ctx, void *o, float *lse, const void *qkv, int64_t B,
                              int64_t T, int64_t H, int64_t G, int64_t D, int64_t T_max,
                              const tt_dropout *drop)
{
    attention_call c = attention_call_of(qkv, T, H, G, D, T_max, drop);
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
