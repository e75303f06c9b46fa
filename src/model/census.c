/* census.c: names of what is counted, and who counts where. See tutti/model/census.h. */
#include "tutti/model/census.h"

#include "model_impl.h"

_Static_assert((int)TT_SEEN_ROWS <= (int)TT_ROLES, "a part has room for all rows");

static const char *const part_names[TT_PARTS] = {
    [TT_PART_FORWARD] = "forward",         [TT_PART_FORWARD_FP8] = "forward_fp8",
    [TT_PART_BACKWARD] = "backward",       [TT_PART_BACKWARD_FP8] = "backward_fp8",
    [TT_PART_GRADIENTS] = "gradients",     [TT_PART_WEIGHTS] = "weights",
    [TT_PART_WEIGHTS_FP8] = "weights_fp8",
};

/* NULL: there is no such row. */
static const char *row_name(tt_part part, int row)
{
    static const char *const beside[] = {"logits", "proj", "down"};
    if (part >= TT_PART_GRADIENTS) {
        return tt_role_name((tt_role)row);
    }
    return row < (int)TT_SLOTS       ? tt_slots[row].name
           : row < (int)TT_SEEN_ROWS ? beside[row - (int)TT_SLOTS]
                                     : NULL;
}

void tt_numerics_text(const tt_census *census, tt_text *out)
{
    const char *between = "{";
    for (int i = 0; i < TT_CENSUS_GROUPS; i++) {
        const tt_census *c = &census[i];
        const tt_part part = (tt_part)(i / (int)TT_ROLES);
        if (c->values > 0) {
            tt_text_add(out,
                        "%s\"%s/%s\": {\"values\": %lld, \"inf\": %lld, \"nan\": %lld, "
                        "\"overflow\": %lld, \"underflow\": %lld}",
                        between, part_names[part], row_name(part, i % (int)TT_ROLES),
                        (long long)c->values, (long long)c->inf, (long long)c->nan,
                        (long long)c->overflow, (long long)c->underflow);
            between = ", ";
        }
    }
    tt_text_add(out, "%s", between[0] == '{' ? "{}" : "}");
}

void tt_pass_count(const tt_pass *pass, tt_ctx *ctx, tt_part part, int result, int beside)
{
    const tt_numerics *numerics = &pass->model->numerics;
    ctx->count = (tt_counts){.result = NULL};
    if (pass->train && !pass->again) {
        ctx->count.result = tt_numerics_group(numerics, part, result);
        ctx->count.beside = tt_numerics_group(numerics, part, beside);
    }
}

int tt_seen_slot(tt_slot slot)
{
    return (int)(slot == TT_NEXT ? TT_X : slot);
}

int tt_seen_gradient(const tt_apply *a)
{
    if (a->layer == TT_LINEAR_RESIDUAL) {
        return a->op == TT_ROW_PROJ ? TT_SEEN_PROJ : TT_SEEN_DOWN;
    }
    return tt_seen_slot(a->layer == TT_LINEAR_GELU ? tt_slots[a->out].gelu_of : a->out);
}
