#!/usr/bin/env bash
# measure_ranks.sh: is the plan what ranks take that divide or share memory? Trains a model on several
# ranks in every ZeRO stage, with a copy of the weights for each rank and with one for all of them, and sets
# memory beside the plan. ZeRO 0 keeps copies: what shares there is the reduction.
#
#   scripts/measure_ranks.sh [--ranks "2 4"] [--zero "0 1 2 3"] [--quick] [key=value ...]
#
# A line a run. Of a rank: what `tutti plan` says in all, and the peak of the rank that took most. Of the
# node: what the plan says, and the largest sum of the proportional sets (PSS) of its ranks that was seen from
# the third step until they had saved; it counts a page that several map once. "saved" is what sharing took off
# that sum, beside the plan's (ranks - 1) copies of weights and packed forms. A run passes when a rank is within
# 3 % of its plan or 16 MiB, and the node within 3 % or 16 MiB a rank. Exit 1 when one does not, 2 when the request is wrong.
# --quick: a small model in place of 69 million parameters. TUTTI_BIN is the program, default
# build/release/tutti. The largest run wants 5 GiB and a few GB of disk.
set -euo pipefail
export OMP_NUM_THREADS=1 OMP_WAIT_POLICY=${OMP_WAIT_POLICY:-passive}
cd "$(dirname "$0")/.."
# shellcheck source=scripts/lib/report.sh
source scripts/lib/report.sh
ranks='2 4' zero='0 1 2 3' quick=''
request 'ranks= zero= quick' "$@"
shape=(model.layers=8 model.heads=12 model.channels=768 model.vocab=16384 model.context=128)
[[ -z $quick ]] || shape=(model.layers=4 model.heads=4 model.channels=320 model.vocab=4096 model.context=64)
counts=$ranks stages=$zero
for count in $counts; do
    [[ $count =~ ^([2-9]|[1-9][0-9]{1,2})$ ]] || fail 2 "--ranks '$counts': whole numbers from 2 are needed"
done
for zero in $stages; do
    [[ $zero =~ ^[0-3]$ ]] || fail 2 "--zero '$stages': 0 to 3 are needed"
done
[[ -r /proc/self/smaps_rollup ]] || fail 2 "this system has no /proc/PID/smaps_rollup"
job=
trap '[[ -z $job ]] || kill "$job" 2>/dev/null; wait; rm -rf "$work"' EXIT
build_tokens src include
cat >"$work/ranks.yaml" <<YAML
data: {train: $work/tokens.h5}
batch: {micro: 1, accumulate: 1}
optim: {lr: 1e-4}
# Small buffers of MPI, of which some ranks have more than others.
dist: {bucket_mb: 1, overlap: false}
run: {steps: 1000000, resume: never, log_every: 0, dir: $work/run}
YAML

# Bytes of the proportional sets of all ranks.
node_bytes() {
    local pid
    for pid in "$work"/pid.*; do
        cat "/proc/$(<"$pid")/smaps_rollup" 2>/dev/null || true # it may have ended
    done | awk '$1 == "Pss:" { sum += $2 } END { printf "%.0f\n", 1024 * sum }'
}

# measure RANKS ZERO SHARED: into $rank_plan, $rank_peak, $node_plan, $node_now, bytes.
measure() {
    local request=("${shape[@]}" "memory.zero=$2" "dist.node_shared=$3" "${keys[@]}") said code=0 tries=0 now
    rm -rf "$work/run" "$work"/pid.*
    # shellcheck disable=SC2016 # the inner shell's dollars
    scripts/run.sh -n "$1" -t 900 bash -c 'echo $$ >"$0.${OMPI_COMM_WORLD_RANK:-${PMI_RANK:-0}}"; exec "$@"' \
        "$work/pid" "$tutti" train "$work/ranks.yaml" "${request[@]}" >"$work/log" 2>&1 &
    job=$!
    until [[ $(grep -cs grad_norm "$work/run/metrics.jsonl") -ge 3 ]]; do
        if ! kill -0 "$job" 2>/dev/null || ((++tries > 6000)); then
            fail 1 "$*: $(tail -n 1 "$work/log")"
        fi
        sleep 0.1
    done
    node_now=$(node_bytes)
    kill -TERM "$job" # run.sh asks the ranks to save and to end
    while kill -0 "$job" 2>/dev/null; do
        now=$(node_bytes)
        ((now <= node_now)) || node_now=$now
        sleep 0.02
    done
    wait "$job" || code=$?
    job=
    ((code == 75)) || fail 1 "$*: exit code $code: $(tail -n 1 "$work/log")"
    said=$(tail -n 1 "$work/run/metrics.jsonl")
    rank_plan=$(sed -n 's/.*"total": {"planned": \([0-9]*\),.*/\1/p' <<<"$said")
    rank_peak=$(sed -n 's/.*"peak_rss": \([0-9]*\)}.*/\1/p' <<<"$said")
    said=$("$tutti" plan "$work/ranks.yaml" "${request[@]}" --ranks "$1" --json)
    node_plan=$(sed -n 's/.*"node_bytes": {[^}]*"total": \([0-9]*\)}.*/\1/p' <<<"$said")
    [[ -n $rank_plan && -n $rank_peak && -n $node_plan ]] || fail 1 "$*: no numbers of memory"
}

# near PLANNED MEASURED MIB: within 3 % or so much?
near() {
    awk -v p="$1" -v m="$2" -v slack="$3" 'BEGIN {
        d = p > m ? p - m : m - p
        exit !(d <= 0.03 * p || d <= slack * 1048576)
    }'
}

mib() { awk -v b="$1" 'BEGIN { printf "%.1f", b / 1048576 }'; }

head='%5s %4s %6s %10s %10s %12s %10s %12s %10s  %s\n'
# shellcheck disable=SC2059 # one format for head and rows
printf "$head" ranks zero shared 'rank plan' peak 'node plan' PSS 'saved: plan' PSS verdict
wrong=0 runs=0
for count in $counts; do
    for zero in $stages; do
        apart_plan=0 apart_now=0
        for shared in false true; do
            measure "$count" "$zero" "$shared"
            verdict=pass saved_plan='' saved=''
            near "$rank_plan" "$rank_peak" 16 || verdict=FAIL
            near "$node_plan" "$node_now" $((16 * count)) || verdict=FAIL
            if [[ $shared == true ]]; then
                saved_plan=$((apart_plan - node_plan)) saved=$((apart_now - node_now))
                near "$saved_plan" "$saved" $((16 * count)) || verdict=FAIL
                saved_plan=$(mib "$saved_plan") saved=$(mib "$saved")
            fi
            apart_plan=$node_plan apart_now=$node_now runs=$((runs + 1))
            [[ $verdict == pass ]] || wrong=$((wrong + 1))
            # shellcheck disable=SC2059
            printf "$head" "$count" "$zero" "$shared" "$(mib "$rank_plan")" "$(mib "$rank_peak")" \
                "$(mib "$node_plan")" "$(mib "$node_now")" "$saved_plan" "$saved" "$verdict"
        done
    done
done
((wrong == 0)) || fail 1 "$wrong of $runs runs were further from their plan than 3 % or 16 MiB a rank"
echo "PASS: $runs runs within 3 % or 16 MiB a rank of the plan"
