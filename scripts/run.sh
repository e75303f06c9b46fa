#!/usr/bin/env bash
# run.sh: starts a program on several ranks of this machine, with what the situation needs.
#
#   scripts/run.sh -n RANKS [-t SECONDS] COMMAND [ARGUMENT...]
#
#   -n RANKS     number of ranks
#   -t SECONDS   ends the job when it takes longer: exit code 124
#
# The exit code is the program's (124: time was up; 128 + S: a rank, or mpirun, was ended by signal S).
# TERM, INT and USR1 ask the ranks to stop: they get SIGUSR1, which mpirun passes on. (TERM and INT
# themselves it turns into a kill two seconds later and into exit code 1, which is too soon to save.)
# Asked again more than two seconds later, the job is ended; before that it is the same request.
#
# TUTTI_MPIRUN names another launcher, with its options; it must know -n: TUTTI_MPIRUN="srun --mpi=pmix".
set -u -m # -m: the launcher gets a process group of its own, so that Ctrl-C reaches only this script

say() {
    printf 'run.sh: %s\n' "$*" >&2
}

[[ ${1-} != --help && ${1-} != -h ]] || {
    sed -n '2,/^set -/s/^# \{0,1\}//p' "$0"
    exit 0
}

usage() {
    say "$1"
    say 'usage: run.sh -n RANKS [-t SECONDS] COMMAND [ARGUMENT...]'
    exit 2
}

ranks='' seconds=''
while getopts ':n:t:' option; do
    case $option in
    n) ranks=$OPTARG ;;
    t) seconds=$OPTARG ;;
    :) usage "-$OPTARG needs a value" ;;
    *) usage "-$OPTARG is not known" ;;
    esac
