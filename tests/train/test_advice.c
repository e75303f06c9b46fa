/* test_advice.c: what is said of ranks that are placed badly, on machines made up: two sockets of four
 * NUMA domains of 8 cores each, with siblings and without; and that nothing is said of the others. */
#include "tt_test.h"
#include "tutti/train/advice.h"

/* Cores and domains of the node; processors are twice the cores where there are siblings. */
static tt_place node(int cores, int domains, bool siblings)
{
    const tt_span all = {siblings ? 2 * cores : cores, cores, domains};
    return (tt_place){
        .ranks = 1, .sharers = 1, .threads = 1, .launched = true, .own = all, .node = all};
}

/* N ranks, each bound to so many cores of its own. */
static tt_place bound(tt_place p, int ranks, int cores, int domains)
{
    p.ranks = ranks;
    p.own = (tt_span){cores * (p.node.processors / p.node.cores), cores, domains};
    p.threads = cores;
    return p;
}

/* N ranks that may run anywhere, with so many threads each. */
static tt_place loose(tt_place p, int ranks, int threads)
{
    p.ranks = p.sharers = ranks;
    p.threads = threads;
    return p;
}

static void says(tt_place p, const char *wanted)
{
    tt_text text = {0};
    tt_advice_text(&p, &text);
    ck_assert_str_eq(text.length > 0 ? text.data : "", wanted);
    tt_text_free(&text);
}

START_TEST(all_is_well)
{
    says(node(2, 1, false), "");
    says(loose(node(2, 1, false), 2, 1), ""); /* two ranks on two cores */
    says(bound(node(2, 1, false), 2, 1, 1), "");
    says(loose(node(1, 1, false), 1, 1), "");
    says(bound(node(64, 8, true), 8, 8, 1), "");   /* one a domain */
    says(bound(node(64, 8, true), 2, 32, 4), "");  /* one a socket: it was bound on purpose */
    says(bound(node(64, 8, false), 64, 1, 1), ""); /* one a core */
    tt_place p = bound(node(64, 8, false), 2, 1, 1);
    p.one = true; /* more than a core is not wanted */
    says(p, "");
    p = bound(node(64, 8, false), 1, 1, 1);
    p.launched = false; /* taskset */
    says(p, "");
}
END_TEST

START_TEST(pinned_onto_a_core)
{
    says(bound(node(64, 8, false), 2, 1, 1),
         "each rank is bound to one core, but there are 64 for the 2 ranks of this node; launchers "
         "bind so unless told otherwise: mpirun --map-by ppr:2:node:PE=32 --bind-to core, or srun "
         "--ntasks-per-node=2 --cpus-per-task=32 --cpu-bind=cores\n");
    tt_place p = bound(node(64, 8, true), 8, 1, 1);
    p.threads = 2; /* siblings, of which there is better advice than to use one */
    says(p,
         "each rank is bound to one core, but there are 64 for the 8 ranks of this node; launchers "
         "bind so unless told otherwise: mpirun --map-by ppr:1:numa:PE=8 --bind-to core, or srun "
         "--ntasks-per-node=8 --cpus-per-task=8 --cpu-bind=cores --threads-per-core=1\n");
    says(
        bound(node(64, 8, false), 12, 1, 1), /* not so many on each domain */
        "each rank is bound to one core, but there are 64 for the 12 ranks of this node; launchers "
        "bind so unless told otherwise: mpirun --map-by ppr:12:node:PE=5 --bind-to core, or srun "
        "--ntasks-per-node=12 --cpus-per-task=5 --cpu-bind=cores\n");
    p = bound(node(2, 1, false), 1, 1, 1);
    says(p,
         "each rank is bound to one core, but there are 2 for the 1 rank of this node; launchers "
         "bind so unless told otherwise: mpirun --map-by ppr:1:node:PE=2 --bind-to core, or srun "
         "--ntasks-per-node=1 --cpus-per-task=2 --cpu-bind=cores\n");
}
END_TEST

START_TEST(more_threads_than_processors)
{
    says(loose(node(2, 1, false), 4, 1),
         "4 ranks of 1 thread share 2 processors: they take turns; at most 2 of them run at "
         "once\n");
    says(loose(node(8, 1, false), 2, 8),
         "2 ranks of 8 threads share 8 processors: set OMP_NUM_THREADS=4 or run.threads=4\n");
    tt_place p = bound(node(64, 8, false), 8, 4, 1);
    p.threads = 8; /* bound too tightly */
    says(p,
         "a rank has 4 processors for 8 threads: mpirun --map-by ppr:1:numa:PE=8 --bind-to core, "
         "or srun --ntasks-per-node=8 --cpus-per-task=8 --cpu-bind=cores\n");
    p = bound(node(64, 8, false), 16, 8, 1);
    p.sharers = 2; /* two ranks a domain, of 8 threads each */
    says(p, "2 ranks of 8 threads share 8 processors: set OMP_NUM_THREADS=4 or run.threads=4\n");
}
END_TEST

START_TEST(siblings)
{
    tt_place p = bound(node(64, 8, true), 8, 8, 1);
    p.threads = 16;
    says(p,
         "16 threads run on 8 cores: two threads of a core share its units, and a matmul's thread "
         "fills them alone; set OMP_NUM_THREADS=8 or run.threads=8\n");
    says(loose(node(4, 1, true), 2, 4),
         "8 threads run on 4 cores: two threads of a core share its units, and a matmul's thread "
         "fills them alone; set OMP_NUM_THREADS=2 or run.threads=2\n");
    says(loose(node(4, 1, true), 2, 2), "");
}
END_TEST

START_TEST(all_domains)
{
    says(
        loose(node(64, 8, false), 8, 8),
        "8 ranks run on all 8 NUMA domains of this node, far from part of their memory; bind them: "
        "mpirun --map-by ppr:1:numa:PE=8 --bind-to core, or srun --ntasks-per-node=8 "
        "--cpus-per-task=8 --cpu-bind=cores\n");
    says(loose(node(64, 8, true), 1, 64),
         "1 rank runs on all 8 NUMA domains of this node, far from part of its memory; run one a "
         "domain: mpirun --map-by ppr:1:numa:PE=8 --bind-to core, or srun --ntasks-per-node=8 "
         "--cpus-per-task=8 --cpu-bind=cores --threads-per-core=1\n");
    says(
        loose(node(64, 8, false), 12, 5),
        "12 ranks run on all 8 NUMA domains of this node, far from part of their memory; run one a "
        "domain: mpirun --map-by ppr:1:numa:PE=8 --bind-to core, or srun --ntasks-per-node=8 "
        "--cpus-per-task=8 --cpu-bind=cores\n");
    says(loose(node(64, 8, false), 16, 8), /* and too many threads */
         "16 ranks of 8 threads share 64 processors: set OMP_NUM_THREADS=4 or run.threads=4\n"
         "16 ranks run on all 8 NUMA domains of this node, far from part of their memory; bind "
         "them: "
         "mpirun --map-by ppr:2:numa:PE=4 --bind-to core, or srun --ntasks-per-node=16 "
         "--cpus-per-task=4 --cpu-bind=cores\n");
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("train/advice");
    TCase *tcase = tcase_create("advice");
    tcase_add_test(tcase, all_is_well);
    tcase_add_test(tcase, pinned_onto_a_core);
    tcase_add_test(tcase, more_threads_than_processors);
    tcase_add_test(tcase, siblings);
    tcase_add_test(tcase, all_domains);
    suite_add_tcase(suite, tcase);
    return suite;
}

TT_TEST_MAIN(make_suite)
