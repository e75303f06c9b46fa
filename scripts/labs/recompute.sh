#!/usr/bin/env bash
# recompute.sh: keeping activations for backward, and computing them again.
#
#   scripts/labs/recompute.sh [--steps N] [--dir DIR] [--same] [key=value ...]
#
# Backward needs what forward made of every block, so memory grows with the depth: in deep models
# activations, not weights, are what does not fit. They can be made again from less. Norm outputs and
# GELU cost next to nothing to repeat (selective). Of segments of sqrt(L) blocks only the input is kept
# (sqrt), or of every block (block); then forward runs once more, which is less than a third of a step:
# the head is not repeated, nor the last segment, nor what no backward reads. Dropout must drop the same
# numbers the second time. A trainer that draws them from a stream has to rewind it; here they are a
# function of seed, step and element, and gradients are the same to the bit.
#
# The claims are of 16 blocks; fewer keep a larger share, and repeat more of a step.
#
# Leaves a folder a run, the plot and lab.yaml in DIR, runs/labs/recompute unless said otherwise.
# shellcheck source=scripts/lib/labs.sh
source "$(dirname "$0")/../lib/labs.sh"
lab_begin release 12 "$@"

always model.layers=16 model.context=128 model.dropout=0.1 batch.micro=16
for choice in none selective sqrt block; do
    gradient $choice "$steps" memory.recompute=$choice
done

kept() { compute "$(planned "$1" kept_bytes) / 1048576"; }
resident() { mean "$1" rss_mb; }
printf '%-10s %10s %14s %10s %10s %10s\n' recompute 'MiB kept' 'MiB resident' 'ms a step' 'of none' 'end loss'
for choice in none selective sqrt block; do
    printf '%-10s %10.1f %14.1f %10.1f %10.2f %10.4f\n' $choice "$(kept $choice)" "$(resident $choice)" \
        "$(median $choice step_ms)" "$(compute "$(median $choice step_ms) / $(median none step_ms)")" \
        "$(mean $choice loss)"
done
plot none selective sqrt block
for choice in selective sqrt block; do
    claim "$choice: the same gradient, to the bit" "$(apart $choice none) == 0"
done
claim "selective keeps less than two thirds" "$(kept selective) < 0.67 * $(kept none)"
claim "block keeps less than a seventh" "$(kept block) < $(kept none) / 7"
claim "and what is kept is what is resident" \
    "$(resident none) - $(resident block) > 0.9 * ($(kept none) - $(kept block))"
claim "block takes longer" "$(median block step_ms) > 1.05 * $(median none step_ms)"
claim "but less than another forward" "$(median block step_ms) < 1.45 * $(median none step_ms)"
lab_end "Memory is bought with time: the blocks' inputs alone are kept, for $(compute "$(median block step_ms) / $(median none step_ms)") times as long, and no bit changes."
