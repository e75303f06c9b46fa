#!/usr/bin/env bash
# run.digest_every: equal bits have equal digests, in the metrics and in the checkpoint; a run that was
# interrupted has the digests of the run that was not; and where two checkpoints part is said.
# shellcheck source=tests/cli/lib.sh
source "$(dirname "$0")/lib.sh"
prepare

steps_of() { sed -n 's/^{"step": \([0-9]*\),.*/\1/p' "$work/$1/digests.jsonl" | paste -sd ' '; }

# stored NAME STEP: the digest of the weights in a checkpoint.
stored() {
    alone checkpoint info "$(checkpoint "$1" "$2")"
    awk '$1 == "group_digests/params" { print $2 }' "$work/out"
}

# --- equal bits, equal digests ---
# The same ranks with and without ZeRO add the same numbers in the same order.
for zero in 0 1; do
    trained "ZeRO $zero" 2 "zero-$zero" model.dropout=0.1 memory.zero=$zero run.steps=5 run.digest_every=2
done
equal "every second step, and the last" "2 4 5" "$(steps_of zero-0)"
equal "all digests are the same with ZeRO 0 and 1" "$(<"$work/zero-0/digests.jsonl")" "$(<"$work/zero-1/digests.jsonl")"
json "digests.jsonl is JSON" "$work/zero-0/digests.jsonl"
json "metrics.jsonl is JSON" "$work/zero-0/metrics.jsonl"
equal "the metrics have those of the weights" \
    "$(sed 's/{"step": \([0-9]*\), "digest": "\([0-9a-f]*\)".*/\1 "\2"/' "$work/zero-0/digests.jsonl")" \
    "$(metric zero-0 digest)"
equal "16 hexadecimal digits" 3 "$(metric zero-0 digest | grep -c '^[0-9]* "[0-9a-f]\{16\}"$')"
equal "which change with every step" 3 "$(metric zero-0 digest | cut -d ' ' -f 2 | sort -u | wc -l)"
equal "a digest for each tensor of the checkpoint" \
    "$("$tutti" checkpoint info "$(checkpoint zero-0 5)" | awk '$1 ~ /^(params|adam_[mv])\// { print "\"" $1 "\": \"" $4 "\"" }')" \
    "$(tail -n 1 "$work/zero-0/digests.jsonl" | grep -o '"[a-z_]*/[a-z0-9_.]*": "[0-9a-f]*"')"
equal "the checkpoint has that of the weights" "5 \"$(stored zero-0 5)\"" "$(metric zero-0 digest | tail -n 1)"

# Updates below the smallest float leave the initial weights, whoever holds them.
for ranks in 1 2 3; do
    trained "nothing is learned on $ranks ranks" $ranks "idle-$ranks" optim.lr=2e-38 optim.eps=1000 run.steps=2 run.digest_every=1
    equal "and the digest is the same" "$(metric idle-1 digest)" "$(metric "idle-$ranks" digest)"
done
equal "in every step" 1 "$(metric idle-1 digest | cut -d ' ' -f 2 | sort -u | wc -l)"

exact=(run.exact=true run.digest_every=1 model.dropout=0.1 run.steps=3)
trained "exact mode" 1 exact-1:12:1 "${exact[@]}" batch.micro=12
for split in 2:3:0 3:1:1; do
    IFS=: read -r ranks micro zero <<<"$split"
    trained "exact mode on $ranks ranks, micro-batch $micro, ZeRO $zero" "$ranks" "exact-$split" "${exact[@]}" \
        batch.micro="$micro" memory.zero="$zero"
    equal "has the same digests in every step" "$(<"$work/exact-1:12:1/digests.jsonl")" \
        "$(<"$work/exact-$split/digests.jsonl")"
done

trained "without run.digest_every" 1 none run.steps=1
check "no file" test ! -e "$work/none/digests.jsonl"
equal "and no digest" "" "$(metric none digest)"

