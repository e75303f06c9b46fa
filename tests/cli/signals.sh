#!/usr/bin/env bash
# A scheduler's signal, in whatever phase: the run saves once, ends with exit code 75 within about a
# micro-batch, and continues when it is started again; a second one ends it at once. So does the end of
# run.max_seconds. The matrix of signals, phases and whom they reach is tests/long/signals.sh.
# shellcheck source=tests/cli/lib.sh
source "$(dirname "$0")/lib.sh"
prepare
unset OMPI_MCA_odls_base_sigkill_timeout # what mpirun does with signals is what is tested

# steps NAME: of the checkpoints that are there.
steps() { find "$work/$1" -name 'step-*.h5' -printf '%f\n' | LC_ALL=C sort | sed 's/step-0*\([0-9]*[0-9]\).h5/\1/' | paste -sd ' '; }
pid() { cat "$work/$1.pid.$2"; }

# ended NAME RANKS WHO: waits; the run has ended as it should, and goes on.
ended() {
    local last next
    code=0
    wait "$job" || code=$?
    equal "$3: exit code" 75 "$code"
    last=$(metric "$1" loss | tail -n 1 | cut -d ' ' -f 1)
    equal "$3: the last step is saved" "$last" "$(steps "$1")"
    check "$3: and whole" verify "$(checkpoint "$1" "$last")"
    equal "$3: it says so once" 1 "$(grep -c "^tutti: stopped by a signal after step $last, which is saved in" "$work/err")"
    next=$((last + 2))
    trained "$3: the next start" "$2" "$1" "run.steps=$next"
    equal "$3: continues" "$next $next" "$(metric "$1" loss | sed -n '$=') $(metric "$1" loss | tail -n 1 | cut -d ' ' -f 1)"
}

# to_rank SIGNAL RANKS RANK
to_rank() {
    begin rank "$2"
    kill "-$1" "$(pid rank "$3")"
    ended rank "$2" "SIG$1 to rank $3 of $2"
}
aside to_rank TERM 1 0
aside to_rank INT 1 0
aside to_rank USR1 1 0
aside to_rank TERM 3 2
aside to_rank INT 4 0

to_all_twice() {
    begin all 2
    kill -TERM "$(pid all 0)" "$(pid all 1)"
    kill -TERM "$(pid all 0)" "$(pid all 1)" 2>/dev/null
    ended all 2 "SIGTERM to all ranks, twice"
}
aside to_all_twice

to_runner() {
    begin runner 2
    kill "-$1" "$job"
    kill "-$1" "$job" # a repeat at once is the same request
    ended runner 2 "SIG$1 to run.sh, twice"
}
aside to_runner TERM
aside to_runner INT

# mpirun passes SIGUSR1 on to the ranks.
to_mpirun() {
    begin mpirun 2
    kill -USR1 "$(ps -o ppid= -p "$(pid mpirun 0)")"
    ended mpirun 2 "SIGUSR1 to mpirun"
}
aside to_mpirun

# Left to itself, OpenBLAS makes threads before main, which must not be the ones to take the signal.
with_threads() {
    unset OMP_NUM_THREADS
    begin threads 2
    kill -TERM "$(pid threads 1)"
    ended threads 2 "SIGTERM with threads of a library's own"
}
aside with_threads

# A process whose parent has it ignore a signal ignores it.
ignoring() {
    # shellcheck disable=SC2016 # the inner shell's dollars
    bash -c 'trap "" INT; exec "$@"' sh "$tutti" train "$work/tiny.yaml" "run.dir=$work/ignoring" \
        run.steps=1000000 >"$work/out" 2>"$work/err" </dev/null &
    job=$!
    awaits has_steps ignoring 3
    kill -INT "$job"
    sleep 0.5
    check "SIGINT that the parent ignores: the run goes on" kill -0 "$job"
    kill -TERM "$job"
    ended ignoring 1 "SIGTERM beside it"
}
aside ignoring

# Half of the time that there is, so that a step, a save and the end fit in the rest.
limited() {
    local start=$SECONDS
    train 2 limited run.steps=1000000 run.max_seconds=6
    equal "run.max_seconds: exit code" 75 "$code"
    check "run.max_seconds: ended in time ($((SECONDS - start)) s)" test $((SECONDS - start)) -le 12
    last=$(metric limited loss | tail -n 1 | cut -d ' ' -f 1)
    check "run.max_seconds: it says so" grep -q \
        "^tutti: stopped by run.max_seconds (6) after step $last, which is saved in " "$work/err"
    equal "run.max_seconds: and that is saved" "$last" "$(steps limited)"
    trained "run.max_seconds: the next start goes on" 2 limited run.steps=$((last + 1)) run.max_seconds=1000
}
aside limited
together

