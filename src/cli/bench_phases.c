/* bench_phases.c: the time of a step, phase by phase, from the clocks of the kernels' table.
 *
 * Invariant: every operation has a phase (a new one does not compile without), every second of a
 * kernel is in one phase, and what no clock saw is the rest, so the shares add up to the step.
 * Matmuls that the head makes are called by a kernel: they are the head's. What a matmul does to its
 * sums on the way out (bias, GELU, residual, dropout) is the matmul's time. */
#include <math.h>
#include <string.h>

#include "cli/bench_impl.h"

typedef enum tt_phase {
    PHASE_FORWARD,
    PHASE_INPUT_GRAD,
    PHASE_WEIGHT_GRAD,
    PHASE_HEAD_MATMUL,
    PHASE_ATTENTION,
    PHASE_ATTENTION_GRAD,
    PHASE_LAST_PRODUCT = PHASE_ATTENTION_GRAD, /* all after it is outside matmul and attention */
    PHASE_HEAD_LOSS,
    PHASE_NORM,
    PHASE_GELU,
    PHASE_DROPOUT,
    PHASE_EMBED,
    PHASE_SUM_SQUARES,
    PHASE_ADAMW,
    PHASE_PACK,
    PHASE_FP8,
    PHASE_CONVERT,
    PHASE_PEAK, /* no part of a step */
    PHASE_KERNELS,
    PHASE_WIRE = PHASE_KERNELS,
    PHASE_DATA,
    PHASE_REST,
    PHASES
} tt_phase;

static const char *const phase_names[PHASES] = {
    [PHASE_FORWARD] = "matmul forward",
    [PHASE_INPUT_GRAD] = "matmul input gradient",
    [PHASE_WEIGHT_GRAD] = "matmul weight gradient",
    [PHASE_HEAD_MATMUL] = "head matmul",
    [PHASE_ATTENTION] = "attention forward",
    [PHASE_ATTENTION_GRAD] = "attention backward",
    [PHASE_HEAD_LOSS] = "head softmax and loss",
    [PHASE_NORM] = "norm",
    [PHASE_GELU] = "gelu again",
    [PHASE_DROPOUT] = "dropout gradient",
    [PHASE_EMBED] = "embedding",
    [PHASE_SUM_SQUARES] = "sum of squares",
    [PHASE_ADAMW] = "adamw",
    [PHASE_PACK] = "pack weights",
    [PHASE_FP8] = "fp8 scales and codes",
    [PHASE_CONVERT] = "convert",
    [PHASE_PEAK] = "peak",
    [PHASE_WIRE] = "reduction and gather",
    [PHASE_DATA] = "data",
    [PHASE_REST] = "rest",
};

/* The phase of each operation, by name. */
enum {
    PHASE_OF_embed = PHASE_EMBED,
    PHASE_OF_embed_grad = PHASE_EMBED,
    PHASE_OF_norm = PHASE_NORM,
    PHASE_OF_norm_grad = PHASE_NORM,
    PHASE_OF_gemm_nt = PHASE_FORWARD,
    PHASE_OF_gemm_nt_f32 = PHASE_FORWARD,
    PHASE_OF_gemm_nn = PHASE_INPUT_GRAD,
    PHASE_OF_gemm_tn = PHASE_WEIGHT_GRAD,
    PHASE_OF_attention = PHASE_ATTENTION,
    PHASE_OF_attention_grad = PHASE_ATTENTION_GRAD,
    PHASE_OF_residual_grad = PHASE_DROPOUT,
    PHASE_OF_head_loss = PHASE_HEAD_LOSS,
    PHASE_OF_sum_squares = PHASE_SUM_SQUARES,
    PHASE_OF_adamw = PHASE_ADAMW,
    PHASE_OF_pack = PHASE_PACK,
    PHASE_OF_fp8_scale = PHASE_FP8,
    PHASE_OF_fp8_round = PHASE_FP8,
    PHASE_OF_fp8_value = PHASE_FP8,
    PHASE_OF_to_act = PHASE_CONVERT,
    PHASE_OF_from_act = PHASE_CONVERT,
    PHASE_OF_gelu = PHASE_GELU,
    PHASE_OF_peak = PHASE_PEAK,
};