# --- digests follow the checkpoint ---
trained "six steps, saved after four" 2 back run.save_every=4 run.digest_every=1
cp "$work/back/digests.jsonl" "$work/whole.jsonl"
rm "$(checkpoint back 6)"
printf '{"step": 7, "digest": "01' >>"$work/back/digests.jsonl"
cp -r "$work/back" "$work/silent"
trained "two of them again" 2 back run.digest_every=1
equal "leave the digests of a run in one go" "$(<"$work/whole.jsonl")" "$(<"$work/back/digests.jsonl")"
trained "and again without digests" 2 silent
equal "leaves none of steps that were made anew" "1 2 3 4" "$(steps_of silent)"
trained "a fresh start" 2 back run.resume=never run.steps=1 run.digest_every=1
equal "has digests of its own" 1 "$(steps_of back)"
check "and keeps the earlier ones beside" cmp -s "$work/whole.jsonl" "$work"/back/earlier-*/digests.jsonl

# --- arithmetic ---
alone checkpoint info "$(checkpoint zero-0 5)"
said "a checkpoint says by which arithmetic it was made" '^arithmetic  *tutti [0-9.]*, fp32 on .*glibc'
equal "as the run did" "$(sed -n 's/^arithmetic  *//p' "$work/out")" \
    "$(sed -n 's/^{"run": .*"arithmetic": "\([^"]*\)".*/\1/p' "$work/zero-0/metrics.jsonl")"
TUTTI_ISA=ref trained "other kernels" 1 ref run.steps=1
alone checkpoint info "$(checkpoint ref 1)"
said "are other arithmetic" '^arithmetic  *tutti [0-9.]*, fp32 on ref, glibc'

trained "exact mode goes on" 2 exact-3:1:1 "${exact[@]}" run.steps=4
equal "without a word" 0 "$(grep -c arithmetic "$work/err")"
TUTTI_ISA=ref trained "by other arithmetic" 2 exact-3:1:1 "${exact[@]}" run.steps=5
equal "with one" 1 "$(grep -c arithmetic "$work/err")"
check "that names both" grep -q \
    'run.exact: .*step-00000004.h5 was made by other arithmetic (stored: tutti .*; now: tutti .* on ref, glibc' "$work/err"
alone checkpoint info "$(checkpoint exact-3:1:1 5)"
said "a checkpoint remembers the arithmetic before" \
    '^arithmetic  *tutti [0-9.]*, fp32 on ref, glibc .*; until step 4: tutti [0-9.]*, fp32 on .* matmuls by'
TUTTI_ISA=ref trained "other arithmetic out of exact mode" 2 zero-0 model.dropout=0.1 run.steps=6
equal "is nobody's concern" 0 "$(grep -c arithmetic "$work/err")"

# --- diff ---
alone checkpoint diff "$(checkpoint zero-0 5)" "$(checkpoint zero-1 5)"
said "diff: bit-identical" '^identical: .*bit-identical'
alone checkpoint diff "$(checkpoint idle-1 2)" "$(checkpoint ref 1)"
equal "diff: others exit with 1" 1 "$code"
check "diff: the first element that differs" grep -q \
    "^first difference: params/wte\[[0-9]*,[0-9]*\] is [-0-9.e]* in .*idle-1/step-00000002.h5, [-0-9.e]* in .*ref/step-00000001.h5$" "$work/out"
check "diff: what the runs did not share" grep -q '^optim.lr is 2.0e-38 in .*idle-1/.*, [0-9.e-]* in .*ref/' "$work/out"
check "diff: nor by what arithmetic" grep -q '^arithmetic is tutti .* in .*idle-1/.*, tutti .* fp32 on ref, .* in .*ref/' "$work/out"
equal "diff: nothing of where they were kept" 0 "$(grep -c '^run.dir\|^data.train' "$work/out")"
equal "diff: a row a group" 4 "$(grep -c '^params \|^adam_m \|^adam_v \|^state ' "$work/out")"
