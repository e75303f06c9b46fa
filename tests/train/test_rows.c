/* test_rows.c: the pieces that a checkpoint is made of: over all ranks every element of every tensor
 * exactly once, at the address where its value lies. */
#include "tutti/base/narrow.h"
#include "tutti/base/rng.h"
#include "tutti/dist/cut.h"
#include "tutti/train/state.h"

#include "tt_test.h"

enum { MOST_PARAMS = 24, GROUPS = 2 };

/* A parameter table of random sizes with gaps, as params.c makes them, cut into stages. */
typedef struct table {
    tt_params params;
    tt_param param[MOST_PARAMS];
    int64_t stage_end[MOST_PARAMS];
} table;

static int64_t draw(uint64_t trial, uint64_t index, int64_t n)
{
    return (int64_t)(tt_rng_uniform(tt_rng_key(trial, TT_RNG_TEST, 0), 1, index) * (double)n);
}

static void make_table(table *t, uint64_t trial)
{
    int64_t end = 0;
    memset(t, 0, sizeof *t);
    t->params = (tt_params){.param = t->param, .stage_end = t->stage_end};
    t->params.count = 1 + (int)draw(trial, 0, MOST_PARAMS - 1);
    for (int i = 0; i < t->params.count; i++) {
        tt_param *p = &t->param[i];
        uint64_t at = 10 + 10 * (uint64_t)i;
        snprintf(p->name, sizeof p->name, "p.%d", i);
        p->dims = 1 + (int)draw(trial, at, 2);
        p->dim[0] = 1 + draw(trial, at + 1, draw(trial, at + 2, 3) == 0 ? 300 : 40);
        p->dim[1] = p->dims == 2 ? 1 + draw(trial, at + 3, 13) : 1;
        p->count = p->dim[0] * p->dim[1];
        p->offset = tt_round_up(end, 32);
        end = p->offset + p->count;
        if (i + 1 == t->params.count || draw(trial, at + 4, 3) == 0) { /* the stage ends here */
            end = tt_round_up(end, 64);
            t->stage_end[t->params.stages++] = end;
        }
    }
    t->params.total = end;
}

/* Where each flat element lies in a rank's arrays; -1: elsewhere. The caller frees. */
static int64_t *places_of(const tt_shard *shard, int64_t total)
{
    int64_t *place = malloc(sizeof *place * (size_t)total);
    ck_assert_ptr_nonnull(place);
    memset(place, 0xff, sizeof *place * (size_t)total);
    for (int i = 0; i < shard->count; i++) {
        for (int64_t e = shard->range[i].first; e < shard->range[i].end; e++) {
            place[e] = shard->local[i] + e - shard->range[i].first;
        }
    }
    return place;
}

static void check_row(const tt_tensor_row *row, const tt_param *p, const int64_t *place,
                      const float *data, int *times)
{
    ck_assert_int_eq(row->dims, p->dims);
    ck_assert_int_eq(row->dim[0], p->dim[0]);
    ck_assert_int_eq(row->dim[1], p->dim[1]);
    int64_t held = 0, at = 0, wrong = 0;
    for (int i = 0; i < row->pieces; i++) {
        const tt_piece *piece = &row->piece[i];
        ck_assert_int_gt(piece->count, 0);
        ck_assert_int_ge(piece->first, at); /* ascending, not overlapping */
        at = piece->first + piece->count;
        ck_assert_int_le(at, p->count);
        for (int64_t e = piece->first; e < at; e++) {
            wrong += piece->data + (e - piece->first) != data + place[p->offset + e];
            times[e]++;
        }
        held += piece->count;
    }
    ck_assert_int_eq(wrong, 0);
    int64_t wanted = 0;
    for (int64_t e = 0; e < p->count; e++) {
        wanted += place[p->offset + e] >= 0;
    }
    ck_assert_int_eq(held, wanted);
}

