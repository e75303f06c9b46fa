/* world.c: opening and closing MPI, and the small collectives.
 *
 * Everything runs on a duplicate of MPI_COMM_WORLD, so that no library in the process can catch one
 * of our messages. Errors return on both communicators: MPI's default is to abort, and then the
 * user sees a stack trace where a sentence belongs.
 *
 * Invariant: world->comm is not NULL exactly while MPI is open through this world.
 *
 * Owns: the communicator and the counts that a gather needs. Next: agree.c, reduce.c. */
#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dist/dist_impl.h"
#include "tutti/base/clock.h"
#include "tutti/base/log.h"
#include "tutti/base/memory.h"
#include "tutti/base/narrow.h"
#include "tutti/base/threads.h"
#include "tutti/dist/poke.h"
#include "tutti/dist/stop.h"

tt_code tt_mpi_check(int result, const char *call, tt_err *err)
{
    if (result == MPI_SUCCESS) {
        return TT_OK;
    }
    char words[MPI_MAX_ERROR_STRING] = "";
    int length = 0;
    if (MPI_Error_string(result, words, &length) != MPI_SUCCESS || length == 0) {
        snprintf(words, sizeof words, "unknown error %d", result);
    }
    return tt_fail(err, TT_EWORLD, "%s failed: %s", call, words);
}

void tt_wire_launch(tt_world *world, size_t bytes)
{
    if (tt_alone(world)) {
        return;
    }
    world->wire.calls += 1;
    world->wire.bytes += tt_count(bytes);
    tt_wire *wire = &world->wire;
    if (wire->open++ == 0) {
        tt_poke_set(world, true);
        wire->since = tt_seconds();
        if (wire->depth > 0) { /* between two that were under way it did nothing else either */
            wire->seconds += wire->since - fmax(wire->entered, wire->counted);
            wire->counted = wire->since;
        }
    }
}

void tt_wire_land(tt_world *world)
{
    tt_wire *wire = &world->wire;
    if (!tt_alone(world) && --wire->open == 0) {
        const double now = tt_seconds();
        tt_poke_set(world, false);
        wire->seconds += now - wire->since;
        wire->counted = now;
    }
}

tt_wire tt_world_wire(const tt_world *world)
{
    tt_wire wire = world->wire;
    if (wire.open > 0) {
        wire.seconds += tt_seconds() - wire.since;
    }
    return wire;
}

/* Since `start` this rank did nothing but communicate. */
static void spend(tt_wire *wire, double start)
{
    const double now = tt_seconds();
    const double from = fmax(start, wire->counted);
    const double until = wire->open == 0 ? now : wire->since; /* from then on it is counted later */
    wire->exposed += wire->depth == 0 ? now - start : 0;
    if (until > from) {
        wire->seconds += until - from;
        wire->counted = until;
    }
}

double tt_wire_begin(tt_world *world, const char *call)
{
    (void)tt_wait_begin(world, call); /* no collective of the world is made in another wait */
    return tt_seconds();
}

void tt_wire_add(tt_world *world, size_t bytes, double start)
{
    world->wire.calls += 1;
    world->wire.bytes += tt_count(bytes);
    spend(&world->wire, start);
    tt_wait_end(world, NULL);
}

void tt_wire_enter(tt_world *world)
{
    if (!tt_alone(world) && world->wire.depth++ == 0) {
        world->wire.entered = tt_seconds();
    }
}

void tt_wire_leave(tt_world *world)
{
    if (!tt_alone(world) && --world->wire.depth == 0) {
        spend(&world->wire, world->wire.entered);
    }
}

/* The first rank of each node counts the first ranks below it, and tells its node. Collective. */
static tt_code number_nodes(tt_world *world, MPI_Comm comm, MPI_Comm node, tt_err *err)
{
    tt_code rc = TT_OK;
    const int first = world->local_rank == 0;
    TT_TRY(tt_mpi_check(MPI_Exscan(&first, &world->node, 1, MPI_INT, MPI_SUM, comm), "MPI_Exscan",
                        err));
    if (world->rank == 0) {
        world->node = 0; /* MPI leaves it undefined there */
    }
    TT_TRY(tt_mpi_check(MPI_Bcast(&world->node, 1, MPI_INT, 0, node), "MPI_Bcast", err));
    TT_TRY(tt_mpi_check(MPI_Allreduce(&first, &world->nodes, 1, MPI_INT, MPI_SUM, comm),
                        "MPI_Allreduce", err));
out:
    return rc;
}

/* Which node this rank runs on, how many ranks do, which of them this one is, and how many of them may
 * run on exactly the same processors as this one. Collective. */
