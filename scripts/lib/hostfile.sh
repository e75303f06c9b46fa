# shellcheck shell=bash
# hostfile.sh: the hosts of a file as mpirun takes one, and how they are reached. Sourced.

# host_slots FILE: a line "HOST SLOTS" for each host, in order; SLOTS is 0 where slots=N is not said.
host_slots() {
    awk '!/^[ \t]*(#|$)/ { print $1, match($0, /[ \t]slots=[0-9]+/) ? substr($0, RSTART + 7, RLENGTH - 7) + 0 : 0 }' "$1"
}

# reach HOST: sets $shell to the words before a command that is to run there: none where that is here.
reach() {
    local here
    here=$(uname -n)
    read -r -a shell <<<"${OMPI_MCA_plm_rsh_agent:-ssh}" # as mpirun will reach it
    shell+=("$1")
    [[ $1 != localhost && $1 != 127.* && ${1%%.*} != "${here%%.*}" ]] || shell=()
}
