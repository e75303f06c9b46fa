/* shim.c: counts what a program does with MPI collectives, from outside, through MPI's profiling
 * interface: it defines the MPI functions and calls the PMPI ones.
 *
 *     mpicc -shared -fPIC -o shim.so shim.c
 *     mpirun -n R env TUTTI_PMPI_OUT=FILE LD_PRELOAD=shim.so PROGRAM ...
 *
 * At MPI_Finalize rank r writes FILE.r, one line per function that was called, in the order of the
 * table below: "MPI_Allreduce 13 497759232" (name, calls, bytes). Without TUTTI_PMPI_OUT nothing is
 * written. Bytes are those of the result that the call fills on this rank, or, on a rank that only
 * sends, those it sends; a barrier has none. A preloaded program built with ASan needs
 * ASAN_OPTIONS=verify_asan_link_order=0.
 *
 * A library that is put in front of another has no place for its state but its own: the counts are
 * global here. Collectives come from one thread. */
#include <inttypes.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

/* The collectives of MPI 3.1, blocking and not, save MPI_Alltoallw and those of neighbourhoods. */
/* clang-format off */
#define FUNCTIONS(F)                                                                           \
    F(Barrier) F(Bcast) F(Reduce) F(Allreduce) F(Reduce_scatter) F(Reduce_scatter_block)       \
    F(Scan) F(Exscan) F(Gather) F(Gatherv) F(Scatter) F(Scatterv)                              \
    F(Allgather) F(Allgatherv) F(Alltoall) F(Alltoallv)                                        \
    F(Ibarrier) F(Ibcast) F(Ireduce) F(Iallreduce) F(Ireduce_scatter) F(Ireduce_scatter_block) \
    F(Iscan) F(Iexscan) F(Igather) F(Igatherv) F(Iscatter) F(Iscatterv)                        \
    F(Iallgather) F(Iallgatherv) F(Ialltoall) F(Ialltoallv)
/* clang-format on */

#define ENUM(name) ID_##name,
typedef enum function { FUNCTIONS(ENUM) ID_COUNT } function;

#define NAME(name) "MPI_" #name,
static const char *const names[ID_COUNT] = {FUNCTIONS(NAME)};

static struct {
    int64_t calls, bytes;
} counted[ID_COUNT];

static void count(function id, int64_t elements, MPI_Datatype type)
{
    int size = 0;
    if (type != MPI_DATATYPE_NULL) {
        PMPI_Type_size(type, &size);
    }
    counted[id].calls += 1;
    counted[id].bytes += elements * size;
}

static int size_of(MPI_Comm comm)
{
    int size = 0;
    PMPI_Comm_size(comm, &size);
    return size;
}

static int rank_in(MPI_Comm comm)
{
    int rank = -1;
    PMPI_Comm_rank(comm, &rank);
    return rank;
}

static int64_t sum(const int *counts, MPI_Comm comm)
{
    int64_t total = 0;
    for (int r = 0; r < size_of(comm); r++) {
        total += counts[r];
    }
    return total;
}

/* Each row defines a blocking function and its non-blocking twin: the parameters before the
 * communicator, the same as arguments, the elements and their type. `comm` closes the list. */
