#!/usr/bin/env bash
# hosts.sh: starts a program on several hosts that are made for it on this machine.
#
#   scripts/hosts.sh --hosts N [--ranks M] [--delay TIME] [--loss SHARE] [--rate RATE] [-t SECONDS] [-v]
#                    [--] COMMAND [ARGUMENT...]
#   scripts/hosts.sh --at PID cut|mend|kill|off|ps HOST   cut the cable; mend it; kill all that runs
#                                                         there; cut and kill; list what runs there
#   scripts/hosts.sh --at PID run HOST COMMAND [ARGUMENT...]
#   scripts/hosts.sh --check                              can hosts be made here? If not: why, exit 1
#
#   --hosts N       2 to 9 hosts, host1 to hostN, joined by a switch. Each has a name, an address and a
#                   /dev/shm of its own; files, memory and processors are shared
#   --ranks M       ranks of each (default 1)
#   --delay TIME    from any host to any other, one way: 200us, 5ms
#   --loss SHARE    of the packets: 0.1%
#   --rate RATE     of each host's cable, each way: 100mbit, 1gbit
#   -t SECONDS      ends the job when it takes longer: exit code 124
#   -v              says what the hosts are made of and, at the end, what went over each cable
#   --at PID        in another terminal: acts on the hosts of the hosts.sh with this process id
#
# Launched by mpirun through scripts/run.sh on host1: exit codes and signals as there. A process of a
# host that is left when the command has ended is named, and exit code 0 becomes 1.
#
# Everything is in namespaces that nobody else sees and that end with this script, whatever ends it.
# Needs root or, where the kernel lets users make namespaces, nobody.
set -u -m # -m: Ctrl-C reaches this script only, which then asks

PATH=$PATH:/usr/sbin:/sbin # where ip and tc are, which not every user looks

say() { printf 'hosts.sh: %s\n' "$*" >&2; }
usage() {
    say "$1; see --help"
    exit 2
}

here=$(cd "$(dirname "$0")" && pwd)

# A fresh set of namespaces around a command, which is process 1 there. Without this script it dies,
# and with process 1 all others.
spaces() {
    local -a user=()
    [[ $(id -u) == 0 ]] || user=(--map-root-user)
    exec setpriv --pdeathsig KILL unshare "${user[@]}" --net --mount --pid --fork --kill-child \
        --mount-proc "$@"
}

check() {
    local program said
    for program in ip unshare nsenter setpriv hostname; do
        command -v "$program" >/dev/null || {
            say "$program is not installed; scripts/setup.sh installs it"
            return 1
        }
    done
    said=$(timeout 20 "$here/hosts.sh" --try 2>&1) || {
        say "hosts cannot be made here: $(tail -n 1 <<<"$said")"
        return 1
    }
}

# What hosts need, in a set of namespaces that is gone afterwards.
try() {
    spaces bash -c 'set -e
        ip link add tutti0 type veth peer name tutti1
        ip link add tutti2 type bridge
        unshare --net --uts --ipc --mount bash -c "
            mount -t tmpfs tmpfs /dev/shm && hostname tutti"'
}

# at PID ACTION HOST ...: enters the namespaces of another hosts.sh.
at() {
    local pid=$1 first inner
    local -a user=()
    [[ -r ${TMPDIR:-/tmp}/tutti-hosts.$pid/ready ]] || {
        say "--at $pid: no hosts.sh with this process id has hosts up"
        exit 1
    }
    first=$(ps -o pid=,comm= --ppid "$pid" | awk '$2 == "unshare" { print $1; exit }')
    inner=$(ps -o pid= --ppid "${first:-0}" | awk '{ print $1; exit }')
    [[ -n $inner ]] || {
        say "--at $pid: its hosts are gone"
        exit 1
    }
    [[ $(id -u) == 0 ]] || user=(-U --preserve-credentials)
    exec nsenter -t "$inner" "${user[@]}" -n -m -p "$here/lib/hosts.sh" act \
        "${TMPDIR:-/tmp}/tutti-hosts.$pid" "$PWD" "${@:2}"
}

hosts='' ranks=1 delay='' loss='' rate='' seconds='' verbose=''
[[ ${1-} ]] || usage 'a command is needed'
while (($# > 0)); do
    case $1 in
    --hosts) hosts=${2-} ;;
    --ranks) ranks=${2-} ;;
    --delay) delay=${2-} ;;
    --loss) loss=${2-} ;;
    --rate) rate=${2-} ;;
    -t) seconds=${2-} ;;
    --at)
        [[ ${2-} =~ ^[1-9][0-9]*$ ]] || usage "--at '${2-}': the process id of a hosts.sh is needed"
        [[ ${3-} =~ ^(cut|mend|kill|off|ps|run)$ ]] || usage "'${3-}' is not known; cut, mend, kill, off, ps or run"
        [[ ${4-} =~ ^[1-9]$ ]] || usage "$3 '${4-}': the number of a host is needed"
        at "${@:2}"
        ;;
    --check)
        check
        exit
        ;;
    --try) try ;;
    --help | -h)
        sed -n '2,/^set -/s/^# \{0,1\}//p' "$0"
        exit 0
        ;;
    -v)
        verbose=yes
        shift
        continue
        ;;
    --)
        shift
        break
        ;;
    -*) usage "$1 is not known" ;;
    *) break ;;
    esac
    shift
    (($# > 0)) && shift
done
[[ $hosts =~ ^[2-9]$ ]] || usage "--hosts '$hosts': a number from 2 to 9 is needed"
[[ $ranks =~ ^[1-9][0-9]{0,2}$ ]] || usage "--ranks '$ranks': a number of ranks is needed, 1 to 999"
[[ $delay =~ ^([0-9]+(\.[0-9]+)?(us|ms|s))?$ ]] || usage "--delay '$delay': a time like 200us or 5ms is needed"
[[ $loss =~ ^([0-9]{1,2}(\.[0-9]+)?%)?$ ]] || usage "--loss '$loss': a share like 0.1% is needed, below 100%"
[[ $rate =~ ^([1-9][0-9]*[kmg]bit)?$ ]] || usage "--rate '$rate': a rate like 100mbit or 1gbit is needed"
[[ $seconds =~ ^([1-9][0-9]*)?$ ]] || usage "-t '$seconds': whole seconds are needed, 1 or more"
(($# > 0)) || usage 'a command is needed'
command -v -- "$1" >/dev/null || usage "no such command: $1"
check || exit 1

state=${TMPDIR:-/tmp}/tutti-hosts.$$
rm -rf "$state" # of a process with our number that was killed
mkdir -m 700 "$state" || exit 1
trap 'rm -rf "$state"' EXIT

spaces "$here/lib/hosts.sh" host "$state" "$hosts" "$ranks" "$delay" "$loss" "$rate" "$seconds" \
    "$verbose" "$@" </dev/null &
job=$!

# Signals go to process 1 of the namespaces, which passes them to run.sh.
signalled=''
# shellcheck disable=SC2317 # called by the trap
pass() {
    signalled=yes
    local inner
    inner=$(ps -o pid= --ppid "$job" | awk '{ print $1; exit }')
    [[ -z $inner ]] || kill -USR1 "$inner" 2>/dev/null
}
trap pass TERM INT HUP USR1
while
    signalled=''
    wait "$job"
    code=$?
    [[ -n $signalled ]]
do :; done
exit "$code"
