/* select.c: which kernels serve: lays the parts that this processor supports over the reference.
 *
 * Invariant: a selected table has no empty entry, and `from` says whose each one is. A part is laid
 * when the level asked for reaches its level; parts lie in the order of `parts`, so a later one
 * covers an earlier one.
 *
 * Reads the parts declared in kernels_impl.h; next: guard.c. */
#include <stdio.h>
#include <string.h>

#include "kernels/kernels_impl.h"

/* What a part asks of the processor, weakest first. A library counts as a level that every machine
 * has: asking for the reference alone leaves it out. */
enum { LEVEL_REF, LEVEL_LIBRARY, LEVEL_AVX2, LEVEL_AVX512, LEVEL_AVX512BF16 };

typedef struct part {
    const tt_ops *ops;
    int level;
} part;

static const part parts[] = {
    {&tt_table_ref_bf16, LEVEL_REF},
    {&tt_table_ref_fp16, LEVEL_REF},
    {&tt_table_ref_fp32, LEVEL_REF},
    {&tt_table_ref_tf32, LEVEL_REF},
#if defined(__x86_64__)
    {&tt_table_generic_avx2_bf16, LEVEL_AVX2},
    {&tt_table_generic_avx2_fp16, LEVEL_AVX2},
    {&tt_table_generic_avx2_fp32, LEVEL_AVX2},
    {&tt_table_generic_avx2_tf32, LEVEL_AVX2},
    {&tt_table_gemm_avx2_bf16, LEVEL_AVX2},
    {&tt_table_gemm_avx2_fp16, LEVEL_AVX2},
    {&tt_table_gemm_avx2_tf32, LEVEL_AVX2},
    {&tt_table_peak_avx2_fp32, LEVEL_AVX2},
    {&tt_table_generic_avx512_bf16, LEVEL_AVX512},
    {&tt_table_generic_avx512_fp16, LEVEL_AVX512},
    {&tt_table_generic_avx512_fp32, LEVEL_AVX512},
    {&tt_table_generic_avx512_tf32, LEVEL_AVX512},
    {&tt_table_gemm_avx512_bf16, LEVEL_AVX512},
    {&tt_table_gemm_avx512_fp16, LEVEL_AVX512},
    {&tt_table_gemm_avx512_tf32, LEVEL_AVX512},
    {&tt_table_peak_avx512_fp32, LEVEL_AVX512},
    {&tt_table_gemm_avx512bf16_bf16, LEVEL_AVX512BF16},
    {&tt_table_attention_avx512bf16_bf16, LEVEL_AVX512BF16},
#endif
    {&tt_table_openblas_fp32, LEVEL_LIBRARY},
};
enum { PARTS = sizeof parts / sizeof parts[0] };

typedef struct isa {
    const char *name, *guarded_name;
    int level;
} isa;

static const isa isas[] = {
    {"ref", "guard:ref", LEVEL_REF},
    {"avx2", "guard:avx2", LEVEL_AVX2},
    {"avx512", "guard:avx512", LEVEL_AVX512},
    {"avx512bf16", "guard:avx512bf16", LEVEL_AVX512BF16},
};
enum { ISAS = sizeof isas / sizeof isas[0] };

#define OP_NAME(name, type, args) #name,
const char *const tt_op_names[TT_OP_TOTAL] = {TT_OPS(OP_NAME)};

static bool supported(int level)
{
#if defined(__x86_64__)
    __builtin_cpu_init();
    bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                __builtin_cpu_supports("f16c");
    bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                  __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
    switch (level) {
    case LEVEL_AVX2:
        return avx2;
    case LEVEL_AVX512:
        return avx512;
    case LEVEL_AVX512BF16:
        return avx512 && __builtin_cpu_supports("avx512bf16");
    default:
        break;
    }
#endif
    return level <= LEVEL_LIBRARY;
}

int tt_kernels_isa_list(const char **names, int room)
{
    int count = 0;
    for (int i = 0; i < ISAS && count < room; i++) {
        if (supported(isas[i].level)) {
            names[count++] = isas[i].name;
        }
    }
    return count;
}

