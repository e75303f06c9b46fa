/* collective.c: one row a collective. See collective.h.
 *
 * A new one is a function and a row. In place is how the engine sums, because a second gradient would
 * be as large as the first; MPI libraries may know a faster way where there are two, so that is a row
 * of its own.
 *
 * Owns the requests of an exchange. Reads tt_buckets; next: cli/bench_allreduce.c. */
#include "tutti/dist/collective.h"

#include <assert.h>
#include <stdlib.h>

#include "dist/dist_impl.h"
#include "tutti/base/clock.h"
#include "tutti/base/memory.h"
#include "tutti/base/narrow.h"
#include "tutti/dist/gather.h"
#include "tutti/dist/reduce.h"

static int length(const tt_bucket *bucket)
{
    return tt_int(bucket->range.end - bucket->range.first);
}

static tt_code run_allreduce(tt_exchange *x, tt_err *err)
{
    tt_code rc = TT_OK;
    for (int i = x->buckets->count - 1; i >= 0; i--) {
        const tt_bucket *bucket = &x->buckets->bucket[i];
        TT_TRY(tt_allreduce(x->world, x->vector + bucket->range.first, length(bucket),
                            sizeof(float), MPI_FLOAT, MPI_SUM, err));
    }
out:
    return rc;
}

/* Starts one a bucket, from the last to the first as backward does, and waits for all. */
static tt_code start_all(tt_exchange *x, bool in_place, tt_err *err)
{
    tt_code rc = TT_OK;
    MPI_Request *request = x->requests;
    const double start = tt_wire_begin(x->world, "MPI_Iallreduce");
    for (int i = x->buckets->count - 1; i >= 0; i--) {
        const tt_bucket *bucket = &x->buckets->bucket[i];
        float *from = x->vector + bucket->range.first, *to = x->other + bucket->range.first;
        TT_TRY(tt_mpi_check(MPI_Iallreduce(in_place ? MPI_IN_PLACE : from, in_place ? from : to,
                                           length(bucket), MPI_FLOAT, MPI_SUM,
                                           tt_world_comm(x->world), &request[i]),
                            "MPI_Iallreduce", err));
    }
    TT_TRY(tt_mpi_check(MPI_Waitall(x->buckets->count, request, MPI_STATUSES_IGNORE), "MPI_Waitall",
                        err));
    for (int i = 0; i < x->buckets->count; i++) {
        const double since = i == 0 ? start : tt_seconds(); /* all of the time, once */
        tt_wire_add(x->world, tt_bytes(length(&x->buckets->bucket[i]), sizeof(float)), since);
    }
out:
    return rc;
}

static tt_code run_iallreduce(tt_exchange *x, tt_err *err)
{
    return start_all(x, true, err);
}

static tt_code run_iallreduce_apart(tt_exchange *x, tt_err *err)
{
    return start_all(x, false, err);
}

static tt_code run_reduce_scatter(tt_exchange *x, tt_err *err)
{
    tt_code rc = TT_OK;
    int *count = x->world->counts;
    for (int i = x->buckets->count - 1; i >= 0; i--) {
        const tt_bucket *bucket = &x->buckets->bucket[i];
        const int64_t first = bucket->range.first, n = length(bucket);
        for (int r = 0; r < x->world->size; r++) {
            const tt_range piece = tt_cut(n, r, x->world->size);
            count[r] = tt_int(piece.end - piece.first);
        }
        const int64_t mine = tt_cut(n, x->world->rank, x->world->size).first;
        const double start = tt_wire_begin(x->world, "MPI_Reduce_scatter");
        TT_TRY(tt_mpi_check(MPI_Reduce_scatter(x->vector + first, x->other + first + mine, count,
                                               MPI_FLOAT, MPI_SUM, tt_world_comm(x->world)),
                            "MPI_Reduce_scatter", err));
        tt_wire_add(x->world, tt_bytes(n, sizeof(float)), start);
    }
out:
    return rc;
}

static tt_code run_allgather(tt_exchange *x, tt_err *err)
{
    tt_range all = {0, 0};
    int64_t local = 0;
    if (x->buckets->count > 0) {
        all.end = x->buckets->bucket[x->buckets->count - 1].range.end;
    }
    const tt_shard held = {.count = 1, .range = &all, .local = &local, .elements = all.end};
    return tt_gather_held(x->world, x->buckets, &held, x->vector, sizeof(float), err);
}

