#!/usr/bin/env bash
# verify_equivalence.sh: does it matter how the batch is split? Trains the same batches in many splits
# and compares what was learned.
#
#   scripts/verify_equivalence.sh CONFIG [--steps N] [--ranks "1 2 4"] [--compute "fp32 bf16 ..."]
#                                 [--micro LARGEST] [--keep DIR] [key=value ...]
#   scripts/verify_equivalence.sh CONFIG --exact [--sample N] [--seed X] [--split SPLIT] [--no-normal] ...
#
# For every rank count and micro-batch size (all sequences of the rank at once, one, and one between)
# that divides batch.sequences, with ZeRO 0 and 1 or 2 and 3 in turn, a run of its own from the same
# start; the reference is one rank with the largest micro-batch. A line of the table gives the largest relative difference to the
# reference over all steps of loss and gradient norm, and of the final weights, |w - ref| / |ref| over
# all of them. The counts of valid tokens must be equal. Exit 0 when every difference is within its
# bound, 1 when one is not or a run failed, 2 when the request is wrong.
#
# --exact: with run.exact, every bit must be the same. The digests of all tensors after every step,
# losses, norms, counts and validation losses (of 7 windows, which nothing divides) are compared as
# text, and the final checkpoints to the bit. The matrix is every micro-batch size for ranks 1, 2, 3,
# 4, 6 and 8 and ZeRO 0 to 3, with threads 1 and 2, bucket sizes, packed weights, recomputation, ranks
# that share memory (0: all, 1: none, 2: pairs) and gradients (auto, whole, pieces) taking turns, and
# runs that are stopped and resumed twice at other rank counts; so optim.schedule is constant, or where
# the schedule ends would move with the stop. --sample draws N splits at random instead, of everything
# at once, from a seed that is printed. --split adds one alone (what a failure names):
#   ranks:micro[:threads[:zero[:bucket_mb[:pack[:recompute[:share[:gradients]]]]]]][@last_step], legs of
#   a resumed run with commas between, as in 2:3:1:0@10,3:8. Beside each, the same splits in normal mode and how far they are
# apart there, once per choice of ranks and micro-batch sizes; --no-normal leaves that out. The last
# line is PASS, or FAIL with the first step, tensor and split that differ.
#
# --compute names kinds of numbers: fp32, tf32, bf16, fp16 and fp8, and with the choices that go with
# them bf16-split, bf16-none, bf16-stochastic (precision.master and rounding), bf16-fp32-ops (head and
# qkv), fp16-dynamic (loss scale), fp8-delayed, fp8-mxfp8 and fp8-e5m2; "all" is all of them.
#
# Where neither CONFIG nor the command line names data.train, a token file of short documents of
# different lengths is built from the project's own text. --micro limits what is held in memory at
# once. --keep leaves the runs in DIR. TUTTI_BIN is the program, default build/release/tutti.
set -euo pipefail
# More threads than cores: at a barrier, spinning costs ten times what sleeping does.
export OMP_WAIT_POLICY=${OMP_WAIT_POLICY:-passive}
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=scripts/lib/kinds.sh
source "$here/lib/kinds.sh"

# Bounds: loss, gradient norm, weights.
# fp32: sums of the same terms in another order; a few units of 2^-24 a step, and they accumulate.
# bf16: the same sums, but now and then a difference in the last bit of a sum moves an activation or a
# weight to the next BF16 value, 2^-8 away relatively; the steps that follow see it. Weights have room
# for one thing more: the gradient of a key's bias is zero in exact arithmetic (a constant added to all
# scores of a row changes nothing), so what AdamW follows there is rounding noise, in steps of lr.
# sum of lr over 20 steps * sqrt(biases) / |w| is 5e-3 for configs/equivalence.yaml; seen: 8e-4.
# The norm of a step can hang on one document whose gradient is hundreds of times that of the others, in
# FP32 as well, and which moves by hundreds of times as much. Seen with one: 5e-3; without: 5e-5.
# tf32, fp16 with a loss scale: the next value is 2^-11 away. A difference d moves a number to the next
# one, s away, with probability d / s: so what moves grows with the root of d s, and is a third of
# BF16's. Seen: less than BF16's by that; it has the same bounds.
# fp8: the next E4M3 value is 2^-4 away, sixteen times BF16's: by the same root, four times BF16's for loss
# and norm. The weights see it through AdamW, which takes steps of lr however large the gradient is.
# fp16 without a loss scale: small gradients are on the grid of 2^-24, as coarse as FP8. FP8's bounds.
bounds() {
    case $1 in
    fp32) echo 1e-6 1e-5 1e-5 ;;
    tf32 | bf16* | fp16-dynamic) echo 1e-4 1e-2 5e-3 ;;
    fp8* | fp16) echo 4e-4 4e-2 5e-3 ;;
    esac
}

