/* test_available.c: what the system can still give, read from folders made for it. */
#include <sys/resource.h>
#include <unistd.h>

#define FOLDER "/tmp/tutti-available-XXXXXX"
#include "folder.h"
#include "tutti/base/memory.h"

#define V1 "sys/fs/cgroup/memory"
#define V2 "sys/fs/cgroup"

START_TEST(nothing_is_known)
{
    ck_assert_uint_eq(tt_memory_available(folder), SIZE_MAX);
    put("proc/meminfo", "MemTotal: 100 kB\nMemAvailable: many kB\n");
    put("proc/self/cgroup",
        "\nwords\n5:memory\n6::\n7:memory:relative\n0::/gone\n8:memory:/gone\n");
    ck_assert_uint_eq(tt_memory_available(folder), SIZE_MAX);
}
END_TEST

START_TEST(the_machine)
{
    put("proc/meminfo",
        "MemTotal:  100 kB\nMemFree: 7 kB\nMemAvailable:      80 kB\nBuffers: 1 kB\n");
    ck_assert_uint_eq(tt_memory_available(folder), 80 * 1024);
    put("proc/meminfo",
        "MemAvailable: 99999999999999999999999 kB\n"); /* more than a number holds */
    ck_assert_uint_eq(tt_memory_available(folder), SIZE_MAX);
}
END_TEST

/* Groups of both kinds: the least of what they and those above them leave. */
START_TEST(groups)
{
    put("proc/meminfo", "MemAvailable: 1000 kB\n");
    put("proc/self/cgroup", "4:cpu,memory:/job/step\n3:cpuset:/\n0::/user/me\n");
    put(V1 "/job/step/memory.limit_in_bytes", "9223372036854771712\n");
    put(V1 "/job/step/memory.usage_in_bytes", "5000\n");
    ck_assert_uint_eq(tt_memory_available(folder), 1000 * 1024);
    put(V1 "/job/memory.limit_in_bytes", "90000\n");
    put(V1 "/job/memory.usage_in_bytes", "50000\n");
    ck_assert_uint_eq(tt_memory_available(folder), 40000);
    put(V1 "/job/memory.stat", "inactive_file 1\ntotal_inactive_file 2000\n");
    ck_assert_uint_eq(tt_memory_available(folder), 42000);
    put(V2 "/user/me/memory.max", "max\n");
    put(V2 "/user/me/memory.current", "100\n");
    ck_assert_uint_eq(tt_memory_available(folder), 42000);
    put(V2 "/user/memory.max", "1300\n");
    ck_assert_uint_eq(tt_memory_available(folder), 42000); /* what is used of it is not known */
    put(V2 "/user/memory.current", "1200\n");
    ck_assert_uint_eq(tt_memory_available(folder), 100);
    put(V2 "/user/memory.stat", "anon 500\ninactive_file 700\n");
    ck_assert_uint_eq(tt_memory_available(folder), 800);
    put(V2 "/user/memory.current", "2500\n"); /* over the limit */
    ck_assert_uint_eq(tt_memory_available(folder), 0);
    put("proc/self/cgroup", "4:cpu,memories:/job/step\n0::/userland\n");
    ck_assert_uint_eq(tt_memory_available(folder), 1000 * 1024);
}
END_TEST

/* In a container the path is that of the host; the limit is at the root of what is seen. */
START_TEST(root_of_a_container)
{
    put("proc/self/cgroup", "9:memory:/docker/0123/deep\n");
    put(V1 "/memory.limit_in_bytes", "70000");
    put(V1 "/memory.usage_in_bytes", "30000");
    ck_assert_uint_eq(tt_memory_available(folder), 40000);
    put("proc/self/cgroup", "0::/");
    put(V2 "/memory.max", "6000");
    put(V2 "/memory.current", "1000");
    ck_assert_uint_eq(tt_memory_available(folder), 5000);
}
END_TEST

START_TEST(long_paths_are_not_found)
{
    static char line[9000];
    memset(line, 'x', sizeof line - 1);
    memcpy(line, "4:memory:/", 10);
    put("proc/self/cgroup", line);
    put("proc/meminfo", "MemAvailable: 3 kB\n");
    ck_assert_uint_eq(tt_memory_available(folder), 3 * 1024);
}
END_TEST

/* Of two limits that nobody reaches the larger leaves more, by as much. */
START_TEST(limits_of_the_process)
{
    const rlim_t far = (rlim_t)1 << 50;
    const size_t more = (size_t)1 << 30, noise = (size_t)16 << 20;
    struct rlimit before, low;
    ck_assert_int_eq(getrlimit(RLIMIT_DATA, &before), 0);
    low = (struct rlimit){.rlim_cur = far, .rlim_max = before.rlim_max};
    ck_assert_int_eq(setrlimit(RLIMIT_DATA, &low), 0);
    const size_t less = tt_memory_allowed();
    low.rlim_cur += more;
    ck_assert_int_eq(setrlimit(RLIMIT_DATA, &low), 0);
    const size_t left = tt_memory_allowed();
    ck_assert_int_eq(setrlimit(RLIMIT_DATA, &before), 0);
    ck_assert_uint_gt(less, 0);
    ck_assert_uint_lt(less, far); /* some is used already */
    ck_assert_uint_gt(left, less + more - noise);
    ck_assert_uint_lt(left, less + more + noise);
}
END_TEST

/* The machine's own files: at most all of it, and something. */
START_TEST(this_machine)
{
    const size_t all = (size_t)sysconf(_SC_PHYS_PAGES) * (size_t)sysconf(_SC_PAGESIZE);
    const size_t available = tt_memory_available("");
    ck_assert_uint_gt(available, 1 << 20);
    ck_assert_uint_le(available, all);
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("available");
    TCase *tcase = tcase_create("available");
    tcase_add_checked_fixture(tcase, start, finish);
    tcase_add_test(tcase, nothing_is_known);
    tcase_add_test(tcase, the_machine);
    tcase_add_test(tcase, groups);
    tcase_add_test(tcase, root_of_a_container);
    tcase_add_test(tcase, long_paths_are_not_found);
    tcase_add_test(tcase, limits_of_the_process);
    tcase_add_test(tcase, this_machine);
    suite_add_tcase(suite, tcase);
    return suite;
}

TT_TEST_MAIN(make_suite)
