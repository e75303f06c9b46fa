#!/usr/bin/env bash
# Stopping and continuing is as if nothing had happened: to the bit on the same ranks, within rounding
# on others, across the end of an epoch, with every step once in the metrics.
# shellcheck source=tests/cli/lib.sh
source "$(dirname "$0")/lib.sh"
prepare

# A constant learning rate: where the schedule ends is then not part of the way there.
usual=(run.steps=10 model.dropout=0.1 "data.train=$work/short.h5")

for compute in fp32 bf16; do
    case $compute in
    fp32) bounds=(1e-6 1e-5) ;;
    bf16) bounds=(1e-3 1e-3) ;;
    esac
    # 65 windows, 12 a step: the first epoch ends in step 6.
    trained "$compute: ten steps in one go" 4 "$compute-whole" "${usual[@]}" precision.compute=$compute
    trained "$compute: four steps" 4 "$compute-parts" "${usual[@]}" precision.compute=$compute run.steps=4
    for ranks in 1 2 3; do
        cp -r "$work/$compute-parts" "$work/$compute-$ranks"
    done
    trained "$compute: six more" 4 "$compute-parts" "${usual[@]}" precision.compute=$compute
    check "$compute: it says where it continues" grep -q "continuing from .*step-00000004.h5" "$work/err"
    same_state "$compute: the state is the same to the bit" \
        "$(checkpoint $compute-whole 10)" "$(checkpoint $compute-parts 10)"
    for key in loss grad_norm lr tokens_seen; do
        equal "$compute: so is $key of every step" "$(metric $compute-whole $key)" "$(metric $compute-parts $key)"
    done
    for ranks in 1 2 3; do
        trained "$compute: six more on $ranks ranks" $ranks "$compute-$ranks" "${usual[@]}" precision.compute=$compute
        close_metric "$compute: loss on 4 then $ranks ranks" "${bounds[0]}" loss $compute-whole "$compute-$ranks"
        close_state "$compute: weights on 4 then $ranks ranks" "${bounds[1]}" \
            "$(checkpoint $compute-whole 10)" "$(checkpoint "$compute-$ranks" 10)"
    done
done

# --- what may change and what may not ---
trained "two steps to continue from" 2 free run.steps=2
before=$(tree "$work/free")
for change in optim.weight_decay=0.2 model.dropout=0.2 batch.sequences=24 data.seed=1 run.seed=1 \
    precision.compute=bf16 optim.schedule=cosine; do
    train 2 free run.steps=4 $change
    refused "refused: $change" 2 "${change%=*}"
done
# As many tokens, but others.
tr 'a-y' 'b-z' <"$work/short.txt" >"$work/other.txt"
build short2 "$work/other.txt"
trained "two steps on short data" 2 data "data.train=$work/short.h5" run.steps=2
train 2 data "data.train=$work/short2.h5" run.steps=4
refused "refused: other tokens, as many" 2 "was trained on other tokens than those of data.train $work/short2.h5"
equal "which changes nothing" "$before" "$(tree "$work/free")"

# --- what may change because it is said so ---
cp -r "$work/free" "$work/allowed"
train 2 allowed run.steps=4 optim.weight_decay=0.2 optim.lr=1e-3 run.allow_change=optim.lr
refused "only what is listed" 2 "optim.weight_decay"
train 2 allowed run.steps=4 optim.weight_decay=0.2 "run.allow_change=[optim.wieght_decay]"
refused "what is listed must exist" 2 "did you mean optim.weight_decay?"
trained "listed options may change" 2 allowed run.steps=4 optim.weight_decay=0.2 optim.lr=1e-3 \
    "run.allow_change=[optim.weight_decay, optim.lr]"
