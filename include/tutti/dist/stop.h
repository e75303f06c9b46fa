/* stop.h: one rank is asked to stop, and all know of it without communicating until then.
 *
 * Whoever is asked tells its neighbours, once; whoever hears of it does the same, once. Up to 16 ranks
 * all are neighbours, up to 256 a rank has 30 at most and the word makes two hops, up to 4096 three:
 * few connections, however many ranks a scheduler signals at a time.
 *
 * Invariants: a message goes only after somebody was asked, empty, on a communicator of its own. Once
 * one rank was asked, each rank tells each of its neighbours exactly once, at the latest in
 * tt_stop_close, so that every one of them hears as often as it has neighbours and nothing is left
 * under way.
 *
 * Threads: tt_stop_ask may be called by any thread. Where MPI allows several it tells at once, else the
 * computing thread does when it looks next; that thread makes all other calls.
 *
 * The world owns it. Reads nothing; next: train/halt.h, which says when a rank looks. */
#ifndef TUTTI_DIST_STOP_H
#define TUTTI_DIST_STOP_H

#include "tutti/base/status.h"
#include "tutti/dist/world.h"

typedef enum tt_stop_why {
    TT_STOP_NONE = 0, /* nobody has asked, as far as this rank knows */
    TT_STOP_SIGNAL,
    TT_STOP_LIMIT /* run.max_seconds */
} tt_stop_why;

/* From here on the ranks of the world can be asked. Collective. */
tt_code tt_stop_open(tt_world *world, tt_err *err);
/* What has been said is heard. Nobody asks any more. Safe when it is not open. Collective. */
void tt_stop_close(tt_world *world);

/* This rank is asked to stop; the first reason stays. Nothing happens when it is not open. Local. */
void tt_stop_ask(tt_world *world, tt_stop_why why);
/* Was it asked, or has it heard of one that was? Tells, where there is something to tell. Cheap: it asks
 * MPI 100 times a second at most. TT_STOP_NONE when it is not open, or world is NULL. Local. */
tt_stop_why tt_stop_look(tt_world *world);

/* to[] out (NULL: not wanted; room for 15 a hexadecimal digit of `size`): the ranks that `rank` of
 * `size` tells; how many there are, the same for each. Local. */
int tt_stop_neighbours(int rank, int size, int *to);

#endif
