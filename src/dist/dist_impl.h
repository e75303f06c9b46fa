/* dist_impl.h: what the files of this layer share: MPI's return codes as sentences, and the meter
 * that every collective passes.
 *
 * A collective is written as
 *
 *     double start = tt_seconds();
 *     TT_TRY(tt_mpi_check(MPI_Allreduce(...), "MPI_Allreduce", err));
 *     tt_wire_add(world, bytes, start);
 *
 * and is not written at all for one rank: alone there is no wire. */
#ifndef TUTTI_DIST_IMPL_H
#define TUTTI_DIST_IMPL_H

#include <mpi.h>
#include <stdbool.h>
#include <stddef.h>

#include "tutti/dist/mpi_comm.h"
#include "tutti/dist/world.h"

/* TT_OK for MPI_SUCCESS, else TT_EWORLD with the name of the call and MPI's own words. */
tt_code tt_mpi_check(int result, const char *call, tt_err *err);

/* Counts one collective over a payload of `bytes` that began at tt_seconds() == start. */
void tt_wire_add(tt_world *world, size_t bytes, double start);

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
