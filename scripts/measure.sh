#!/usr/bin/env bash
# measure.sh: the measurement table of README, as Markdown, measured here and now.
#
#   scripts/measure.sh [--readme]      --readme puts it between the markers of README.md
#
# A digest of scripts/bench.sh, which leaves all of its numbers in build/bench.md, and the largest
# differences by scripts/verify_equivalence.sh. TUTTI_BIN is the program, default build/release/tutti.
# Takes some minutes; quote ratios rather than times from a machine that others use too.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/lib/report.sh
source scripts/lib/report.sh
readme=
request readme "$@"
((${#keys[@]} == 0)) || fail 2 "unknown argument '${keys[0]}'; see --help"
unset OMP_NUM_THREADS # one thread and all are wanted

# measured NAME KEY FILTER...: the number KEY in the first line of NAME that has all of the filters.
measured() {
    local lines key=$2 filter
    lines=$(<"build/bench/$1.jsonl")
    for filter in "${@:3}"; do lines=$(grep -F -- "$filter" <<<"$lines"); done
    sed -n "s/.*\"$key\": \([0-9.e+-]*\).*/\1/p" <<<"$lines" | head -n 1
}
percent() { awk -v x="$1" 'BEGIN { printf "%.0f %%", 100 * x }'; }
share() { percent "$(measured "$@")"; }
# exposed SHARED: share of the step on 2 ranks.
exposed() {
    awk -v x="$(measured wire comm_exposed_ms "\"shared\": $1,")" -v all="$(measured wire step_ms "\"shared\": $1,")" \
        'BEGIN { printf "%.1f %%", 100 * x / all }'
}
row() { printf '| %s | %s |\n' "$1" "$2"; }
# by_team COMMAND NAME KEY FILTER...: the value with one thread, and with all where that is more.
by_team() {
    printf '%s' "$("$@" "\"threads\": 1,")"
    ((threads == 1)) || printf ' and %s' "$("$@" "\"threads\": $threads,")"
}

table() {
    local said loss norm weights compute threads
    threads=$(measured step threads)
    said=$( ((threads == 1)) && echo "1 thread" || echo "1 and $threads threads")
    # shellcheck disable=SC2016 # Markdown, not a command
    printf '| measured by `scripts/measure.sh` on %s, %s processors | |\n|---|---|\n' \
        "$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1)" "$(getconf _NPROCESSORS_ONLN)"
    row "BF16 matmul peak of the kernels' unit, $said" \
        "$(by_team measured peak peak_gflops '"bf16"') GFLOP/s ($("$tutti" version | sed -n 's/^ISA *\([^;]*\);.*/\1/p'))"
    row "memory, read and copied, $said" \
        "$(by_team measured peak gb_s '"read"') GB/s, $(by_team measured peak gb_s '"copy"') GB/s"
    row "matmuls of GPT-2 124M, geometric mean of peak, $said" "$(by_team share gemm geomean_of_peak '"set": "model"')"
    row "its attention, 1024 tokens, $said, forward" "$(by_team share attention of_peak '"forward", "case": "model"') of peak"
    row "the same, backward" "$(by_team share attention of_peak '"backward", "case": "model"') of peak"
    row "its whole step, 4 sequences of 1024, AdamW included, 1 rank of $threads threads" \
        "$(measured step tokens_per_s) tokens/s, $(share step mfu) of peak; $(measured step rss_mb) MiB resident, $(measured step planned_mb) MiB planned"
    row "of that step, outside matmul and attention" "$(share step outside_matmul_and_attention)"
    row "exact mode beside normal, the same step in turn" \
        "$(measured exact exact_over_normal) times as long (half of the rounds between $(measured exact lower_quartile) and $(measured exact upper_quartile)); $(measured exact exact_planned_mb) MiB planned, not $(measured exact normal_planned_mb)"
    row "a step of one sequence with memory.recompute, in turn, times none's" \
        "$(for choice in selective sqrt block; do printf '%s %s, ' $choice "$(measured recompute over_none "\"$choice\"")"; done | sed 's/, $//')"
    row "a step of one sequence in other formats, in turn, times BF16's" \
        "$(awk '$1 != "bf16" { printf "%s%s %s", sep, toupper($1), $3; sep = ", " }' build/bench/formats.txt)"
    row "of a step of one sequence on 2 ranks of 1 thread, communication that shows" \
        "$(exposed true) in shared memory, $(exposed false) through MPI"
    row "its checkpoint by 2 ranks, beside as many bytes written and synced as dd does" \
        "$(measured checkpoint mb_s '"save"') MB/s, $(measured checkpoint of_disk) times as fast; $(measured checkpoint mb_s '"checked"') MB/s read back too"
    row "of training with steps of one sequence on 2 ranks, an asynchronous save every 20" \
        "$(awk -v x="$(measured checkpoint share)" 'BEGIN { printf "%.1f %%", 100 * x }')"
    row "step of a 4-block, 128-channel byte model, 2 ranks of 1 thread" \
        "$(measured small tokens_per_s) tokens/s, $(share small mfu) of peak"
    row "sum of 256 MiB over 2 ranks of one node, in pieces of 25 MB" \
        "$(measured allreduce algbw_gb_s '"MPI_Allreduce", "bytes": 268435456,') GB/s, beside $(measured allreduce memcpy_gb_s '"MPI_Allreduce", "bytes": 268435456,') GB/s of memcpy on both"
    scripts/verify_equivalence.sh configs/equivalence.yaml --steps 20 --ranks "1 2 4" >"$work/equivalence"
    for compute in fp32 bf16; do
        read -r loss norm weights < <(awk -v want="$compute:" '
            /^(fp32|bf16):/ { on = $1 == want }
            on && $NF == "pass" { for (i = 5; i <= 7; i++) if ($i + 0 > most[i]) most[i] = $i + 0 }
            END { print most[5] + 0, most[6] + 0, most[7] + 0 }' "$work/equivalence")
        row "largest difference over $(grep -c pass "$work/equivalence") splits and 20 steps, ${compute^^}: loss, gradient norm, weights" \
            "$loss, $norm, $weights"
    done
}

TUTTI_BIN=$tutti scripts/bench.sh build
if [[ -n $readme ]]; then
    table >"$work/table" # whole before README changes
    into_readme measurements <"$work/table"
else
    table
fi
