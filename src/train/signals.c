/* signals.c: see signals.h. Owns its thread. */
#include "tutti/train/signals.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tutti/base/clock.h"
#include "tutti/base/memory.h"

static const int stops[] = {SIGTERM, SIGINT, SIGUSR1};
enum { STOPS = sizeof stops / sizeof stops[0] };

struct tt_signals {
    pthread_t thread;
    sigset_t set;          /* those that are taken */
    int some;              /* one of them; 0: all are ignored, and there is no thread */
    pthread_mutex_t mutex; /* of what follows */
    bool ends, asked;
    double since; /* tt_seconds() of the first */
    void (*ask)(void *user);
    void *user;
};

/* A library may have made threads when it was loaded, before main could block anything (OpenBLAS
 * does). One that is handed a signal refuses all of them from then on, and puts it back for the thread
 * that waits for it. */
static void pass_on(int signal, siginfo_t *info, void *context)
{
    const int error = errno;
    ucontext_t *after = context;
    (void)info;
    for (int i = 0; i < STOPS; i++) {
        sigaddset(&after->uc_sigmask, stops[i]);
    }
    kill(getpid(), signal);
    errno = error;
}

/* As if it had never been caught. */
static void die(int number)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, number);
    signal(number, SIG_DFL);
    pthread_sigmask(SIG_UNBLOCK, &set, NULL);
    raise(number);
}

/* false: the thread is to end. */
static bool take(tt_signals *s, int number)
{
    pthread_mutex_lock(&s->mutex);
    const bool ends = s->ends, first = !s->asked;
    const double now = tt_seconds();
    if (!ends && first) {
        s->asked = true;
        s->since = now;
        if (s->ask != NULL) {
            s->ask(s->user);
        }
    } else if (!ends && now - s->since > TT_SIGNALS_SAME) {
        die(number);
    }
    pthread_mutex_unlock(&s->mutex);
    return !ends;
}

static void *run(void *of)
{
    tt_signals *s = of;
    int number = 0;
    while (sigwait(&s->set, &number) != 0 || take(s, number)) {
    }
    return NULL;
}

/* Those that the parent has ignored (SIGINT in a shell's background job) stay so. */
static void choose(tt_signals *s)
{
    sigemptyset(&s->set);
    for (int i = 0; i < STOPS; i++) {
        struct sigaction before;
        if (sigaction(stops[i], NULL, &before) == 0 && before.sa_handler != SIG_IGN) {
            sigaddset(&s->set, stops[i]);
            s->some = stops[i];
        }
    }
}

tt_code tt_signals_open(tt_signals **signals, tt_err *err)
{
    tt_code rc = TT_OK;
    tt_signals *s = tt_alloc(1, sizeof *s, err);
    *signals = s;
    if (s == NULL) {
        return err->code;
    }
    pthread_mutex_init(&s->mutex, NULL);
    choose(s);
    pthread_sigmask(SIG_BLOCK, &s->set, NULL);
    for (int i = 0; i < STOPS; i++) {
        struct sigaction action = {.sa_sigaction = pass_on, .sa_flags = SA_RESTART | SA_SIGINFO};
        sigfillset(&action.sa_mask);
        if (sigismember(&s->set, stops[i])) {
            sigaction(stops[i], &action, NULL);
        }
    }
    const int why = s->some != 0 ? pthread_create(&s->thread, NULL, run, s) : 0;
    if (why != 0) {
        s->some = 0;
        rc = tt_fail(err, TT_EWORLD, "cannot start the thread that waits for signals: %s",
                     strerror(why));
        tt_signals_close(s);
        *signals = NULL;
    }
    return rc;
}

void tt_signals_tell(tt_signals *s, void (*ask)(void *user), void *user)
{
    if (s == NULL) {
        return;
    }
    pthread_mutex_lock(&s->mutex);
    s->ask = ask;
    s->user = user;
    if (ask != NULL && s->asked) {
        ask(user);
    }
    pthread_mutex_unlock(&s->mutex);
}

void tt_signals_close(tt_signals *s)
{
    if (s == NULL) {
        return;
    }
    if (s->some != 0) {
        pthread_mutex_lock(&s->mutex);
        s->ends = true;
        pthread_mutex_unlock(&s->mutex);
        pthread_kill(s->thread, s->some); /* it waits for that */
        pthread_join(s->thread, NULL);
    }
    pthread_mutex_destroy(&s->mutex);
    free(s);
}
