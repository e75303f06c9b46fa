/* mpi_node.c: who shares memory with whom, that it is shared, and what flags promise. */
#include "dist_test.h"

enum { MOST = 64 };

/* The tables say the same on all ranks, and each rank is in them once, where it says it is. */
START_TEST(tables_hold_every_rank_once)
{
    for (int i = 0; i < SHARED; i++) {
        tt_node node;
        must(tt_node_open(&node, W, shared[i], &err_));
        int seen[MOST] = {0}, ranks = 0, smallest = MOST;
        for (int m = 0; m < node.count; m++) {
            int last = -1, size = 0;
            for (int l = 0; l < node.lanes; l++) {
                const int rank = tt_node_at(&node, m, l);
                if (rank >= 0) {
                    ck_assert_int_gt(rank, last);
                    last = rank;
                    seen[rank]++;
                    size++;
                }
            }
            ck_assert(m != node.index || size == node.size);
            smallest = size < smallest ? size : smallest;
            ranks += size;
        }
        ck_assert_int_eq(ranks, W->size);
        ck_assert_int_eq(node.full_lanes, smallest);
        for (int r = 0; r < W->size; r++) {
            ck_assert_int_eq(seen[r], 1);
        }
        ck_assert_int_eq(tt_node_at(&node, node.index, node.rank), W->rank);
        ck_assert(tt_node_stands(&node, node.rank));
        ck_assert(shared[i] == 0 || node.size <= shared[i]);
        tt_node_close(&node);
    }
}
END_TEST

/* An imagined node is one that fills its machines in order: here, with all on one machine, the same. */
START_TEST(imagined_is_opened)
{
    for (int i = 0; i < SHARED; i++) {
        tt_node real, imagined;
        const int per_node = shared[i] > 0 ? shared[i] : W->size;
        must(tt_node_open(&real, W, shared[i], &err_));
        must(tt_node_imagine(&imagined, W->rank, W->size, per_node, &err_));
        ck_assert_int_eq(real.count, imagined.count);
        ck_assert_int_eq(real.lanes, imagined.lanes);
        ck_assert_int_eq(real.full_lanes, imagined.full_lanes);
        ck_assert_int_eq(real.index, imagined.index);
        ck_assert_int_eq(real.rank, imagined.rank);
        ck_assert_mem_eq(real.at, imagined.at, sizeof(int) * (size_t)(real.count * real.lanes));
        tt_node_close(&imagined);
        tt_node_close(&real);
    }
}
END_TEST

START_TEST(windows_are_shared)
{
    for (int i = 0; i < SHARED; i++) {
        tt_node node;
        tt_flags flags;
        void *each[MOST], *once[MOST];
        must(tt_node_open(&node, W, shared[i], &err_));
        must(tt_flags_open(&flags, &node, 2, &err_));
        ck_assert(tt_flags_all(&flags, 1, 0));
        ck_assert(tt_all(!tt_flags_all(&flags, 1, 1)));
        if (node.size > 1) {
            enum { BYTES = 100003 };
            tt_err err; /* of this node: others may have no windows */
            ck_assert_int_eq(tt_node_window(&node, BYTES, false, each, &err), TT_OK);
            ck_assert_int_eq(tt_node_window(&node, BYTES, true, once, &err), TT_OK);
            unsigned char *mine = each[node.rank], *all = once[node.rank];
            int64_t wrong = 0;
            for (int64_t k = 0; k < BYTES; k++) {
                wrong += mine[k] != 0; /* zeroed */
                mine[k] = (unsigned char)(k + W->rank);
            }
            all[node.rank] = (unsigned char)(1 + W->rank);
            tt_flags_set(&flags, 0, 7); /* what was written before is seen by who sees it */
            for (int turns = 0; !tt_flags_all(&flags, 0, 7); tt_relax(&turns)) {
            }
            for (int j = 0; j < node.size; j++) {
                const int rank = tt_node_at(&node, node.index, j);
                for (int64_t k = 0; k < BYTES; k++) {
                    wrong += ((unsigned char *)each[j])[k] != (unsigned char)(k + rank);
                }
                wrong += ((unsigned char *)once[j])[j] != (unsigned char)(1 + rank);
                wrong += (uintptr_t)each[j] % 64 != 0 || (uintptr_t)once[j] % 64 != 0;
            }
            ck_assert(wrong == 0);
        }
        must(tt_barrier(W, &err_));
        tt_flags_close(&flags);
        tt_node_close(&node);
    }
}
END_TEST

/* There is room for a little everywhere; nowhere for more than there is memory in the world. */
START_TEST(room_is_looked_at)
{
    tt_node node;
    tt_err err = {TT_OK, ""};
    must(tt_node_open(&node, W, 0, &err_));
    must(tt_node_room(&node, 1 << 16, 1 << 16, &err_));
    if (W->size > 1) {
        ck_assert(tt_all(tt_node_room(&node, 0, (size_t)1 << 60, &err) == TT_EWORLD));
        ck_assert(tt_all(strstr(err.text, "remount") != NULL));
    }
    tt_node_close(&node);
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("dist/node");
    TCase *tests = tcase_create("node");
    tcase_add_test(tests, tables_hold_every_rank_once);
    tcase_add_test(tests, imagined_is_opened);
    tcase_add_test(tests, windows_are_shared);
    tcase_add_test(tests, room_is_looked_at);
    suite_add_tcase(suite, tests);
    return suite;
}

TT_MPI_TEST_MAIN(make_suite)
