/* optim.h: AdamW with decoupled decay, schedules, clipping. Gets the norm as a number.
 *
 * Reads the reduced gradient and the rank's master, m, v; writes them and the act weights of the
 * same ranges; next: dist/reduce.h (gather). */
#ifndef TUTTI_OPTIM_OPTIM_H
#define TUTTI_OPTIM_OPTIM_H

#include <stdbool.h>
#include <stdint.h>

#include "tutti/base/options.h"
#include "tutti/base/status.h"
#include "tutti/kernels/kernels.h"

/* Checks what single rows cannot (min_lr <= lr; lr_scaling needs lr_sequences; what the update, which
 * is FP32, would see as 1, infinite or 0). A warm-up longer than the run is no mistake: a short trial
 * of a long recipe ends inside it. */
tt_code tt_optim_check(const tt_config *config, tt_err *err);

/* Learning rate of step s (0-based, counts optimizer steps, also skipped ones). Warm-up is linear:
 * step s uses lr * (s+1) / warmup while s < warmup. Then over the remaining steps: constant; cosine
 * or linear from lr to min_lr at the last step; wsd: constant, then linear to min_lr over the last
 * `decay` steps, or what the warm-up leaves. lr is first scaled by (sequences / lr_sequences),
 * linearly or as its root; min_lr is not, and where the scaled lr is lower, it takes min_lr's
 * place. When a single step remains after the warm-up, cosine and linear use lr. Past the last
 * step its value holds. */
double tt_learning_rate(const tt_config *config, int64_t sequences, int64_t step);

/* Factor for the clipped mean gradient: norm is of the mean gradient; 1 when clip is 0 or norm <=
 * clip. A norm that is not a number gives a factor that is not one: the step is then skipped. */
double tt_clip_factor(double norm, double clip);

/* The constants of update number t (from 1; counts applied updates) for one group. */
tt_adamw tt_adamw_step(const tt_config *config, double lr, int64_t t, bool decay,
                       double grad_scale);

#endif