usage() { sed -n '2,/^set -/s/^# \{0,1\}//p' "$0"; }

fail() { # exit code, sentence
    printf 'verify_equivalence.sh: %s\n' "$2" >&2
    exit "$1"
}

tutti=${TUTTI_BIN:-$here/../build/release/tutti}
config=
steps=
rank_counts=
computes='fp32 bf16'
largest=1000000000
keep=
exact=
sample=
seed=
no_normal=
wanted=()
overrides=()
while (($# > 0)); do
    case $1 in
    --exact) exact=yes ;;
    --no-normal) no_normal=yes ;;
    --steps | --ranks | --compute | --micro | --keep | --sample | --seed | --split)
        (($# > 1)) || fail 2 "$1 needs a value"
        case $1 in
        --steps) steps=$2 ;;
        --ranks) rank_counts=$2 ;;
        --compute) computes=$2 ;;
        --micro) largest=$2 ;;
        --keep) keep=$2 ;;
        --sample) sample=$2 ;;
        --seed) seed=$2 ;;
        --split) wanted+=("$2") ;;
        esac
        shift
        ;;
    --help | -h)
        usage
        exit 0
        ;;
    --*) fail 2 "unknown option '$1'; see --help" ;;
    *=*) overrides+=("$1") ;;
    *)
        [[ -z $config ]] || fail 2 "one configuration, not '$config' and '$1'"
        config=$1
        ;;
    esac
    shift
done
[[ -n $config ]] || { usage >&2; exit 2; }
[[ -f $tutti && -x $tutti ]] || fail 2 "$tutti is not there; run make, or set TUTTI_BIN"
[[ -r $config ]] || fail 2 "cannot read $config"
if [[ -z $exact && -n $sample$seed$no_normal${wanted[*]} ]]; then
    fail 2 "--sample, --seed, --split and --no-normal belong to --exact"
fi
[[ -z $seed || -n $sample ]] || fail 2 "--seed belongs to --sample"
steps=${steps:-$([[ $exact ]] && echo 30 || echo 20)}
rank_counts=${rank_counts:-$([[ $exact ]] && echo 1 2 3 4 6 8 || echo 1 2 4)}
for number in $steps $largest $rank_counts $sample; do
    [[ $number =~ ^[1-9][0-9]*$ ]] || fail 2 "'$number' is not a positive whole number"
done
[[ $seed =~ ^[0-9]{0,18}$ ]] || fail 2 "--seed '$seed' is not a whole number"
[[ $computes != all ]] || computes=$all_kinds
for compute in $computes; do
    [[ -n $(kind_keys "$compute") ]] || fail 2 "--compute $compute is not known; use ${all_kinds// /, } or all"
done
[[ -n $computes ]] || fail 2 "--compute names nothing"

# What the script chooses itself is not for the command line: it would be ignored.
chosen='precision.compute batch.micro batch.accumulate memory.zero run.dir run.steps run.resume run.eval_every run.save_every run.keep run.log_every'
[[ -z $exact ]] || chosen+=' run.exact run.threads run.digest_every run.eval_sequences memory.pack_weights memory.recompute memory.gradients dist.bucket_mb dist.node_ranks optim.schedule'
for compute in $computes; do
    chosen+=" $(kind_keys "$compute" | sed 's/=[^ ]*//g')"
