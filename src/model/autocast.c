/* autocast.c: the rows, and what stands in their cells. See tutti/model/autocast.h.
 *
 * A cell is true of the kernels: what a column says is what they round to, no more. Cells of one kind of
 * row follow from the same few formats, so that a new format is a few words here. */
#include "tutti/model/autocast.h"

#include <string.h>

const char *const tt_op_row_names[TT_ROWS] = {
    [TT_ROW_EMBED] = "embed",
    [TT_ROW_NORM] = "norm",
    [TT_ROW_QKV] = "qkv",
    [TT_ROW_ATTENTION] = "attention",
    [TT_ROW_SOFTMAX] = "softmax",
    [TT_ROW_PROJ] = "proj",
    [TT_ROW_RESIDUAL] = "residual",
    [TT_ROW_FC] = "fc",
    [TT_ROW_GELU] = "gelu",
    [TT_ROW_DOWN] = "down",
    [TT_ROW_HEAD] = "head",
    [TT_ROW_LOSS] = "loss",
    [TT_ROW_WEIGHT_GRADIENTS] = "weight_gradients",
    [TT_ROW_REDUCTION] = "reduction",
    [TT_ROW_OPTIMIZER] = "optimizer",
};

/* Rows that multiply matrices: those that a narrow format makes cheaper, and that can be moved up. */
static const uint32_t linear =
    1u << TT_ROW_QKV | 1u << TT_ROW_PROJ | 1u << TT_ROW_FC | 1u << TT_ROW_DOWN;
static const uint32_t products = 1u << TT_ROW_QKV | 1u << TT_ROW_ATTENTION | 1u << TT_ROW_PROJ |
                                 1u << TT_ROW_FC | 1u << TT_ROW_DOWN | 1u << TT_ROW_HEAD;

/* The rows that a list of words with commas between names; the options have checked the words. */
static uint32_t rows_of(const char *list)
{
    uint32_t rows = 0;
    while (*list != '\0') {
        const size_t length = strcspn(list, ",");
        for (int row = 0; row < TT_ROWS; row++) {
            const char *name = tt_op_row_names[row];
            if (strlen(name) == length && memcmp(name, list, length) == 0) {
                rows |= 1u << row;
            }
        }
        list += length + (list[length] == ',');
    }
    return rows;
}

void tt_autocast_make(tt_autocast *a, const tt_config *config, const tt_ops *ops,
                      tt_master_kind master)
{
    const bool fp8 = strcmp(config->precision.compute, "fp8") == 0;
    const bool e5m2 = fp8 && strcmp(config->fp8.backward, "e5m2") == 0;
    *a = (tt_autocast){
        .compute = fp8 ? TT_E4M3 : (tt_format)tt_format_find(config->precision.compute),
        .storage = ops->format,
        .backward = e5m2 ? TT_E5M2 : ops->format,
        .probabilities = ops->probabilities,
        .master = master,
        .stochastic = strcmp(config->precision.rounding, "stochastic") == 0,
        .exact = config->run.exact,
    };
    a->up = a->compute == TT_FP32 ? 0 : rows_of(config->precision.fp32_ops) & products;
}

/* Why the row does not run in FP32 even if it is named; NULL: it does. */
static const char *obstacle(const tt_autocast *a, tt_op_row row)
{
    const bool narrow = a->storage != TT_FP32;
    switch (row) {
    case TT_ROW_EMBED:
        return narrow ? "it copies weights into the residual stream, which is stored in the "
                        "compute format"
                      : NULL;
    case TT_ROW_RESIDUAL:
        return narrow ? "it adds in fp32, to a stream that is stored in the compute format" : NULL;
    case TT_ROW_WEIGHT_GRADIENTS:
    case TT_ROW_REDUCTION:
        return a->exact ? "with run.exact it adds in 64-bit fixed point, or the order would matter"
                        : NULL;
    default:
        return NULL;
    }
}

