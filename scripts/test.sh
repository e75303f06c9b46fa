#!/usr/bin/env bash
# test.sh: runs the tests of a build and counts them.
#
#   scripts/test.sh [--quick | --long] [--only PATTERN] BUILD [RELEASE_BUILD]
#
# BUILD            tests/*/test_* as one process, tests/*/mpi_* on 1, 2, 3 and 4 ranks, then the scripts
#                  tests/cli/*.sh and tests/scripts/*.sh with TUTTI_BIN=BUILD/tutti
# RELEASE_BUILD    its single-process tests too, so that the code users run is tested as compiled;
#                  scripts find it as TUTTI_RELEASE_BIN (otherwise the same as TUTTI_BIN)
# --quick          mpi tests on 2 ranks; no program whose first lines contain "quick: no", and only
#                  scripts whose first lines contain "quick: yes"
# --long           none of these, but tests/long/*.sh, which take minutes each
# --only PATTERN   only tests whose name matches this extended regular expression
#
# Tests run side by side, but no script whose first lines contain "alone: yes", and no long one. A test
# program prints Check's summary line; a script prints "ok NAME" or "not ok NAME: why" a check
# and "skip NAME: why" for one that cannot run here. A crash, a timeout or a missing summary is a
# failure. Output is shown only for what failed: every failed check, and the last lines. Lines
# "note ..." are shown always. The last line is "N passed, N failed"; exit 0 only when something passed
# and nothing failed.
set -euo pipefail
# Tests make more threads and ranks than there are cores, where waiting by spinning costs ten times.
export OMP_WAIT_POLICY=passive
export OMPI_MCA_mpi_yield_when_idle=1
cd "$(dirname "$0")/.."

timeout_program=120 # seconds; several times what the slowest takes on a busy machine
timeout_script=600
timeout_long=5400
side_by_side=3 # tests at a time: ranks and scripts wait most of the time
quick=
long=
only=.
passed=0
failed=0
skipped=0

while [[ ${1:-} == --* ]]; do
    case $1 in
    --quick) quick=1 ;;
    --long) long=1 ;;
    --only)
        only=${2:?--only needs a pattern}
        shift
        ;;
    --help)
        sed -n '2,/^set -/s/^# \{0,1\}//p' "$0"
        exit 0
        ;;
    *)
        echo "test.sh: unknown argument '$1'" >&2
        exit 2
        ;;
    esac
    shift
done
build=${1:?test.sh: name the build folder, for example build/debug}
release=${2:-}
[[ $build != "$release" ]] || { echo "test.sh: BUILD and RELEASE_BUILD are the same folder" >&2 && exit 2; }
if grep -qs -e '-fsanitize\|--coverage' "$build/flags"; then # several times slower
    timeout_program=$((3 * timeout_program))
    timeout_script=$((3 * timeout_script))
    timeout_long=$((3 * timeout_long))
fi

# Leaks of libraries that keep memory to the end are theirs; ours are failures. Whole stacks, because
# those libraries have no frame pointers; no thread-local interception, because the leak check dies
# of it in a process that started MPI without mpirun. Stacks of 12 frames reach those libraries and
# make HDF5's many small allocations a third cheaper.
export ASAN_OPTIONS=fast_unwind_on_malloc=0:malloc_context_size=12:intercept_tls_get_addr=0${ASAN_OPTIONS:+:$ASAN_OPTIONS}
export LSAN_OPTIONS=suppressions=$PWD/tests/lsan.supp:print_suppressions=0${LSAN_OPTIONS:+:$LSAN_OPTIONS}
export UBSAN_OPTIONS=print_stacktrace=1${UBSAN_OPTIONS:+:$UBSAN_OPTIONS}
export LC_ALL=C
ulimit -c 0 # a crash is reported, not kept

work=$(mktemp -d "${TMPDIR:-/tmp}/tutti-test.XXXXXX")
trap 'rm -rf "$work"' EXIT
export TMPDIR=$work/tmp
mkdir "$TMPDIR"

# Runs "$@" under a timeout with output into $work/$1.out, its exit code into .rc, seconds into .s.
run() {
    local id=$1 limit=$2 start=$EPOCHREALTIME rc=0
    shift 2
    { timeout --kill-after=10 "$limit" "$@" </dev/null >"$work/$id.out" 2>&1; } 2>/dev/null || rc=$?
    echo "$rc" >"$work/$id.rc"
    awk -v a="$start" -v b="$EPOCHREALTIME" 'BEGIN { printf "%.1f", b - a }' >"$work/$id.s"
}

why() { # exit code, limit
    case $1 in
    124 | 137) echo "timeout after $2 s or killed" ;;
    127) echo "not found" ;;
    *) (($1 > 128)) && echo "killed by signal $(($1 - 128))" || echo "exit code $1" ;;
    esac
}

# Of a test's output what tells why it failed: the line of every failed check, wherever it stands, and
# the end.
show() { # file
    awk -v end=40 '
        { line[NR] = $0 }
        END {
            for (i = 1; i <= NR; i++) {
                if (i > NR - end || line[i] ~ /^not ok |:[FE]:.*:[0-9]+: /) {
                    print "      | " line[i]
                    gap = 0
                } else if (!gap++) {
                    print "      | ..."
                }
            }
        }' "$1"
}

