#!/usr/bin/env bash
# bf16_weights.sh: weights kept in BF16 alone, and with what makes up for it.
#
#   scripts/labs/bf16_weights.sh [--steps N] [--dir DIR] [--same] [key=value ...]
#
# BF16 has 8 significant bits: between a weight and its neighbours lies 2^-8 of it. AdamW moves a
# weight by about the learning rate, and an update of less than half the gap rounds back to where the
# weight was, in this step and in all that follow: nothing adds up, and only small weights still learn.
# The usual cure keeps an FP32 master of each weight, which collects the updates, and rounds a copy for
# the matmuls: 4 bytes more a parameter (2 with precision.master=split). Stochastic rounding needs no
# byte: it rounds up with the probability that the exact weight asks for, so updates arrive on average.
#
# Leaves a folder a run, the plot and lab.yaml in DIR, runs/labs/bf16_weights unless said otherwise.
# shellcheck source=scripts/lib/labs.sh
source "$(dirname "$0")/../lib/labs.sh"
lab_begin release 500 "$@"

always batch.sequences=4 optim.lr=3e-5 optim.warmup=0
way masters precision.master=fp32
way nearest precision.master=none precision.rounding=nearest
way stochastic precision.master=none precision.rounding=stochastic

# learned NAME FIRST: by how much the loss fell from the tenth of the steps after FIRST to the last.
learned() { compute "$(mean "$1" loss $(($2 + 1)) $(($2 + steps / 10))) - $(mean "$1" loss)"; }
half=$((steps / 2))

printf '%-12s %28s %10s %22s %20s\n' weights 'optimizer bytes a parameter' 'end loss' 'fell in the whole run' 'in its second half'
for name in masters nearest stochastic; do
    printf '%-12s %28.0f %10.3f %22.3f %20.3f\n' $name \
        "$(compute "$(planned $name optimizer_bytes) / $(planned $name parameters)")" \
        "$(mean $name loss)" "$(learned $name 0)" "$(learned $name $half)"
done
plot masters nearest stochastic
claim "rounded to nearest, less than two thirds of it is learned" \
    "$(learned nearest 0) < 2 / 3 * $(learned masters 0)"
claim "and less than half of it in the second half" "$(learned nearest $half) < 1 / 2 * $(learned masters $half)"
claim "rounded stochastically, it is learned as with masters" \
    "$(mean stochastic loss) < $(mean masters loss) + 0.05 * $(learned masters 0)"
lab_end "BF16 weights lose small updates; a master copy keeps them, stochastic rounding lets them through on average."
