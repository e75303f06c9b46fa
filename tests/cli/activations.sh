#!/usr/bin/env bash
# FP8 keeps half of what BF16 keeps for backward: `tutti plan` says so, and so does the memory that a
# run really has. That is resident memory without what the plan counts beside, and without what is
# outside of any plan, libraries above all: the same run with one sequence tells how much that is.
# shellcheck source=tests/cli/lib.sh
source "$(dirname "$0")/lib.sh"
prepare_release

# 4096 tokens of 12 blocks of 64 channels, beside which weights and the rest are small.
shape=(model.layers=12 model.channels=64 model.heads=2 model.context=128 run.steps=1)
large=32

# kept SEQUENCES KEY=VALUE...: MiB that wait for backward, by tutti plan.
kept() {
    alone plan "$work/tiny.yaml" "${shape[@]}" "batch.sequences=$1" "batch.micro=$1" "${@:2}" --ranks 1
    sed -n 's/^  activations .*(\([0-9.]*\) MiB of them wait for backward)$/\1/p' "$work/out"
}

# outside NAME SEQUENCES KEY=VALUE...: trains, and MiB that are resident in the last step less those planned.
outside() {
    local resident planned
    train 1 "$1" "${shape[@]}" "batch.sequences=$2" "batch.micro=$2" "${@:3}"
    resident=$(metric "$1" rss_mb | awk 'END { print $2 }')
    planned=$(sed -n '1s/.*"total_bytes": \([0-9]*\).*/\1/p' "$work/$1/metrics.jsonl")
    awk -v r="$resident" -v p="$planned" 'BEGIN { if (r > 0 && p > 0) printf "%.2f", r - p / 1048576 }'
}

# measure NAME KEY=VALUE...: into $plan and $real, MiB.
measure() {
    plan=$(kept $large "${@:2}")
    real=$(awk -v plan="$plan" -v base="$(outside "$1-1" 1 "${@:2}")" -v all="$(outside "$1" $large "${@:2}")" \
        'BEGIN { if (plan != "" && base != "" && all != "") printf "%.2f", plan + all - base }')
    echo "note $1: $plan MiB wait for backward by the plan, $real by resident memory"
}

# share NAME LOW HIGH A B: A / B is within.
share() {
    local said
    said=$(awk -v a="$4" -v b="$5" -v low="$2" -v high="$3" 'BEGIN {
        if (a !~ /^[0-9]/ || b !~ /^[0-9]/ || b == 0) { print "nothing"; exit 1 }
        printf "%.3f", a / b
        exit !(a / b >= low && a / b <= high)
    }')
    verdict "$1" $? "it is $said, not $2 to $3: '$4' of '$5' MiB"
}

measure bf16 precision.compute=bf16
plan_bf16=$plan real_bf16=$real
share "bf16: resident as planned" 0.95 1.05 "$real" "$plan"
# A code a number, where BF16 has two bytes. What stays as it was, softmax's and norms' statistics and the
# last stream, is a hundredth; a scale for 32 numbers is a 64th of BF16's bytes.
for recipe in current mxfp8; do
    measure "fp8-$recipe" precision.compute=fp8 fp8.recipe=$recipe
    share "fp8, $recipe: half of BF16's in the plan" 0.48 0.53 "$plan" "$plan_bf16"
    share "fp8, $recipe: half of BF16's in memory" 0.47 0.54 "$real" "$real_bf16"
done
# And it is FP8 that halves, not 16 bits.
measure fp16 precision.compute=fp16
share "fp16: as much as BF16" 0.95 1.05 "$real" "$real_bf16"
