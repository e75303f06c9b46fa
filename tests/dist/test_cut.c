/* test_cut.c: ranges are disjoint, aligned, cover everything, for any n and R. */
#include "tt_test.h"

#include "tutti/base/narrow.h"
#include "tutti/dist/cut.h"

static const int64_t lengths[] = {0,   1,   2,   63,  64,   65,   127,    128,     129,         191,
                                  192, 193, 640, 997, 1024, 4095, 104729, 1299709, 38597376 + 1};
enum { LENGTHS = sizeof lengths / sizeof lengths[0], RANKS = 17 };

START_TEST(pieces_cover)
{
    for (int i = 0; i < LENGTHS; i++) {
        int64_t n = lengths[i];
        for (int R = 1; R <= RANKS; R++) {
            int64_t next = 0, least = INT64_MAX, most = 0;
            for (int r = 0; r < R; r++) {
                tt_range piece = tt_cut(n, r, R);
                int64_t length = piece.end - piece.first;
                ck_assert_int_eq(piece.first, next);
                ck_assert_int_ge(length, 0);
                ck_assert(piece.first % TT_CUT == 0 || piece.first == n);
                ck_assert(piece.end % TT_CUT == 0 || piece.end == n);
                least = tt_min(least, length);
                most = tt_max(most, length);
                next = piece.end;
            }
            ck_assert_int_eq(next, n);
            ck_assert_int_lt(most - least, 2 * TT_CUT);
        }
    }
}
END_TEST

START_TEST(pieces_known)
{
    tt_range whole = tt_cut(1000, 0, 1);
    ck_assert(whole.first == 0 && whole.end == 1000);
    /* 16 units over 3 ranks: 6, 5, 5; the last unit has 40 elements */
    const tt_range want[3] = {{0, 384}, {384, 704}, {704, 1000}};
    for (int r = 0; r < 3; r++) {
        tt_range piece = tt_cut(1000, r, 3);
        ck_assert(piece.first == want[r].first && piece.end == want[r].end);
    }
    /* more ranks than units: the first ranks get one each, the rest nothing */
    for (int r = 0; r < 17; r++) {
        tt_range piece = tt_cut(65, r, 17);
        ck_assert_int_eq(piece.end - piece.first, r == 0 ? 64 : r == 1 ? 1 : 0);
    }
    /* lengths beyond 32 bits */
    int64_t n = INT64_C(1) << 40;
    ck_assert_int_eq(tt_cut(n, 3, 4).first, 3 * (n / 4));
    ck_assert_int_eq(tt_cut(n, 3, 4).end, n);
}
END_TEST

/* Does what cut.h promises hold for these buckets? Counted, not asserted one by one: Check keeps a
 * record of every assert, and these are very many. */
static int broken_promises(const tt_buckets *b, const int64_t *stage_end, int stages, int64_t limit)
{
    int broken = 0, last_stage = 0;
    int64_t next = 0;
    limit -= limit % TT_CUT;
    for (int i = 0; i < b->count; i++) {
        tt_range range = b->bucket[i].range;
        broken += range.first != next;
        broken += range.end <= range.first || range.end - range.first > limit;
        int lowest = 0;
        while (lowest < stages - 1 && stage_end[lowest] <= range.first) {
            lowest++;
        }
        broken += b->bucket[i].last_stage != lowest || lowest < last_stage;
        last_stage = lowest;
        int64_t stage_first = lowest > 0 ? stage_end[lowest - 1] : 0;
        bool whole = false;
        for (int s = lowest; s < stages; s++) {
            whole = whole || (range.first == stage_first && range.end == stage_end[s]);
        }
        /* whole stages, or a part of one that alone is beyond the limit */
        bool part = stage_end[lowest] - stage_first > limit && range.end <= stage_end[lowest];
        broken += !whole && !part;
        next = range.end;
    }
    broken += next != (stages > 0 ? stage_end[stages - 1] : 0);
    return broken;
}

START_TEST(buckets_hold_their_promise)
{
    static const int64_t ends[][8] = {
        {0, 0, 0, 0, 0, 0, 0, 0},
        {1, 2, 3, 4, 5, 6, 7, 8},
        {64, 128, 192, 256, 320, 384, 448, 512},
        {1000, 1000, 1065, 1129, 1130, 1130, 5000, 5001},
        {0, 0, 63, 127, 104729, 104729, 104730, 200003},
        {4096, 4224, 4352, 4480, 4608, 4736, 4864, 4865},
        {32, 3232, 6432, 9632, 12832, 16032, 19232, 19264},
    };
    static const int64_t limits[] = {64, 65, 127, 128, 191, 640, 1000, 4096, 6553600};
    for (int i = 0; i < (int)(sizeof ends / sizeof ends[0]); i++) {
        for (int stages = 0; stages <= 8; stages++) {
            for (int j = 0; j < (int)(sizeof limits / sizeof limits[0]); j++) {
                tt_buckets b;
                tt_err err;
                ck_assert_int_eq(tt_buckets_make(&b, ends[i], stages, limits[j], &err), TT_OK);
                ck_assert_int_eq(broken_promises(&b, ends[i], stages, limits[j]), 0);
                tt_buckets_free(&b);
                ck_assert_ptr_null(b.bucket);
            }
        }
    }
}
END_TEST

