#!/usr/bin/env bash
# measure_wire.sh: steps over wires of known delay and rate, beside what `tutti plan` foretells of them.
#
#   scripts/measure_wire.sh [--hosts "2 3 4"] [--delays "0us 1ms"] [--rates "1gbit 200mbit"] [--steps N]
#                           [--markdown] [CONFIG] [key=value ...]
#
# Makes the hosts with scripts/hosts.sh, one rank on each. For every number of hosts, delay and rate:
# a run of N steps (default 16), of which the medians of step_ms, comm_ms and comm_exposed_ms count, the
# first four steps aside; the plan's step_ms and comm_exposed_ms; measured by foretold. The default CONFIG is
# a byte model of 3.2 million parameters whose sums take about as long as its micro-batches.
#
# What the plan is told: the rate; the delay plus what a message takes without any, measured here; and
# how fast a rank computes, measured with as many ranks on one host, because the hosts share this
# machine's processors. TUTTI_BIN is the program, default build/release/tutti. Some seconds a row.
set -euo pipefail
export OMP_NUM_THREADS=1 OMP_WAIT_POLICY=passive
cd "$(dirname "$0")/.."
# shellcheck source=scripts/lib/report.sh
source scripts/lib/report.sh
# shellcheck source=scripts/lib/corpus.sh
source scripts/lib/corpus.sh
hosts='2 3 4' delays='0us 1ms' rates='1gbit 200mbit' steps=16 first=4 markdown='' config=''
request 'hosts= delays= rates= steps= markdown CONFIG' "$@"
{ [[ $steps =~ ^[1-9][0-9]*$ ]] && ((steps > first)); } || fail 2 "--steps '$steps': more than $first are needed"
[[ $delays =~ ^([0-9.]+(us|ms)\ ?)+$ ]] || fail 2 "--delays '$delays': times like 0us 1ms are needed"
[[ $rates =~ ^([1-9][0-9]*[kmg]bit\ ?)+$ ]] || fail 2 "--rates '$rates': rates like 200mbit 1gbit are needed"
scripts/hosts.sh --check || exit 1

if [[ -z $config ]]; then
    config=$work/wire.yaml
    mapfile -t texts < <(project_text)
    build_tokens "${texts[@]}"
    cat >"$config" <<YAML
model: {layers: 4, heads: 4, channels: 256, context: 64}
data: {train: $work/tokens.h5}
batch: {sequences: 12, micro: 1}
optim: {lr: 1e-3, schedule: constant}
YAML
fi

# calc EXPRESSION: a number.
calc() { awk "BEGIN { printf \"%.6g\", $1 }"; }
# microseconds TIME, gbits RATE
microseconds() { awk -v t="$1" 'BEGIN { print t * (t ~ /ms$/ ? 1000 : 1) }'; }
gbits() { awk -v r="$1" 'BEGIN { print r * (r ~ /k/ ? 1e-6 : r ~ /m/ ? 1e-3 : 1) }'; }

# train COMMAND...: the run under that launcher, into $work/run.
train() {
    rm -rf "$work/run"
    "$@" "$tutti" train "$config" "${keys[@]}" "run.dir=$work/run" "run.steps=$steps" run.log_every=0 \
        >"$work/log" 2>&1 || fail 1 "no run: $(tail -n 1 "$work/log")"
}
# median KEY: of the steps that count.
median() {
    sed -n "s/^{\"step\": .*\"$1\": \([^,}]*\)[,}].*/\1/p" "$work/run/metrics.jsonl" | tail -n +$((first + 1)) |
        sort -g | awk '{ v[NR] = $1 } END { print (v[int((NR + 1) / 2)] + v[int(NR / 2) + 1]) / 2 }'
}

# What a small message takes where nothing is added: a sum over two hosts is one.
scripts/hosts.sh --hosts 2 -t 60 "$tutti" bench allreduce --from 1KiB --to 1KiB --json >"$work/bench" 2>"$work/log" ||
    fail 1 "no latency: $(tail -n 1 "$work/log")"
base=$(calc "1000 * $(value ms <"$work/bench")")

if [[ $markdown ]]; then
    printf '| hosts | delay | rate | step ms: foretold | measured | ratio | exposed ms: foretold | measured | comm ms measured |\n'
    printf '|---|---|---|---|---|---|---|---|---|\n'
    format='| %s | %s | %s | %.1f | %.1f | %.2f | %.1f | %.1f | %.1f |\n'
else
    printf '%5s %7s %8s   %9s %9s %6s   %9s %9s   %9s\n' '' '' '' 'step ms' '' '' exposed '' 'comm ms'
    printf '%5s %7s %8s   %9s %9s %6s   %9s %9s   %9s\n' hosts delay rate foretold measured ratio foretold measured measured
    format='%5s %7s %8s   %9.1f %9.1f %6.2f   %9.1f %9.1f   %9.1f\n'
fi
for n in $hosts; do
    train scripts/run.sh -n "$n" -t 300
    tokens=$(sed -n 's/^{"step": .*"tokens": \([0-9]*\),.*/\1/p' "$work/run/metrics.jsonl" | tail -n 1)
    speed=$(calc "1000 * $tokens / $n / ($(median step_ms) - $(median comm_exposed_ms))")
    for rate in $rates; do
        for delay in $delays; do
            "$tutti" plan "$config" "${keys[@]}" --ranks "$n" --ranks-per-node 1 --gbps "$(gbits "$rate")" \
                --latency_us "$(calc "$(microseconds "$delay") + $base")" --tokens_per_s "$speed" --json \
                >"$work/plan" 2>"$work/log" || fail 1 "no forecast: $(tail -n 1 "$work/log")"
            grep -o '"wire": {.*' "$work/plan" >"$work/wire" || fail 1 'no forecast in the plan'
            train scripts/hosts.sh --hosts "$n" --delay "$delay" --rate "$rate" -t 300
            foretold=$(value step_ms <"$work/wire") measured=$(median step_ms)
            # shellcheck disable=SC2059 # a table of two kinds
            printf "$format" "$n" "$delay" "$rate" "$foretold" "$measured" "$(calc "$measured / $foretold")" \
                "$(value comm_exposed_ms <"$work/wire")" "$(median comm_exposed_ms)" "$(median comm_ms)"
        done
    done
done
printf '\nA message without delay: %.0f us. Ranks of one thread on %s processors.\n' "$base" "$(getconf _NPROCESSORS_ONLN)"
