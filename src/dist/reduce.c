/* reduce.c: buckets on their way from gradients to sums. See reduce.h.
 *
 * A share is what this rank adds up of a bucket over the ranks of its node. Of an ALL bucket that is
 * one of `full_lanes` cuts of it, for the ranks that stand for one of these lanes. Of a SCATTER bucket
 * it is, for each lane that this rank stands for, the pieces of that lane's ranks in all nodes, one
 * after another; where a node is one rank these are the bucket as it lies, elsewhere they go to staging.
 *
 * Between nodes a SCATTER bucket goes piece by piece, from everyone who has a sum for it straight to the
 * rank whose it is, which adds them up in the order of nodes. That is as little traffic as there can be,
 * and all of it can be under way at once. Open MPI's MPI_Ireduce_scatter sends everything to one rank
 * and back: measured at 1 Gbit/s, three times as long on two hosts and on four.
 *
 * Deadlock: buckets come in one order on every rank, and a rank that waits, for a bucket or for a place,
 * has told its node of all buckets above it and goes on with its share of them; so the uppermost one
 * that is not done can always go on. MPI's blocking calls are made only where nobody shares memory:
 * there nothing but the order of a rank's own program decides when it makes them.
 *
 * Reads spec; writes sums. */
#include "tutti/dist/reduce.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "dist/dist_impl.h"
#include "dist/spread.h"
#include "dist/sum.h"
#include "tutti/base/clock.h"
#include "tutti/base/memory.h"
#include "tutti/base/narrow.h"

/* Buckets between nodes at a time: enough to keep a wire busy, and MPI has a buffer for each. */
enum { AHEAD = 2 };

/* ---- geometry ---- */

static size_t element_bytes(const tt_reduce *r)
{
    return r->spec.fixed ? sizeof(int64_t) : sizeof(float);
}

static int64_t bucket_length(const tt_buckets *buckets, int b)
{
    return buckets->bucket[b].range.end - buckets->bucket[b].range.first;
}

/* Do sums for other ranks of a SCATTER bucket go to staging? */
static bool stages_sums(const tt_node *node)
{
    return node->count > 1 && node->lanes > 1;
}

/* Elements of one of the AHEAD parts of staging: of what is sent, where it does not go as it lies, and
 * of what is received, for each node. */
typedef struct stage_sizes {
    int64_t sent, received;
} stage_sizes;

static stage_sizes sizes_of(const tt_node *node, const tt_spread *spread, const tt_buckets *buckets)
{
    stage_sizes most = {0, 0};
    for (int b = 0; b < buckets->count && node->count > 1; b++) {
        const int64_t share = spread->share[spread->like[b]];
        most.sent = node->lanes > 1 ? tt_max(most.sent, share) : 0;
        most.received = tt_max(most.received, tt_spread_counts(spread, b, 0)[node->index]);
    }
    most.sent = tt_round_up(most.sent, TT_CUT);
    most.received = tt_round_up(most.received, TT_CUT);
    return most;
}

tt_code tt_reduce_staging(size_t *bytes, const tt_node *node, const tt_buckets *buckets,
                          bool scatter, size_t size, tt_err *err)
{
    tt_code rc = TT_OK;
    tt_spread spread = {.nodes = 0};
    *bytes = 0;
    if (scatter && node->count > 1) {
        TT_TRY(tt_spread_make(&spread, node, buckets, err));
        const stage_sizes sizes = sizes_of(node, &spread, buckets);
        *bytes = AHEAD * tt_bytes(sizes.sent + tt_mul(sizes.received, node->count), size);
    }
out:
    tt_spread_free(&spread);
    return rc;
}

/* Requests of a bucket: one of an allreduce, or of the pieces that come and go. */
static int requests_a_bucket(const tt_reduce *r)
{
    const tt_node *node = r->spec.node;
    return r->spec.scatter ? tt_int(tt_mul(node->count, r->spread->stood + 1)) : 1;
}

static MPI_Request *requests_of(const tt_reduce *r, int b)
{
    return (MPI_Request *)r->requests + tt_mul(b % AHEAD, requests_a_bucket(r));
}

