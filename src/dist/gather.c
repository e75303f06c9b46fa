/* gather.c: loads of weights. See gather.h.
 *
 * Deadlock: ranks order loads in the same sequence, and a load waits for places that others give up
 * when they order what comes there next, which is the same load. So the first load that has not begun
 * can begin once all have ordered it, and whoever waits for a group has ordered it.
 *
 * Owns places, requests. Reads spec; writes held. */
#include "tutti/dist/gather.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "dist/dist_impl.h"
#include "dist/spread.h"
#include "tutti/base/clock.h"
#include "tutti/base/memory.h"
#include "tutti/base/narrow.h"

enum { HERE, GIVEN_UP, PACKED, KINDS };

static int flag_of(int place, int kind)
{
    return place * KINDS + kind;
}

/* The MPI type that moves an element of `size` bytes without looking at it. */
static MPI_Datatype element_type(size_t size)
{
    assert(size == 1 || size == 2 || size == 4 || size == 8);
    return size == 1   ? MPI_UINT8_T
           : size == 2 ? MPI_UINT16_T
           : size == 4 ? MPI_UINT32_T
                       : MPI_UINT64_T;
}

static const tt_group_of_stages *group_of(const tt_gather *g, const tt_berth *place)
{
    return &g->spec.ring->group[place->group];
}

/* Does a load move anything between nodes? */
static bool travels(const tt_gather *g)
{
    return g->spec.exchange && g->spec.node->count > 1;
}

/* Does a load move anything at all? */
static bool moves(const tt_gather *g)
{
    return travels(g) || g->spec.piece != NULL;
}

static MPI_Request *requests_of(const tt_gather *g, int b)
{
    return (MPI_Request *)g->requests + tt_mul(b, g->spread->stood);
}

static tt_range bucket_of(const tt_gather *g, int b)
{
    return g->spec.buckets->bucket[b].range;
}

static unsigned char *held_at(const tt_gather *g, int b, int64_t flat)
{
    return (unsigned char *)g->spec.held +
           tt_bytes(tt_ring_at(g->spec.ring, b, flat), g->spec.size);
}

/* This rank's piece of the bucket, from where it is kept to where it is used. */
static void put_piece(const tt_gather *g, int b)
{
    const tt_gather_spec *s = &g->spec;
    const tt_range piece = s->cut->range[b];
    if (s->piece != NULL && piece.end > piece.first) {
        memcpy(held_at(g, b, piece.first),
               (const unsigned char *)s->piece + tt_bytes(s->cut->local[b], s->size),
               tt_bytes(piece.end - piece.first, s->size));
    }
}

static tt_code exchange(tt_gather *g, int b, int i, tt_err *err)
{
    const tt_gather_spec *s = &g->spec;
    const MPI_Datatype type = element_type(s->size);
    const MPI_Comm lane = tt_node_lane(s->node, TT_LANE_GATHER, g->spread->lane[i]);
    const int *counts = tt_spread_counts(g->spread, b, i);
    const int *offsets = tt_spread_offsets(g->spread, b, i);
    unsigned char *at = held_at(g, b, bucket_of(g, b).first);
    if (!s->overlap && s->node->lanes == 1) {
        const char *outer = tt_wait_begin(s->node->world, "MPI_Allgatherv");
        const tt_code rc = tt_mpi_check(
            MPI_Allgatherv(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, at, counts, offsets, type, lane),
            "MPI_Allgatherv", err);
        tt_wait_end(s->node->world, outer);
        return rc;
    }
    return tt_mpi_check(MPI_Iallgatherv(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, at, counts, offsets,
                                        type, lane, requests_of(g, b) + i),
                        "MPI_Iallgatherv", err);
}

static tt_code start(tt_gather *g, tt_berth *place, tt_err *err)
{
    tt_code rc = TT_OK;
    const tt_group_of_stages *group = group_of(g, place);
    for (int b = group->first_bucket; b < group->end_bucket; b++) {
        put_piece(g, b);
        if (moves(g)) {
            const tt_range range = bucket_of(g, b);
            tt_wire_launch(g->spec.node->world, tt_bytes(range.end - range.first, g->spec.size));
        }
        for (int i = 0; i < g->spread->stood && travels(g); i++) {
            TT_TRY(exchange(g, b, i, err));
        }
    }
    place->state = TT_PLACE_MOVES;
    g->started = place->load;
out:
    return rc;
}

