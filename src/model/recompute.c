/* recompute.c: which activations are computed again, by blocks, and what that costs. See
 * tutti/model/recompute.h; layout.c says what follows for memory, model.c runs it. */
#include "tutti/model/recompute.h"

#include <assert.h>
#include <string.h>

#include "model_impl.h"
#include "tutti/base/narrow.h"

const char *const tt_recompute_names[TT_RECOMPUTE_KINDS] = {
    [TT_RECOMPUTE_NONE] = "none",
    [TT_RECOMPUTE_SELECTIVE] = "selective",
    [TT_RECOMPUTE_SQRT] = "sqrt",
    [TT_RECOMPUTE_BLOCK] = "block",
};

static int64_t ceil_sqrt(int64_t n)
{
    int64_t root = 0;
    while (root * root < n) {
        root++;
    }
    return root;
}

tt_recompute tt_recompute_make(tt_recompute_kind kind, int64_t L, int64_t blocks, bool fp8)
{
    assert(L >= 1 && blocks >= 0);
    const int64_t segment = kind == TT_RECOMPUTE_SQRT ? ceil_sqrt(L) : 1;
    tt_recompute r = {.segment = segment, .selective = kind == TT_RECOMPUTE_SELECTIVE};
    if (kind == TT_RECOMPUTE_SQRT || (kind == TT_RECOMPUTE_BLOCK && blocks == 0)) {
        r.blocks = (L - 1) / segment * segment; /* all but the last segment */
    } else if (kind == TT_RECOMPUTE_BLOCK) {
        r.blocks = tt_min(blocks, L - 1);
        r.selective = r.blocks < L - 1;
    }
    r.selective = r.selective && !fp8;
    return r;
}

tt_again tt_again_of(const tt_recompute *r, int64_t L, int stage)
{
    const int64_t k = stage - 1; /* of the blocks, from 0 */
    if (stage < 1 || stage > L) {
        return TT_AGAIN_NOTHING;
    }
    if (k < r->blocks) {
        return k % r->segment == r->segment - 1 ? TT_AGAIN_SEGMENT : TT_AGAIN_NOTHING;
    }
    return r->selective && k < L - 1 ? TT_AGAIN_CHEAP : TT_AGAIN_NOTHING;
}

int tt_again_first(const tt_recompute *r, int64_t L, int stage)
{
    const tt_again again = tt_again_of(r, L, stage);
    return again == TT_AGAIN_NOTHING ? stage + 1
           : again == TT_AGAIN_CHEAP ? stage
                                     : stage - tt_int(r->segment) + 1;
}

bool tt_again_runs(const tt_apply *a, bool last)
{
    return !last || a->out != TT_NEXT;
}

/* What one application computes again in its stage: all of it, its GELU alone, nothing. */
typedef enum share { NOTHING, GELU, ALL } share;

static share share_of(const tt_recompute *r, int64_t L, int stage, const tt_apply *a)
{
    const int64_t k = stage - 1;
    if (k < r->blocks) {
        return tt_again_runs(a, k % r->segment == r->segment - 1) ? ALL : NOTHING;
    }
    if (tt_again_of(r, L, stage) != TT_AGAIN_CHEAP || !tt_slot_cheap(a->out)) {
        return NOTHING;
    }
    return tt_slots[a->out].gelu_of != TT_NO_SLOT ? GELU : ALL;
}

void tt_recompute_runs(const tt_recompute *r, int64_t L, int64_t runs[TT_ROWS])
{
    memset(runs, 0, TT_ROWS * sizeof runs[0]);
    for (int stage = 1; stage <= L; stage++) {
        const tt_program *program = tt_stage_program(L, stage);
        for (int i = 0; i < program->length; i++) {
            const tt_apply *a = &program->apply[i];
            const share what = share_of(r, L, stage, a);
            runs[a->op] += what == ALL;
            runs[TT_ROW_GELU] += what == GELU;
        }
    }
}

double tt_recompute_flops_per_token(const tt_recompute *r, const tt_shape *shape,
                                    const tt_params *params)
{
    double again = 0;
    for (int stage = 1; stage <= shape->L; stage++) {
        const tt_program *program = tt_stage_program(shape->L, stage);
        for (int i = 0; i < program->length; i++) {
            const tt_apply *a = &program->apply[i];
            if (share_of(r, shape->L, stage, a) == ALL) {
                again += tt_apply_flops(a, shape, params, stage);
            }
        }
    }
    return again;
}
