#!/usr/bin/env bash
# A step that is not finite: who is named, what a run does then, and what a replay of the step finds.
# shellcheck source=tests/cli/lib.sh
source "$(dirname "$0")/lib.sh"
prepare

# --- what needs no fault ---
trained "a run" 2 good run.steps=4 run.save_every=2 run.keep=0
before=$(tree "$work/good")
train 2 good run.replay=4
said "replay: everything is finite" '^step 4 replayed: everything is finite; loss [0-9.]*, grad norm [0-9.]*; '
said "replay: the same step" '^metrics.jsonl has the same loss and norm, to the bit$'
check "replay: from the checkpoint before it" grep -q 'continuing from .*step-00000002.h5' "$work/err"
check "replay: tells which steps come first" grep -q 'step 4 is replayed; first the steps from 3 on' "$work/err"
train 2 good run.replay=2 run.resume=never
said "replay: before all checkpoints, from the start" '^step 2 replayed: everything is finite'
said "replay: which is the same run" 'the same loss and norm, to the bit'
equal "replay: no file is written, moved or touched" "$before" "$(tree "$work/good")"
TUTTI_FAULT=slow=in_start train 2 good run.replay=4 run.max_seconds=1
failed "replay: out of time" 75 "a replay was stopped by run.max_seconds after step"
train 2 good run.replay=9
refused "replay: a step beyond the run" 2 "run.replay: the run has no step 9, run.steps is 6"
train 2 none run.replay=1
refused "replay: no run" 2 "there is no run in $work/none"
check "replay: and none is made" test ! -e "$work/none"
train 2 good run.replay=3 optim.lr=1
refused "replay: of another run" 2 "optim.lr"
train 2 good run.replay=1 optim.lr=1 # which has no checkpoint before it
refused "replay: of another run from its start" 2 "optim.lr"
train 2 good run.replay=1 run.resume=must
refused "replay: a checkpoint must be there" 2 "run.resume is must"
equal "what is refused changes nothing" "$before" "$(tree "$work/good")"
trained "the run goes on after replays" 2 good run.keep=0

# A loss scale that FP16 cannot bear: every step is skipped, on any build.
half=(precision.compute=fp16 precision.loss_scale=1e9)
train 2 half "${half[@]}" run.on_nonfinite=stop
failed "stop: a gradient out of range" 1 \
    "step 1: the gradient of ln_f.bias is not finite; first on rank 0, micro-batch 1 of 6, sample 0; stopped (run.on_nonfinite), nothing has been learned yet; run.replay=1 looks after every layer"
check "stop: nothing is saved" test -z "$(find "$work/half" -name '*.h5')"
train 2 half "${half[@]}" run.replay=1
said "replay: the layer" '^first on rank 0, micro-batch 1 of 6, sample 0: head, backward: gradient of norm_f has '
said "replay: a row a rank" '^1  *1/6  *1  *-  *head  *backward  *gradient of norm_f  .* of 256  *sample 1, token 0, channel 0$'

if ! "$tutti" version | grep -q '(\(debug\|asan\|tsan\|cov\) build'; then
    echo "skip nonfinite: this build has no faults"
    exit
fi

# line NAME: of nonfinite.jsonl, the only one.
line() { cat "$work/$1/nonfinite.jsonl"; }
# samples NAME STEP FIRST COUNT: of data.jsonl, samples and elements of a micro-batch.
samples() {
    local key from=$3 to=$(($3 + $4 - 1))
    for key in samples elements; do
        printf '"%s": [%s]' "$key" "$(sed -n "s/^{\"step\": $2, .*\"$key\": \[\([^]]*\)\].*/\1/p" "$work/$1/data.jsonl" |
            tr -d ' ' | cut -d , -f "$((from + 1))-$((to + 1))" | sed 's/,/, /g')"
        [[ $key == elements ]] || printf ', '
    done
}

# --- skip ---
three=(batch.micro=2 run.trace_data=true run.save_every=1 run.keep=0)
whole=$(TUTTI_FAULT='' train 3 calm "${three[@]}" && metric calm loss)
for what in nan_grad:2:gradient:wte nan_forward:2:loss: inf_grad:2:gradient:wte; do
    IFS=: read -r fault micro in tensor <<<"$what"
    for exact in false true; do
        dir=$fault-$exact
        TUTTI_FAULT=$fault:rank=1,step=3 train 3 "$dir" "${three[@]}" run.exact=$exact
        verdict "$dir: the run goes on" "$code"
        first=$(((micro - 1) * 3 * 2 + 2)) # in the step: S = 12, B = 2, R = 3
        named="\"in\": \"$in\", \"tensor\": $([[ -n $tensor ]] && echo "\"$tensor\"" || echo null)"
        equal "$dir: rank, micro-batch, tensor and samples" \
            "{\"step\": 3, \"rank\": 1, \"micro\": $micro, $named, $(samples "$dir" 3 $first 2)}" "$(line "$dir")"
        check "$dir: and a sentence" grep -q \
            "warning: step 3 is skipped: .* not finite.*; first on rank 1, micro-batch $micro of 2, samples $((24 + first)) to $((25 + first)) (run.replay=3 looks after every layer)" "$work/err"
        json "$dir: nonfinite.jsonl is JSON" "$work/$dir/nonfinite.jsonl"
    done
done
equal "until the step all is as without the fault" "$(head -n 2 <<<"$whole")" "$(metric nan_forward-false loss | head -n 2)"

