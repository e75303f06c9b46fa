/* mpi_ckpt.c: what one set of ranks saves, any set of ranks loads; and all of them fail as one. */
#define TT_MPI_TEST
#include "ckpt_test.h"

/* Rank 0 makes the folder, all know its name. */
static folder shared_folder(void)
{
    folder f = {.path = ""};
    if (tt_test_world.rank == 0) {
        f = folder_new();
    }
    MPI_Bcast(f.path, sizeof f.path, MPI_CHAR, 0, MPI_COMM_WORLD);
    return f;
}

static void shared_folder_free(folder *f)
{
    MPI_Barrier(MPI_COMM_WORLD);
    if (tt_test_world.rank == 0) {
        folder_free(f);
    }
}

static int shared_count(const folder *f)
{
    MPI_Barrier(MPI_COMM_WORLD);
    int count = tt_test_world.rank == 0 ? folder_count(f) : 0;
    MPI_Bcast(&count, 1, MPI_INT, 0, MPI_COMM_WORLD);
    return count;
}

/* Saves with one cut, loads with every cut as 2 and as 5 ranks, however many ranks run this. */
static void round_trip(cut_kind kind)
{
    tt_world *world = &tt_test_world;
    folder dir = shared_folder();
    fixture *saved = fixture_new(kind, world->rank, world->size);
    tt_err err = {0};
    fill_values(saved, 7);
    const char *path = in_folder(&dir, "step-00000100.h5");
    tt_code rc = tt_ckpt_save(world, path, &saved->state, NULL, 100, &err);
    ck_assert_msg(tt_all(rc == TT_OK), "%s", err.text);
    ck_assert_int_eq(shared_count(&dir), 1);

    for (int size = 2; size <= 5; size += 3) {
        for (int want = CUT_RANGES; want <= CUT_WHOLE; want++) {
            /* Rank r plays rank r of `size`; ranks beyond play the last again. */
            int rank = world->rank < size ? world->rank : size - 1;
            fixture *got = fixture_new((cut_kind)want, rank, size);
            fill_marks(got);
            rc = tt_ckpt_load(world, path, &got->state, false, &err);
            ck_assert_msg(tt_all(rc == TT_OK), "%s", err.text);
            ck_assert(tt_all(pieces_match(got, saved, "")));
            ck_assert(tt_all(scalars_match(got, saved)));
            free(got);
        }
    }
    /* And without MPI, each rank for itself. */
    fixture *got = fixture_new(CUT_WHOLE, 0, 1);
    fill_marks(got);
    rc = tt_ckpt_load(NULL, path, &got->state, false, &err);
    ck_assert_msg(tt_all(rc == TT_OK), "%s", err.text);
    ck_assert(tt_all(pieces_match(got, saved, "") && scalars_match(got, saved)));
    free(got);
    free(saved);
    shared_folder_free(&dir);
}

START_TEST(any_cut_loads_at_any_rank_count)
{
    round_trip((cut_kind)_i);
}
END_TEST

/* Equal states give equal bytes, whoever holds which piece. */
START_TEST(file_does_not_know_the_cut)
{
    tt_world *world = &tt_test_world;
    folder dir = shared_folder();
    tt_err err = {0};
    unsigned char *bytes[3];
    int64_t length[3];
    for (int kind = CUT_RANGES; kind <= CUT_LAST; kind++) {
        fixture *f = fixture_new((cut_kind)kind, world->rank, world->size);
        fill_values(f, 3);
        tt_code rc = tt_ckpt_save(world, in_folder(&dir, "step-1.h5"), &f->state, NULL, 1, &err);
        ck_assert_msg(tt_all(rc == TT_OK), "%s", err.text);
        bytes[kind] = slurp(in_folder(&dir, "step-1.h5"), &length[kind]);
        ck_assert(tt_all(length[kind] == length[0]));
        ck_assert(tt_all(memcmp(bytes[kind], bytes[0], (size_t)length[0]) == 0));
        MPI_Barrier(MPI_COMM_WORLD);
        free(f);
    }
    for (int kind = CUT_RANGES; kind <= CUT_LAST; kind++) {
        free(bytes[kind]);
    }
    shared_folder_free(&dir);
}
END_TEST

