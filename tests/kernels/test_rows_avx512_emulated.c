/* test_rows_avx512_emulated.c: the portable bodies at the width of AVX-512, compiled through SIMDe for
 * the baseline. Without fused multiply-adds they do the same operations in the same order as the
 * reference at its own width, so the results are the same bits. */
#define TT_EMULATE_AVX512
/* The library has a table of this name. */
#define tt_table_generic_avx512_bf16 emulated_table
#include "kernels/isa/generic_bf16_avx512.c"

#include "rig.h"

enum { B = 2, T = 37, M = B * T, C = 83, V = 50, OUTS = 15 };

typedef struct output {
    void *data;
    size_t bytes;
} output;

static void take(output *out, int *count, void *data, size_t bytes)
{
    ck_assert_int_lt(*count, OUTS);
    out[(*count)++] = (output){data, bytes};
}

/* Every row-wise and element-wise operation of the table in r; outputs (free each) into out. */
static int run(rig *r, output *out)
{
    const int64_t samples[B] = {5, 123456789};
    const tt_dropout drop = rig_dropout(0.3, samples);
    const tt_adamw update = {1e-2f, 0.9f, 0.95f, 1e-8f, 0.1f, 0.1f, 0.05f, 0.5f};
    const size_t row = sizeof(tt_bf16) * M * C, sums = sizeof(float) * C;
    tt_ctx *ctx = &r->ctx;
    tt_exact loss = {.pending = 0};
    int64_t valid = 0;
    int count = 0;
    r->stream = 0;
    void *wte = rig_random(r, V * C, 1), *wpe = rig_random(r, T * C, 1),
         *gain = rig_random(r, C, 1);
    int32_t *token = rig_tokens(r, M, V - 2);
    float *mean = rig_floats(r, M, 1), *rstd = rig_floats(r, M, 1);
    float *gwte = rig_floats(r, V * C, 1), *gwpe = rig_floats(r, T * C, 1);
    float *ggain = rig_floats(r, C, 1), *gbias = rig_floats(r, C, 1),
          *state = rig_floats(r, V * C, 1);
    float *second = rig_floats(r, V * C, 0), *square = rig_floats(r, V * C, 0);
    void *x = rig_acts(r, M * C), *y = rig_acts(r, M * C), *dx = rig_acts(r, M * C);
    void *w = rig_acts(r, V * C);
    r->ops.embed(ctx, x, wte, wpe, token, B, T, C, &drop);
    r->ops.norm(ctx, y, mean, rstd, x, gain, wpe, M, C);
    const tt_weight head = {wte, NULL};
    r->ops.head_loss(ctx, &loss, &valid, NULL, dx, GRAD(gwte), y, &head, token, M, V, V - 2, C, T,
                     1);
    r->ops.norm_grad(ctx, dx, GRAD(ggain), GRAD(gbias), y, x, gain, mean, rstd, M, C, T);
    r->ops.residual_grad(ctx, x, dx, B, T, C, &drop);
    r->ops.embed_grad(ctx, GRAD(gwte), GRAD(gwpe), x, token, B, T, C, &drop);
    r->ops.adamw(ctx, FULL(state), second, square, w, GRAD(gwte), V * C, &update);
    tt_bf16 *split = rig_copy(w, sizeof(tt_bf16) * V * C),
            *none = rig_copy(w, sizeof(tt_bf16) * V * C);
    uint16_t *low = rig_copy(w, sizeof(tt_bf16) * V * C); /* as good a rest as any */
    const tt_master halves = {.kind = TT_MASTER_SPLIT, .low = low};
    const tt_master rounded = {.kind = TT_MASTER_NONE,
                               .stochastic = true,
                               .key = tt_rng_key(1, TT_RNG_ROUND, 1),
                               .first = 32};
    r->ops.adamw(ctx, &halves, second, square, split, GRAD(gwte), V * C, &update);
    r->ops.adamw(ctx, &rounded, second, square, none, GRAD(gwte), V * C, &update);
    double *numbers = rig_block(2 * sizeof *numbers);
    numbers[0] = tt_exact_value(&loss);
    numbers[1] = squares_of(ctx, gwte, V * C);
    take(out, &count, x, row);
    take(out, &count, y, row);
    take(out, &count, dx, row);
    take(out, &count, w, sizeof(tt_bf16) * V * C);
    take(out, &count, split, sizeof(tt_bf16) * V * C);
    take(out, &count, low, sizeof(uint16_t) * V * C);
    take(out, &count, none, sizeof(tt_bf16) * V * C);
    take(out, &count, mean, sizeof(float) * M);
    take(out, &count, rstd, sizeof(float) * M);
    take(out, &count, ggain, sums);
    take(out, &count, gbias, sums);
    take(out, &count, gwte, sums * V);
    take(out, &count, gwpe, sums * T);
    take(out, &count, state, sums * V);
    take(out, &count, numbers, 2 * sizeof *numbers);
    free(wte), free(wpe), free(gain), free(token), free(second), free(square);
    return count;
}

START_TEST(the_bits_of_the_reference)
{
    rig ref, wide512;
    output want[OUTS], got[OUTS];
    rig_open(&ref, TT_BF16, "ref", 2);
    rig_open(&wide512, TT_BF16, "ref", 2);
    size_t (*workspace)(const tt_extents *extents, int threads) = wide512.ops.workspace;
    wide512.ops = emulated_table;
    wide512.ops.workspace = workspace;
    int count = run(&ref, want);
    ck_assert_int_eq(run(&wide512, got), count);
    for (int i = 0; i < count; i++) {
        ck_assert_msg(memcmp(want[i].data, got[i].data, want[i].bytes) == 0, "output %d", i);
        free(want[i].data), free(got[i].data);
    }
    rig_close(&ref);
    rig_close(&wide512);
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("rows_avx512_emulated");
    TCase *tests = tcase_create("rows");
    tcase_add_test(tests, the_bits_of_the_reference);
    suite_add_tcase(suite, tests);
    return suite;
}

TT_TEST_MAIN(make_suite)
