#!/usr/bin/env bash
# supervise.sh: starts a run, and starts it again when it crashes, where there is no scheduler to do so.
#
#   scripts/supervise.sh [-n RANKS | --hostfile FILE] [-r RESTARTS] CONFIG [key=value ...]
#
#   -n RANKS          ranks on this machine, by scripts/run.sh (default 1)
#   --hostfile FILE   ranks on the hosts of FILE, by scripts/mpirun/train.sh. Before each start the hosts are
#                     asked whether they answer; those that do not are left out, and ranks with them, down to a
#                     number that the batch can be divided among
#   -r RESTARTS       starts after a crash without a new checkpoint in between, at most (default 3): what fails
#                     there again and again is no accident
#
# Exit code: 0 when all steps are done; 2 when something in CONFIG or the arguments is wrong, or another job has
# run.dir; 75 when it was told to stop and saved; the run's when it failed too often. SIGTERM, SIGINT, SIGHUP
# and SIGUSR1 are passed on to the run, which saves, and this script ends with it.
#
# A run that is started again goes on from the newest checkpoint of run.dir that is whole. With
# run.resume=never it begins anew until it has one of its own; must stays must. TUTTI_BIN is the program,
# default build/release/tutti, or where that is not, the one on PATH.
set -u -m # -m: the run gets a process group of its own, so that Ctrl-C reaches it once, through this script
top=$(dirname "$0")/..
# shellcheck source=scripts/lib/hostfile.sh
source "$top/scripts/lib/hostfile.sh"
# shellcheck source=scripts/lib/run_dir.sh
source "$top/scripts/lib/run_dir.sh"
say() { printf 'supervise.sh: %s\n' "$*" >&2; }
usage() {
    say "$1"
    say 'usage: supervise.sh [-n RANKS | --hostfile FILE] [-r RESTARTS] CONFIG [key=value ...]'
    exit 2
}

ranks='' hosts='' restarts=3
while [[ ${1-} == -* ]]; do
    case $1 in
    -n | -r | --hostfile)
        (($# >= 2)) || usage "$1 needs a value"
        case $1 in
        -n) ranks=$2 ;;
        -r) restarts=$2 ;;
        *) hosts=$2 ;;
        esac
        shift
        ;;
    -h | --help)
        sed -n '2,/^set -/s/^# \{0,1\}//p' "$0" | sed '$d'
        exit 0
        ;;
    *) usage "$1 is not known" ;;
    esac
    shift
