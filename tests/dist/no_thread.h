/* no_thread.h: a process to which the system refuses threads, because none can have a stack of that
 * size. */
#ifndef NO_THREAD_H
#define NO_THREAD_H

#include <pthread.h>

#include "tt_test.h"

/* *usual out, for threads_granted. */
static inline void threads_refused(pthread_attr_t *usual)
{
    pthread_attr_t large;
    ck_assert_int_eq(pthread_getattr_default_np(usual), 0);
    ck_assert_int_eq(pthread_getattr_default_np(&large), 0);
    ck_assert_int_eq(pthread_attr_setstacksize(&large, (size_t)1 << 50), 0);
    ck_assert_int_eq(pthread_setattr_default_np(&large), 0);
    pthread_attr_destroy(&large);
}

static inline void threads_granted(pthread_attr_t *usual)
{
    ck_assert_int_eq(pthread_setattr_default_np(usual), 0);
    pthread_attr_destroy(usual);
}

#endif