static tt_code look_around(tt_world *world, MPI_Comm comm, tt_err *err)
{
    tt_code rc = TT_OK;
    MPI_Comm node = MPI_COMM_NULL, mask = MPI_COMM_NULL;
    TT_TRY(tt_mpi_check(
        MPI_Comm_split_type(comm, MPI_COMM_TYPE_SHARED, world->rank, MPI_INFO_NULL, &node),
        "MPI_Comm_split_type", err));
    TT_TRY(tt_mpi_check(MPI_Comm_rank(node, &world->local_rank), "MPI_Comm_rank", err));
    TT_TRY(tt_mpi_check(MPI_Comm_size(node, &world->local_size), "MPI_Comm_size", err));
    TT_TRY(number_nodes(world, comm, node, err));

    uint64_t digest = 0;
    tt_processors(&digest);
    int color = (int)(digest & 0x7fffffff); /* colors are ints >= 0 */
    TT_TRY(tt_mpi_check(MPI_Comm_split(node, color, world->rank, &mask), "MPI_Comm_split", err));
    TT_TRY(tt_mpi_check(MPI_Comm_size(mask, &world->mask_size), "MPI_Comm_size", err));
out:
    if (mask != MPI_COMM_NULL) {
        MPI_Comm_free(&mask);
    }
    if (node != MPI_COMM_NULL) {
        MPI_Comm_free(&node);
    }
    return rc;
}

/* How Open MPI talks, where the user has not said how: in the environment or in --mca, which comes
 * to the same. (A file of parameters does not: the environment is above it.) Other libraries take
 * no notice.
 *
 * Over TCP it uses a connection one way at a time where it can "put" (btl_tcp_flags), and it sums what
 * is reduced in place in a tree (coll_libnbc_iallreduce_algorithm: 1 is a ring). Both together make
 * a sum over hosts take two to three times what the wire needs, measured on 2 to 4 hosts at 200
 * Mbit/s and 1 Gbit/s. */
static tt_code prefer(tt_err *err)
{
    static const char *const settings[][2] = {{"OMPI_MCA_btl_tcp_flags", "send"},
                                              {"OMPI_MCA_coll_libnbc_iallreduce_algorithm", "1"}};
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
        if (setenv(settings[i][0], settings[i][1], 0) != 0) {
            return tt_fail(err, TT_EWORLD, "cannot set %s: %s", settings[i][0], strerror(errno));
        }
    }
    return TT_OK;
}

tt_code tt_world_open(tt_world *world, int *argc, char ***argv, tt_err *err)
{
    tt_code rc = TT_OK;
    MPI_Comm comm = MPI_COMM_NULL;
    MPI_Comm *owned = NULL;
    int *counts = NULL;
    const tt_launch launch = tt_launch_look();
    int speaker = 0;
    *world = (tt_world){.began = tt_seconds()};

    int begun = 0, ended = 0;
    TT_TRY(tt_mpi_check(MPI_Initialized(&begun), "MPI_Initialized", err));
    TT_TRY(tt_mpi_check(MPI_Finalized(&ended), "MPI_Finalized", err));
    if (begun || ended) {
        rc = tt_fail(err, TT_EWORLD, "MPI was already %s in this process; it can be opened once",
                     ended ? "closed" : "opened");
        goto out;
    }
    TT_TRY(prefer(err));
    tt_watch_opening();
    TT_TRY(tt_mpi_check(MPI_Init_thread(argc, argv, MPI_THREAD_MULTIPLE, &world->thread_level),
                        "MPI_Init_thread", err));
    TT_TRY(tt_mpi_check(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN),
                        "MPI_Comm_set_errhandler", err));
    if (world->thread_level < MPI_THREAD_FUNNELED) {
        rc = tt_fail(err, TT_EWORLD,
                     "this MPI library does not allow threads beside the one that calls it "
                     "(MPI_THREAD_FUNNELED)");
        goto out;
    }
    TT_TRY(tt_mpi_check(MPI_Comm_dup(MPI_COMM_WORLD, &comm), "MPI_Comm_dup", err));
    TT_TRY(tt_mpi_check(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler",
                        err));
    TT_TRY(tt_mpi_check(MPI_Comm_set_name(comm, "tutti"), "MPI_Comm_set_name", err));
    TT_TRY(tt_mpi_check(MPI_Comm_rank(comm, &world->rank), "MPI_Comm_rank", err));
    TT_TRY(tt_mpi_check(MPI_Comm_size(comm, &world->size), "MPI_Comm_size", err));
    speaker = launch.rank;
    TT_TRY(tt_launch_check(&launch, world->size, err));
    speaker = 0;
    TT_TRY(look_around(world, comm, err));

    owned = tt_alloc(1, sizeof *owned, err);
    counts = owned != NULL ? tt_alloc(2 * (int64_t)world->size, sizeof *counts, err) : NULL;
    if (counts == NULL) {
        rc = err->code;
        goto out;
    }
    *owned = comm;
    world->comm = owned;
    world->counts = counts;
out:
    tt_watch_opened();
    /* After a failure MPI stays as it is: to finalize is collective, and the others may be waiting
     * elsewhere. The process ends with an exit code, and the launcher ends the rest. */
    if (rc != TT_OK) {
        world->rank = speaker;
        free(counts);
        free(owned);
    }
    return rc;
}

