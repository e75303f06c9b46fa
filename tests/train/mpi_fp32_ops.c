/* mpi_fp32_ops.c: operations moved up to FP32: the same bits however the work is split, copies that
 * are the masters, on the wire what was planned, across an interruption, in evaluation. */
#define TT_MPI_TEST
#include "train_test.h"

enum { SEQUENCES = 12, STEPS = 3 }; /* 12: divides by 1, 2, 3 and 4 ranks */

static const struct {
    const char *compute, *ops, *master, *tied;
} kinds[] = {{"bf16", "fc,head", "fp32", "true"},
             {"bf16", "qkv,attention,proj,fc,down,head", "split", "false"},
             {"fp8", "attention,down,head", "fp32", "true"}};
enum { KINDS = sizeof kinds / sizeof *kinds };

static tt_config kind_config(const char *run, int kind)
{
    tt_config config = tiny_config(run);
    set(&config, "run.exact", "true");
    set(&config, "precision.compute", "%s", kinds[kind].compute);
    set(&config, "precision.fp32_ops", "%s", kinds[kind].ops);
    set(&config, "precision.master", "%s", kinds[kind].master);
    set(&config, "model.tie_embeddings", "%s", kinds[kind].tied);
    set(&config, "model.dropout", "0.1");
    set(&config, "batch.sequences", "%d", SEQUENCES);
    return config;
}

/* Are the copies the masters, where this rank has both? And how many of its own did it look at? */
static bool copies_are_masters(const tt_trainer *t)
{
    const tt_params *params = &t->print.params;
    float *master = masters_of(t);
    int64_t met = 0;
    bool same = true;
    for (int i = 0; i < params->count; i++) {
        const tt_param *p = &params->param[i];
        for (int k = 0; k < t->print.shard.count && p->wide >= 0; k++) {
            const int64_t first = tt_max(p->offset, t->print.shard.range[k].first);
            const int64_t end = tt_min(p->offset + p->count, t->print.shard.range[k].end);
            if (first < end) {
                met += end - first;
                same = same && memcmp(t->wide_weights + p->wide + (first - p->offset),
                                      master + first, sizeof(float) * (size_t)(end - first)) == 0;
            }
        }
    }
    free(master);
    return same && (met > 0 || t->world->size > 1);
}

static bool same_copies(const tt_trainer *a, const tt_trainer *b)
{
    return a->print.params.wide == b->print.params.wide && a->print.params.wide > 0 &&
           memcmp(a->wide_weights, b->wide_weights, sizeof(float) * (size_t)a->print.params.wide) ==
               0;
}

START_TEST(any_split_has_the_same_bits)
{
    for (int zero = 0; zero < 2; zero++) {
        tt_config config = kind_config("split", _i), own = alone_config(&config, SEQUENCES);
        tt_trainer whole, t;
        tt_record wanted, record;
        set(&config, "memory.zero", "%d", zero);
        set(&config, "batch.micro", "%d", zero ? 1 : SEQUENCES / tt_test_world.size);
        set(&config, "run.threads", "%d", 1 + zero);
        open_trainer(&whole, &own, &alone);
        open_trainer(&t, &config, &tt_test_world);
        for (int i = 0; i < STEPS; i++) {
            ck_assert(everywhere(copies_are_masters(&t) && copies_are_masters(&whole)));
            step_once(&whole, &wanted);
            step_once(&t, &record);
            ck_assert_msg(everywhere(record.loss == wanted.loss &&
                                     record.grad_norm == wanted.grad_norm && !record.skipped),
                          "step %d: loss %a and %a", i + 1, record.loss, wanted.loss);
            ck_assert(everywhere(same_weights(&t, &whole) && same_masters(&t, &whole)));
            ck_assert(everywhere(same_copies(&t, &whole)));
            ck_assert_msg(everywhere(record.comm_bytes == t.print.plan.wire_bytes &&
                                     record.comm_calls == t.print.plan.wire_calls),
                          "%lld bytes of %lld, %lld calls of %lld", (long long)record.comm_bytes,
                          (long long)t.print.plan.wire_bytes, (long long)record.comm_calls,
                          (long long)t.print.plan.wire_calls);
        }
        tt_trainer_close(&t);
        tt_trainer_close(&whole);
    }
}
END_TEST

