#!/usr/bin/env bash
# Signals x whom they reach x phases x ZeRO: SIGTERM, SIGUSR1 and SIGINT, to one rank, to all, to the launcher,
# while the run starts, accumulates, reduces, updates, evaluates, saves and ends. Each time the run ends
# with 75 (0 when all was done), has saved what it should, once, and goes on to the very end of a run that
# nobody stopped: the same state to the bit, the same losses and evaluations. Then the second signal in
# every phase: at once, without harm.
# shellcheck source=tests/cli/lib.sh
source "$(dirname "$0")/../cli/lib.sh"
if ! "$tutti" version | grep -q '(\(debug\|asan\|tsan\|cov\) build'; then
    echo "skip signals: this build has no faults"
    exit
fi
prepare
unset OMPI_MCA_odls_base_sigkill_timeout

ranks=3
steps=6
# 12 sequences: four micro-batches a step.
usual=(run.exact=true "run.steps=$steps" run.save_every=2 run.keep=0 run.eval_every=4 run.eval_sequences=12
    run.trace_data=true model.dropout=0.1 batch.micro=1 run.digest_every=1)

pid() { cat "$work/$1.pid.$2"; }
saved() { find "$work/$1" -name 'step-*.h5' -printf '%f\n' | LC_ALL=C sort | sed 's/step-0*\([0-9]*[0-9]\).h5/\1/' | paste -sd ' '; }
story() {
    sed -n '/^{"step": /s/, "step_ms".*//p' "$work/$1/metrics.jsonl"
    cat "$work/$1/data.jsonl"
}
as_if_never() { # NAME WHO ZERO
    trained "$2: the next start" $ranks "$1" "${usual[@]}" memory.zero="$3"
    same_state "$2: the same state" "$(checkpoint ../whole $steps)" "$(checkpoint "$1" $steps)"
    equal "$2: the same story" "$(story ../whole)" "$(story "$1")"
}
trained "a run that nobody stops" $ranks whole "${usual[@]}"

# All ranks have come to the point of the fault, some perhaps more than once.
all_there() { [[ $(sed -n 's/^fault: \(rank [0-9]*\) .*/\1/p' "$work/err" 2>/dev/null | sort -u | wc -l) == "$ranks" ]]; }

# What is saved after a stop in each phase, and the fault that makes time for it.
phases='start:in_start:0
accumulation:in_micro:step=4:2 3
reduction:in_reduce:step=4:2 4
update:in_update:step=4:2 4
evaluation:in_eval:step=4:2 4
save:mid_save:step=4:2 4
closing:in_end:2 4 6'

# stop PHASE POINT SAVED SIGNAL WHOM ZERO
stop() {
    local phase=$1 point=$2 saved=$3 signal=$4 whom=$5 zero=$6 wanted=75
    local who="SIG$signal to $whom in $phase, ZeRO $zero" told=()
    [[ $phase != closing ]] || wanted=0
    TUTTI_FAULT=slow=$point launch run $ranks "${usual[@]}" memory.zero="$zero"
    if ! awaits all_there; then
        echo "not ok $who: the phase did not come: $(tail -n 1 "$work/err")"
        return
    fi
    case $whom in
    "one rank") told=("$(pid run $((ranks - 1)))") ;;
    "all ranks") for ((r = 0; r < ranks; r++)); do told+=("$(pid run $r)"); done ;;
    launcher) # mpirun itself would kill after SIGTERM and SIGINT
        told=("$job")
        [[ $signal != USR1 ]] || told=("$(ps -o ppid= -p "$(pid run 0)")")
        ;;
    esac
    # shellcheck disable=SC2048,SC2086 # ps pads its numbers
    kill -$signal ${told[*]}
    code=0
    wait "$job" || code=$?
    equal "$who: exit code" $wanted "$code"
    equal "$who: saved" "$saved" "$(saved run)"
    equal "$who: words" $((wanted / 75)) "$(grep -c '^tutti: ' "$work/err")"
    as_if_never run "$who" "$zero"
}

# again PHASE POINT ZERO: all ranks stand still there; the second signal ends the job. What was saved stays, and
# the run goes on.
again() {
    local who="a second signal in $1, ZeRO $3" start
    TUTTI_FAULT=hang=$2 launch run $ranks "${usual[@]}" memory.zero="$3"
    awaits all_there
    kill -TERM "$(pid run 1)"
    sleep 3
    kill -0 "$job"
    verdict "$who: the first alone is waited for" $?
    start=$SECONDS
    kill -USR1 "$(pid run 1)"
    code=0
    wait "$job" || code=$?
    equal "$who: exit code" $((128 + 10)) "$code"
    check "$who: at once" test $((SECONDS - start)) -le 10
    as_if_never run "$who" "$3"
}


for zero in 0 3; do
    while IFS=: read -r phase point saved; do
        # step=S is part of the point, and the last field is what is saved.
        if [[ $saved == step=* ]]; then
            point=$point:${saved%%:*} saved=${saved#*:}
        fi
        for signal in TERM USR1 INT; do
            for whom in "one rank" "all ranks" launcher; do
                aside stop "$phase" "$point" "$saved" $signal "$whom" $zero
            done
        done
        [[ $phase == closing ]] || aside again "$phase" "$point" $zero
    done <<<"$phases"
done
together
