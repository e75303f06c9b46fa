/* signals.c: a request to stop, without handlers. See train_impl.h.
 *
 * The signals stay blocked until the process ends: the same request often arrives more than once (a
 * scheduler signals mpirun and the ranks, and mpirun passes it on), and a repeat must not hurt the
 * save that the first one started. */
#include "tutti/train/signals.h"

#include <pthread.h>
#include <signal.h>
#include <time.h>

static void stop_signals(sigset_t *set)
{
    sigemptyset(set);
    sigaddset(set, SIGTERM);
    sigaddset(set, SIGINT);
    sigaddset(set, SIGUSR1);
}

void tt_signals_block(void)
{
    sigset_t set;
    stop_signals(&set);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
}

int tt_signals_take(void)
{
    sigset_t set;
    const struct timespec now = {0, 0};
    stop_signals(&set);
    int signal = sigtimedwait(&set, NULL, &now);
    return signal > 0 ? signal : 0;
}
