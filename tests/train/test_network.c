/* test_network.c: what collectives take, by hand; and that more ranks, a slower link or a longer wait
 * never make one faster. */
#include "tt_test.h"
#include "tutti/train/network.h"

static const double MB = 1e6;

/* R ranks, N a node; alpha in microseconds, the link in MB/s, no time to add. */
static tt_network network(int R, int N, double us, double mb_s)
{
    return (tt_network){.ranks = R, .node_ranks = N, .latency = 1e-6 * us, .link = mb_s * MB};
}

static void near(double got, double wanted, const char *what)
{
    ck_assert_msg(fabs(got - wanted) <= 1e-12 + 1e-9 * fabs(wanted), "%s: %.12g, not %.12g", what,
                  got, wanted);
}

START_TEST(nodes)
{
    const int cases[][3] = {{1, 1, 1}, {4, 1, 4}, {4, 2, 2}, {5, 2, 3}, {4, 8, 1}, {4096, 8, 512}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tt_network w = network(cases[i][0], cases[i][1], 1, 1);
        ck_assert_int_eq(tt_network_nodes(&w), cases[i][2]);
    }
}
END_TEST

/* Two nodes and no latency: half goes each way, twice. 100 MB at 100 MB/s. */
START_TEST(bytes_alone)
{
    tt_network w = network(2, 1, 0, 100);
    near(tt_network_allreduce(&w, 100 * MB, NULL), 1, "sum");
    near(tt_network_reduce_scatter(&w, 100 * MB), 0.5, "sum, scattered");
    near(tt_network_allgather(&w, 100 * MB), 0.5, "gather");
    w = network(4, 1, 0, 100);
    near(tt_network_allreduce(&w, 100 * MB, NULL), 1.5, "sum of four");
    near(tt_network_reduce_scatter(&w, 100 * MB), 0.75, "sum of four, scattered");
}
END_TEST

/* No bytes: rounds of latency, the fewest that there are. Of five, three do not fold. */
START_TEST(latency_alone)
{
    tt_way way;
    tt_network w = network(2, 1, 10, 100);
    near(tt_network_allreduce(&w, 0, &way), 10e-6, "two");
    ck_assert_int_eq(way, TT_WAY_DOUBLING);
    w = network(16, 1, 10, 100);
    near(tt_network_allreduce(&w, 0, NULL), 40e-6, "sixteen");
    near(tt_network_allgather(&w, 0), 40e-6, "sixteen gather");
    w = network(5, 1, 10, 100);
    near(tt_network_allreduce(&w, 0, NULL), 50e-6, "five");
}
END_TEST

/* 16 ranks, 8 us, 1000 MB/s. 1 kB: 4 (8 + 1) = 36. 1 MB: doubling 4 (8 + 1000) = 4032, halving
 * 8 * 8 + 2 * 15/16 * 1000 = 1939, ring 30 * 8 + 1875 = 2115. Of 6, 1 MB: folding costs 2016 more than
 * 6 * 8 + 2 * 5/6 * 1000, and the ring 10 * 8 + 1666.7 is the cheaper. */
START_TEST(the_cheapest_way)
{
    tt_way way;
    tt_network w = network(16, 1, 8, 1000);
    near(tt_network_allreduce(&w, 1e3, &way), 36e-6, "short");
    ck_assert_int_eq(way, TT_WAY_DOUBLING);
    near(tt_network_allreduce(&w, 1e6, &way), 1939e-6, "long");
    ck_assert_int_eq(way, TT_WAY_HALVING);
    near(tt_network_reduce_scatter(&w, 1e6), (15 * 8 + 937.5) * 1e-6, "scattered, piece by piece");
    near(tt_network_reduce_scatter(&w, 1e4), (15 * 8 + 9.375) * 1e-6, "short as it is");
    near(tt_network_allgather(&w, 1e4), (4 * 8 + 9.375) * 1e-6, "gathered in rounds");
    w = network(6, 1, 8, 1000);
    near(tt_network_allreduce(&w, 1e6, &way), (80 + 1e4 / 6) * 1e-6, "six");
    ck_assert_int_eq(way, TT_WAY_RING);
}
END_TEST

/* 3 nodes of 2, 100 MB at 100 MB/s: whether they share or not, the link is passed by (p-1)/p of the
 * vector each way, with p = 6 ranks or 3 nodes. Latency is of p - 1 steps. */