/* One rank's full disk is everybody's failure: same code, same words, nothing left, old file whole. */
START_TEST(full_disk_on_one_rank)
{
    tt_world *world = &tt_test_world;
    folder dir = shared_folder();
    tt_err err = {0};
    fixture *f = fixture_new(CUT_RANGES, world->rank, world->size);
    fill_values(f, 1);
    const char *path = in_folder(&dir, "step-1.h5");
    ck_assert(tt_all(tt_ckpt_save(world, path, &f->state, NULL, 1, &err) == TT_OK));

    int victim = world->size - 1;
    tt_fault fault = {.kind = TT_FAULT_ENOSPC, .rank = victim, .step = 2};
    fill_values(f, 2);
    ck_assert(tt_all(tt_ckpt_save(world, path, &f->state, &fault, 2, &err) == TT_EWORLD));
    ck_assert(tt_all(strstr(err.text, "No space left on device") != NULL));
    ck_assert(tt_all(strstr(err.text, "step-1.h5:") != NULL));
    ck_assert_int_eq(shared_count(&dir), 1);

    fixture *before = fixture_new(CUT_WHOLE, 0, 1), *got = fixture_new(CUT_WHOLE, 0, 1);
    fill_values(before, 1);
    ck_assert(tt_all(tt_ckpt_load(world, path, &got->state, false, &err) == TT_OK));
    ck_assert(tt_all(pieces_match(got, before, "")));
    /* Not this step's fault: the save goes through. */
    ck_assert(tt_all(tt_ckpt_save(world, path, &f->state, &fault, 3, &err) == TT_OK));
    free(got);
    free(before);
    free(f);
    shared_folder_free(&dir);
}
END_TEST

START_TEST(missing_folder)
{
    folder dir = shared_folder();
    tt_err err = {0};
    fixture *f = fixture_new(CUT_RANGES, tt_test_world.rank, tt_test_world.size);
    const char *path = in_folder(&dir, "nowhere/step-1.h5");
    ck_assert(tt_all(tt_ckpt_save(&tt_test_world, path, &f->state, NULL, 1, &err) == TT_EWORLD));
    ck_assert(tt_all(strstr(err.text, "nowhere/step-1.h5: No such file or directory") != NULL));
    ck_assert(tt_all(tt_ckpt_load(&tt_test_world, path, &f->state, false, &err) == TT_EUSER));
    ck_assert(tt_all(strstr(err.text, "nowhere/step-1.h5 does not exist") != NULL));
    free(f);
    shared_folder_free(&dir);
}
END_TEST

/* A hole between the pieces is refused before anything is written. */
START_TEST(pieces_must_cover)
{
    folder dir = shared_folder();
    tt_err err = {0};
    fixture *f = fixture_new(CUT_RANGES, tt_test_world.rank, tt_test_world.size);
    if (tt_test_world.rank == tt_test_world.size - 1) {
        f->piece[0][0].count -= 1;
    }
    const char *path = in_folder(&dir, "step-1.h5");
    ck_assert(tt_all(tt_ckpt_save(&tt_test_world, path, &f->state, NULL, 1, &err) == TT_EWORLD));
    ck_assert(tt_all(strstr(err.text, "7868 of 7869 elements of params/wte") != NULL));
    ck_assert_int_eq(shared_count(&dir), 0);
    free(f);
    shared_folder_free(&dir);
}
END_TEST

