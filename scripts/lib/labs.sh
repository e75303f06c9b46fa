# shellcheck shell=bash
# labs.sh: what the labs share. Sourced by scripts/labs/*.sh, which then call lab_begin, train runs with
# `way`, print a table, draw a plot, state claims and end with lab_end.
#
# A lab trains one small model in several ways and leaves a folder a way. The first way is the right
# one. With --same every way is trained like the first: then nothing differs, and a lab that still
# finds its claims true claims nothing. The tests do that.
#
# shellcheck disable=SC2034 # steps, tutti: the sourcing script's

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
export OMP_WAIT_POLICY=${OMP_WAIT_POLICY:-passive} LC_ALL=C
lab=$(basename "$0" .sh)

lab_fail() { # exit code, sentence
    printf '%s.sh: %s\n' "$lab" "$2" >&2
    exit "$1"
}

# lab_begin BUILD STEPS ARGUMENT...: reads the lab's arguments, finds the program, clears the folder,
# builds a token file and a configuration of a model that learns in seconds. BUILD is debug where the
# lab needs a fault. Sets $steps, $dir, $tutti.
lab_begin() {
    local build=$1
    steps=$2
    shift 2
    dir=runs/labs/$lab
    same=
    tutti=${TUTTI_BIN:-build/$build/tutti}
    failed=0
    claims=0
    first=()
    common=()
    own=()
    while (($# > 0)); do
        case $1 in
        --help | -h)
            sed -n '2,/^# shellcheck/{/^# shellcheck/!s/^# \{0,1\}//p}' "$0"
            exit 0
            ;;
        --same) same=yes ;;
        --steps | --dir)
            (($# > 1)) || lab_fail 2 "$1 needs a value"
            [[ $1 == --dir ]] && dir=$2 || steps=$2
            shift
            ;;
        *=*) common+=("$1") ;;
        *) lab_fail 2 "unknown argument '$1'; see --help" ;;
        esac
        shift
    done
    [[ $steps =~ ^[1-9][0-9]{1,5}$ ]] || lab_fail 2 "--steps '$steps': a whole number from 10 is needed"
    [[ -x $tutti ]] || lab_fail 2 "$tutti is not there; run make CONFIG=$build, or set TUTTI_BIN"
    command -v gnuplot >/dev/null || lab_fail 1 "gnuplot is missing; scripts/setup.sh installs it"
    # Cleared, so it must be a lab's.
    [[ ! -e $dir || -f $dir/lab.yaml || (-d $dir && -z $(ls -A "$dir")) ]] ||
        lab_fail 2 "--dir '$dir' exists and is not a lab's folder; name another"
    rm -rf "${dir:?}"
    mkdir -p "$dir"
    build_tokens --valid 0.1 src include
    cat >"$dir/lab.yaml" <<YAML
model: {layers: 2, heads: 4, channels: 64, context: 64}
data: {train: $dir/tokens.h5}
batch: {sequences: 16}
optim: {lr: 3e-3, warmup: 20, schedule: constant}
run: {steps: $steps, log_every: 0, resume: never, keep: 1}
YAML
}

# always WORD...: for all ways, as `way` takes them; what the command line says comes after and counts.
always() { common=("$@" "${common[@]}"); }

# build_tokens ARGUMENT...: the lab's token file; the project's own text is the corpus.
build_tokens() {
    "$tutti" data build --out "$dir/tokens.h5" "$@" >"$dir/tokens.log" 2>&1 ||
        lab_fail 1 "no token file: $(tail -n 1 "$dir/tokens.log")"
}