#define WRAP(name, iname, parameters, arguments, elements, type)            \
    int MPI_##name(PARENS parameters, MPI_Comm comm)                        \
    {                                                                       \
        count(ID_##name, elements, type);                                   \
        return PMPI_##name(PARENS arguments, comm);                         \
    }                                                                       \
    int MPI_##iname(PARENS parameters, MPI_Comm comm, MPI_Request *request) \
    {                                                                       \
        count(ID_##iname, elements, type);                                  \
        return PMPI_##iname(PARENS arguments, comm, request);               \
    }
#define PARENS(...) __VA_ARGS__

#define SEND const void *send, int sends, MPI_Datatype send_type
#define RECV void *recv, int recvs, MPI_Datatype recv_type
#define AT_ROOT(there, elsewhere) (rank_in(comm) == root ? (there) : (elsewhere))

#pragma GCC visibility push(default)

int MPI_Barrier(MPI_Comm comm)
{
    count(ID_Barrier, 0, MPI_BYTE);
    return PMPI_Barrier(comm);
}

int MPI_Ibarrier(MPI_Comm comm, MPI_Request *request)
{
    count(ID_Ibarrier, 0, MPI_BYTE);
    return PMPI_Ibarrier(comm, request);
}

WRAP(Bcast, Ibcast, (void *buffer, int n, MPI_Datatype type, int root), (buffer, n, type, root), n,
     type)
WRAP(Reduce, Ireduce, (const void *send, void *recv, int n, MPI_Datatype type, MPI_Op op, int root),
     (send, recv, n, type, op, root), n, type)
WRAP(Allreduce, Iallreduce, (const void *send, void *recv, int n, MPI_Datatype type, MPI_Op op),
     (send, recv, n, type, op), n, type)
WRAP(Scan, Iscan, (const void *send, void *recv, int n, MPI_Datatype type, MPI_Op op),
     (send, recv, n, type, op), n, type)
WRAP(Exscan, Iexscan, (const void *send, void *recv, int n, MPI_Datatype type, MPI_Op op),
     (send, recv, n, type, op), n, type)
WRAP(Reduce_scatter, Ireduce_scatter,
     (const void *send, void *recv, const int *counts, MPI_Datatype type, MPI_Op op),
     (send, recv, counts, type, op), counts[rank_in(comm)], type)
WRAP(Reduce_scatter_block, Ireduce_scatter_block,
     (const void *send, void *recv, int n, MPI_Datatype type, MPI_Op op), (send, recv, n, type, op),
     n, type)
WRAP(Gather, Igather, (SEND, RECV, int root),
     (send, sends, send_type, recv, recvs, recv_type, root),
     AT_ROOT((int64_t)recvs *size_of(comm), sends), AT_ROOT(recv_type, send_type))
WRAP(Gatherv, Igatherv,
     (SEND, void *recv, const int *recvs, const int *offsets, MPI_Datatype recv_type, int root),
     (send, sends, send_type, recv, recvs, offsets, recv_type, root),
     AT_ROOT(sum(recvs, comm), sends), AT_ROOT(recv_type, send_type))
WRAP(Scatter, Iscatter, (SEND, RECV, int root),
     (send, sends, send_type, recv, recvs, recv_type, root), AT_ROOT(sends, recvs),
     AT_ROOT(send_type, recv_type))
WRAP(Scatterv, Iscatterv,
     (const void *send, const int *sends, const int *offsets, MPI_Datatype send_type, RECV,
      int root),
     (send, sends, offsets, send_type, recv, recvs, recv_type, root), AT_ROOT(sends[root], recvs),
     AT_ROOT(send_type, recv_type))
WRAP(Allgather, Iallgather, (SEND, RECV), (send, sends, send_type, recv, recvs, recv_type),
     (int64_t)recvs *size_of(comm), recv_type)
WRAP(Allgatherv, Iallgatherv,
     (SEND, void *recv, const int *recvs, const int *offsets, MPI_Datatype recv_type),
     (send, sends, send_type, recv, recvs, offsets, recv_type), sum(recvs, comm), recv_type)
WRAP(Alltoall, Ialltoall, (SEND, RECV), (send, sends, send_type, recv, recvs, recv_type),
     (int64_t)recvs *size_of(comm), recv_type)
WRAP(Alltoallv, Ialltoallv,
     (const void *send, const int *sends, const int *send_offsets, MPI_Datatype send_type,
      void *recv, const int *recvs, const int *recv_offsets, MPI_Datatype recv_type),
     (send, sends, send_offsets, send_type, recv, recvs, recv_offsets, recv_type), sum(recvs, comm),
     recv_type)

int MPI_Finalize(void)
{
    const char *out = getenv("TUTTI_PMPI_OUT");
    if (out != NULL) {
        char path[4096];
        int length = snprintf(path, sizeof path, "%s.%d", out, rank_in(MPI_COMM_WORLD));
        FILE *file = length < (int)sizeof path ? fopen(path, "w") : NULL;
        if (file == NULL) {
            fprintf(stderr, "shim: cannot write %s\n", path);
            abort();
        }
        for (int id = 0; id < ID_COUNT; id++) {
            if (counted[id].calls > 0) {
                fprintf(file, "%s %" PRId64 " %" PRId64 "\n", names[id], counted[id].calls,
                        counted[id].bytes);
            }
        }
        if (fclose(file) != 0) {
            fprintf(stderr, "shim: cannot write %s\n", path);
            abort();
        }
    }
    return PMPI_Finalize();
}

#pragma GCC visibility pop
