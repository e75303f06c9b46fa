/* test_select.c: selection by name, what serves what, workspace, the BLAS self-test. */
#include "kernels/kernels_impl.h"
#include "rig.h"

#define HAS(name, type, args) ck_assert(ops->name != NULL && ops->from[TT_OP_##name] != NULL);
static void assert_complete(const tt_ops *ops){TT_OPS(HAS)}

START_TEST(every_table_is_complete)
{
    const char *isa[8];
    int count = tt_kernels_isa_list(isa, 8);
    ck_assert_int_ge(count, 1);
    ck_assert_str_eq(isa[0], "ref");
    ck_assert_str_eq(isa[count - 1], tt_kernels_best_isa());
    ck_assert_int_eq(tt_kernels_isa_list(isa, 1), 1);
    for (int f = 0; f < RIG_FORMATS; f++) {
        for (int i = 0; i < tt_kernels_isa_list(isa, 8); i++) {
            tt_ops ops, guarded;
            tt_err err;
            const tt_format compute = rig_formats[f];
            char name[64];
            ck_assert(tt_kernels_select(&ops, &guarded, compute, isa[i], &err) == TT_OK);
            assert_complete(&ops);
            ck_assert_str_eq(ops.isa, isa[i]);
            ck_assert_int_eq(ops.compute, compute);
            ck_assert_int_eq(ops.format, compute == TT_TF32 ? TT_FP32 : compute);
            snprintf(name, sizeof name, "guard:%s", isa[i]);
            ck_assert(tt_kernels_select(&ops, &guarded, compute, name, &err) == TT_OK);
            ck_assert_int_eq(ops.compute, compute);
            ck_assert_int_eq(ops.format, guarded.format);
            assert_complete(&ops);
            assert_complete(&guarded);
            ck_assert_str_eq(ops.isa, name);
            ck_assert_str_eq(guarded.isa, isa[i]);
        }
    }
}
END_TEST

START_TEST(who_serves_what)
{
    tt_ops ops, guarded;
    tt_err err;
    ck_assert(tt_kernels_select(&ops, &guarded, TT_FP32, "ref", &err) == TT_OK);
    ck_assert_str_eq(ops.from[TT_OP_gemm_nt], "ref");
    ck_assert(tt_kernels_select(&ops, &guarded, TT_FP32, NULL, &err) == TT_OK);
    ck_assert_str_eq(ops.isa, tt_kernels_best_isa());
    ck_assert_str_eq(ops.from[TT_OP_gemm_nt], "openblas");
    ck_assert_str_eq(ops.from[TT_OP_gemm_tn], "openblas");
    const char *rows = strncmp(ops.isa, "avx512", 6) == 0 ? "avx512" : ops.isa;
    ck_assert_str_eq(ops.from[TT_OP_norm], rows);
    ck_assert(tt_kernels_select(&ops, &guarded, TT_BF16, "", &err) == TT_OK);
    ck_assert_str_eq(ops.from[TT_OP_gemm_nt], tt_kernels_best_isa());
    static const tt_format ours[] = {TT_FP16, TT_TF32}; /* not OpenBLAS's */
    for (int f = 0; f < 2; f++) {
        ck_assert(tt_kernels_select(&ops, &guarded, ours[f], "", &err) == TT_OK);
        ck_assert_str_eq(ops.from[TT_OP_gemm_nt], rows);
        ck_assert_str_eq(ops.from[TT_OP_gemm_tn], rows);
        ck_assert_str_eq(ops.from[TT_OP_attention], rows);
    }
    ck_assert_str_eq(tt_op_names[TT_OP_gemm_nt], "gemm_nt");
    ck_assert_str_eq(tt_op_names[TT_OP_peak], "peak");
    ck_assert_ptr_nonnull(strstr(tt_kernels_blas(), "OpenBLAS"));
}
END_TEST

START_TEST(unknown_names_are_refused)
{
    static const char *const names[] = {"avx3",   "guard:avx3", "guards",
                                        "guard:", "REF",        "openblas"};
    for (int i = 0; i < 6; i++) {
        tt_ops ops, guarded;
        tt_err err = {TT_OK, ""};
        ck_assert_msg(tt_kernels_select(&ops, &guarded, TT_BF16, names[i], &err) == TT_EUSER, "%s",
                      names[i]);
        ck_assert_ptr_nonnull(strstr(err.text, names[i]));
        ck_assert_ptr_nonnull(strstr(err.text, "ref"));
    }
    tt_ops ops, guarded;
    tt_err err = {TT_OK, ""};
    ck_assert(tt_kernels_select(&ops, &guarded, TT_E4M3, NULL, &err) == TT_EUSER);
    ck_assert_ptr_nonnull(strstr(err.text, "fp8_e4m3; use bf16, fp32, tf32 or fp16"));
}
END_TEST

