/* poke.c: see poke.h. Owns its thread and communicator. */
#include "tutti/dist/poke.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "dist/dist_impl.h"
#include "tutti/base/memory.h"

static const long nap_ns = 300000; /* between two calls */

typedef struct tt_poke {
    MPI_Comm comm;
    pthread_t thread;
    pthread_mutex_t mutex; /* of the next two */
    pthread_cond_t changed;
    bool busy, ends;
} tt_poke;

/* Waits until something is under way; false: there will be nothing any more. */
static bool wanted(tt_poke *poke)
{
    pthread_mutex_lock(&poke->mutex);
    while (!poke->busy && !poke->ends) {
        pthread_cond_wait(&poke->changed, &poke->mutex);
    }
    const bool goes_on = !poke->ends;
    pthread_mutex_unlock(&poke->mutex);
    return goes_on;
}

/* What the probe finds is of no interest, nor whether it fails: the computing thread will see that. */
static void *run(void *of)
{
    tt_poke *poke = of;
    const struct timespec nap = {.tv_nsec = nap_ns};
    while (wanted(poke)) {
        int found = 0;
        MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, poke->comm, &found, MPI_STATUS_IGNORE);
        nanosleep(&nap, NULL);
    }
    return NULL;
}

/* Signals are for the thread that looks at them. */
static int start(tt_poke *poke)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const int why = pthread_create(&poke->thread, NULL, run, poke);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return why;
}

/* Until its last call of MPI has returned. */
static void stop(tt_poke *poke)
{
    pthread_mutex_lock(&poke->mutex);
    poke->ends = true;
    pthread_cond_signal(&poke->changed);
    pthread_mutex_unlock(&poke->mutex);
    pthread_join(poke->thread, NULL);
}

static void release(tt_poke *poke)
{
    if (poke->comm != MPI_COMM_NULL) {
        MPI_Comm_free(&poke->comm);
    }
    pthread_cond_destroy(&poke->changed);
    pthread_mutex_destroy(&poke->mutex);
    free(poke);
}

tt_code tt_poke_open(tt_world *world, tt_err *err)
{
    tt_code rc = TT_OK;
    bool runs = false;
    if (tt_alone(world) || !tt_world_threaded(world) || world->poke != NULL) {
        return TT_OK;
    }
    tt_poke *poke = tt_alloc(1, sizeof *poke, err);
    if (poke != NULL) {
        poke->comm = MPI_COMM_NULL;
        pthread_mutex_init(&poke->mutex, NULL);
        pthread_cond_init(&poke->changed, NULL);
    }
    TT_TRY(tt_agree(world, poke != NULL ? TT_OK : err->code, err));
    const char *outer = tt_wait_begin(world, "MPI_Comm_dup");
    rc = tt_mpi_check(MPI_Comm_dup(tt_world_comm(world), &poke->comm), "MPI_Comm_dup", err);
    tt_wait_end(world, outer);
    TT_TRY(rc);
    TT_TRY(tt_mpi_check(MPI_Comm_set_errhandler(poke->comm, MPI_ERRORS_RETURN),
                        "MPI_Comm_set_errhandler", err));
    const int why = start(poke);
    runs = why == 0;
    if (!runs) {
        rc = tt_fail(err, TT_EWORLD,
                     "cannot start the thread that keeps MPI going: %s (dist.progress_thread=false "
                     "does without it)",
                     strerror(why));
    }
    TT_TRY(tt_agree(world, rc, err));
    world->poke = poke;
out:
    if (rc != TT_OK && poke != NULL) {
        if (runs) { /* but another rank's does not */
            stop(poke);
        }
        release(poke);
    }
    return rc;
}

void tt_poke_set(tt_world *world, bool busy)
{
    tt_poke *poke = world->poke;
    if (poke != NULL) {
        pthread_mutex_lock(&poke->mutex);
        poke->busy = busy;
        pthread_cond_signal(&poke->changed);
        pthread_mutex_unlock(&poke->mutex);
    }
}

void tt_poke_close(tt_world *world)
{
    tt_poke *poke = world != NULL ? world->poke : NULL;
    if (poke != NULL) {
        stop(poke);
        release(poke);
        world->poke = NULL;
    }
}
