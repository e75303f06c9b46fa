/* stop.c: see stop.h. Owns its communicator and the requests of what it has sent. */
#include "tutti/dist/stop.h"

#include <stdlib.h>

#include "dist/dist_impl.h"
#include "tutti/base/clock.h"
#include "tutti/base/memory.h"

/* Ranks r + j * 16^i, j from 1 to 15, hear from r: a distance of d hexadecimal digits takes d hops. */
enum { BASE = 16 };

/* Seconds between two questions to MPI, at least: a rank that shares its processor may give it away each
 * time. */
static const double patience = 0.01;

struct tt_stop {
    MPI_Comm comm; /* MPI_COMM_NULL: one rank alone */
    int why;       /* tt_stop_why; of several threads, as is the next */
    bool told;
    int neighbours, heard; /* so many have told this rank */
    double looked;         /* tt_seconds() when MPI was last asked */
    int *to;               /* [neighbours] owned */
    MPI_Request *sent;     /* [neighbours] owned */
};

int tt_stop_neighbours(int rank, int size, int *to)
{
    int count = 0;
    for (int64_t unit = 1; unit < size; unit *= BASE) {
        for (int64_t j = 1; j < BASE && j * unit < size; j++) {
            if (to != NULL) {
                to[count] = (int)((rank + j * unit) % size);
            }
            count++;
        }
    }
    return count;
}

static tt_stop_why reason(const tt_stop *s)
{
    return (tt_stop_why)__atomic_load_n(&s->why, __ATOMIC_ACQUIRE);
}

/* The first reason stays. */
static void learn(tt_stop *s, int why)
{
    int none = TT_STOP_NONE;
    __atomic_compare_exchange_n(&s->why, &none, why, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
}

/* Once, by whichever thread comes first. A message that cannot be sent is one that is missed: whoever
 * waits for it in tt_stop_close is found by the watch. */
static void tell(tt_stop *s)
{
    if (s->comm == MPI_COMM_NULL || __atomic_test_and_set(&s->told, __ATOMIC_ACQ_REL)) {
        return;
    }
    const int why = reason(s);
    for (int i = 0; i < s->neighbours; i++) {
        if (MPI_Isend(NULL, 0, MPI_BYTE, s->to[i], why, s->comm, &s->sent[i]) != MPI_SUCCESS) {
            s->sent[i] = MPI_REQUEST_NULL;
        }
    }
}

/* Takes a message; waits for one, or takes none where there is none. */
static bool hear(tt_stop *s, bool waits)
{
    MPI_Status status = {.MPI_TAG = TT_STOP_NONE};
    int there = waits;
    if (!waits &&
        MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, s->comm, &there, &status) != MPI_SUCCESS) {
        return false;
    }
    if (!there ||
        MPI_Recv(NULL, 0, MPI_BYTE, MPI_ANY_SOURCE, MPI_ANY_TAG, s->comm, &status) != MPI_SUCCESS) {
        return false;
    }
    s->heard++;
    learn(s, status.MPI_TAG);
    return true;
}

static void release(tt_stop *s)
{
    if (s->comm != MPI_COMM_NULL) {
        MPI_Comm_free(&s->comm);
    }
    free(s->to);
    free(s->sent);
    free(s);
}

tt_code tt_stop_open(tt_world *world, tt_err *err)
{
    tt_code rc = TT_OK;
    if (world->stop != NULL) {
        return TT_OK;
    }
    tt_stop *s = tt_alloc(1, sizeof *s, err);
    if (s != NULL) {
        *s = (tt_stop){.comm = MPI_COMM_NULL};
        s->neighbours = tt_stop_neighbours(world->rank, world->size, NULL);
        s->to = tt_alloc(s->neighbours, sizeof *s->to, err);
        s->sent = s->to != NULL ? tt_alloc(s->neighbours, sizeof *s->sent, err) : NULL;
    }
    TT_TRY(tt_agree(world, s != NULL && s->sent != NULL ? TT_OK : err->code, err));
    tt_stop_neighbours(world->rank, world->size, s->to);
    for (int i = 0; i < s->neighbours; i++) {
        s->sent[i] = MPI_REQUEST_NULL;
    }
    if (!tt_alone(world)) {
        const char *outer = tt_wait_begin(world, "MPI_Comm_dup");
        rc = tt_mpi_check(MPI_Comm_dup(tt_world_comm(world), &s->comm), "MPI_Comm_dup", err);
        tt_wait_end(world, outer);
        TT_TRY(rc);
        TT_TRY(tt_mpi_check(MPI_Comm_set_errhandler(s->comm, MPI_ERRORS_RETURN),
                            "MPI_Comm_set_errhandler", err));
    }
    world->stop = s;
out:
    if (rc != TT_OK && s != NULL) {
        release(s);
    }
    return rc;
}

/* Every rank has told and heard all that it ever will. */
static void settle(tt_world *world, tt_stop *s)
{
    tt_err err;
    int64_t asked = reason(s) != TT_STOP_NONE;
    if (tt_sum_i64(world, &asked, 1, &err) != TT_OK || asked == 0) {
        return;
    }
    learn(s, TT_STOP_SIGNAL); /* whatever: it is over */
    tell(s);
    const char *outer = tt_wait_begin(world, "MPI_Recv");
    while (s->heard < s->neighbours && hear(s, true)) {
    }
    MPI_Waitall(s->neighbours, s->sent, MPI_STATUSES_IGNORE);
    tt_wait_end(world, outer);
}

void tt_stop_close(tt_world *world)
{
    tt_stop *s = world != NULL ? world->stop : NULL;
    if (s == NULL) {
        return;
    }
    if (s->comm != MPI_COMM_NULL) {
        settle(world, s);
    }
    release(s);
    world->stop = NULL;
}

void tt_stop_ask(tt_world *world, tt_stop_why why)
{
    tt_stop *s = world->stop;
    if (s == NULL) {
        return;
    }
    learn(s, why);
    if (tt_world_threaded(world)) {
        tell(s);
    }
}

tt_stop_why tt_stop_look(tt_world *world)
{
    tt_stop *s = world != NULL ? world->stop : NULL;
    if (s == NULL) {
        return TT_STOP_NONE;
    }
    if (s->comm != MPI_COMM_NULL && reason(s) == TT_STOP_NONE) {
        const double now = tt_seconds();
        if (now - s->looked >= patience) {
            s->looked = now;
            hear(s, false);
        }
    }
    if (reason(s) != TT_STOP_NONE) {
        tell(s);
    }
    return reason(s);
}
