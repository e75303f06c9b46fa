#!/usr/bin/env bash
# compare_formats.sh: what do number formats cost? Trains one small GPT in each of them, from the same
# seed, on the same batches, and puts the validation losses beside FP32's.
#
#   scripts/compare_formats.sh [--seeds] [--markdown | --readme] [--keep DIR] [key=value ...]
#
# The text is this project's own sources and documents, a document each, a tenth of them held out; the
# loss is that of all of the held-out text. configs/formats.yaml is the model, and keys override it.
# Exit 0 when every format is within its bound of FP32, 1 when one is not or a run failed, 2 when the
# request is wrong. A few minutes on 2 cores.
#
# --seeds     trains in FP32 with two other seeds of weights and order as well, to say how far apart
#             such losses are by luck alone
# --markdown  prints the table as Markdown
# --readme    puts it between the markers of README.md if all bounds hold, and what --seeds says
# --keep DIR  leaves the runs there
#
# Columns: bits that an activation waits for backward in, and that a product takes; bytes a parameter of
# weights, masters and Adam's moments, and activations that wait for backward, as `tutti plan` says; the
# final loss, in nats per token, and its difference to FP32's. What a step costs in each format is
# scripts/measure.sh's to say. TUTTI_BIN is the program, default build/release/tutti.
set -euo pipefail
export OMP_WAIT_POLICY=${OMP_WAIT_POLICY:-passive}
cd "$(dirname "$0")/.."
# shellcheck source=scripts/lib/corpus.sh
source scripts/lib/corpus.sh
# shellcheck source=scripts/lib/kinds.sh
source scripts/lib/kinds.sh

fail() { # exit code, sentence
    printf 'compare_formats.sh: %s\n' "$2" >&2
    exit "$1"
}

tutti=${TUTTI_BIN:-build/release/tutti}
seeds='' form=plain keep='' overrides=()
while (($# > 0)); do
    case $1 in
    --seeds) seeds=yes ;;
    --markdown) form=markdown ;;
    --readme) form=readme seeds=yes ;;
    --keep)
        (($# > 1)) || fail 2 "--keep needs a folder"
        keep=$2
        shift
        ;;
    --help | -h)
        sed -n '2,/^set -/s/^# \{0,1\}//p' "$0"
        exit 0
        ;;
    *=*) overrides+=("$1") ;;
    *) fail 2 "unknown argument '$1'; see --help" ;;
    esac
    shift
done
[[ $form != readme ]] || grep -q '^<!-- /formats' README.md || fail 2 "README.md has no markers for the table"
[[ -f $tutti && -x $tutti ]] || fail 2 "$tutti is not there; run make, or set TUTTI_BIN"
# What the script chooses itself is not for the command line: it would be ignored.
for override in "${overrides[@]}"; do
    case $override in
    precision.compute=* | precision.master=* | precision.rounding=* | precision.loss_scale=* | fp8.recipe=* | \
        data.train=* | data.seed=* | run.seed=* | run.dir=* | run.resume=* | run.eval_every=* | run.save_every=* | run.keep=*)
        fail 2 "${override%%=*} is chosen by the script; see --help"
        ;;
    esac
done

work=$(mktemp -d "${TMPDIR:-/tmp}/tutti-formats.XXXXXX")
trap 'rm -rf "$work"' EXIT
runs=${keep:-$work}
mkdir -p "$runs"
data=$work/tokens.h5
mapfile -t texts < <(project_text)
"$tutti" data build --out "$data" --valid 0.1 "${texts[@]}" >"$work/log" 2>&1 ||
    fail 1 "the token file could not be built: $(tail -n 1 "$work/log")"

# --- one run ------------------------------------------------------------------------------------

# train NAME KEY=VALUE...: into $runs/NAME. An interval that never comes leaves the evaluation at the end.
train() {
    local name=$1
    shift
    rm -rf "${runs:?}/$name"
    [[ ! -t 2 ]] || printf '\r\e[K%s' "$name" >&2
    scripts/run.sh -n 1 -t 3600 "$tutti" train configs/formats.yaml run.eval_sequences=1000000 \
        "${overrides[@]}" "data.train=$data" "run.dir=$runs/$name" run.resume=never \
        run.eval_every=1000000000 run.save_every=0 run.keep=1 run.log_every=0 "$@" >"$work/log" 2>&1 || {
        local code=$?
        tail -n 20 "$work/log" >&2
        fail "$((code == 2 ? 2 : 1))" "the run failed with $*"
    }
    [[ ! -t 2 ]] || printf '\r\e[K' >&2
}

# metric NAME KEY: its values, a line each, in the order of the file.
metric() { sed -n "s/.*\"$2\": \([^,}]*\)[,}].*/\1/p" "$runs/$1/metrics.jsonl"; }

# loss NAME: the last validation loss.
loss() {
    local value
    value=$(metric "$1" valid_loss | tail -n 1)
    [[ $value =~ ^[0-9.]+$ ]] || fail 1 "the run of $1 has no validation loss, but '$value'"
    echo "$value"
}