tt_code tt_autocast_check(const tt_autocast *a, const tt_config *config, tt_err *err)
{
    const uint32_t named = rows_of(config->precision.fp32_ops);
    for (tt_op_row row = 0; row < TT_ROWS; row++) {
        const char *why = named >> row & 1 ? obstacle(a, row) : NULL;
        if (why != NULL) {
            return tt_fail(err, TT_EUSER,
                           "precision.fp32_ops: %s cannot be moved to fp32: %s; of the products "
                           "qkv, attention, proj, fc, down and head each can.",
                           tt_op_row_names[row], why);
        }
    }
    return TT_OK;
}

bool tt_autocast_e4m3(const tt_autocast *a, tt_op_row row)
{
    const uint32_t blocks = products & ~(1u << TT_ROW_HEAD);
    return a->compute == TT_E4M3 && (blocks & ~a->up) >> row & 1;
}

static const char *name_of(tt_format format)
{
    return tt_formats[format].name;
}

#define PROBABILITIES "probabilities enter the products in "
#define OUTPUT "; backward reads what it wrote as proj does: "
static const char *attention_note(const tt_autocast *a)
{
    static const char *const notes[][3] = {
        {PROBABILITIES "fp32", PROBABILITIES "fp32" OUTPUT "fp8_e4m3",
         PROBABILITIES "fp32" OUTPUT "bf16"},
        {PROBABILITIES "bf16", PROBABILITIES "bf16" OUTPUT "fp8_e4m3",
         PROBABILITIES "bf16" OUTPUT "bf16"},
        {PROBABILITIES "tf32"}};
    const bool up = tt_autocast_up(a, TT_ROW_ATTENTION);
    const tt_format weights = up ? TT_FP32 : a->probabilities;
    const bool coded = tt_autocast_e4m3(a, TT_ROW_PROJ);
    const bool differs = coded != tt_autocast_e4m3(a, TT_ROW_ATTENTION);
    return notes[weights == TT_BF16 ? 1 : weights == TT_TF32 ? 2 : 0][!differs ? 0 : coded ? 1 : 2];
}

/* qkv, attention, proj, fc, down, head. */
static void fill_product(const tt_autocast *a, tt_op_row row, tt_autocast_cells *c)
{
    const bool up = tt_autocast_up(a, row), matrix = row != TT_ROW_ATTENTION;
    const char *act = name_of(a->storage);
    const char *in = tt_autocast_e4m3(a, row) ? name_of(TT_E4M3)
                     : a->compute == TT_TF32  ? name_of(up ? TT_FP32 : TT_TF32)
                                              : act;
    c->reads = c->kept = in;
    c->weights = !matrix ? "-" : up ? name_of(TT_FP32) : in;
    c->writes = row == TT_ROW_HEAD ? name_of(TT_FP32) : act;
    c->gradient_in = a->compute == TT_TF32 ? in : act;
    if (linear >> row & 1 && !up && a->compute == TT_E4M3) {
        c->gradient_in = name_of(a->backward);
    }
    if (row == TT_ROW_HEAD && up) { /* of the logits: never stored */
        c->gradient_in = name_of(TT_FP32);
    }
    c->gradient_out = act;
    if (!matrix) {
        c->note = attention_note(a);
    }
}

/* Sums of weight gradients, and their reduction over ranks. */
static void fill_sum(const tt_autocast *a, tt_op_row row, tt_autocast_cells *c)
{
    const char *sum = a->exact ? "fixed64" : "fp32";
    if (row == TT_ROW_WEIGHT_GRADIENTS) {
        c->reads = "fp32";
        c->writes = sum;
        c->note = "each sequence, or part of it, summed in fp32, then added";
    } else {
        c->reads = c->computes = c->writes = sum;
    }
}