START_TEST(buckets_known)
{
    /* 300 is divided evenly, 40 + 50 + 38 merge to 128, an empty stage leaves no trace, 100 stays
     * alone because 100 + 29 is one element beyond the limit, which 130 is rounded down to. */
    const int64_t end[] = {300, 340, 390, 390, 428, 528, 557};
    const tt_bucket want[] = {{{0, 128}, 0},   {{128, 256}, 0}, {{256, 300}, 0},
                              {{300, 428}, 1}, {{428, 528}, 5}, {{528, 557}, 6}};
    tt_buckets b;
    tt_err err;
    ck_assert_int_eq(tt_buckets_make(&b, end, 7, 130, &err), TT_OK);
    ck_assert_int_eq(b.count, 6);
    for (int i = 0; i < 6; i++) {
        ck_assert_int_eq(b.bucket[i].range.first, want[i].range.first);
        ck_assert_int_eq(b.bucket[i].range.end, want[i].range.end);
        ck_assert_int_eq(b.bucket[i].last_stage, want[i].last_stage);
    }
    tt_buckets_free(&b);
    tt_buckets_free(&b); /* safe twice */
}
END_TEST

START_TEST(shards_cover)
{
    const int64_t end[] = {1000, 1000, 1065, 1129, 1130, 1130, 5000, 5001};
    tt_buckets b;
    tt_err err;
    ck_assert_int_eq(tt_buckets_make(&b, end, 8, 700, &err), TT_OK);
    for (int R = 1; R <= RANKS; R++) {
        static int owners[5001];
        memset(owners, 0, sizeof owners);
        int64_t total = 0;
        for (int r = 0; r < R; r++) {
            tt_shard shard;
            ck_assert_int_eq(tt_shard_make(&shard, &b, 1, r, R, &err), TT_OK);
            ck_assert_int_eq(shard.count, b.count);
            int64_t local = 0;
            for (int i = 0; i < shard.count; i++) {
                tt_range bucket = b.bucket[i].range, range = shard.range[i];
                tt_range piece = tt_cut(bucket.end - bucket.first, r, R);
                ck_assert_int_eq(range.first, bucket.first + piece.first);
                ck_assert_int_eq(range.end, bucket.first + piece.end);
                ck_assert_int_eq(shard.local[i], local);
                local += range.end - range.first;
                for (int64_t e = range.first; e < range.end; e++) {
                    owners[e]++;
                }
            }
            ck_assert_int_eq(shard.elements, local);
            total += local;
            tt_shard_free(&shard);

            ck_assert_int_eq(tt_shard_make(&shard, &b, 0, r, R, &err), TT_OK);
            ck_assert_int_eq(shard.elements, 5001);
            for (int i = 0; i < shard.count; i++) {
                ck_assert_int_eq(shard.range[i].first, b.bucket[i].range.first);
                ck_assert_int_eq(shard.range[i].end, b.bucket[i].range.end);
                ck_assert_int_eq(shard.local[i], shard.range[i].first);
            }
            tt_shard_free(&shard);
        }
        ck_assert_int_eq(total, 5001);
        for (int e = 0; e < 5001; e++) {
            ck_assert_int_eq(owners[e], 1);
        }
    }
    tt_buckets_free(&b);
}
END_TEST

START_TEST(shard_of_nothing)
{
    tt_buckets b;
    tt_shard shard;
    tt_err err;
    ck_assert_int_eq(tt_buckets_make(&b, NULL, 0, 64, &err), TT_OK);
    ck_assert_int_eq(tt_shard_make(&shard, &b, 1, 3, 4, &err), TT_OK);
    ck_assert_int_eq(shard.count, 0);
    ck_assert_int_eq(shard.elements, 0);
    tt_shard_free(&shard);
    tt_buckets_free(&b);
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("dist/cut");
    TCase *tests = tcase_create("cut");
    tcase_add_test(tests, pieces_cover);
    tcase_add_test(tests, pieces_known);
    tcase_add_test(tests, buckets_hold_their_promise);
    tcase_add_test(tests, buckets_known);
    tcase_add_test(tests, shards_cover);
    tcase_add_test(tests, shard_of_nothing);
    suite_add_tcase(suite, tests);
    return suite;
}

TT_TEST_MAIN(make_suite)