# --- phases ---
if ! "$tutti" version | grep -q '(\(debug\|asan\|tsan\|cov\) build'; then
    echo "skip phases: this build has no faults"
    exit
fi

usual=(run.exact=true run.save_every=0 run.eval_every=2 run.eval_sequences=8 run.trace_data=true model.dropout=0.1)
# slowly NAME FAULT KEY=VALUE...: two ranks that are slow somewhere; returns when those that are are there.
slowly() {
    local slow=2
    [[ $2 != *rank=* ]] || slow=1
    TUTTI_FAULT=slow=$2 launch "$1" 2 run.steps=6 "${usual[@]}" "${@:3}"
    awaits are_there $slow
}
are_there() { [[ $(sed -n 's/^fault: \(rank [0-9]*\) .*/\1/p' "$work/err" 2>/dev/null | sort -u | wc -l) == "$1" ]]; }
# story NAME: what its steps and evaluations came to.
story() { sed -n '/^{"step": /s/, "step_ms".*//p' "$work/$1/metrics.jsonl" && cat "$work/$1/data.jsonl"; }
# as_if_never NAME RANKS WHO KEY=VALUE...: goes on to the end, which is that of a run that nobody stopped.
as_if_never() {
    trained "$3: the next start" "$2" "$1" run.steps=6 "${usual[@]}" "${@:4}"
    same_state "$3: the same state" "$(checkpoint ../whole 6)" "$(checkpoint "$1" 6)"
    equal "$3: the same story" "$(story ../whole)" "$(story "$1")"
}
trained "a run that nobody stops" 2 whole run.steps=6 "${usual[@]}"

# phase POINT STEP SAVED ZERO KEY=VALUE...: SIGTERM to the last rank while all are there; which steps are saved
# then.
phase() {
    local point=$1 saved=$3 zero=$4 who="SIGTERM $1, ZeRO $4" start
    slowly "$point" "$point:step=$2" "memory.zero=$zero" "${@:5}"
    start=$SECONDS
    kill -TERM "$(pid "$point" 1)"
    code=0
    wait "$job" || code=$?
    equal "$who: exit code" 75 "$code"
    check "$who: within about one micro-batch ($((SECONDS - start)) s)" test $((SECONDS - start)) -le 9
    equal "$who: saved" "$saved" "$(steps "$point")"
    as_if_never "$point" 2 "$who" "memory.zero=$zero" "${@:5}"
}
# Six micro-batches a step, of two seconds each.
aside phase in_start 0 0 1
aside phase in_micro 4 3 0
aside phase in_micro 4 3 3
aside phase in_reduce 4 4 1
aside phase in_eval 4 4 0
aside phase mid_save 4 "2 4" 1 run.save_every=2

# Of a run that is saved anyway nothing is saved twice.
saved_once() {
    slowly once before_save:rank=0 run.save_every=3
    kill -TERM "$(pid once 0)"
    code=0
    wait "$job" || code=$?
    equal "SIGTERM while saving: exit code" 75 "$code"
    equal "SIGTERM while saving: it saves once" "fault: rank 0 is slow in step 3: before_save" "$(grep '^fault' "$work/err")"
}
aside saved_once

# All is done when the signal comes: so it ends.
closing() {
    slowly closing in_end:rank=0
    kill -TERM "$(pid closing 0)" "$(pid closing 1)"
    code=0
    wait "$job" || code=$?
    equal "SIGTERM after the last step: exit code" 0 "$code"
    same_state "SIGTERM after the last step: all is done" "$(checkpoint ../whole 6)" "$(checkpoint closing 6)"
}
aside closing

# Once more, later than repeats come: at once, by the signal, while a checkpoint is half written.
again() {
    local start
    trained "two steps" 2 again run.steps=2 "${usual[@]}"
    TUTTI_FAULT=hang=mid_save:rank=0,step=4 launch again 2 run.steps=6 "${usual[@]}" run.save_every=2
    awaits are_there 1
    kill -TERM "$(pid again 0)"
    sleep 1
    kill -INT "$(pid again 0)"
    sleep 2
    check "SIGTERM twice: a repeat within two seconds changes nothing" kill -0 "$job"
    start=$SECONDS
    kill -INT "$(pid again 0)"
    code=0
    wait "$job" || code=$?
    equal "SIGINT three seconds later: ended by it" 130 "$code"
    check "SIGINT three seconds later: at once" test $((SECONDS - start)) -le 10
    equal "SIGINT three seconds later: what was saved" 2 "$(steps again)"
    check "SIGINT three seconds later: is whole" verify "$(checkpoint again 2)"
    check "SIGINT three seconds later: beside a half" test -n "$(find "$work/again" -name '.step-*.part')"
    as_if_never again 2 "SIGINT three seconds later"
    equal "SIGINT three seconds later: the half goes" "" "$(find "$work/again" -name '.step-*.part')"
}
aside again
together
