#!/usr/bin/env bash
# train.sh: a run on the nodes of a host file, where there is no scheduler.
#
#   scripts/mpirun/train.sh HOSTFILE CONFIG [key=value ...]
#
# As many ranks as HOSTFILE has slots (see scripts/mpirun/hostfile), one for each NUMA domain of each node,
# each on the cores of its domain. The project must be at the same path on all nodes. Nodes should be alike:
# TUTTI_CORES is the cores of a domain, default those of this machine's first. TUTTI_BIN is the program,
# default build/release/tutti.
#
# SIGTERM, SIGINT and SIGUSR1 let the ranks save first, exit code 75 (scripts/run.sh); the same command goes
# on from there, as run.resume=auto does, the default.
set -euo pipefail
top=$(dirname "$0")/../..
fail() {
    printf 'train.sh: %s\n' "$1" >&2
    exit 2
}
(($# >= 2)) || fail 'a host file and a configuration are needed; see scripts/mpirun/train.sh'
hosts=$1
shift
[[ -r $hosts && $hosts != *[[:space:]]* ]] || fail "cannot read the host file '$hosts', or its path has spaces"
ranks=$(awk '
    !/^[ \t]*(#|$)/ {
        n = match($0, /[ \t]slots=[0-9]+/) ? substr($0, RSTART + 7, RLENGTH - 7) + 0 : 0
        if (n < 1) bad = 1
        sum += n
    }
    END { print bad ? 0 : sum + 0 }' "$hosts")
((ranks > 0)) || fail "$hosts: each line needs a host and slots=N, the number of its NUMA domains"
cores=${TUTTI_CORES:-$(lscpu -p=CORE,NODE |
    awk -F, '!/^#/ && ($2 == "" || $2 == 0) && !seen[$1]++ { n++ } END { print n }')}
[[ $cores =~ ^[1-9][0-9]*$ ]] || fail "TUTTI_CORES='$cores': the cores of a NUMA domain are needed"

launcher=(
    mpirun --hostfile "$hosts"
    # One rank a NUMA domain, and so many cores of it for each rank.
    --map-by "ppr:1:numa:PE=$cores" --bind-to core
    # A thread a core, on all nodes: ranks of other nodes see nothing of this environment but that.
    -x "OMP_NUM_THREADS=$cores"
)
export TUTTI_MPIRUN="${launcher[*]}" # words without spaces: run.sh takes them apart again
exec "$top/scripts/run.sh" -n "$ranks" "${TUTTI_BIN:-$top/build/release/tutti}" train "$@"
