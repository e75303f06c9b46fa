/* mpi_big.c: one tensor, longer than a transfer, by more ranks than there are tensors, the first of
 * which holds nothing: saved, loaded by another cut, verified, compared; and none of it takes
 * memory for the tensor.
 *
 * tests/long/big.sh runs it beyond 2 GB: TUTTI_TEST_BIG is the number of elements, TUTTI_TEST_BIG_DIR a
 * folder where the two files stay, a.h5 and b.h5. */
#define TT_MPI_TEST
#include "ckpt_test.h"
#include "tutti/base/file.h"

enum { MOST_MEMORY = 200 << 20 }; /* bytes of a rank, whatever the tensor takes */

static int64_t elements(void)
{
    const char *asked = getenv("TUTTI_TEST_BIG");
    return asked != NULL ? strtoll(asked, NULL, 10) : 5000011; /* a prime: nothing divides it */
}

/* A tensor that is not in memory: each element follows from its index. */
typedef struct imagined {
    int64_t odd;   /* this element is another than it should be; -1: none */
    int64_t wrong; /* elements that were read and are not what they should be */
    int64_t seen;
} imagined;

static float value_of(int64_t e)
{
    return (float)(e % 16381) - 8000;
}

static tt_code get(const void *owner, int64_t at, int64_t count, float *out, tt_err *err)
{
    (void)err;
    const imagined *tensor = owner;
    for (int64_t i = 0; i < count; i++) {
        out[i] = value_of(at + i) + (at + i == tensor->odd);
    }
    return TT_OK;
}

static tt_code put(const void *owner, int64_t at, int64_t count, const float *in, tt_err *err)
{
    (void)err;
    imagined *tensor = (imagined *)owner;
    for (int64_t i = 0; i < count; i++) {
        tensor->wrong += in[i] != value_of(at + i) + (at + i == tensor->odd);
    }
    tensor->seen += count;
    return TT_OK;
}

/* One state of one tensor, of which this rank holds [first, end). */
typedef struct big {
    imagined tensor;
    tt_piece piece;
    tt_tensor_row row;
    tt_state state;
} big;

static void make(big *b, int64_t first, int64_t end, int64_t odd)
{
    b->tensor = (imagined){.odd = odd};
    b->piece = (tt_piece){.first = first,
                          .count = end - first,
                          .form = {.owner = &b->tensor, .get = get, .put = put},
                          .at = first};
    b->row = (tt_tensor_row){
        .name = "params/wte", .dims = 1, .dim = {elements()}, .pieces = 1, .piece = &b->piece};
    b->state = (tt_state){.tensors = 1, .tensor = &b->row};
}

/* Where the piece of rank r begins, of `ranks` who hold some; nothing of it fits pages. */
static int64_t cut(int r, int ranks)
{
    const int64_t n = elements();
    return r <= 0 ? 0 : r >= ranks ? n : n / ranks * r + 13 * r;
}

START_TEST(a_tensor_larger_than_everything)
{
    tt_world *world = &tt_test_world;
    const int rank = world->rank, ranks = world->size;
    const int64_t n = elements(), odd = n - 5;
    const char *kept = getenv("TUTTI_TEST_BIG_DIR");
    folder dir = {.path = ""};
    char a[512], b[512];
    tt_err err = {TT_OK, ""};
    tt_code rc = TT_OK;
    big one;
    if (rank == 0 && kept == NULL) {
        dir = folder_new();
    }
    MPI_Bcast(dir.path, sizeof dir.path, MPI_CHAR, 0, MPI_COMM_WORLD);
    snprintf(a, sizeof a, "%s/a.h5", kept != NULL ? kept : dir.path);
    snprintf(b, sizeof b, "%s/b.h5", kept != NULL ? kept : dir.path);
    for (int i = 0; i < 2; i++) {
        if (ranks == 1) {
            make(&one, 0, n, i == 0 ? -1 : odd);
        } else { /* rank 0 holds nothing */
            make(&one, cut(rank - 1, ranks - 1), rank == 0 ? 0 : cut(rank, ranks - 1),
                 i == 0 ? -1 : odd);
        }
        rc = tt_ckpt_save(world, i == 0 ? a : b, &one.state, NULL, 1, &err);
        ck_assert_msg(tt_all(rc == TT_OK), "%s", err.text);
    }

    make(&one, cut(ranks - 1 - rank, ranks), cut(ranks - rank, ranks), -1);
    rc = tt_ckpt_load(world, a, &one.state, false, &err);
    ck_assert_msg(tt_all(rc == TT_OK), "%s", err.text);
    ck_assert(tt_all(one.tensor.wrong == 0 && one.tensor.seen == one.piece.count));
    ck_assert(tt_all(one.piece.count > 0));

    if (rank == 0) {
        tt_text said = {0};
        tt_group_diff group[4];
        tt_first_diff first;
        int groups = 0;
        bool identical = true;
        rc = tt_ckpt_verify(a, &said, &err);
        rc = rc == TT_OK ? tt_ckpt_diff(a, b, &identical, group, 4, &groups, &first, &err) : rc;
        tt_text_free(&said);
        if (rc == TT_OK && (identical || groups != 1 || group[0].different != 1 ||
                            first.dims != 1 || first.at[0] != odd)) {
            rc = tt_fail(&err, TT_EWORLD, "the one element that differs: %s[%lld], %lld differ",
                         first.path, (long long)first.at[0], (long long)group[0].different);
        }
    }
    ck_assert_msg(tt_all(rc == TT_OK), "%s", err.text);
#if !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__) /* which hold memory of their own */
    const size_t most = tt_rss_peak();
    ck_assert_msg(tt_all(most < MOST_MEMORY), "%zu bytes resident at most", most);
#endif
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0 && kept == NULL) {
        folder_free(&dir);
    }
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("ckpt/big");
    TCase *tests = tcase_create("big");
    tcase_set_timeout(tests, 0);
    tcase_add_test(tests, a_tensor_larger_than_everything);
    suite_add_tcase(suite, tests);
    return suite;
}

TT_MPI_TEST_MAIN(make_suite)
