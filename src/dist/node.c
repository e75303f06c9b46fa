/* node.c: communicators of lanes, windows, flags. See node.h.
 *
 * Memory order: a flag is stored with release and read with acquire, on memory that all map, which is
 * what a window of the unified model is on every machine that has one; the windows stay open for
 * loads and stores (MPI_Win_lock_all) from their making to their end.
 *
 * Owns MPI's objects, in tt_comms. Next: reduce.c, gather.c. */
#include "tutti/dist/node.h"

#include <assert.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#include "dist/dist_impl.h"
#include "tutti/base/memory.h"
#include "tutti/base/narrow.h"
#include "tutti/base/text.h"

enum { WINDOWS = 16 };

typedef struct tt_comms {
    MPI_Comm node;                /* the ranks that share; MPI_COMM_NULL: n = 1 */
    MPI_Comm *lane[TT_LANE_USES]; /* [lanes] MPI_COMM_NULL: another rank stands for it */
    MPI_Win window[WINDOWS];
    int windows;
} tt_comms;

static tt_comms *comms_of(const tt_node *node)
{
    return node->comms;
}

MPI_Comm tt_node_lane(const tt_node *node, tt_lane_use use, int lane)
{
    return comms_of(node)->lane[use][lane];
}

/* The tables, from lowest[R], the lowest rank of each rank's node: nodes are numbered by it, and local
 * indices ascend with ranks. Local. */
static tt_code fill_tables(tt_node *node, const int *lowest, tt_err *err)
{
    tt_code rc = TT_OK;
    const int R = node->world_size;
    int *index = tt_alloc(R, sizeof *index, err); /* of each rank's node */
    int *size = tt_alloc(R, sizeof *size, err);   /* [nodes] ranks so far */
    int nodes = 0;
    if (!index || !size) {
        rc = err->code;
        goto out;
    }
    for (int r = 0; r < R; r++) {
        index[r] = lowest[r] == r ? nodes++ : index[lowest[r]];
        node->lanes = tt_int(tt_max(node->lanes, ++size[index[r]]));
    }
    node->at = tt_alloc(tt_mul(nodes, node->lanes), sizeof *node->at, err);
    if (!node->at) {
        rc = err->code;
        goto out;
    }
    for (int i = 0; i < nodes * node->lanes; i++) {
        node->at[i] = -1;
    }
    memset(size, 0, tt_bytes(R, sizeof *size));
    for (int r = 0; r < R; r++) {
        const int local = size[index[r]]++;
        node->at[index[r] * node->lanes + local] = r;
        node->rank = r == node->world_rank ? local : node->rank;
    }
    node->count = nodes;
    node->index = index[node->world_rank];
    node->size = size[node->index];
    node->full_lanes = node->lanes;
    for (int m = 0; m < nodes; m++) {
        node->full_lanes = tt_int(tt_min(node->full_lanes, size[m]));
    }
out:
    free(size);
    free(index);
    return rc;
}

tt_code tt_node_imagine(tt_node *node, int rank, int ranks, int per_node, tt_err *err)
{
    assert(rank >= 0 && rank < ranks && per_node >= 1);
    *node = (tt_node){.world_rank = rank, .world_size = ranks};
    int *lowest = tt_alloc(ranks, sizeof *lowest, err);
    tt_code rc = lowest != NULL ? TT_OK : err->code;
    for (int r = 0; r < ranks && rc == TT_OK; r++) {
        lowest[r] = r / per_node * per_node;
    }
    if (rc == TT_OK) {
        rc = fill_tables(node, lowest, err);
    }
    free(lowest);
    if (rc != TT_OK) {
        tt_node_close(node);
    }
    return rc;
}

