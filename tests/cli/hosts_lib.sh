# shellcheck shell=bash
# hosts_lib.sh: what the tests on several hosts share. Sourced after lib.sh and `prepare`.
#
# No run here can hang: hosts.sh ends it after $limit seconds, and `timeout` ends hosts.sh. Exact mode
# and a constant learning rate: any run ends in the state of any other, to the bit.

# shellcheck disable=SC2154 # tutti, work, limit: lib.sh's
steady=(run.exact=true optim.schedule=constant)

if ! why=$(scripts/hosts.sh --check 2>&1); then
    echo "skip several hosts: ${why#hosts.sh: }"
    exit
fi

# on_hosts N RANKS "OPTIONS" COMMAND...: like run, on N hosts of so many ranks each.
on_hosts() {
    local n=$1 ranks=$2 options
    read -r -a options <<<"$3"
    shift 3
    code=0
    timeout -k 10 $((limit + 60)) scripts/hosts.sh --hosts "$n" --ranks "$ranks" -t "$limit" -v \
        "${options[@]}" "$@" >"$work/out" 2>"$work/err" || code=$?
}

# train_hosts N RANKS "OPTIONS" NAME KEY=VALUE...: like train.
train_hosts() {
    on_hosts "$1" "$2" "$3" "$tutti" train "$work/tiny.yaml" "run.dir=$work/$4" "${steady[@]}" "${@:5}"
}

# begin_hosts N RANKS "OPTIONS" NAME KEY=VALUE...: a run with no end in sight, in the background;
# returns when it has saved. $job is what to wait for, $pid the number that --at wants.
begin_hosts() {
    local n=$1 ranks=$2 name=$4 options
    read -r -a options <<<"$3"
    shift 4
    timeout -k 10 $((limit + 60)) scripts/hosts.sh --hosts "$n" --ranks "$ranks" -t "$limit" -v "${options[@]}" \
        "$tutti" train "$work/tiny.yaml" "run.dir=$work/$name" "${steady[@]}" run.steps=1000000 \
        run.save_every=5 run.keep=3 "$@" >"$work/out" 2>"$work/err" &
    job=$!
    local tries=0
    until [[ $(metric "$name" loss 2>/dev/null | wc -l) -ge 12 ]] || ((++tries > 300)); do sleep 0.1; done
    pid=$(ps -o pid= --ppid "$job" | awk '{ print $1; exit }')
    began=$SECONDS
}

at() { timeout 20 scripts/hosts.sh --at "$pid" "$@"; }

# rank_of HOST: the process of a rank there.
rank_of() { at ps "$1" | awk -v program="$tutti" '$3 == program { print $2; exit }'; }

# ends NAME SECONDS: waits for the run in the background, which must fail, in so many seconds, leaving
# nothing.
ends() {
    code=0
    wait "$job" || code=$?
    check "$1: the job fails" test "$code" != 0 -a "$code" != 124
    equal "$1: nothing is left behind" "" "$(grep 'left behind' "$work/err")"
    local took=$((SECONDS - began))
    check "$1: within $2 s, it took $took" test "$took" -le "$2"
}

# resumes NAME N RANKS DIR: the last checkpoint is whole, and the run goes on from it on N hosts, to
# where a run that nothing happened to would be.
resumes() {
    local last step
    last=$(find "$work/$4" -name 'step-*.h5' | LC_ALL=C sort | tail -n 1)
    step=${last##*step-}
    step=$((10#${step%.h5}))
    check "$1: the last checkpoint is whole" timeout 60 "$tutti" checkpoint verify "$last" >/dev/null
    if (($2 == 1)); then
        train "$3" "$4" "${steady[@]}" run.steps=$((step + 3))
    else
        train_hosts "$2" "$3" '' "$4" run.steps=$((step + 3))
    fi
    verdict "$1: the next start, on what remains" "$code"
    check "$1: continues from step $step" grep -q "continuing from .*$(basename "$last")" "$work/err"
    train 1 "$4-whole" "${steady[@]}" run.steps=$((step + 3))
    same_state "$1: as if nothing had happened" "$(checkpoint "$4-whole" $((step + 3)))" \
        "$(checkpoint "$4" $((step + 3)))"
}
