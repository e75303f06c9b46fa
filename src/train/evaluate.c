/* evaluate.c: the held-out loss. See evaluate.h. */
#include "tutti/train/evaluate.h"

#include "tutti/base/narrow.h"
#include "tutti/dist/watch.h"
#include "tutti/train/trainer.h"

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

/* What is added up over ranks when the passes are done. */
typedef struct outcome {
    tt_loss loss;
    tt_halted halted;
} outcome;
enum { LOSS_WORDS = sizeof(tt_loss) / sizeof(int64_t) };
_Static_assert(sizeof(outcome) == (LOSS_WORDS + TT_HALTED_WORDS) * sizeof(int64_t), "no gaps");

/* Before a pass: is it, and all that would follow, not to be made? The first always is, idle where the
 * rank leaves: weights may be on their way, and others wait until this rank has its share of them. In
 * ZeRO 3 they are in every pass, so that all ranks end together. Collective there. */
static tt_code ends(tt_tutti *tutti, tt_halt *halt, bool first, bool *left, bool *over, tt_err *err)
{
    tt_code rc = TT_OK;
    *left = *left || (halt != NULL && tt_halt_asked(halt, false));
    if (!first && halt != NULL && tutti != NULL && tutti->trainer->print.rotates) {
        rc = tt_halt_together(halt, left, err);
    }
    *over = *left && !first;
    return rc;
}

tt_code tt_evaluate(tt_world *world, tt_model *model, tt_sampler *sampler, tt_batch *batch,
                    int64_t count, tt_tutti *tutti, tt_halt *halt, tt_loss *loss, tt_err *err)
{
    tt_code rc = TT_OK, own = TT_OK;
    const int64_t ranks = world ? world->size : 1, rank = world ? world->rank : 0;
    const int64_t B = batch->B, batches = tt_ceil_div(count, B);
    const tt_hooks beats = {.between = beat, .user = world};
    const tt_hooks *hooks = tutti != NULL ? &tutti->hooks : &beats;
    tt_err wire = {TT_OK, ""};
    outcome out = {.loss = {.count = 0}};
    bool left = false, over = false;
    tt_beat(world, "evaluating");
    if (halt != NULL) {
        tt_halt_begin(halt);
    }
    for (int64_t first = 0; first < batches; first += ranks) { /* the same passes on all ranks */
        TT_TRY(ends(tutti, halt, first == 0, &left, &over, err));
        if (over) {
            break;
        }
        const int64_t j = first + rank;
        const bool computes = j < batches && !left;
        if (own == TT_OK && computes) {
            own = tt_batch_fill_range(batch, sampler, j * B, count, err);
        }
        if (tutti != NULL) {
            tt_tutti_begin(tutti, TT_PASS_FORWARD, false);
        }
        if (own == TT_OK && computes) {
            tt_model_eval(model, batch->token, batch->target, B, batch->T, &out.loss, hooks);
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
    tt_exact_carry(&out.loss.sum);
    out.halted = halt != NULL ? tt_halt_mine(halt, left) : (tt_halted){.left = 0};
    TT_TRY(tt_sum_i64(world, (int64_t *)&out, LOSS_WORDS + TT_HALTED_WORDS, err));
    *loss = out.loss;
    if (halt != NULL) {
        halt->all = out.halted;
    }
out:
    return rc;
}
