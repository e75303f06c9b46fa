/* tally.c: what a rank knows of its gradient when the reduction is done. See train_impl.h. */
#include <math.h>

#include "tutti/base/narrow.h"

#include "train/train_impl.h"

int tt_tally_gradient(tt_trainer *t, tt_tally *tally)
{
    const tt_params *params = &t->print.params;
    const tt_shard *cut = &t->print.cut;
    int64_t flat = -1; /* last element that is not finite */
    for (int i = 0; i < cut->count; i++) {
        const tt_range range = cut->range[i];
        const tt_grad g = tt_sum_own(t, range.first, cut->local[i]);
        const int64_t before = tally->squares.nonfinite;
        t->ctx.ops->sum_squares(&t->ctx, &tally->squares, &g, range.end - range.first);
        for (int64_t j = range.first; tally->squares.nonfinite > before && j < range.end; j++) {
            const bool finite = isfinite(g.sum[j - range.first]); /* integers always are */
            tally->nonfinite += !finite;
            flat = finite ? flat : tt_max(flat, j);
        }
    }
    int last = params->count - 1;
    while (last >= 0 && params->param[last].offset > flat) {
        last--;
    }
    for (int p = 0; t->gradient.fixed != NULL && p < params->count; p++) {
        tally->nonfinite += t->gradient.lost[p];
        last = t->gradient.lost[p] > 0 ? p : last;
    }
    return last;
}
