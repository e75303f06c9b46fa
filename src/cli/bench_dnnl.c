/* bench_dnnl.c: oneDNN's matmul, to stand beside ours in `tutti bench gemm`. The only file that knows
 * oneDNN, and compiled only by `make DNNL=1`: the product does not use it.
 *
 * Fair terms: the same shapes and layouts, BF16 where oneDNN has instructions for it on this processor
 * and else FP32 (which the label says), weights packed before as it likes best, the gradient of
 * weights added to FP32 numbers in place, operands in huge pages. A work owns all that it uses.
 *
 * Reads nothing, writes its own arrays; next: bench_gemm.c. */
#include <dnnl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tutti/base/narrow.h"

#include "cli/bench_impl.h"

_Static_assert(DNNL_VERSION_MAJOR == 2, "the C interface of oneDNN 2, which 3 changed");

enum { SRC, WEIGHTS, DST, OPERANDS };

typedef struct dnnl_work {
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    dnnl_primitive_t matmul;
    dnnl_memory_t memory[OPERANDS];
    tt_arena arena;
} dnnl_work;

static bool has_bf16(void)
{
    return (dnnl_get_effective_cpu_isa() & dnnl_cpu_isa_avx512_core_bf16) ==
           dnnl_cpu_isa_avx512_core_bf16;
}

static bool computes_bf16(tt_format format)
{
    return format == TT_BF16 && has_bf16();
}

static void dnnl_label(tt_format format, char *out, size_t size)
{
    const dnnl_version_t *version = dnnl_version();
    snprintf(out, size, "oneDNN %d.%d.%d %s", version->major, version->minor, version->patch,
             computes_bf16(format) ? "bf16" : "fp32");
}

static tt_code check(dnnl_status_t status, const char *what, tt_err *err)
{
    return status == dnnl_success
               ? TT_OK
               : tt_fail(err, TT_EWORLD, "oneDNN cannot %s: status %d", what, (int)status);
}

/* A matrix [rows, columns] whose rows lie `by_row` and whose columns `by_column` elements apart. */
static tt_code describe(dnnl_memory_desc_t *desc, int64_t rows, int64_t columns, int64_t by_row,
                        int64_t by_column, dnnl_data_type_t type, tt_err *err)
{
    const dnnl_dims_t dims = {rows, columns}, strides = {by_row, by_column};
    return check(dnnl_memory_desc_init_by_strides(desc, 2, dims, type, strides),
                 "describe a matrix", err);
}

/* The operands as they lie in memory: src [rows, inner], weights [inner, columns]. */
static tt_code describe_all(dnnl_memory_desc_t desc[OPERANDS], const tt_product *p,
                            dnnl_data_type_t type, tt_err *err)
{
    tt_code rc = TT_OK;
    const int64_t M = p->M, N = p->N, K = p->K;
    if (p->variant == TT_NT) {
        TT_TRY(describe(&desc[SRC], M, K, K, 1, type, err));
        TT_TRY(describe(&desc[WEIGHTS], K, N, 1, K, type, err));
        TT_TRY(describe(&desc[DST], M, N, N, 1, type, err));
    } else if (p->variant == TT_NN) {
        TT_TRY(describe(&desc[SRC], M, N, N, 1, type, err));
        TT_TRY(describe(&desc[WEIGHTS], N, K, K, 1, type, err));
        TT_TRY(describe(&desc[DST], M, K, K, 1, type, err));
    } else {
        TT_TRY(describe(&desc[SRC], N, M, 1, N, type, err));
        TT_TRY(describe(&desc[WEIGHTS], M, K, K, 1, type, err));
        TT_TRY(describe(&desc[DST], N, K, K, 1, dnnl_f32, err));
    }
out:
    return rc;
}

/* The primitive, and the layout of weights that it wants. */
static tt_code make_matmul(dnnl_work *w, const tt_product *p,
                           const dnnl_memory_desc_t desc[OPERANDS], dnnl_memory_desc_t *packed,
                           tt_err *err)
{
    tt_code rc = TT_OK;
    dnnl_matmul_desc_t matmul;
    dnnl_primitive_attr_t attr = NULL;
    dnnl_post_ops_t sum = NULL;
    dnnl_primitive_desc_t chosen = NULL;
    dnnl_memory_desc_t any = desc[WEIGHTS];
    const char *what = "prepare a matmul";
    if (p->variant != TT_TN) {
        TT_TRY(check(dnnl_memory_desc_init_by_tag(&any, 2, desc[WEIGHTS].dims,
                                                  desc[WEIGHTS].data_type, dnnl_format_tag_any),
                     what, err));
    }
    TT_TRY(check(dnnl_matmul_desc_init(&matmul, &desc[SRC], &any, NULL, &desc[DST]), what, err));
    TT_TRY(check(dnnl_primitive_attr_create(&attr), what, err));
    if (p->variant == TT_TN) {
        TT_TRY(check(dnnl_post_ops_create(&sum), what, err));
        TT_TRY(check(dnnl_post_ops_append_sum(sum, 1.0f), what, err));
        TT_TRY(check(dnnl_primitive_attr_set_post_ops(attr, sum), what, err));
    }
    TT_TRY(check(dnnl_primitive_desc_create(&chosen, &matmul, attr, w->engine, NULL), what, err));
    *packed = *dnnl_primitive_desc_query_md(chosen, dnnl_query_weights_md, 0);
    TT_TRY(check(dnnl_primitive_create(&w->matmul, chosen), what, err));
out:
    dnnl_post_ops_destroy(sum);
    dnnl_primitive_attr_destroy(attr);
    dnnl_primitive_desc_destroy(chosen);
    return rc;
}

