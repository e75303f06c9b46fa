/* poke.h: a thread that calls MPI now and then while something is under way, because MPI libraries move
 * data only inside their calls, and the computing thread calls between layers alone.
 *
 * At 1 Gbit/s and a call every 50 ms, as between large layers, a quarter of the wire is used; with one
 * every 0.3 ms most of it. The thread sleeps between calls, and when nothing is under way.
 *
 * Invariant: it only probes a communicator of its own, on which nobody sends. Needs
 * MPI_THREAD_MULTIPLE. The world owns it. Reads nothing; next: dist/world.h. */
#ifndef TUTTI_DIST_POKE_H
#define TUTTI_DIST_POKE_H

#include <stdbool.h>

#include "tutti/base/status.h"
#include "tutti/dist/world.h"

/* From here to tt_poke_close the world's nonblocking collectives are poked; nothing where MPI allows no
 * threads. Collective. */
tt_code tt_poke_open(tt_world *world, tt_err *err);
/* Safe when it is not open. Collective. */
void tt_poke_close(tt_world *world);
/* Something is under way, or nothing any more; nothing happens when it is not open. */
void tt_poke_set(tt_world *world, bool busy);

#endif