# difference A B: of A to B, in percent.
difference() { awk -v a="$1" -v b="$2" 'BEGIN { printf "%+.2f", 100 * (a - b) / b }'; }

# plan KEY=VALUE...: bytes of state a parameter, activations that wait for backward with their unit.
plan() {
    "$tutti" plan configs/formats.yaml "${overrides[@]}" "data.train=$data" "$@" --ranks 1 | awk '
        BEGIN { unit["B"] = 1; unit["KiB"] = 2 ^ 10; unit["MiB"] = 2 ^ 20; unit["GiB"] = 2 ^ 30 }
        / parameters in / { parameters = $1 }
        $1 == "stored" || $1 == "optimizer" { bytes += $2 * unit[$3] }
        / of them wait for backward/ { sub(/.*\(/, ""); kept = $1 " " $2 }
        END { printf "%.0f %s\n", bytes / parameters, kept }'
}

# --- the table ----------------------------------------------------------------------------------

rows=() failed=''

# format KIND NAME BITS BOUND: trains, and appends to $rows. BOUND: percent of FP32's loss, or "-".
format() {
    local kind=$1 name=$2 bits=$3 bound=$4 value apart state kept
    local -a keys
    read -r -a keys <<<"$(kind_keys "$kind")"
    train "$kind" "${keys[@]}"
    value=$(loss "$kind")
    apart=$(difference "$value" "$(loss fp32)")
    read -r state kept < <(plan "${keys[@]}")
    if [[ $bound != - ]] && ! awk -v d="$apart" -v b="${bound% %}" 'BEGIN { exit !((d < 0 ? -d : d) <= b) }'; then
        failed+="${failed:+; }$name is $apart % from fp32, bound: $bound"
        bound+=' FAIL'
    fi
    rows+=("$name|$bits|$state|$kept|$(printf '%.4f' "$value")|$apart %|$bound")
}

format fp32 fp32 "32 / 32" -
format tf32 tf32 "32 / 19" "0.2 %"
format bf16 bf16 "16 / 16" "1 %"
format bf16-split "bf16, split master" "16 / 16" "1 %"
format bf16-none "bf16, no master, nearest" "16 / 16" -
format bf16-stochastic "bf16, no master, stochastic" "16 / 16" -
format fp16-dynamic "fp16, dynamic loss scale" "16 / 16" "0.5 %"
format fp8 "fp8, current scales" "8 / 8" "2 %"
format fp8-delayed "fp8, delayed scales" "8 / 8" "2 %"
format fp8-mxfp8 "fp8, mxfp8" "8 / 8" "2 %"

# table MARKDOWN: $rows under their heading.
table() {
    {
        echo "format|bits stored / multiplied|state, bytes a parameter|kept for backward|validation loss|to fp32|bound"
        printf '%s\n' "${rows[@]}"
    } | awk -F '|' -v markdown="$1" '
        markdown {
            printf "| %s | %s | %s | %s | %s | %s | %s |\n", $1, $2, $3, $4, $5, $6, $7
            if (NR == 1) print "|---|---|---|---|---|---|---|"
            next
        }
        NR == 1 { $2 = "bits"; $3 = "state"; $4 = "kept"; $5 = "loss" }
        { printf "%-28s %8s %6s %9s %8s %9s %10s\n", $1, $2, $3, $4, $5, $6, $7 }'
}

# text: what the losses are of.
text() {
    printf '%s parameters, %s steps of %s tokens; loss over %s held-out tokens\n' \
        "$(metric fp32 parameters)" "$(metric fp32 grad_norm | wc -l)" \
        "$(metric fp32 tokens_per_step)" "$(metric fp32 valid_tokens | tail -n 1)"
}

# spread: FP32 again, from other weights and in another order.
spread() {
    local seed losses
    losses=$(loss fp32)
    for seed in 1 2; do
        train "fp32-$seed" precision.compute=fp32 run.seed=$seed data.seed=$seed
        losses+=$'\n'$(loss "fp32-$seed")
    done
    sort -g <<<"$losses" | awk '{ v[NR] = $1 }
        END { printf "fp32 with 3 seeds: %.4f to %.4f, %.2f %% apart\n", v[1], v[NR], 100 * (v[NR] - v[1]) / v[1] }'
}

[[ -z $seeds ]] || spread >"$work/spread"
[[ -z $failed || $form != readme ]] || form=plain
case $form in
plain)
    text
    table ''
    [[ -z $seeds ]] || cat "$work/spread"
    ;;
markdown)
    table yes
    [[ -z $seeds ]] || { echo && cat "$work/spread"; }
    ;;
readme)
    {
        sed '/^<!-- formats/q' README.md
        table yes
        printf '\n%s;\n%s.\n' "$(text)" "$(<"$work/spread")"
        sed -n '/^<!-- \/formats/,$p' README.md
    } >"$work/readme"
    cat "$work/readme" >README.md
    ;;
esac
[[ -z $failed ]] || fail 1 "$failed"
