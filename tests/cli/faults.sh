#!/usr/bin/env bash
# Faults on demand: a gradient that is not finite is skipped by all ranks together; a crash or a full
# disk at the worst moment leaves the last good checkpoint, and the next start goes on from it.
# shellcheck source=tests/cli/lib.sh
source "$(dirname "$0")/lib.sh"
prepare

if [[ $release != "$tutti" ]]; then
    code=0
    TUTTI_FAULT=enospc timeout "$limit" "$release" train "$work/tiny.yaml" "run.dir=$work/none" \
        >"$work/out" 2>"$work/err" || code=$?
    refused "faults in a release build" 2 "TUTTI_FAULT=enospc"
fi
if ! "$tutti" version | grep -q '(\(debug\|asan\|tsan\|cov\) build'; then
    echo "skip faults: this build has none"
    exit
fi

# --- gradients that are not finite ---
for what in nan_grad inf_grad; do
    export TUTTI_FAULT=$what:rank=1,step=3
    trained "$what: the run ends with the skipped step" 3 $what run.steps=3 run.save_every=1 run.keep=1
    equal "$what: no checkpoint from before the trouble is deleted" "step-00000002.h5 step-00000003.h5" \
        "$(find "$work/$what" -name '*.h5' -printf '%f\n' | LC_ALL=C sort | paste -sd ' ')"
    check "$what: and it says so" grep -q 'the last step was skipped: not finite' "$work/err"
    trained "$what: the next start goes on" 3 $what run.steps=5 run.save_every=1 run.keep=0
    unset TUTTI_FAULT
    equal "$what: only step 3 is skipped" "1 false 2 false 3 true 4 false 5 false" \
        "$(metric $what skipped | paste -sd ' ')"
    equal "$what: one element is counted" "1 0 2 0 3 1 4 0 5 0" "$(metric $what nonfinite | paste -sd ' ')"
    said=$("$tutti" checkpoint diff "$(checkpoint $what 2)" "$(checkpoint $what 3)")
    equal "$what: weights and moments are as before the step" "0 0 0" \
        "$(awk '$1 == "params" || $1 ~ /^adam/ { print $2 }' <<<"$said" | paste -sd ' ')"
    said=$("$tutti" checkpoint diff "$(checkpoint $what 3)" "$(checkpoint $what 4)")
    check "$what: the next step changes them" test "$(awk '$1 == "params" { print $2 }' <<<"$said")" -gt 0
done
same_state "both kinds end in the same state" "$(checkpoint nan_grad 5)" "$(checkpoint inf_grad 5)"

trained "two good steps" 2 skips run.steps=2
before=$(sha256sum "$(checkpoint skips 2)")
TUTTI_FAULT=nan_grad:rank=0 train 2 skips run.steps=9 optim.max_skips=2
failed "too many skips in a row" 1 "optim.max_skips"
equal "the third stops the run" "1 2 3 4 5" "$(metric skips loss | cut -d ' ' -f 1 | paste -sd ' ')"
equal "its checkpoint is the last good one" "$before" "$(sha256sum "$(checkpoint skips 2)")"
equal "and there is no other" 1 "$(find "$work/skips" -name '*.h5' | wc -l)"

# --- the loss scale ---
scale=(precision.loss_scale=dynamic scaler.start=1024 scaler.interval=2)
export TUTTI_FAULT=inf_grad:rank=1,step=3
trained "a dynamic loss scale" 2 scale "${scale[@]}" run.steps=4
check "a skipped step says where the scale goes" grep -q \
    'step 3 is skipped: the gradient of wte is not finite; the loss scale goes from 2048 to 1024' "$work/err"
equal "the scale of every step" "1 1024 2 1024 3 2048 4 1024" "$(metric scale loss_scale | paste -sd ' ')"
unset TUTTI_FAULT
equal "the scale in the checkpoint" 1024 "$("$tutti" checkpoint info "$(checkpoint scale 4)" |
    awk '$1 == "state/loss_scale" { print $2 }')"
before=$(sha256sum "$(checkpoint scale 4)")
TUTTI_FAULT=inf_grad:rank=0 train 2 scale "${scale[@]}" run.steps=9 optim.max_skips=2
failed "too many skips with a loss scale" 1 \
    "the last because the gradient of wte is not finite; the loss scale is 256, its floor 1; stopped, the last checkpoint is untouched"
equal "its checkpoint is untouched" "$before" "$(sha256sum "$(checkpoint scale 4)")"

# --- crashes ---
steps=(run.steps=6 run.save_every=2 run.keep=0)
trained "a run that nothing happens to" 2 whole "${steps[@]}"
for case in before_save:1:2 mid_save:0:2 mid_save:1:2 before_rename:0:2 after_rename:0:4 after_rename:1:4 in_step:1:2; do
    IFS=: read -r point rank left <<<"$case"
    dir=crash-$point-$rank
    start=$SECONDS
    TUTTI_FAULT=crash_at=$point:rank=$rank,step=4 train 2 "$dir" "${steps[@]}"
    check "crash $point on rank $rank ends the job" test "$code" != 0 -a "$code" != 124
    check "crash $point on rank $rank: at once" test $((SECONDS - start)) -lt 30
    train 2 "$dir" "${steps[@]}"
    check "crash $point on rank $rank: the next start continues from step $left" \
        grep -q "continuing from .*step-0000000$left.h5" "$work/err"
    same_state "crash $point on rank $rank: as if nothing had happened" "$(checkpoint whole 6)" "$(checkpoint "$dir" 6)"
    equal "crash $point on rank $rank: same losses" "$(metric whole loss)" "$(metric "$dir" loss)"
    # What a crash left half-made is gone or is not taken for a checkpoint; three whole ones are there.
    equal "crash $point on rank $rank: checkpoints" 3 "$(find "$work/$dir" -name 'step-*.h5' | wc -l)"
done
TUTTI_FAULT=crash_at=before_rename:rank=0,step=4 train 2 only "${steps[@]}" run.keep=1
same_state "crash with one checkpoint kept: it is still there" "$(checkpoint whole 2)" "$(checkpoint only 2)"
TUTTI_FAULT=crash_at=mid_save:rank=0,step=2 train 2 first "${steps[@]}"
trained "crash in the first save: the next run starts" 2 first "${steps[@]}"
same_state "crash in the first save: and ends the same" "$(checkpoint whole 6)" "$(checkpoint first 6)"

# --- a full disk ---
for rank in 0 1; do
    TUTTI_FAULT=enospc:rank=$rank,step=4 train 2 full-$rank "${steps[@]}"
    failed "disk full on rank $rank" 1 "No space left on device"
    equal "disk full on rank $rank: the checkpoint before is there alone" "step-00000002.h5" \
        "$(cd "$work/full-$rank" && find . -name '*.h5*' -printf '%f\n')"
    trained "disk full on rank $rank: there is room again" 2 full-$rank "${steps[@]}"
    same_state "disk full on rank $rank: as if nothing had happened" "$(checkpoint whole 6)" "$(checkpoint full-$rank 6)"
done
