#!/usr/bin/env bash
# quick: yes
# What the examples for clusters start, with what, and what they make of its exit code: with a srun, scontrol and
# mpirun that write down what they are told.
set -uo pipefail
cd "$(dirname "$0")/../.." || exit
work=$(mktemp -d "${TMPDIR:-/tmp}/tutti-slurm.XXXXXX")
trap 'rm -rf "$work"' EXIT
batch=$PWD/scripts/slurm/train.sbatch
export SLURM_SUBMIT_DIR=$PWD

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
[[ $name == srun && -n ${FAKE_SAVES-} ]] && mkdir -p "${FAKE_SAVES%/*}" && touch "$FAKE_SAVES"
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
    (
        cd "$work" || exit
        FAKE_CODE=$1 PATH=$work/bin:$PATH SLURM_CPUS_PER_TASK=16 SLURM_JOB_ID=4711 TUTTI_BIN=/opt/tutti \
            bash "$batch" "${@:2}"
    ) >"$work/said" 2>&1 || code=$?
}
called() { grep -qxF -- "$1" "$work/calls"; }
# option NAME=VALUE: the batch script asks Slurm for it.
option() { grep -qx -- "#SBATCH $1" "$batch"; }

job 0 conf.yaml run.dir=runs/x
[[ $code == 0 && $(wc -l <"$work/calls") == 1 ]]
verdict "a run that is done is not queued again" $?
called "srun --mpi=pmix --cpus-per-task=16 --cpu-bind=cores --distribution=block:block --kill-on-bad-exit=0 --wait=20 /opt/tutti train conf.yaml run.dir=runs/x"
verdict "srun gets cores and binding, the run its arguments" $?
[[ $(<"$work/calls.env") == OMP_NUM_THREADS=16 ]]
verdict "a thread a core" $?

job 75 conf.yaml
[[ $code == 75 && $(wc -l <"$work/calls") == 2 ]] && called "scontrol requeue 4711"
verdict "a run that was stopped is queued again" $?
FAKE_SCONTROL=3 job 75 conf.yaml
[[ $code == 3 ]]
verdict "when it cannot be, the job fails" $?
job 2 conf.yaml
[[ $code == 2 && $(wc -l <"$work/calls") == 1 ]]
verdict "wrong input is not" $?

# turns CODES ARGUMENT...: as often in a row as there are codes; $queued has a y for each that ends in the queue.
turns() {
    local each
    queued=
    rm -f "$work"/tutti-*.failed
    for each in $1; do
        job "$each" "${@:2}"
        [[ $code == "$each" ]] || queued+="($code)"
        called "scontrol requeue 4711" && queued+=y || queued+=n
    done
}
turns "1 137 9 213" conf.yaml run.dir=runs/none
[[ $queued == yyyn && $(wc -l <"$work/said") == 1 && ! -e $work/tutti-4711.failed ]] &&
    grep -q "failed 4 times (exit code 213) from its beginning" "$work/said"
verdict "a run that a node or a rank is lost to is, three times: $queued" $?
TUTTI_REQUEUES=0 turns "1" conf.yaml run.dir=runs/none
[[ $queued == n ]]
verdict "or as often as is said" $?
mkdir -p "$work/runs/some" && touch "$work/runs/some/step-00000003.h5"
turns "1 1 1 1" conf.yaml run.dir=runs/none run.dir=runs/some
[[ $queued == yyyn ]] && grep -q "from runs/some/step-00000003.h5" "$work/said"
verdict "an old checkpoint is no progress: $queued" $?
turns "1 1 75 1 1 1 1" conf.yaml run.dir=runs/some
[[ $queued == yyyyyyn ]]
verdict "one that was told to stop is: $queued" $?
printf 'model:\n  dir2: no\nrun:\n  dir: "runs/kept"  # here\n  resume: never\n' >"$work/file.yaml"
turns "1 1 1" file.yaml
FAKE_SAVES=runs/kept/step-00000008.h5 job 1 file.yaml
called "scontrol requeue 4711" && [[ $(<"$work/tutti-4711.failed") == 0 ]]
verdict "a new checkpoint is progress, where the configuration says" $?
TUTTI_REQUEUES=often job 0 conf.yaml
[[ $code == 2 && ! -e $work/calls ]] && grep -q "TUTTI_REQUEUES='often'" "$work/said"
verdict "requeues that are no number: one sentence" $?

# resumes NAME COUNT WANTED ARGUMENT...: the last words of a turn after COUNT others.
resumes() {
    SLURM_RESTART_COUNT=$2 job 0 "${@:4}"
    grep -q -- " /opt/tutti train $3\$" "$work/calls"
    verdict "$1" $?
}
resumes "must stays must" 1 "conf.yaml run.resume=must" conf.yaml run.resume=must
resumes "never is said once" 0 "conf.yaml run.resume=never" conf.yaml run.resume=never
resumes "and again while nothing is saved" 1 "conf.yaml run.resume=never" conf.yaml run.resume=never
resumes "also where an earlier run has saved" 0 "file.yaml" file.yaml
job 75 file.yaml
resumes "until this one has" 1 "file.yaml" file.yaml
FAKE_SAVES=runs/kept/step-00000008.h5 job 75 file.yaml
resumes "by whatever name" 1 "file.yaml run.resume=auto" file.yaml
rm -f "$work"/tutti-*
touch "$work/runs/kept/step-00000009.h5"
resumes "unless an argument says otherwise" 1 "file.yaml run.resume=must" file.yaml run.resume=must