# The next start, right after the skipped step, in another layout: as if it had not been interrupted.
export TUTTI_FAULT=nan_forward:rank=1,step=3
trained "a run that ends with a skipped step" 3 cut "${three[@]}" run.exact=true run.steps=3
equal "it has told of it" "$(line nan_forward-true)" "$(line cut)"
trained "the next start" 2 cut "${three[@]}" run.exact=true
same_state "right after a skipped step: as if uninterrupted" "$(checkpoint nan_forward-true 6)" "$(checkpoint cut 6)"
equal "right after a skipped step: the line stays" "$(line nan_forward-true)" "$(line cut)"
rm "$(checkpoint cut 3)" "$(checkpoint cut 4)" "$(checkpoint cut 5)" "$(checkpoint cut 6)"
trained "from before the skipped step" 3 cut "${three[@]}" run.exact=true
equal "the step is told of once, as it was made last" "$(line nan_forward-true)" "$(line cut)"
same_state "from before the skipped step: the same" "$(checkpoint nan_forward-true 6)" "$(checkpoint cut 6)"
TUTTI_FAULT='' train 3 cut "${three[@]}" run.exact=true run.resume=never run.steps=1
check "a new run: the line goes aside" test ! -e "$work/cut/nonfinite.jsonl" -a -f "$(find "$work/cut" -path '*earlier-*/nonfinite.jsonl')"

# --- replay ---
before=$(tree "$work/nan_forward-true")
train 3 nan_forward-true "${three[@]}" run.exact=true run.replay=3
said "replay: not finite" '^step 3 replayed: not finite; loss null, grad norm null'
said "replay: as it was" '^metrics.jsonl has the same loss and norm, to the bit$'
said "replay: the layer that wrote it" \
    '^first on rank 1, micro-batch 2 of 2, samples 32-33: attention of h.0, forward: attention has 1 NaN of 512$'
said "replay: where in it" '^1  *2/2  *32-33  *h.0  *attention  *forward  *attention  *1 NaN of 512  *sample 33, token 0, channel 0$'
said "replay: others" '^2 other ranks met nothing$'
TUTTI_FAULT='' train 2 nan_forward-true "${three[@]}" run.exact=true run.replay=3 batch.micro=3
said "replay: without the fault" '^step 3 replayed: everything is finite'
said "replay: and that says something" '^metrics.jsonl differs: loss null, grad norm null; what was not finite then has not come again'
train 3 nan_forward-true "${three[@]}" run.exact=true run.replay=4
said "replay: the step after, in exact mode from before it" '^metrics.jsonl has the same loss and norm, to the bit$'
equal "replay: no file is written" "$before" "$(tree "$work/nan_forward-true")"
TUTTI_FAULT=nan_grad:rank=1,step=3 train 3 nan_grad-false "${three[@]}" run.replay=3
said "replay: what no layer wrote" \
    '^what layers wrote is finite on every rank; the gradient of wte is not, first on rank 1, micro-batch 2 of 2, samples 32 to 33$'
TUTTI_FAULT=huge_grad:step=3 train 2 huge run.trace_data=true
equal "a sum that no rank is to blame for" \
    '{"step": 3, "rank": null, "micro": null, "in": "sum", "tensor": "wte", "samples": [], "elements": []}' "$(line huge)"

# --- stop ---
for fault in nan_grad nan_forward; do
    export TUTTI_FAULT=$fault:rank=1,step=5
    stop=("${three[@]}" run.on_nonfinite=stop run.save_every=3)
    train 3 stop-$fault "${stop[@]}"
    failed "stop at $fault" 1 "; stopped (run.on_nonfinite), the state before it is in $(checkpoint stop-$fault 4); run.replay=5 looks after every layer"
    check "stop at $fault: rank and samples" grep -q 'tutti: step 5: .*; first on rank 1, micro-batch 2 of 2, samples 56 to 57; ' "$work/err"
    equal "stop at $fault: what there was is there" "step-00000003.h5 step-00000004.h5" \
        "$(find "$work/stop-$fault" -name '*.h5' -printf '%f\n' | LC_ALL=C sort | paste -sd ' ')"
    same_state "stop at $fault: the state before the step" "$(checkpoint calm 4)" "$(checkpoint stop-$fault 4)"
    before=$(tree "$work/stop-$fault" | grep h5)
    train 3 stop-$fault "${stop[@]}"
    failed "stop at $fault, again" 1 "the state before it is in $(checkpoint stop-$fault 4)"
    equal "stop at $fault, again: nothing is saved anew" "$before" "$(tree "$work/stop-$fault" | grep h5)"
    unset TUTTI_FAULT
    trained "stop at $fault: the next start" 3 stop-$fault "${stop[@]}"
    same_state "stop at $fault: and the run is as if nothing had been" "$(checkpoint calm 6)" "$(checkpoint stop-$fault 6)"
    check "stop at $fault: nor does anything tell of it" test ! -s "$work/stop-$fault/nonfinite.jsonl"
done
TUTTI_FAULT=nan_grad:rank=0,step=1 train 2 first run.on_nonfinite=stop
failed "stop at the first step" 1 "nothing has been learned yet"
# A dynamic loss scale is looked for by skipping steps.
scale=(precision.loss_scale=dynamic scaler.start=8 run.on_nonfinite=stop)
TUTTI_FAULT=inf_grad:rank=0 train 2 scale "${scale[@]}"
failed "a dynamic loss scale stops at its floor" 1 "step 4: the gradient of wte is not finite; first on rank 0, micro-batch 6 of 6, sample 46; stopped"
equal "until then it falls" "1 8 2 4 3 2 4 1" "$(metric scale loss_scale | paste -sd ' ')"
