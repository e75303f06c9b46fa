/* mpi_collective.c: every collective that is measured leaves what it should, in one call a bucket, and
 * one element that is not so is seen. */
#define TT_MPI_TEST
#include "tt_test.h"

#include "tutti/dist/collective.h"

#define W (&tt_test_world)

enum { N = 5001 };
static const int64_t lengths[] = {0, 1, 63, 64, 65, 1000, N};
static const int64_t limits[] = {64, 700, 100000};

static float vector[N], other[N];
static tt_buckets buckets;
static tt_exchange exchange;

static void open_exchange(int64_t n, int64_t limit)
{
    tt_err err;
    ck_assert(tt_all(tt_buckets_make(&buckets, &n, 1, limit, &err) == TT_OK));
    ck_assert(tt_all(tt_exchange_open(&exchange, W, &buckets, vector, other, &err) == TT_OK));
}

static void close_exchange(void)
{
    tt_exchange_close(&exchange);
    tt_buckets_free(&buckets);
}

START_TEST(leaves_what_it_should)
{
    tt_err err;
    const tt_collective *c = &tt_collectives[_i];
    for (size_t l = 0; l < sizeof limits / sizeof *limits; l++) {
        for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
            open_exchange(lengths[i], limits[l]);
            if (!tt_collective_possible(c, &exchange)) {
                ck_assert(c->window && W->size == 1);
                close_exchange();
                continue;
            }
            tt_collective_fill(c, &exchange);
            const tt_wire before = W->wire;
            ck_assert(tt_all(c->run(&exchange, &err) == TT_OK));
            ck_assert_msg(tt_all(tt_collective_wrong(c, &exchange) == 0), "%s of %lld", c->name,
                          (long long)lengths[i]);
            if (W->size > 1) {
                const int barrier = c->window; /* a step's agreement */
                ck_assert(tt_all(W->wire.calls - before.calls == buckets.count + barrier));
                ck_assert(tt_all(W->wire.bytes - before.bytes == 4 * lengths[i]));
            }
            close_exchange();
        }
    }
}
END_TEST

/* Before a run much is wrong where there are ranks; after it, what is then spoilt. */
START_TEST(sees_what_is_wrong)
{
    tt_err err;
    const tt_collective *c = &tt_collectives[_i];
    open_exchange(N, 700);
    if (!tt_collective_possible(c, &exchange)) {
        close_exchange();
        return;
    }
    tt_collective_fill(c, &exchange);
    ck_assert(tt_all(W->size == 1 || tt_collective_wrong(c, &exchange) > 0));
    ck_assert(tt_all(c->run(&exchange, &err) == TT_OK));
    float *result = tt_collective_result(c, &exchange);
    const int64_t spoilt[] = {0, 699, 700, N - 1};
    for (int i = 0; i < 4; i++) {
        result[spoilt[i]] += 0.5f;
        int64_t wrong = tt_collective_wrong(c, &exchange);
        if (c->outcome == TT_IN_PLACE) { /* of each element one rank knows */
            ck_assert(tt_all(tt_sum_i64(W, &wrong, 1, &err) == TT_OK));
        }
        ck_assert(tt_all(wrong == i + 1));
    }
    close_exchange();
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("dist/collective");
    TCase *tcase = tcase_create("collective");
    tcase_add_loop_test(tcase, leaves_what_it_should, 0, TT_COLLECTIVES);
    tcase_add_loop_test(tcase, sees_what_is_wrong, 0, TT_COLLECTIVES);
    suite_add_tcase(suite, tcase);
    return suite;
}

TT_MPI_TEST_MAIN(make_suite)
