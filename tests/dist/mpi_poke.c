/* mpi_poke.c: the thread that calls MPI comes and goes, on all ranks or on none. */
#include "dist_test.h"
#include "no_thread.h"
#include "tutti/dist/poke.h"

static void sum_of_ones(void)
{
    int64_t ones = 1;
    must(tt_sum_i64(W, &ones, 1, &err_));
    ck_assert_int_eq(ones, W->size);
}

START_TEST(comes_and_goes)
{
    const bool wanted = W->size > 1 && tt_world_threaded(W);
    for (int i = 0; i < 3; i++) {
        must(tt_poke_open(W, &err_));
        ck_assert(tt_all((W->poke != NULL) == wanted));
        struct tt_poke *first = W->poke;
        must(tt_poke_open(W, &err_)); /* open is open */
        ck_assert(tt_all(W->poke == first));
        tt_poke_set(W, true);
        sum_of_ones();
        tt_poke_set(W, i == 0); /* closed while busy, and while it sleeps */
        tt_poke_close(W);
        ck_assert(tt_all(W->poke == NULL));
        tt_poke_set(W, true); /* nothing happens */
        tt_poke_close(W);
        sum_of_ones();
    }
}
END_TEST

/* The last rank gets no thread, and the others take theirs back. */
START_TEST(none_where_one_is_refused)
{
    const bool last = W->rank == W->size - 1;
    pthread_attr_t usual;
    tt_err err = {TT_OK, ""};
    if (last) {
        threads_refused(&usual);
    }
    const tt_code rc = tt_poke_open(W, &err);
    if (last) {
        threads_granted(&usual);
    }
    const bool refused = W->size > 1 && tt_world_threaded(W);
    ck_assert(tt_all(rc == (refused ? TT_EWORLD : TT_OK)));
    ck_assert(tt_all(!refused || strstr(err.text, "dist.progress_thread=false") != NULL));
    ck_assert(tt_all(W->poke == NULL));
    sum_of_ones();
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("poke");
    TCase *tests = tcase_create("poke");
    tcase_add_test(tests, comes_and_goes);
    tcase_add_test(tests, none_where_one_is_refused);
    suite_add_tcase(suite, tests);
    return suite;
}

TT_MPI_TEST_MAIN(make_suite)
