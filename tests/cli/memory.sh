#!/usr/bin/env bash
# The plan is the allocation: at the end of a run every component is resident as it was planned, and the
# peak of the process is the plan's total.
# shellcheck source=tests/cli/lib.sh
source "$(dirname "$0")/lib.sh"
prepare_release

# 12 blocks of 192 channels: tens of MiB, so that 2 % are something.
shape=(model.layers=12 model.channels=192 model.heads=3 model.context=64 run.steps=2 batch.sequences=8
    batch.micro=4 run.eval_every=0)

# last NAME: the last record of a run.
last() { tail -n 1 "$work/$1/metrics.jsonl"; }

# holds NAME COMPONENT: "PLANNED MEASURED" of a run, bytes.
holds() { last "$1" | sed -n "s/.*\"$2\": {\"planned\": \([0-9]*\), \"measured\": \([0-9]*\)}.*/\1 \2/p"; }

# near NAME BYTES "A B": they differ by 2 % of A or by so many bytes at most.
near() {
    awk -v bound="$2" '{ d = $1 > $2 ? $1 - $2 : $2 - $1; most = 0.02 * $1 > bound ? 0.02 * $1 : bound }
        END { exit !(NF == 2 && NR == 1 && d <= most) }' <<<"$3"
    verdict "$1" $? "'$3'"
}

mib=1048576
for ranks in 1 2; do
    for format in bf16 fp32; do
        name=$format-$ranks
        trained "$name: trains" "$ranks" "$name" "${shape[@]}" precision.compute=$format
        json "$name: records are JSON" "$work/$name/metrics.jsonl"
        for component in weights fp32_weights packed_weights gradients optimizer activations workspace batch; do
            near "$name: $component is as planned" $mib "$(holds "$name" $component)"
        done
        near "$name: libraries are within 64 MiB of the plan" $((64 * mib)) "$(holds "$name" libraries)"
        near "$name: so is the total" $((64 * mib)) "$(holds "$name" total)"
        peak=$(last "$name" | sed -n 's/.*"peak_rss": \([0-9]*\)}.*/\1/p')
        read -r planned _ <<<"$(holds "$name" total)"
        near "$name: the peak is the plan's total" $((64 * mib)) "$planned $peak"
        # The plan that a run is given is the one that is printed.
        equal "$name: the run's plan says the same" "$planned" "$(awk -F '[:,]' '
            NR == 1 { for (i = 1; i < NF; i++) if ($i ~ /"(total|libraries)_bytes"/) sum += $(i + 1) }
            END { printf "%d", sum }' "$work/$name/metrics.jsonl")"
        echo "note $name: total, planned $((planned / mib)) MiB, peak $((peak / mib)) MiB"
    done
done

# A run that goes on says it again, and its steps are one run's.
train 1 bf16-1 "${shape[@]}" precision.compute=bf16 run.steps=4
equal "resumed: one row a step" "1 2 3 4" "$(metric bf16-1 loss | cut -d ' ' -f 1 | tr '\n' ' ' | sed 's/ $//')"
equal "resumed: two runs, two ends" "2 2" \
    "$(grep -c '^{"run"' "$work/bf16-1/metrics.jsonl") $(grep -c '^{"memory"' "$work/bf16-1/metrics.jsonl")"
near "resumed: the end is the last record" $mib "$(holds bf16-1 weights)"
equal "the log has the table" 1 "$(grep -c '^  libraries  ' "$work/err")"

# What does not fit is said, once, and tried nevertheless: here the process's own limit refuses.
(
    ulimit -v 4000000
    alone train "$work/tiny.yaml" "run.dir=$work/large" model.channels=4096 model.heads=32 model.layers=24
    echo "$code" >"$work/code"
)
equal "a plan beyond the limit: exit code 1" 1 "$(cat "$work/code")"
equal "a plan beyond the limit: one warning" 1 "$(grep -c 'memory.recompute, a smaller batch.micro' "$work/err")"
equal "a plan beyond the limit: what was refused" 1 "$(grep -c '^tutti: .*the system refused' "$work/err")"
