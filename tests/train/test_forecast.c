/* test_forecast.c: steps by hand: what is hidden behind backward and forward, and what is not. */
#include "tt_test.h"
#include "tutti/train/forecast.h"

/* Three stages of 100 elements of 1 byte, a bucket each; every pass of a stage takes 1 s, the update
 * 0.5 s. Two nodes without latency sum n bytes in n / link seconds, scatter or gather in half of it. */
enum { STAGES = 3 };
static double seconds[2 * STAGES];
static tt_bucket bucket[STAGES];
static tt_buckets buckets;
static const int64_t stage_end[STAGES] = {100, 200, 300};
static tt_work work;
static tt_network network;

static void begin(void)
{
    for (int i = 0; i < 2 * STAGES; i++) {
        seconds[i] = 1;
    }
    for (int s = 0; s < STAGES; s++) {
        bucket[s] = (tt_bucket){{100 * s, 100 * (s + 1)}, s};
    }
    buckets = (tt_buckets){.count = STAGES, .bucket = bucket};
    work = (tt_work){.stages = STAGES,
                     .forward = seconds,
                     .backward = seconds + STAGES,
                     .update = 0.5,
                     .alone = 0.5,
                     .tokens = 10,
                     .buckets = &buckets,
                     .stage_end = stage_end,
                     .gradient = 1,
                     .weight = 1};
    network = (tt_network){.ranks = 2, .node_ranks = 1, .link = 100};
}

static void near(double got, double wanted, const char *what)
{
    ck_assert_msg(fabs(got - wanted) <= 1e-12 + 1e-9 * fabs(wanted), "%s: %.12g, not %.12g", what,
                  got, wanted);
}

/* Sums of 1 s: those of the last two stages hide, that of the first begins when backward ends. */
START_TEST(one_sum_shows)
{
    tt_forecast f = tt_forecast_make(&work, &network, 1);
    near(f.compute, 6.5, "compute");
    near(f.reduce, 3, "reduce");
    near(f.gather, 0, "gather");
    near(f.agree, 0, "agree");
    near(f.blocking.exposed, 3, "blocking, exposed");
    near(f.blocking.step, 9.5, "blocking, step");
    near(f.blocking.efficiency, 6.5 / 9.5, "blocking, efficiency");
    near(f.overlap.exposed, 1, "exposed");
    near(f.overlap.step, 7.5, "step");
    near(f.overlap.tokens_per_s, 20 / 7.5, "tokens a second");
    near(f.overlap.efficiency, 6.5 / 7.5, "efficiency");
}
END_TEST

/* Sums of 2.5 s queue: ready at 1, 2, 3, done at 3.5, 6, 8.5. */
START_TEST(sums_queue)
{
    network.link = 40;
    tt_forecast f = tt_forecast_make(&work, &network, 1);
    near(f.reduce, 7.5, "reduce");
    near(f.overlap.exposed, 5.5, "exposed");
}
END_TEST

/* A single bucket of all stages waits for the last of them, so nothing hides. */
START_TEST(one_bucket)
{
    bucket[0] = (tt_bucket){{0, 300}, 0};
    buckets.count = 1;
    tt_forecast f = tt_forecast_make(&work, &network, 1);
    near(f.overlap.exposed, 3, "exposed");
    near(f.overlap.step, f.blocking.step, "step");
    bucket[0].last_stage = 2; /* were it ready at once, 2 of 3 s would hide */
    f = tt_forecast_make(&work, &network, 1);
    near(f.overlap.exposed, 1, "exposed");
}
END_TEST

/* The first stage without parameters of its own: all is hidden. */
START_TEST(all_hidden)
{
    buckets.bucket = bucket + 1;
    buckets.count = 2;
    tt_forecast f = tt_forecast_make(&work, &network, 1);
    near(f.reduce, 2, "reduce");
    near(f.overlap.exposed, 0, "exposed");
    near(f.overlap.efficiency, 1, "efficiency");
}
END_TEST

