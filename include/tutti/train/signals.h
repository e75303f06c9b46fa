/* signals.h: a request to stop, without global state: the signals stay blocked and are asked for. */
#ifndef TUTTI_TRAIN_SIGNALS_H
#define TUTTI_TRAIN_SIGNALS_H

/* Blocks SIGTERM, SIGINT and SIGUSR1 in this thread and those made later; call it in the first thread
 * of the process, before MPI or OpenMP make any. Threads that libraries made before main pass the
 * signals on to it. */
void tt_signals_block(void);

/* Number of a pending signal of those, which it consumes; 0: none. Only in the
 * thread that called tt_signals_block. */
int tt_signals_take(void);

#endif