check "it says what has" grep -q 'optim.weight_decay was 0.1 and is 0.2' "$work/err"
equal "and goes on with it" "2 0.003 3 0.001" "$(metric allowed lr | sed -n '2,3p' | paste -sd ' ')"
trained "so may data" 2 data "data.train=$work/short2.h5" run.steps=4 run.allow_change=data.train
check "it says so" grep -q 'holds other tokens than before' "$work/err"
trained "layout may change" 1 free run.steps=4 batch.micro=4 memory.zero=0 dist.bucket_mb=1 run.threads=2
check "and the run continues" grep -q 'continuing from' "$work/err"
mkdir "$work/moved"
cp "$work/tokens.h5" "$work/moved/other.h5"
mv "$work/free" "$work/moved/run"
trained "folders may move" 2 moved/run run.steps=5 "data.train=$work/moved/other.h5"
equal "every step is there once" "1 2 3 4 5" "$(metric moved/run loss | cut -d ' ' -f 1 | paste -sd ' ')"

# --- metrics follow the checkpoint ---
# Steps after the last checkpoint are taken back when they are done again; a torn line goes.
trained "six steps, saved after four" 1 back run.steps=6 run.save_every=4
rm "$(checkpoint back 6)"
printf '{"step": 7, "loss": 1.' >>"$work/back/metrics.jsonl"
train 1 back run.steps=6
equal "steps done again are there once" "1 2 3 4 5 6" "$(metric back loss | cut -d ' ' -f 1 | paste -sd ' ')"
equal "and no torn line" 0 "$(grep -c -v '}$' "$work/back/metrics.jsonl")"

# --- never ---
trained "a fresh start" 1 back run.steps=2 run.resume=never
check "keeps the earlier files beside" test -n "$(find "$work/back" -path '*earlier-*' -name step-00000006.h5)"
equal "and has steps of its own" "1 2" "$(metric back loss | cut -d ' ' -f 1 | paste -sd ' ')"
trained "done already" 1 back run.steps=2 run.resume=must
equal "adds no step" "1 2" "$(metric back loss | cut -d ' ' -f 1 | paste -sd ' ')"

# --- what is kept, and what a save took ---
trained "saves while steps go on" 2 kept run.steps=9 run.save_every=1 run.keep=2 run.keep_every=4 run.save_async=true
equal "the newest are kept, and some for ever" "00000004 00000008 00000009" \
    "$(find "$work/kept" -name 'step-*.h5' | sed 's/.*step-\(.*\).h5/\1/' | LC_ALL=C sort | paste -sd ' ')"
equal "each save has a line" "1 2 3 4 5 6 7 8 9" "$(metric kept saved | cut -d ' ' -f 1 | paste -sd ' ')"
check "the last is whole" verify "$(checkpoint kept 9)"
# A bit is another one, which only the digests tell; the run begins again before it and goes beyond it.
flipped=$(checkpoint kept 9)
byte=$(od -An -tu1 -j 60000 -N 1 "$flipped")
# shellcheck disable=SC2059 # the format is an escape
printf "\\x$(printf %02x $((byte ^ 1)))" | dd of="$flipped" bs=1 seek=60000 conv=notrunc status=none
cp "$flipped" "$work/kept/step-00000050.h5"
left() { find "$work/kept" -name 'step-*.h5' | sed 's/.*step-0*\([0-9]*\).h5/\1/' | sort -n | paste -sd ' '; }
trained "beside damaged ones" 2 kept run.steps=12 run.save_every=10 run.keep=1 run.save_async=true
check "they are passed over" grep -q '^warning: passed over: .*step-00000009.h5' "$work/err"
check "and the one after the last step, too" grep -q '^warning: passed over: .*step-00000050.h5' "$work/err"
equal "they push out nothing: what was saved is there" "12 50" "$(left)"
# A whole one under another step's name is not the newest.
cp "$(checkpoint kept 12)" "$work/kept/step-00000050.h5"
trained "beside a copy" 2 kept run.steps=13
check "which is passed over" grep -q '^warning: passed over: .*step-00000050.h5 holds step 12, not the one it is named for' "$work/err"
check "for the one that is what it says" grep -q 'continuing from .*step-00000012.h5' "$work/err"

# --- init_from ---
trained "initial weights of a run" 3 child run.steps=1 "run.init_from=$(checkpoint moved/run 5)"
equal "start at step 1" "1" "$(metric child loss | cut -d ' ' -f 1)"