/* Where offset `at` of bucket b is held by rank j of the node. */
static unsigned char *held_at(const tt_reduce *r, int j, int b, int64_t at)
{
    const int64_t flat = r->spec.buckets->bucket[b].range.first + at;
    return (unsigned char *)r->spec.held[j] +
           tt_bytes(tt_ring_at(r->spec.ring, b, flat), element_bytes(r));
}

/* Where the sums of this rank's piece of bucket b go. */
static unsigned char *sums_at(const tt_reduce *r, int b)
{
    const tt_reduce_spec *s = &r->spec;
    if (s->piece != NULL) {
        return (unsigned char *)s->piece + tt_bytes(s->cut->local[b], element_bytes(r));
    }
    const int64_t first = s->cut->range[b].first - s->buckets->bucket[b].range.first;
    return held_at(r, s->node->rank, b, first);
}

static int ready_flag(int b)
{
    return 2 * b;
}

/* Nobody but this rank will read its memory of the bucket any more; in ALL, its share is there too. */
static int read_flag(int b)
{
    return 2 * b + 1;
}

/* ---- sums ---- */

/* Adds up offsets `range` of bucket b over the ranks of the node. */
static void sum_node(const tt_reduce *r, int b, tt_range range, void *to, bool add)
{
    const int n = r->spec.node->size;
    void **from = r->from;
    for (int j = 0; j < n; j++) {
        from[j] = held_at(r, j, b, range.first);
    }
    if (range.end > range.first && (n > 1 || add || to != from[0])) {
        tt_sum_arrays(to, from, n, r->spec.fixed, add, range.end - range.first, r->spec.threads);
    }
}

/* ---- from ready to summed and sent ---- */

static tt_code send_all(tt_reduce *r, int b, void *data, int64_t count, MPI_Comm lane, tt_err *err)
{
    MPI_Request *request = requests_of(r, b);
    const MPI_Datatype type = r->spec.fixed ? MPI_INT64_T : MPI_FLOAT;
    if (r->blocks[b]) {
        const char *outer = tt_wait_begin(r->spec.node->world, "MPI_Allreduce");
        const tt_code rc =
            tt_mpi_check(MPI_Allreduce(MPI_IN_PLACE, data, tt_int(count), type, MPI_SUM, lane),
                         "MPI_Allreduce", err);
        tt_wait_end(r->spec.node->world, outer);
        return rc;
    }
    return tt_mpi_check(
        MPI_Iallreduce(MPI_IN_PLACE, data, tt_int(count), type, MPI_SUM, lane, request),
        "MPI_Iallreduce", err);
}

static tt_range all_share(const tt_reduce *r, int b)
{
    const tt_node *node = r->spec.node;
    const int64_t n = bucket_length(r->spec.buckets, b);
    const int lanes = node->full_lanes;
    return node->rank < lanes ? tt_cut(n, node->rank, lanes) : (tt_range){n, n};
}

static tt_code start_all(tt_reduce *r, int b, tt_err *err)
{
    const tt_node *node = r->spec.node;
    const tt_range share = all_share(r, b);
    unsigned char *mine = held_at(r, node->rank, b, share.first);
    sum_node(r, b, share, mine, false);
    if (node->count == 1 || node->rank >= node->full_lanes) {
        return TT_OK;
    }
    return send_all(r, b, mine, share.end - share.first,
                    tt_node_lane(node, TT_LANE_REDUCE, node->rank), err);
}

/* Where this rank's share of bucket b goes on to the lanes from. */
static unsigned char *share_at(const tt_reduce *r, int b)
{
    const tt_reduce_spec *s = &r->spec;
    if (!stages_sums(s->node)) {
        return held_at(r, s->node->rank, b, 0); /* the bucket as it lies */
    }
    return (unsigned char *)s->staging + tt_bytes(b % AHEAD * r->sent, element_bytes(r));
}

/* Where node m's sums of this rank's piece of bucket b arrive. */
static unsigned char *received_at(const tt_reduce *r, int b, int m)
{
    const tt_reduce_spec *s = &r->spec;
    const int64_t at = AHEAD * r->sent + (b % AHEAD * s->node->count + m) * r->received;
    return (unsigned char *)s->staging + tt_bytes(at, element_bytes(r));
}

