/* saver.c: checkpoints of a run, at once or while it goes on. See saver.h. */
#include "tutti/train/saver.h"

#include <stdlib.h>
#include <string.h>

#include "tutti/base/clock.h"
#include "tutti/base/file.h"
#include "tutti/base/narrow.h"
#include "tutti/train/masters.h"
#include "tutti/train/metrics.h"
#include "tutti/train/state.h"

#include "train/train_impl.h"

int64_t tt_saver_elements(const tt_blueprint *print)
{
    const tt_fp8 *fp8 = &print->fp8;
    return print->config.run.save_async
               ? print->cut.elements * TT_KEPT + tt_mul(fp8->history, fp8->sites)
               : 0;
}

bool tt_saver_busy(const tt_trainer *t)
{
    return tt_saving_busy(t->saver.saving);
}

/* Weights that are not finite are never saved: the file would push out one that can be used. */
static tt_code require_finite(tt_trainer *t, tt_err *err)
{
    tt_code rc = TT_OK;
    int64_t nonfinite = tt_masters_nonfinite(t);
    TT_TRY(tt_agree(t->world, tt_optimizer_check(&t->optimizer, err), err));
    TT_TRY(tt_sum_i64(t->world, &nonfinite, 1, err));
    if (nonfinite > 0) {
        rc = tt_fail(err, TT_EWORLD, "step %lld: weights are not finite; they are not saved, %s",
                     (long long)t->progress.step, tt_state_kept(t));
    }
out:
    return rc;
}

tt_code tt_saver_open(tt_trainer *t, tt_err *err)
{
    tt_code rc = TT_OK;
    if (t->world->rank == 0) {
        rc = tt_ckpt_beyond(t->print.config.run.dir, t->progress.step, &t->saver.doubtful,
                            &t->saver.doubts, err);
    }
    return tt_agree(t->world, rc, err);
}

/* What was in the place of the file that now has its name. */
static void trust(tt_saver *s)
{
    int left = 0;
    for (int i = 0; i < s->doubts; i++) {
        if (s->doubtful[i] != s->step) {
            s->doubtful[left++] = s->doubtful[i];
        }
    }
    s->doubts = left;
}

/* The file has its name. Collective. */
static tt_code ended(tt_trainer *t, tt_metrics *metrics, tt_err *err)
{
    tt_code rc = TT_OK;
    tt_saver *s = &t->saver;
    const tt_config *config = &t->print.config;
    t->kept = true;
    trust(s);
    tt_watch_left(t->world, tt_state_kept(t));
    tt_rows_free(&s->rows);
    if (s->held > s->longest) {
        s->longest = s->held;
    }
    const tt_saved saved = {.step = s->step, .seconds = tt_seconds() - s->began, .held = s->held};
    tt_halt_saved(&t->halt, saved.seconds);
    if (metrics != NULL) {
        TT_TRY(tt_agree(t->world, tt_metrics_saved(metrics, t, &saved, err), err));
    }
    tt_fault_strike(&t->fault, "before_prune", t->world->rank, s->step);
    if (s->prune) {
        const tt_prune how = {.keep = config->run.keep,
                              .every = config->run.keep_every,
                              .newest = s->step,
                              .doubtful = s->doubtful,
                              .doubts = s->doubts};
        TT_TRY(tt_ckpt_prune(t->world, config->run.dir, &how, err));
    }
    tt_fault_strike(&t->fault, "after_prune", t->world->rank, s->step);
out:
    return rc;
}

/* One more act of the save under way, or all of them. Collective. */
static tt_code go_on(tt_trainer *t, tt_metrics *metrics, bool all, tt_err *err)
{
    tt_saver *s = &t->saver;
    const double start = tt_seconds();
    if (s->saving == NULL) {
        return TT_OK;
    }
    tt_code rc = all ? tt_saving_finish(&s->saving, err) : tt_saving_next(&s->saving, err);
    s->held += tt_seconds() - start;
    if (rc != TT_OK) {
        tt_rows_free(&s->rows);
    } else if (s->saving == NULL) {
        rc = ended(t, metrics, err);
    }
    return rc;
}

tt_code tt_saver_save(tt_trainer *t, tt_metrics *metrics, bool wait, bool prune, tt_err *err)
{
    tt_code rc = TT_OK;
    tt_saver *s = &t->saver;
    const tt_config *config = &t->print.config;
    const bool async = config->run.save_async && !wait;
    TT_TRY(go_on(t, metrics, true, err));
    s->began = tt_seconds();
    tt_beat(t->world, "saving a checkpoint");
    TT_TRY(tt_agree(t->world, tt_run_lock_again(t, err), err));
    TT_TRY(require_finite(t, err));
    s->step = t->progress.step;
    s->prune = prune;
    const tt_save_how how = {.read_back = config->run.read_back,
                             .behind = async,
                             .room = async ? t->snapshot : NULL,
                             .times = &s->times,
                             .fault = &t->fault,
                             .step = s->step};
    TT_TRY(tt_state_saving(t, &how, &s->saving, &s->rows, err));
    s->held = tt_seconds() - s->began;
    if (async) {
        tt_halt_saving(&t->halt);
    } else {
        rc = go_on(t, metrics, true, err);
    }
out:
    return rc;
}

tt_code tt_saver_next(tt_trainer *t, tt_metrics *metrics, tt_err *err)
{
    return go_on(t, metrics, false, err);
}

tt_code tt_saver_finish(tt_trainer *t, tt_metrics *metrics, tt_err *err)
{
    return go_on(t, metrics, true, err);
}

tt_code tt_saver_there(tt_trainer *t, tt_metrics *metrics, int64_t step, bool *there, tt_err *err)
{
    tt_code rc = TT_OK;
    char *path = NULL;
    int64_t found = 0;
    TT_TRY(go_on(t, metrics, true, err));
    if (t->world->rank == 0) {
        path = tt_state_path(t, step, err);
        rc = path != NULL ? TT_OK : err->code;
    }
    TT_TRY(tt_agree(t->world, rc, err));
    found = path != NULL && tt_file_exists(path);
    TT_TRY(tt_sum_i64(t->world, &found, 1, err));
    *there = found > 0;
    if (!*there && path != NULL) {
        tt_warn(t->log, "%s is not there any more: the state is saved again", path);
    }
out:
    free(path);
    return rc;
}

void tt_saver_close(tt_trainer *t)
{
    tt_saving_drop(&t->saver.saving);
    tt_rows_free(&t->saver.rows);
    free(t->saver.doubtful);
    t->saver.doubtful = NULL;
    t->saver.doubts = 0;
}
