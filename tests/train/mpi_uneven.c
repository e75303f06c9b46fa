/* mpi_uneven.c: ranks that come to each point of a step at different times learn the same bits: nobody
 * clears, overwrites or reads what another is not done with, and nobody waits for ever. quick: no */
#define TT_MPI_TEST
#include <time.h>

#include "train_test.h"
#include "tutti/base/rng.h"

enum { SEQUENCES = 8, STEPS = 2, TIMES = 3 };

static const struct way {
    const char *zero, *gradients, *ranks, *overlap;
} ways[] = {
    {"1", "auto", "0", "true"},   {"1", "auto", "2", "false"},  {"2", "pieces", "0", "true"},
    {"2", "pieces", "2", "true"}, {"3", "whole", "0", "true"},  {"3", "whole", "2", "false"},
    {"3", "pieces", "0", "true"}, {"3", "pieces", "2", "true"}, {"3", "pieces", "2", "false"},
};
enum { WAYS = sizeof ways / sizeof *ways };

/* The hooks of a trainer, each after a while of the rank's own. */
typedef struct dawdler {
    tt_hooks inner;
    tt_key key;
    int64_t told;
} dawdler;

/* One time in four a rank is late by up to 4 ms: as long as some stages and their sums take. */
static void dawdle(dawdler *d)
{
    const double draw = 4 * tt_rng_uniform(d->key, (uint64_t)my_rank(), (uint64_t)d->told++);
    if (draw < 1) {
        const struct timespec late = {0, (long)(4e6 * draw)};
        nanosleep(&late, NULL);
    }
}

static void enter(void *user, int stage)
{
    dawdler *d = user;
    dawdle(d);
    d->inner.enter(d->inner.user, stage);
}

static void grad_begin(void *user, int stage)
{
    dawdler *d = user;
    dawdle(d);
    d->inner.grad_begin(d->inner.user, stage);
}

static void grad_ready(void *user, int stage)
{
    dawdler *d = user;
    dawdle(d);
    d->inner.grad_ready(d->inner.user, stage);
}

static tt_config uneven_config(int i)
{
    tt_config config = tiny_config("uneven");
    set(&config, "run.exact", "true");
    set(&config, "model.layers", "6");
    set(&config, "batch.sequences", "%d", SEQUENCES * tt_test_world.size);
    set(&config, "batch.micro", "4"); /* two micro-batches */
    set(&config, "memory.zero", "%s", ways[i].zero);
    set(&config, "memory.gradients", "%s", ways[i].gradients);
    set(&config, "memory.recompute", "sqrt"); /* stages are entered once more */
    set(&config, "dist.node_ranks", "%s", ways[i].ranks);
    set(&config, "dist.overlap", "%s", ways[i].overlap);
    set(&config, "dist.timeout", "60");
    return config;
}

START_TEST(late_ranks_change_nothing)
{
    tt_config config = uneven_config(_i);
    tt_trainer even, t;
    tt_record wanted, record;
    open_trainer(&even, &config, &tt_test_world);
    for (int i = 0; i < STEPS; i++) {
        step_once(&even, &wanted);
    }
    for (int time = 0; time < TIMES; time++) {
        open_trainer(&t, &config, &tt_test_world);
        dawdler d = {.inner = t.tutti.hooks, .key = tt_rng_key(1, TT_RNG_TEST, (uint64_t)time)};
        t.tutti.hooks.enter = enter;
        t.tutti.hooks.grad_begin = grad_begin;
        t.tutti.hooks.grad_ready = grad_ready;
        t.tutti.hooks.between = NULL; /* nothing goes on but where a rank waits */
        t.tutti.hooks.user = &d;
        for (int i = 0; i < STEPS; i++) {
            step_once(&t, &record);
        }
        ck_assert(everywhere(d.told > 0));
        ck_assert(everywhere(record.loss == wanted.loss && record.grad_norm == wanted.grad_norm));
        ck_assert(everywhere(same_masters(&t, &even) && same_weights(&t, &even)));
        tt_trainer_close(&t);
    }
    tt_trainer_close(&even);
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("uneven");
    TCase *tests = tcase_create("uneven");
    tcase_add_unchecked_fixture(tests, open_folder, close_folder);
    tcase_add_loop_test(tests, late_ranks_change_nothing, 0, WAYS);
    suite_add_tcase(suite, tests);
    return suite;
}

TT_MPI_TEST_MAIN(make_suite)
