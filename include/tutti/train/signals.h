/* signals.h: a request to stop, without handlers and without global state. */
#ifndef TUTTI_TRAIN_SIGNALS_H
#define TUTTI_TRAIN_SIGNALS_H

/* Blocks SIGTERM, SIGINT and SIGUSR1 in this thread and those made later: call it before MPI or
 * OpenMP make any. Pending signals are asked for between steps. */
void tt_signals_block(void);

/* Number of a pending signal of those, which it consumes; 0: none. */
int tt_signals_take(void);

#endif