/* The ranks that share memory with this one, `most` of them at most (0: any number). Collective. */
static tt_code split_machine(tt_node *node, int most, tt_err *err)
{
    tt_code rc = TT_OK;
    tt_world *world = node->world;
    MPI_Comm *comm = &comms_of(node)->node, machine = MPI_COMM_NULL;
    int local = 0;
    const char *outer = tt_wait_begin(world, "MPI_Comm_split_type");
    TT_TRY(tt_mpi_check(MPI_Comm_split_type(tt_world_comm(world), MPI_COMM_TYPE_SHARED, world->rank,
                                            MPI_INFO_NULL, &machine),
                        "MPI_Comm_split_type", err));
    TT_TRY(tt_mpi_check(MPI_Comm_rank(machine, &local), "MPI_Comm_rank", err));
    TT_TRY(tt_mpi_check(MPI_Comm_split(machine, most > 0 ? local / most : 0, local, comm),
                        "MPI_Comm_split", err));
    TT_TRY(tt_mpi_check(MPI_Comm_set_errhandler(*comm, MPI_ERRORS_RETURN),
                        "MPI_Comm_set_errhandler", err));
out:
    if (machine != MPI_COMM_NULL) {
        MPI_Comm_free(&machine);
    }
    tt_wait_end(world, outer);
    return rc;
}

/* lowest[R] out. Collective. */
static tt_code find_neighbours(tt_node *node, int most, int *lowest, tt_err *err)
{
    tt_code rc = TT_OK;
    tt_world *world = node->world;
    int mine = node->world_rank;
    lowest[0] = mine;
    if (tt_alone(world)) {
        return TT_OK;
    }
    TT_TRY(most != 1 ? split_machine(node, most, err) : TT_OK);
    const char *outer = tt_wait_begin(world, "MPI_Allgather");
    if (most != 1) {
        rc = tt_mpi_check(
            MPI_Allreduce(MPI_IN_PLACE, &mine, 1, MPI_INT, MPI_MIN, comms_of(node)->node),
            "MPI_Allreduce", err);
    }
    if (rc == TT_OK) {
        rc =
            tt_mpi_check(MPI_Allgather(&mine, 1, MPI_INT, lowest, 1, MPI_INT, tt_world_comm(world)),
                         "MPI_Allgather", err);
    }
    tt_wait_end(world, outer);
out:
    return rc;
}

/* Communicators of all lanes, for each use. Collective. */
static tt_code open_lanes(tt_node *node, tt_err *err)
{
    tt_code rc = TT_OK;
    tt_comms *comms = comms_of(node);
    for (int use = 0; use < TT_LANE_USES; use++) {
        MPI_Comm *lane = comms->lane[use] = tt_alloc(node->lanes, sizeof *lane, err);
        rc = lane == NULL ? err->code : rc;
        for (int l = 0; lane != NULL && l < node->lanes; l++) {
            lane[l] = MPI_COMM_NULL;
        }
    }
    TT_TRY(tt_agree(node->world, rc, err));
    for (int use = 0; use < TT_LANE_USES && node->count > 1; use++) {
        for (int l = 0; l < node->lanes; l++) {
            MPI_Comm *lane = &comms->lane[use][l];
            const int color = tt_node_stands(node, l) ? 0 : MPI_UNDEFINED;
            const char *outer = tt_wait_begin(node->world, "MPI_Comm_split");
            rc = tt_mpi_check(MPI_Comm_split(tt_world_comm(node->world), color, node->index, lane),
                              "MPI_Comm_split", err);
            tt_wait_end(node->world, outer);
            TT_TRY(rc);
            if (*lane != MPI_COMM_NULL) {
                TT_TRY(tt_mpi_check(MPI_Comm_set_errhandler(*lane, MPI_ERRORS_RETURN),
                                    "MPI_Comm_set_errhandler", err));
            }
        }
    }
out:
    return rc;
}