/* Looks after a load on its way. */
static tt_code look(tt_gather *g, int p, tt_err *err)
{
    tt_code rc = TT_OK;
    tt_berth *place = &g->place[p];
    const tt_group_of_stages *group = group_of(g, place);
    const int buckets = group->end_bucket - group->first_bucket;
    int flag = 1;
    if (travels(g)) {
        TT_TRY(tt_mpi_check(MPI_Testall(buckets * g->spread->stood,
                                        requests_of(g, group->first_bucket), &flag,
                                        MPI_STATUSES_IGNORE),
                            "MPI_Testall", err));
    }
    if (flag) {
        for (int b = 0; b < buckets && moves(g); b++) {
            tt_wire_land(g->spec.node->world);
        }
        place->state = TT_PLACE_HERE;
        g->open--;
        tt_flags_set(&g->flags, flag_of(p, HERE), place->load);
    }
out:
    return rc;
}

/* Loads begin one after another, in the order of their numbers. */
static tt_code carry_on(tt_gather *g, tt_err *err)
{
    tt_code rc = TT_OK;
    bool moved = g->open > 0;
    while (moved) {
        moved = false;
        for (int p = 0; p < g->spec.ring->places; p++) {
            tt_berth *place = &g->place[p];
            if (place->load == g->started + 1 && place->state == TT_PLACE_WAITS &&
                (g->spec.ring->whole || /* the update comes after everybody's last look */
                 tt_flags_all(&g->flags, flag_of(p, GIVEN_UP), place->before))) {
                TT_TRY(start(g, place, err));
                moved = true;
            }
        }
    }
    for (int p = 0; p < g->spec.ring->places && g->open > 0; p++) {
        if (g->place[p].load > 0 && g->place[p].state == TT_PLACE_MOVES) {
            TT_TRY(look(g, p, err));
        }
    }
out:
    return rc;
}

static bool resident(const tt_gather *g, int group)
{
    const tt_berth *place = &g->place[g->spec.ring->group[group].place];
    return place->group == group && place->version == g->version;
}

/* This rank has no more use for what is at the group's place. */
static void order(tt_gather *g, int group)
{
    const int p = g->spec.ring->group[group].place;
    tt_berth *place = &g->place[p];
    assert(place->load == 0 || place->state == TT_PLACE_HERE);
    tt_flags_set(&g->flags, flag_of(p, GIVEN_UP), place->load);
    *place = (tt_berth){.group = group,
                        .load = ++g->loads,
                        .before = place->load,
                        .version = g->version,
                        .state = TT_PLACE_WAITS};
    g->open++;
}

/* ---- what callers see ---- */

tt_code tt_gather_open(tt_gather *g, const tt_gather_spec *spec, tt_err *err)
{
    tt_code rc = TT_OK;
    const int places = spec->ring->places;
    *g = (tt_gather){.spec = *spec};
    g->place = tt_alloc(places, sizeof *g->place, err);
    g->spread = tt_alloc(1, sizeof *g->spread, err);
    rc = g->place && g->spread ? tt_spread_make(g->spread, spec->node, spec->buckets, err)
                               : err->code;
    const int64_t requests = rc == TT_OK ? tt_mul(spec->buckets->count, g->spread->stood) : 0;
    if (rc == TT_OK) {
        g->requests = tt_alloc(requests, sizeof(MPI_Request), err);
        rc = g->requests ? TT_OK : err->code;
    }
    TT_TRY(tt_agree(spec->node->world, rc, err));
    for (int64_t i = 0; i < requests; i++) {
        ((MPI_Request *)g->requests)[i] = MPI_REQUEST_NULL;
    }
    for (int p = 0; p < places; p++) {
        g->place[p].group = -1;
    }
    TT_TRY(tt_flags_open(&g->flags, spec->node, KINDS * places, err));
out:
    if (rc != TT_OK) {
        tt_gather_close(g);
    }
    return rc;
}

void tt_gather_close(tt_gather *g)
{
    tt_err err;
    const char *outer = tt_wait_begin(g->spec.node->world, "for weights");
    for (int turns = 0; g->open > 0 && tt_gather_progress(g, &err) == TT_OK;) {
        tt_relax(&turns); /* calls that are on their way cannot be called back */
    }
    tt_wait_end(g->spec.node->world, outer);
    tt_flags_close(&g->flags);
    if (g->spread != NULL) {
        tt_spread_free(g->spread);
    }
    free(g->spread);
    free(g->place);
    free(g->requests);
    *g = (tt_gather){.place = NULL};
}

tt_code tt_gather_progress(tt_gather *g, tt_err *err)
{
    if (g->first.code != TT_OK || g->open == 0) {
        return tt_keep_first(&g->first, g->first.code, err);
    }
    tt_wire_enter(g->spec.node->world);
    const tt_code rc = carry_on(g, err);
    tt_wire_leave(g->spec.node->world);
    return tt_keep_first(&g->first, rc, err);
}

