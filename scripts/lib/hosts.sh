#!/usr/bin/env bash
# hosts.sh, the inner half: runs as process 1 of the namespaces that scripts/hosts.sh opened, makes the
# hosts, launches into them and sees that nothing is left. Called by that script only.
#
#   hosts.sh host STATE HOSTS RANKS DELAY LOSS RATE SECONDS VERBOSE COMMAND [ARGUMENT...]
#   hosts.sh act STATE FOLDER ACTION HOST [COMMAND [ARGUMENT...]]
#   hosts.sh call STATE HOST COMMAND
#
# A host is a process that sleeps, and its namespaces: network, name, shared memory, mounts. Its one
# cable ends here as port1, port2, ...; the ports meet in a bridge or, when packets have to wait or to be
# lost and the kernel has no netem, in a switch of our own (wire.c). STATE holds a file per host with
# the number of its process.
set -u
PATH=$PATH:/usr/sbin:/sbin # where ip and tc are, which not every user looks

state=$2
network=10.77.0 # seen by nobody outside these namespaces

say() { printf 'hosts.sh: %s\n' "$*" >&2; }
tell() { [[ -z $verbose ]] || say "$@"; }
die() {
    say "$@"
    exit 1
}

# into HOST COMMAND...: becomes it, on that host, in the folder where this script was started.
into() {
    # shellcheck disable=SC2016 # the inner shell's dollars
    exec nsenter -t "$(<"$state/host$1")" -n -u -i -m sh -c 'cd "$0" && exec "$@"' "$folder" "${@:2}"
}
on() { (into "$@"); }

# living [HOST]: "HOST PID COMMAND" of every process on a host, save the one that is the host.
living() {
    local host process space command
    local -A of=()
    for host in "$state"/host${1:-[1-9]}; do
        of[$(readlink "/proc/$(<"$host")/ns/net")]="${host#"$state/host"} $(<"$host")"
    done
    for process in /proc/[0-9]*; do
        space=$(readlink "$process/ns/net" 2>/dev/null) || continue
        host=${of[$space]-}
        command=$(tr '\0' ' ' <"$process/cmdline" 2>/dev/null)
        [[ -z $host || ${host#* } == "${process#/proc/}" || -z $command ]] ||
            printf '%s %s %.60s\n' "${host% *}" "${process#/proc/}" "$command"
    done
}

act() {
    local action=$1 host=$2
    [[ -r $state/host$host ]] || die "there is no host $host"
    case $action in
    cut) : >"$state/host$host.cut" && ip link set "port$host" down ;;
    mend) rm -f "$state/host$host.cut" && ip link set "port$host" up ;;
    kill) living "$host" | awk '{ print $2 }' | xargs -r kill -KILL ;;
    ps) living "$host" ;;
    off) act cut "$host" && act kill "$host" ;;
    run) into "$host" "${@:3}" ;;
    esac
}

# Makes host $1 and its cable.
make_host() {
    local host=$1 pid
    # The shell becomes the sleeper: one process. The agent that launches finds its number in STATE.
    # shellcheck disable=SC2016 # the inner shell's dollars
    unshare --net --uts --ipc --mount sh -ec '
        hostname "$1"
        mount -t tmpfs -o mode=1777 tmpfs /dev/shm
        mount --bind "$0/hosts" /etc/hosts
        ip link set lo up
        : >"$0/$1.up"
        exec sleep infinity' "$state" "host$host" &
    pid=$!
    until [[ -e $state/host$host.up ]]; do
        kill -0 "$pid" 2>/dev/null || die "host $host could not be made"
        sleep 0.01
    done
    echo "$pid" >"$state/host$host"
    {
        ip link add "port$host" type veth peer name eth0 netns "$pid" &&
            nsenter -t "$pid" -n ip address add "$network.$host/24" dev eth0 &&
            nsenter -t "$pid" -n ip link set eth0 up &&
            ip link set "port$host" up
    } || die "host $host: no network"
}

# Has the kernel this queue? A kind with its parameters.
has_queue() {
    command -v tc >/dev/null && tc qdisc add dev port1 root "$@" 2>/dev/null && tc qdisc del dev port1 root
}

