/* optim.c: the numbers of the optimizer: learning rate, clip factor, constants of an update.
 *
 * The work per element is the kernel adamw; what it is told comes from here.
 *
 * Invariant: everything is a function of its arguments; steps count from 0, updates from 1.
 *
 * Owns nothing. Reads tt_config, writes tt_adamw; next: the adamw kernel. */
#include "tutti/optim/optim.h"

#include <assert.h>
#include <float.h>
#include <math.h>
#include <string.h>

#include "tutti/base/narrow.h"
#include "tutti/base/text.h"

/* Length of wsd's last phase: optim.decay, or a fifth of the run; it starts after the warm-up. */
static int64_t decay_steps(const tt_config *config)
{
    int64_t wanted = config->optim.decay != 0 ? config->optim.decay : config->run.steps / 5;
    return tt_min(wanted, tt_max(config->run.steps - config->optim.warmup, 0));
}

/* Options are doubles, updates are FP32: what is in range as written may be 1, infinite or 0 there.
 * Subnormals count as 0, because training flushes them. */
static tt_code check_fp32(const tt_config *config, tt_err *err)
{
    const struct {
        const char *key;
        double value;
        bool may_be_0, share; /* share: below 1 */
    } numbers[] = {
        {"lr", config->optim.lr, false, false},
        {"beta1", config->optim.beta1, true, true},
        {"beta2", config->optim.beta2, true, true},
        {"eps", config->optim.eps, false, false},
        {"weight_decay", config->optim.weight_decay, true, false},
        {"min_lr", config->optim.min_lr, true, false},
    };
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        const float value = (float)numbers[i].value;
        const bool low = value < FLT_MIN && !numbers[i].may_be_0;
        const bool high = numbers[i].share ? value >= 1.0f : value > FLT_MAX;
        if (!low && !high) {
            continue;
        }
        tt_text shown = {0};
        tt_text_add_double(&shown, numbers[i].value);
        tt_fail(err, TT_EUSER,
                "optim.%s: %s is %s as FP32, the format of updates; allowed as FP32 are %.9g to "
                "%s%.9g.",
                numbers[i].key, shown.failed ? "the value" : shown.data,
                low                ? "0 or subnormal"
                : numbers[i].share ? "1"
                                   : "infinite",
                numbers[i].may_be_0 ? 0.0 : (double)FLT_MIN, numbers[i].share ? "below " : "",
                numbers[i].share ? 1.0 : (double)FLT_MAX);
        tt_text_free(&shown);
        return err->code;
    }
    return TT_OK;
}

tt_code tt_optim_check(const tt_config *config, tt_err *err)
{
    tt_code rc = check_fp32(config, err);
    if (rc != TT_OK) {
        return rc;
    }
    if (config->optim.clip > 0 && config->optim.clip < (double)FLT_MIN) {
        return tt_fail(err, TT_EUSER,
                       "optim.clip: %g is 0 or subnormal as FP32, the format of gradients; allowed "
                       "are 0 (no clipping) and numbers of at least %.9g.",
                       config->optim.clip, (double)FLT_MIN);
    }
    if (config->optim.min_lr > config->optim.lr) {
        return tt_fail(err, TT_EUSER,
                       "optim.min_lr: %g is above optim.lr (%g); allowed are 0 to %g.",
                       config->optim.min_lr, config->optim.lr, config->optim.lr);
    }
    if (strcmp(config->optim.lr_scaling, "none") != 0 && config->optim.lr_sequences == 0) {
        return tt_fail(
            err, TT_EUSER,
            "optim.lr_sequences: needed by optim.lr_scaling (%s); give the sequences per "
            "step that optim.lr was tuned for.",
            config->optim.lr_scaling);
    }
    return TT_OK;
}

/* optim.lr, scaled to the batch. */
static double peak_rate(const tt_config *config, int64_t sequences)
{
    double lr = config->optim.lr;
    if (strcmp(config->optim.lr_scaling, "none") == 0) {
        return lr;
    }
    double ratio = (double)sequences / (double)config->optim.lr_sequences;
    return strcmp(config->optim.lr_scaling, "sqrt") == 0 ? lr * sqrt(ratio) : lr * ratio;
}

/* How far from the peak (0) to min_lr (1) the schedule is at `step`, past the warm-up. */
static double descent(const tt_config *config, int64_t step)
{
    int64_t steps = config->run.steps, warmup = config->optim.warmup;
    const char *schedule = config->optim.schedule;
    if (strcmp(schedule, "constant") == 0) {
        return 0.0;
    }
    if (strcmp(schedule, "wsd") == 0) {
        int64_t decay = decay_steps(config);
        int64_t into = step - (steps - decay) + 1; /* 1 .. decay in the last phase */
        return into > 0 ? (double)into / (double)decay : 0.0;
    }
    int64_t last = steps - 1 - warmup; /* the last step, counted from the first after warm-up */
    double linear = last > 0 ? (double)(step - warmup) / (double)last : 0.0;
    if (strcmp(schedule, "linear") == 0) {
        return linear;
    }
    assert(strcmp(schedule, "cosine") == 0);
    return 0.5 - 0.5 * cos(acos(-1.0) * linear);
}

double tt_learning_rate(const tt_config *config, int64_t sequences, int64_t step)
{
    assert(step >= 0);
    double peak = peak_rate(config, sequences);
    step = tt_min(step, config->run.steps - 1); /* past the end the last value holds */
    if (step < config->optim.warmup) {
        return peak * (double)(step + 1) / (double)config->optim.warmup;
    }
    double floor = fmin(config->optim.min_lr, peak);
    double down = descent(config, step);
    return peak * (1.0 - down) + floor * down;
}

double tt_clip_factor(double norm, double clip)
{
    return clip == 0.0 || norm <= clip ? 1.0 : clip / norm;
}

tt_adamw tt_adamw_step(const tt_config *config, double lr, int64_t t, bool decay, double grad_scale)
{
    assert(t >= 1);
    /* The corrections undo the bias of the betas that the kernel really uses, the FP32 ones: 1 -
     * 0.999f is off from 0.001 by 1e-5 of itself, and so would be the first updates. */
    float beta1 = (float)config->optim.beta1, beta2 = (float)config->optim.beta2;
    return (tt_adamw){
        .lr = (float)lr,
        .beta1 = beta1,
        .beta2 = beta2,
        .eps = (float)config->optim.eps,
        .weight_decay = decay ? (float)config->optim.weight_decay : 0.0f,
        .correction1 = (float)(1.0 - pow((double)beta1, (double)t)),
        .correction2 = (float)(1.0 - pow((double)beta2, (double)t)),
        .grad_scale = (float)grad_scale,
    };
}
