#!/usr/bin/env bash
# Ranks that were started together and have not found each other: refused in one sentence, by every command that
# opens a world, before anything is written. What is rightly alone runs. The launchers are variables here.
# shellcheck source=tests/cli/lib.sh
source "$(dirname "$0")/lib.sh"
prepare
# Whatever this script itself was started by.
for name in $(compgen -e); do
    case $name in
    SLURM_* | PMI_* | PMIX_* | FLUX_* | OMPI_COMM_WORLD_*) unset "$name" ;;
    esac
done

# started VARIABLE=VALUE... -- ARGUMENT...: the program without a launcher, with such variables.
started() {
    local variables=()
    while [[ $1 != -- ]]; do
        variables+=("$1")
        shift
    done
    code=0
    env "${variables[@]}" timeout $limit "$tutti" "${@:2}" >"$work/out" 2>"$work/err" </dev/null || code=$?
}

# refused NAME WORDS VARIABLE=VALUE...: a rank 0 of several.
refused() {
    rm -rf "$work/lost"
    started "${@:3}" -- train "$work/tiny.yaml" "run.dir=$work/lost"
    [[ $code == 2 && ! -s $work/out && ! -e $work/lost && $(wc -l <"$work/err") == 1 ]] && grep -qF -- "$2" "$work/err"
    verdict "$1" $?
}
# runs NAME VARIABLE=VALUE...
runs() {
    started "${@:2}" -- train "$work/tiny.yaml" "run.dir=$work/alone" run.resume=never
    [[ $code == 0 ]]
    verdict "$1" $?
}

step=(SLURM_STEP_ID=0 SLURM_STEP_NUM_TASKS=4 SLURM_NTASKS=4)
refused "srun without PMI" "start them with srun --mpi=pmix (srun --mpi=list" "${step[@]}" SLURM_PROCID=0
refused "srun with another PMI" "start them with srun --mpi=pmix" "${step[@]}" SLURM_PROCID=0 PMI_SIZE=4 PMI_RANK=0
refused "Hydra's ranks" "PMI_SIZE says that 2 ranks" PMI_SIZE=2 PMI_RANK=0
refused "another Open MPI's" "start them with the mpirun of" OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_RANK=0
refused "a rank with PMIx" "PMIX_RANK says that at least 3 ranks" PMIX_RANK=2
for rank in "SLURM_PROCID=3 ${step[*]}" "PMI_SIZE=4 PMI_RANK=3" "OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_RANK=3"; do
    # shellcheck disable=SC2086 # words
    started $rank -- train "$work/tiny.yaml" "run.dir=$work/lost"
    [[ $code == 2 && ! -s $work/err && ! -e $work/lost ]]
    verdict "another rank says nothing: $rank" $?
done
for command in "bench peak" "eval $work/nothing"; do
    # shellcheck disable=SC2086 # words
    started PMI_SIZE=2 PMI_RANK=0 -- $command
    equal "${command%% *} is refused alike" "2 1" "$code $(grep -c 'PMI_SIZE says' "$work/err")"
done

runs "one task of srun" SLURM_STEP_ID=0 SLURM_STEP_NUM_TASKS=1 SLURM_NTASKS=1 SLURM_PROCID=0
runs "a batch script with room for more" SLURM_NTASKS=4 SLURM_PROCID=0 SLURM_NPROCS=4
runs "a shell of salloc" SLURM_STEP_ID=4294967290 SLURM_STEP_NUM_TASKS=1 SLURM_NTASKS=4 SLURM_PROCID=0
runs "one rank of Hydra" PMI_SIZE=1 PMI_RANK=0
runs "one rank of Hydra within a step" "${step[@]}" SLURM_PROCID=0 PMI_SIZE=1 PMI_RANK=0
runs "rank 0 with PMIx" PMIX_RANK=0
runs "numbers that are none" PMI_SIZE=many OMPI_COMM_WORLD_SIZE= FLUX_JOB_SIZE=-2
# A real launcher, below daemons of a step.
for n in 1 2; do
    code=0
    env "${step[@]}" SLURM_PROCID=0 scripts/run.sh -n $n -t $limit "$tutti" train "$work/tiny.yaml" \
        "run.dir=$work/real" run.resume=never >"$work/out" 2>"$work/err" || code=$?
    verdict "mpirun with $n below a step" "$code"
done