# What packets meet on their way. The rate holds where a host sends, so that it feels it, and where the
# switch sends, so that two senders share it; delay and loss are the switch's.
make_wire() {
    local host ours='' tbf=(tbf rate "$rate" burst 128kb latency 50ms) queue=() ports=()
    for ((host = 1; host <= hosts; host++)); do
        ports+=("port$host")
        # Hosts hand over 64 KB at once where the device allows; what is lost is to be a packet.
        [[ -z $loss ]] || on "$host" ip link set eth0 gso_max_segs 1
    done
    if [[ -n $delay$loss ]]; then
        queue=(netem ${delay:+delay "$delay"} ${loss:+loss "$loss"} ${rate:+rate "$rate"} limit 100000)
    elif [[ -n $rate ]]; then
        queue=("${tbf[@]}")
    fi
    ((${#queue[@]} == 0)) || has_queue "${queue[@]}" || ours=yes
    if [[ -n $rate ]] && has_queue "${tbf[@]}"; then
        for ((host = 1; host <= hosts; host++)); do
            on "$host" tc qdisc add dev eth0 root "${tbf[@]}" || die "host $host: no tbf"
        done
    elif [[ -n $rate ]]; then
        say 'note: no tc with tbf here: the switch alone holds the rate, hosts do not feel it'
    fi
    if [[ -n $ours ]]; then
        tell "no tc with ${queue[0]} here: packets go through scripts/lib/wire.c"
        "${CC:-cc}" -std=c11 -D_GNU_SOURCE -O2 -o "$state/wire" "$here/wire.c" ||
            die 'scripts/lib/wire.c is not compiled; --delay, --loss and --rate need it here'
        "$state/wire" "${delay:-0us}" "${loss:-0%}" "${rate:-0kbit}" "${ports[@]}" &
        wire=$!
        sleep 0.1
        kill -0 "$wire" 2>/dev/null || die 'the switch does not run'
        return
    fi
    { ip link add switch type bridge && ip link set switch up; } || die 'no bridge'
    for ((host = 1; host <= hosts; host++)); do
        ip link set "port$host" master switch || die 'no bridge'
        ((${#queue[@]} == 0)) || tc qdisc add dev "port$host" root "${queue[@]}" || die "no ${queue[0]}"
    done
}

# What mpirun calls as it would call ssh. The caller waits on the switch's side for what runs there; a
# host that is cut off or has no power does not take its leave.
make_agent() {
    printf '#!/bin/sh\nexec nsenter -t 1 -n -u -i -m "%s" call "%s" "$@"\n' "$0" "$state" >"$state/agent"
    chmod +x "$state/agent"
}

call() {
    local host=$1 code=0
    [[ -r $state/$host ]] || die "no route to $host"
    nsenter -t "$(<"$state/$host")" -n -u -i -m sh -c "${*:2}" || code=$?
    while [[ -e $state/$host.cut ]]; do sleep 0.2; done
    ((code <= 128)) || code=255
    exit "$code"
}

# Open MPI's words for all this; what the caller has set stays. Keepalive: a launcher that has lost a
# host ends after some 6 seconds, sooner than run.sh asks for.
settings() {
    local name value
    while read -r name value; do
        [[ -n ${!name-} ]] || export "$name=$value"
    done <<END
OMPI_MCA_plm_rsh_agent $state/agent
OMPI_MCA_oob_tcp_if_include $network.0/24
OMPI_MCA_btl_tcp_if_include $network.0/24
OMPI_MCA_pml ob1
OMPI_MCA_btl self,vader,tcp
OMPI_MCA_orte_tmpdir_base /dev/shm
OMPI_MCA_oob_tcp_keepalive_time 3
OMPI_MCA_oob_tcp_keepalive_intvl 1
OMPI_MCA_oob_tcp_keepalive_probes 3
OMPI_MCA_mpi_yield_when_idle 1
END
    # As in run.sh: containers that filter system calls.
    if grep -qs '^Seccomp:[[:space:]]*2' /proc/self/status; then
        export OMPI_MCA_btl_vader_single_copy_mechanism=none
    fi
}

traffic() {
    awk '$1 ~ /^port[0-9]:/ { sub(/port/, "host", $1); print $1, $2, "bytes sent,", $10, "received" }' /proc/net/dev
}

host() {
    local host at='' left until
    hosts=$1 ranks=$2 delay=$3 loss=$4 rate=$5 seconds=$6 verbose=$7
    shift 7
    {
        echo '127.0.0.1 localhost'
        for ((host = 1; host <= hosts; host++)); do echo "$network.$host host$host"; done
    } >"$state/hosts"
    for ((host = 1; host <= hosts; host++)); do
        make_host "$host"
        at+=,host$host:$ranks
    done
    make_wire
    make_agent
    settings
    tell "$hosts hosts up: $network.1 to $network.$hosts, ${delay:-no} delay, ${loss:-no} loss, ${rate:-no} limit of rate"
    export TUTTI_MPIRUN="mpirun --allow-run-as-root --bind-to none --host ${at#,}"
    into 1 "$here/../run.sh" -n $((hosts * ranks)) ${seconds:+-t "$seconds"} "$@" &
    job=$!
    trap 'signalled=yes; kill -TERM "$job"' USR1
    : >"$state/ready"
    while
        signalled=''
        wait "$job"
        code=$?
        [[ -n $signalled ]]
    do :; done
    if [[ -n $verbose ]]; then traffic | while read -r left; do say "$left"; done; fi
    # Daemons of the launcher may take a moment longer than itself; on a host that is cut off they have
    # to find out.
    until=$((SECONDS + 3))
    for host in "$state"/host*.cut; do [[ ! -e $host ]] || until=$((SECONDS + 30)); done
    while
        left=$(living)
        [[ -n $left ]] && ((SECONDS < until))
    do sleep 0.1; done
    if [[ -n $left ]]; then
        while read -r host left; do say "left behind on host$host: $left"; done <<<"$left"
        ((code != 0)) || code=1
    fi
    exit "$code"
}

here=$(cd "$(dirname "$0")" && pwd)
case $1 in
host)
    folder=$PWD
    host "${@:3}"
    ;;
act)
    folder=$3
    act "${@:4}"
    ;;
call) call "${@:3}" ;;
esac
