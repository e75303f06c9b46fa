/* hooks.c: the order in which a pass calls them, without the pass. See tutti/model/hooks.h.
 *
 * Invariant: model.c calls them in this order. Owns nothing. */
#include "tutti/model/hooks.h"

#include "model_impl.h"
#include "tutti/base/narrow.h"

void tt_hooks_enter(const tt_hooks *hooks, int stage)
{
    if (hooks != NULL && hooks->enter != NULL) {
        hooks->enter(hooks->user, stage);
    }
}

void tt_hooks_grad_begin(const tt_hooks *hooks, int stage)
{
    if (hooks != NULL && hooks->grad_begin != NULL) {
        hooks->grad_begin(hooks->user, stage);
    }
}

void tt_hooks_grad_ready(const tt_hooks *hooks, int stage)
{
    if (hooks != NULL && hooks->grad_ready != NULL) {
        hooks->grad_ready(hooks->user, stage);
    }
}

void tt_hooks_walk(const tt_hooks *hooks, const tt_recompute *recompute, int64_t L, bool train)
{
    const int crown = tt_int(L + 1);
    for (int stage = 0; stage <= crown; stage++) {
        if (train && stage == crown) {
            tt_hooks_grad_begin(hooks, stage);
        }
        tt_hooks_enter(hooks, stage);
    }
    for (int stage = crown; stage >= 0 && train; stage--) {
        for (int s = tt_again_first(recompute, L, stage); s <= stage; s++) {
            tt_hooks_enter(hooks, s);
        }
        tt_hooks_enter(hooks, stage);
        if (stage < crown) {
            tt_hooks_grad_begin(hooks, stage);
        }
        tt_hooks_grad_ready(hooks, stage);
    }
}
