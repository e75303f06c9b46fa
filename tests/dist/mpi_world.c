/* mpi_world.c: who is here, the small reductions, threads, and the meter. */
#define TT_MPI_TEST
#include "tt_test.h"

#include "tutti/base/threads.h"
#include "tutti/dist/mpi_comm.h"

#define W (&tt_test_world)

START_TEST(knows_itself)
{
    int rank, size;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    ck_assert(tt_all(W->rank == rank && W->size == size));
    /* the tests run on one node */
    ck_assert(tt_all(W->local_rank == rank && W->local_size == size));
    ck_assert(tt_all(W->mask_size >= 1 && W->mask_size <= size));
    ck_assert(tt_all(W->node == 0 && W->nodes == 1));
    int level = -1;
    MPI_Query_thread(&level);
    ck_assert(tt_all(W->thread_level == level));
    ck_assert(tt_all(tt_world_threaded(W) == (level == MPI_THREAD_MULTIPLE)));
}
END_TEST

START_TEST(has_its_own_communicator)
{
    int same = MPI_IDENT;
    MPI_Comm_compare(tt_world_comm(W), MPI_COMM_WORLD, &same);
    ck_assert(tt_all(same == MPI_CONGRUENT));
    char name[MPI_MAX_OBJECT_NAME];
    int length;
    MPI_Comm_get_name(tt_world_comm(W), name, &length);
    ck_assert(tt_all(strcmp(name, "tutti") == 0));
}
END_TEST

START_TEST(opens_once)
{
    tt_world second;
    tt_err err;
    ck_assert(tt_all(tt_world_open(&second, NULL, NULL, &err) == TT_EWORLD));
    ck_assert(tt_all(strstr(err.text, "already opened") != NULL));
    tt_world_close(&second); /* a failed world is safe to close, and does not finalize */
    int ended = 1;
    MPI_Finalized(&ended);
    ck_assert(!ended);
}
END_TEST

START_TEST(closes_an_unopened_world)
{
    tt_world none = {0};
    tt_world_close(&none);
    tt_world_close(NULL);
    int ended = 1;
    MPI_Finalized(&ended);
    ck_assert(!ended);
}
END_TEST

START_TEST(sums_and_maxima)
{
    tt_err err;
    tt_wire before = W->wire;
    double sum[3] = {1, W->rank, -W->rank * 0.5}, most[2] = {W->rank, -W->rank};
    uint64_t parts[2] = {UINT64_MAX, 1}; /* -1 and 1: sums wrap */
    ck_assert(tt_all(tt_sum_f64(W, sum, 3, &err) == TT_OK));
    ck_assert(tt_all(tt_max_f64(W, most, 2, &err) == TT_OK));
    ck_assert(tt_all(tt_sum_u64(W, parts, 2, &err) == TT_OK));
    ck_assert(tt_all(tt_barrier(W, &err) == TT_OK));
    ck_assert(tt_all(parts[0] == 0 - (uint64_t)W->size && parts[1] == (uint64_t)W->size));
    double ranks = W->size * (W->size - 1) / 2.0;
    ck_assert(tt_all(sum[0] == W->size && sum[1] == ranks && sum[2] == -ranks / 2));
    ck_assert(tt_all(most[0] == W->size - 1 && most[1] == 0));
    bool alone = W->size == 1;
    ck_assert(tt_all(W->wire.calls - before.calls == (alone ? 0 : 4)));
    ck_assert(tt_all(W->wire.bytes - before.bytes == (alone ? 0 : 7 * 8)));
    ck_assert(tt_all(alone ? W->wire.seconds == 0 : W->wire.seconds > before.seconds));
}
END_TEST

START_TEST(no_world_is_one_rank)
{
    tt_err err;
    double value = 7;
    ck_assert(tt_all(tt_sum_f64(NULL, &value, 1, &err) == TT_OK && value == 7));
    ck_assert(tt_all(tt_max_f64(NULL, &value, 1, &err) == TT_OK && value == 7));
    ck_assert(tt_all(tt_barrier(NULL, &err) == TT_OK));
    ck_assert(tt_all(tt_agree_text(NULL, "text", "a", &err) == TT_OK));
    ck_assert(tt_all(tt_world_threads(NULL) == tt_cores()));
}
END_TEST

START_TEST(threads_fill_the_node)
{
    int cores = tt_cores(), threads = tt_world_threads(W);
    int want = cores / W->mask_size;
    ck_assert(tt_all(threads == (want > 1 ? want : 1)));
    /* Ranks that share one mask never take more threads than it has cores, save one each. */
    ck_assert(tt_all(threads == 1 || threads * W->mask_size <= cores));
}
END_TEST

START_TEST(errors_are_sentences)
{
    /* One rank asks for a number of elements that cannot be: an error, not an abort. */
    tt_err err;
    double value = 0;
    tt_code rc = tt_sum_f64(W, &value, -1, &err);
    ck_assert(tt_all(rc == (W->size == 1 ? TT_OK : TT_EWORLD)));
    ck_assert(tt_all(rc == TT_OK || strstr(err.text, "MPI_Allreduce failed: ") == err.text));
}
END_TEST

START_TEST(names_the_library)
{
    char text[64], little[5];
    tt_mpi_version(text, sizeof text);
    ck_assert(tt_all(strlen(text) > 4 && strchr(text, '\n') == NULL));
    tt_mpi_version(little, sizeof little);
    ck_assert(tt_all(strlen(little) == 4 && memcmp(little, text, 4) == 0));
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("dist/world");
    TCase *tests = tcase_create("world");
    tcase_add_test(tests, knows_itself);
    tcase_add_test(tests, has_its_own_communicator);
    tcase_add_test(tests, opens_once);
    tcase_add_test(tests, closes_an_unopened_world);
    tcase_add_test(tests, sums_and_maxima);
    tcase_add_test(tests, no_world_is_one_rank);
    tcase_add_test(tests, threads_fill_the_node);
    tcase_add_test(tests, errors_are_sentences);
    tcase_add_test(tests, names_the_library);
    suite_add_tcase(suite, tests);
    return suite;
}

TT_MPI_TEST_MAIN(make_suite)