/* Small numbers, FP32 or their upper halves, which is BF16. */
static void fill(void *array, const dnnl_memory_desc_t *desc)
{
    const int64_t count = desc->dims[0] * desc->dims[1];
    for (int64_t i = 0; i < count; i++) {
        const float value = (float)((i * 37 + 11) % 101 - 50) / 64.0f;
        const size_t size = desc->data_type == dnnl_bf16 ? sizeof value / 2 : sizeof value;
        memcpy((char *)array + i * (int64_t)size, (const char *)&value + sizeof value - size, size);
    }
}

static tt_code pack(dnnl_work *w, const dnnl_memory_desc_t *from, void *plain, tt_err *err)
{
    tt_code rc = TT_OK;
    dnnl_memory_t source = NULL;
    dnnl_primitive_desc_t chosen = NULL;
    dnnl_primitive_t reorder = NULL;
    const dnnl_memory_desc_t *to = NULL;
    const char *what = "pack weights";
    TT_TRY(check(dnnl_memory_get_memory_desc(w->memory[WEIGHTS], &to), what, err));
    TT_TRY(check(dnnl_memory_create(&source, from, w->engine, plain), what, err));
    TT_TRY(check(dnnl_reorder_primitive_desc_create(&chosen, from, w->engine, to, w->engine, NULL),
                 what, err));
    TT_TRY(check(dnnl_primitive_create(&reorder, chosen), what, err));
    const dnnl_exec_arg_t args[] = {{DNNL_ARG_FROM, source}, {DNNL_ARG_TO, w->memory[WEIGHTS]}};
    TT_TRY(check(dnnl_primitive_execute(reorder, w->stream, 2, args), what, err));
    TT_TRY(check(dnnl_stream_wait(w->stream), what, err));
out:
    dnnl_primitive_destroy(reorder);
    dnnl_primitive_desc_destroy(chosen);
    dnnl_memory_destroy(source);
    return rc;
}

static void dnnl_close(void *work)
{
    dnnl_work *w = work;
    if (!w) {
        return;
    }
    for (int i = 0; i < OPERANDS; i++) {
        dnnl_memory_destroy(w->memory[i]);
    }
    dnnl_primitive_destroy(w->matmul);
    dnnl_stream_destroy(w->stream);
    dnnl_engine_destroy(w->engine);
    tt_arena_close(&w->arena);
    free(w);
}

static tt_code dnnl_open(void **work, const tt_product *p, tt_format format, tt_err *err)
{
    tt_code rc = TT_OK;
    const dnnl_data_type_t type = computes_bf16(format) ? dnnl_bf16 : dnnl_f32;
    dnnl_memory_desc_t desc[OPERANDS], plain_weights, packed;
    *work = NULL;
    dnnl_work *w = tt_alloc(1, sizeof *w, err);
    if (!w) {
        return err->code;
    }
    TT_TRY(check(dnnl_engine_create(&w->engine, dnnl_cpu, 0), "use the processor", err));
    TT_TRY(check(dnnl_stream_create(&w->stream, w->engine, dnnl_stream_default_flags),
                 "use the processor", err));
    TT_TRY(describe_all(desc, p, type, err));
    TT_TRY(make_matmul(w, p, desc, &packed, err));
    size_t bytes = tt_arena_cost(dnnl_memory_desc_get_size(&packed));
    for (int i = 0; i < OPERANDS; i++) {
        bytes += tt_arena_cost(dnnl_memory_desc_get_size(&desc[i]));
    }
    TT_TRY(tt_arena_open(&w->arena, "oneDNN", bytes, err));
    void *plain = tt_arena_take(&w->arena, dnnl_memory_desc_get_size(&desc[WEIGHTS]));
    fill(plain, &desc[WEIGHTS]);
    plain_weights = desc[WEIGHTS];
    desc[WEIGHTS] = packed;
    for (int i = 0; i < OPERANDS; i++) {
        void *array = tt_arena_take(&w->arena, dnnl_memory_desc_get_size(&desc[i]));
        TT_TRY(check(dnnl_memory_create(&w->memory[i], &desc[i], w->engine, array), "use memory",
                     err));
        if (i == SRC) {
            fill(array, &desc[i]);
        }
    }
    TT_TRY(pack(w, &plain_weights, plain, err));
    *work = w;
    w = NULL;
out:
    dnnl_close(w);
    return rc;
}

static tt_code dnnl_run(void *work, int64_t times, tt_err *err)
{
    tt_code rc = TT_OK;
    dnnl_work *w = work;
    const dnnl_exec_arg_t args[] = {{DNNL_ARG_SRC, w->memory[SRC]},
                                    {DNNL_ARG_WEIGHTS, w->memory[WEIGHTS]},
                                    {DNNL_ARG_DST, w->memory[DST]}};
    for (int64_t i = 0; i < times; i++) {
        TT_TRY(check(dnnl_primitive_execute(w->matmul, w->stream, 3, args), "multiply", err));
    }
    TT_TRY(check(dnnl_stream_wait(w->stream), "multiply", err));
out:
    return rc;
}

const tt_rival tt_rival_dnnl = {dnnl_label, dnnl_open, dnnl_run, dnnl_close};
