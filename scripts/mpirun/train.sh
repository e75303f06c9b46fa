#!/usr/bin/env bash
# train.sh: a run on the nodes of a host file, where there is no scheduler.
#
#   scripts/mpirun/train.sh HOSTFILE CONFIG [key=value ...]
#
# As many ranks as HOSTFILE has slots (see scripts/mpirun/hostfile), one for each NUMA domain of each node,
# each on the cores of its domain. The project must be at the same path on all nodes, and nodes should be alike:
# the first of HOSTFILE is asked for its domains and cores before anything starts. TUTTI_CORES is the cores of a
# rank, default all that its domain has. TUTTI_BIN is the program, default build/release/tutti. The ranks get this
# shell's TUTTI_*, OMP_*, OMPI_MCA_* and LD_LIBRARY_PATH, but a thread a core as OMP_NUM_THREADS.
#
# SIGTERM, SIGINT and SIGUSR1 let the ranks save first, exit code 75 (scripts/run.sh); the same command goes
# on from there, as run.resume=auto does, the default.
set -euo pipefail
top=$(dirname "$0")/../..
# shellcheck source=scripts/lib/hostfile.sh
source "$top/scripts/lib/hostfile.sh"
fail() {
    printf 'train.sh: %s\n' "$1" >&2
    exit 2
}
(($# >= 2)) || fail 'a host file and a configuration are needed; see scripts/mpirun/train.sh'
hosts=$1
shift
[[ -r $hosts && $hosts != *[[:space:]]* ]] || fail "cannot read the host file '$hosts', or its path has spaces"
ranks=$(host_slots "$hosts" | awk '$2 < 1 { bad = 1 } { sum += $2 } END { print bad ? 0 : sum + 0 }')
((ranks > 0)) || fail "$hosts: each line needs a host and slots=N, the number of its NUMA domains"

# The first host's NUMA domains, the cores of the smallest of them, and the slots that it was given.
read -r host slots < <(host_slots "$hosts")
reach "$host"
there=$(${shell[@]+"${shell[@]}"} lscpu -p=CORE,NODE </dev/null 2>/dev/null) ||
    fail "$hosts: '${shell[*]} lscpu' fails, but ranks are started that way: it must work, and without a password"
read -r domains least < <(awk -F, '!/^#/ && !seen[$1, $2]++ { n[$2]++ }
    END { for (d in n) { k++; if (!least || n[d] < least) least = n[d] } print k + 0, least + 0 }' <<<"$there")
((domains > 0)) || fail "$hosts: lscpu on $host tells nothing of cores and NUMA domains"
((slots <= domains)) ||
    fail "$hosts: $host has $domains NUMA domain$( ((domains == 1)) || echo s) of $least cores, fewer than slots=$slots; a rank takes a whole domain: change it to slots=$domains"
cores=${TUTTI_CORES:-$least}
[[ $cores =~ ^[1-9][0-9]*$ ]] || fail "TUTTI_CORES='$cores': the cores of a rank are needed, 1 to $least"
((cores <= least)) ||
    fail "TUTTI_CORES=$cores, but a NUMA domain of $host has $least cores: $least is the most that a rank can have"

launcher=(
    mpirun --hostfile "$hosts"
    # One rank a NUMA domain, and so many cores of it for each rank.
    --map-by "ppr:1:numa:PE=$cores" --bind-to core
    # A thread a core, on all nodes: ranks of other nodes see nothing of this environment but what -x names.
    -x "OMP_NUM_THREADS=$cores"
)
for name in $(compgen -e); do
    case $name in
    OMP_NUM_THREADS | TUTTI_MPIRUN) ;;
    TUTTI_* | OMP_* | OMPI_MCA_* | LD_LIBRARY_PATH) launcher+=(-x "$name") ;;
    esac
done
[[ $(id -u) -ne 0 ]] || launcher+=(--allow-run-as-root)
export TUTTI_MPIRUN="${launcher[*]}" # words without spaces: run.sh takes them apart again
exec "$top/scripts/run.sh" -n "$ranks" "${TUTTI_BIN:-$top/build/release/tutti}" train "$@"
