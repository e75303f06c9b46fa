/* head_loss.h: the output layer and the cross-entropy in one, a chunk of rows at a time.
 *
 *     z = x w^T over the first vocab_used columns;  loss = log sum exp(z) - z[target]
 *     dz = (softmax(z) - onehot(target)) scale, rounded to act;  dx = dz w;  gw += dz^T x
 *
 * Logits are made for the next TT_HEAD_ROWS rows of a leaf, their gradient in act is kept for
 * TT_HEAD_DEPTH rows, or what is left of the leaf, so that [M,V] is never stored and the order of sums
 * depends on the leaf alone. The matmuls are those of the selected table. */
#ifndef TUTTI_KERNELS_GENERIC_HEAD_LOSS_H
#define TUTTI_KERNELS_GENERIC_HEAD_LOSS_H

#include <assert.h>
#include <math.h>

#include "kernels/generic/census.h"
#include "kernels/generic/exp.h"

enum { HEAD_RUN = 1024 }; /* logits that stay in L1 between their maximum and their exponentials */

/* The greatest of z[n] and `top`; a NaN may be passed over. */
static inline float head_max(const float *z, int64_t n, float top)
{
    wide most;
    float lane[LANES];
    int64_t v = 0;
    EACH_PART(p)
    {
        most.part[p] = vec_all(top);
    }
    for (; v + LANES <= n; v += LANES) {
        EACH_PART(p)
        {
            most.part[p] = vec_max(vec_load(z + v + p * VEC), most.part[p]);
        }
    }
    wide_to(lane, most);
    for (int l = 0; l < LANES; l++) {
        top = lane[l] > top ? lane[l] : top;
    }
    for (; v < n; v++) {
        top = z[v] > top ? z[v] : top;
    }
    return top;
}

/* exp(z - max) of a step; 0 beyond n. */
static inline wide head_exp(const float *z, int64_t n, float max)
{
    wide f = wide_load(z, n);
    EACH_PART(p)
    {
        f.part[p] = vec_exp(f.part[p] - max);
    }
    return wide_clear(f, n);
}

/* The logarithm of the sum of exp(z[used]) is *max + log(what is returned). A run at a time, so that
 * the row is read once: what was summed so far is scaled down when the maximum grows. */
static inline double head_sum(const float *z, int64_t used, float *max)
{
    double sum = 0;
    *max = -INFINITY;
    for (int64_t v = 0; v < used; v += HEAD_RUN) {
        const int64_t n = tt_min(HEAD_RUN, used - v);
        const float top = head_max(z + v, n, *max);
        wide part = wide_zero();
        if (top > *max) {
            sum *= exp((double)*max - (double)top);
            *max = top;
        }
        for (int64_t i = 0; i < n; i += LANES) {
            wide f = head_exp(z + v + i, n - i, top);
            EACH_PART(p)
            {
                part.part[p] += f.part[p];
            }
        }
        sum += (double)wide_total(part);
    }
    return sum;
}

/* exp(z - max) inverse of a step. */
static inline wide head_slope(const float *z, int64_t n, float max, float inverse)
{
    wide f = wide_load(z, n);
    EACH_PART(p)
    {
        f.part[p] = vec_exp(f.part[p] - max) * inverse;
    }
    return f;
}

/* Counts dz[used] as stored, of which all but the target's is made once more. */
__attribute__((cold, noinline, unused)) static void head_census(tt_census *census, const float *z,
                                                                const act *dz, int32_t target,
                                                                float at_target, int64_t used,
                                                                float max, float inverse)
{
    for (int64_t v = 0; v < used; v += LANES) {
        float lane[LANES];
        wide_to(lane, head_slope(z + v, used - v, max, inverse));
        if (target >= v && target < v + LANES) {
            lane[target - v] = at_target;
        }
        census_step(census, dz + v, lane, used - v);
    }
}

/* One row: z[V] in, logits; dz[V] out (NULL: not wanted). Returns the loss. The exponentials are
 * computed again for dz, because that is cheaper than to write them to memory and read them. */
