/* mpi_verify.c: one bit of one weight on one rank, anywhere, is found, and named alike on all ranks; and
 * so is one that the ranks of a node share. */
#define TT_MPI_TEST
#include "train_test.h"

#include "tutti/train/verify.h"

static const char *const formats[] = {"bf16", "fp32"};

/* A model of several buckets; up to `near` ranks share their weights. */
static void open_wide(tt_trainer *t, int format, int near)
{
    tt_config config = tiny_config("verify");
    set(&config, "precision.compute", "%s", formats[format]);
    set(&config, "model.channels", "192");
    set(&config, "dist.bucket_mb", "1");
    set(&config, "dist.node_shared", near > 1 ? "true" : "false");
    set(&config, "dist.node_ranks", "%d", near);
    open_trainer(t, &config, &tt_test_world);
    ck_assert_int_gt(t->print.buckets.count, 1);
}

static unsigned char *weight_at(const tt_trainer *t, int64_t at)
{
    return (unsigned char *)t->weights + at * (int64_t)t->print.act_bytes;
}

/* The number of the bucket that holds element `at`, from 1. */
static int bucket_at(const tt_trainer *t, int64_t at)
{
    int i = 0;
    while (t->print.buckets.bucket[i].range.end <= at) {
        i++;
    }
    return i + 1;
}

static bool says(const tt_err *err, const char *words)
{
    return strstr(err->text, words) != NULL;
}

START_TEST(equal_weights_are_equal)
{
    tt_trainer t;
    tt_record record;
    tt_err err;
    open_wide(&t, _i, 1);
    ck_assert(everywhere(tt_verify(&t, &err) == TT_OK));
    step_once(&t, &record);
    const tt_wire wire = t.world->wire;
    ck_assert(everywhere(tt_verify(&t, &err) == TT_OK));
    const bool one = tt_test_world.size == 1;
    ck_assert(everywhere(t.world->wire.calls - wire.calls == (one ? 0 : 1)));
    ck_assert(everywhere(t.world->wire.bytes - wire.bytes == (one ? 0 : 16)));
    tt_trainer_close(&t);
}
END_TEST

/* Every parameter's first and last element, on each rank in turn. */
START_TEST(one_bit_is_found)
{
    tt_trainer t;
    tt_err err;
    char ranks[64], bucket[32], there[128];
    const int R = tt_test_world.size;
    if (R == 1) {
        return;
    }
    open_wide(&t, _i, 1);
    for (int i = 0; i < 2 * t.print.params.count; i++) {
        const tt_param *param = &t.print.params.param[i / 2];
        const int64_t at = param->offset + (i % 2 == 0 ? 0 : param->count - 1);
        const int odd = i % R;
        unsigned char *weight = weight_at(&t, at);
        *weight ^= my_rank() == odd ? 0x10 : 0;
        snprintf(ranks, sizeof ranks,
                 R == 2 ? "ranks 0 and 1 from each other" : "rank %d from the others", odd);
        snprintf(bucket, sizeof bucket, "in bucket %d of %d ", bucket_at(&t, at),
                 t.print.buckets.count);
        snprintf(there, sizeof there, ", there in %s; not saved", param->name);
        const tt_code code = tt_verify(&t, &err);
        ck_assert_msg(everywhere(code == TT_EWORLD && says(&err, ranks) && says(&err, bucket) &&
                                 says(&err, there)),
                      "%s%s%s: %s", ranks, bucket, there, err.text);
        *weight ^= my_rank() == odd ? 0x10 : 0;
        ck_assert(everywhere(tt_verify(&t, &err) == TT_OK));
    }
    tt_trainer_close(&t);
}
END_TEST

/* Several ranks, alike and each in its own way; the first of two buckets is named. */
START_TEST(several_ranks_are_named)
{
    tt_trainer t;
    tt_err err;
    const int R = tt_test_world.size;
    if (R < 3) {
        return;
    }
    open_wide(&t, _i, 1);
    const int64_t last = t.print.buckets.bucket[t.print.buckets.count - 1].range.first;
    *weight_at(&t, last) ^= my_rank() == 0 ? 1 : 0;
    *weight_at(&t, 0) ^= my_rank() == 1 ? 1 : my_rank() == 2 ? 2 : 0;
    ck_assert(everywhere(tt_verify(&t, &err) == TT_EWORLD && says(&err, "first in bucket 1 of ")));
    ck_assert(everywhere(says(&err, R == 3 ? "ranks 0, 1 and 2 from each other"
                                           : "ranks 0, 1, 2 and 3 from each other")));
    *weight_at(&t, 0) ^= my_rank() == 1 ? 1 : my_rank() == 2 ? 2 : 0;
    *weight_at(&t, 0) ^= my_rank() > 0 ? 1 : 0; /* the majority is right */
    ck_assert(everywhere(tt_verify(&t, &err) == TT_EWORLD && says(&err, "rank 0 from the others")));
    tt_trainer_close(&t);
}
END_TEST

/* What two ranks share cannot differ between them: they are named together, or the third alone. */
START_TEST(nodes_are_compared)
{
    tt_trainer t;
    tt_err err;
    const int R = tt_test_world.size;
    if (R < 3) {
        return;
    }
    open_wide(&t, _i, 2);
    ck_assert(everywhere(t.print.node_ranks == (R == 3 && my_rank() == 2 ? 1 : 2)));
    ck_assert(everywhere(tt_verify(&t, &err) == TT_OK));
    *weight_at(&t, 0) ^= my_rank() == 1 ? 1 : 0;
    ck_assert(everywhere(true)); /* it is there */
    ck_assert(everywhere(tt_verify(&t, &err) == TT_EWORLD && says(&err, "first in bucket 1 of ")));
    ck_assert(everywhere(
        says(&err, R == 3 ? "rank 2 from the others" : "ranks 0, 1, 2 and 3 from each other")));
    *weight_at(&t, 0) ^= my_rank() == 0 ? 1 : 0; /* the other one takes it back */
    ck_assert(everywhere(true));
    ck_assert(everywhere(tt_verify(&t, &err) == TT_OK));
    tt_trainer_close(&t);
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("train/verify");
    TCase *tests = tcase_create("verify");
    tcase_set_timeout(tests, 0);
    tcase_add_unchecked_fixture(tests, open_folder, close_folder);
    tcase_add_loop_test(tests, equal_weights_are_equal, 0, 2);
    tcase_add_loop_test(tests, one_bit_is_found, 0, 2);
    tcase_add_loop_test(tests, several_ranks_are_named, 0, 2);
    tcase_add_loop_test(tests, nodes_are_compared, 0, 2);
    suite_add_tcase(suite, tests);
    return suite;
}

TT_MPI_TEST_MAIN(make_suite)
