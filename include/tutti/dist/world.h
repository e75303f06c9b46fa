/* world.h: who is here, and how all of them decide together.
 *
 * Owns MPI. One tt_world lives in main. A collective function returns the same code on every rank;
 * that is what tt_agree is for (decision 11).
 *
 * Reads the MPI environment; next: dist/cut.h, dist/reduce.h. */
#ifndef TUTTI_DIST_WORLD_H
#define TUTTI_DIST_WORLD_H

#include <stdbool.h>
#include <stdint.h>

#include "tutti/base/status.h"

/* Counted since tt_world_open; the step reports differences. The payload of a call is the vector
 * that it makes equal on all ranks, in bytes: the same number on every rank. One rank alone has no
 * wire: it calls nothing and counts nothing. */
typedef struct tt_wire {
    int64_t calls, bytes; /* collectives, their payload, whether through MPI or a node's memory */
    double seconds;       /* during which at least one was under way, seen from this rank */
    double exposed;       /* of its computing thread, spent on them: what is not hidden */
    int open;             /* nonblocking ones under way */
    double since;         /* tt_seconds() at which the first of these began */
    int depth;            /* of communication within communication */
    double entered;       /* tt_seconds() at which the outermost began */
    double counted;       /* tt_seconds() up to which `seconds` is complete, when none is open */
} tt_wire;

/* What the thread that computes says, and another reads (dist/watch.h). The texts are static. */
typedef struct tt_pulse {
    _Atomic int64_t beats; /* grows before anything else here changes */
    const char *_Atomic doing;
    const char *_Atomic waiting; /* for other ranks, in this call; NULL: for none */
    const char *_Atomic left;    /* what a run that ends now leaves; NULL: nothing to say */
} tt_pulse;

typedef struct tt_watch tt_watch; /* dist/watch.h */
typedef struct tt_stop tt_stop;   /* dist/stop.h */

typedef struct tt_world {
    int rank, size;             /* r, R */
    int local_rank, local_size; /* among the ranks of this node */
    int mask_size;              /* ranks of this node that may run on just this rank's processors */
    int node, nodes;            /* this rank's node, numbered by their lowest ranks; how many */
    struct tt_poke *poke;       /* owned: dist/poke.h; NULL: none */
    int thread_level;           /* MPI_THREAD_..., what this MPI allows */
    void *comm;                 /* MPI_Comm *, owned; NULL: not open; see dist/mpi_comm.h */
    int *counts;                /* [2 R] owned: counts and offsets of a gather */
    tt_wire wire;
    tt_pulse pulse;
    tt_watch *watch; /* owned; NULL: nobody watches */
    tt_stop *stop;   /* owned; NULL: nobody can be asked to stop */
    double began;    /* tt_seconds() when tt_world_open was called: with main, as a rule */
} tt_world;

/* MPI_Init_thread(MULTIPLE); errors return instead of aborting. Less than FUNNELED is refused; with less
 * than MULTIPLE whoever wants threads of its own does without, and says so. Once per process; without
 * a launcher the process is a world of one. Ranks that were started together and have not found each
 * other are TT_EUSER. After a failure `rank` says who speaks: of such ranks the launcher's rank 0, else
 * (0) everyone. Collective. */
tt_code tt_world_open(tt_world *world, int *argc, char ***argv, tt_err *err);
/* May several threads call MPI at the same time? */
bool tt_world_threaded(const tt_world *world);
/* Finalizes when open, does nothing on a zeroed, failed or closed world. Collective. Print what is
 * left to say first: a launcher ends the other ranks when one exits with a code. */
void tt_world_close(tt_world *world);
/* Ends the job on all ranks at once with this exit code: only when ranks can no longer agree. */
_Noreturn void tt_world_abort(tt_world *world, int code);

/* All ranks return the code (and err text) of the lowest rank that failed, TT_OK when none did. The
 * text is prefixed with "rank N: " when not every rank failed alike. Collective; `rc` is this rank's
 * own result and err its own text. A NULL world (single process, no MPI) just returns rc; so it is
 * one rank to every function below. */
tt_code tt_agree(tt_world *world, tt_code rc, tt_err *err);

/* What has been counted up to now, calls that are still under way included. Local. */
tt_wire tt_world_wire(const tt_world *world);

/* TT_EUSER on all ranks unless `text` is the same on all; names the first line that differs, with
 * both values and ranks. Collective. `what` names the thing ("configuration"). */
tt_code tt_agree_text(tt_world *world, const char *what, const char *text, tt_err *err);

/* In-place reductions of small vectors over all ranks. Collective; counted in world->wire. */
tt_code tt_sum_i64(tt_world *world, int64_t *values, int count, tt_err *err);
tt_code tt_sum_f64(tt_world *world, double *values, int count, tt_err *err);
tt_code tt_max_f64(tt_world *world, double *values, int count, tt_err *err);
tt_code tt_min_u64(tt_world *world, uint64_t *values, int count, tt_err *err);
/* Wrapping: what digests of parts want. */
tt_code tt_sum_u64(tt_world *world, uint64_t *values, int count, tt_err *err);
tt_code tt_barrier(tt_world *world, tt_err *err);

/* Threads per rank that fill the node: cores of this rank's mask divided by the number of local ranks
 * that share the mask, at least 1. A second thread of a core would share units that one fills. Local. */
int tt_world_threads(const tt_world *world);

/* How much of a processor each of `threads` threads of this rank has: 1, or less when the ranks that
 * share its processors have more threads than those. A peak measured in short bursts is to be
 * multiplied with it. Local. */
double tt_world_processor_share(const tt_world *world, int threads);

/* "Open MPI v4.1.4 ..." first line of the library's version; out[n]. Needs no open world. */
void tt_mpi_version(char *out, int n);

#endif
