/* test_outlook.c: what a plan expects of a network follows from its price: each part of a step counts
 * once, a pace that is given replaces the measured one, and the page says what was forecast. */
#include "train_test.h"
#include "tutti/train/outlook.h"

/* Two blocks, micro-batches of 2 sequences of 8 tokens, K = 3, on 4 ranks: 48 tokens a rank and step. */
enum { TOKENS = 48, RANKS = 4 };
static tt_blueprint print;
static const tt_price price = {.stem = 3e-3,
                               .stem_backward = 2e-3,
                               .crown = 5e-3,
                               .forward = 7e-3,
                               .backward = 11e-3,
                               .squares = 1e-6,
                               .adamw = 2e-6,
                               .pack = 4e-6,
                               .update = 0.125,
                               .add = 1e-9,
                               .rounds = 1};
static const tt_network network = {.ranks = RANKS, .node_ranks = 1, .latency = 1e-4, .link = 1e6};

static void make(const char *recompute)
{
    tt_config config = tiny_config("outlook");
    set(&config, "batch.sequences", "24");
    set(&config, "batch.micro", "2");
    set(&config, "batch.accumulate", "3");
    set(&config, "memory.recompute", recompute);
    must(tt_blueprint_make(&print, &config, 257, 0, RANKS, 1, NULL, &err_));
    ck_assert(print.shape.L == 2 && print.shape.T * 6 == TOKENS);
}

static void near(double got, double wanted, const char *what)
{
    ck_assert_msg(fabs(got - wanted) <= 1e-9 * fabs(wanted), "%s: %.12g, not %.12g", what, got,
                  wanted);
}

/* Stem, crown and two blocks, forward and backward; then the update of all, or the rank's. */
START_TEST(every_part_once)
{
    tt_outlook o;
    make("none");
    must(tt_outlook_make(&o, &print, &price, &network, 0, &err_));
    const double passes = TOKENS * (3e-3 + 5e-3 + 2 * (7e-3 + 11e-3));
    const double whole = 7e-6 * (double)print.params.total;
    ck_assert_int_eq(o.forecasts, 4);
    ck_assert_int_eq(o.forecast[0].accumulate, 3);
    near(o.forecast[0].compute, passes + 0.125, "compute");
    near(o.forecast[1].compute, passes / 3 + 0.125, "compute of one micro-batch");
    near(o.rate, TOKENS / (passes + whole), "pace of one rank");
    near(o.forecast[0].overlap.efficiency * o.forecast[0].overlap.step, passes + whole, "alone");
    near(o.network.sum, 1e-9, "adding");
    ck_assert_int_eq(o.threads, print.plan.threads);
    tt_blueprint_free(&print);
}
END_TEST

/* The bytes of a step: gradients of 4, weights in FP32. */
START_TEST(bytes)
{
    tt_outlook o;
    tt_network still = network; /* no latency, nothing to add */
    still.latency = 0;
    still.sum = 1e-30;
    make("none");
    must(tt_outlook_make(&o, &print, &price, &still, 0, &err_));
    const double N = (double)print.params.total;
    near(o.forecast[0].reduce, 2 * 0.75 * 4 * N / 1e6, "reduce");
    near(o.forecast[0].gather, 0.75 * 4 * N / 1e6, "gather");
    near(o.forecast[0].reduce, o.forecast[3].reduce, "whatever is accumulated");
    tt_blueprint_free(&print);
}
END_TEST

/* Each application of a block again takes a second: those that are, for each block and micro-batch. */
START_TEST(recomputing)
{
    tt_outlook none, block;
    tt_price dear = price;
    for (int row = 0; row < TT_ROWS; row++) {
        dear.again[row] = 1e-3;
    }
    make("none");
    must(tt_outlook_make(&none, &print, &dear, &network, 0, &err_));
    tt_blueprint_free(&print);
    make("block");
    must(tt_outlook_make(&block, &print, &dear, &network, 0, &err_));
    near(block.forecast[0].compute - none.forecast[0].compute,
         tt_price_again(&dear, &print, &print.recompute), "again");
    ck_assert_double_gt(block.forecast[0].compute, none.forecast[0].compute * 1.1);
    tt_blueprint_free(&print);
}
END_TEST

START_TEST(a_given_pace)
{
    tt_outlook o, twice;
    tt_text page = {0}, json = {0};
    tt_network given = network;
    given.sum = 5e-10;
    make("none");
    must(tt_outlook_make(&o, &print, &price, &given, 125, &err_));
    must(tt_outlook_make(&twice, &print, &price, &given, 250, &err_));
    near(o.rate, 125, "pace");
    near(o.network.sum, 5e-10, "adding");
    near(o.forecast[0].compute, 2 * twice.forecast[0].compute, "half the pace");
    near(o.forecast[0].reduce, twice.forecast[0].reduce, "the network is as it was");
    near(o.forecast[0].blocking.efficiency * RANKS * 125, o.forecast[0].blocking.tokens_per_s,
         "tokens a second");
    tt_outlook_text(&o, &page);
    tt_outlook_json(&o, &json);
    ck_assert_ptr_nonnull(strstr(page.data, "one rank alone trains 125 tokens/s, as given\n"));
    ck_assert_ptr_nonnull(strstr(page.data, "a thread adds 2 GB/s; "));
    ck_assert_ptr_nonnull(strstr(json.data, "\"rank_tokens_per_s\": 125, "));
    ck_assert_ptr_nonnull(strstr(json.data, "\"accumulate\": 3, \"compute_ms\": "));
    tt_text_free(&page);
    tt_text_free(&json);
    tt_blueprint_free(&print);
}
END_TEST

/* What was measured says with what, and when that was more than there is. */
START_TEST(a_measured_pace_says_where)
{
    tt_outlook o;
    tt_text page = {0}, crowded = {0};
    make("none");
    must(tt_outlook_make(&o, &print, &price, &network, 0, &err_));
    ck_assert_int_eq(o.threads, print.plan.threads);
    ck_assert_int_ge(o.processors, 1);
    o.processors = o.threads;
    tt_outlook_text(&o, &page);
    ck_assert_ptr_nonnull(strstr(page.data, "by the kernels here and now, on 1 thread; "));
    o.processors = 2;
    o.threads = 16;
    tt_outlook_text(&o, &crowded);
    ck_assert_ptr_nonnull(
        strstr(crowded.data, "on 16 threads, more than the 2 processors here can bear; "));
    tt_text_free(&page);
    tt_text_free(&crowded);
    tt_blueprint_free(&print);
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("train/outlook");
    TCase *tcase = tcase_create("outlook");
    tcase_add_unchecked_fixture(tcase, open_folder, close_folder);
    tcase_add_test(tcase, every_part_once);
    tcase_add_test(tcase, bytes);
    tcase_add_test(tcase, recomputing);
    tcase_add_test(tcase, a_given_pace);
    tcase_add_test(tcase, a_measured_pace_says_where);
    suite_add_tcase(suite, tcase);
    return suite;
}

TT_TEST_MAIN(make_suite)
