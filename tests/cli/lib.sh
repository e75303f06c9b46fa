# shellcheck shell=bash
# lib.sh: what the tests of the whole program share. Sourced by tests/cli/*.sh, not run.
#
# A check prints "ok NAME" or "not ok NAME: why"; scripts/test.sh counts them. Every run is started by
# scripts/run.sh with a limit, so that nothing can hang. All files are below $work, which goes at the
# end. After `run` and `train`, $code is the exit code, $work/out and $work/err hold what was said.

set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit
# The program: the runner names it; by hand it is the debug build.
tutti=${TUTTI_BIN:-$PWD/build/debug/tutti}
# shellcheck disable=SC2034 # for the scripts
release=${TUTTI_RELEASE_BIN:-$tutti}
[[ -x $tutti ]] || { echo "not ok program: $tutti is not there" && exit 1; }
work=$(mktemp -d "${TMPDIR:-/tmp}/tutti-cli.XXXXXX")
trap 'rm -rf "$work"' EXIT
export OMP_NUM_THREADS=1
# mpirun waits a second before it kills the other ranks of a job that failed; hundreds of jobs fail here.
export OMPI_MCA_odls_base_sigkill_timeout=0
limit=60 # seconds a run
code=0

# Prints the result of a check: name, 0 or else, why.
verdict() {
    if (($2 == 0)); then
        echo "ok $1"
    else
        echo "not ok $1: ${3:-exit code $code; $(tail -n 3 "$work/err" | tr '\n' ' ')}"
    fi
}

# verdict of a command: name, command...
check() {
    local name=$1 rc=0
    shift
    "$@" || rc=$?
    verdict "$name" "$rc"
}

# equal NAME WANTED GOT
equal() {
    local rc=0
    [[ $2 == "$3" ]] || rc=1
    verdict "$1" $rc "wanted '$2', got '$3'"
}

# run RANKS ARGUMENT...: the program on so many ranks.
run() {
    local ranks=$1
    shift
    code=0
    scripts/run.sh -n "$ranks" -t $limit "$tutti" "$@" >"$work/out" 2>"$work/err" || code=$?
}

# alone ARGUMENT...: the program without a launcher.
alone() {
    code=0
    timeout $limit "$tutti" "$@" >"$work/out" 2>"$work/err" </dev/null || code=$?
}

# train RANKS NAME KEY=VALUE...: trains $work/tiny.yaml into $work/NAME.
train() {
    local ranks=$1 dir=$work/$2
    shift 2
    run "$ranks" train "$work/tiny.yaml" "run.dir=$dir" "$@"
}

# trained NAME RANKS DIR KEY=VALUE...: the same, as a check.
trained() {
    local name=$1
    shift
    train "$@"
    verdict "$name" "$code"
}

# launch NAME RANKS KEY=VALUE...: a run in the background. $job is the runner's process, $work/NAME.pid.R that
# of rank R. SIGINT is as in a terminal: a shell's background job would ignore it.
launch() {
    local name=$1 ranks=$2
    shift 2
    # shellcheck disable=SC2016 # the inner shell's dollars
    env --default-signal=INT scripts/run.sh -n "$ranks" -t "$limit" \
        bash -c 'echo $$ >"$0.${OMPI_COMM_WORLD_RANK:-0}"; exec "$@"' \
        "$work/$name.pid" "$tutti" train "$work/tiny.yaml" "run.dir=$work/$name" "$@" \
        >"$work/out" 2>"$work/err" </dev/null &
    # shellcheck disable=SC2034 # for the scripts
    job=$!
}
# awaits COMMAND...: until it succeeds, for half a minute.
awaits() {
    local tries=0
    until "$@" || ((++tries > 600)); do sleep 0.05; done
    ((tries <= 600))
}
# begin NAME RANKS KEY=VALUE...: a run with no end in sight, in the background; returns when it is under
# way.
begin() {
    launch "$1" "$2" run.steps=1000000 "${@:3}"
    awaits has_steps "$1" 3
}
# has_steps NAME COUNT: so many are in its metrics.
has_steps() { [[ $(metric "$1" loss 2>/dev/null | wc -l) -ge $2 ]]; }