tt_code tt_node_open(tt_node *node, tt_world *world, int most, tt_err *err)
{
    tt_code rc = TT_OK;
    const bool alone = tt_alone(world);
    *node = (tt_node){.world = world,
                      .world_rank = alone ? 0 : world->rank,
                      .world_size = alone ? 1 : world->size};
    int *lowest = tt_alloc(node->world_size, sizeof *lowest, err);
    tt_comms *comms = tt_alloc(1, sizeof *comms, err);
    node->comms = comms;
    if (comms != NULL) {
        comms->node = MPI_COMM_NULL;
    }
    TT_TRY(tt_agree(world, lowest && comms ? TT_OK : err->code, err));
    TT_TRY(find_neighbours(node, most, lowest, err));
    TT_TRY(tt_agree(world, fill_tables(node, lowest, err), err));
    TT_TRY(open_lanes(node, err));
out:
    free(lowest);
    if (rc != TT_OK) {
        tt_node_close(node);
    }
    return rc;
}

void tt_node_close(tt_node *node)
{
    tt_comms *comms = comms_of(node);
    const char *outer = tt_wait_begin(node->world, "MPI_Win_free"); /* and in MPI_Comm_free */
    for (int i = 0; comms != NULL && i < comms->windows; i++) {
        MPI_Win_unlock_all(comms->window[i]);
        MPI_Win_free(&comms->window[i]);
    }
    for (int use = 0; comms != NULL && use < TT_LANE_USES; use++) {
        for (int l = 0; comms->lane[use] != NULL && l < node->lanes; l++) {
            if (comms->lane[use][l] != MPI_COMM_NULL) {
                MPI_Comm_free(&comms->lane[use][l]);
            }
        }
        free(comms->lane[use]);
    }
    if (comms != NULL && comms->node != MPI_COMM_NULL) {
        MPI_Comm_free(&comms->node);
    }
    tt_wait_end(node->world, outer);
    free(comms);
    free(node->at);
    *node = (tt_node){.world = NULL};
}

tt_code tt_node_window(tt_node *node, size_t bytes, bool once, void **of, tt_err *err)
{
    tt_code rc = TT_OK;
    tt_comms *comms = comms_of(node);
    assert(node->size > 1 && comms->windows < WINDOWS);
    MPI_Win *window = &comms->window[comms->windows];
    MPI_Info info = MPI_INFO_NULL;
    /* MPI promises no alignment; but a page lies at the start of a page wherever it is mapped, so each
     * rank finds the same bytes when it rounds up. */
    const size_t page = tt_size(sysconf(_SC_PAGESIZE)), whole = (bytes + 2 * page) / page * page;
    const MPI_Aint size = once && node->rank > 0 ? 0 : (MPI_Aint)whole;
    void *mine = NULL;
    const char *outer = tt_wait_begin(node->world, "MPI_Win_allocate_shared");
    TT_TRY(tt_mpi_check(MPI_Info_create(&info), "MPI_Info_create", err));
    /* A piece of its own for each rank, on pages of its own. */
    TT_TRY(tt_mpi_check(MPI_Info_set(info, "alloc_shared_noncontig", once ? "false" : "true"),
                        "MPI_Info_set", err));
    TT_TRY(tt_mpi_check(MPI_Win_allocate_shared(size, 1, info, comms->node, &mine, window),
                        "MPI_Win_allocate_shared", err));
    comms->windows++;
    TT_TRY(tt_mpi_check(MPI_Win_set_errhandler(*window, MPI_ERRORS_RETURN),
                        "MPI_Win_set_errhandler", err));
    TT_TRY(tt_mpi_check(MPI_Win_lock_all(MPI_MODE_NOCHECK, *window), "MPI_Win_lock_all", err));
    for (int j = 0; j < node->size; j++) {
        MPI_Aint there = 0;
        int unit = 0;
        TT_TRY(tt_mpi_check(MPI_Win_shared_query(*window, once ? 0 : j, &there, &unit, &of[j]),
                            "MPI_Win_shared_query", err));
        const size_t before = (page - (uintptr_t)of[j] % page) % page;
        if ((size_t)there < bytes + before) {
            rc = tt_fail(err, TT_EWORLD, "MPI_Win_allocate_shared gave %lld bytes, not %zu",
                         (long long)there, bytes + before);
            goto out;
        }
        of[j] = (unsigned char *)of[j] + before;
    }
out:
    if (info != MPI_INFO_NULL) {
        MPI_Info_free(&info);
    }
    tt_wait_end(node->world, outer);
    return rc;
}

