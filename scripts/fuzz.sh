#!/usr/bin/env bash
# fuzz.sh: looks for inputs that break the readers of configurations, token files and checkpoints.
#
#   scripts/fuzz.sh [--seconds S] BUILD [TARGET...]   runs the programs of tests/fuzz in BUILD, side by side
#   scripts/fuzz.sh --check                           is there a clang with libFuzzer?
#
# Targets: config, tokens, checkpoint; and sound: what base/sound.h lets through does HDF5 no harm.
# Begins with tests/fuzz/corpus/TARGET and with what earlier runs found worth keeping in BUILD/corpus/TARGET.
# A crash, an error of the sanitizers, a leak, a hang (10 s for a file of some KB) or more than 192 MiB asked for
# at once (the counts of a vocabulary of 16 million take 128) is a finding: the input is kept in BUILD/findings,
# and the exit code is 1. To see one again: BUILD/tests/fuzz/fuzz_TARGET FILE.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=600
while [[ ${1-} == --* ]]; do
    case $1 in
    --seconds)
        seconds=${2-}
        shift
        ;;
    --check)
        if ! clang -fsanitize=fuzzer,address -x c -o /dev/null - <<<'int LLVMFuzzerTestOneInput(void) { return 0; }' 2>/dev/null; then
            echo "fuzz.sh: no clang with libFuzzer is found; scripts/setup.sh --fuzz names the packages" >&2
            exit 1
        fi
        exit 0
        ;;
    *)
        sed -n '2,/^set -/s/^# \{0,1\}//p' "$0" >&2
        exit 2
        ;;
    esac
    shift
done
[[ $seconds =~ ^[1-9][0-9]*$ ]] || { echo "fuzz.sh: --seconds '$seconds': whole seconds are needed" >&2 && exit 2; }
build=${1:?fuzz.sh: name the build folder, for example build/fuzz}
shift
targets=("$@")
((${#targets[@]} > 0)) || targets=(config tokens checkpoint sound)

# Memory that libraries keep is theirs, and so are the few bytes that HDF5 forgets when it refuses a file.
export LSAN_OPTIONS=suppressions=$PWD/tests/lsan.supp:print_suppressions=0
export OMP_NUM_THREADS=1
mkdir -p "$build"/{corpus,findings,logs}

# search TARGET: until the time is over or there is a finding; a hang that does not come back was the machine's.
search() {
    local target=$1 end=$((SECONDS + seconds)) left file rc
    local program=$build/tests/fuzz/fuzz_$target log=$build/logs/$target
    local seeds=("tests/fuzz/corpus/$target") limits=(-timeout=10 -rss_limit_mb=1024 -malloc_limit_mb=192 -max_len=65536)
    mkdir -p "$build/corpus/$target"
    [[ $target != sound ]] || seeds=(tests/fuzz/corpus/{tokens,checkpoint})
    if [[ $target == config ]]; then # words to try
        sed -n 's/^ *\([a-z0-9_]*\):.*/"\1"/p' tests/fuzz/corpus/config/every-key.yaml | sort -u >"$build/config.dict"
        limits+=("-dict=$build/config.dict")
    fi
    : >"$log"
    while left=$((end - SECONDS)) && ((left > 0)); do
        rc=0
        timeout -k 10 $((left + 120)) "$program" "${limits[@]}" -max_total_time=$left -print_final_stats=1 \
            "-artifact_prefix=$build/findings/$target-" "$build/corpus/$target" "${seeds[@]}" \
            >>"$log" 2>&1 </dev/null || rc=$?
        ((rc != 0)) || return 0
        file=$(sed -n 's/.*Test unit written to //p' "$log" | tail -n 1)
        if [[ $file == */"$target"-timeout-* ]] && timeout 60 "$program" "${limits[@]}" "$file" >/dev/null 2>&1; then
            rm -f "$file"
            continue
        fi
        return 1
    done
}

jobs=()
for target in "${targets[@]}"; do
    search "$target" &
    jobs+=($!)
done
bad=0
printf '%-12s %12s %10s %18s %8s  %s\n' target executions a_second code_reached inputs found
for i in "${!targets[@]}"; do
    target=${targets[i]} log=$build/logs/${targets[i]} found=nothing
    if ! wait "${jobs[i]}"; then
        found=$(sed -n 's/^SUMMARY: //p; s/.*Test unit written to /in /p' "$log" | tail -n 2 | paste -sd ' ')
        found=${found:-"a failure: $(tail -n 1 "$log")"}
        bad=1
    fi
    awk -v target="$target" -v found="$found" '
        / inline 8-bit counters/ { gsub(/[^0-9 ]/, " "); edges = $2 }
        /stat::number_of_executed_units:/ { runs += $2 }
        /stat::average_exec_per_sec:/ { speed = $2 }
        match($0, /cov: [0-9]+/) { reached = substr($0, RSTART + 5, RLENGTH - 5) }
        match($0, /corp: [0-9]+/) { inputs = substr($0, RSTART + 6, RLENGTH - 6) }
        END { printf "%-12s %12d %10d %18s %8d  %s\n", target, runs, speed, reached " of " edges, inputs, found }' "$log"
done
exit $bad