/* ---- the engine's own ---- */

typedef enum engine_kind { DIRECT, WINDOW_ALL, WINDOW_PIECES, ENGINES } engine_kind;

/* A reduction over vectors, of nodes of one rank or of all that share a machine. */
typedef struct engine {
    tt_node node;
    tt_ring ring;
    tt_shard cut;
    void **held;   /* [n] owned */
    void *staging; /* owned */
    tt_reduce reduce;
    bool open;
} engine;

typedef struct tt_engines {
    engine engine[ENGINES]; /* those in a window are not open where there is no room for it */
} tt_engines;

static void engine_close(engine *e)
{
    if (e->open) {
        tt_reduce_close(&e->reduce);
    }
    tt_ring_free(&e->ring);
    tt_shard_free(&e->cut);
    free(e->held);
    free(e->staging);
    tt_node_close(&e->node);
    *e = (engine){.open = false};
}

/* Over the exchange's vector, or over a window of its own, if there is room. Collective. */
static tt_code engine_open(engine *e, const tt_exchange *x, engine_kind kind, tt_err *err)
{
    tt_code rc = TT_OK;
    tt_err room;
    const int64_t n =
        x->buckets->count > 0 ? x->buckets->bucket[x->buckets->count - 1].range.end : 0;
    size_t staging = 0;
    const size_t bytes = tt_bytes(tt_max(n, 1), sizeof(float));
    TT_TRY(tt_node_open(&e->node, x->world, kind == DIRECT ? 1 : 0, err));
    if (kind != DIRECT &&
        (e->node.lanes == 1 || tt_node_room(&e->node, bytes, 0, &room) != TT_OK)) {
        goto out;
    }
    rc = tt_ring_make(&e->ring, x->buckets, &n, 1, true, err);
    if (rc == TT_OK) {
        rc = tt_shard_make(&e->cut, x->buckets, true, e->node.world_rank, e->node.world_size, err);
    }
    if (rc == TT_OK) {
        rc = tt_reduce_staging(&staging, &e->node, x->buckets, kind != WINDOW_ALL, sizeof(float),
                               err);
    }
    e->held = tt_alloc(e->node.size, sizeof *e->held, err);
    e->staging = tt_alloc(tt_count(staging), 1, err);
    rc = rc == TT_OK && (!e->held || !e->staging) ? err->code : rc;
    TT_TRY(tt_agree(x->world, rc, err));
    e->held[0] = x->vector;
    if (e->node.size > 1) {
        TT_TRY(tt_node_window(&e->node, bytes, false, e->held, err));
    }
    const tt_reduce_spec spec = {.node = &e->node,
                                 .buckets = x->buckets,
                                 .ring = &e->ring,
                                 .cut = &e->cut,
                                 .scatter = kind != WINDOW_ALL,
                                 .all = kind == WINDOW_ALL,
                                 .held = e->held,
                                 .staging = staging > 0 ? e->staging : NULL,
                                 .threads = 1,
                                 .overlap = true};
    TT_TRY(tt_reduce_open(&e->reduce, &spec, err));
    e->open = true;
out:
    return rc;
}

static tt_code run_engine(tt_exchange *x, engine_kind kind, tt_err *err)
{
    tt_reduce *reduce = &x->engines->engine[kind].reduce;
    tt_reduce_begin(reduce, false);
    return tt_reduce_finish(reduce, err);
}

static tt_code run_direct(tt_exchange *x, tt_err *err)
{
    return run_engine(x, DIRECT, err);
}

/* Nobody goes on before all have read what is theirs: a step's agreement, here a part of the time. */
static tt_code run_window_all(tt_exchange *x, tt_err *err)
{
    const tt_code rc = run_engine(x, WINDOW_ALL, err);
    return rc == TT_OK ? tt_barrier(x->world, err) : rc;
}

static tt_code run_window_pieces(tt_exchange *x, tt_err *err)
{
    const tt_code rc = run_engine(x, WINDOW_PIECES, err);
    return rc == TT_OK ? tt_barrier(x->world, err) : rc;
}

