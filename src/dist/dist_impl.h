/* dist_impl.h: what the files of this layer share: MPI's return codes as sentences, and the meter
 * that every collective passes.
 *
 * A collective is written as
 *
 *     double start = tt_wire_begin(world, "MPI_Allreduce");
 *     TT_TRY(tt_mpi_check(MPI_Allreduce(...), "MPI_Allreduce", err));
 *     tt_wire_add(world, bytes, start);
 *
 * and is not written at all for one rank: alone there is no wire. One that goes on while the caller
 * works is counted by tt_wire_launch and tt_wire_land, and what its calls take between tt_wire_enter and
 * tt_wire_leave.
 *
 * A call of MPI that may wait for other ranks and is not written so stands between tt_wait_begin and
 * tt_wait_end (watch.h): else the watch takes it for work, and this rank for the one to blame. */
#ifndef TUTTI_DIST_IMPL_H
#define TUTTI_DIST_IMPL_H

#include <mpi.h>
#include <stdbool.h>
#include <stddef.h>

#include "tutti/dist/mpi_comm.h"
#include "tutti/dist/node.h"
#include "tutti/dist/watch.h"
#include "tutti/dist/world.h"

/* TT_OK for MPI_SUCCESS, else TT_EWORLD with the name of the call and MPI's own words. */
tt_code tt_mpi_check(int result, const char *call, tt_err *err);

/* A collective begins, in which this rank waits for others; the time. `call` is static text. */
double tt_wire_begin(tt_world *world, const char *call);
/* It is over: counts one collective over a payload of `bytes` that began at `start`. */
void tt_wire_add(tt_world *world, size_t bytes, double start);
/* One that goes on while others work begins, ends. Nothing happens when alone; nor in the next. */
void tt_wire_launch(tt_world *world, size_t bytes);
void tt_wire_land(tt_world *world);
/* Between the two this rank does nothing but communicate; they may be nested. */
void tt_wire_enter(tt_world *world);
void tt_wire_leave(tt_world *world);

/* What the environment says of how this process was started: with how many ranks (or at least so
 * many), the rank that it is where all know of each other, which variable says so (NULL: none), and
 * whether srun started them. */
typedef struct tt_launch {
    int size, rank;
    const char *sign;
    bool least, slurm;
} tt_launch;

/* Before MPI is opened, which sets variables itself. */
tt_launch tt_launch_look(void);
/* TT_EUSER when MPI made a world of one out of a rank of several. */
tt_code tt_launch_check(const tt_launch *launch, int size, tt_err *err);

/* The ranks that stand for a lane; MPI_COMM_NULL when this one does not. */
MPI_Comm tt_node_lane(const tt_node *node, tt_lane_use use, int lane);

/* In-place MPI_Allreduce of `count` elements of `size` bytes; nothing happens when alone. */
tt_code tt_allreduce(tt_world *world, void *data, int count, size_t size, MPI_Datatype type,
                     MPI_Op op, tt_err *err);

/* MPI_Bcast of `bytes` bytes from root; nothing happens when alone. */
tt_code tt_bcast(tt_world *world, void *data, size_t bytes, int root, tt_err *err);

/* One process, under MPI or not. */
static inline bool tt_alone(const tt_world *world)
{
    return world == NULL || world->size <= 1;
}

#endif
