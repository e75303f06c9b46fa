#!/usr/bin/env bash
# scale.sh: what many nodes would make of a model: the forecast of `tutti plan` for some numbers of ranks, networks
# and accumulations, as Markdown.
#
#   scripts/scale.sh [--readme] [--ranks "64 512 4096"] [--ranks-per-node N] [--networks "25:10 100:2"]
#                    [--cores N] [--rate X] [CONFIG] [key=value ...]
#
# Networks are GBIT/S:MICROSECONDS. A rank is taken for N cores (default 16) like those of this machine, which
# is what one NUMA domain of a server has: it trains N / threads times what all threads of this machine would
# alone, by the speed of the kernels measured at the start; --rate X: X tokens a second. Nodes have 8 ranks unless
# told otherwise. CONFIG defaults to configs/gpt2-124m.yaml, with micro-batches of 4 sequences and as many of
# them as the column says. --readme puts the table between README's markers. TUTTI_BIN is the program, default
# build/release/tutti. Takes a minute.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/lib/report.sh
source scripts/lib/report.sh
ranks='64 512 4096' networks='25:10 100:2' ranks_per_node=8 cores=16 rate='' readme='' config=configs/gpt2-124m.yaml
request 'readme ranks= ranks-per-node= networks= cores= rate= CONFIG' "$@"
[[ $cores =~ ^[1-9][0-9]*$ ]] || fail 2 "--cores '$cores': a whole number is needed"
OMP_NUM_THREADS=${OMP_NUM_THREADS:-$(nproc)}
export OMP_NUM_THREADS

# wire RANKS GBPS US ARGUMENT...: the forecast in $work/wire.
wire() {
    "$tutti" plan "$config" batch.sequences=0 batch.micro=4 batch.accumulate=1 "${keys[@]}" --json --ranks "$1" \
        --ranks-per-node "$ranks_per_node" --gbps "$2" --latency_us "$3" "${@:4}" >"$work/plan" 2>"$work/err" ||
        fail $? "$(tail -n 1 "$work/err")"
    grep -o '"wire": {.*' "$work/plan" >"$work/wire"
}
# foretold KEY: the first of it.
foretold() { value "$1" <"$work/wire"; }
# efficiencies: "K OVERLAP BLOCKING" for the plan's own K and the others.
efficiencies() {
    tr '{},' '\n' <"$work/wire" | awk -F'": ' '/^ *"accumulate"/ { printf "%s%s", sep, $2; sep = "\n" } /^ *"efficiency"/ { printf " %s", $2 } END { print "" }'
}

wire 1 1 1
sum=$(foretold sum_gb_s)
if [[ -z $rate ]]; then
    here=$(foretold rank_tokens_per_s)
    rate=$(awk -v x="$here" -v n="$cores" -v t="$OMP_NUM_THREADS" 'BEGIN { printf "%.6g", x * n / t }')
fi
for network in $networks; do
    [[ $network =~ ^[0-9.]+:[0-9.]+$ ]] || fail 2 "--networks '$networks': GBIT/S:MICROSECONDS is needed, such as 25:10"
    for R in $ranks; do
        wire "$R" "${network%:*}" "${network#*:}" --tokens_per_s "$rate" --sum_gb_s "$sum"
        efficiencies | awk -v R="$R" -v gbps="${network%:*}" -v us="${network#*:}" -v nodes="$(foretold nodes)" \
            -v comm="$(foretold comm_ms)" -v exposed="$(foretold comm_exposed_ms)" -v step="$(foretold step_ms)" '
            { cell = cell sprintf(" %.1f %% (%.1f %%) |", 100 * $2, 100 * $3) }
            END { printf "| %s | %s | %s Gbit/s, %s us | %.0f ms | %.0f ms |%s\n", R, nodes, gbps, us, comm, exposed, cell }'
    done
done >"$work/rows"
{
    printf '| ranks | nodes | network | collectives | of them exposed |'
    efficiencies | awk '{ printf " efficiency, K = %s |", $1 }'
    printf '\n|---|---|---|---|---|'
    efficiencies | awk '{ printf "---|" }'
    printf '\n'
    cat "$work/rows"
    # shellcheck disable=SC2016 # Markdown, not a command
    printf '\n%s, micro-batches of 4; a rank that alone trains %.0f tokens/s%s;\nsums at %.3g GB/s a thread. In brackets: without overlap.\n' \
        "\`$config\`" "$rate" \
        "${here:+: $cores cores like the $OMP_NUM_THREADS measured, which train $(printf %.0f "$here")}" "$sum"
} >"$work/table"

if [[ $readme ]]; then
    into_readme scale <"$work/table"
else
    cat "$work/table"
fi
