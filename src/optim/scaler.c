/* scaler.c: the rule of the loss scale. See scaler.h. */
#include "tutti/optim/scaler.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "tutti/base/text.h"

/* key: value is `than` another key's. */
static tt_code out_of_order(const char *key, double value, const char *than, const char *other,
                            double bound, tt_err *err)
{
    return tt_fail(err, TT_EUSER,
                   "scaler.%s: %.9g is %s scaler.%s (%.9g); allowed is floor <= start <= cap.", key,
                   value, than, other, bound);
}

tt_code tt_scaler_check(const tt_config *config, tt_err *err)
{
    const double start = config->scaler.start, floor = config->scaler.floor,
                 cap = config->scaler.cap;
    if (floor > cap) {
        return out_of_order("floor", floor, "above", "cap", cap, err);
    }
    if (start < floor) {
        return out_of_order("start", start, "below", "floor", floor, err);
    }
    if (start > cap) {
        return out_of_order("start", start, "above", "cap", cap, err);
    }
    return TT_OK;
}

bool tt_scaler_is_dynamic(const tt_config *config)
{
    return strcmp(config->precision.loss_scale, "dynamic") == 0;
}

bool tt_scaler_is_missed(const tt_config *config)
{
    return strcmp(config->precision.compute, "fp16") == 0 && !tt_scaler_is_dynamic(config) &&
           tt_scaler_begin(config).scale <= 1;
}

tt_scaler tt_scaler_begin(const tt_config *config)
{
    tt_scaler scaler = {.scale = 1};
    if (tt_scaler_is_dynamic(config)) {
        scaler.scale = config->scaler.start;
    } else if (strcmp(config->precision.loss_scale, "none") != 0) {
        const bool number = tt_parse_double(config->precision.loss_scale, &scaler.scale);
        assert(number); /* its row has let nothing else in */
        (void)number;
    }
    return scaler;
}

bool tt_scaler_may_be(const tt_config *config, const tt_scaler *scaler)
{
    if (!tt_scaler_is_dynamic(config)) {
        return scaler->scale == tt_scaler_begin(config).scale && scaler->good == 0;
    }
    return scaler->scale >= config->scaler.floor && scaler->scale <= config->scaler.cap &&
           scaler->good >= 0 && scaler->good < config->scaler.interval;
}

void tt_scaler_next(const tt_config *config, tt_scaler *scaler, bool finite)
{
    if (!tt_scaler_is_dynamic(config)) {
        return;
    }
    if (!finite) {
        scaler->scale = fmax(scaler->scale * config->scaler.backoff, config->scaler.floor);
        scaler->good = 0;
    } else if (++scaler->good == config->scaler.interval) {
        scaler->scale = fmin(scaler->scale * config->scaler.growth, config->scaler.cap);
        scaler->good = 0;
    }
}

float tt_scaler_seed(const tt_scaler *scaler, int64_t targets)
{
    assert(targets >= 1);
    int n = 0;
    while (n < 62 && INT64_C(1) << n < targets) {
        n++;
    }
    return (float)ldexp(scaler->scale, -n);
}