static inline double head_loss_row(tt_census *census, const float *z, act *dz, int32_t target,
                                   int64_t V, int64_t used, float scale)
{
    float max;
    const double sum = head_sum(z, used, &max), aim = (double)z[target] - (double)max;
    if (dz != NULL) {
        const float inverse = (float)((double)scale / sum);
        for (int64_t v = 0; v < used; v += LANES) {
            wide_store_act(dz + v, head_slope(z + v, used - v, max, inverse), used - v);
        }
        memset(dz + used, 0, tt_bytes(V - used, sizeof *dz));
        const float at_target = (float)((exp(aim) / sum - 1) * (double)scale);
        dz[target] = act_of_f32(at_target);
        if (census != NULL) {
            head_census(census, z, dz, target, at_target, used, max, inverse);
        }
    }
    return log(sum) - aim;
}

/* What one call works with; the buffers are the front of the workspace. */
typedef struct head_call {
    tt_ctx rest; /* for the matmuls: the workspace behind the buffers */
    const act *x;
    const tt_weight *w;
    const int32_t *target;
    int64_t V, used, C;
    float scale;
    float *z;     /* [TT_HEAD_ROWS, V] */
    double *loss; /* [TT_HEAD_ROWS] */
    act *dz;      /* [TT_HEAD_DEPTH, V], or NULL: no gradient */
} head_call;

static int64_t head_valid(const head_call *h, int64_t m, int64_t rows)
{
    int64_t valid = 0;
    for (int64_t i = m; i < m + rows; i++) {
        valid += h->target[i] >= 0;
    }
    return valid;
}

/* Rows m .. m + rows - 1, at most TT_HEAD_ROWS: h->loss out, and dz[rows, V] out unless NULL. */
static void head_rows(head_call *h, act *dz, int64_t m, int64_t rows)
{
    const int64_t V = h->V;
    if (head_valid(h, m, rows) > 0) { /* else padding at a document's end: no matmul needed */
        h->rest.ops->gemm_nt_f32(&h->rest, h->z, h->x + m * h->C, h->w, rows, V, h->C, rows);
    }
#pragma omp parallel for num_threads(h->rest.threads)
    for (int64_t i = 0; i < rows; i++) {
        act *dz_row = dz != NULL ? dz + i * V : NULL;
        h->loss[i] = 0;
        if (h->target[m + i] >= 0) {
            h->loss[i] = head_loss_row(h->rest.count.beside, h->z + i * V, dz_row, h->target[m + i],
                                       V, h->used, h->scale);
        } else if (dz_row != NULL) {
            memset(dz_row, 0, tt_bytes(V, sizeof *dz_row));
        }
    }
}

static void generic_head_loss(tt_ctx *ctx, tt_exact *loss_sum, int64_t *count, float *row_loss,
                              void *dx_, const tt_grad *gw, const void *x, const tt_weight *w,
                              const int32_t *target, int64_t M, int64_t V, int64_t vocab_used,
                              int64_t C, int64_t leaf, float scale)
{
    act *dx = dx_;
    unsigned char *at = ctx->workspace;
    size_t front = tt_head_front(tt_min(leaf, M), V, ctx->ops->format);
    assert(front <= ctx->workspace_bytes);
    head_call h = {
        tt_ctx_rest(ctx, front), x, w, target, V, vocab_used, C, scale, NULL, NULL, NULL};
    h.z = (void *)at;
    h.loss = (void *)(at += tt_head_logits(tt_min(leaf, M), V));
    h.dz = dx != NULL ? (void *)(at + tt_head_losses(tt_min(leaf, M))) : NULL;
    int64_t depth = 0;
    for (int64_t m = 0; m < M; m += depth) {
        depth = tt_min(TT_HEAD_DEPTH, tt_min(M, (m / leaf + 1) * leaf) - m);
        for (int64_t i = 0; i < depth; i += TT_HEAD_ROWS) {
            int64_t rows = tt_min(TT_HEAD_ROWS, depth - i);
            head_rows(&h, h.dz != NULL ? h.dz + i * V : NULL, m + i, rows);
            for (int64_t r = 0; r < rows; r++) {
                tt_exact_add(loss_sum, h.loss[r]);
                if (row_loss != NULL) {
                    row_loss[m + i + r] = (float)h.loss[r];
                }
            }
        }
        int64_t valid = head_valid(&h, m, depth);
        *count += valid;
        if (dx != NULL && valid == 0) {
            memset(dx + m * C, 0, tt_bytes(depth * C, sizeof *dx));
        } else if (dx != NULL) {
            h.rest.ops->gemm_nn(&h.rest, dx + m * C, h.dz, w, NULL, depth, V, C, depth);
            h.rest.ops->gemm_tn(&h.rest, gw, NULL, h.dz, h.x + m * C, depth, V, C, depth);
        }
    }
}

#endif
