/* tt_test.h: what every test file needs: the library's headers, Check, and one main.
 *
 * A single-process test file ends with TT_TEST_MAIN(make_suite). A multi-rank test file (mpi_*.c)
 * ends with TT_MPI_TEST_MAIN(make_suite): no-fork mode, one world for all its tests in
 * tt_test_world, and only rank 0 prints the summary, over all ranks. In a multi-rank test use
 * tt_all(condition): it is true only when the condition holds on every rank, so a failing assert
 * fails everywhere and nobody is left waiting. Every test runs under the runner's timeout. */
#ifndef TT_TEST_H
#define TT_TEST_H

#include <check.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TT_TEST_MAIN(make_suite)                          \
    int main(void)                                        \
    {                                                     \
        SRunner *runner = srunner_create(make_suite());   \
        srunner_set_fork_status(runner, CK_NOFORK);       \
        srunner_run_all(runner, CK_NORMAL);               \
        int failed = srunner_ntests_failed(runner);       \
        srunner_free(runner);                             \
        return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE; \
    }

#ifdef TT_MPI_TEST
#include <mpi.h>

#include "tutti/dist/world.h"

static tt_world tt_test_world;

/* Collective: true on all ranks when `ok` is true on all. */
static inline bool tt_all(bool ok)
{
    int mine = ok, all = 0;
    MPI_Allreduce(&mine, &all, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    return all != 0;
}

#define TT_MPI_TEST_MAIN(make_suite)                                              \
    int main(int argc, char **argv)                                               \
    {                                                                             \
        tt_err err;                                                               \
        if (tt_world_open(&tt_test_world, &argc, &argv, &err) != TT_OK) {         \
            fprintf(stderr, "%s\n", err.text);                                    \
            return EXIT_FAILURE;                                                  \
        }                                                                         \
        SRunner *runner = srunner_create(make_suite());                           \
        srunner_set_fork_status(runner, CK_NOFORK);                               \
        srunner_run_all(runner, tt_test_world.rank == 0 ? CK_NORMAL : CK_SILENT); \
        bool passed = tt_all(srunner_ntests_failed(runner) == 0);                 \
        srunner_free(runner);                                                     \
        tt_world_close(&tt_test_world);                                           \
        return passed ? EXIT_SUCCESS : EXIT_FAILURE;                              \
    }
#endif

#endif
