#!/usr/bin/env bash
# A scheduler's signal: the run saves, ends with exit code 75, and continues when it is started again.
# shellcheck source=tests/cli/lib.sh
source "$(dirname "$0")/lib.sh"
prepare
unset OMPI_MCA_odls_base_sigkill_timeout # what mpirun does with signals is what is tested

# ended NAME RANKS WHO: waits; the run has ended as it should, and goes on.
ended() {
    code=0
    wait "$job" || code=$?
    equal "$3: exit code" 75 "$code"
    local saved last steps
    saved=$(find "$work/$1" -name 'step-*.h5' -printf '%f\n')
    last=$(metric "$1" loss | tail -n 1 | cut -d ' ' -f 1)
    equal "$3: the last step is saved" "$(basename "$(checkpoint "$1" "$last")")" "$saved"
    check "$3: and whole" verify "$work/$1/$saved"
    equal "$3: it says so once" 1 "$(grep -c '^tutti: stopped by a signal' "$work/err")"
    steps=$((last + 2))
    trained "$3: the next start" "$2" "$1" "run.steps=$steps"
    equal "$3: continues" "$steps $steps" "$(metric "$1" loss | sed -n '$=') $(metric "$1" loss | tail -n 1 | cut -d ' ' -f 1)"
}

for signal in TERM INT USR1; do
    begin alone-$signal 1
    kill -$signal "$(<"$work/alone-$signal.pid.0")"
    ended alone-$signal 1 "SIG$signal to the only rank"
done

for signal in TERM USR1; do
    begin one-$signal 3
    kill -$signal "$(<"$work/one-$signal.pid.2")"
    ended one-$signal 3 "SIG$signal to rank 2 of 3"
done

begin all 2
kill -TERM "$(<"$work/all.pid.0")" "$(<"$work/all.pid.1")"
kill -TERM "$(<"$work/all.pid.0")" "$(<"$work/all.pid.1")" 2>/dev/null
ended all 2 "SIGTERM to all ranks, twice"

begin runner 2
kill -TERM "$job"
ended runner 2 "SIGTERM to run.sh"
begin runner-usr1 2
kill -USR1 "$job"
ended runner-usr1 2 "SIGUSR1 to run.sh"

# mpirun passes SIGUSR1 on to the ranks.
begin mpirun 2
kill -USR1 "$(ps -o ppid= -p "$(<"$work/mpirun.pid.0")")"
ended mpirun 2 "SIGUSR1 to mpirun"

# Left to itself, OpenBLAS makes threads before main, which must not be the ones to take the signal.
unset OMP_NUM_THREADS
begin threads 1
kill -TERM "$(<"$work/threads.pid.0")"
ended threads 1 "SIGTERM with threads of a library's own"
begin runner-threads 2
kill -TERM "$job"
ended runner-threads 2 "SIGTERM to run.sh with such threads"
