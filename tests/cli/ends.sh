#!/usr/bin/env bash
# Every way in which a rank can let the others down ends the job, by itself, within 30 seconds, with a
# sentence that names the rank: one that hangs, wherever; one that is stopped; one that is killed; one that
# holds other weights; one that was given another configuration; an MPI that is stuck or allows little.
# What was saved before loads, and the run goes on from it. A rank that is only slow is waited for.
# shellcheck source=tests/cli/lib.sh
source "$(dirname "$0")/lib.sh"
prepare
host=$(hostname)

# in_time NAME: since $before no more than 30 seconds have gone by.
in_time() {
    local seconds=$((SECONDS - before))
    check "$1: within 30 seconds ($seconds)" test $seconds -le 30
}

# goes_on NAME RANKS DIR KEY=VALUE...: the newest checkpoint of a run is whole, nothing half-written is taken for one,
# and the run continues to two steps behind it.
goes_on() {
    local newest step name=$1 ranks=$2 dir=$3
    shift 3
    newest=$(find "$work/$dir" -name 'step-*.h5' | LC_ALL=C sort | tail -n 1)
    check "$name: there is a checkpoint, and it is whole" verify "$newest"
    step=$((10#$(basename "$newest" | tr -dc 0-9 | head -c 8)))
    trained "$name: the next start" "$ranks" "$dir" "run.steps=$((step + 2))" "$@"
    check "$name: goes on from there" grep -q "continuing from .*(step $step)" "$work/err"
}

saves=(run.save_every=2 run.keep=2)

# --- a process that is stopped or killed ---
# stopped RANKS RANK
stopped() {
    local ranks=$1 rank=$2 name="rank $2 of $1 is stopped" asker=$(($2 == 0 ? 1 : 0))
    begin stop "$ranks" "${saves[@]}" dist.timeout=2
    before=$SECONDS code=0
    kill -STOP "$(<"$work/stop.pid.$rank")"
    wait "$job" || code=$?
    in_time "$name"
    failed "$name" 1 "rank $asker: rank $rank (host $host) has made no progress for"
    failed "$name: it is silent" 1 "(dist.timeout is 2): it does not answer"
    failed "$name: what is left" 1 "; the last checkpoint is untouched"
    goes_on "$name" "$ranks" stop
}
# killed RANKS RANK
killed() {
    local ranks=$1 rank=$2 name="rank $2 of $1 is killed"
    begin kill "$ranks" "${saves[@]}"
    before=$SECONDS code=0
    kill -KILL "$(<"$work/kill.pid.$rank")"
    wait "$job" || code=$?
    in_time "$name"
    equal "$name: exit code" 137 "$code"
    check "$name: the cause" grep -q 'run.sh: rank [0-9] (host .*) was ended by signal 9: run.dir=' "$work/err"
    goes_on "$name" "$ranks" kill
}
for who in "3 1" "2 0" "4 3"; do
    # shellcheck disable=SC2086 # two words
    aside stopped $who
    # shellcheck disable=SC2086
    aside killed $who
done

# Stopped for less than the timeout and the time to answer, again and again: it goes on.
napping() {
    begin nap 3 dist.timeout=3
    for _ in 1 2 3; do
        kill -STOP "$(<"$work/nap.pid.1")"
        sleep 2
        kill -CONT "$(<"$work/nap.pid.1")"
        sleep 0.2
    done
    check "a rank that is stopped for a while is waited for" kill -0 "$job"
    kill -TERM "$job"
    code=0
    wait "$job" || code=$?
    equal "a rank that is stopped for a while: the run can be asked to stop" 75 "$code"
}
aside napping

as_root() { [[ $(id -u) != 0 ]] || echo --allow-run-as-root; }

# A launcher that leaves the other ranks alone. (It calls that success.)
careless() {
    TUTTI_MPIRUN="mpirun $(as_root) --map-by :OVERSUBSCRIBE --enable-recovery" begin recovery 3 dist.timeout=2
    before=$SECONDS
    kill -KILL "$(<"$work/recovery.pid.2")"
    wait "$job"
    in_time "killed under a launcher that does not care"
    check "killed under a launcher that does not care: named" \
        grep -q "^tutti: rank 0: rank 2 (host $host) has made no progress for" "$work/err"
}
if [[ -z ${TUTTI_MPIRUN-} ]] && mpirun --version 2>&1 | grep -q 'Open MPI'; then
    aside careless
else
    echo "skip killed under a launcher that does not care: Open MPI's mpirun is needed"
fi

# --- eval: over many samples, so that there is time ---
for _ in {1..40}; do cat "$work"/text/*; done >"$work/long.txt"
build long "$work/long.txt"
trained "a run to evaluate" 2 evaluated run.steps=1
evaluating() {
    # shellcheck disable=SC2016 # the inner shell's dollars
    scripts/run.sh -n 2 -t "$limit" bash -c 'echo $$ >"$0.${OMPI_COMM_WORLD_RANK:-0}"; exec "$@"' \
        "$work/eval.pid" "$tutti" eval "$1" --data "$2" dist.timeout=2 >"$work/out" 2>"$work/err" &
    job=$! before=$SECONDS code=0 tries=0
    until [[ -s $work/eval.pid.1 ]] || ((++tries > 100)); do sleep 0.1; done
    sleep 1
    kill -STOP "$(<"$work/eval.pid.1")"
    wait "$job" || code=$?
    in_time "eval: a rank is stopped"
    failed "eval: a rank is stopped" 1 "rank 0: rank 1 (host $host) has made no progress for"
}
aside evaluating "$(checkpoint evaluated 1)" "$work/long.h5"
together

# --- each rank its own configuration ---
code=0
# shellcheck disable=SC2016 # the inner shell's dollars
scripts/run.sh -n 3 -t "$limit" bash -c 'exec "$0" "$@" optim.lr=0.00$((OMPI_COMM_WORLD_RANK / 2 + 1))' \
    "$tutti" train "$work/tiny.yaml" "run.dir=$work/other" >"$work/out" 2>"$work/err" || code=$?
refused "a rank with another configuration" 2 \
    'configuration differs between ranks: rank 0 has "optim.lr: 0.001", rank 2 has "optim.lr: 0.002"'
check "a rank with another configuration: nothing is written" test ! -e "$work/other"

# Ranks that differ in who shares memory would meet in different calls of MPI.
code=0
# shellcheck disable=SC2016 # the inner shell's dollars
scripts/run.sh -n 2 -t "$limit" bash -c 'exec "$0" "$@" dist.node_ranks=$((OMPI_COMM_WORLD_RANK + 1))' \
    "$tutti" train "$work/tiny.yaml" "run.dir=$work/other" >"$work/out" 2>"$work/err" || code=$?
refused "ranks that share otherwise" 2 'rank 0 has "dist.node_ranks: 1", rank 1 has "dist.node_ranks: 2"'

# --- an MPI that behaves badly ---
if OMPI_CC=${OMPI_CC:-gcc} mpicc -shared -fPIC -o "$work/ends.so" tests/pmpi/ends.c 2>"$work/err"; then
    export ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}verify_asan_link_order=0
    # bad WHAT RANKS KEY=VALUE...
    bad() {
        local what=$1 ranks=$2
        shift 2
        before=$SECONDS code=0
        scripts/run.sh -n "$ranks" -t "$limit" env "LD_PRELOAD=$work/ends.so" "TUTTI_PMPI_END=$what" "$tutti" \
            train "$work/tiny.yaml" "run.dir=$work/$what-$ranks" "$@" >"$work/out" 2>"$work/err" || code=$?
        in_time "MPI: $what"
    }
    bad allreduce 3 dist.timeout=2
    failed "MPI is stuck" 1 "no rank has made progress for"
    failed "MPI is stuck: all are named" 1 "rank 0 (host $host) in MPI_Allreduce, rank 2 (host $host) in MPI_Allreduce"
    bad finalize 2 dist.timeout=2
    check "MPI does not close" grep -q '^tutti: rank [01] (host .*) has made no progress for .*: it waits in MPI_Finalize' \
        "$work/err"
    equal "MPI does not close: exit code" 1 "$code"
    goes_on "MPI does not close" 2 finalize-2
    bad funneled 2 dist.timeout=30
    equal "MPI for one thread: exit code" 0 "$code"
    equal "MPI for one thread: it says so once" 1 \
        "$(grep -c 'this MPI library allows no calls from several threads' "$work/err")"
    bad funneled 2 dist.timeout=0 run.resume=never
    check "MPI for one thread, without a watch: nothing to say" test "$code$(grep -c 'several threads' "$work/err")" = 00
    told() { sed -n '/^tcp /p' "$work/out" | LC_ALL=C sort | paste -sd ,; }
    bad settings 2
    equal "Open MPI is told how to use a wire" "tcp send, iallreduce 1,tcp send, iallreduce 1" "$(told)"
    OMPI_MCA_coll_libnbc_iallreduce_algorithm=3 bad settings 1 run.resume=never
    equal "what the environment says stays" "tcp send, iallreduce 3" "$(told)"
    if [[ -z ${TUTTI_MPIRUN-} ]] && mpirun --version 2>&1 | grep -q 'Open MPI'; then
        TUTTI_MPIRUN="mpirun $(as_root) --mca btl_tcp_flags send,inplace" bad settings 1 run.resume=never
        equal "what the launcher is told stays" "tcp send,inplace, iallreduce 1" "$(told)"
    fi
else
    echo "not ok shim: $(head -n 1 "$work/err")"
fi

# --- faults ---
if ! "$tutti" version | grep -q '(\(debug\|asan\|tsan\|cov\) build'; then
    echo "skip faults: this build has none"
    exit
fi

# hangs FAULT RANKS RANK DOING KEY=VALUE...: the run ends, and names the rank.
hangs() {
    local fault=$1 ranks=$2 rank=$3 doing=$4 name="$1 on rank $3 of $2"
    shift 4
    before=$SECONDS
    TUTTI_FAULT=$fault:rank=$rank,step=4 train "$ranks" "$fault-$ranks" "${saves[@]}" dist.timeout=2 "$@"
    in_time "$name"
    failed "$name" 1 "rank $rank (host $host) has made no progress for"
    failed "$name: at what" 1 "(dist.timeout is 2): it is $doing; the last checkpoint is untouched"
    goes_on "$name" "$ranks" "$fault-$ranks"
}
# Whichever way the others wait for it: in calls of MPI or a node's memory, for gradients or weights.
engines=("memory.zero=0 dist.node_shared=false" "memory.zero=3 dist.node_shared=true"
    "memory.zero=3 dist.node_shared=false dist.overlap=true" "memory.zero=3 dist.node_ranks=2 dist.overlap=true"
    "memory.zero=2 dist.node_ranks=2 dist.overlap=false" "memory.zero=1 dist.node_shared=false dist.overlap=false"
    "memory.zero=3 dist.node_shared=false dist.overlap=false")
for i in "${!engines[@]}"; do
    read -r -a engine <<<"${engines[i]}"
    aside hangs hang 4 $((i % 4)) "beginning a step" "${engine[@]}"
done
aside hangs hang 1 0 "beginning a step"
aside hangs hang 2 1 "beginning a step"
aside hangs hang 3 0 "beginning a step"
aside hangs hang 4 2 "beginning a step"
aside hangs hang=before_save 2 0 "saving a checkpoint"
aside hangs hang=mid_save 3 1 "saving a checkpoint"
aside hangs hang=before_rename 2 1 "saving a checkpoint"
aside hangs hang=after_rename 3 0 "saving a checkpoint"
aside hangs hang=in_eval 4 1 "evaluating" run.eval_every=4

before=$SECONDS code=0
TUTTI_FAULT=hang:rank=1,step=3 TUTTI_PMPI_END=funneled LD_PRELOAD="$work/ends.so" \
    train 3 one-thread "${saves[@]}" dist.timeout=2
in_time "a rank hangs, MPI for one thread"
equal "a rank hangs, MPI for one thread: exit code" 1 "$code"
check "a rank hangs, MPI for one thread: a sentence" grep -q \
    '^tutti: rank [012] (host .*) has made no progress for 2 s (dist.timeout is 2): it \(waits in MPI_\|waits for \(gradients\|weights\)\|is beginning\)' \
    "$work/err"

# flips RANKS RANK WORDS KEY=VALUE...: other weights on one rank are found, and never saved.
flips() {
    local ranks=$1 rank=$2 words=$3 name="other weights on rank $2 of $1"
    shift 3
    TUTTI_FAULT=flip_weight:rank=$rank,step=4 train "$ranks" "flip-$ranks" "${saves[@]}" "${apart[@]}" "$@"
    failed "$name" 1 "step 4: weights differ between ranks: $words, first in bucket "
    failed "$name: where" 1 ", there in h.0.ln_2.bias; not saved, the last checkpoint is untouched"
    equal "$name: the checkpoint before is the last" "step-00000002.h5" \
        "$(cd "$work/flip-$ranks" && find . -name '*.h5*' -printf '%f\n')"
    goes_on "$name" "$ranks" "flip-$ranks" "${apart[@]}" "$@"
}
# Ranks that share weights cannot differ: apart, or in two nodes, they can.
apart=(dist.node_shared=false)
aside flips 2 1 "ranks 0 and 1 from each other"
aside flips 3 0 "rank 0 from the others" precision.compute=bf16
aside flips 4 3 "rank 3 from the others" memory.zero=0 run.threads=2
together
apart=(dist.node_ranks=2)
aside flips 4 1 "ranks 0, 1, 2 and 3 from each other"
aside flips 3 0 "rank 2 from the others" memory.zero=2
together
apart=(dist.node_shared=false)
TUTTI_FAULT=flip_weight:rank=1,step=3 trained "other weights, unnoticed between comparisons" 2 unnoticed "${apart[@]}"
TUTTI_FAULT=flip_weight:rank=1,step=3 train 2 noticed dist.verify_every=3 "${apart[@]}"
failed "other weights, compared every 3 steps" 1 "step 3: weights differ between ranks"
TUTTI_FAULT=flip_weight:rank=1,step=6 trained "other weights, not compared" 2 off dist.verify_every=0 "${apart[@]}"
