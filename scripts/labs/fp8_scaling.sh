#!/usr/bin/env bash
# fp8_scaling.sh: scales of the magnitudes that FP8 sees, and of those it saw before.
#
#   scripts/labs/fp8_scaling.sh [--steps N] [--dir DIR] [--same] [key=value ...]
#
# E4M3 reaches from 2^-9 to 448, so a tensor needs a scale. `current` takes it from the sequence itself
# and has to read it twice; `delayed` takes it from the last steps, knows it beforehand, and hopes;
# `mxfp8` gives every 32 numbers their own. In calm training all three end where BF16 does. When
# magnitudes jump (at the start, at a high rate, after a spike), delayed scales are too small: what is
# beyond saturates without a word, and that step's gradient points elsewhere; this small model recovers.
# The cure is room: with fp8.margin=2 a tensor may become 4 times as large as before. That is nearly
# free, as a float has its binades either way. Both sides of the jump have the same weights in step 2,
# since the first step of `delayed`, which remembers nothing yet, is `current`.
#
# Leaves a folder a run, the plot and lab.yaml in DIR, runs/labs/fp8_scaling unless said otherwise.
# shellcheck source=scripts/lib/labs.sh
source "$(dirname "$0")/../lib/labs.sh"
lab_begin release 100 "$@"

always model.layers=1
fp8="precision.compute=fp8 fp8.recipe"
calm="optim.lr=3e-3 optim.warmup=20"
jump="optim.lr=3e-2 optim.warmup=0"

# shellcheck disable=SC2086 # words
{
    way current $fp8=current $calm
    way delayed $fp8=delayed $calm
    way mxfp8 $fp8=mxfp8 $calm
    way bf16 precision.compute=bf16 $calm
    for margin in 0 1 2; do
        gradient jump-delayed-$margin 2 $fp8=delayed fp8.margin=$margin $jump
    done
    gradient jump-current 2 $fp8=current $jump
}

# most_grown NAME: the largest factor by which magnitudes of a tensor in forward grew from step to step.
most_grown() {
    awk '!/"fp8_amax": / { next }
        {
            sub(/.*"fp8_amax": \{/, ""); sub(/\}.*/, "")
            n = split($0, part, ", ")
            for (i = 1; i <= n; i++) {
                split(part[i], word, "\": ")
                factor = word[1] ~ /grad_/ || seen[word[1]] == 0 ? 0 : word[2] / seen[word[1]]
                if (factor > most) most = factor
                seen[word[1]] = word[2]
            }
        }
        END { printf "%.1f\n", most }' "$dir/$1/metrics.jsonl"
}

printf '%-26s %10s\n' 'calm training' 'end loss'
for name in bf16 current delayed mxfp8; do printf '%-26s %10.4f\n' $name "$(mean $name loss)"; done
echo "a jump: from step 1 to step 2 magnitudes grow up to $(most_grown jump-current) times"
printf '%-26s %30s\n' '' "step 2's gradient, off current's"
for margin in 0 1 2; do
    printf '%-26s %28.3f %%\n' "delayed, fp8.margin=$margin" \
        "$(compute "100 * $(apart jump-delayed-$margin jump-current)")"
done
plot bf16 current delayed mxfp8
for name in current delayed mxfp8; do
    claim "calm, $name ends within 2 % of BF16" \
        "$(mean $name loss) < 1.02 * $(mean bf16 loss) && $(mean $name loss) > 0.98 * $(mean bf16 loss)"
done
claim "in a jump, delayed scales without margin make another gradient" "$(apart jump-delayed-0 jump-current) > 0.03"
claim "with two binades of margin they do not" "$(apart jump-delayed-2 jump-current) < 0.003"
lab_end "All recipes learn like BF16; delayed scales fail where magnitudes jump, and a margin mends that."
