#!/usr/bin/env bash
# What run.sh says of a rank that a signal has ended, and that it lets what ranks write through as it is.
set -uo pipefail
cd "$(dirname "$0")/../.." || exit
work=$(mktemp -d "${TMPDIR:-/tmp}/tutti-run-test.XXXXXX")
trap 'rm -rf "$work"' EXIT
export TMPDIR=$work

verdict() { # name, condition's exit code
    if (($2 == 0)); then
        echo "ok $1"
    else
        echo "not ok $1: exit code $code; $(tail -n 5 "$work/err" | tr '\n' '|')"
    fi
}
# ranks N ARGUMENT...
ranks() {
    code=0
    scripts/run.sh -n "$1" -t 60 "${@:2}" >"$work/out" 2>"$work/err" </dev/null || code=$?
}
if [[ -n ${TUTTI_MPIRUN-} ]] || ! mpirun --version 2>/dev/null | grep -q '(Open MPI) [1-4]\.'; then
    echo "skip run.sh: another launcher's words are shown as they are"
    exit 0
fi
# Rank 1 dies, once all have started: of one that dies before, mpirun does not always say which it was.
# shellcheck disable=SC2016 # for the rank
die='sleep 1; [[ $OMPI_COMM_WORLD_RANK != 1 ]] || kill -s "$0" $$; exec sleep 20'
host=$(uname -n)
ranks 3 bash -c "$die" KILL run.dir=runs/x
[[ $code == 137 && ! -s $work/out && $(<"$work/err") == "run.sh: rank 1 (host $host) was ended by signal 9: run.dir=runs/x" ]]
verdict "names the rank that was killed, its host and the run, and nothing else" $?
ranks 2 bash -c "$die" SEGV
[[ $code == 139 ]] && grep -qF "run.sh: rank 1 (host $host) was ended by signal 11: bash -c " "$work/err"
verdict "without a run.dir the command" $?
ranks 1 bash -c 'printf "a\0b\rc" >&2; exit 2'
[[ $code == 2 ]] && printf 'a\0b\rc' | cmp -s - "$work/err"
verdict "what ranks say comes through as it is, and alone" $?
ranks 1 bash -c 'ls -l /proc/self/fd; env' one : -n 1 bash -c 'env' two
[[ $code == 0 && $(grep -c '^OPAL_OUTPUT_STDERR_FD=2$' "$work/out") == 2 ]] && ! grep -q ' [89] -> ' "$work/out"
verdict "every program of a job has its own words" $?
ranks 2 env OMPI_MCA_btl=nonsense bash -c 'exit 0'
[[ $code == 0 && ! -s $work/err ]]
verdict "a job that is done says nothing" $?
OMPI_MCA_rmaps=nonsense ranks 1 true
[[ $code != 0 ]] && grep -q nonsense "$work/err"
verdict "one that could not start has mpirun's words" $?
# Ranks that are asked to stop and do not: a repeat within two seconds is the same request, a later one ends them.
# shellcheck disable=SC2016 # for the rank
deaf='trap "echo asked >>\"$0\"" USR1; while :; do sleep 0.1; done'
scripts/run.sh -n 1 -t 60 bash -c "$deaf" "$work/asked" >"$work/out" 2>"$work/err" </dev/null &
job=$! before=$SECONDS
sleep 2
kill -TERM $job
kill -USR1 $job
sleep 1
kill -TERM $job
sleep 1
[[ $(<"$work/asked") == asked ]] && kill -0 $job
verdict "asked again at once, it asks once" $?
sleep 2
kill -TERM $job
code=0
wait $job || code=$?
[[ $code != 0 && $code != 124 && $((SECONDS - before)) -lt 30 ]]
verdict "asked again later, it ends the job" $?
[[ -z $(find "$work" -name 'tutti-run.*') ]]
verdict "nothing is left over" $?
