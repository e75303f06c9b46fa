#!/usr/bin/env bash
# quick: yes
# What the examples for clusters start, with what, and what they make of its exit code: with a srun, scontrol and
# mpirun that write down what they are told.
set -uo pipefail
cd "$(dirname "$0")/../.." || exit
work=$(mktemp -d "${TMPDIR:-/tmp}/tutti-slurm.XXXXXX")
trap 'rm -rf "$work"' EXIT
batch=scripts/slurm/train.sbatch

verdict() { # name, condition's exit code
    if (($2 == 0)); then
        echo "ok $1"
    else
        echo "not ok $1: $(cat "$work/said" "$work/calls" 2>/dev/null | tail -n 12 | tr '\n' '|')"
    fi
}

mkdir "$work/bin"
for name in srun scontrol mpirun; do
    cat >"$work/bin/$name" <<'FAKE'
#!/usr/bin/env bash
name=${0##*/}
{ printf '%s' "$name"; printf ' %s' "$@"; printf '\n'; } >>"$FAKE_CALLS"
env | grep '^OMP_' >"$FAKE_CALLS.env"
[[ $name == scontrol ]] && exit "${FAKE_SCONTROL:-0}"
exit "${FAKE_CODE:-0}"
FAKE
    chmod +x "$work/bin/$name"
done
export FAKE_CALLS=$work/calls
unset OMP_NUM_THREADS OMP_WAIT_POLICY

# job CODE ARGUMENT...: the batch script as Slurm starts it, the run ending with CODE; sets $code.
job() {
    rm -f "$work/calls" "$work/calls.env"
    code=0
    FAKE_CODE=$1 PATH=$work/bin:$PATH SLURM_CPUS_PER_TASK=16 SLURM_JOB_ID=4711 TUTTI_BIN=/opt/tutti \
        bash "$batch" "${@:2}" >"$work/said" 2>&1 || code=$?
}
called() { grep -qxF -- "$1" "$work/calls"; }
# option NAME=VALUE: the batch script asks Slurm for it.
option() { grep -qx -- "#SBATCH $1" "$batch"; }

job 0 conf.yaml run.dir=runs/x
[[ $code == 0 && $(wc -l <"$work/calls") == 1 ]]
verdict "a run that is done is not queued again" $?
called "srun --mpi=pmix --cpus-per-task=16 --cpu-bind=cores --distribution=block:block --kill-on-bad-exit=0 --wait=20 /opt/tutti train conf.yaml run.dir=runs/x run.resume=auto"
verdict "srun gets cores and binding, the run its arguments" $?
[[ $(<"$work/calls.env") == OMP_NUM_THREADS=16 ]]
verdict "a thread a core" $?

job 75 conf.yaml
[[ $code == 75 && $(wc -l <"$work/calls") == 2 ]] && called "scontrol requeue 4711"
verdict "a run that was stopped is queued again" $?
FAKE_SCONTROL=3 job 75 conf.yaml
[[ $code == 3 ]]
verdict "when it cannot be, the job fails" $?
for failure in 1 2 9 137; do
    job $failure conf.yaml
    [[ $code == "$failure" && $(wc -l <"$work/calls") == 1 ]]
    verdict "a run that failed with $failure is not" $?
done
job 0
[[ $code == 2 && ! -e $work/calls && $(wc -l <"$work/said") == 1 ]]
verdict "no configuration: one sentence" $?

# What the comments say of the options.
option "--signal=TERM@120" && option "--requeue" && option "--open-mode=append" && option "--exclusive" &&
    option "--ntasks-per-node=8" && option "--cpus-per-task=16" && option "--threads-per-core=1"
verdict "asks for a signal to the ranks, a second turn, and a domain a rank" $?
# sbatch reads options up to the first line that is neither comment nor blank.
[[ $(awk '/^#SBATCH/ { last = NR } !/^(#|$)/ && !first { first = NR } END { print last < first }' "$batch") == 1 ]]
verdict "all before the first command" $?

# hosts ARGUMENT...: the example for a host file.
hosts() {
    rm -f "$work/calls" "$work/calls.env"
    code=0
    PATH=$work/bin:$PATH TUTTI_BIN=/bin/true scripts/mpirun/train.sh "$@" </dev/null >"$work/said" 2>&1 || code=$?
}
export TUTTI_CORES=16
hosts scripts/mpirun/hostfile conf.yaml run.dir=runs/x
[[ $code == 0 ]] && called "mpirun --hostfile scripts/mpirun/hostfile --map-by ppr:1:numa:PE=16 --bind-to core -x OMP_NUM_THREADS=16 -n 32 /bin/true train conf.yaml run.dir=runs/x run.resume=auto"
verdict "mpirun gets hosts, binding and environment, the run its arguments" $?
FAKE_CODE=75 hosts scripts/mpirun/hostfile conf.yaml
[[ $code == 75 ]]
verdict "the run's exit code is the script's" $?
unset TUTTI_CORES
hosts scripts/mpirun/hostfile conf.yaml
[[ $code == 0 ]] && grep -q ':PE=[1-9][0-9]* ' "$work/calls"
verdict "cores of a domain are counted where they are not given" $?
# wrong NAME WORDS ARGUMENT...: refused in a sentence.
wrong() {
    hosts "${@:3}"
    [[ $code == 2 && ! -e $work/calls && $(wc -l <"$work/said") == 1 ]] && grep -qF -- "$2" "$work/said"
    verdict "$1" $?
}
printf 'node01\n' >"$work/bare"
printf 'node01 slots=2\nnode02 slots=0\n' >"$work/zero"
wrong "no arguments" "are needed"
wrong "a host file alone" "are needed" scripts/mpirun/hostfile
wrong "a host file that is not there" "nowhere" nowhere conf.yaml
wrong "hosts without slots" "slots=N" "$work/bare" conf.yaml
wrong "a host with none" "slots=N" "$work/zero" conf.yaml
TUTTI_CORES=many wrong "cores that are no number" "TUTTI_CORES='many'" scripts/mpirun/hostfile conf.yaml
