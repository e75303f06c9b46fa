#!/usr/bin/env bash
# measure.sh: the measurement table of README, as Markdown, measured here and now.
#
#   scripts/measure.sh [--readme]      --readme puts it between the markers of README.md
#
# Medians by `tutti bench`, and the largest differences by scripts/verify_equivalence.sh. TUTTI_BIN is
# the program, default build/release/tutti. Takes a few minutes; quote ratios rather than times from a
# machine that others use too.
set -euo pipefail
cd "$(dirname "$0")/.."
tutti=${TUTTI_BIN:-build/release/tutti}
work=$(mktemp -d "${TMPDIR:-/tmp}/tutti-measure.XXXXXX")
trap 'rm -rf "$work"' EXIT

# value KEY: the number of "KEY" in the JSON lines on standard input, the last one.
value() { sed -n "s/.*\"$1\": \([0-9.e+-]*\).*/\1/p" | tail -n 1; }
percent() { awk -v x="$1" 'BEGIN { printf "%.0f %%", 100 * x }'; }
row() { printf '| %s | %s |\n' "$1" "$2"; }

table() {
    local threads one two out loss norm weights
    threads=$(nproc)
    # shellcheck disable=SC2016 # Markdown, not a command
    printf '| measured by `scripts/measure.sh` on %s, %s processors | |\n|---|---|\n' \
        "$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1)" "$threads"
    one=$("$tutti" bench peak run.threads=1 --json | value peak_gflops)
    two=$("$tutti" bench peak run.threads="$threads" --json | value peak_gflops)
    row "BF16 matmul peak of the kernels' unit, 1 and $threads threads" "$one and $two GFLOP/s ($("$tutti" version | sed -n 's/^ISA *\([^;]*\);.*/\1/p'))"
    one=$("$tutti" bench gemm run.threads=1 --repeat 3 --json | value geomean_of_peak)
    two=$("$tutti" bench gemm run.threads="$threads" --repeat 3 --json | value geomean_of_peak)
    row "matmuls of GPT-2 124M, geometric mean of peak, 1 and $threads threads" "$(percent "$one") and $(percent "$two")"
    out=$("$tutti" bench attention batch.micro=1 run.threads=1 --repeat 3 --json)
    row "its attention, 1024 tokens, 1 thread, forward and backward, of peak" \
        "$(percent "$(grep forward <<<"$out" | value of_peak)") and $(percent "$(grep backward <<<"$out" | value of_peak)")"
    out=$("$tutti" bench step batch.micro=1 run.threads="$threads" --repeat 3 --json)
    row "its whole step, 1 sequence of 1024, AdamW included, 1 rank" \
        "$(value tokens_per_s <<<"$out") tokens/s, $(percent "$(value mfu <<<"$out")") of peak; $(value rss_mb <<<"$out") MiB resident, $(value planned_mb <<<"$out") MiB planned"
    out=$(scripts/run.sh -n 2 -t 600 "$tutti" bench step model.layers=4 model.heads=4 model.channels=128 model.context=256 \
        model.vocab=257 batch.accumulate=2 --repeat 20 --json)
    row "step of a 4-block, 128-channel byte model, 2 ranks of 1 thread" \
        "$(value tokens_per_s <<<"$out") tokens/s, $(percent "$(value mfu <<<"$out")") of peak"
    out=$(scripts/run.sh -n 2 -t 600 "$tutti" bench allreduce --repeat 3 --json | tail -n 1)
    row "sum of 256 MiB over 2 ranks of one node, in pieces of 25 MB" \
        "$(value algbw_gb_s <<<"$out") GB/s, beside $(value memcpy_gb_s <<<"$out") GB/s of memcpy"
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

if [[ ${1:-} == --readme ]]; then
    table >"$work/table"
    { sed '/^<!-- measurements/q' README.md; cat "$work/table"; sed -n '/^<!-- \/measurements/,$p' README.md; } >"$work/readme"
    cat "$work/readme" >README.md
else
    table
fi