/* A flipped bit in one rank's share is everybody's refusal, and nothing is filled. */
START_TEST(damage_is_seen_by_all)
{
    tt_world *world = &tt_test_world;
    folder dir = shared_folder();
    tt_err err = {0};
    fixture *f = fixture_new(CUT_COMB, world->rank, world->size);
    fill_values(f, 9);
    const char *path = in_folder(&dir, "step-1.h5");
    ck_assert(tt_all(tt_ckpt_save(world, path, &f->state, NULL, 1, &err) == TT_OK));
    if (world->rank == 0) {
        int64_t length;
        unsigned char *bytes = slurp(path, &length);
        unsigned char *at = memmem(bytes, (size_t)length, &f->value[5][1000], 16);
        ck_assert_ptr_nonnull(at);
        at[5] ^= 4;
        spill(path, bytes, length);
        free(bytes);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    fixture *got = fixture_new(CUT_WHOLE, 0, 1);
    fill_marks(got);
    ck_assert(tt_all(tt_ckpt_load(world, path, &got->state, false, &err) == TT_EWORLD));
    ck_assert(tt_all(strstr(err.text, "damaged: adam_m/wte does not match its digest") != NULL));
    ck_assert(tt_all(pieces_match(got, f, "nothing") && got->step == 0));
    /* The parameters are whole, so they alone still load. */
    ck_assert(tt_all(tt_ckpt_load(world, path, &got->state, true, &err) == TT_OK));
    ck_assert(tt_all(pieces_match(got, f, "params/") && got->step == 0));
    free(got);
    free(f);
    shared_folder_free(&dir);
}
END_TEST

START_TEST(prune_is_collective)
{
    tt_world *world = &tt_test_world;
    folder dir = shared_folder();
    tt_err err = {0};
    static const char *const names[] = {"step-9.h5", "step-10.h5", "step-00000011.h5"};
    fixture *f = fixture_new(CUT_RANGES, world->rank, world->size);
    for (int i = 0; i < 3; i++) {
        tt_code rc = tt_ckpt_save(world, in_folder(&dir, names[i]), &f->state, NULL, i, &err);
        ck_assert_msg(tt_all(rc == TT_OK), "%s", err.text);
    }
    ck_assert(tt_all(tt_ckpt_prune(world, dir.path, &(tt_prune){.keep = 2, .newest = 99}, &err) ==
                     TT_OK));
    ck_assert_int_eq(shared_count(&dir), 2);
    ck_assert(tt_all(access(in_folder(&dir, "step-9.h5"), F_OK) != 0));
    free(f);
    shared_folder_free(&dir);
}
END_TEST

/* Tensors of many pages, cut anywhere, on a disk and on a file system in memory, with a snapshot that a
 * thread writes while the values change, and without. */
START_TEST(large_tensors_of_any_cut)
{
    enum { M = 811, N = 517, REST = 100003 };
    tt_world *world = &tt_test_world;
    const int64_t all = (int64_t)M * N;
    const bool behind = (_i & 1) != 0;
    const char *const disk = getenv("TMPDIR");
    tt_err err = {0};
    float *value = malloc((size_t)(all + REST) * sizeof *value);
    float *room = malloc((size_t)(all + REST) * sizeof *room);
    float *got = malloc((size_t)all * sizeof *got);
    char before[4096];
    snprintf(before, sizeof before, "%s", disk != NULL ? disk : "/tmp");
    setenv("TMPDIR", (_i & 2) != 0 ? "/dev/shm" : before, 1);
    folder dir = shared_folder();
    setenv("TMPDIR", before, 1);
    for (int64_t i = 0; i < all + REST; i++) {
        value[i] = (float)(i * 7919 % 100003);
    }
    /* Ends that are nobody's page: a third, and what is left. */
    const int64_t from = all * world->rank / world->size,
                  to = all * (world->rank + 1) / world->size;
    const int64_t cut = from + (to - from) / 3;
    const int64_t low = REST * world->rank / world->size;
    const int64_t high = REST * (world->rank + 1) / world->size;
    tt_piece piece[3] = {{.first = from, .count = cut - from, .data = value + from},
                         {.first = cut, .count = to - cut, .data = value + cut},
                         {.first = low, .count = high - low, .data = value + all + low}};
    tt_tensor_row row[2] = {
        {.name = "params/a", .dims = 2, .dim = {M, N}, .pieces = 2, .piece = piece},
        {.name = "params/b", .dims = 1, .dim = {REST}, .pieces = 1, .piece = piece + 2}};
    const tt_state state = {.tensors = 2, .tensor = row};
    const tt_save_how how = {.read_back = true, .behind = behind, .room = behind ? room : NULL};
    tt_saving *saving = NULL;
    const char *path = in_folder(&dir, "step-1.h5");
    tt_code rc = tt_saving_begin(&saving, world, path, &state, &how, &err);
    ck_assert_msg(tt_all(rc == TT_OK), "%s", err.text);
    for (int64_t i = 0; i < all + REST && behind; i++) {
        value[i] += 1;
    }
    rc = tt_saving_finish(&saving, &err);
    ck_assert_msg(tt_all(rc == TT_OK), "%s", err.text);
    for (int t = 0; t < 2; t++) {
        const int64_t count = t == 0 ? all : REST, base = t == 0 ? 0 : all;
        tt_piece whole = {.count = count, .data = got};
        tt_tensor_row rows[2] = {row[0], row[1]};
        rows[t].piece = &whole;
        rows[t].pieces = 1;
        rows[1 - t].pieces = 0;
        const tt_state loaded = {.tensors = 2, .tensor = rows};
        rc = tt_ckpt_load(world, path, &loaded, false, &err);
        ck_assert_msg(tt_all(rc == TT_OK), "%s", err.text);
        bool same = true;
        for (int64_t i = 0; i < count; i++) {
            same = same && got[i] == (float)((base + i) * 7919 % 100003);
        }
        ck_assert(tt_all(same));
    }
    free(room);
    free(got);
    free(value);
    shared_folder_free(&dir);
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("ckpt over ranks");
    TCase *tc = tcase_create("ckpt");
    tcase_add_loop_test(tc, any_cut_loads_at_any_rank_count, CUT_RANGES, CUT_WHOLE);
    tcase_add_test(tc, file_does_not_know_the_cut);
    tcase_add_test(tc, full_disk_on_one_rank);
    tcase_add_test(tc, missing_folder);
    tcase_add_test(tc, pieces_must_cover);
    tcase_add_test(tc, damage_is_seen_by_all);
    tcase_add_test(tc, prune_is_collective);
    tcase_add_loop_test(tc, large_tensors_of_any_cut, 0, 4);
    suite_add_tcase(suite, tc);
    return suite;
}

TT_MPI_TEST_MAIN(make_suite)
