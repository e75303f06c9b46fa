/* mpi_memory.c: what was planned is what is there, on every rank, and all ranks know the same of it. */
#define TT_MPI_TEST
#include "train_test.h"

static const struct {
    const char *key[3], *value[3];
} kinds[] = {{{"precision.compute"}, {"fp32"}},
             {{"precision.compute", "precision.master"}, {"bf16", "split"}},
             {{"precision.compute", "precision.master"}, {"bf16", "none"}},
             {{"precision.compute", "run.exact"}, {"bf16", "true"}},
             {{"precision.compute", "precision.fp32_ops"}, {"bf16", "[qkv, head]"}},
             {{"precision.compute", "memory.pack_weights"}, {"fp16", "false"}},
             {{"precision.compute", "fp8.recipe"}, {"fp8", "delayed"}},
             {{"precision.compute", "fp8.recipe", "run.exact"}, {"fp8", "mxfp8", "true"}}};
enum { KINDS = sizeof kinds / sizeof *kinds };

static tt_config kind_of(int i)
{
    tt_config config = tiny_config("memory");
    for (int j = 0; j < 3 && kinds[i % KINDS].key[j]; j++) {
        set(&config, kinds[i % KINDS].key[j], "%s", kinds[i % KINDS].value[j]);
    }
    set(&config, "memory.zero", "%d", i / KINDS);
    set(&config, "run.resume", "never");
    set(&config, "batch.sequences", "%d", 2 * tt_test_world.size);
    set(&config, "batch.micro", "1");
    set(&config, "batch.accumulate", "2");
    return config;
}

START_TEST(measured_is_planned)
{
    const double page = (double)sysconf(_SC_PAGESIZE);
    tt_trainer t;
    tt_record record;
    tt_memory memory, most;
    const tt_config config = kind_of(_i);
    open_trainer(&t, &config, &tt_test_world); /* which refuses an arena that is not the plan's */
    step_once(&t, &record);
    must(tt_memory_measure(&memory, &t, &err_));
    double planned = 0;
    for (int c = 0; c < TT_MEM_COMPONENTS; c++) {
        const tt_measured *held = &memory.component[c];
        ck_assert(everywhere(t.arena[c].used + t.window[c].used ==
                             t.print.plan.own[c] + t.print.plan.once[c]));
        ck_assert(everywhere(held->planned >= (double)t.arena[c].used));
        /* The rank with most of it has all of it in memory. What the last page has beside is no piece's;
         * and of a red zone at the end nobody cares. */
        ck_assert(
            everywhere(held->planned == 0 || (held->measured >= held->planned - page &&
                                              held->measured < held->planned + page + TT_REDZONE)));
        planned += held->planned;
    }
    ck_assert(everywhere(memory.total.measured > planned && memory.peak >= memory.total.measured));
    ck_assert(everywhere(memory.began > 0 && memory.began <= memory.peak));
    ck_assert(everywhere(memory.libraries.measured >= 0));
    most = memory;
    must(tt_max_f64(&tt_test_world, (double *)(void *)&most, sizeof most / sizeof(double), &err_));
    ck_assert(everywhere(memcmp(&most, &memory, sizeof most) == 0));
    /* A rank that had the libraries to itself when it began has less of them once others map them. */
    t.began = t.began_part = 2 * (size_t)memory.peak + (size_t)tt_test_world.rank;
    must(tt_memory_measure(&memory, &t, &err_));
    ck_assert(everywhere(memory.peak == memory.began));
    tt_trainer_close(&t);
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("train/memory");
    TCase *tests = tcase_create("memory");
    tcase_set_timeout(tests, 0);
    tcase_add_unchecked_fixture(tests, open_folder, close_folder);
    tcase_add_loop_test(tests, measured_is_planned, 0, 2 * KINDS);
    suite_add_tcase(suite, tests);
    return suite;
}

TT_MPI_TEST_MAIN(make_suite)
