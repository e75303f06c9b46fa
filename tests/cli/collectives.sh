#!/usr/bin/env bash
# What goes over the wire in a step, counted from outside by tests/pmpi/shim.c: the same calls and
# bytes whatever the number of micro-batches, and the numbers that the plan promised and the metrics
# report. A run of six steps minus one of three leaves three steps without start and end.
# shellcheck source=tests/cli/lib.sh
source "$(dirname "$0")/lib.sh"
prepare
if ! OMPI_CC=${OMPI_CC:-gcc} mpicc -shared -fPIC -o "$work/shim.so" tests/pmpi/shim.c 2>"$work/err"; then
    echo "not ok shim: $(head -n 1 "$work/err")"
    exit
fi
export ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}verify_asan_link_order=0

# count RANKS STEPS NAME KEY=VALUE...: a run under the shim; NAME.R gets what rank R counted.
count() {
    local ranks=$1 steps=$2 name=$3
    shift 3
    code=0
    scripts/run.sh -n "$ranks" -t "$limit" env "LD_PRELOAD=$work/shim.so" "TUTTI_PMPI_OUT=$work/$name" \
        "$tutti" train "$work/tiny.yaml" "run.dir=$work/$name-run" "run.steps=$steps" "$@" \
        >"$work/out" 2>"$work/err" || code=$?
    [[ $code == 0 && -f $work/$name.0 ]] || verdict "run under the shim: $name" 1
}

# three RANKS NAME KEY=VALUE...: "calls bytes" of one step, as rank 0 counted, or "uneven" when three
# steps do not divide; and the same on every rank.
three() {
    local ranks=$1 name=$2 r
    shift 2
    count "$ranks" 3 "$name-3" "$@"
    count "$ranks" 6 "$name-6" "$@"
    for ((r = 0; r < ranks; r++)); do
        awk 'FNR == NR { calls -= $2; bytes -= $3; next } { calls += $2; bytes += $3 }
             END { print calls % 3 || bytes % 3 ? "uneven" : calls / 3 " " bytes / 3 }' \
            "$work/$name-3.$r" "$work/$name-6.$r"
    done | sort -u
}

# promised NAME, reported NAME: "calls bytes" of a step, by the first line of the metrics and the rest.
promised() { sed -n 's/.*"wire_calls": \([0-9]*\), "wire_bytes": \([0-9]*\).*/\1 \2/p' "$work/$1-6-run/metrics.jsonl"; }
reported() { paste -d ' ' <(metric "$1-6-run" comm_calls) <(metric "$1-6-run" comm_bytes) | cut -d ' ' -f 2,4 | sort -u; }

# 16 sequences in K micro-batches a rank; large enough for several buckets of 1 MB. Each rank by itself:
# everything goes through MPI.
wide=(batch.sequences=16 batch.micro=0 model.channels=128 model.layers=4 dist.bucket_mb=1 model.context=8
    dist.node_shared=false)
for ranks in 2 4; do
    for K in 1 2 4; do
        this=$(three $ranks "r$ranks-k$K" "${wide[@]}" batch.accumulate=$K)
        if ((K == 1)); then
            first=$this
            calls=${this% *}
            check "$ranks ranks: $calls calls a step are several buckets" test "$calls" -gt 6
        fi
        equal "$ranks ranks, $K micro-batches: calls and bytes do not depend on K" "$first" "$this"
        equal "$ranks ranks, $K micro-batches: as the plan says" "$(promised "r$ranks-k$K")" "$this"
        equal "$ranks ranks, $K micro-batches: as the metrics say" "$(reported "r$ranks-k$K")" "$this"
    done
done
apart=dist.node_shared=false
equal "ZeRO 0: as the plan says" "$(three 2 zero0 $apart memory.zero=0)" "$(promised zero0)"
equal "ZeRO 1 in BF16: as the plan says" "$(three 2 bf16 $apart precision.compute=bf16)" "$(promised bf16)"
equal "ZeRO 1 in BF16 at K = 8" "$(three 2 bf16-8 $apart precision.compute=bf16 batch.sequences=16)" "$(promised bf16)"
equal "blocking calls are as many" "$(three 2 blocks $apart precision.compute=bf16 dist.overlap=false)" "$(promised bf16)"
equal "more ranks than pieces" "$(three 4 narrow $apart model.channels=2 model.vocab=257 model.layers=1)" "$(promised narrow)"

# Ranks that share memory: MPI sees the agreement and the record's times, and the metrics what was
# reduced all the same, whatever K is.
shared=("${wide[@]}" dist.node_shared=true)
for K in 1 4; do
    this=$(three 2 "shared-k$K" "${shared[@]}" batch.accumulate=$K)
    equal "shared memory, $K micro-batches: two small calls through MPI" 2 "${this% *}"
    check "shared memory, $K micro-batches: which are small" test "${this#* }" -lt 4096
    equal "shared memory, $K micro-batches: the metrics say what the plan does" "$(promised "shared-k$K")" "$(reported "shared-k$K")"
done
equal "shared memory: the plan does not depend on K" "$(promised shared-k1)" "$(promised shared-k4)"
check "shared memory: gradients are in it" test "$(promised shared-k1 | cut -d ' ' -f 2)" -gt 1000000

# `tutti plan` says the same before.
alone plan "$work/tiny.yaml" "${wide[@]}" batch.accumulate=4 --ranks 4
equal "tutti plan says so too" "${first% *}" "$(awk '$1 == "collectives" { print $2 }' "$work/out")"

# One rank has no wire.
three 1 alone >/dev/null
equal "one rank sends nothing" "0 0" "$(reported alone)"