done
shift $((OPTIND - 1))
[[ $ranks =~ ^[1-9][0-9]*$ ]] || usage "-n '$ranks': a number of ranks is needed, 1 or more"
[[ $seconds =~ ^([1-9][0-9]*)?$ ]] || usage "-t '$seconds': whole seconds are needed, 1 or more"
[[ $# -ge 1 ]] || usage 'a command is needed'
if ! command -v -- "$1" >/dev/null; then
    say "no such command: $1"
    exit 2
fi

# True where the launcher knows the nodes and the slots from a scheduler: how many ranks fit is then
# not for us to judge.
scheduled() {
    [[ -n ${SLURM_JOB_ID-}${PBS_JOBID-}${LSB_JOBID-}${PE_HOSTFILE-}${COBALT_JOBID-} ]]
}

# What Open MPI's launcher says beside the ranks, kept apart from what they say.
words=''
# What is said to the launcher before each program of the command line; programs have a colon between them.
each=()
# Open MPI writes words of its own to this file descriptor (and of ranks, which ask it to); of what passes through
# from the ranks it takes no notice. The ranks themselves must not: there it may be any file.
collect_words() {
    local file
    file=$(mktemp "${TMPDIR:-/tmp}/tutti-run.XXXXXX") || exit 1
    exec 9>"$file"
    exec 8<"$file"
    rm -f "$file"
    words=yes
    export OPAL_OUTPUT_STDERR_FD=9
    each=(-x OPAL_OUTPUT_STDERR_FD=2)
}

launcher=()
if [[ -n ${TUTTI_MPIRUN-} ]]; then
    read -r -a launcher <<<"$TUTTI_MPIRUN"
elif ! command -v mpirun >/dev/null; then
    say 'mpirun is not installed; scripts/setup.sh installs it'
    exit 1
else
    launcher=(mpirun)
    if mpirun --version 2>/dev/null | grep -q 'Open MPI\|OpenRTE\|prte'; then
        # A rank has threads: pinned to one core, as mpirun likes it, they would take turns.
        launcher+=(--bind-to none)
        [[ $(id -u) -eq 0 ]] && launcher+=(--allow-run-as-root)
        # The program has said what is wrong; mpirun's banner about its exit code adds nothing. But which rank a
        # signal has ended, nobody else knows. A scheduler's refusal has no other voice.
        if ! scheduled; then
            launcher+=(--map-by :OVERSUBSCRIBE)
            if [[ -z ${OMPI_MCA_mca_base_env_list-} ]] && mpirun --version | grep -q '(Open MPI) [1-4]\.'; then
                collect_words
            else
                launcher+=(--quiet)
            fi
        fi
        # Containers that filter system calls may forbid a rank to read another's memory; Open MPI
        # finds out with a warning for every message.
        if grep -qs '^Seccomp:[[:space:]]*2' /proc/self/status; then
            launcher+=(--mca btl_vader_single_copy_mechanism none)
        fi
    fi
fi

# Open MPI's launcher finds out within half a minute that a host is lost, not after 8 minutes.
export OMPI_MCA_oob_tcp_keepalive_time=${OMPI_MCA_oob_tcp_keepalive_time:-10}
export OMPI_MCA_oob_tcp_keepalive_intvl=${OMPI_MCA_oob_tcp_keepalive_intvl:-3}
export OMPI_MCA_oob_tcp_keepalive_probes=${OMPI_MCA_oob_tcp_keepalive_probes:-3}

programs=()
for word; do
    programs+=("$word")
    [[ $word != : ]] || programs+=(${each[@]+"${each[@]}"})
done
"${launcher[@]}" ${each[@]+"${each[@]}"} -n "$ranks" "${programs[@]}" </dev/null &
job=$!

signalled='' asked='' late='' clock=''
# shellcheck disable=SC2317 # called by the trap
ask() {
    signalled=yes
    if [[ -z $asked ]]; then
        asked=$SECONDS
        kill -USR1 "$job" 2>/dev/null
    elif ((SECONDS - asked > 2)); then
        kill -TERM "$job" 2>/dev/null
    fi
}
trap ask TERM INT HUP USR1
trap 'signalled=yes late=yes' ALRM

if [[ -n $seconds ]]; then
    # Ends the job by itself, should this script be killed; holds none of its files open.
    {
        sleep "$seconds"
        kill -ALRM $$
        kill -TERM "$job"
        sleep 10
        kill -KILL -- "-$job"
    } </dev/null >/dev/null 2>&1 8<&- 9>&- &
    clock=$!
    disown "$clock"
fi

# A trap ends `wait` early, and so does stopping the launcher (Ctrl-Z): then wait again. Bash keeps the
# code of a job that ended meanwhile.
stopped() {
    [[ $code -gt 128 ]] && kill -0 "$job" 2>/dev/null && sleep 1
}
while
    signalled=''
    wait "$job"
    code=$?
    [[ -n $signalled ]] || stopped
do :; done
[[ -n $clock ]] && kill -KILL -- "-$clock" 2>/dev/null

if [[ -n $late ]]; then
    say "time was up after $seconds s: $*"
    exit 124
fi
# The rank that a signal has ended, as far as the launcher has told, and where; the run's folder, or the command.
dead='a rank or its launcher' what="$*"
for word; do
    [[ $word != run.dir=* ]] || what=$word
done
if [[ -n $words && $code != [02] && $code != 75 ]]; then
    words=$(cat <&8)
    found=$(sed -n 's/.*process rank \([0-9]*\) with PID [0-9]* on node \([^ ]*\) exited on signal.*/rank \1 (host \2)/p' <<<"$words")
    dead=${found:-$dead}
    # A job that could not start or was cut off has no other voice. Its blocks stand between lines of dashes; of those,
    # what always comes at the end of a job is left out.
    awk '/^-+$/ { if (text != "" && text !~ known) printf "%s", text; text = ""; next } { text = text $0 "\n" }
        END { if (text !~ known) printf "%s", text }' \
        known='^Primary job|^mpirun detected|^mpirun noticed|^MPI_ABORT was invoked' <<<"$words" >&2
fi
if [[ $code -gt 192 ]]; then # beyond all signals
    say "the launcher failed or lost a host, its exit code is $code: $what"
elif [[ $code -gt 128 ]]; then
    say "$dead was ended by signal $((code - 128)): $what"
fi
exit "$code"