# aside COMMAND...: one of a script's functions in the background, three at a time, with files of its own:
# most of what they do is to wait. together: their results.
asides=0
aside() {
    local own
    printf -v own '%s/aside-%03d' "$work" $((++asides))
    while (($(jobs -rp | wc -l) >= 3)); do wait -n; done
    mkdir "$own"
    cp "$work/tiny.yaml" "$own"
    in_folder "$own" "$@" >"$own/said" 2>&1 &
}
in_folder() {
    work=$1
    "${@:2}"
}
together() {
    wait
    cat "$work"/aside-*/said
    rm -rf "$work"/aside-*
}

# any N: $drawn, a number from 0 to N - 1. Never in a subshell, where RANDOM does not follow its seed.
# shellcheck disable=SC2034 # for the scripts
any() { drawn=$(((RANDOM * 32768 + RANDOM) % $1)); }

verify() { "$tutti" checkpoint verify "$1" >/dev/null; }

# A small corpus in $work/text, token files of it, and $work/tiny.yaml: a model that trains in no time.
# tokens.h5 is one stream; short.h5 is so small that an epoch ends within six steps; documents.h5 has
# documents of many lengths.
prepare() {
    mkdir "$work/text" "$work/documents"
    cp include/tutti/base/*.h include/tutti/dist/*.h "$work/text"
    head -c 1100 include/tutti/base/options.h >"$work/short.txt"
    local i
    for i in {1..60}; do
        head -c $((i * 80)) include/tutti/base/options.h | tail -c $((2 + i * 7 % 31)) >"$work/documents/$i"
    done
    # build NAME ARGUMENT...: a token file
    build() { timeout $limit "$tutti" data build --out "$work/$1.h5" "${@:2}" >>"$work/log" 2>&1; }
    if ! build tokens --valid 0.2 "$work/text" || ! build short "$work/short.txt" ||
        ! build documents "$work/documents"; then
        echo "not ok token files: $(tail -n 1 "$work/log")"
        exit 1
    fi
    # Buckets so small that some blocks are divided and others merged.
    cat >"$work/tiny.yaml" <<YAML
model: {layers: 2, heads: 2, channels: 16, context: 16}
data: {train: $work/tokens.h5}
batch: {sequences: 12, micro: 1}
# eps: with less, AdamW makes whole steps of the rounding noise in gradients that are zero.
optim: {lr: 3e-3, warmup: 2, schedule: constant, eps: 1e-5}
precision: {compute: fp32}
dist: {bucket_mb: 0.02}
run: {steps: 6, log_every: 0, resume: auto}
YAML
}

# The same for the release build, which is what a test of memory measures: what a sanitizer holds is its own.
# Where no build is without one, the test ends.
prepare_release() {
    tutti=$release
    if "$tutti" version | grep -q '(\(asan\|tsan\) build'; then
        echo "skip $(basename "$0" .sh): memory of a sanitizer's build says nothing"
        exit 0
    fi
    prepare
}

# The last run was refused: name of the check, exit code, words that its one sentence holds. Nothing
# else is on stderr: no banner, no second rank's voice, no crash. The launcher's own event library warns
# now and then of a file that has just been closed ("[warn] Epoll ..."), which is not ours to say.
refused() {
    local rc=0 why=
    if ((code != $2)); then
        why="exit code $code, not $2"
    elif [[ $(grep -c '^tutti: ' "$work/err") != 1 ]]; then
        why="not one sentence"
    elif [[ $(grep -cv '^\[warn\] Epoll ' "$work/err") != 1 ]]; then
        why="more than the sentence on stderr"
    elif ! grep -qF -- "$3" "$work/err"; then
        why="'$3' is not in it"
    fi
    [[ -z $why ]] || rc=1
    verdict "$1" $rc "$why: $(head -c 600 "$work/err" | tr '\n' '|')"
}

# The last run failed while it ran: like refused, but lines of a run may stand before the sentence.
failed() {
    local rc=0 why=
    if ((code != $2)); then
        why="exit code $code, not $2"
    elif [[ $(grep -c '^tutti: ' "$work/err") != 1 ]]; then
        why="not one sentence"
    elif ! grep '^tutti: ' "$work/err" | grep -qF -- "$3"; then
        why="'$3' is not in it"
    fi
    [[ -z $why ]] || rc=1
    verdict "$1" $rc "$why: $(tail -n 4 "$work/err" | head -c 600 | tr '\n' '|')"
}

# Every file below a folder with its contents, to see that nothing changed.
tree() { (cd "$1" && find . -type f -exec sha256sum {} + | LC_ALL=C sort -k 2); }

# metric NAME KEY: "STEP VALUE" of every step of $work/NAME, in the order of the file.
metric() {
    sed -n "s/^{\"step\": \([0-9]*\),.*\"$2\": \([^,}]*\)[,}].*/\1 \2/p" "$work/$1/metrics.jsonl"
}

