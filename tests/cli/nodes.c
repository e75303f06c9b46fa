/* nodes.c: what MPI takes for a node, and what a message costs between two ranks.
 *
 *     mpirun -n R nodes FROM TO BYTES
 *
 * Rank FROM sends BYTES bytes to rank TO. Each rank prints "RANK HOST RANKS", RANKS being those that
 * MPI can give shared memory with it. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    int rank, ranks;
    char host[64] = "";
    MPI_Comm node;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node);
    MPI_Comm_size(node, &ranks);
    gethostname(host, sizeof host - 1);
    const int from = argc == 4 ? atoi(argv[1]) : 0, to = argc == 4 ? atoi(argv[2]) : 0;
    const int bytes = argc == 4 ? atoi(argv[3]) : 1;
    char *message = calloc((size_t)bytes, 1);
    if (message == NULL) {
        MPI_Abort(MPI_COMM_WORLD, 1);
    } else if (rank == from) {
        MPI_Send(message, bytes, MPI_CHAR, to, 0, MPI_COMM_WORLD);
    } else if (rank == to) {
        MPI_Recv(message, bytes, MPI_CHAR, from, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    free(message);
    printf("%d %s %d\n", rank, host, ranks);
    MPI_Comm_free(&node);
    return MPI_Finalize();
}
