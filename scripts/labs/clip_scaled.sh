#!/usr/bin/env bash
# clip_scaled.sh: clipping the scaled gradient, and clipping after it was unscaled.
#
#   scripts/labs/clip_scaled.sh [--steps N] [--dir DIR] [--same] [key=value ...]
#
# With a loss scale of S all gradients in memory are S times too large. Whoever clips them before they
# are divided by S compares S * norm with the bound: every step is clipped, down to a norm of clip / S.
# AdamW hides it, as it divides by the gradient's own size, as long as that is far above eps; below,
# the learning rate shrinks with it, the more, the larger model and scale are. No NaN, no warning: the
# loss just falls slowly. The order that is right: unscale, then look for what is not finite, then the
# norm, then clip. What gives the mistake away: `clipped` is true in every step, whatever grad_norm is.
#
# Leaves a folder a run, the plot and lab.yaml in DIR, runs/labs/clip_scaled unless said otherwise.
# shellcheck source=scripts/lib/labs.sh
source "$(dirname "$0")/../lib/labs.sh"
lab_begin debug 120 "$@"

# Adam sees gradients of norm 1 / 65536 by the mistake; with 2^10 times as many parameters each element is
# 2^5 times smaller beside eps. So eps is 2^5 times 1e-8 here, and this small model feels what a large one does.
always precision.compute=fp16 precision.loss_scale=dynamic optim.clip=1 optim.eps=3.2e-7
way unscaled
way scaled fault=clip_scaled

printf '%-24s %18s %16s %10s\n' 'clipping to 1 sees' 'mean grad_norm' 'steps clipped' 'end loss'
for name in unscaled scaled; do
    printf '%-24s %18.3f %14.0f %% %10.3f\n' "the $name gradient" "$(mean $name grad_norm 1)" \
        "$(compute "100 * $(mean $name clipped 1)")" "$(mean $name loss)"
done
plot unscaled scaled
claim "unscaled first, some steps are clipped" "$(mean unscaled clipped 1) > 0 && $(mean unscaled clipped 1) < 0.9"
claim "scaled, every step is" "$(mean scaled clipped 1) == 1"
claim "and the loss ends above" "$(mean scaled loss) > $(mean unscaled loss) + 0.15"
lab_end "Clipping before unscaling clips every step to nothing: the model learns, but as with a much smaller rate."