# Adds a finished test to the totals: id, name, kind (check or script), limit.
count() {
    local id=$1 name=$2 kind=$3 limit=$4 rc good=0 bad=0 skips=0
    rc=$(<"$work/$id.rc")
    if [[ $kind == check ]]; then
        read -r good bad < <(sed -n 's/^[0-9]*%: Checks: \([0-9]*\), Failures: \([0-9]*\), Errors: \([0-9]*\)$/\1 \2 \3/p' \
            "$work/$id.out" | awk '{ n += $1; f += $2 + $3 } END { print n - f, f + 0 }')
    else
        good=$(grep -c '^ok ' "$work/$id.out") || true
        bad=$(grep -c '^not ok ' "$work/$id.out") || true
        skips=$(grep -c '^skip ' "$work/$id.out") || true
    fi
    local note=
    if ((rc != 0 && bad == 0)); then
        bad=1
        note=$(why "$rc" "$limit")
    elif ((rc == 0 && good + bad + skips == 0)); then
        bad=1
        note="printed no result"
    fi
    passed=$((passed + good))
    failed=$((failed + bad))
    skipped=$((skipped + skips))
    if ((bad > 0)); then
        printf 'FAIL  %-44s %s failed, %s passed%s\n' "$name" "$bad" "$good" "${note:+: $note}"
        show "$work/$id.out"
    else
        printf 'ok    %-44s %4d checks %6s s\n' "$name" "$good" "$(<"$work/$id.s")"
        sed -n 's/^skip /      skipped: /p' "$work/$id.out"
    fi
    sed -n 's/^note /      /p' "$work/$id.out"
}

# Names of test programs that the sources promise: a program that is not there is a failure.
programs() { # test or mpi
    local source
    for source in tests/*/"$1"_*.c; do
        [[ -e $source && $source =~ $only ]] || continue
        [[ -n $quick ]] && head -n 5 "$source" | grep -q 'quick: no' && continue
        printf '%s\n' "${source%.c}"
    done
    return 0
}

# start ID NAME KIND LIMIT WAY COMMAND...: runs the test beside others. Results are shown in this order.
# WAY is "alone" for one that measures or that others would disturb, otherwise the number at a time.
ids=() names=() kinds=() limits=()
next=0
start() {
    local id=$1 limit=$4 way=$5
    ids+=("$id") names+=("$2") kinds+=("$3") limits+=("$limit")
    shift 5
    if [[ $way == alone ]]; then
        finish
        run "$id" "$limit" "$@"
    else
        while (($(jobs -rp | wc -l) >= way)); do wait -n; done
        run "$id" "$limit" "$@" &
    fi
    results
}

# Counts those that are done, up to the first that is not.
results() {
    while ((next < ${#ids[@]})) && [[ -s $work/${ids[next]}.s ]]; do
        count "${ids[next]}" "${names[next]}" "${kinds[next]}" "${limits[next]}"
        next=$((next + 1))
    done
}

# Waits for all that was started.
finish() {
    wait
    results
}

# Single-process tests of build folder $1, two at a time.
run_single() {
    local test name
    local -x OMP_NUM_THREADS=2
    local -x ASAN_OPTIONS=$ASAN_OPTIONS:fast_unwind_on_malloc=1 # no MPI here
    for test in $(programs test); do
        name=${test#tests/}
        start "$(tr '/' '.' <<<"$1.$name")" "$name${2:+ ($2)}" check $timeout_program 2 "$1/$test"
    done
    finish
}

# Multi-rank tests. The runner's limit is the outer one.
run_ranks() {
    local test name ranks
    export OMP_NUM_THREADS=1
    for test in $(programs mpi); do
        name=${test#tests/}
        for ranks in "$@"; do
            start "$(tr '/' '.' <<<"$name.$ranks")" "$name, ranks: $ranks" check \
                $((timeout_program + 20)) $side_by_side \
                scripts/run.sh -n "$ranks" -t $timeout_program "$build/$test"
        done
    done
    finish
}

# Those of the named files that are there, may be run and are asked for: limit, file...
run_scripts() {
    local limit=$1 script name way
    shift
    unset OMP_NUM_THREADS
    export TUTTI_BIN=$PWD/$build/tutti
    export TUTTI_RELEASE_BIN=$PWD/${release:-$build}/tutti
    [[ $build == /* ]] && TUTTI_BIN=$build/tutti TUTTI_RELEASE_BIN=${release:-$build}/tutti
    for script in "$@"; do
        [[ -x $script && $script =~ $only ]] || continue
        [[ -n $quick ]] && ! head -n 5 "$script" | grep -q 'quick: yes' && continue
        name=${script#tests/}
        way=$side_by_side
        if [[ -n $long ]] || head -n 5 "$script" | grep -q 'alone: yes'; then way=alone; fi
        start "$(tr '/' '.' <<<"$name")" "$name" script "$limit" "$way" "$script"
    done
    finish
}

if [[ -n $long ]]; then
    run_scripts $timeout_long tests/long/*.sh
else
    run_single "$build"
    if [[ -n $quick ]]; then
        run_ranks 2
    else
        run_ranks 1 2 3 4
    fi
    run_scripts $timeout_script tests/cli/*.sh tests/scripts/*.sh
    if [[ -n $release ]]; then
        run_single "$release" release
    fi
fi

if ((skipped > 0)); then
    echo "$skipped skipped"
fi
echo "$passed passed, $failed failed"
((passed > 0 && failed == 0))