static bool is_there(const tt_gather *g, int p, int kind)
{
    const tt_berth *place = &g->place[p];
    return place->state == TT_PLACE_HERE &&
           (!g->spec.exchange || tt_flags_all(&g->flags, flag_of(p, kind), place->load));
}

/* Until every rank of the node has set this flag of the group's place. */
static tt_code wait_for(tt_gather *g, int group, int kind, tt_err *err)
{
    const int p = g->spec.ring->group[group].place;
    tt_code rc = g->first.code;
    if (rc == TT_OK && is_there(g, p, kind)) {
        return TT_OK;
    }
    tt_wire_enter(g->spec.node->world);
    const char *outer = tt_wait_begin(g->spec.node->world, "for weights");
    for (int turns = 0; rc == TT_OK && !is_there(g, p, kind); tt_relax(&turns)) {
        rc = carry_on(g, err);
        tt_meanwhile_do(&g->spec.meanwhile);
    }
    tt_wait_end(g->spec.node->world, outer);
    tt_wire_leave(g->spec.node->world);
    return tt_keep_first(&g->first, rc, err);
}

tt_code tt_gather_begin(tt_gather *g, tt_err *err)
{
    const tt_ring *ring = g->spec.ring;
    assert(g->open == 0);
    tt_wire_enter(g->spec.node->world);
    g->version++;
    for (int group = 0; ring->whole && group < ring->count; group++) {
        order(g, group);
    }
    tt_code rc = g->first.code == TT_OK ? carry_on(g, err) : g->first.code;
    for (int group = 0; ring->whole && !g->spec.overlap && group < ring->count && rc == TT_OK;
         group++) {
        rc = wait_for(g, group, HERE, err);
    }
    tt_wire_leave(g->spec.node->world);
    return tt_keep_first(&g->first, rc, err);
}

/* A load that nobody came to need must have ended before the next. */
static tt_code vacate(tt_gather *g, int p, tt_err *err)
{
    return g->place[p].load > 0 ? wait_for(g, g->place[p].group, HERE, err) : TT_OK;
}

tt_code tt_gather_need(tt_gather *g, int group, bool *fresh, tt_err *err)
{
    tt_code rc = TT_OK;
    const int p = g->spec.ring->group[group].place;
    const tt_berth *place = &g->place[p];
    if (!resident(g, group)) {
        TT_TRY(vacate(g, p, err));
        order(g, group);
    }
    *fresh = !place->packed;
    TT_TRY(*fresh ? wait_for(g, group, HERE, err) : TT_OK);
out:
    return rc;
}

tt_code tt_gather_packed(tt_gather *g, int group, tt_err *err)
{
    const int p = g->spec.ring->group[group].place;
    g->place[p].packed = true;
    tt_flags_set(&g->flags, flag_of(p, PACKED), g->place[p].load);
    return wait_for(g, group, PACKED, err);
}

tt_code tt_gather_ahead(tt_gather *g, int group, int now, tt_err *err)
{
    tt_code rc = TT_OK;
    const int p = g->spec.ring->group[group].place;
    if (resident(g, group) || !g->spec.overlap || p == g->spec.ring->group[now].place) {
        return tt_keep_first(&g->first, g->first.code, err);
    }
    TT_TRY(vacate(g, p, err));
    order(g, group);
    rc = tt_gather_progress(g, err);
out:
    return rc;
}

/* ---- the blocking gather of what is held in part ---- */

tt_code tt_gather_held(tt_world *world, const tt_buckets *buckets, const tt_shard *held,
                       void *array, size_t size, tt_err *err)
{
    if (tt_alone(world)) {
        return TT_OK;
    }
    tt_code rc = TT_OK;
    MPI_Datatype type = element_type(size);
    int *count = world->counts, *offset = world->counts + world->size;
    for (int i = 0; i < buckets->count; i++) {
        const tt_range bucket = buckets->bucket[i].range;
        const int64_t first = tt_shard_before(held, bucket.first);
        const int64_t n = tt_shard_before(held, bucket.end) - first;
        if (n == 0) {
            continue;
        }
        for (int r = 0; r < world->size; r++) {
            const tt_range piece = tt_cut(bucket.end - bucket.first, r, world->size);
            const int64_t begin = tt_shard_before(held, bucket.first + piece.first);
            count[r] = tt_int(tt_shard_before(held, bucket.first + piece.end) - begin);
            offset[r] = tt_int(begin - first);
        }
        unsigned char *at = (unsigned char *)array + tt_bytes(first, size);
        const double begin = tt_wire_begin(world, "MPI_Allgatherv");
        TT_TRY(tt_mpi_check(MPI_Allgatherv(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, at, count, offset,
                                           type, tt_world_comm(world)),
                            "MPI_Allgatherv", err));
        tt_wire_add(world, tt_bytes(n, size), begin);
    }
out:
    return rc;
}