/* Four micro-batches: the same sums, once. */
START_TEST(accumulation)
{
    tt_forecast f = tt_forecast_make(&work, &network, 4);
    near(f.compute, 24.5, "compute");
    near(f.reduce, 3, "reduce");
    near(f.overlap.exposed, 1, "exposed");
    near(f.overlap.tokens_per_s, 80 / 25.5, "tokens a second");
    near(f.blocking.efficiency, 24.5 / 27.5, "efficiency");
}
END_TEST

/* ZeRO 1 gathers weights of 1 byte in 0.5 s a bucket: the first is waited for, the others come while
 * stages are computed. Weights of 4 bytes, 2 s: stages begin at 2, 4, 6, and forward ends at 7, not 3.
 * An update that is divided makes one rank the slower. */
START_TEST(zero_1)
{
    work.zero = 1;
    work.update = 0.25;
    tt_forecast f = tt_forecast_make(&work, &network, 1);
    near(f.gather, 1.5, "gather");
    near(f.overlap.exposed, 1 + 0.5, "exposed");
    near(f.blocking.exposed, 3 + 1.5, "blocking, exposed");
    near(f.overlap.efficiency, 6.5 / (6.25 + 1.5), "efficiency");
    work.weight = 4;
    f = tt_forecast_make(&work, &network, 2);
    near(f.gather, 6, "gather, slow");
    near(f.overlap.exposed, 1 + 4, "exposed, slow");
}
END_TEST

/* ZeRO 2 scatters: half of a sum. */
START_TEST(zero_2)
{
    work.zero = 2;
    tt_forecast f = tt_forecast_make(&work, &network, 1);
    near(f.reduce, 1.5, "reduce");
    near(f.gather, 1.5, "gather");
    near(f.overlap.exposed, 0.5 + 0.5, "exposed");
}
END_TEST

/* ZeRO 3 gathers in every pass, a stage ahead. Weights of 2 bytes, 1 s: each pass waits 1 s for its
 * first. In the last backward gathers and sums of 0.5 s share the lane in the order in which they are
 * asked for: gathers of stages 2 and 1 until 1 and 2, the sum of stage 2 until 2.5, the gather of stage
 * 0 until 3.5; stage 0 ends at 4.5, and its sum at 5, where 3 were computed. */
START_TEST(zero_3)
{
    work.zero = 3;
    work.weight = 2;
    tt_forecast f = tt_forecast_make(&work, &network, 1);
    near(f.gather, 6, "gather");
    near(f.reduce, 1.5, "reduce");
    near(f.overlap.exposed, 1 + 2, "exposed");
    f = tt_forecast_make(&work, &network, 3);
    near(f.gather, 18, "gather of three");
    near(f.reduce, 1.5, "reduce of three");
    near(f.overlap.exposed, 3 * 1 + 2 * 1 + 2, "exposed of three");
}
END_TEST

/* Pieces of every micro-batch: four times the sums, each waited for when its micro-batch ends. */
START_TEST(pieces)
{
    work.zero = 2;
    work.often = true;
    tt_forecast f = tt_forecast_make(&work, &network, 4);
    near(f.reduce, 4 * 1.5, "reduce");
    near(f.gather, 1.5, "gather");
    near(f.overlap.exposed, 0.5 + 4 * 0.5, "exposed");
    work.zero = 3;
    work.weight = 2;
    f = tt_forecast_make(&work, &network, 3);
    near(f.overlap.exposed, 3 * (1 + 2), "exposed, ZeRO 3");
}
END_TEST

/* A last stage of three times the weights, 1.5 s: from the start on it comes in time; a stage ahead it
 * is asked for when stage 1 begins, at 1.5, and stage 2 waits from 2.5 to 3. Backward begins with it. */
START_TEST(a_stage_ahead)
{
    bucket[2].range.end = 500;
    work.gradient = 0;
    work.zero = 1;
    near(tt_forecast_make(&work, &network, 1).overlap.exposed, 0.5, "from the start on");
    work.zero = 3;
    near(tt_forecast_make(&work, &network, 1).overlap.exposed, 0.5 + 0.5 + 1.5, "a stage ahead");
}
END_TEST