job 0
[[ $code == 2 && ! -e $work/calls && $(wc -l <"$work/said") == 1 ]]
verdict "no configuration: one sentence" $?

# What the comments say of the options.
option "--signal=TERM@120" && option "--requeue" && option "--open-mode=append" && option "--exclusive" && option "--mem=0" &&
    option "--ntasks-per-node=8" && option "--cpus-per-task=16" && option "--threads-per-core=1"
verdict "asks for a signal to the ranks, a second turn, all memory, and a domain a rank" $?
# sbatch reads options up to the first line that is neither comment nor blank.
[[ $(awk '/^#SBATCH/ { last = NR } !/^(#|$)/ && !first { first = NR } END { print last < first }' "$batch") == 1 ]]
verdict "all before the first command" $?

# hosts ARGUMENT...: the example for a host file. Its first host says of itself what calls.processors says.
cat >"$work/bin/ssh" <<'FAKE'
#!/usr/bin/env bash
[[ ${FAKE_SSH-} != no && "$*" == "node01 lscpu -p=CORE,NODE" ]] && cat "$FAKE_CALLS.processors"
FAKE
chmod +x "$work/bin/ssh"
hosts() {
    rm -f "$work/calls" "$work/calls.env"
    code=0
    env "${exports[@]}" PATH="$work/bin:$PATH" TUTTI_BIN=/bin/true scripts/mpirun/train.sh "$@" </dev/null >"$work/said" 2>&1 || code=$?
}
for name in $(compgen -e); do
    case $name in
    TUTTI_* | OMP_* | OMPI_MCA_* | LD_LIBRARY_PATH) unset "$name" ;;
    esac
done
exports=(FOLDER=/tmp)
root=
[[ $(id -u) -eq 0 ]] && root=' --allow-run-as-root'
# 8 domains of 16 cores, each core twice; the lines of a machine without domains end in a comma.
{
    echo '# Core,Node'
    for ((p = 0; p < 256; p++)); do echo "$((p % 128)),$((p % 128 / 16))"; done
} >"$work/calls.processors"
started="mpirun --hostfile scripts/mpirun/hostfile --map-by ppr:1:numa:PE=16 --bind-to core -x OMP_NUM_THREADS=16"
hosts scripts/mpirun/hostfile conf.yaml run.dir=runs/x
[[ $code == 0 ]] && called "$started -x TUTTI_BIN$root -n 32 /bin/true train conf.yaml run.dir=runs/x"
verdict "mpirun gets hosts, binding and the first host's cores, the run its arguments" $?
exports=(LD_LIBRARY_PATH=/opt/lib OMP_NUM_THREADS=3 OMP_WAIT_POLICY=passive "OMPI_MCA_btl=tcp,self" TUTTI_ISA=avx2 "TUTTI_NOTE=two words" OTHER=1)
hosts scripts/mpirun/hostfile conf.yaml
[[ $code == 0 ]] && called "$started -x LD_LIBRARY_PATH -x OMPI_MCA_btl -x OMP_WAIT_POLICY -x TUTTI_BIN -x TUTTI_ISA -x TUTTI_NOTE$root -n 32 /bin/true train conf.yaml"
verdict "ranks of other hosts get the environment that matters" $?
exports=(TUTTI_CORES=12)
hosts scripts/mpirun/hostfile conf.yaml
[[ $code == 0 ]] && grep -q ':PE=12 --bind-to core -x OMP_NUM_THREADS=12 ' "$work/calls"
verdict "a rank may have fewer cores" $?
exports=(FOLDER=/tmp)
FAKE_CODE=75 hosts scripts/mpirun/hostfile conf.yaml
[[ $code == 75 ]]
verdict "the run's exit code is the script's" $?
printf 'localhost slots=1\n' >"$work/here"
hosts "$work/here" conf.yaml
[[ $code == 0 ]] && grep -q ':PE=[1-9][0-9]* ' "$work/calls"
verdict "this machine is asked without ssh" $?
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
exports=(TUTTI_CORES=many)
wrong "cores that are no number" "TUTTI_CORES='many'" scripts/mpirun/hostfile conf.yaml
exports=(TUTTI_CORES=17)
wrong "more cores than a domain has" "a NUMA domain of node01 has 16 cores" scripts/mpirun/hostfile conf.yaml
exports=(FAKE_SSH=no)
wrong "a host that ssh cannot reach" "'ssh node01 lscpu' fails" scripts/mpirun/hostfile conf.yaml
exports=(FOLDER=/tmp)
printf '# none\nnode01 slots=9\n' >"$work/many"
wrong "more slots than domains" "node01 has 8 NUMA domains of 16 cores, fewer than slots=9" "$work/many" conf.yaml
printf '0,\n1,\n' >"$work/calls.processors"
wrong "on a machine without domains too" "node01 has 1 NUMA domain of 2 cores, fewer than slots=9" "$work/many" conf.yaml