START_TEST(ranks_of_a_node)
{
    tt_network w = network(6, 2, 0, 100);
    near(tt_network_allreduce(&w, 100 * MB, NULL), 2 * 5.0 / 6, "a ring of ranks");
    w.shared = true;
    near(tt_network_allreduce(&w, 100 * MB, NULL), 2 * 2.0 / 3, "lanes");
    w.latency = 1;
    near(tt_network_allgather(&w, 1e9), 2 + 10 * 2.0 / 3, "lanes gather");
    w.shared = false;
    near(tt_network_allgather(&w, 1e9), 5 + 10 * 5.0 / 6, "a ring of ranks gathers");
    /* 4 nodes of 8, short: all 8 send at once, or each an eighth. */
    w = network(32, 8, 1, 1000);
    near(tt_network_allreduce(&w, 100, NULL), 2 * (1e-6 + 0.8e-6), "all at once");
    w.shared = true;
    near(tt_network_allreduce(&w, 100, NULL), 2 * (1e-6 + 0.1e-6), "an eighth each");
}
END_TEST

/* A node alone adds, and nothing else; between nodes each rank adds (p-1)/p of the vector. */
START_TEST(adding)
{
    tt_way way;
    tt_network w = network(4, 4, 10, 100);
    w.sum = 1 / (1000 * MB);
    near(tt_network_allreduce(&w, 100 * MB, &way), 0.075, "a node");
    ck_assert_int_eq(way, TT_WAY_HOME);
    near(tt_network_allgather(&w, 100 * MB), 0, "a node gathers nothing");
    w = network(2, 1, 0, 100);
    w.sum = 1 / (1000 * MB);
    near(tt_network_allreduce(&w, 100 * MB, NULL), 1.05, "two nodes");
    w = network(4, 2, 0, 100);
    w.sum = 1 / (1000 * MB);
    w.shared = true; /* half of the vector from the other, then half of that half */
    near(tt_network_allreduce(&w, 100 * MB, NULL), 1 + 0.05 + 0.025, "lanes");
}
END_TEST

START_TEST(alone)
{
    tt_network w = network(1, 1, 10, 100);
    w.sum = 1;
    near(tt_network_allreduce(&w, 1e9, NULL), 0, "sum");
    near(tt_network_reduce_scatter(&w, 1e9), 0, "scatter");
    near(tt_network_allgather(&w, 1e9), 0, "gather");
}
END_TEST

/* All three collectives of a network, for vectors of all lengths, are at least those of another. */
static void not_faster(const tt_network *than, const tt_network *w, const char *what)
{
    for (double n = 1; n < 1e10; n *= 10) {
        const double slack = 1 + 1e-12;
        ck_assert_msg(tt_network_allreduce(w, n, NULL) * slack >=
                          tt_network_allreduce(than, n, NULL),
                      "sum of %g: %s, %d ranks", n, what, w->ranks);
        ck_assert_msg(tt_network_reduce_scatter(w, n) * slack >= tt_network_reduce_scatter(than, n),
                      "scatter of %g: %s, %d ranks", n, what, w->ranks);
        ck_assert_msg(tt_network_allgather(w, n) * slack >= tt_network_allgather(than, n),
                      "gather of %g: %s, %d ranks", n, what, w->ranks);
    }
}

START_TEST(monotone)
{
    for (int shared = 0; shared < 2; shared++) {
        for (int N = 1; N <= 4; N *= 2) {
            for (int R = N; R <= 4096; R *= 2) { /* powers of 2: others fold */
                tt_network w = network(R, N, 5, 1000), more;
                w.shared = shared;
                more = w;
                more.latency *= 2;
                not_faster(&w, &more, "a longer wait");
                more = w;
                more.link /= 3;
                not_faster(&w, &more, "a slower link");
                more = w;
                more.ranks *= 2;
                not_faster(&w, &more, "more ranks");
            }
        }
    }
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("network");
    TCase *tcase = tcase_create("network");
    tcase_add_test(tcase, nodes);
    tcase_add_test(tcase, bytes_alone);
    tcase_add_test(tcase, latency_alone);
    tcase_add_test(tcase, the_cheapest_way);
    tcase_add_test(tcase, ranks_of_a_node);
    tcase_add_test(tcase, adding);
    tcase_add_test(tcase, alone);
    tcase_add_test(tcase, monotone);
    suite_add_tcase(suite, tcase);
    return suite;
}

TT_TEST_MAIN(make_suite)
