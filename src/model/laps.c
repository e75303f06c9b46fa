/* laps.c: one micro-batch with a clock around every application. See laps.h.
 *
 * Invariant: what is done is what model.c does for a block whose activations are all kept, in the same
 * order. Owns nothing. Reads the tables; next: train/price.c. */
#include "tutti/model/laps.h"

#include <assert.h>
#include <string.h>

#include "model_impl.h"
#include "tutti/base/clock.h"
#include "tutti/base/narrow.h"

/* GELU alone. In FP8 nobody does it, and what is there is no longer what it was made of. */
static int gelu_laps(tt_pass *pass, tt_lap *lap, int count)
{
    const tt_program *block = tt_stage_program(pass->model->shape.L, 1);
    pass->again = true;
    for (int i = 0; i < block->length && pass->model->fp8 == NULL; i++) {
        const tt_apply *a = &block->apply[i];
        if (a->out < TT_SLOTS && tt_slots[a->out].gelu_of != TT_NO_SLOT) {
            assert(count < TT_LAPS);
            const double start = tt_seconds();
            tt_apply_gelu_again(pass, a, 1);
            lap[count].program = 1;
            lap[count].row = TT_ROW_GELU;
            lap[count].forward += tt_seconds() - start;
            count++;
        }
    }
    return count;
}

int tt_model_laps(tt_model *model, const int32_t *token, const int32_t *target,
                  const int64_t *sample, int64_t B, int64_t T, tt_lap lap[TT_LAPS])
{
    assert(model->stages == TT_PROGRAMS); /* of one block: each program once */
    tt_loss loss = {.count = 0};
    tt_pass pass = tt_pass_make(model, token, B, T);
    tt_pass_train(&pass, target, sample, 0, 0, 1.0f, &loss);
    memset(tt_pass_gradient(&pass, TT_X), 0,
           tt_bytes(tt_mul(pass.M, model->shape.C), model->act_bytes));
    int count = 0;
    for (int stage = 0; stage < TT_PROGRAMS; stage++) {
        const tt_program *program = tt_stage_program(model->shape.L, stage);
        for (int i = 0; i < program->length; i++, count++) {
            assert(count < TT_LAPS);
            const double start = tt_seconds();
            tt_apply_forward(&pass, &program->apply[i], stage);
            lap[count].program = stage;
            lap[count].row = program->apply[i].op;
            lap[count].forward += tt_seconds() - start;
        }
    }
    for (int stage = TT_PROGRAMS - 1, at = count - 1; stage >= 0; stage--) {
        const tt_program *program = tt_stage_program(model->shape.L, stage);
        double start = tt_seconds();
        tt_pass_restore(&pass, stage); /* what the first to go back finds is its own to pay */
        for (int i = program->length - 1; i >= 0; i--, at--) {
            const tt_layer *layer = &tt_layers[program->apply[i].layer];
            if (layer->backward != NULL) {
                layer->backward(&pass, &program->apply[i], stage);
            }
            const double now = tt_seconds();
            lap[at].backward += now - start;
            start = now;
        }
    }
    return gelu_laps(&pass, lap, count);
}