# checkpoint NAME STEP: its path.
checkpoint() { printf '%s/%s/step-%08d.h5' "$work" "$1" "$2"; }

# same_state NAME A B: two checkpoints are the same to the bit.
same_state() {
    local rc=0 said
    said=$(timeout $limit "$tutti" checkpoint diff "$2" "$3" 2>&1) || rc=$?
    verdict "$1" $rc "$(tr '\n' '|' <<<"$said")"
}

# close_state NAME BOUND A B: |a - b| / |b| over all parameters is at most BOUND.
close_state() {
    local said rc=0 distance
    said=$(timeout $limit "$tutti" checkpoint diff "$3" "$4" 2>&1) || rc=$?
    distance=$(awk '$1 == "params" { print $4 }' <<<"$said")
    ((rc == 0)) && distance=0
    awk -v d="$distance" -v b="$2" 'BEGIN { exit !(d ~ /^[0-9]/ && d + 0 <= b + 0) }'
    verdict "$1" $? "distance '$distance', bound $2: $(head -c 300 <<<"$said" | tr '\n' '|')"
}

# close_value NAME BOUND A B: the relative difference of two numbers is at most BOUND.
close_value() {
    # shellcheck disable=SC2016 # the dollars are awk's
    awk -v bound="$2" '{ d = $2 - $1; d = d < 0 ? -d : d; s = $1 < 0 ? -$1 : $1 }
        END { exit !(NF == 2 && d <= bound * s) }' <<<"$3 $4"
    verdict "$1" $? "'$3' and '$4', bound $2"
}

# close_metric NAME BOUND KEY A B: the relative difference of KEY is at most BOUND in every step.
close_metric() {
    local said
    said=$(paste <(metric "$4" "$3") <(metric "$5" "$3") | awk -v bound="$2" '
        { d = $4 - $2; d = d < 0 ? -d : d; s = $2 < 0 ? -$2 : $2 }
        NF != 4 || $1 != $3 || !(d <= bound * s) { print; exit 1 }
        END { if (NR == 0) { print "no steps"; exit 1 } }')
    verdict "$1" $? "$said"
}

# said NAME WORDS: the last command ended well, and its output holds this line (a basic expression).
said() {
    local rc=0
    ((code == 0)) && grep -q -- "$2" "$work/out" || rc=1
    verdict "$1" $rc "exit code $code, no '$2' in: $(head -c 400 "$work/out" "$work/err" | tr '\n' '|')"
}

# field KEY: its value in the JSON on $work/out.
field() { sed -n "s/.*\"$1\": \([^,}]*\)[,}].*/\1/p" "$work/out" | head -n 1; }

# json NAME FILE: every line is JSON.
json() {
    if command -v jq >/dev/null; then
        jq -e . "$2" >/dev/null 2>"$work/err"
        verdict "$1" $?
    else
        echo "skip $1: jq is not installed"
    fi
}