static const isa *best_isa(void)
{
    const isa *best = &isas[0];
    for (int i = 0; i < ISAS; i++) {
        if (supported(isas[i].level)) {
            best = &isas[i];
        }
    }
    return best;
}

const char *tt_kernels_best_isa(void)
{
    return best_isa()->name;
}

/* Asks only parts that may run here: what they answer with is compiled for their level, too. */
static size_t workspace_of(tt_format compute, const tt_extents *extents, int threads)
{
    size_t most = 0, front = 0;
    for (int i = 0; i < PARTS; i++) {
        const tt_ops *of = parts[i].ops;
        if (of->compute == compute && of->workspace != NULL && supported(parts[i].level)) {
            size_t bytes = of->workspace(extents, threads);
            most = bytes > most ? bytes : most;
            front = tt_head_front(extents->rows, extents->vocab, of->format);
        }
    }
    return front + most;
}

static size_t workspace_bf16(const tt_extents *extents, int threads)
{
    return workspace_of(TT_BF16, extents, threads);
}

static size_t workspace_fp16(const tt_extents *extents, int threads)
{
    return workspace_of(TT_FP16, extents, threads);
}

static size_t workspace_fp32(const tt_extents *extents, int threads)
{
    return workspace_of(TT_FP32, extents, threads);
}

static size_t workspace_tf32(const tt_extents *extents, int threads)
{
    return workspace_of(TT_TF32, extents, threads);
}

/* The compute formats there are tables for. */
static const struct {
    tt_format storage;
    size_t (*workspace)(const tt_extents *extents, int threads);
} computes[TT_FORMATS] = {
    [TT_BF16] = {TT_BF16, workspace_bf16},
    [TT_FP16] = {TT_FP16, workspace_fp16},
    [TT_FP32] = {TT_FP32, workspace_fp32},
    [TT_TF32] = {TT_FP32, workspace_tf32},
};

size_t tt_kernels_workspace(const tt_ops *ops, const tt_ops *guarded, const tt_extents *extents,
                            int threads)
{
    size_t bytes = ops->workspace(extents, threads);
    bool wraps = guarded != NULL && guarded->isa != NULL;
    size_t inner = wraps ? guarded->workspace(extents, threads) : 0;
    return bytes > inner ? bytes : inner;
}

tt_ctx tt_kernels_ctx(const tt_ops *ops, const tt_ops *guarded, int threads, void *workspace,
                      size_t bytes)
{
    return (tt_ctx){.ops = ops,
                    .base = guarded->isa != NULL ? guarded : NULL,
                    .threads = threads,
                    .workspace = workspace,
                    .workspace_bytes = bytes};
}

/* The isa that the name (after "guard:") asks for, or NULL with err filled. */
static const isa *find_isa(const char *asked, const char *name, tt_err *err)
{
    char can[128] = "";
    for (int i = 0; i < ISAS; i++) {
        if (supported(isas[i].level)) {
            size_t used = strlen(can);
            snprintf(can + used, sizeof can - used, "%s%s", used > 0 ? ", " : "", isas[i].name);
        }
    }
    for (int i = 0; i < ISAS; i++) {
        if (strcmp(name, isas[i].name) == 0) {
            if (supported(isas[i].level)) {
                return &isas[i];
            }
            tt_fail(err, TT_EUSER, "TUTTI_ISA=%s: this processor has no %s; it can do %s", asked,
                    name, can);
            return NULL;
        }
    }
    tt_fail(err, TT_EUSER,
            "TUTTI_ISA=%s is not known; allowed here are %s, guard, and guard:<one of these>",
            asked, can);
    return NULL;
}