static void fill_optimizer(const tt_autocast *a, tt_autocast_cells *c)
{
    static const char *const notes[] = {
        [TT_MASTER_FP32] = "master weights, Adam m and v in fp32",
        [TT_MASTER_SPLIT] = "master weights in two halves: the bf16 weight and 16 bits more",
        [TT_MASTER_NONE] = "no master weights: rounded to nearest"};
    c->reads = a->exact ? "fixed64" : "fp32";
    c->weights = a->master == TT_MASTER_NONE ? name_of(a->storage) : "fp32";
    c->writes = name_of(a->storage);
    c->note = a->stochastic ? "no master weights: rounded stochastically" : notes[a->master];
}

tt_autocast_cells tt_autocast_row(const tt_autocast *a, tt_op_row row)
{
    const char *act = name_of(a->storage), *fp32 = name_of(TT_FP32);
    /* In FP8 backward sees the codes of what a block has kept. */
    const char *kept = a->compute == TT_E4M3 ? name_of(TT_E4M3) : act;
    tt_autocast_cells c = {tt_op_row_names[row], "-", "-", fp32, "-", "-", "-", "-", ""};
    switch (row) {
    case TT_ROW_EMBED:
        c.weights = c.writes = c.gradient_in = act;
        break;
    case TT_ROW_NORM:
        c.reads = c.weights = c.writes = c.gradient_in = c.gradient_out = act;
        c.kept = kept;
        c.note = a->compute == TT_E4M3 ? "the last one keeps bf16" : "";
        break;
    case TT_ROW_SOFTMAX:
        c.reads = c.writes = c.kept = c.gradient_in = c.gradient_out = fp32;
        break;
    case TT_ROW_RESIDUAL: /* the branch comes from the matmul as FP32 */
        c.reads = c.writes = c.gradient_in = c.gradient_out = act;
        c.note = "the branch that is added comes in fp32";
        break;
    case TT_ROW_GELU: /* backward multiplies the matmul's FP32 result */
        c.reads = c.writes = c.gradient_out = act;
        c.gradient_in = fp32;
        c.kept = kept;
        break;
    case TT_ROW_LOSS:
        c.reads = fp32;
        c.gradient_out = tt_autocast_up(a, TT_ROW_HEAD) ? fp32 : act;
        c.note = "of 1024 exponentials fp32, of these sums fp64, of tokens exact";
        break;
    case TT_ROW_WEIGHT_GRADIENTS:
    case TT_ROW_REDUCTION:
        fill_sum(a, row, &c);
        break;
    case TT_ROW_OPTIMIZER:
        fill_optimizer(a, &c);
        break;
    default:
        fill_product(a, row, &c);
        break;
    }
    return c;
}

void tt_autocast_text(const tt_autocast *a, tt_text *out)
{
    tt_text_add(out, "Formats (precision.compute %s)\n",
                a->compute == TT_E4M3 ? "fp8" : name_of(a->compute));
    tt_text_add(out, "                    forward                                 backward\n");
    tt_text_add(out, "  %-17s %-8s  %-8s  %-8s  %-8s  %-8s  %-8s  %s\n", "operation", "reads",
                "weights", "computes", "writes", "reads", "gradient", "writes");
    for (tt_op_row row = 0; row < TT_ROWS; row++) {
        const tt_autocast_cells c = tt_autocast_row(a, row);
        tt_text_add(out, "  %-16s%s %-8s  %-8s  %-8s  %-8s  %-8s  %-8s  %-8s  %s", c.name,
                    tt_autocast_up(a, row) ? "*" : " ", c.reads, c.weights, c.computes, c.writes,
                    c.kept, c.gradient_in, c.gradient_out, c.note);
        while (out->length > 0 && out->data[out->length - 1] == ' ') {
            out->data[--out->length] = '\0';
        }
        tt_text_add(out, "\n");
    }
    if (a->up != 0) {
        tt_text_add(out, "  * moved up by precision.fp32_ops\n");
    }
    tt_text_add(out, "\n");
}