/* Interrupted on many ranks, continued on one, beside a run that was not; a file read for evaluation
 * has the same copies. Another list is another path. */
START_TEST(goes_on)
{
    tt_config config = kind_config("go", _i), own = alone_config(&config, SEQUENCES), rest;
    tt_trainer whole, t;
    tt_infer infer;
    tt_err err = {TT_OK, ""};
    set(&config, "run.dir", "%s", in_folder("go-%d", _i));
    set(&own, "run.dir", "%s", in_folder("go-%d-alone-%d", _i, my_rank()));
    first_part(&config, &tt_test_world);
    open_trainer(&whole, &own, &alone);
    steps(&whole, FIRST);
    rest = own;
    set(&rest, "run.dir", "%s", in_folder("go-%d-rest-%d", _i, my_rank()));
    lend(&config, &rest, FIRST);
    set(&rest, "memory.zero", "0");
    open_trainer(&t, &rest, &alone);
    ck_assert(everywhere(t.progress.step == FIRST && same_copies(&t, &whole)));
    char *file = in_folder("go-%d/step-%08d.h5", _i, FIRST);
    must(tt_infer_open(&infer, NULL, file, 0, NULL, 1, &err_));
    ck_assert(everywhere(
        memcmp(infer.wide, t.wide_weights, sizeof(float) * (size_t)t.print.params.wide) == 0));
    tt_infer_close(&infer);
    steps(&whole, 2);
    steps(&t, 2);
    ck_assert(everywhere(same_weights(&t, &whole) && same_masters(&t, &whole)));
    tt_trainer_close(&t);
    tt_trainer_close(&whole);
    set(&rest, "precision.fp32_ops", "loss");
    tt_code rc = tt_trainer_open(&t, &rest, &alone, &quiet, &err);
    ck_assert_msg(everywhere(rc == TT_EUSER && strstr(err.text, "precision.fp32_ops") != NULL),
                  "%s", err.text);
}
END_TEST

static tt_record first_step(const char *compute, const char *ops)
{
    tt_config config = kind_config("first", 0);
    tt_trainer t;
    tt_record record;
    set(&config, "run.resume", "never");
    set(&config, "precision.compute", "%s", compute);
    set(&config, "precision.fp32_ops", "%s", ops);
    open_trainer(&t, &config, &tt_test_world);
    step_once(&t, &record);
    tt_trainer_close(&t);
    return record;
}

/* What is FP32 already may be named, and nothing changes; the rest is another computation. */
START_TEST(names_that_change_nothing)
{
    const tt_record plain = first_step("bf16", "[]"), head = first_step("bf16", "[head]");
    const tt_record same = first_step("bf16", "[norm, softmax, gelu, loss, optimizer]");
    const tt_record full = first_step("fp32", "[]"), named = first_step("fp32", "[qkv, head]");
    ck_assert(everywhere(same.loss == plain.loss && same.grad_norm == plain.grad_norm));
    ck_assert(everywhere(named.loss == full.loss && named.grad_norm == full.grad_norm));
    /* In FP8 without FP8 forward is BF16's. */
    const char *blocks = "[qkv, attention, proj, fc, down]";
    const tt_record fp8 = first_step("fp8", blocks), bf16 = first_step("bf16", blocks);
    ck_assert(everywhere(fp8.loss == bf16.loss && fp8.loss != plain.loss));
    ck_assert(everywhere(head.loss != plain.loss && head.loss != full.loss));
    ck_assert_msg(everywhere(apart(head.loss, full.loss) < 1e-4), "%.9g, %.9g", head.loss,
                  full.loss);
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("train/fp32_ops");
    TCase *tests = tcase_create("fp32_ops");
    tcase_set_timeout(tests, 0);
    tcase_add_unchecked_fixture(tests, open_folder, close_folder);
    tcase_add_loop_test(tests, any_split_has_the_same_bits, 0, KINDS);
    tcase_add_loop_test(tests, goes_on, 0, KINDS);
    tcase_add_test(tests, names_that_change_nothing);
    suite_add_tcase(suite, tests);
    return suite;
}

TT_MPI_TEST_MAIN(make_suite)