/* The step's agreement: two sums of next to nothing, one latency each. */
START_TEST(agreement)
{
    work.agreements = 2;
    network = (tt_network){.ranks = 2, .node_ranks = 1, .latency = 1e-3, .link = 1e30};
    tt_forecast f = tt_forecast_make(&work, &network, 1);
    near(f.agree, 2e-3, "agree");
    near(f.reduce, 3e-3, "reduce");
    near(f.overlap.exposed, 2e-3 + 1e-3, "exposed");
}
END_TEST

/* Where ranks meet in every micro-batch anyway, they ask whether one leaves: once between two. */
START_TEST(meetings)
{
    network = (tt_network){.ranks = 2, .node_ranks = 1, .latency = 1e-3, .link = 8e3};
    work.agreements = 2;
    work.met = 8;
    for (int i = 0; i < 4; i++) {
        work.zero = i;
        const double one = tt_forecast_make(&work, &network, 1).agree;
        near(one, 2e-3, "one micro-batch");
        near(tt_forecast_make(&work, &network, 4).agree - one, i == 3 ? 3 * 2e-3 : 0, "four");
        work.often = i >= 2;
        near(tt_forecast_make(&work, &network, 4).agree - one, i >= 2 ? 3 * 2e-3 : 0,
             "four, pieces");
        work.often = false;
    }
}
END_TEST

START_TEST(alone)
{
    network.ranks = 1;
    for (work.zero = 0; work.zero <= 3; work.zero++) {
        tt_forecast f = tt_forecast_make(&work, &network, 2);
        near(f.blocking.exposed, 0, "blocking, exposed");
        near(f.overlap.exposed, 0, "exposed");
        near(f.overlap.efficiency, 1, "efficiency");
    }
}
END_TEST

/* Whatever the stage: overlap is never slower, nothing hides more than there is, more accumulation is
 * never less efficient, a slower network or more ranks never faster. */
START_TEST(monotone)
{
    network.latency = 1e-3;
    network.sum = 1e-3;
    for (work.zero = 0; work.zero <= 3; work.zero++) {
        double before = 0;
        for (int R = 1; R <= 1024; R *= 2) {
            network.ranks = R;
            const tt_forecast f = tt_forecast_make(&work, &network, 1);
            const tt_forecast more = tt_forecast_make(&work, &network, 8);
            ck_assert(f.overlap.step <= f.blocking.step * (1 + 1e-12));
            ck_assert(f.overlap.exposed >= f.agree * (1 - 1e-12));
            ck_assert(f.overlap.step >= before * (1 - 1e-12));
            ck_assert(work.zero == 3 || more.overlap.efficiency >= f.overlap.efficiency);
            before = f.overlap.step;
            tt_network slow = network;
            slow.link /= 2;
            ck_assert(tt_forecast_make(&work, &slow, 1).overlap.step >= f.overlap.step);
            slow = network;
            slow.latency *= 2;
            ck_assert(tt_forecast_make(&work, &slow, 1).overlap.step >= f.overlap.step);
        }
    }
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("forecast");
    TCase *tcase = tcase_create("forecast");
    tcase_add_checked_fixture(tcase, begin, NULL);
    tcase_add_test(tcase, one_sum_shows);
    tcase_add_test(tcase, sums_queue);
    tcase_add_test(tcase, one_bucket);
    tcase_add_test(tcase, all_hidden);
    tcase_add_test(tcase, accumulation);
    tcase_add_test(tcase, zero_1);
    tcase_add_test(tcase, zero_2);
    tcase_add_test(tcase, zero_3);
    tcase_add_test(tcase, pieces);
    tcase_add_test(tcase, a_stage_ahead);
    tcase_add_test(tcase, agreement);
    tcase_add_test(tcase, meetings);
    tcase_add_test(tcase, alone);
    tcase_add_test(tcase, monotone);
    suite_add_tcase(suite, tcase);
    return suite;
}

TT_TEST_MAIN(make_suite)
