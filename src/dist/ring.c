/* ring.c: groups of stages and their places. See ring.h.
 *
 * Owns the arrays inside tt_ring. Reads buckets; next: reduce.c, gather.c. */
#include "tutti/dist/ring.h"

#include <assert.h>
#include <stdlib.h>

#include "tutti/base/memory.h"
#include "tutti/base/narrow.h"

/* Groups end where a stage and a bucket end together. Stages without elements go with what is before
 * them, those at the beginning with the first. */
static void find_groups(tt_ring *ring, const tt_buckets *buckets, const int64_t *stage_end)
{
    int bucket = 0;
    for (int s = 0; s < ring->stages; s++) {
        const int64_t first = s > 0 ? stage_end[s - 1] : 0;
        const bool begins = ring->count == 0 || (stage_end[s] > first && first > 0 &&
                                                 buckets->bucket[bucket - 1].range.end == first);
        if (begins) {
            ring->group[ring->count++] = (tt_group_of_stages){
                .range = {first, first}, .first_stage = s, .first_bucket = bucket};
        }
        tt_group_of_stages *group = &ring->group[ring->count - 1];
        group->range.end = stage_end[s];
        group->end_stage = s + 1;
        while (bucket < buckets->count && buckets->bucket[bucket].range.first < stage_end[s]) {
            ring->of_bucket[bucket++] = ring->count - 1;
        }
        group->end_bucket = bucket;
        ring->of_stage[s] = ring->count - 1;
    }
}

static int64_t length(const tt_group_of_stages *group)
{
    return group->range.end - group->range.first;
}

static void place_groups(tt_ring *ring)
{
    int64_t longest[TT_TURNS] = {0};
    for (int g = 0; g < ring->count; g++) {
        tt_group_of_stages *group = &ring->group[g];
        group->place = ring->whole || g == 0 ? g : 1 + (g - 1) % TT_TURNS;
        if (g > 0) {
            longest[(g - 1) % TT_TURNS] = tt_max(longest[(g - 1) % TT_TURNS], length(group));
        }
    }
    for (int g = 0; g < ring->count; g++) {
        tt_group_of_stages *group = &ring->group[g];
        group->at = group->range.first;
        if (!ring->whole && g > 0) {
            group->at = length(&ring->group[0]) + ((g - 1) % TT_TURNS > 0 ? longest[0] : 0);
        }
        ring->elements = tt_max(ring->elements, group->at + length(group));
        ring->places = (int)tt_max(ring->places, group->place + 1);
        for (int s = group->first_stage; s < group->end_stage; s++) {
            ring->shift[s] = group->range.first - group->at;
            ring->place[s] = group->place;
        }
    }
}

tt_code tt_ring_make(tt_ring *ring, const tt_buckets *buckets, const int64_t *stage_end, int stages,
                     bool whole, tt_err *err)
{
    tt_code rc = TT_OK;
    assert(stages >= 1);
    *ring = (tt_ring){.stages = stages, .whole = whole};
    ring->group = tt_alloc(stages, sizeof *ring->group, err);
    ring->of_stage = tt_alloc(stages, sizeof *ring->of_stage, err);
    ring->place = tt_alloc(stages, sizeof *ring->place, err);
    ring->of_bucket = tt_alloc(buckets->count, sizeof *ring->of_bucket, err);
    ring->shift = tt_alloc(stages, sizeof *ring->shift, err);
    if (!ring->group || !ring->of_stage || !ring->place || !ring->of_bucket || !ring->shift) {
        tt_ring_free(ring);
        rc = err->code;
        goto out;
    }
    find_groups(ring, buckets, stage_end);
    place_groups(ring);
out:
    return rc;
}

void tt_ring_free(tt_ring *ring)
{
    free(ring->group);
    free(ring->of_stage);
    free(ring->place);
    free(ring->of_bucket);
    free(ring->shift);
    *ring = (tt_ring){.count = 0};
}
