/* signals.h: SIGTERM, SIGINT and SIGUSR1 ask a process to stop.
 *
 * They are blocked in every thread and taken by one of their own, so that they are heard whatever the
 * others do. The first calls back. One that comes within two seconds of it is the same request: a
 * scheduler signals mpirun and the ranks, and mpirun passes it on. A later one ends the process at once,
 * by that signal, as if nobody had caught it: a launcher sees that and ends the other ranks. A file is
 * whole or has another name until then (ckpt/save.c), so that no checkpoint is harmed.
 *
 * Owned by main. Reads nothing; next: dist/stop.h, which tells the other ranks. */
#ifndef TUTTI_TRAIN_SIGNALS_H
#define TUTTI_TRAIN_SIGNALS_H

#include "tutti/base/status.h"

enum { TT_SIGNALS_SAME = 2 }; /* seconds in which repeats are one request */

typedef struct tt_signals tt_signals;

/* Blocks the signals in this thread and those made later: call it in the first thread of the process,
 * before MPI or OpenMP make any. A signal that the parent has ignored stays ignored. TT_EWORLD when the
 * system grants no thread. Local; once per process. */
tt_code tt_signals_open(tt_signals **signals, tt_err *err);
/* From now on the first signal calls ask(user), in the signals' thread, once; if it has come already,
 * here and now. NULL: nothing is called any more when this returns. Safe where *signals is NULL. */
void tt_signals_tell(tt_signals *signals, void (*ask)(void *user), void *user);
/* Ends the thread. The signals stay blocked until the process ends, lest a late repeat become its exit
 * code. Safe where *signals is NULL. */
void tt_signals_close(tt_signals *signals);

#endif