/* The pieces of lane number i start for their ranks, and this rank's for it; `first` is where they
 * lie. */
static tt_code exchange(tt_reduce *r, int b, int i, unsigned char *first, MPI_Request **request,
                        tt_err *err)
{
    enum { TAGS = 32768 }; /* that every MPI has; as many buckets on, the ones before are done */
    tt_code rc = TT_OK;
    const tt_node *node = r->spec.node;
    const MPI_Datatype type = r->spec.fixed ? MPI_INT64_T : MPI_FLOAT;
    const MPI_Comm lane = tt_node_lane(node, TT_LANE_REDUCE, r->spread->lane[i]);
    const int *count = tt_spread_counts(r->spread, b, i);
    for (int m = 0; m < node->count; m++) {
        const int mine = i == 0 ? count[node->index] : 0;
        if (m != node->index && mine > 0) {
            TT_TRY(tt_mpi_check(
                MPI_Irecv(received_at(r, b, m), mine, type, m, b % TAGS, lane, (*request)++),
                "MPI_Irecv", err));
        }
    }
    for (int m = 0; m < node->count; m++) {
        if (m != node->index && count[m] > 0) {
            TT_TRY(tt_mpi_check(MPI_Isend(first, count[m], type, m, b % TAGS, lane, (*request)++),
                                "MPI_Isend", err));
        }
        first += tt_bytes(count[m], element_bytes(r));
    }
out:
    return rc;
}

static tt_code start_scatter(tt_reduce *r, int b, tt_err *err)
{
    tt_code rc = TT_OK;
    const tt_node *node = r->spec.node;
    const tt_spread *spread = r->spread;
    MPI_Request *request = requests_of(r, b);
    if (node->count == 1) { /* the share is this rank's own piece, and complete */
        const int first = tt_spread_offsets(spread, b, 0)[0];
        const tt_range piece = {first, first + tt_spread_counts(spread, b, 0)[0]};
        sum_node(r, b, piece, sums_at(r, b), r->add);
        goto out;
    }
    unsigned char *to = share_at(r, b);
    for (int i = 0; i < spread->stood; i++) {
        const int *count = tt_spread_counts(spread, b, i),
                  *offset = tt_spread_offsets(spread, b, i);
        unsigned char *first = to;
        for (int m = 0; m < node->count; m++) {
            if (stages_sums(node)) {
                sum_node(r, b, (tt_range){offset[m], offset[m] + count[m]}, to, false);
            }
            to += tt_bytes(count[m], element_bytes(r));
        }
        TT_TRY(exchange(r, b, i, first, &request, err));
    }
out:
    return rc;
}

static bool may_start(const tt_reduce *r, int b)
{
    const bool room = r->spec.node->count == 1 || r->arrived - b < AHEAD;
    return b > r->ready && room && tt_flags_all(&r->flags, ready_flag(b), r->epoch);
}

/* ---- from sent to done ---- */

static tt_code test(tt_reduce *r, int b, bool *here, tt_err *err)
{
    int flag = 1;
    tt_code rc = TT_OK;
    if (r->spec.node->count > 1) {
        rc = tt_mpi_check(
            MPI_Testall(requests_a_bucket(r), requests_of(r, b), &flag, MPI_STATUSES_IGNORE),
            "MPI_Testall", err);
    }
    *here = rc == TT_OK && flag != 0;
    return rc;
}

/* Adds up what has come from the nodes, this one's own in its turn. */
static void add_received(tt_reduce *r, int b)
{
    const tt_node *node = r->spec.node;
    const int *count = tt_spread_counts(r->spread, b, 0);
    const int mine = count[node->index];
    unsigned char *own = share_at(r, b);
    for (int m = 0; m < node->index; m++) {
        own += tt_bytes(count[m], element_bytes(r));
    }
    for (int m = 0; m < node->count; m++) {
        r->from[m] = m == node->index ? own : received_at(r, b, m);
    }
    if (mine > 0) {
        tt_sum_arrays(sums_at(r, b), r->from, node->count, r->spec.fixed, r->add, mine,
                      r->spec.threads);
    }
}

