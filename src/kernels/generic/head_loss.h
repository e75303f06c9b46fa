/* head_loss.h: the output layer and the cross-entropy in one, a chunk of rows at a time.
 *
 *     z = x w^T over the first vocab_used columns;  loss = log sum exp(z) - z[target]
 *     dz = (softmax(z) - onehot(target)) scale, rounded to act;  dx = dz w;  gw += dz^T x
 *
 * A chunk is the next TT_HEAD_ROWS rows of a leaf, or what is left of it, so that [M,V] is never
 * stored and the order of sums depends on the leaf alone. The matmuls are those of the selected
 * table; the chunk's buffers are the front of the workspace. */
#ifndef TUTTI_KERNELS_GENERIC_HEAD_LOSS_H
#define TUTTI_KERNELS_GENERIC_HEAD_LOSS_H

#include <assert.h>
#include <math.h>

#include "kernels/generic/act.h"
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

/* One row: z[V] in, logits; dz[V] out (NULL: not wanted). Returns the loss. The exponentials are
 * computed again for dz, because that is cheaper than to write them to memory and read them. */
static inline double head_loss_row(const float *z, act *dz, int32_t target, int64_t V, int64_t used,
                                   float scale)
{
    float max;
    const double sum = head_sum(z, used, &max), aim = (double)z[target] - (double)max;
    if (dz != NULL) {
        const float inverse = (float)((double)scale / sum);
        for (int64_t v = 0; v < used; v += LANES) {
            wide f = wide_load(z + v, used - v);
            EACH_PART(p)
            {
                f.part[p] = vec_exp(f.part[p] - max) * inverse;
            }
            wide_store_act(dz + v, f, used - v);
        }
        memset(dz + used, 0, tt_bytes(V - used, sizeof *dz));
        dz[target] = act_of_f32((float)((exp(aim) / sum - 1) * (double)scale));
    }
    return log(sum) - aim;
}

static void generic_head_loss(tt_ctx *ctx, double *loss_sum, int64_t *count, float *row_loss,
                              void *dx_, float *gw, const void *x_, const tt_weight *w,
                              const int32_t *target, int64_t M, int64_t V, int64_t vocab_used,
                              int64_t C, int64_t leaf, float scale)
{
    act *dx = dx_;
    const act *x = x_;
    int64_t room = tt_min(TT_HEAD_ROWS, tt_min(leaf, M));
    float *z = (void *)ctx->workspace;
    act *dz = (void *)((unsigned char *)z + tt_padded(tt_bytes(room * V, sizeof *z)));
    double *loss = (void *)((unsigned char *)dz + tt_padded(tt_bytes(room * V, sizeof *dz)));
    size_t front =
        (size_t)((unsigned char *)loss - ctx->workspace) + tt_padded(tt_bytes(room, sizeof *loss));
    assert(front <= ctx->workspace_bytes);
    tt_ctx rest = tt_ctx_rest(ctx, front);
    int64_t rows = 0;
    for (int64_t m = 0; m < M; m += rows) {
        rows = tt_min(room, tt_min(M, (m / leaf + 1) * leaf) - m);
        int64_t valid = 0;
        for (int64_t i = 0; i < rows; i++) {
            valid += target[m + i] >= 0;
        }
        if (valid == 0) { /* padding at a document's end: no matmul needed */
            if (row_loss != NULL) {
                memset(row_loss + m, 0, tt_bytes(rows, sizeof *row_loss));
            }
            if (dx != NULL) {
                memset(dx + m * C, 0, tt_bytes(rows * C, sizeof *dx));
            }
            continue;
        }
        rest.ops->gemm_nt_f32(&rest, z, x + m * C, w, rows, V, C);
#pragma omp parallel for num_threads(ctx->threads)
        for (int64_t i = 0; i < rows; i++) {
            act *dz_row = dx != NULL ? dz + i * V : NULL;
            loss[i] = 0;
            if (target[m + i] >= 0) {
                loss[i] = head_loss_row(z + i * V, dz_row, target[m + i], V, vocab_used, scale);
            } else if (dz_row != NULL) {
                memset(dz_row, 0, tt_bytes(V, sizeof *dz_row));
            }
        }
        for (int64_t i = 0; i < rows; i++) {
            *loss_sum += loss[i];
            if (row_loss != NULL) {
                row_loss[m + i] = (float)loss[i];
            }
        }
        *count += valid;
        if (dx != NULL) {
            rest.ops->gemm_nn(&rest, dx + m * C, dz, w, NULL, rows, V, C);
            rest.ops->gemm_tn(&rest, gw, NULL, dz, x + m * C, rows, V, C, rows);
        }
    }
}

#endif
