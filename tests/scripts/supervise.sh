#!/usr/bin/env bash
# The supervisor: what it starts again and how often, on which hosts, with how many ranks, and that it stops when it
# is told to. First with a launcher, a shell and a program that write down what they are told, then with runs.
# shellcheck source=tests/cli/lib.sh
source "$(dirname "$0")/../cli/lib.sh"
for name in $(compgen -e); do
    case $name in
    TUTTI_* | OMP_* | OMPI_MCA_*) unset "$name" ;;
    esac
done

mkdir "$work/bin"
# The launcher: each start ends with the next code of $FAKE/codes; "NAME:CODE" makes a checkpoint of that name first.
cat >"$work/bin/mpirun" <<'STUB'
#!/usr/bin/env bash
[[ ${1-} != --version ]] || exit 0
read -r next <"$FAKE/codes" || next=99
sed -i 1d "$FAKE/codes"
[[ $next != *:* ]] || touch "$FAKE/dir/${next%:*}.h5"
while [[ $1 != --hostfile && $# -gt 1 && $1 != -n ]]; do shift; done
[[ $1 != --hostfile ]] || { echo "hosts $(paste -sd ' ' "$2")" && shift 2; } >>"$FAKE/calls"
while [[ $1 != -n ]]; do shift; done
echo "$*" >>"$FAKE/calls"
exit "${next#*:}"
STUB
cat >"$work/bin/ssh" <<'STUB'
#!/usr/bin/env bash
grep -qxF "$1" "$FAKE/down" && exit 255
[[ $2 != lscpu ]] || printf '%s\n' 0,0 1,0 2,1 3,1 4,2 5,2 6,3 7,3
STUB
# 64 sequences in micro-batches of 4.
cat >"$work/bin/program" <<'STUB'
#!/usr/bin/env bash
[[ $1 == plan && ${*: -2:1} == --ranks ]] && ((64 % (4 * ${*: -1}) == 0))
STUB
chmod +x "$work"/bin/*
export FAKE=$work/fake
mkdir -p "$FAKE/dir"

# supervise "CODES" ARGUMENT...: sets $code; what the launcher was told is in $FAKE/calls.
supervise() {
    tr ' ' '\n' <<<"$1" >"$FAKE/codes"
    rm -f "$FAKE/calls"
    touch "$FAKE/calls" "$FAKE/down"
    code=0
    PATH=$work/bin:$PATH TUTTI_BIN=$work/bin/program timeout $limit scripts/supervise.sh "${@:2}" \
        >"$work/out" 2>"$work/err" </dev/null || code=$?
}
starts() { grep -c -- '-n ' "$FAKE/calls"; }
printf 'run: {dir: %s}\n' "$FAKE/dir" >"$work/conf.yaml"

supervise "0" -n 3 "$work/conf.yaml" run.steps=9
equal "a run that is done is not started again" "0 -n 3 $work/bin/program train $work/conf.yaml run.steps=9" \
    "$code $(<"$FAKE/calls")"
check "and nothing is said" test ! -s "$work/err"
supervise "2" "$work/conf.yaml"
equal "nor wrong input" "2 1" "$code $(starts)"
supervise "75" "$work/conf.yaml"
equal "nor one that was stopped" "75 1" "$code $(starts)"
supervise "137 1 0" "$work/conf.yaml"
equal "one that crashed is" "0 3" "$code $(starts)"
check "with a sentence" grep -q 'exit code 137) and is started again from its beginning, for the 1. time of 3' "$work/err"
supervise "1 1 213" -r 2 "$work/conf.yaml"
equal "as often as is said" "213 3" "$code $(starts)"
check "and no more" grep -q 'failed 3 times (exit code 213) from its beginning, and is not started again' "$work/err"
supervise "1" -r 0 "$work/conf.yaml"
equal "or never" "1 1" "$code $(starts)"
supervise "1 step-00000002:1 step-00000004:137 0" -r 1 "$work/conf.yaml"
equal "a new checkpoint is progress" "0 4" "$code $(starts)"
supervise "1 1 0" -r 1 "$work/conf.yaml"
equal "an old one is none" "1 2" "$code $(starts)"
check "which is named" grep -q "failed 2 times (exit code 1) from $FAKE/dir/step-00000004.h5, and" "$work/err"
supervise "1 2" "$work/conf.yaml"
equal "wrong input ends it later, too" "2 2" "$code $(starts)"

# --- resume ---
# resumes NAME WANTED CODES ARGUMENT...: the word that says how to resume in each start.
resumes() {
    supervise "$3" "$work/conf.yaml" "${@:4}"
    equal "$1" "$2" "$(sed 's/.*run\.resume=//' "$FAKE/calls" | paste -sd ' ')"
}
resumes "must stays must" "must must" "1 0" run.resume=must
resumes "never holds until there is a checkpoint of this run" "never never auto" "1 step-00000006:1 0" run.resume=never
resumes "also when it has an earlier one's name" "never auto" "step-00000006:1 0" run.resume=never

# --- hosts ---
printf '# comment\nnode01 slots=4\nnode02 slots=4 # of another kind\nnode03.cluster slots=4\n' >"$work/hosts"
on_hosts=(--hostfile "$work/hosts" "$work/conf.yaml")
: >"$FAKE/down"
supervise "0" "${on_hosts[@]}"
equal "all hosts answer" "hosts node01 slots=4 node02 slots=4 node03.cluster slots=4" "$(head -n 1 "$FAKE/calls")"
check "ranks are as many as slots" grep -q -- '-n 12 ' "$FAKE/calls"
echo node02 >"$FAKE/down"
supervise "1 0" "${on_hosts[@]}"
equal "one does not" "0 hosts node01 slots=4 node03.cluster slots=4" "$code $(head -n 1 "$FAKE/calls")"
check "which is said" grep -q "^supervise.sh: node02 does not answer ('ssh node02 true'), and is left out\$" "$work/err"
check "the batch can be divided among 8" grep -q -- '-n 8 ' "$FAKE/calls"
printf 'node01 slots=4\nnode02 slots=4\nnode03 slots=3\n' >"$work/hosts"
supervise "0" "${on_hosts[@]}"
equal "but not among 7" "hosts node01 slots=4" "$(head -n 1 "$FAKE/calls")"
check "so 4 are left" grep -q 'room for 7 ranks; the batch can be divided among 4' "$work/err"
printf 'node01\nnode02\nnode03\n' >"$FAKE/down"
supervise "0" -r 1 "${on_hosts[@]}"
equal "no host answers" "1 0 2" "$code $(starts) $(grep -c 'no host of .* answers' "$work/err")"
: >"$FAKE/down"
echo "process 7 on node01 since 2031-01-01T00:00:00Z" >"$FAKE/dir/lock"
supervise "1 2 0" "${on_hosts[@]}"
equal "another job's lock is wrong input" "2 2" "$code $(starts)"
echo node01 >"$FAKE/down"
supervise "1 2 0" "${on_hosts[@]}"
equal "one of a host that is gone is waited for" "0 3" "$code $(starts)"

# --- wrong arguments ---
# wrong NAME WORDS ARGUMENT...: refused before anything is started.
wrong() {
    supervise "0" "${@:3}"
    [[ $code == 2 && $(starts) == 0 ]] && grep -qF -- "$2" "$work/err"
    verdict "$1" $?
}
wrong "no configuration" "a configuration is needed" -n 2
wrong "no such configuration" "'$work/none.yaml'" "$work/none.yaml"
wrong "no such host file" "'$work/none'" --hostfile "$work/none" "$work/conf.yaml"
wrong "ranks that are no number" "-n 'two'" -n two "$work/conf.yaml"
wrong "restarts that are no number" "-r '-1'" -r -1 "$work/conf.yaml"
wrong "a number that is none to bash" "-r '08'" -r 08 "$work/conf.yaml"
wrong "both kinds" "not both" -n 2 "${on_hosts[@]}"
wrong "unknown option" "--host is not known" --host x "$work/conf.yaml"

# --- runs ---
prepare
export TUTTI_BIN=$tutti OMP_NUM_THREADS=1
usual=(run.exact=true run.steps=6 run.save_every=2)
# A rank dies after each checkpoint: three crashes, and no more than one from the same place.
code=0
TUTTI_FAULT=crash_at=after_rename timeout $limit scripts/supervise.sh -n 2 -r 1 "$work/tiny.yaml" "run.dir=$work/crashes" \
    "${usual[@]}" >"$work/out" 2>"$work/err" || code=$?
if grep -q 'this build has no faults' "$work/err"; then
    echo "skip crashes: $tutti has no faults"
else
    equal "a run that crashes three times is done" "0 3" "$code $(grep -c 'and is started again from' "$work/err")"
    trained "an undisturbed one" 1 whole "${usual[@]}"
    same_state "ends in the same state" "$(checkpoint whole 6)" "$(checkpoint crashes 6)"
fi

# signal NAME COMMAND...: of a supervisor in a process group of its own, once its run is under way.
signal() {
    local dir=${1// /-} tries=0
    # A shell's background jobs ignore SIGINT.
    setsid env --default-signal=INT scripts/supervise.sh -n 2 "$work/tiny.yaml" "run.dir=$work/$dir" run.steps=1000000 >"$work/out" 2>"$work/err" &
    job=$!
    until [[ $(metric "$dir" loss 2>/dev/null | wc -l) -ge 3 ]] || ((++tries > 300)); do sleep 0.1; done
    "${@:2}"
    code=0
    wait "$job" || code=$?
    equal "$1: exit code" 75 "$code"
    equal "$1: the last step is saved" "$(basename "$(checkpoint "$dir" "$(metric "$dir" loss | tail -n 1 | cut -d ' ' -f 1)")")" \
        "$(find "$work/$dir" -name 'step-*.h5' -printf '%f\n')"
    equal "$1: and nothing is started again" 0 "$(grep -c 'started again' "$work/err")"
}
terminate() { kill -TERM "$job"; }
interrupt() { kill -INT -- "-$job"; } # as Ctrl-C does, to all of the group
signal "SIGTERM" terminate
signal "SIGINT to the group" interrupt