# way NAME [ranks=R] [fault=F] KEY=VALUE...: a run into $dir/NAME, on one rank unless said otherwise.
way() {
    local name=$1 ranks=1 fault='' word
    local -a keys=()
    shift
    if [[ $same == yes ]]; then # the first
        first=("$@")
        same=on
    elif [[ $same == on ]]; then
        set -- "${first[@]}"
    fi
    for word in "${common[@]}" "$@"; do
        case $word in
        ranks=*) ranks=${word#*=} ;;
        fault=*) fault=${word#*=} ;;
        *) keys+=("$word") ;;
        esac
    done
    OMP_NUM_THREADS=${OMP_NUM_THREADS:-1} TUTTI_FAULT=$fault scripts/run.sh -n "$ranks" -t 120 \
        "$tutti" train "$dir/lab.yaml" "run.dir=$dir/$name" "${keys[@]}" "${own[@]}" >"$dir/$name.log" 2>&1 ||
        lab_fail 1 "$name: $(tail -n 1 "$dir/$name.log")"
}

# gradient NAME STEPS KEY=VALUE...: a run of so many steps; the last one's mean gradient into $dir/NAME.h5.
gradient() {
    own=("run.steps=$2" "run.dump_gradients=$dir/$1.h5")
    way "$1" "${@:3}"
    own=()
}

# apart NAME REFERENCE: |g - r| / |r| over all elements of two gradients.
apart() {
    { "$tutti" checkpoint diff "$dir/$1.h5" "$dir/$2.h5" || true; } |
        awk '$1 == "grads" { got = $4 } END { print got == "" ? 0 : got }'
}

# mean NAME KEY [FIRST [LAST]]: over the steps; the last tenth of them unless said otherwise. true is 1.
# What is not a number makes it NaN.
mean() {
    awk -v key="$2" -v first="${3:-$((steps - steps / 10 + 1))}" -v last="${4:-$steps}" '
        !/^\{"step": .*"grad_norm": / { next }
        {
            step = $2 + 0
            if (step < first || step > last) next
            at = index($0, "\"" key "\": ")
            value = substr($0, at + length(key) + 4)
            sub(/[,}].*/, "", value)
            if (value == "true") value = 1
            if (value == "false") value = 0
            if (at == 0 || value !~ /^-?[0-9]/) bad = 1
            sum += value
            n++
        }
        END { if (bad || n == 0) print "NaN"; else printf "%.7g\n", sum / n }
    ' "$dir/$1/metrics.jsonl"
}

# median NAME KEY: of all steps but the first, for times: what a busy machine does to a few does not count.
median() {
    sed -n "s/^{\"step\": .*\"$2\": \([0-9.e+-]*\)[,}].*/\1/p" "$dir/$1/metrics.jsonl" | tail -n +2 | sort -g |
        awk '{ value[NR] = $1 } END { print NR == 0 ? "NaN" : value[int((NR + 1) / 2)] }'
}

# planned NAME KEY: a number of the run's first line, which holds plan and configuration.
planned() { sed -n "1s/.*\"$2\": \([0-9.e+-]*\)[,}].*/\1/p" "$dir/$1/metrics.jsonl"; }

# compute EXPRESSION: its value.
compute() { awk "BEGIN { printf \"%.6g\", $1 }"; }

# plot [OPTION...] NAME...: the ways in one picture, $dir/$lab.png. Options are those of plot_loss.sh.
plot() {
    local -a options=() folders=()
    while [[ ${1:-} == --* ]]; do
        options+=("$1" "$2")
        shift 2
    done
    folders=("${@/#/$dir/}")
    scripts/plot_loss.sh "${options[@]}" "${folders[@]}" "$dir/$lab.png"
    echo "plot: $dir/$lab.png"
}

# claim SENTENCE CONDITION: arithmetic with numbers in it; a number that is none makes it false.
claim() {
    local holds=yes
    claims=$((claims + 1))
    [[ $2 =~ ^[-0-9.eE+*/\<\>=\&\|\(\)\ ]+$ ]] && awk "BEGIN { exit !($2) }" 2>/dev/null || holds=
    if [[ $holds ]]; then
        printf 'holds: %s (%s)\n' "$1" "$2"
    else
        printf 'FALSE: %s (%s)\n' "$1" "$2"
        failed=$((failed + 1))
    fi
}

# lab_end SENTENCE: what was to be seen, or that it was not.
lab_end() {
    ((failed == 0)) || lab_fail 1 "$failed of $claims claims do not hold"
    echo "$1"
}
