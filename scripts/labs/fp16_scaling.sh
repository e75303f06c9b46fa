#!/usr/bin/env bash
# fp16_scaling.sh: FP16 without loss scaling, and with.
#
#   scripts/labs/fp16_scaling.sh [--steps N] [--dir DIR] [--same] [key=value ...]
#
# The smallest number FP16 has is 2^-24, and backward starts from 1 / tokens: with the half million
# tokens a step that large models use, from 2^-19, and what reaches the weights is a thousand times
# smaller. So gradients round to zero or to one of a few numbers, the direction is lost, the loss stops
# falling; no NaN, no skipped step. The cure costs nothing: multiply the loss by a power of two, which moves
# every gradient up by as many binades, and divide by it in FP32 before clipping. BF16 has FP32's range
# and needs none. This lab's steps have 2^10 tokens; a loss scale of 2^-9 gives each token the weight
# it has among 2^19.
#
# Leaves a folder a run, the plot and lab.yaml in DIR, runs/labs/fp16_scaling unless said otherwise.
# shellcheck source=scripts/lib/labs.sh
source "$(dirname "$0")/../lib/labs.sh"
lab_begin release 150 "$@"

among_half_a_million=0.001953125 # 2^-9
declare -A keys=(
    [scaled]="precision.compute=fp16 precision.loss_scale=dynamic"
    [unscaled]="precision.compute=fp16 precision.loss_scale=$among_half_a_million"
    [bf16]="precision.compute=bf16 precision.loss_scale=$among_half_a_million"
    [fp32]="precision.compute=fp32"
)
for name in scaled unscaled bf16; do
    # shellcheck disable=SC2086 # words
    way $name ${keys[$name]}
done
for name in fp32 scaled unscaled bf16; do
    # shellcheck disable=SC2086 # words
    gradient $name-gradient 1 ${keys[$name]}
done

printf '%-10s %12s %22s %10s\n' way 'loss scale' 'first gradient is off' 'end loss'
for name in scaled unscaled bf16; do
    printf '%-10s %12g %20.2f %% %10.3f\n' $name "$(mean $name loss_scale)" \
        "$(compute "100 * $(apart $name-gradient fp32-gradient)")" "$(mean $name loss)"
done
plot scaled unscaled bf16
claim "unscaled, the first gradient is wrong by a tenth or more" "$(apart unscaled-gradient fp32-gradient) > 0.1"
claim "scaled, it is right to a hundredth" "$(apart scaled-gradient fp32-gradient) < 0.01"
claim "unscaled, the loss ends far above" "$(mean unscaled loss) > $(mean scaled loss) + 0.3"
claim "scaled, it ends where BF16's does" "$(mean scaled loss) < 1.02 * $(mean bf16 loss)"
lab_end "FP16 learns as well as BF16 once the loss is scaled; without, its small gradients vanish."