/* What this rank needs of an ALL bucket and others of its node have. */
static void fetch(tt_reduce *r, int b)
{
    const tt_reduce_spec *s = &r->spec;
    const tt_node *node = s->node;
    const int64_t n = bucket_length(s->buckets, b), begin = s->buckets->bucket[b].range.first;
    const tt_range need =
        s->all ? (tt_range){0, n}
               : (tt_range){s->cut->range[b].first - begin, s->cut->range[b].end - begin};
    const int lanes = node->full_lanes;
    for (int l = 0; l < lanes && node->size > 1; l++) {
        const tt_range share = tt_cut(n, l, lanes);
        const tt_range part = {tt_max(need.first, share.first), tt_min(need.end, share.end)};
        if (l != node->rank && part.end > part.first) {
            memcpy(held_at(r, node->rank, b, part.first), held_at(r, l, b, part.first),
                   tt_bytes(part.end - part.first, element_bytes(r)));
        }
    }
}

/* Every part of it for every bucket that is due, in order; one turn. */
static tt_code carry_on(tt_reduce *r, tt_err *err)
{
    tt_code rc = TT_OK;
    const tt_reduce_spec *s = &r->spec;
    for (; r->summed >= 0 && may_start(r, r->summed); r->summed--) {
        TT_TRY((s->scatter ? start_scatter : start_all)(r, r->summed, err));
        if (s->scatter && (s->node->count == 1 || stages_sums(s->node))) { /* of what is held */
            tt_flags_set(&r->flags, read_flag(r->summed), r->epoch);
        }
    }
    for (; r->arrived > r->summed; r->arrived--) {
        bool here = true;
        TT_TRY(test(r, r->arrived, &here, err));
        if (!here) {
            break;
        }
        if (s->scatter && s->node->count > 1) {
            add_received(r, r->arrived);
        }
        tt_flags_set(&r->flags, read_flag(r->arrived), r->epoch);
    }
    for (; r->done > r->arrived; r->done--) {
        if (!s->scatter && !tt_flags_all(&r->flags, read_flag(r->done), r->epoch)) {
            break;
        }
        if (!s->scatter) {
            fetch(r, r->done);
        }
        tt_wire_land(s->node->world);
    }
out:
    return rc;
}

static const char waits[] = "for gradients";

/* One turn of waiting. */
static tt_code wait_on(tt_reduce *r, int *turns, tt_err *err)
{
    const tt_code rc = carry_on(r, err);
    tt_meanwhile_do(&r->spec.meanwhile);
    tt_relax(turns);
    return rc;
}

/* ---- what callers see ---- */

tt_code tt_reduce_open(tt_reduce *r, const tt_reduce_spec *spec, tt_err *err)
{
    tt_code rc = TT_OK;
    const int buckets = spec->buckets->count;
    *r = (tt_reduce){.spec = *spec, .ready = -1, .summed = -1, .arrived = -1, .done = -1};
    r->spread = tt_alloc(1, sizeof *r->spread, err);
    r->blocks = tt_alloc(buckets, sizeof *r->blocks, err);
    r->told = tt_alloc(buckets, sizeof *r->told, err);
    r->from = tt_alloc(tt_max(spec->node->size, spec->node->count), sizeof *r->from, err);
    rc = r->spread && r->blocks && r->told && r->from
             ? tt_spread_make(r->spread, spec->node, spec->buckets, err)
             : err->code;
    const int64_t requests = rc == TT_OK ? tt_mul(AHEAD, requests_a_bucket(r)) : 0;
    if (rc == TT_OK) {
        r->requests = tt_alloc(requests, sizeof(MPI_Request), err);
        rc = r->requests ? TT_OK : err->code;
    }
    TT_TRY(tt_agree(spec->node->world, rc, err));
    const stage_sizes sizes = sizes_of(spec->node, r->spread, spec->buckets);
    for (int b = 0; b < buckets; b++) {
        r->blocks[b] = !spec->overlap && tt_reduce_may_block(r);
    }
    r->sent = sizes.sent;
    r->received = sizes.received;
    for (int64_t i = 0; i < requests; i++) {
        ((MPI_Request *)r->requests)[i] = MPI_REQUEST_NULL;
    }
    TT_TRY(tt_flags_open(&r->flags, spec->node, 2 * buckets, err));
out:
    if (rc != TT_OK) {
        tt_reduce_close(r);
    }
    return rc;
}

