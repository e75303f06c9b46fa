/* test_machine.c: masks, and machines made up of files: 8 NUMA domains of 4 cores of 2 siblings each,
 * processors i and i + 32 on core i. */
#include <unistd.h>

#define FOLDER "/tmp/tutti-machine-XXXXXX"
#include "folder.h"
#include "tutti/base/machine.h"
#include "tutti/base/threads.h"

#define CPU "sys/devices/system/cpu"
#define NODE "sys/devices/system/node"

enum { CORES = 32, DOMAINS = 8 };

static void make_machine(void)
{
    char name[128], text[64];
    put(CPU "/online", "0-63\n");
    for (int i = 0; i < 2 * CORES; i++) {
        snprintf(name, sizeof name, CPU "/cpu%d/topology/thread_siblings_list", i);
        snprintf(text, sizeof text, "%d,%d\n", i % CORES, i % CORES + CORES);
        put(name, text);
    }
    put(NODE "/online", "0-8\n"); /* the last has memory alone */
    put(NODE "/node8/cpulist", "\n");
    for (int i = 0; i < DOMAINS; i++) {
        snprintf(name, sizeof name, NODE "/node%d/cpulist", i);
        snprintf(text, sizeof text, "%d-%d,%d-%d\n", 4 * i, 4 * i + 3, CORES + 4 * i,
                 CORES + 4 * i + 3);
        put(name, text);
    }
}

static void expect(const char *list, int processors, int cores, int domains)
{
    tt_mask mask;
    ck_assert(tt_mask_parse(&mask, list));
    const tt_span s = tt_span_of(&mask, folder);
    ck_assert_msg(s.processors == processors && s.cores == cores && s.domains == domains,
                  "%s: %d processors, %d cores, %d domains", list, s.processors, s.cores,
                  s.domains);
}

START_TEST(lists)
{
    static const struct {
        const char *list;
        int count; /* -1: refused */
    } cases[] = {{"0", 1},
                 {"0-3,8\n", 5},
                 {"", 0},
                 {"\n", 0},
                 {"8191", 1},
                 {"8192", 0},
                 {"0-99999", TT_PROCESSORS},
                 {"3-1", -1},
                 {"a", -1},
                 {"1,", 1},
                 {"1-", -1},
                 {",1", -1},
                 {"-1", -1},
                 {"1 2", -1},
                 {"1;2", -1},
                 {"1-2-3", -1}};
    tt_mask mask;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const bool good = tt_mask_parse(&mask, cases[i].list);
        ck_assert_msg(good == (cases[i].count >= 0), "'%s'", cases[i].list);
        ck_assert_msg(tt_mask_count(&mask) == (good ? cases[i].count : 0), "'%s': %d",
                      cases[i].list, tt_mask_count(&mask));
    }
    tt_mask other;
    ck_assert(tt_mask_parse(&mask, "0-9") && tt_mask_parse(&other, "5,70"));
    tt_mask_meet(&mask, &other);
    ck_assert(tt_mask_count(&mask) == 1 && tt_mask_has(&mask, 5));
}
END_TEST

START_TEST(cores_and_domains)
{
    make_machine();
    expect("0-63", 64, 32, 8);
    expect("0", 1, 1, 1);
    expect("0,32", 2, 1, 1);
    expect("0-3", 4, 4, 1);
    expect("0-4", 5, 5, 2);
    expect("60-63", 4, 4, 1);
    expect("3,4,35", 3, 2, 2);
}
END_TEST

/* Files that are missing or say something else: nothing special. */
START_TEST(nothing_is_known)
{
    tt_mask mask;
    expect("0-7", 8, 8, 1);
    put(NODE "/online", "many\n");
    put(CPU "/cpu0/topology/thread_siblings_list", "all\n");
    expect("0-7", 8, 8, 1);
    tt_mask_allowed(&mask, folder, NULL);
    ck_assert_int_eq(tt_mask_count(&mask), TT_PROCESSORS);
}
END_TEST

static int allowed(const char *parent)
{
    tt_mask mask, above;
    ck_assert(parent == NULL || tt_mask_parse(&above, parent));
    tt_mask_allowed(&mask, folder, parent != NULL ? &above : NULL);
    return tt_mask_count(&mask);
}

/* Online, control group of either kind or the nearest above, parent: the least of them. */
START_TEST(what_is_allowed)
{
    make_machine();
    ck_assert_int_eq(allowed(NULL), 64);
    ck_assert_int_eq(allowed("0-15,99"), 16);
    put("proc/self/cpuset", "/slurm/job_7/step_0\n");
    ck_assert_int_eq(allowed(NULL), 64);
    put("sys/fs/cgroup/cpuset.cpus.effective", "0-47\n");
    ck_assert_int_eq(allowed(NULL), 48);
    put("sys/fs/cgroup/slurm/job_7/cpuset.cpus.effective", "0-7,32-39\n");
    ck_assert_int_eq(allowed(NULL), 16);
    ck_assert_int_eq(allowed("4-11"), 4);
    put("sys/fs/cgroup/slurm/job_7/step_0/cpuset.cpus.effective", "\n"); /* says nothing */
    ck_assert_int_eq(allowed(NULL), 16);
    put("sys/fs/cgroup/cpuset/slurm/cpuset.effective_cpus", "0-1\n"); /* the older kind */
    ck_assert_int_eq(allowed(NULL), 2);
    put("proc/self/cpuset", "/\n");
    ck_assert_int_eq(allowed(NULL), 48);
}
END_TEST

START_TEST(this_machine)
{
    tt_mask own, node;
    ck_assert(tt_mask_of(&own, 0));
    ck_assert_int_eq(tt_mask_count(&own), tt_processors(NULL));
    tt_mask_allowed(&node, "", NULL);
    const tt_span mine = tt_span_of(&own, ""), all = tt_span_of(&node, "");
    ck_assert_int_ge(mine.cores, 1);
    ck_assert_int_eq(mine.cores, tt_cores());
    ck_assert_int_le(mine.cores, mine.processors);
    ck_assert_int_le(mine.processors, all.processors);
    ck_assert_int_le(all.domains, all.cores);
    ck_assert(!tt_mask_of(&own, 0x7ffffffe)); /* no such process */
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("base/machine");
    TCase *tcase = tcase_create("machine");
    tcase_add_checked_fixture(tcase, start, finish);
    tcase_add_test(tcase, lists);
    tcase_add_test(tcase, cores_and_domains);
    tcase_add_test(tcase, nothing_is_known);
    tcase_add_test(tcase, what_is_allowed);
    tcase_add_test(tcase, this_machine);
    suite_add_tcase(suite, tcase);
    return suite;
}

TT_TEST_MAIN(make_suite)
