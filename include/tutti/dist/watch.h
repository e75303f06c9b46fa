/* watch.h: no rank waits for ever. A rank that makes no progress is named, and the job ends.
 *
 * The thread that computes beats: it says what it is about to do, and the wrappers of MPI's collectives
 * say when it waits for other ranks. A second thread of the rank, the watch, looks at the beats. When
 * there has been none for nearly `timeout` seconds it asks the watches of the other ranks, and when they
 * are over it finds one of these:
 *
 *   a rank is elsewhere, and has not beaten either     it is to blame, whatever it does
 *   a rank does not answer                             it is stopped, or its node or link is gone
 *   all ranks wait in MPI                              the network or the MPI library is stuck
 *   a rank is elsewhere, and has beaten lately         it is slow: nobody is to blame, wait on
 *
 * In the first three cases one sentence says so, and the job ends with exit code 1 on all ranks.
 * Where no rank of a node answers, it may be out of the launcher's reach too, which then waits for
 * that node when it is asked to end the job, for minutes. So the rank that has found the one to
 * blame waits first, half a minute, in which a launcher notices the loss and ends the job itself;
 * others that ask meanwhile are told that the rank to blame has been named, and say nothing.
 *
 * Invariants: a beat is a few stores, and watches send nothing while ranks beat. Time counts only while
 * the watch itself runs: a process that was stopped and goes on has not been late. Questions come from
 * few ranks: rank r waits longer for every binary digit of r, and a question from a lower rank is
 * a reason to wait as long again. A rank that is silent has had 5 seconds to answer, a tenth of
 * long timeouts, 60 at most; so a rank is named some seconds after a short timeout.
 *
 * The world owns the watch. Reads world->pulse; next: dist/world.h. */
#ifndef TUTTI_DIST_WATCH_H
#define TUTTI_DIST_WATCH_H

#include "tutti/base/log.h"
#include "tutti/base/status.h"
#include "tutti/dist/world.h"

/* Progress. `doing` is what comes next, static text that ends "it is ..."; NULL: what it was. `world`
 * may be NULL here and in the next three. Local. */
void tt_beat(tt_world *world, const char *doing);
/* From here on to tt_wait_end this rank waits for others, in `call`, static text. Each is a beat.
 * Waits may be nested: the end takes what the beginning returned, in what this rank waited already. */
const char *tt_wait_begin(tt_world *world, const char *call);
void tt_wait_end(tt_world *world, const char *outer);
/* What a run that ends here leaves: static text, the end of the sentence. */
void tt_watch_left(tt_world *world, const char *left);

/* Watches this rank's progress until the world is closed; 0 seconds: does not. A second call sets the
 * timeout anew. Where MPI allows no second thread the watch cannot ask; it says so, and then a rank ends
 * the job when it has itself not beaten, slow ranks or not. Collective. */
tt_code tt_watch_open(tt_world *world, double timeout, tt_log *log, tt_err *err);
/* While a program starts, ranks wait for each other and nobody can be asked: after ten minutes between
 * the two the process says so and ends. tt_world_open does both; a program that will open a watch begins
 * again after it, and tt_watch_open is the end. Local. */
void tt_watch_opening(void);
void tt_watch_opened(void);
/* For tt_world_close: the watch makes no call of MPI from here on, but looks on. Collective. */
void tt_watch_quiet(tt_world *world);
/* Ends and frees the watch. Local; after MPI_Finalize, because messages may be under way until then. */
void tt_watch_close(tt_world *world);

#endif
