/* mpi_comm.h: the communicator itself, for the one checkpoint file that hands it to HDF5. */
#ifndef TUTTI_DIST_MPI_COMM_H
#define TUTTI_DIST_MPI_COMM_H

#include <mpi.h>

#include "tutti/dist/world.h"

static inline MPI_Comm tt_world_comm(const tt_world *world)
{
    return *(const MPI_Comm *)world->comm;
}

#endif