done
[[ -z $ranks || -z $hosts ]] || usage 'either -n or --hostfile is needed, not both'
[[ ${ranks:=1} =~ ^[1-9][0-9]*$ ]] || usage "-n '$ranks': a number of ranks is needed, 1 or more"
[[ $restarts =~ ^(0|[1-9][0-9]*)$ ]] || usage "-r '$restarts': a number is needed, 0 or more"
(($# >= 1)) || usage 'a configuration is needed'
[[ -r $1 ]] || usage "cannot read the configuration '$1'"
[[ -z $hosts || -r $hosts ]] || usage "cannot read the host file '$hosts'"
[[ -n ${TUTTI_BIN-} || -x $top/build/release/tutti ]] || TUTTI_BIN=$(command -v tutti)
export TUTTI_BIN=${TUTTI_BIN:-$top/build/release/tutti}
[[ -x $TUTTI_BIN ]] || { say "$TUTTI_BIN is not there; run make, or set TUTTI_BIN" && exit 2; }
work=$(mktemp -d "${TMPDIR:-/tmp}/tutti-supervise.XXXXXX") || exit 1

# --- signals ---
job='' signalled='' asked='' passed=''
# shellcheck disable=SC2317 # called by the trap
pass_on() {
    signalled=yes asked=yes
    [[ -z $job ]] || { passed=yes && kill -TERM "$job" 2>/dev/null; }
}
trap pass_on TERM INT HUP USR1
trap 'rm -rf "$work"' EXIT

# await COMMAND...: runs it, so that signals are seen meanwhile; returns its code.
await() {
    local code
    "$@" </dev/null &
    job=$!
    [[ -z $asked || -n $passed ]] || kill -TERM "$job" 2>/dev/null
    while
        signalled=''
        wait "$job"
        code=$?
        [[ -n $signalled ]]
    do :; done
    job=''
    return "$code"
}

# --- hosts ---
# Writes the lines of the hosts that answer to $work/hosts; false when there is none.
find_hosts() {
    local host slots shell pids=() names=() i
    while read -r host slots; do
        reach "$host"
        names+=("$host $slots")
        if ((${#shell[@]} > 0)); then
            timeout -k 5 20 "${shell[@]}" true </dev/null >/dev/null 2>&1 &
        else
            true &
        fi
        pids+=($!)
    done < <(host_slots "$hosts")
    : >"$work/hosts"
    : >"$work/gone"
    for i in "${!names[@]}"; do
        host=${names[i]% *}
        if wait "${pids[i]}"; then
            echo "$host slots=${names[i]#* }" >>"$work/hosts"
        elif [[ -z $asked ]]; then
            reach "$host"
            say "$host does not answer ('${shell[*]} true'), and is left out"
            echo "$host" >>"$work/gone"
        fi
    done
    [[ -s $work/hosts ]]
}

# The batch is divided among ranks evenly, so not every number of them will do. Takes slots away, from the last
# host on, until the plan accepts them; leaves all when it accepts none, so that the run says why.
fit_ranks() {
    local all fits
    all=$(awk '{ sub(/.*slots=/, ""); n += $0 } END { print n + 0 }' "$work/hosts")
    for ((fits = all; fits > 0; fits--)); do
        ! "$TUTTI_BIN" plan "$@" --ranks "$fits" >/dev/null 2>&1 || break
        [[ -z $asked ]] || return
    done
    if ((fits > 0 && fits < all)); then
        say "on what is left there is room for $all ranks; the batch can be divided among $fits"
        awk -v left="$fits" '{ n = $0; sub(/.*slots=/, "", n); n = n < left ? n : left; left -= n }
            n > 0 { print $1 " slots=" n }' "$work/hosts" >"$work/fewer"
        mv "$work/fewer" "$work/hosts"
    fi
}

# Is run.dir locked for a host that is gone? A file server keeps a lock until it is sure of that: NFS for a minute
# or two.
locked_by_gone() {
    local folder host
    folder=$(given dir "$@")
    host=$(sed -n 's/^process [0-9]* on \([^ ]*\) since .*/\1/p' "${folder:-runs/default}/lock" 2>/dev/null)
    [[ -n $host && -s $work/gone ]] && sed 's/\..*//' "$work/gone" | grep -qxF -- "${host%%.*}"
}

# run CONFIG [key=value ...]
run() {
    [[ -z $asked ]] || return 75
    if [[ -z $hosts ]]; then
        await "$top/scripts/run.sh" -n "$ranks" "$TUTTI_BIN" train "$@"
        return
    fi
    if ! find_hosts; then
        [[ -z $asked ]] || return 75
        say "no host of $hosts answers"
        return 1
    fi
    if (($(wc -l <"$work/hosts") < $(host_slots "$hosts" | wc -l))); then
        fit_ranks "$@"
    fi
    [[ -z $asked ]] || return 75
    await "$top/scripts/mpirun/train.sh" "$work/hosts" "$@"
}

# --- runs ---
first=$(mark "$@") failed=0 waits=0
while :; do
    before=$(mark "$@")
    mapfile -t more < <(anew "$first" "$@")
    run "$@" ${more[@]+"${more[@]}"}
    code=$?
    after=$(mark "$@") from=$(newest "$@")
    if [[ -n $asked ]] || ((code == 0 || code == 75)); then
        exit "$code"
    fi
    if ((code == 2)); then
        ((failed > 0 && ++waits <= 12)) && locked_by_gone "$@" || exit 2
        say "the lock of a host that is gone is not given up yet; tried again in $((5 * waits)) s"
        await sleep $((5 * waits))
        continue
    fi
    [[ -z $after || $after == "$before" ]] || failed=0
    failed=$((failed + 1)) waits=0
    if ((failed > restarts)); then
        say "the run failed $failed times (exit code $code) from ${from:-its beginning}, and is not started again"
        exit "$code"
    fi
    say "the run failed (exit code $code) and is started again from ${from:-its beginning}, for the $failed. time of $restarts"
    await sleep $((2 * (failed - 1)))
done
