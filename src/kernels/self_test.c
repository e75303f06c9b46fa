/* self_test.c: does the BLAS library of this machine multiply? Asked once at start-up, because a
 * miscompiled or mismatched library gives wrong numbers, not errors.
 *
 * Runs small odd shapes of every entry that OpenBLAS serves against the reference. Owns its buffers
 * and workspace. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/kernels_impl.h"
#include "tutti/base/memory.h"
#include "tutti/base/narrow.h"
#include "tutti/base/text.h"

enum { MOST = 96 }; /* no extent of a shape exceeds it */

static const int64_t shapes[][3] = {{1, 1, 1}, {3, 5, 7}, {65, 33, 17}, {13, 96, 31}, {64, 2, 95}};
enum { SHAPES = sizeof shapes / sizeof shapes[0] };

typedef struct buffers {
    float *x, *w, *dy;        /* in */
    float *result, *expected; /* out */
} buffers;

/* Numbers in [-1, 1] with all bits in use. */
static void scatter(float *x, int64_t n, float phase)
{
    for (int64_t i = 0; i < n; i++) {
        x[i] = sinf((float)(i % 977) * 1.7f + phase);
    }
}

/* OpenBLAS maps a buffer of 128 MiB for each thread that multiplies, and when it is refused one it tries
 * again for ever. So it is asked for no product unless there is room for all. */
static tt_code check_room(int threads, tt_err *err)
{
    const size_t buffer = (size_t)136 << 20, room = tt_memory_allowed();
    char left[32];
    if (room / buffer >= tt_size(threads)) {
        return TT_OK;
    }
    tt_human_bytes((double)room, left);
    return tt_fail(err, TT_EWORLD,
                   "OpenBLAS maps 128 MiB for each of %d thread%s, and the limits of this process "
                   "(ulimit -v, -d) leave %s; raise them, or use TUTTI_ISA=ref or another "
                   "precision.compute",
                   threads, threads == 1 ? "" : "s", left);
}

static tt_code compare(const char *op, const buffers *b, int64_t n, const int64_t *shape,
                       tt_err *err)
{
    for (int64_t i = 0; i < n; i++) {
        float difference = fabsf(b->result[i] - b->expected[i]);
        if (!(difference <= 1e-6f * MOST)) { /* a NaN fails too */
            return tt_fail(err, TT_EWORLD,
                           "%s: %s with M=%lld N=%lld K=%lld gives %g where the reference gives %g;"
                           " another build of OpenBLAS or TUTTI_ISA=ref is needed",
                           tt_kernels_blas(), op, (long long)shape[0], (long long)shape[1],
                           (long long)shape[2], (double)b->result[i], (double)b->expected[i]);
        }
    }
    return TT_OK;
}

static tt_code check_shape(tt_ctx *ctx, const tt_ops *ref, buffers *b, const int64_t *shape,
                           tt_err *err)
{
    const tt_ops *ops = ctx->ops;
    int64_t M = shape[0], N = shape[1], K = shape[2];
    const tt_weight w = {b->w, NULL};
    const tt_epilogue bias = {.bias = b->dy};
    const tt_grad result = {.sum = b->result}, expected = {.sum = b->expected};
    tt_code rc = TT_OK;
    ops->gemm_nt(ctx, b->result, b->x, &w, &bias, M, N, K, M);
    ref->gemm_nt(ctx, b->expected, b->x, &w, &bias, M, N, K, M);
    TT_TRY(compare("gemm_nt", b, M * N, shape, err));
    ops->gemm_nt_f32(ctx, b->result, b->x, &w, M, N, K, M);
    ref->gemm_nt_f32(ctx, b->expected, b->x, &w, M, N, K, M);
    TT_TRY(compare("gemm_nt_f32", b, M * N, shape, err));
    ops->gemm_nn(ctx, b->result, b->dy, &w, NULL, M, N, K, M);
    ref->gemm_nn(ctx, b->expected, b->dy, &w, NULL, M, N, K, M);
    TT_TRY(compare("gemm_nn", b, M * K, shape, err));
    memcpy(b->result, b->x, tt_bytes(N * K, sizeof(float)));
    memcpy(b->expected, b->x, tt_bytes(N * K, sizeof(float)));
    ops->gemm_tn(ctx, &result, NULL, b->dy, b->x, M, N, K, tt_ceil_div(M, 2));
    ref->gemm_tn(ctx, &expected, NULL, b->dy, b->x, M, N, K, tt_ceil_div(M, 2));
    TT_TRY(compare("gemm_tn", b, N * K, shape, err));
out:
    return rc;
}

tt_code tt_kernels_self_test(tt_ctx *ctx, tt_err *err)
{
    tt_code rc = TT_OK;
    buffers b = {0};
    void *room = NULL;
    tt_ctx own = *ctx;
    own.workspace = NULL;
    if (ctx->full != NULL) { /* of a wide table: what multiplies inside */
        own.ops = ctx->full;
        own.base = ctx->full_base;
        own.full = own.full_base = NULL;
    }
    if (strcmp(own.ops->from[TT_OP_gemm_nt], tt_table_openblas_fp32.isa) != 0) {
        return TT_OK;
    }
    TT_TRY(check_room(own.threads, err));
    const tt_extents extents = {MOST, MOST, MOST, MOST, MOST, 1, MOST, false};
    own.workspace_bytes = tt_kernels_workspace(own.ops, own.base, &extents, own.threads);
    room = tt_alloc(tt_count(own.workspace_bytes + TT_ALIGN), 1, err);
    float **arrays[] = {&b.x, &b.w, &b.dy, &b.result, &b.expected};
    for (int i = 0; i < (int)(sizeof arrays / sizeof arrays[0]); i++) {
        *arrays[i] = room != NULL ? tt_alloc(MOST * MOST, sizeof(float), err) : NULL;
        if (*arrays[i] == NULL) {
            rc = TT_EWORLD; /* tt_alloc has filled err */
            goto out;
        }
    }
    own.workspace = (unsigned char *)(((uintptr_t)room + TT_ALIGN - 1) / TT_ALIGN * TT_ALIGN);
    scatter(b.x, MOST * MOST, 0);
    scatter(b.w, MOST * MOST, 1);
    scatter(b.dy, MOST * MOST, 2);
    for (int i = 0; i < SHAPES; i++) {
        TT_TRY(check_shape(&own, &tt_table_ref_fp32, &b, shapes[i], err));
    }
out:
    free(room);
    free(b.x);
    free(b.w);
    free(b.dy);
    free(b.result);
    free(b.expected);
    return rc;
}
