/* threads.h: the only door to OpenMP's run time, and the processor mask.
 *
 * Other layers use `#pragma omp` with num_threads(ctx->threads); no result depends on the count. */
#ifndef TUTTI_BASE_THREADS_H
#define TUTTI_BASE_THREADS_H

#include <stdint.h>

int tt_thread_id(void);   /* inside a parallel region: 0 .. threads-1; outside: 0 */
int tt_threads_now(void); /* threads of the region; the system may give fewer than asked for */

/* Sets the team size of later parallel regions of this process and switches nesting and dynamic
 * adjustment off. threads >= 1. */
void tt_threads_set(int threads);

/* OMP_NUM_THREADS when it is set to a number >= 1, else 0. */
int tt_threads_env(void);

/* Processors that this process may run on: their count, and a digest of the mask, by which ranks of
 * one node tell whether they share them. */
int tt_processors(uint64_t *mask_digest);
/* Cores of those processors: hyper-threads of one core count once. */
int tt_cores(void);

/* Turns on flush-to-zero and denormals-are-zero in the calling thread and every OpenMP thread (x86;
 * elsewhere nothing). Part of the numeric contract: subnormal FP32 results are zero. */
void tt_flush_denormals(int threads);

#endif