/* All ranks of a random table, of a random bucket limit. */
START_TEST(pieces_cover_each_tensor_once)
{
    static const char *const group[GROUPS] = {"params", "adam_m"};
    const uint64_t trial = (uint64_t)_i;
    const int ranks = 1 + _i % 7, zero = (_i / 7) % 2;
    tt_err err;
    table t;
    tt_buckets buckets;
    make_table(&t, trial);
    ck_assert_int_eq(
        tt_buckets_make(&buckets, t.stage_end, t.params.stages, 64 + draw(trial, 1, 1000), &err),
        TT_OK);
    int *times = calloc((size_t)(GROUPS * t.params.total), sizeof *times);
    ck_assert_ptr_nonnull(times);
    for (int r = 0; r < ranks; r++) {
        tt_shard shard;
        tt_rows rows;
        ck_assert_int_eq(tt_shard_make(&shard, &buckets, zero, r, ranks, &err), TT_OK);
        float *memory = calloc((size_t)(GROUPS * shard.elements + 1), sizeof *memory);
        ck_assert_ptr_nonnull(memory);
        int64_t *place = places_of(&shard, t.params.total);
        float *data[GROUPS] = {memory, memory + shard.elements};
        ck_assert_int_eq(
            tt_rows_make(&rows, &t.params, &shard, shard.local, GROUPS, group, data, NULL, &err),
            TT_OK);
        ck_assert_int_eq(rows.rows, GROUPS * t.params.count);
        int pieces = 0;
        for (int i = 0; i < rows.rows; i++) {
            int g = i / t.params.count;
            const tt_param *p = &t.param[i % t.params.count];
            char name[TT_NAME + 16];
            snprintf(name, sizeof name, "%s/%s", group[g], p->name);
            ck_assert_str_eq(rows.row[i].name, name);
            check_row(&rows.row[i], p, place, data[g], times + g * t.params.total + p->offset);
            pieces += rows.row[i].pieces;
        }
        ck_assert_int_eq(pieces, rows.pieces);
        tt_rows_free(&rows);
        tt_shard_free(&shard);
        free(memory);
        free(place);
    }
    /* With ZeRO 0 each rank holds all. Gaps are in no tensor. */
    for (int i = 0; i < GROUPS * t.params.count; i++) {
        const tt_param *p = &t.param[i % t.params.count];
        const int *of = times + i / t.params.count * t.params.total + p->offset;
        int64_t wrong = 0;
        for (int64_t e = 0; e < p->count; e++) {
            wrong += of[e] != (zero == 0 ? ranks : 1);
        }
        ck_assert_int_eq(wrong, 0);
    }
    free(times);
    tt_buckets_free(&buckets);
}
END_TEST

/* ZeRO 0 saves its cut out of whole arrays: local offsets need not be packed. */
START_TEST(pieces_of_a_cut_in_whole_arrays)
{
    static const char *const group[] = {"params"};
    const int ranks = 1 + _i % 5;
    tt_err err;
    table t;
    tt_buckets buckets;
    make_table(&t, (uint64_t)_i);
    ck_assert_int_eq(tt_buckets_make(&buckets, t.stage_end, t.params.stages, 128, &err), TT_OK);
    float *whole = calloc((size_t)t.params.total, sizeof *whole);
    int *times = calloc((size_t)t.params.total, sizeof *times);
    for (int r = 0; r < ranks; r++) {
        tt_shard cut;
        tt_rows rows;
        ck_assert_int_eq(tt_shard_make(&cut, &buckets, 1, r, ranks, &err), TT_OK);
        for (int i = 0; i < cut.count; i++) {
            cut.local[i] = cut.range[i].first; /* flat */
        }
        ck_assert_int_eq(
            tt_rows_make(&rows, &t.params, &cut, cut.local, 1, group, &whole, NULL, &err), TT_OK);
        int64_t *place = places_of(&cut, t.params.total);
        for (int i = 0; i < rows.rows; i++) {
            check_row(&rows.row[i], &t.param[i], place, whole, times + t.param[i].offset);
        }
        free(place);
        tt_rows_free(&rows);
        tt_shard_free(&cut);
    }
    for (int i = 0; i < t.params.count; i++) {
        int64_t wrong = 0;
        for (int64_t e = 0; e < t.param[i].count; e++) {
            wrong += times[t.param[i].offset + e] != 1;
        }
        ck_assert_int_eq(wrong, 0);
    }
    free(whole);
    free(times);
    tt_buckets_free(&buckets);
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("train/rows");
    TCase *tests = tcase_create("rows");
    tcase_set_timeout(tests, 0);
    tcase_add_loop_test(tests, pieces_cover_each_tensor_once, 0, 70);
    tcase_add_loop_test(tests, pieces_of_a_cut_in_whole_arrays, 0, 30);
    suite_add_tcase(suite, tests);
    return suite;
}

TT_TEST_MAIN(make_suite)