const tt_collective tt_collectives[TT_COLLECTIVES] = {
    {"MPI_Allreduce", run_allreduce, TT_SUMMED, 2, false},
    {"MPI_Iallreduce", run_iallreduce, TT_SUMMED, 2, false},
    {"MPI_Iallreduce, apart", run_iallreduce_apart, TT_APART, 2, false},
    {"node's memory", run_window_all, TT_SUMMED, 2, true},
    {"MPI_Reduce_scatter", run_reduce_scatter, TT_PIECES, 1, false},
    {"pieces, direct", run_direct, TT_IN_PLACE, 1, false},
    {"node's memory, pieces", run_window_pieces, TT_IN_PLACE, 1, true},
    {"MPI_Allgatherv", run_allgather, TT_GATHERED, 1, false},
};

tt_code tt_exchange_open(tt_exchange *x, tt_world *world, const tt_buckets *buckets, float *vector,
                         float *other, tt_err *err)
{
    tt_code rc = TT_OK;
    *x = (tt_exchange){.world = world, .buckets = buckets, .vector = vector, .other = other};
    x->requests = tt_alloc(tt_max(1, buckets->count), sizeof(MPI_Request), err);
    x->engines = tt_alloc(1, sizeof *x->engines, err);
    TT_TRY(tt_agree(world, x->requests && x->engines ? TT_OK : err->code, err));
    for (int i = 0; i < ENGINES; i++) {
        TT_TRY(engine_open(&x->engines->engine[i], x, (engine_kind)i, err));
    }
out:
    return rc;
}

void tt_exchange_close(tt_exchange *x)
{
    for (int i = 0; x->engines != NULL && i < ENGINES; i++) {
        engine_close(&x->engines->engine[i]);
    }
    free(x->engines);
    free(x->requests);
    *x = (tt_exchange){.world = NULL};
}

static const engine *engine_of(const tt_collective *c, const tt_exchange *x)
{
    return &x->engines->engine[c->outcome == TT_SUMMED ? WINDOW_ALL : WINDOW_PIECES];
}

bool tt_collective_possible(const tt_collective *c, const tt_exchange *x)
{
    return !c->window || engine_of(c, x)->open;
}

/* Where this rank's vector is. */
static float *vector_of(const tt_collective *c, const tt_exchange *x)
{
    const engine *e = engine_of(c, x);
    return c->window ? e->held[e->node.rank] : x->vector;
}

/* ---- what goes in, and what must come out ---- */

enum { VALUES = 32 }; /* so small that sums over 2^19 ranks are whole in FP32 */

static float value(int rank, int64_t element)
{
    return (float)((7 * element + 3 * (int64_t)rank) % VALUES);
}

float *tt_collective_result(const tt_collective *c, const tt_exchange *x)
{
    return c->outcome == TT_APART || c->outcome == TT_PIECES ? x->other : vector_of(c, x);
}

void tt_collective_fill(const tt_collective *c, tt_exchange *x)
{
    const int rank = x->world->rank, R = x->world->size;
    float *vector = vector_of(c, x);
    for (int i = 0; i < x->buckets->count; i++) {
        const tt_range range = x->buckets->bucket[i].range;
        const tt_range piece = tt_cut(range.end - range.first, rank, R);
        for (int64_t e = range.first; e < range.end; e++) {
            const bool mine = e - range.first >= piece.first && e - range.first < piece.end;
            vector[e] = c->outcome != TT_GATHERED || mine ? value(rank, e) : -1;
            x->other[e] = -1;
        }
    }
}

int64_t tt_collective_wrong(const tt_collective *c, const tt_exchange *x)
{
    const int R = x->world->size, rank = x->world->rank;
    const float *result = tt_collective_result(c, x);
    float sum[VALUES] = {0}; /* of elements 0 to VALUES - 1, and so of all that differ by VALUES */
    int64_t wrong = 0;
    for (int e = 0; e < VALUES; e++) {
        for (int r = 0; r < R; r++) {
            sum[e] += value(r, e);
        }
    }
    for (int i = 0; i < x->buckets->count; i++) {
        const tt_range range = x->buckets->bucket[i].range;
        for (int r = 0; r < R; r++) {
            const tt_range piece = tt_cut(range.end - range.first, r, R);
            const bool other = c->outcome == TT_PIECES && r != rank;
            if (c->outcome == TT_IN_PLACE && r != rank) {
                continue; /* what is left there is nobody's */
            }
            for (int64_t e = range.first + piece.first; e < range.first + piece.end; e++) {
                const float wanted = c->outcome == TT_GATHERED ? value(r, e)
                                     : other                   ? -1
                                                               : sum[e % VALUES];
                wrong += result[e] != wanted;
            }
        }
    }
    return wrong;
}
