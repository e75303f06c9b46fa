/* evaluate.c: the held-out loss. See evaluate.h. */
#include "tutti/train/evaluate.h"

#include "tutti/base/narrow.h"
#include "tutti/dist/watch.h"

tt_code tt_evaluate_open(tt_tokens **tokens, const char *path, tt_err *err)
{
    tt_code rc = TT_OK;
    TT_TRY(tt_tokens_open(tokens, path, false, err));
    if (tt_tokens_has_valid(*tokens)) {
        tt_tokens_close(*tokens);
        *tokens = NULL;
        TT_TRY(tt_tokens_open(tokens, path, true, err));
    }
out:
    return rc;
}

tt_code tt_evaluate_sampler(tt_sampler *sampler, tt_tokens *tokens, const char *mode,
                            int64_t context, tt_err *err)
{
    return tt_sampler_open(sampler, tokens, mode, 0, context, true, err);
}

static void beat(void *world)
{
    tt_beat(world, NULL);
}

tt_code tt_evaluate(tt_world *world, tt_model *model, tt_sampler *sampler, tt_batch *batch,
                    int64_t count, tt_tutti *tutti, tt_loss *loss, tt_err *err)
{
    tt_code rc = TT_OK, own = TT_OK;
    const int64_t ranks = world ? world->size : 1, rank = world ? world->rank : 0;
    const int64_t B = batch->B, batches = tt_ceil_div(count, B);
    const tt_hooks beats = {.between = beat, .user = world};
    const tt_hooks *hooks = tutti != NULL ? &tutti->hooks : &beats;
    tt_err wire = {TT_OK, ""};
    *loss = (tt_loss){.count = 0};
    tt_beat(world, "evaluating");
    for (int64_t first = 0; first < batches; first += ranks) { /* the same passes on all ranks */
        const int64_t j = first + rank;
        if (own == TT_OK && j < batches) {
            own = tt_batch_fill_range(batch, sampler, j * B, count, err);
        }
        if (tutti != NULL) {
            tt_tutti_begin(tutti, TT_PASS_FORWARD, false);
        }
        if (own == TT_OK && j < batches) {
            tt_model_eval(model, batch->token, batch->target, B, batch->T, loss, hooks);
        } else if (tutti != NULL) {
            tt_tutti_idle(tutti);
        }
        if (tutti != NULL) {
            const tt_code ended = tt_tutti_end(tutti, &wire);
            if (ended != TT_OK && own == TT_OK) {
                own = ended;
                *err = wire;
            }
        }
    }
    TT_TRY(tt_agree(world, own, err));
    tt_exact_carry(&loss->sum);
    TT_TRY(tt_sum_i64(world, (int64_t *)loss, (int)(sizeof *loss / sizeof(int64_t)), err));
out:
    return rc;
}