#define PHASE_OF(name, type, args) PHASE_OF_##name,
static const int phase_of[TT_OP_TOTAL] = {TT_OPS(PHASE_OF)};

static void add(tt_op_time *to, const tt_op_time *one)
{
    to->calls += one->calls;
    to->seconds += one->seconds;
    to->flops += one->flops;
}

/* A head that makes its products itself has them in the one row with its softmax: a matmul. */
static int own_phase(int op, const tt_op_time *time)
{
    const int phase = phase_of[op];
    return phase == PHASE_HEAD_LOSS && time->flops > 0 ? PHASE_HEAD_MATMUL : phase;
}

static int inner_phase(int op)
{
    return phase_of[op] <= PHASE_WEIGHT_GRAD ? PHASE_HEAD_MATMUL : phase_of[op];
}

static void gather(const tt_step_cost *cost, tt_op_time phase[PHASES])
{
    memset(phase, 0, PHASES * sizeof *phase);
    for (int op = 0; op < TT_OP_TOTAL; op++) {
        add(&phase[own_phase(op, &cost->ops->op[op])], &cost->ops->op[op]);
        add(&phase[inner_phase(op)], &cost->ops->inner[op]);
    }
    phase[PHASE_WIRE] = (tt_op_time){.calls = cost->wire_calls, .seconds = cost->wire};
    phase[PHASE_DATA] = (tt_op_time){.seconds = cost->data};
    phase[PHASE_REST].seconds = cost->seconds;
    for (int i = 0; i < PHASE_REST; i++) {
        phase[PHASE_REST].seconds -= phase[i].seconds;
    }
}

static void print_json(const tt_step_cost *cost, const tt_op_time phase[PHASES], tt_text *out)
{
    const double steps = (double)cost->steps;
    for (int i = 0; i < PHASES; i++) {
        const tt_op_time *p = &phase[i];
        tt_text_add(out, "{\"phase\": \"%s\", \"calls\": %.1f, \"ms\": %.4f, \"share\": %.5f",
                    phase_names[i], (double)p->calls / steps, 1e3 * p->seconds / steps,
                    p->seconds / cost->seconds);
        if (p->flops > 0) {
            tt_text_add(out, ", \"phase_gflops\": %.1f, \"of_peak\": %.4f",
                        p->flops / p->seconds / 1e9, p->flops / p->seconds / cost->peak);
        }
        tt_text_add(out, "}\n");
    }
}

static void print_table(const tt_step_cost *cost, const tt_op_time phase[PHASES], tt_text *out)
{
    const double steps = (double)cost->steps;
    tt_text_add(out, "%-24s %8s %10s %8s %9s %8s\n", "phase", "calls", "ms", "of step", "GFLOP/s",
                "of peak");
    for (int i = 0; i < PHASES; i++) {
        const tt_op_time *p = &phase[i];
        if (p->seconds == 0 && p->calls == 0) {
            continue;
        }
        tt_text_add(out, "%-24s %8.0f %10.2f %7.2f%%", phase_names[i], (double)p->calls / steps,
                    1e3 * p->seconds / steps, 100 * p->seconds / cost->seconds);
        if (p->flops > 0) {
            tt_text_add(out, " %9.1f %7.1f%%", p->flops / p->seconds / 1e9,
                        100 * p->flops / p->seconds / cost->peak);
        }
        tt_text_add(out, "\n");
    }
}

void tt_phases_print(const tt_step_cost *cost, bool json, tt_text *out)
{
    tt_op_time phase[PHASES];
    double outside = 0;
    gather(cost, phase);
    (json ? print_json : print_table)(cost, phase, out);
    for (int i = PHASE_LAST_PRODUCT + 1; i < PHASES; i++) {
        outside += phase[i].seconds / cost->seconds;
    }
    tt_text_add(out,
                json ? "{\"outside_matmul_and_attention\": %.5f}\n"
                     : "outside matmul and attention: %.1f %% of the step\n",
                (json ? 1 : 100) * outside);
}
