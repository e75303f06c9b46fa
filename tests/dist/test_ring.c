/* test_ring.c: groups of stages, and what is held where. */
#include "tt_test.h"

#include "tutti/base/memory.h"
#include "tutti/dist/ring.h"

enum { STAGES = 8, N = 5001 };
static const int64_t ragged[STAGES] = {1000, 1000, 1065, 1129, 1130, 1130, 5000, N};
static const int64_t leading[STAGES] = {0, 0, 640, 1280, 1920, 2560, 3200, 3840};
static const int64_t empty[STAGES] = {0, 0, 0, 0, 0, 0, 0, 0};
static const int64_t *const shapes[] = {ragged, leading, empty};
static const int64_t limits[] = {64, 100, 640, 700, 1300, 100000};

/* Groups follow each other; each stage and bucket is in one; neither crosses a group's end. */
static void check_groups(const tt_ring *ring, const tt_buckets *buckets, const int64_t *end)
{
    int64_t at = 0;
    int stage = 0, bucket = 0;
    for (int g = 0; g < ring->count; g++) {
        const tt_group_of_stages *group = &ring->group[g];
        ck_assert_int_eq(group->range.first, at);
        ck_assert_int_eq(group->first_stage, stage);
        ck_assert_int_eq(group->first_bucket, bucket);
        ck_assert_int_eq(group->range.end, end[group->end_stage - 1]);
        for (int s = group->first_stage; s < group->end_stage; s++) {
            ck_assert_int_eq(ring->of_stage[s], g);
            ck_assert_int_eq(ring->place[s], group->place);
            ck_assert_int_eq(ring->shift[s], group->range.first - group->at);
        }
        for (int b = group->first_bucket; b < group->end_bucket; b++) {
            ck_assert_int_eq(ring->of_bucket[b], g);
            ck_assert_int_ge(buckets->bucket[b].range.first, group->range.first);
            ck_assert_int_le(buckets->bucket[b].range.end, group->range.end);
            const int64_t flat = buckets->bucket[b].range.first;
            ck_assert_int_eq(tt_ring_at(ring, b, flat), flat - group->range.first + group->at);
        }
        /* It could not end earlier: every stage's end within it is within a bucket. */
        for (int s = group->first_stage; s + 1 < group->end_stage; s++) {
            for (int b = group->first_bucket; b < group->end_bucket; b++) {
                ck_assert(end[s] == end[s + 1] || end[s] == group->range.first ||
                          buckets->bucket[b].range.end != end[s]);
            }
        }
        ck_assert_int_le(group->at + (group->range.end - group->range.first), ring->elements);
        at = group->range.end;
        stage = group->end_stage;
        bucket = group->end_bucket;
    }
    ck_assert_int_eq(at, end[STAGES - 1]);
    ck_assert_int_eq(stage, STAGES);
    ck_assert_int_eq(bucket, buckets->count);
}

/* Nobody's place overlaps another's but those of the same number. */
static void check_places(const tt_ring *ring)
{
    for (int g = 0; g < ring->count; g++) {
        for (int h = 0; h < g; h++) {
            const tt_group_of_stages *a = &ring->group[g], *b = &ring->group[h];
            const bool apart = a->at >= b->at + (b->range.end - b->range.first) ||
                               b->at >= a->at + (a->range.end - a->range.first);
            ck_assert(apart || a->place == b->place);
            ck_assert(a->place != b->place || (!ring->whole && h > 0 && (g - h) % TT_TURNS == 0));
        }
    }
}

START_TEST(groups_tile_and_places_do_not_meet)
{
    const int64_t *end = shapes[_i];
    for (size_t l = 0; l < sizeof limits / sizeof *limits; l++) {
        for (int whole = 0; whole < 2; whole++) {
            tt_buckets buckets;
            tt_ring ring;
            tt_err err;
            ck_assert_int_eq(tt_buckets_make(&buckets, end, STAGES, limits[l], &err), TT_OK);
            ck_assert_int_eq(tt_ring_make(&ring, &buckets, end, STAGES, whole, &err), TT_OK);
            check_groups(&ring, &buckets, end);
            check_places(&ring);
            ck_assert(!whole || ring.elements == end[STAGES - 1]);
            tt_ring_free(&ring);
            tt_buckets_free(&buckets);
        }
    }
}
END_TEST

/* Twelve equal blocks between embeddings and a norm: held in turn, they need room for two. */
START_TEST(turns_need_two_blocks)
{
    int64_t end[14] = {10 * 640};
    tt_buckets buckets;
    tt_ring ring;
    tt_err err;
    for (int s = 1; s <= 12; s++) {
        end[s] = end[s - 1] + 2 * 640;
    }
    end[13] = end[12] + 64;
    ck_assert_int_eq(tt_buckets_make(&buckets, end, 14, 640, &err), TT_OK);
    ck_assert_int_eq(tt_ring_make(&ring, &buckets, end, 14, false, &err), TT_OK);
    ck_assert_int_eq(ring.count, 14);
    ck_assert_int_eq(ring.elements, (10 + 2 + 2) * 640);
    ck_assert_int_eq(ring.places, 3);
    tt_ring_free(&ring);
    tt_buckets_free(&buckets);
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("dist/ring");
    TCase *tests = tcase_create("ring");
    tcase_add_loop_test(tests, groups_tile_and_places_do_not_meet, 0, 3);
    tcase_add_test(tests, turns_need_two_blocks);
    suite_add_tcase(suite, tests);
    return suite;
}

TT_TEST_MAIN(make_suite)
