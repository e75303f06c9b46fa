/* nonfinite.c: a step whose loss or gradient is not finite: what is said of it, and whether the run goes
 * on. The weights are those of before the step in either case. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tutti/base/file.h"
#include "tutti/numerics/format.h"
#include "tutti/optim/scaler.h"
#include "tutti/train/state.h"

#include "train/train_impl.h"

/* "; the loss scale goes from 8 to 4", or nothing when it is static. */
static void scale_moves(const tt_trainer *t, const tt_record *record, char out[96])
{
    const double was = record->loss_scale, is = t->progress.scaler.scale;
    out[0] = '\0';
    if (tt_scaler_is_dynamic(&t->print.config) && is < was) {
        snprintf(out, 96, "; the loss scale goes from %.9g to %.9g", was, is);
    } else if (tt_scaler_is_dynamic(&t->print.config)) {
        snprintf(out, 96, "; the loss scale stays at its floor %.9g", is);
    }
}

/* "the loss scale is at its floor 1": where it was in a step that was one too many. */
static void scale_stands(const tt_trainer *t, const tt_record *record, char out[96])
{
    const tt_config *config = &t->print.config;
    const double scale = record->loss_scale;
    if (!tt_scaler_is_dynamic(config)) {
        snprintf(out, 96, "precision.loss_scale is %.32s", config->precision.loss_scale);
    } else if (scale > config->scaler.floor) {
        snprintf(out, 96, "the loss scale is %.9g, its floor %.9g", scale, config->scaler.floor);
    } else {
        snprintf(out, 96, "the loss scale is at its floor %.9g", scale);
    }
}

/* "the gradient of wte is not finite": why a step was skipped. A loss that is not finite comes first:
 * gradients follow from it. */
static void add_culprit(const tt_trainer *t, const tt_record *record, tt_text *out)
{
    _Static_assert(1 << TT_FIXED_MARGIN == 4096, "the sentence says so");
    if (!isfinite(record->loss)) {
        tt_text_add(out, "the loss is not finite");
        return;
    }
    tt_text_add(out, "the gradient of %s is not finite%s", record->nonfinite_in,
                t->print.config.run.exact ? ", or beyond exact mode's 4096 a token" : "");
}

/* What the user can do about too many skips. No scale has a part in forward. */
static void add_remedy(const tt_trainer *t, const tt_record *record, tt_text *out)
{
    const bool fp16 = strcmp(t->print.config.precision.compute, "fp16") == 0;
    char scale[96];
    if (isfinite(record->loss)) {
        scale_stands(t, record, scale);
        tt_text_add(out, "; %s", scale);
        return;
    }
    tt_text_add(out,
                "; it is so in forward, where no loss scale can help: the learning rate or the "
                "weights are too large");
    if (fp16) {
        tt_text_add(out, " (the largest number of fp16 is %.9g)", tt_formats[TT_FP16].max);
    }
}

static tt_code too_many_skips(const tt_trainer *t, const tt_record *record, tt_err *err)
{
    const long long step = record->step, skips = t->progress.skips,
                    most = t->print.config.optim.max_skips;
    tt_text why = {0}, all = {0};
    add_culprit(t, record, &why);
    const char *reason = why.failed ? "not finite" : why.data;
    if (skips == 1) {
        tt_text_add(&all, "step %lld: %s (optim.max_skips: %lld)", step, reason, most);
    } else {
        tt_text_add(&all,
                    "step %lld: %lld steps in a row were skipped (optim.max_skips: %lld), the "
                    "last because %s",
                    step, skips, most, reason);
    }
    add_remedy(t, record, &all);
    tt_fail(err, TT_EWORLD, "%s; stopped, %s", all.failed ? "too many skips" : all.data,
            tt_state_kept(t));
    tt_text_free(&why);
    tt_text_free(&all);
    return err->code;
}

/* Is it what a loss scale that may still fall is there for? */
static bool scale_mends(const tt_trainer *t, const tt_record *record)
{
    const tt_config *config = &t->print.config;
    return tt_scaler_is_dynamic(config) && isfinite(record->loss) &&
           record->loss_scale > config->scaler.floor;
}

tt_code tt_nonfinite_check(const tt_trainer *t, const tt_record *record, tt_err *err)
{
    if (record->blame.bad && t->world->rank == 0) {
        tt_text why = {0};
        char scale[96];
        add_culprit(t, record, &why);
        scale_moves(t, record, scale);
        tt_text_add(&why, "%s; ", scale);
        tt_blame_text(t, record, &why);
        if (!scale_mends(t, record)) {
            tt_text_add(&why, " (run.replay=%lld looks after every layer)",
                        (long long)record->step);
        }
        tt_warn(t->log, "step %lld is skipped: %s", (long long)record->step,
                why.failed ? "not finite" : why.data);
        tt_text_free(&why);
    }
    return t->progress.skips > t->print.config.optim.max_skips ? too_many_skips(t, record, err)
                                                               : TT_OK;
}

bool tt_nonfinite_stops(const tt_trainer *t, const tt_record *record)
{
    return record->blame.bad && strcmp(t->print.config.run.on_nonfinite, "stop") == 0 &&
           !scale_mends(t, record);
}

tt_code tt_nonfinite_stop(tt_trainer *t, const tt_progress *before, bool saved,
                          const tt_record *record, tt_err *err)
{
    tt_text why = {0};
    char name[TT_STEP_NAME];
    const char *dir = t->print.config.run.dir;
    const long long step = record->step;
    add_culprit(t, record, &why);
    tt_text_add(&why, "; ");
    tt_blame_text(t, record, &why);
    const char *reason = why.failed ? "not finite" : why.data;
    t->progress = *before; /* weights and moments are those already */
    tt_state_name(before->step, name);
    tt_err failed = {TT_OK, ""};
    const bool begun = before->step > 0;
    tt_code rc = TT_OK;
    if (begun && saved) { /* what is there already may still be being written */
        rc = tt_saver_there(t, NULL, before->step, &saved, &failed);
    }
    if (begun && !saved && rc == TT_OK) {
        rc = tt_saver_save(t, NULL, true, false, &failed);
    }
    if (rc != TT_OK) {
        tt_fail(err, rc,
                "step %lld: %s; stopped (run.on_nonfinite), and the state before it cannot be "
                "saved: %s",
                step, reason, failed.text);
    } else if (begun) {
        tt_fail(err, TT_EWORLD,
                "step %lld: %s; stopped (run.on_nonfinite), the state before it is in %s/%s; "
                "run.replay=%lld looks after every layer",
                step, reason, dir, name, step);
    } else {
        tt_fail(err, TT_EWORLD,
                "step %lld: %s; stopped (run.on_nonfinite), nothing has been learned yet; "
                "run.replay=%lld looks after every layer",
                step, reason, step);
    }
    tt_text_free(&why);
    return err->code;
}
