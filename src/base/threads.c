/* threads.c: OpenMP's run time, the processor mask, and the denormal mode.
 *
 * The denormal bits live in a per-thread register. A thread that OpenMP starts later inherits them
 * from the thread that starts it, so calling tt_flush_denormals once after tt_threads_set is enough;
 * the parallel region in it reaches threads that exist already. */
#include "tutti/base/threads.h"

#include <assert.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tutti/base/machine.h"
#include "tutti/base/text.h"

int tt_thread_id(void)
{
    return omp_get_thread_num();
}

int tt_threads_now(void)
{
    return omp_get_num_threads();
}

void tt_threads_set(int threads)
{
    assert(threads >= 1);
    omp_set_dynamic(0);
    omp_set_max_active_levels(1);
    omp_set_num_threads(threads);
}

int tt_threads_env(void)
{
    const char *text = getenv("OMP_NUM_THREADS");
    if (text == NULL) {
        return 0;
    }
    /* A list names one count per nesting level; ours is the first. */
    char first[16];
    size_t length = strcspn(text, ",");
    if (length >= sizeof first) {
        return 0;
    }
    memcpy(first, text, length);
    first[length] = '\0';
    int64_t count;
    if (!tt_parse_int(first, &count) || count < 1 || count > INT32_MAX) {
        return 0;
    }
    return (int)count;
}

int tt_processors(uint64_t *mask_digest)
{
    int count = 0;
    uint64_t digest = 0;
    tt_mask mask;
    if (tt_mask_of(&mask, 0)) {
        count = tt_mask_count(&mask);
        digest = 14695981039346656037ull; /* FNV-1a over the numbers of the processors */
        for (int i = 0; i < TT_PROCESSORS; i++) {
            if (tt_mask_has(&mask, i)) {
                digest = (digest ^ (uint64_t)i) * 1099511628211ull;
            }
        }
    }
    if (count < 1) { /* no mask to be had: count the machine's, and let the digest say nothing */
        long online = sysconf(_SC_NPROCESSORS_ONLN);
        count = online < 1 ? 1 : (int)online;
    }
    if (mask_digest != NULL) {
        *mask_digest = digest;
    }
    return count;
}

int tt_cores(void)
{
    tt_mask mask;
    return tt_mask_of(&mask, 0) ? tt_span_of(&mask, "").cores : tt_processors(NULL);
}

void tt_flush_denormals(int threads)
{
    assert(threads >= 1);
#ifdef __SSE__
    /* MXCSR: bit 15 flushes subnormal results to zero, bit 6 reads subnormal operands as zero. */
#pragma omp parallel num_threads(threads)
    __builtin_ia32_ldmxcsr(__builtin_ia32_stmxcsr() | 0x8040u);
#else
    (void)threads;
#endif
}
