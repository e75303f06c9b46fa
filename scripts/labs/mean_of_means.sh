#!/usr/bin/env bash
# mean_of_means.sh: the mean of micro-batch means, and the mean over tokens.
#
#   scripts/labs/mean_of_means.sh [--steps N] [--dir DIR] [--same] [key=value ...]
#
# Documents have different lengths, so micro-batches have different numbers of targets. Each micro-batch
# normalised by its own number, and the results averaged, is what `loss.mean() / accumulate` does: a
# token in a micro-batch with few targets weighs more than one among many. The gradient then depends on
# how the batch was cut, on ranks and accumulate, which were to be layout; nothing looks wrong, since
# the printed loss is right. The cure: gradients add up as sums, the number of targets is added up
# over all micro-batches and ranks, and one division at the end makes the mean. The same batches go
# through 1 and 16 micro-batches here, both ways.
#
# Leaves a folder a run, the plot and lab.yaml in DIR, runs/labs/mean_of_means unless said otherwise.
# shellcheck source=scripts/lib/labs.sh
source "$(dirname "$0")/../lib/labs.sh"
lab_begin debug 100 "$@"

# Every paragraph of the headers is a document: some fill a sequence, many have a few tokens.
mkdir "$dir/text"
awk -v RS= -v to="$dir/text" '{ file = sprintf("%s/%06d", to, NR); print > file; close(file) }' include/tutti/*/*.h
build_tokens "$dir/text"

always data.mode=documents precision.compute=fp32 # FP32: what differs is not rounding
for split in 1 16; do
    way tokens-$split batch.accumulate=$split
    gradient tokens-$split-gradient 1 batch.accumulate=$split
done
for split in 1 16; do
    way means-$split fault=bad_norm batch.accumulate=$split
    gradient means-$split-gradient 1 fault=bad_norm batch.accumulate=$split
done

# gap WAY KEY: by how much its two splits differ at the end, in percent.
gap() {
    awk -v a="$(mean "$1-1" "$2")" -v b="$(mean "$1-16" "$2")" 'BEGIN {
        d = 100 * (a - b) / b
        printf "%.5f\n", d < 0 ? -d : d
    }'
}

printf '%-10s %24s %16s %16s\n' 'mean of' 'first gradients apart' 'norms apart' 'losses apart'
for name in tokens means; do
    printf '%-10s %22.5f %% %14s %% %14s %%\n' $name \
        "$(compute "100 * $(apart $name-1-gradient $name-16-gradient)")" \
        "$(gap $name grad_norm)" "$(gap $name loss)"
done
plot tokens-1 tokens-16 means-1 means-16
claim "over tokens, 1 and 16 micro-batches give one gradient" \
    "$(apart tokens-1-gradient tokens-16-gradient) < 1e-5"
claim "a single micro-batch has the same mean both ways" \
    "$(apart means-1-gradient tokens-1-gradient) < 1e-5"
claim "over means, they give two" "$(apart means-1-gradient means-16-gradient) > 0.1"
claim "over tokens, they learn the same" "$(gap tokens loss) < 0.1"
claim "over means, they do not" "$(gap means loss) > 0.5"
lab_end "Normalised once over all tokens, the cut of the batch is layout; by micro-batch, it is part of the result."
