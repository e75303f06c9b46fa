/* test_stop.c: who tells whom to stop: few ranks each, and all in few hops. */
#include "tt_test.h"
#include "tutti/dist/stop.h"

enum { MOST = 300 };

/* Hops of the word from rank 0 to each; the graph looks the same from every rank. */
static int most_hops(int size)
{
    static int hops[5000];
    int to[64], most = 0;
    for (int r = 0; r < size; r++) {
        hops[r] = r == 0 ? 0 : -1;
    }
    for (int round = 0, news = 1; news > 0; round++) {
        news = 0;
        for (int r = 0; r < size; r++) {
            const int n = hops[r] == round ? tt_stop_neighbours(r, size, to) : 0;
            for (int i = 0; i < n; i++) {
                if (hops[to[i]] < 0) {
                    hops[to[i]] = most = round + 1;
                    news++;
                }
            }
        }
    }
    for (int r = 0; r < size; r++) {
        ck_assert_int_ge(hops[r], 0);
    }
    return most;
}

/* Millions of pairs: what is wrong is counted, as each assertion takes its time. */
START_TEST(everyone_hears_from_as_many_as_it_tells)
{
    for (int size = 1; size <= MOST; size++) {
        int heard[MOST] = {0}, to[64], wrong = 0;
        const int degree = tt_stop_neighbours(0, size, NULL);
        for (int r = 0; r < size; r++) {
            ck_assert_int_eq(tt_stop_neighbours(r, size, to), degree);
            for (int i = 0; i < degree; i++) {
                if (to[i] < 0 || to[i] >= size) {
                    ck_abort_msg("of %d ranks, rank %d tells %d", size, r, to[i]);
                }
                wrong += to[i] == r;
                for (int j = 0; j < i; j++) {
                    wrong += to[i] == to[j];
                }
                heard[to[i]]++;
            }
        }
        ck_assert_int_eq(wrong, 0);
        for (int r = 0; r < size; r++) {
            ck_assert_int_eq(heard[r], degree);
        }
    }
}
END_TEST

START_TEST(few_connections_and_few_hops)
{
    static const struct {
        int size, neighbours, hops;
    } cases[] = {{1, 0, 0},    {2, 1, 1},    {16, 15, 1},   {17, 16, 1},
                 {256, 30, 2}, {300, 31, 3}, {4096, 45, 3}, {5000, 46, 4}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ck_assert_int_eq(tt_stop_neighbours(0, cases[i].size, NULL), cases[i].neighbours);
        ck_assert_int_eq(most_hops(cases[i].size), cases[i].hops);
    }
}
END_TEST

/* Nobody else is there, and nothing is open: no MPI is needed. */
START_TEST(alone)
{
    tt_world world = {.size = 1};
    tt_err err;
    ck_assert_int_eq(tt_stop_look(NULL), TT_STOP_NONE);
    ck_assert_int_eq(tt_stop_look(&world), TT_STOP_NONE);
    tt_stop_ask(&world, TT_STOP_SIGNAL); /* nobody to ask */
    tt_stop_close(&world);
    tt_stop_close(NULL);
    ck_assert_int_eq(tt_stop_open(&world, &err), TT_OK);
    ck_assert_int_eq(tt_stop_look(&world), TT_STOP_NONE);
    tt_stop_ask(&world, TT_STOP_LIMIT);
    tt_stop_ask(&world, TT_STOP_SIGNAL); /* the first reason stays */
    ck_assert_int_eq(tt_stop_look(&world), TT_STOP_LIMIT);
    tt_stop_close(&world);
    ck_assert_ptr_null(world.stop);
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("dist/stop");
    TCase *tests = tcase_create("stop");
    tcase_add_test(tests, everyone_hears_from_as_many_as_it_tells);
    tcase_add_test(tests, few_connections_and_few_hops);
    tcase_add_test(tests, alone);
    suite_add_tcase(suite, tests);
    return suite;
}

TT_TEST_MAIN(make_suite)
