/* signals.c: a request to stop, without global state. See signals.h.
 *
 * The signals stay blocked until the process ends: the same request often arrives more than once (a
 * scheduler signals mpirun and the ranks, and mpirun passes it on), and a repeat must not hurt the
 * save that the first one started. */
#include "tutti/train/signals.h"

#include <pthread.h>
#include <signal.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static const int stops[] = {SIGTERM, SIGINT, SIGUSR1};
enum { STOPS = sizeof stops / sizeof stops[0] };

/* A library may have made threads when it was loaded, before main could block anything (OpenBLAS
 * does). One that is handed the signal passes it on to the first thread, where it stays pending: on
 * Linux that thread's number is the process's. */
static void pass_on(int signal)
{
    syscall(SYS_tgkill, getpid(), getpid(), signal);
}

static void stop_signals(sigset_t *set)
{
    sigemptyset(set);
    for (int i = 0; i < STOPS; i++) {
        sigaddset(set, stops[i]);
    }
}

void tt_signals_block(void)
{
    sigset_t set;
    stop_signals(&set);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    for (int i = 0; i < STOPS; i++) {
        struct sigaction action = {.sa_handler = pass_on, .sa_flags = SA_RESTART}, before;
        sigemptyset(&action.sa_mask);
        /* What the parent had ignored (SIGINT in a shell's background job) stays ignored. */
        if (sigaction(stops[i], NULL, &before) == 0 && before.sa_handler != SIG_IGN) {
            sigaction(stops[i], &action, NULL);
        }
    }
}

int tt_signals_take(void)
{
    sigset_t set;
    const struct timespec now = {0, 0};
    stop_signals(&set);
    int signal = sigtimedwait(&set, NULL, &now);
    return signal > 0 ? signal : 0;
}
