#!/usr/bin/env bash
# measure_memory.sh: is the plan what a run takes? Trains one step of each model, micro-batch and
# memory.recompute, and sets the peak of resident memory beside the plan.
#
#   scripts/measure_memory.sh [--readme] [--micro "1 4 8"] [--models "gpt2-124m deep"] [--quick]
#                             [--keep DIR] [key=value ...]
#
# Models: gpt2-124m (12 blocks of 768 channels, vocabulary 50304) and deep (24 blocks of 512 channels),
# both with 1024 tokens of context. A line a run: planned (libraries included) and peak MiB, the
# difference, and what of it activations are, planned and measured. A run passes when the peak is within
# 2 % or 64 MiB of the plan, and what is in memory of the activations within 2 % or 64 KiB of theirs; exit 1 when one does not, 2 when the request is wrong.
# --quick: a small model in place of both, for tests. --readme puts the table of the first model between
# README's markers. TUTTI_BIN is the program, default build/release/tutti. The largest run wants 9 GiB.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/lib/report.sh
source scripts/lib/report.sh
readme='' quick='' micro='' models='' keep=''
request 'readme quick micro= models= keep=' "$@"
if [[ $quick ]]; then
    : "${models:=small}" "${micro:=1 3}"
fi
models=${models:-gpt2-124m deep} micros=${micro:-1 4 8}
for micro in $micros; do
    [[ $micro =~ ^[1-9][0-9]{0,3}$ ]] || fail 2 "--micro '$micros': whole numbers are needed"
done
for model in $models; do
    [[ $model =~ ^(gpt2-124m|deep|small)$ ]] || fail 2 "--models '$model': there are gpt2-124m, deep and small"
done
[[ -z $keep ]] || mkdir -p "$keep"

shape() { # model
    case $1 in
    gpt2-124m) echo model.layers=12 model.heads=12 model.channels=768 model.vocab=50304 model.context=1024 ;;
    deep) echo model.layers=24 model.heads=8 model.channels=512 model.vocab=50304 model.context=1024 ;;
    small) echo model.layers=6 model.heads=2 model.channels=64 model.vocab=512 model.context=128 ;;
    esac
}

# measured MODEL MICRO CHOICE: "MODEL MICRO CHOICE PLANNED PEAK ACTIVATIONS_PLANNED ACTIVATIONS_MEASURED",
# in bytes, from the last line of the run's metrics.
measured() {
    local dir=${keep:-$work}/$1-$2-$3 line
    local -a words
    read -r -a words <<<"$(shape "$1")"
    rm -rf "${dir:?}"
    "$tutti" train "$work/memory.yaml" "${words[@]}" "batch.micro=$2" batch.accumulate=1 \
        "memory.recompute=$3" "run.dir=$dir" "${keys[@]}" >"$work/log" 2>&1 </dev/null ||
        fail 1 "$1, micro $2, $3: $(tail -n 1 "$work/log")"
    line=$(grep '^{"memory": ' "$dir/metrics.jsonl" | tail -n 1)
    rm -f "$dir"/*.h5
    sed -n "s/.*\"activations\": {\"planned\": \([0-9]*\), \"measured\": \([0-9]*\)}.*\"total\": {\"planned\": \([0-9]*\),.*\"peak_rss\": \([0-9]*\)}.*/$1 $2 $3 \3 \4 \1 \2/p" \
        <<<"$line" | grep . || fail 1 "$1, micro $2, $3: the run says nothing of its memory"
}

build_tokens src include
cat >"$work/memory.yaml" <<YAML
data: {train: $work/tokens.h5}
optim: {lr: 1e-4}
run: {steps: 1, resume: never, log_every: 0}
YAML

rows=$work/rows
: >"$rows"
head='%-10s %6s %-10s %12s %10s %12s %14s %12s  %s\n'
# shellcheck disable=SC2059 # one format for head and rows
printf "$head" model micro recompute 'planned MiB' 'peak MiB' difference 'activations' 'measured' verdict
for model in $models; do
    for micro in $micros; do
        for choice in none selective sqrt block; do
            measured "$model" "$micro" "$choice" >>"$rows"
            tail -n 1 "$rows" | awk -v head="$head" '{
                more = $5 - $4
                far = more < 0 ? -more : more
                off = $7 < $6 ? $6 - $7 : $7 - $6
                verdict = (far <= 0.02 * $4 || far <= 67108864) && (off <= 0.02 * $6 || off <= 65536) ? "pass" : "FAIL"
                printf head, $1, $2, $3, sprintf("%.1f", $4 / 1048576), sprintf("%.1f", $5 / 1048576),
                    sprintf("%+.1f", more / 1048576), sprintf("%.1f", $6 / 1048576),
                    sprintf("%.1f", $7 / 1048576), verdict
                exit verdict == "FAIL"
            }' || touch "$work/failed"
        done
    done
done

if [[ $readme ]]; then
    {
        printf '| model, micro-batch | recompute | activations | planned | peak resident |\n|---|---|---|---|---|\n'
        awk -v model="${models%% *}" '$1 == model { printf "| %s, %s | %s | %.0f MiB | %.0f MiB | %.0f MiB |\n", $1, $2, $3, $6 / 1048576, $4 / 1048576, $5 / 1048576 }' "$rows"
    } | into_readme memory
fi
[[ ! -e $work/failed ]] || fail 1 "a run was further from its plan than 2 % and 64 MiB"
echo "PASS: $(wc -l <"$rows") runs within 2 % or 64 MiB of the plan"