bool tt_world_threaded(const tt_world *world)
{
    return world->thread_level >= MPI_THREAD_MULTIPLE;
}

void tt_world_close(tt_world *world)
{
    if (world == NULL || world->comm == NULL) {
        return;
    }
    tt_err err;
    tt_beat(world, "closing");
    tt_stop_close(world);
    tt_watch_quiet(world);
    (void)tt_wait_begin(world, "MPI_Finalize"); /* and nothing after it */
    tt_code rc = tt_mpi_check(MPI_Comm_free(world->comm), "MPI_Comm_free", &err);
    if (rc == TT_OK) {
        rc = tt_mpi_check(MPI_Finalize(), "MPI_Finalize", &err);
    }
    if (rc != TT_OK) {
        tt_log log = tt_log_open(world->rank);
        tt_warn(&log, "%s", err.text);
    }
    tt_watch_close(world);
    free(world->comm);
    free(world->counts);
    world->comm = NULL;
    world->counts = NULL;
}

void tt_world_abort(tt_world *world, int code)
{
    fflush(NULL); /* neither MPI_Abort nor _Exit does */
    if (world != NULL && world->comm != NULL) {
        MPI_Abort(tt_world_comm(world), code);
    }
    _Exit(code);
}

tt_code tt_allreduce(tt_world *world, void *data, int count, size_t size, MPI_Datatype type,
                     MPI_Op op, tt_err *err)
{
    if (tt_alone(world)) {
        return TT_OK;
    }
    tt_code rc = TT_OK;
    double start = tt_wire_begin(world, "MPI_Allreduce");
    TT_TRY(tt_mpi_check(MPI_Allreduce(MPI_IN_PLACE, data, count, type, op, tt_world_comm(world)),
                        "MPI_Allreduce", err));
    tt_wire_add(world, tt_bytes(count, size), start);
out:
    return rc;
}

tt_code tt_bcast(tt_world *world, void *data, size_t bytes, int root, tt_err *err)
{
    if (tt_alone(world)) {
        return TT_OK;
    }
    tt_code rc = TT_OK;
    double start = tt_wire_begin(world, "MPI_Bcast");
    int count = tt_int(tt_count(bytes));
    TT_TRY(tt_mpi_check(MPI_Bcast(data, count, MPI_BYTE, root, tt_world_comm(world)), "MPI_Bcast",
                        err));
    tt_wire_add(world, bytes, start);
out:
    return rc;
}

tt_code tt_sum_i64(tt_world *world, int64_t *values, int count, tt_err *err)
{
    return tt_allreduce(world, values, count, sizeof *values, MPI_INT64_T, MPI_SUM, err);
}

tt_code tt_sum_f64(tt_world *world, double *values, int count, tt_err *err)
{
    return tt_allreduce(world, values, count, sizeof *values, MPI_DOUBLE, MPI_SUM, err);
}

tt_code tt_max_f64(tt_world *world, double *values, int count, tt_err *err)
{
    return tt_allreduce(world, values, count, sizeof *values, MPI_DOUBLE, MPI_MAX, err);
}

tt_code tt_sum_u64(tt_world *world, uint64_t *values, int count, tt_err *err)
{
    return tt_allreduce(world, values, count, sizeof *values, MPI_UINT64_T, MPI_SUM, err);
}

tt_code tt_min_u64(tt_world *world, uint64_t *values, int count, tt_err *err)
{
    return tt_allreduce(world, values, count, sizeof *values, MPI_UINT64_T, MPI_MIN, err);
}

tt_code tt_barrier(tt_world *world, tt_err *err)
{
    if (tt_alone(world)) {
        return TT_OK;
    }
    tt_code rc = TT_OK;
    double start = tt_wire_begin(world, "MPI_Barrier");
    TT_TRY(tt_mpi_check(MPI_Barrier(tt_world_comm(world)), "MPI_Barrier", err));
    tt_wire_add(world, 0, start);
out:
    return rc;
}

/* Ranks that may run on just the processors of this one. */
static int sharers(const tt_world *world)
{
    int count = tt_alone(world) ? 1 : world->mask_size;
    assert(count >= 1);
    return count;
}

int tt_world_threads(const tt_world *world)
{
    return (int)tt_max(1, tt_cores() / sharers(world));
}

double tt_world_processor_share(const tt_world *world, int threads)
{
    uint64_t digest = 0;
    double processors = tt_processors(&digest), all = (double)threads * sharers(world);
    return all > processors ? processors / all : 1.0;
}

void tt_mpi_version(char *out, int n)
{
    assert(n >= 1);
    char words[MPI_MAX_LIBRARY_VERSION_STRING] = "";
    int length = 0;
    if (MPI_Get_library_version(words, &length) != MPI_SUCCESS) {
        snprintf(words, sizeof words, "unknown");
    }
    words[strcspn(words, "\r\n")] = '\0';
    snprintf(out, tt_size(n), "%s", words);
}
