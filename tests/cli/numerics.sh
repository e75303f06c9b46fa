#!/usr/bin/env bash
# run.numerics_every: numerics.jsonl has the counts of the steps that are due, the same on any number of
# ranks, those of a skipped step too; a run that was interrupted has the lines of the run that was not.
# shellcheck source=tests/cli/lib.sh
source "$(dirname "$0")/lib.sh"
prepare

steps_of() { sed -n 's/^{"step": \([0-9]*\),.*/\1/p' "$work/$1/numerics.jsonl" | paste -sd ' '; }

# count RUN STEP GROUP WHAT
count() {
    sed -n "s/^{\"step\": $2,.*\"${3/\//\\/}\": {[^}]*\"$4\": \([0-9]*\).*/\1/p" "$work/$1/numerics.jsonl"
}

fp16=(precision.compute=fp16 precision.loss_scale=1 run.exact=true run.steps=5)
trained "counting every second step" 1 one "${fp16[@]}" run.numerics_every=2
equal "writes these" "2 4" "$(steps_of one)"
json "numerics.jsonl is JSON" "$work/one/numerics.jsonl"
equal "every number of the stream, with what the embeddings wrote" $((192 * 16 * 3)) "$(count one 2 forward/x values)"
check "FP16 without a scale underflows" test "$(count one 2 backward/qkv underflow)" -gt 0
for ranks in 2 3; do
    trained "on $ranks ranks" $ranks "on-$ranks" "${fp16[@]}" run.numerics_every=2
    equal "the counts are the same" "$(<"$work/one/numerics.jsonl")" "$(<"$work/on-$ranks/numerics.jsonl")"
done
trained "without run.numerics_every" 2 none "${fp16[@]}"
check "no file" test ! -e "$work/none/numerics.jsonl"
equal "and the same losses" "$(metric one loss)" "$(metric none loss)"

cp "$work/on-2/numerics.jsonl" "$work/whole.jsonl"
cp -r "$work/on-2" "$work/back"
rm "$(checkpoint back 5)"
printf '{"step": 6, "numer' >>"$work/back/numerics.jsonl"
trained "begun again" 2 back "${fp16[@]}" run.numerics_every=2
equal "it has the lines of one run" "$(<"$work/whole.jsonl")" "$(<"$work/back/numerics.jsonl")"
trained "a fresh start" 2 back "${fp16[@]}" run.numerics_every=2 run.resume=never
check "keeps the earlier ones beside" cmp -s "$work/whole.jsonl" "$work"/back/earlier-*/numerics.jsonl

trained "a scale that is far too large" 2 far "${fp16[@]}" run.numerics_every=1 precision.loss_scale=1e12 \
    optim.max_skips=9 run.steps=2
equal "skips every step" "1 true 2 true" "$(metric far skipped | paste -sd ' ')"
equal "which are counted" "1 2" "$(steps_of far)"
check "and overflow from the logits on" test "$(count far 1 backward/logits overflow)" -gt 0
equal "no weight was rounded" "" "$(count far 1 weights/wte values)"

train 2 bad run.numerics_every=-1
refused "a negative number of steps" 2 "run.numerics_every"