#if defined(__x86_64__)
START_TEST(unsupported_names_say_so)
{
    const bool has[] = {__builtin_cpu_supports("avx512f"), __builtin_cpu_supports("avx512bf16")};
    static const char *const names[] = {"avx512", "avx512bf16"};
    for (int i = 0; i < 2; i++) {
        tt_ops ops, guarded;
        tt_err err = {TT_OK, ""};
        if (!has[i]) {
            char want[64];
            snprintf(want, sizeof want, "this processor has no %s;", names[i]);
            ck_assert(tt_kernels_select(&ops, &guarded, TT_BF16, names[i], &err) == TT_EUSER);
            ck_assert_ptr_nonnull(strstr(err.text, want));
        }
    }
}
END_TEST
#endif

START_TEST(workspace_covers_every_part)
{
    for (int threads = 1; threads < 5; threads++) {
        for (int f = 0; f < RIG_FORMATS; f++) {
            static const tt_ops *const refs[] = {&tt_table_ref_fp32, &tt_table_ref_tf32,
                                                 &tt_table_ref_bf16, &tt_table_ref_fp16};
            tt_ops ops, guarded;
            tt_err err;
            ck_assert_int_eq(refs[f]->compute, rig_formats[f]);
            ck_assert(tt_kernels_select(&ops, &guarded, rig_formats[f], "guard", &err) == TT_OK);
            size_t bytes = tt_kernels_workspace(&ops, &guarded, &rig_extents, threads);
            size_t front = tt_head_front(rig_extents.rows, rig_extents.vocab, refs[f]->format);
            ck_assert_uint_ge(bytes, front + refs[f]->workspace(&rig_extents, threads));
            if (refs[f]->compute == TT_FP32) {
                size_t blas = tt_table_openblas_fp32.workspace(&rig_extents, threads);
                ck_assert_uint_ge(bytes, front + blas);
            }
        }
    }
}
END_TEST

/* A library that multiplies wrongly. */
static void wrong_gemm_nn(tt_ctx *ctx, void *dx, const void *dy, const tt_weight *w,
                          const tt_epilogue *e, int64_t M, int64_t N, int64_t K, int64_t leaf)
{
    tt_table_openblas_fp32.gemm_nn(ctx, dx, dy, w, e, M, N, K, leaf);
    if (M == 13) {
        ((float *)dx)[M * K - 1] += 0.01f;
    }
}

START_TEST(self_test_passes_and_can_fail)
{
    static const char *const isa[] = {"", "ref", "guard"};
    for (int i = 0; i < 3; i++) {
        rig r;
        tt_err err = {TT_OK, ""};
        rig_open(&r, TT_FP32, isa[i], 2);
        ck_assert_msg(tt_kernels_self_test(&r.ctx, &err) == TT_OK, "%s", err.text);
        rig_close(&r);
        rig_open(&r, TT_BF16, isa[i], 2);
        ck_assert(tt_kernels_self_test(&r.ctx, &err) == TT_OK);
        rig_close(&r);
    }
    rig r;
    tt_err err = {TT_OK, ""};
    rig_open(&r, TT_FP32, "", 1);
    r.ops.gemm_nn = wrong_gemm_nn;
    ck_assert(tt_kernels_self_test(&r.ctx, &err) == TT_EWORLD);
    ck_assert_ptr_nonnull(strstr(err.text, "OpenBLAS"));
    ck_assert_ptr_nonnull(strstr(err.text, "gemm_nn with M=13"));
    rig_close(&r);
}
END_TEST

static void peak_is_a_rate(rig *r)
{
    ck_assert(r->ops.peak(&r->ctx, 0.01) > 1e7);
}

START_TEST(peak)
{
    rig_each(peak_is_a_rate);
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("select");
    TCase *tests = tcase_create("select");
    tcase_add_test(tests, every_table_is_complete);
    tcase_add_test(tests, who_serves_what);
    tcase_add_test(tests, unknown_names_are_refused);
#if defined(__x86_64__)
    tcase_add_test(tests, unsupported_names_say_so);
#endif
    tcase_add_test(tests, workspace_covers_every_part);
    tcase_add_test(tests, self_test_passes_and_can_fail);
    tcase_add_test(tests, peak);
    suite_add_tcase(suite, tests);
    return suite;
}

TT_TEST_MAIN(make_suite)
