#!/usr/bin/env bash
# setup.sh: installs what tutti needs and does not find.
#
#   scripts/setup.sh           to build, run and test
#   scripts/setup.sh --dev     also what `make lint` uses
#   scripts/setup.sh --fuzz    also what `make fuzz` uses
#   scripts/setup.sh --bench   also what `make DNNL=1` uses: a library to measure beside, never needed
#   scripts/setup.sh --check   installs nothing; says what is missing, exit 1 when something is
#
# Looks for each thing itself (a program, a pkg-config name, a header), not for a package, so what
# came from a module system or from source counts too. Installs with apt-get, as root or through
# sudo; where there is no apt-get it prints the names for other package managers and exits with 1.
set -euo pipefail

# set    test                          apt                   dnf                   spack              conda
needs='
run      program:gcc                   build-essential       gcc                   gcc                gcc
run      program:make                  build-essential       make                  gmake              make
run      header:stdlib.h               build-essential       glibc-devel           gcc                gcc
run      program:pkg-config            pkg-config            pkgconf-pkg-config    pkgconf            pkg-config
run      program:mpirun                openmpi-bin           openmpi               openmpi            openmpi
run      program:mpicc                 libopenmpi-dev        openmpi-devel         openmpi            openmpi-mpicc
run      package:openblas              libopenblas-dev       openblas-devel        openblas           openblas
run      parallel-hdf5                 libhdf5-openmpi-dev   hdf5-openmpi-devel    hdf5+mpi           "hdf5=*=mpi_openmpi*"
run      package:yaml-0.1              libyaml-dev           libyaml-devel         libyaml            yaml
run      package:check                 check                 check-devel           check              check
run      header:simde/x86/avx512.h     libsimde-dev          simde-devel           simde              simde
run      program:h5dump                hdf5-tools            hdf5                  hdf5               hdf5
run      program:gnuplot               gnuplot-nox           gnuplot               gnuplot            gnuplot
run      program:ip                    iproute2              iproute               iproute2           -
run      program:tc                    iproute2              iproute-tc            iproute2           -
run      program:ps                    procps                procps-ng             procps             procps-ng
dev      program:clang-format          clang-format          clang-tools-extra     llvm               clang-format
dev      program:cppcheck              cppcheck              cppcheck              cppcheck           cppcheck
dev      program:shellcheck            shellcheck            ShellCheck            -                  shellcheck
fuzz     program:clang                 clang                 clang                 llvm               clang
fuzz     fuzzer                        libclang-rt-dev       compiler-rt           llvm               compiler-rt
fuzz     clang-openmp                  libomp-dev            libomp-devel          llvm-openmp        llvm-openmp
bench    header:dnnl.h                 libdnnl-dev           onednn-devel          onednn             onednn
'

say() { printf 'setup: %s\n' "$*" >&2; }

has() {
    case $1 in
    program:*) PATH=$PATH:/usr/sbin:/sbin command -v "${1#*:}" >/dev/null ;; # not on every user's path
    package:*) pkg-config --exists "${1#*:}" 2>/dev/null ;;
    header:*) has_header "${1#*:}" ;;
    fuzzer) makes 'int LLVMFuzzerTestOneInput(void) { return 0; }' -fsanitize=fuzzer,address,undefined ;;
    clang-openmp) makes '#include <omp.h>
int main(void) { return omp_get_num_threads() - 1; }' -fopenmp ;;
    parallel-hdf5)
        pkg-config --exists hdf5-openmpi 2>/dev/null || pkg-config --exists hdf5-mpi 2>/dev/null ||
            has_parallel "$(pkg-config --cflags hdf5 2>/dev/null || true)"
        ;;
    esac
}

# clang makes a program of this text with these flags.
makes() {
    clang "${@:2}" -x c -o /dev/null - <<<"$1" >/dev/null 2>&1
}

has_header() {
    printf '#if !__has_include(<%s>)\n#error missing\n#endif\n' "$1" | gcc -E - >/dev/null 2>&1
}

has_parallel() {
    # shellcheck disable=SC2086 # flags are words
    printf '#include <H5pubconf.h>\n#ifndef H5_HAVE_PARALLEL\n#error serial\n#endif\n' |
        mpicc $1 -E - >/dev/null 2>&1
}

# Rows of $needs that are missing, for the sets in $1.
missing_rows() {
    local set test rest
    while read -r set test rest; do
        if [[ -n $set && " $1 " == *" $set "* ]] && ! has "$test"; then
            printf '%s %s %s\n' "$set" "$test" "$rest"
        fi
    done <<<"$needs"
}

# Column $2 of the rows $1, as words, each once.
column() {
    awk -v c="$2" '$c != "" && $c != "-" && !seen[$c]++ { printf "%s%s", sep, $c; sep = " " }' <<<"$1"
}

print_names() {
    printf '  apt:   apt-get install %s\n' "$(column "$1" 3)"
    printf '  dnf:   dnf install %s   (then: module load mpi/openmpi-x86_64)\n' "$(column "$1" 4)"
    printf '  spack: spack install %s\n' "$(column "$1" 5)"
    printf '  conda: conda install -c conda-forge %s\n' "$(column "$1" 6)"
}

install_with_apt() {
    local -a root=() names
    read -r -a names <<<"$1"
    if [[ $(id -u) != 0 ]]; then
        command -v sudo >/dev/null || {
            say "cannot install as this user without sudo; as root run: apt-get install $1"
            exit 1
        }
        root=(sudo)
    fi
    local log
    log=$(mktemp)
    local -a apt=("${root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=300)
    say "installing $1"
    if ! { "${apt[@]}" update && "${apt[@]}" install -y --no-install-recommends "${names[@]}"; } \
        </dev/null >"$log" 2>&1; then
        tail -n 20 "$log" >&2
        say "apt-get failed; its last lines are above, all of them in $log"
        exit 1
    fi
    rm -f "$log"
}

sets=run
check=
for argument in "$@"; do
    case $argument in
    --dev) sets='run dev' ;;
    --fuzz) sets='run fuzz' ;;
    --bench) sets='run bench' ;;
    --check) check=1 ;;
    -h | --help)
        sed -n '2,/^set -/s/^# \{0,1\}//p' "$0"
        exit 0
        ;;
    *)
        say "unknown argument '$argument'; use --check, --dev, --fuzz, --bench or --help"
        exit 2
        ;;
    esac
done

rows=$(missing_rows "$sets")
[[ -z $rows ]] && exit 0

if [[ -n $check ]] || ! command -v apt-get >/dev/null; then
    say "missing: $(column "$rows" 2 | sed 's,[a-z]*:,,g')"
    print_names "$rows" >&2
    exit 1
fi

install_with_apt "$(column "$rows" 3)"
hash -r
rows=$(missing_rows "$sets")
if [[ -n $rows ]]; then
    say "still not found after installing: $(column "$rows" 2 | sed 's,[a-z]*:,,g')"
    exit 1
fi
