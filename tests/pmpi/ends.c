/* ends.c: an MPI that behaves badly, put in front of the real one through MPI's profiling interface.
 *
 *     mpicc -shared -fPIC -o ends.so ends.c
 *     mpirun -n R env TUTTI_PMPI_END=WHAT LD_PRELOAD=ends.so PROGRAM ...
 *
 * WHAT is one of
 *
 *     funneled     MPI allows calls from one thread only
 *     allreduce    the last rank never returns from its twentieth MPI_Allreduce
 *     finalize     no rank returns from MPI_Finalize
 *
 * or "settings", which harms nobody: every rank says on stdout how Open MPI was told to talk.
 *
 * The count of calls is global: a library that is put in front of another has no other place. */
#include <mpi.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int calls;

static bool wanted(const char *what)
{
    const char *end = getenv("TUTTI_PMPI_END");
    return end != NULL && strcmp(end, what) == 0;
}

static void wait_for_ever(void)
{
    for (;;) {
        pause();
    }
}

#pragma GCC visibility push(default)

int MPI_Init_thread(int *argc, char ***argv, int required, int *provided)
{
    return PMPI_Init_thread(argc, argv, wanted("funneled") ? MPI_THREAD_FUNNELED : required,
                            provided);
}

int MPI_Allreduce(const void *send, void *recv, int n, MPI_Datatype type, MPI_Op op, MPI_Comm comm)
{
    int rank, size;
    PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
    PMPI_Comm_size(MPI_COMM_WORLD, &size);
    if (++calls == 20 && rank == size - 1 && wanted("allreduce")) {
        wait_for_ever();
    }
    return PMPI_Allreduce(send, recv, n, type, op, comm);
}

int MPI_Finalize(void)
{
    if (wanted("settings")) {
        printf("tcp %s, iallreduce %s\n", getenv("OMPI_MCA_btl_tcp_flags"),
               getenv("OMPI_MCA_coll_libnbc_iallreduce_algorithm"));
    }
    if (wanted("finalize")) {
        wait_for_ever();
    }
    return PMPI_Finalize();
}

#pragma GCC visibility pop
