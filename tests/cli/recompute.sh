#!/usr/bin/env bash
# memory.recompute as a user meets it: the same bits with every choice, in every format, on any number of
# ranks, also when a run goes on with another; less memory; auto, which chooses; what is refused.
# shellcheck source=tests/cli/lib.sh
source "$(dirname "$0")/lib.sh"
prepare

deep=(precision.compute=bf16 model.layers=5 model.dropout=0.2 run.steps=4 batch.sequences=4 batch.micro=2 batch.accumulate=0)

# --- the same bits, without exact mode too ---
for compute in bf16 fp32 fp8; do
    trained "none, $compute" 2 "none-$compute" "${deep[@]}" precision.compute=$compute
    for choice in selective sqrt block; do
        trained "$choice, $compute" 2 "$choice-$compute" "${deep[@]}" precision.compute=$compute \
            memory.recompute=$choice
        same_state "$choice, $compute: the same to the bit" "$(checkpoint "none-$compute" 4)" \
            "$(checkpoint "$choice-$compute" 4)"
    done
done
trained "the first two blocks" 2 two-blocks "${deep[@]}" memory.recompute=block memory.recompute_blocks=2
same_state "two blocks: the same to the bit" "$(checkpoint none-bf16 4)" "$(checkpoint two-blocks 4)"
trained "half the way with none" 2 changed "${deep[@]}" run.steps=2 optim.schedule=constant
trained "the rest with block" 2 changed "${deep[@]}" optim.schedule=constant memory.recompute=block
trained "all the way with sqrt" 2 unchanged "${deep[@]}" optim.schedule=constant memory.recompute=sqrt
same_state "changed on the way: the same to the bit" "$(checkpoint unchanged 4)" "$(checkpoint changed 4)"

# Nothing is counted twice.
trained "counted, none" 1 counted-none "${deep[@]}" precision.compute=fp8 run.numerics_every=1
trained "counted, block" 1 counted-block "${deep[@]}" precision.compute=fp8 run.numerics_every=1 memory.recompute=block
check "the same counts" cmp -s "$work/counted-none/numerics.jsonl" "$work/counted-block/numerics.jsonl"

# --- auto ---
# planned KEY=VALUE...: what the plan chose, and its total of a rank in bytes, into $chose and $total.
planned() {
    alone plan "$work/tiny.yaml" "${deep[@]}" model.layers=16 model.context=256 "$@" --json
    chose=$(sed -n 's/.*"memory.recompute": "\([a-z]*\)", "memory.recompute_blocks": \([0-9]*\).*/\1 \2/p' "$work/out")
    total=$(sed -n 's/.*"rank_bytes": {[^}]*"total": \([0-9]*\)}.*/\1/p' "$work/out")
}

planned memory.recompute=none
none=$total
planned memory.recompute=selective
selective=$total
planned memory.recompute=block
block=$total
check "selective takes less, block still less" test "${block:-0}" -gt 0 -a "$block" -lt "$selective" -a "$selective" -lt "$none"
planned "memory.recompute=auto:$none"
equal "auto, all that none takes" "none 0" "$chose"
planned "memory.recompute=auto:$((none - 1))"
equal "auto, a byte less" "selective 0" "$chose"
planned "memory.recompute=auto:$block"
equal "auto, what block takes" "block 15" "$chose"
planned "memory.recompute=auto:$(((selective + block) / 2))"
check "auto, between: a few blocks" test "${chose% *}" = block -a "${chose#* }" -gt 1 -a "${chose#* }" -lt 15
check "and it fits" test "$total" -le $(((selective + block) / 2))
planned "memory.recompute=auto:$((block - 1))"
refused "auto, a byte less than the least" 2 "a rank takes"
trained "auto, trained" 2 auto "${deep[@]}" memory.recompute=auto:1GiB
same_state "auto: the same to the bit" "$(checkpoint none-bf16 4)" "$(checkpoint auto 4)"
check "it says what it chose" grep -q 'memory.recompute: auto chose none: [0-9.]* of 1024.0 MiB' "$work/err"
check "metrics.jsonl says what was chosen" grep -q '"recompute": "none"' "$work/auto/metrics.jsonl"

# --- mistakes ---
alone plan "$work/tiny.yaml" memory.recompute=some
refused "an unknown choice" 2 "allowed is none, selective, sqrt or block, or auto:SIZE"
alone plan "$work/tiny.yaml" memory.recompute=auto:much
refused "no size" 2 "memory.recompute"
alone plan "$work/tiny.yaml" memory.recompute=sqrt memory.recompute_blocks=2
refused "blocks of sqrt" 2 "memory.recompute_blocks: 2 goes with memory.recompute block"
alone plan "$work/tiny.yaml" memory.recompute=block memory.recompute_blocks=99
refused "more blocks than there are" 2 "memory.recompute_blocks: 99 is more than model.layers"
train 2 refused memory.recompute=auto:1MiB
refused "too little for anything, on two ranks" 2 "memory.recompute: auto:1MiB"
