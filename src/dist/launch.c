/* launch.c: have ranks that were started together found each other?
 *
 * A process that MPI's library takes for a job of its own is a world of one. Right where it was started
 * so; but ranks whose launcher speaks no language of this MPI library come to that, too, and each of
 * them would do all of the work and write over the others' files. What launchers leave in the
 * environment tells the two apart.
 *
 *   OMPI_COMM_WORLD_SIZE  Open MPI's mpirun: ranks of the job
 *   PMI_SIZE              Hydra (MPICH, Intel MPI, MVAPICH), Flux, srun --mpi=pmi2: the same
 *   FLUX_JOB_SIZE         flux run: the same. Flux takes it away from batch scripts
 *   PMIX_RANK             any launcher with PMIx: the rank. It tells nothing of how many there are
 *   SLURM_STEP_NUM_TASKS  srun: tasks of its step
 *
 * SLURM_NTASKS is not asked: in a batch script it is what the job has room for, and a program that the
 * script starts itself is one process. Such a script has no SLURM_STEP_ID. Where mpirun starts daemons
 * with srun, the ranks see the daemons' step: the first three are nearer to the rank, and when one is
 * there Slurm is not asked.
 *
 * Owns nothing. Reads the environment; next: world.c, which asks before it begins. */
#include <stdlib.h>

#include "dist/dist_impl.h"
#include "tutti/base/narrow.h"

/* The number in a variable, -1 when there is none. */
static int number(const char *variable)
{
    const char *text = getenv(variable);
    char *end = NULL;
    const long value = text != NULL ? strtol(text, &end, 10) : -1;
    return text != NULL && end != text && *end == '\0' && value >= 0 && value <= INT32_MAX
               ? tt_int(value)
               : -1;
}

tt_launch tt_launch_look(void)
{
    static const struct {
        const char *size, *rank;
    } near[] = {{"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"},
                {"PMI_SIZE", "PMI_RANK"},
                {"FLUX_JOB_SIZE", "FLUX_TASK_RANK"}};
    tt_launch found = {.size = 1, .slurm = getenv("SLURM_STEP_ID") != NULL};
    bool told = false;
    for (size_t i = 0; i < sizeof near / sizeof *near; i++) {
        const int size = number(near[i].size);
        if (size == 1) { /* one launcher within another: the last one started a single rank */
            return (tt_launch){.size = 1};
        }
        if (size > 1 && !told) {
            told = true;
            found.sign = near[i].size;
            found.size = size;
            found.rank = number(near[i].rank);
        }
    }
    if (!told && number("PMIX_RANK") > 0) {
        told = true;
        found.sign = "PMIX_RANK"; /* rank 0 does not know: this one speaks */
        found.size = number("PMIX_RANK") + 1;
        found.least = true;
    }
    if (!told && found.slurm && number("SLURM_STEP_NUM_TASKS") > 1 && number("SLURM_PROCID") >= 0) {
        found.sign = "SLURM_STEP_NUM_TASKS";
        found.size = number("SLURM_STEP_NUM_TASKS");
        found.rank = number("SLURM_PROCID");
    }
    found.rank = found.rank > 0 ? found.rank : 0;
    return found;
}

tt_code tt_launch_check(const tt_launch *launch, int size, tt_err *err)
{
    static const char *const srun = "srun --mpi=pmix (srun --mpi=list shows what there is; "
                                    "--ntasks=1 is for one rank)",
                             *const mpirun = "the mpirun of the MPI library that tutti was built "
                                             "with (tutti version names it)";
    if (size > 1 || launch->size <= 1) {
        return TT_OK;
    }
    return tt_fail(err, TT_EUSER,
                   "%s says that %s%d ranks were started, but MPI sees one alone: the ranks "
                   "cannot find each other, and each would do the work of all and write over "
                   "the others' files; start them with %s",
                   launch->sign, launch->least ? "at least " : "", launch->size,
                   launch->slurm ? srun : mpirun);
}
