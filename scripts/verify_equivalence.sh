#!/usr/bin/env bash
# verify_equivalence.sh: does it matter how the batch is split? Trains the same batches in many splits
# and compares what was learned.
#
#   scripts/verify_equivalence.sh CONFIG [--steps N] [--ranks "1 2 4"] [--compute "fp32 bf16"]
#                                 [--micro LARGEST] [--keep DIR] [key=value ...]
#
# For every rank count, micro-batch size (all sequences of the rank at once, one, and one between) and
# ZeRO stage that divides batch.sequences, a run of its own from the same start; the reference is one
# rank with the largest micro-batch. A line of the table gives the largest relative difference to the
# reference over all steps of loss and gradient norm, and of the final weights, |w - ref| / |ref| over
# all of them. The counts of valid tokens must be equal. Exit 0 when every difference is within its
# bound, 1 when one is not or a run failed, 2 when the request is wrong.
#
# Where neither CONFIG nor the command line names data.train, a token file of short documents of
# different lengths is built from the project's own text. --micro limits what is held in memory at
# once. --keep leaves the runs in DIR. TUTTI_BIN is the program, default build/release/tutti.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)

# Bounds: loss, gradient norm, weights.
# fp32: sums of the same terms in another order; a few units of 2^-24 a step, and they accumulate.
# bf16: the same sums, but now and then a difference in the last bit of a sum moves an activation or a
# weight to the next BF16 value, 2^-8 away relatively; the steps that follow see it. Weights have room
# for one thing more: the gradient of a key's bias is zero in exact arithmetic (a constant added to all
# scores of a row changes nothing), so what AdamW follows there is rounding noise, in steps of lr.
# sum of lr over 20 steps * sqrt(biases) / |w| is 5e-3 for configs/equivalence.yaml; seen: 8e-4.
bounds() {
    case $1 in
    fp32) echo 1e-6 1e-5 1e-5 ;;
    bf16) echo 1e-4 1e-3 5e-3 ;;
    esac
}

usage() { sed -n '2,/^set -/s/^# \{0,1\}//p' "$0"; }

fail() { # exit code, sentence
    printf 'verify_equivalence.sh: %s\n' "$2" >&2
    exit "$1"
}

tutti=${TUTTI_BIN:-$here/../build/release/tutti}
config=
steps=20
rank_counts='1 2 4'
computes='fp32 bf16'
largest=1000000000
keep=
overrides=()
while (($# > 0)); do
    case $1 in
    --steps | --ranks | --compute | --micro | --keep)
        (($# > 1)) || fail 2 "$1 needs a value"
        case $1 in
        --steps) steps=$2 ;;
        --ranks) rank_counts=$2 ;;
        --compute) computes=$2 ;;
        --micro) largest=$2 ;;
        --keep) keep=$2 ;;
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
[[ -x $tutti ]] || fail 2 "$tutti is not there; run make, or set TUTTI_BIN"
[[ -r $config ]] || fail 2 "cannot read $config"
for number in $steps $largest $rank_counts; do
    [[ $number =~ ^[1-9][0-9]*$ ]] || fail 2 "'$number' is not a positive whole number"
done
for compute in $computes; do
    [[ -n $(bounds "$compute") ]] || fail 2 "there is no bound for --compute $compute; use fp32, bf16 or both"
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
    "$tutti" data build --out "$work/tokens.h5" "$work/text" >"$work/build.log" 2>&1 || {
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

# Divisors of $1 to try as micro-batch sizes, largest first: the largest allowed, one between, 1.
micros() {
    awk -v n="$1" -v most="$largest" 'BEGIN {
        for (d = n; d >= 1; d--) if (n % d == 0 && d <= most) list[++count] = d
        print list[1]
        middle = int((count + 1) / 2)
        if (middle > 1 && middle < count) print list[middle]
        if (count > 1) print list[count]
    }'
}

train() { # name, compute, ranks, micro, zero
    local dir=$runs/$1
    rm -rf "$dir"
    "$here/run.sh" -n "$3" -t 3600 "$tutti" train "$config" "${overrides[@]}" \
        "precision.compute=$2" "batch.sequences=$sequences" "batch.micro=$4" \
        "batch.accumulate=$((sequences / ($3 * $4)))" "memory.zero=$5" "run.dir=$dir" "run.steps=$steps" \
        run.resume=never run.eval_every=0 run.save_every=0 run.keep=1 run.log_every=0 >"$work/log" 2>&1 || {
        tail -n 20 "$work/log" >&2
        fail 1 "the run with $3 ranks, micro-batch $4, ZeRO $5 in $2 failed"
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
    for ranks in $rank_counts; do
        if ((sequences % ranks != 0)); then
            printf '%5d        does not divide %d sequences\n' "$ranks" "$sequences"
            continue
        fi
        for micro in $(micros $((sequences / ranks))); do
            for zero in 0 1; do
                ((ranks == 1 && micro == reference_micro && zero == 1)) && continue
                ((ranks == 1 && micro != reference_micro && zero == 0)) && continue
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