/* Where Open MPI keeps the windows; other libraries keep them there too. */
static const char *window_folder(void)
{
    const char *named = getenv("OMPI_MCA_osc_sm_backing_directory");
    return named != NULL && named[0] != '\0' ? named : "/dev/shm";
}

tt_code tt_node_room(tt_node *node, size_t bytes, size_t once_bytes, tt_err *err)
{
    enum { SLACK = 1 << 20 }; /* what the windows need beside the pieces */
    struct statvfs there;
    const char *folder = window_folder();
    const double wanted = (double)bytes * node->size + (double)once_bytes + SLACK;
    tt_code rc = TT_OK;
    if (node->size > 1 && statvfs(folder, &there) != 0) {
        rc = tt_fail(err, TT_EWORLD,
                     "there is no %s, in which memory is shared; mount a tmpfs there", folder);
    } else if (node->size > 1) {
        char want[32], have[32];
        const double room = (double)there.f_bavail * (double)there.f_frsize;
        tt_human_bytes(wanted, want);
        tt_human_bytes(room, have);
        if (room < wanted) {
            rc = tt_fail(err, TT_EWORLD,
                         "%s has room for %s, and the ranks of a node would share %s; give it more "
                         "(mount -o remount,size=... %s; docker run --shm-size=...)",
                         folder, have, want, folder);
        }
    }
    return tt_agree(node->world, rc, err);
}

/* ---- flags ---- */

tt_code tt_flags_open(tt_flags *flags, tt_node *node, int count, tt_err *err)
{
    tt_code rc = TT_OK;
    const size_t bytes = tt_bytes(tt_max(count, 1), sizeof(uint64_t));
    *flags = (tt_flags){.node = node};
    flags->of = tt_alloc(node->size, sizeof *flags->of, err);
    if (flags->of != NULL && node->size == 1) {
        flags->of[0] = flags->own = tt_alloc(tt_max(count, 1), sizeof *flags->own, err);
    }
    rc = flags->of == NULL || (node->size == 1 && flags->own == NULL) ? err->code : TT_OK;
    TT_TRY(tt_agree(node->world, rc, err));
    if (node->size > 1) {
        TT_TRY(tt_node_window(node, bytes, false, (void **)flags->of, err));
    }
out:
    if (rc != TT_OK) {
        tt_flags_close(flags);
    }
    return rc;
}

void tt_flags_close(tt_flags *flags)
{
    free(flags->of);
    free(flags->own);
    *flags = (tt_flags){.node = NULL};
}

void tt_flags_set(const tt_flags *flags, int i, uint64_t value)
{
    uint64_t *flag = &flags->of[flags->node->rank][i];
    assert(*flag <= value);
    __atomic_store_n(flag, value, __ATOMIC_RELEASE);
}

bool tt_flags_all(const tt_flags *flags, int i, uint64_t value)
{
    for (int j = 0; j < flags->node->size; j++) {
        if (__atomic_load_n(&flags->of[j][i], __ATOMIC_ACQUIRE) < value) {
            return false;
        }
    }
    return true;
}

/* At first others are about to come; later they may need this processor. */
void tt_relax(int *turns)
{
    enum { SPIN = 200, YIELD = 2000 };
    const struct timespec nap = {.tv_nsec = 100000};
    ++*turns;
    if (*turns > YIELD) {
        nanosleep(&nap, NULL);
    } else if (*turns > SPIN) {
        sched_yield();
    }
}