#define LAY(name, type, args)                \
    if (over->name != NULL) {                \
        ops->name = over->name;              \
        ops->from[TT_OP_##name] = over->isa; \
    }
static void lay(tt_ops *ops, const tt_ops *over)
{
    TT_OPS(LAY)
    if (over->pack != NULL) {
        ops->packed_bytes = over->packed_bytes;
    }
    if (over->epilogue != NULL) {
        ops->epilogue = over->epilogue;
    }
    if (over->attention != NULL) {
        ops->probabilities = over->probabilities;
    }
}

/* What a name asks for. */
typedef struct choice {
    const isa *chosen;
    int level;
    bool guard;
} choice;

static tt_code choose(choice *c, const char *isa_name, tt_err *err)
{
    const char *asked = isa_name != NULL ? isa_name : "", *name = asked;
    c->guard = strncmp(name, "guard", 5) == 0 && (name[5] == '\0' || name[5] == ':');
    if (c->guard) {
        name += name[5] == ':' ? 6 : 5;
    }
    c->chosen = best_isa();
    c->level = c->chosen->level > LEVEL_LIBRARY ? c->chosen->level : LEVEL_LIBRARY;
    if (name[0] != '\0' || (c->guard && asked[5] == ':')) {
        c->chosen = find_isa(asked, name, err);
        if (c->chosen == NULL) {
            return err->code;
        }
        c->level = c->chosen->level;
    }
    return TT_OK;
}

/* The parts of a compute format up to a level. */
static tt_ops lay_parts(const choice *c, tt_format compute, int level)
{
    tt_ops table = {.isa = c->chosen->name,
                    .format = computes[compute].storage,
                    .compute = compute,
                    .workspace = computes[compute].workspace};
    for (int i = 0; i < PARTS; i++) {
        if (parts[i].ops->compute == compute && parts[i].level <= level) {
            lay(&table, parts[i].ops);
        }
    }
    return table;
}

/* ops out: the table, or with guard what watches it, which is then in *guarded. */
static void hand_out(tt_ops *ops, tt_ops *guarded, const choice *c, const tt_ops *table)
{
    *ops = *table;
    *guarded = (tt_ops){0};
    if (c->guard) {
        *guarded = *table;
        *ops = tt_table_guard;
        ops->isa = c->chosen->guarded_name;
        ops->format = table->format;
        ops->compute = table->compute;
        ops->probabilities = table->probabilities;
        ops->workspace = table->workspace;
        ops->packed_bytes = table->packed_bytes;
        ops->epilogue = table->epilogue;
        memcpy(ops->from, table->from, sizeof ops->from);
    }
}

static tt_code check_compute(tt_format compute, tt_err *err)
{
    if (computes[compute].workspace == NULL) {
        return tt_fail(err, TT_EUSER,
                       "there are no kernels that compute in %s; use bf16, fp32, tf32 or fp16",
                       tt_formats[compute].name);
    }
    return TT_OK;
}

tt_code tt_kernels_select(tt_ops *ops, tt_ops *guarded, tt_format compute, const char *isa_name,
                          tt_err *err)
{
    tt_code rc = TT_OK;
    choice c;
    TT_TRY(check_compute(compute, err));
    TT_TRY(choose(&c, isa_name, err));
    const tt_ops table = lay_parts(&c, compute, c.level);
    tt_blas_setup();
    hand_out(ops, guarded, &c, &table);
out:
    return rc;
}

tt_code tt_kernels_select_wide(tt_wide_ops *wide, tt_format compute, const char *isa_name,
                               tt_err *err)
{
    tt_code rc = TT_OK;
    choice c;
    *wide = (tt_wide_ops){.full = {.isa = NULL}};
    TT_TRY(check_compute(compute, err));
    TT_TRY(choose(&c, isa_name, err));
    /* AVX512-BF16 multiplies BF16 alone; the level below has the same kernels for FP32 operands. */
    tt_ops table = lay_parts(&c, compute, c.level < LEVEL_AVX512BF16 ? c.level : LEVEL_AVX512);
    const tt_ops full = lay_parts(&c, TT_FP32, c.level);
    tt_blas_setup();
    if (table.format == TT_FP32) { /* nothing to widen */
        table = full;
    } else {
        tt_wide_lay(&table, &full);
        table.compute = TT_FP32;
        hand_out(&wide->full, &wide->full_guarded, &c, &full);
    }
    hand_out(&wide->ops, &wide->guarded, &c, &table);
out:
    return rc;
}