done
for override in "${overrides[@]}"; do
    [[ " $chosen " != *" ${override%%=*} "* ]] || fail 2 "${override%%=*} is chosen by the script${exact:+ in --exact}; see --help"
done

work=$(mktemp -d "${TMPDIR:-/tmp}/tutti-equal.XXXXXX")
trap 'rm -rf "$work"' EXIT
runs=${keep:-$work}
mkdir -p "$runs"

# Every paragraph of the project's headers and scripts becomes a document of its own.
# shellcheck disable=SC2016 # awk's dollars
build_data() {
    mkdir "$work/text"
    find "$here/../include" "$here/../scripts" -type f \( -name '*.h' -o -name '*.sh' \) \
        2>/dev/null | LC_ALL=C sort |
        xargs awk -v RS= -v to="$work/text" 'length($0) < 2000 {
            file = sprintf("%s/%06d", to, NR); print > file; close(file) }'
    "$tutti" data build --valid 0.1 --out "$work/tokens.h5" "$work/text" >"$work/build.log" 2>&1 || {
        cat "$work/build.log" >&2
        fail 1 "the token file could not be built"
    }
    overrides+=("data.train=$work/tokens.h5")
}

if ! grep -Eq '^[[:space:]]*train[[:space:]]*:' "$config" && [[ " ${overrides[*]} " != *" data.train="* ]]; then
    build_data
fi

sequences=$("$tutti" plan "$config" "${overrides[@]}" --ranks 1 |
    sed -n 's/.*sequences \([0-9]*\) = micro.*/\1/p') || exit 2
[[ -n $sequences ]] || fail 1 "tutti plan did not say how many sequences a step has"
usable=
for ranks in $rank_counts; do
    ((sequences % ranks != 0)) || usable+=" $ranks"
done
[[ -n $usable ]] || fail 2 "none of --ranks '$rank_counts' divides the $sequences sequences of a step; nothing would be compared"

# Micro-batch sizes that divide $1 sequences a rank, largest first.
divisors() {
    local d
    for ((d = $1 < largest ? $1 : largest; d >= 1; d--)); do
        (($1 % d == 0)) && echo "$d"
    done
    return 0
}

# run DIR RANKS KEY=VALUE...: a run of the configuration, or the end with what it said.
run() {
    local dir=$1 ranks=$2
    shift 2
    "$here/run.sh" -n "$ranks" -t 3600 "$tutti" train "$config" "${overrides[@]}" \
        "batch.sequences=$sequences" "run.dir=$dir" run.save_every=0 run.keep=1 run.log_every=0 \
        "$@" >"$work/log" 2>&1 || {
        tail -n 20 "$work/log" >&2
        fail 1 "the run failed on $ranks ranks with $*"
    }
}

# Largest relative differences of loss and norm over the steps; "differ" when steps or counts do.
compare_metrics() { # reference, run
    awk '
        function number(key,    at, rest) {
            at = index($0, "\"" key "\": ")
            rest = at == 0 ? "" : substr($0, at + length(key) + 4)
            sub(/[,}].*/, "", rest)
            return rest
        }
        function relative(a, b,    d) { d = a - b; return (d < 0 ? -d : d) / (b < 0 ? -b : b) }
        !/^\{"step": .*"grad_norm": / { next }
        { step = number("step") }
        FNR == NR { loss[step] = number("loss"); norm[step] = number("grad_norm"); tokens[step] = number("tokens"); n++; next }
        {
            m++
            if (number("tokens") != tokens[step] || number("loss") !~ /^[0-9]/ || loss[step] !~ /^[0-9]/) wrong = 1
            else {
                d = relative(number("loss"), loss[step]); if (d > most_loss) most_loss = d
                d = relative(number("grad_norm"), norm[step]); if (d > most_norm) most_norm = d
            }
        }
        END { if (wrong || n == 0 || n != m) print "differ differ"; else printf "%.1e %.1e\n", most_loss, most_norm }
    ' "$1/metrics.jsonl" "$2/metrics.jsonl"
}

