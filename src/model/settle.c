/* settle.c: the model's memory before its first use.
 *
 * A slot's copy is touched by itself, divided among the team as the kernels divide its rows: the whole
 * of the layout divided would give the first blocks to one thread and the last to another. The same
 * for each packed matrix. And between copies there is a red zone, where the build has such.
 *
 * Owns nothing. Reads the layout; model.c calls it once, when a model is opened. */
#include "model_impl.h"
#include "tutti/base/memory.h"
#include "tutti/base/narrow.h"

static void settle_spans(const tt_model *model, const tt_span *span, int spans)
{
    for (int i = 0; i < spans; i++) {
        for (int64_t copy = 0; copy < span[i].copies; copy++) {
            unsigned char *at = model->memory + span[i].first + tt_bytes(copy, span[i].bytes);
            tt_touch(at, span[i].used, model->ctx->threads);
            tt_redzone(at, span[i].used, span[i].bytes);
        }
    }
}

void tt_model_settle(const tt_model *model)
{
    const tt_layout *layout = &model->layout;
    settle_spans(model, layout->slot, TT_SLOTS);
    settle_spans(model, layout->stats, TT_SLOTS);
    settle_spans(model, layout->code, TT_SLOTS);
    settle_spans(model, layout->exponent, TT_SLOTS);
    settle_spans(model, &layout->spare, 1);
    settle_spans(model, layout->gradient, TT_BUFFERS);
    for (int i = 0; i < model->stages * TT_ROLES; i++) {
        const tt_home *home = &model->home[i];
        if (home->packed != NULL) {
            tt_touch(home->packed, model->ctx->ops->packed_bytes(home->rows, home->columns),
                     model->ctx->threads);
        }
    }
}