void tt_reduce_close(tt_reduce *r)
{
    tt_flags_close(&r->flags);
    if (r->spread != NULL) {
        tt_spread_free(r->spread);
    }
    free(r->spread);
    free(r->blocks);
    free(r->told);
    free(r->from);
    free(r->requests);
    *r = (tt_reduce){.told = NULL};
}

bool tt_reduce_may_block(const tt_reduce *r)
{
    const tt_node *node = r->spec.node;
    return !r->spec.scatter && node->lanes == 1 && node->count > 1;
}

void tt_reduce_begin(tt_reduce *r, bool add)
{
    assert(r->done == -1);
    const int last = r->spec.buckets->count - 1;
    r->ready = r->summed = r->arrived = r->done = last;
    r->add = add;
    r->epoch++;
}

tt_code tt_reduce_ready(tt_reduce *r, int stage, tt_err *err)
{
    const tt_buckets *buckets = r->spec.buckets;
    tt_wire_enter(r->spec.node->world);
    for (; r->ready >= 0 && buckets->bucket[r->ready].last_stage >= stage; r->ready--) {
        r->told[r->ready] = r->epoch;
        tt_flags_set(&r->flags, ready_flag(r->ready), r->epoch);
        tt_wire_launch(r->spec.node->world,
                       tt_bytes(bucket_length(buckets, r->ready), element_bytes(r)));
    }
    tt_code rc = r->first.code == TT_OK ? carry_on(r, err) : r->first.code;
    const char *outer = tt_wait_begin(r->spec.node->world, waits);
    for (int turns = 0; rc == TT_OK && !r->spec.overlap && r->done > r->ready;) {
        rc = wait_on(r, &turns, err);
    }
    tt_wait_end(r->spec.node->world, outer);
    tt_wire_leave(r->spec.node->world);
    return tt_keep_first(&r->first, rc, err);
}

tt_code tt_reduce_progress(tt_reduce *r, tt_err *err)
{
    if (r->first.code != TT_OK || r->done == r->ready) {
        return tt_keep_first(&r->first, r->first.code, err);
    }
    tt_wire_enter(r->spec.node->world);
    const tt_code rc = carry_on(r, err);
    tt_wire_leave(r->spec.node->world);
    return tt_keep_first(&r->first, rc, err);
}

tt_code tt_reduce_finish(tt_reduce *r, tt_err *err)
{
    tt_code rc = tt_reduce_ready(r, 0, err);
    tt_wire_enter(r->spec.node->world);
    const char *outer = tt_wait_begin(r->spec.node->world, waits);
    for (int turns = 0; rc == TT_OK && r->done >= 0;) {
        rc = wait_on(r, &turns, err);
    }
    tt_wait_end(r->spec.node->world, outer);
    tt_wire_leave(r->spec.node->world);
    return tt_keep_first(&r->first, rc, err);
}

tt_code tt_reduce_free_place(tt_reduce *r, int group, tt_err *err)
{
    const tt_ring *ring = r->spec.ring;
    tt_code rc = r->first.code;
    tt_wire_enter(r->spec.node->world);
    const char *outer = tt_wait_begin(r->spec.node->world, waits);
    for (int g = 0; g < ring->count; g++) {
        const tt_group_of_stages *other = &ring->group[g];
        for (int b = other->first_bucket; b < other->end_bucket; b++) {
            const bool here = other->place == ring->group[group].place;
            for (int turns = 0;
                 rc == TT_OK && here && !tt_flags_all(&r->flags, read_flag(b), r->told[b]);) {
                rc = wait_on(r, &turns, err);
            }
        }
    }
    tt_wait_end(r->spec.node->world, outer);
    tt_wire_leave(r->spec.node->world);
    return tt_keep_first(&r->first, rc, err);
}