# Column "l2 rel." of the parameters; 0 when the files are the same to the bit.
compare_weights() { # reference, run
    local file said
    file=$(printf 'step-%08d.h5' "$steps")
    said=$("$tutti" checkpoint diff "$2/$file" "$1/$file" 2>&1) && { echo 0; return; }
    awk '$1 == "params" { print $4; found = 1 } END { exit !found }' <<<"$said" || {
        echo differ
        printf '%s\n' "$said" >&2
    }
}

within() { # value, bound
    awk -v v="$1" -v b="$2" 'BEGIN { exit !(v ~ /^[0-9]/ && v + 0 <= b + 0) }'
}

# shellcheck source=scripts/lib/exact.sh
[[ -z $exact ]] || source "$here/lib/exact.sh" # which ends here

# Of the divisors of $1: the largest, one between, 1.
micros() {
    divisors "$1" | awk '{ list[NR] = $1 }
        END {
            print list[1]
            middle = int((NR + 1) / 2)
            if (middle > 1 && middle < NR) print list[middle]
            if (NR > 1) print list[NR]
        }'
}

train() { # name, kind, ranks, micro, zero
    local -a keys
    rm -rf "${runs:?}/$1"
    read -r -a keys <<<"$(kind_keys "$2")"
    run "$runs/$1" "$3" "${keys[@]}" "batch.micro=$4" \
        "batch.accumulate=$((sequences / ($3 * $4)))" "memory.zero=$5" "run.steps=$steps" \
        run.resume=never run.eval_every=0
}

status=0
for compute in $computes; do
    read -r loss_bound norm_bound weight_bound <<<"$(bounds "$compute")"
    reference_micro=$(micros "$sequences" | head -n 1)
    train "$compute-reference" "$compute" 1 "$reference_micro" 1
    reference=$runs/$compute-reference
    printf '%s: %d steps of %d sequences; reference: 1 rank, micro-batch %d, accumulate %d\n' \
        "$compute" "$steps" "$sequences" "$reference_micro" $((sequences / reference_micro))
    printf '%5s %6s %10s %5s   %10s %10s %10s\n' ranks micro accumulate zero loss norm weights
    printf '%5s %6s %10s %5s   %10s %10s %10s\n' '' '' '' '' "<= $loss_bound" "<= $norm_bound" "<= $weight_bound"
    pair=0
    for ranks in $rank_counts; do
        if ((sequences % ranks != 0)); then
            printf '%5d        does not divide %d sequences\n' "$ranks" "$sequences"
            continue
        fi
        for micro in $(micros $((sequences / ranks))); do
            for zero in 0 1 2 3; do
                ((ranks == 1 && micro == reference_micro && zero != 0)) && continue
                ((ranks == 1 && micro != reference_micro && zero != 1)) && continue
                # Of several ranks, each size of micro-batch has two stages: 0 and 1, then 2 and 3.
                ((ranks > 1 && zero / 2 != pair)) && continue
                name=$compute-r$ranks-m$micro-z$zero
                train "$name" "$compute" "$ranks" "$micro" "$zero"
                read -r loss norm <<<"$(compare_metrics "$reference" "$runs/$name")"
                weights=$(printf '%.1e' "$(compare_weights "$reference" "$runs/$name")" 2>/dev/null) || weights=differ
                verdict=pass
                if ! within "$loss" "$loss_bound" || ! within "$norm" "$norm_bound" ||
                    ! within "$weights" "$weight_bound"; then
                    verdict=FAIL
                    status=1
                fi
                printf '%5d %6d %10d %5d   %10s %10s %10s  %s\n' "$ranks" "$micro" \
                    $((sequences / (ranks * micro))) "$zero" "$loss" "$norm" "$weights" "$verdict"
                [[ -n $keep ]] || rm -rf "${runs:?}/$name"
            done
            ((ranks == 1)) || pair=$((1 - pair))
        done
    done
    echo
done
if ((status == 0)); then
    echo "equivalent within the bounds"
else
    echo "NOT equivalent: a difference is larger than its bound" >&2
fi
exit $status
