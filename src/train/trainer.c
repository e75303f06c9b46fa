/* trainer.c: from a configuration to a run, in the order in which it happens. See trainer.h.
 *
 * Every phase ends in an agreement, so that a rank that fails takes the others with it to the same
 * sentence and exit code. */
#include "tutti/train/trainer.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tutti/base/file.h"
#include "tutti/base/narrow.h"
#include "tutti/base/threads.h"
#include "tutti/numerics/format.h"
#include "tutti/train/arithmetic.h"
#include "tutti/train/digests.h"
#include "tutti/train/evaluate.h"
#include "tutti/train/halt.h"
#include "tutti/train/memory.h"
#include "tutti/train/metrics.h"
#include "tutti/train/replay.h"
#include "tutti/train/state.h"
#include "tutti/train/step.h"
#include "tutti/train/storage.h"
#include "tutti/train/verify.h"

#include "train/train_impl.h"

/* Opens the token files. The held-out part is data.valid's own, or data.train's when that is not
 * given; a data.valid without one is used whole. Local. */
static tt_code open_data(tt_trainer *t, const tt_config *config, tt_err *err)
{
    tt_code rc = TT_OK;
    TT_TRY(tt_tokens_open(&t->train_tokens, config->data.train, false, err));
    t->data_tokens = tt_tokens_count(t->train_tokens);
    TT_TRY(tt_tokens_sample(t->train_tokens, &t->data_digest, err));
    if (config->data.valid[0] != '\0') {
        TT_TRY(tt_evaluate_open(&t->valid_tokens, config->data.valid, err));
        if (tt_tokens_vocab(t->valid_tokens) > tt_tokens_vocab(t->train_tokens)) {
            rc = tt_fail(err, TT_EUSER,
                         "data.valid %s has a vocabulary of %lld, data.train %s one of %lld; they "
                         "must be made by the same tokenizer",
                         config->data.valid, (long long)tt_tokens_vocab(t->valid_tokens),
                         config->data.train, (long long)tt_tokens_vocab(t->train_tokens));
        }
    } else if (tt_tokens_has_valid(t->train_tokens)) {
        TT_TRY(tt_tokens_open(&t->valid_tokens, config->data.train, true, err));
    }
out:
    return rc;
}

static tt_code open_samplers(tt_trainer *t, tt_err *err)
{
    tt_code rc = TT_OK;
    const tt_config *config = &t->print.config;
    TT_TRY(tt_sampler_open(&t->sampler, t->train_tokens, config->data.mode,
                           (uint64_t)config->data.seed, t->print.shape.T, true, err));
    if (!t->valid_tokens || config->run.eval_every == 0) {
        goto out;
    }
    TT_TRY(tt_evaluate_sampler(&t->valid_sampler, t->valid_tokens, config->data.mode,
                               t->print.shape.T, err));
out:
    return rc;
}

/* Says where masters, m and v are when a file has them. */
static void show_optimizer_file(const tt_trainer *t)
{
    char size[32];
    if (t->optimizer.chunks != NULL) {
        tt_human_bytes((double)t->print.plan.file_bytes, size);
        tt_info(t->log, "memory.optimizer_file: %s a rank in %s.RANK, %s", size,
                t->print.config.memory.optimizer_file,
                tt_chunks_direct(t->optimizer.chunks)
                    ? "around the page cache"
                    : "through the page cache: the file system has no O_DIRECT");
    }
}

/* Says what memory.recompute: auto:SIZE came to. */
static void show_recompute(const tt_trainer *t)
{
    const tt_blueprint *p = &t->print;
    char blocks[64] = "";
    if (p->asked == 0) {
        return;
    }
    if (p->config.memory.recompute_blocks > 0) {
        snprintf(blocks, sizeof blocks, ", the first %lld of %lld blocks,",
                 (long long)p->config.memory.recompute_blocks, (long long)p->shape.L);
    }
    tt_info(t->log, "memory.recompute: auto chose %s%s: %.1f of %.1f MiB planned per rank",
            p->config.memory.recompute, blocks,
            (double)(p->plan.total + p->plan.libraries) / 1048576.0, (double)p->asked / 1048576.0);
}

/* What was planned beside what was used, in the log and in the metrics. Collective. */
static tt_code tell_memory(tt_trainer *t, tt_metrics *metrics, tt_err *err)
{
    tt_code rc = TT_OK;
    tt_memory memory;
    TT_TRY(tt_memory_measure(&memory, t, err));
    tt_memory_report(&memory, t->log);
    rc = tt_agree(t->world, tt_metrics_memory(metrics, &memory, err), err);
out:
    return rc;
}

/* The blueprint of this rank among the others, as they share memory or not. Collective. */
static tt_code make_print(tt_trainer *t, const tt_config *config, int most, int threads,
                          tt_err *err)
{
    tt_code rc = TT_OK;
    TT_TRY(tt_node_open(&t->tutti.node, t->world, most, err));
    TT_TRY(tt_agree(t->world,
                    tt_blueprint_make_on(&t->print, config, tt_tokens_vocab(t->train_tokens),
                                         &t->tutti.node, threads, getenv("TUTTI_ISA"), err),
                    err));
out:
    return rc;
}

/* The same, with shared memory where dist.node_shared wants it and there is room. Collective. */
static tt_code plan_run(tt_trainer *t, const tt_config *config, int threads, tt_err *err)
{
    tt_code rc = TT_OK;
    tt_err why;
    size_t own, once;
    const int all = t->world->size;
    const int most = tt_plan_sharers(config, all);
    TT_TRY(make_print(t, config, most < all ? most : 0, threads, err));
    tt_storage_windows(&t->print, &own, &once);
    if (t->tutti.node.lanes == 1 || tt_node_room(&t->tutti.node, own, once, &why) == TT_OK) {
        goto out;
    }
    if (strcmp(config->dist.node_shared, "auto") != 0) {
        rc = tt_fail(err, why.code, "dist.node_shared is %s, but %s", config->dist.node_shared,
                     why.text);
        goto out;
    }
    tt_warn(t->log, "the ranks of a node share no memory: %s", why.text);
    tt_blueprint_free(&t->print);
    tt_node_close(&t->tutti.node);
    rc = make_print(t, config, 1, threads, err);
out:
    return rc;
}

/* Who shares memory is asked before anything else, as ranks then meet in calls that depend on it. */
static tt_code compare_sharing(tt_trainer *t, const tt_config *config, tt_err *err)
{
    char text[2 * TT_NAME + 32];
    snprintf(text, sizeof text, "dist.node_shared: %s\ndist.node_ranks: %lld\n",
             config->dist.node_shared, (long long)config->dist.node_ranks);
    return tt_agree_text(t->world, "configuration", text, err);
}

/* All ranks run the same configuration, as resolved, on data of the same size, with the same ISA, and in
 * exact mode with the same arithmetic, which names the ISA too. */
static tt_code compare_ranks(tt_trainer *t, tt_err *err)
{
    tt_text text = {0};
    tt_config_text(&t->print.config, true, &text);
    tt_text_add(&text, "data_tokens: %lld\ndata_digest: %016" PRIx64 "\n",
                (long long)t->data_tokens, t->data_digest);
    if (!t->print.config.run.exact) {
        tt_text_add(&text, "isa: %s\n", t->print.ops.isa);
    }
    tt_code rc = text.failed ? tt_fail(err, TT_EWORLD, "out of memory") : TT_OK;
    TT_TRY(tt_agree(t->world, rc, err));
    TT_TRY(tt_agree_text(t->world, "configuration", text.data, err));
    TT_TRY(tt_arithmetic_agree(t, err));
out:
    tt_text_free(&text);
    return rc;
}

/* What the run will write to is looked at before it starts, not after its last step. Local. */
static tt_code open_places(const tt_config *config, tt_err *err)
{
    tt_code rc = TT_OK;
    const char *dump = config->run.dump_gradients;
    char folder[TT_PATH];
    int64_t step;
    tt_err no_step;
    if (config->run.replay > 0) { /* which writes nothing */
        goto out;
    }
    TT_TRY(tt_make_folders(config->run.dir, err));
    if (dump[0] == '\0') {
        goto out;
    }
    TT_TRY(tt_ckpt_may_replace(dump, "grads", err));
    const char *slash = strrchr(dump, '/');
    snprintf(folder, sizeof folder, "%.*s", slash ? (int)(slash + 1 - dump) : 1,
             slash ? dump : ".");
    if (access(folder, W_OK | X_OK) != 0) {
        rc = tt_fail(err, TT_EWORLD, "run.dump_gradients: cannot write to the folder %s: %s",
                     folder, strerror(errno));
        goto out;
    }
    const char *name = slash ? slash + 1 : dump, *end = strrchr(name, '.');
    struct stat its, ours;
    if (stat(folder, &its) == 0 && stat(config->run.dir, &ours) == 0 && its.st_dev == ours.st_dev &&
        its.st_ino == ours.st_ino &&
        (tt_ckpt_step(dump, &step, &no_step) == TT_OK || (end && strcmp(end, ".jsonl") == 0))) {
        rc = tt_fail(err, TT_EUSER,
                     "run.dump_gradients %s is the name of a file of the run itself: choose "
                     "another",
                     dump);
    }
out:
    return rc;
}

tt_code tt_trainer_open(tt_trainer *t, const tt_config *config, tt_world *world, tt_log *log,
                        tt_err *err)
{
    tt_code rc = TT_OK;
    memset(t, 0, sizeof *t);
    t->world = world;
    t->log = log;
    const int threads = tt_threads_choose(config, tt_world_threads(world));
    tt_threads_set(threads);
    tt_flush_denormals(threads);

    TT_TRY(tt_watch_open(world, (double)config->dist.timeout, log, err));
    TT_TRY(tt_agree(world, tt_replay_check(config, err), err));
    TT_TRY(tt_agree(world, tt_fault_parse(getenv("TUTTI_FAULT"), &t->fault, err), err));
    TT_TRY(tt_agree(world, tt_fault_check(&t->fault, world->size, config->run.steps, err), err));
    TT_TRY(tt_agree(world, open_data(t, config, err), err));
    TT_TRY(compare_sharing(t, config, err));
    TT_TRY(plan_run(t, config, threads, err));
    TT_TRY(compare_ranks(t, err));
    TT_TRY(tt_agree(world, open_samplers(t, err), err));
    if (config->run.replay == 0) { /* which writes nothing */
        TT_TRY(tt_run_lock(t, t->print.config.run.dir, err));
    }
    TT_TRY(tt_agree(world, open_places(&t->print.config, err), err));
    t->began = tt_rss();
    t->began_part = tt_pss();
    TT_TRY(tt_memory_warn(t, err));
    TT_TRY(tt_storage_open(t, err));
    tt_halt_open(&t->halt, world, config, 3 * tt_mul(t->print.plan.parameters, sizeof(float)));
    t->overlap = strcmp(config->dist.overlap, "false") != 0;
    TT_TRY(tt_tutti_open(&t->tutti, t, err));
    show_recompute(t);
    show_optimizer_file(t);
    TT_TRY(tt_agree(world, tt_kernels_self_test(&t->ctx, err), err));
    if (t->wide.ctx != NULL) {
        TT_TRY(tt_agree(world, tt_kernels_self_test(t->wide.ctx, err), err));
    }
    tt_watch_left(world, tt_state_kept(t));
    tt_fault_strike(&t->fault, "in_start", world->rank, 0);
    TT_TRY(tt_state_begin(t, err));
    TT_TRY(tt_saver_open(t, err));
    if (tt_scaler_is_missed(&t->print.config) && world->rank == 0) {
        tt_warn(log,
                "precision.compute is fp16 and precision.loss_scale %.32s: gradients of the mean "
                "loss below %.0e become 0 on their way back; dynamic keeps them",
                t->print.config.precision.loss_scale,
                tt_formats[TT_FP16].min_subnormal / 2 / tt_scaler_begin(&t->print.config).scale);
    }
    t->peak_flops =
        t->ctx.ops->peak(&t->ctx, 0.01) * tt_world_processor_share(world, t->ctx.threads);
    TT_TRY(tt_tutti_try(&t->tutti, t->peak_flops, err));
    TT_TRY(tt_sum_f64(world, &t->peak_flops, 1, err));
out:
    if (rc != TT_OK) {
        tt_trainer_close(t);
    }
    return rc;
}

void tt_trainer_close(tt_trainer *t)
{
    tt_saver_close(t);
    tt_tutti_close(&t->tutti);
    tt_storage_close(t);
    tt_text_free(&t->past);
    tt_tokens_close(t->train_tokens);
    tt_tokens_close(t->valid_tokens);
    tt_node_close(&t->tutti.node);
    tt_blueprint_free(&t->print);
    tt_lock_release(&t->lock); /* last: until here this job may write */
    memset(t, 0, sizeof *t);
}

/* Is something that happens every n steps (0: never) due after this step? */
static bool due(int64_t every, int64_t step)
{
    return every > 0 && step % every == 0;
}

/* Digests are due every n steps and after the last one. */
static bool digests_due(const tt_trainer *t, const tt_record *record)
{
    const int64_t every = t->print.config.run.digest_every;
    const bool last = record->stop || record->step == t->print.config.run.steps;
    return due(every, record->step) || (every > 0 && last);
}

/* *done out: to its end; else a rank was asked to stop and left, and nothing is written. */
static tt_code evaluate(tt_trainer *t, tt_metrics *metrics, bool *done, tt_err *err)
{
    tt_code rc = TT_OK;
    tt_loss loss;
    int64_t count = tt_min(t->print.config.run.eval_sequences, t->valid_sampler.samples);
    tt_beat(t->world, "evaluating");
    tt_fault_strike(&t->fault, "in_eval", t->world->rank, t->progress.step);
    TT_TRY(tt_evaluate(t->world, t->model, &t->valid_sampler, &t->batch, count, &t->tutti, &t->halt,
                       &loss, err));
    *done = t->halt.all.left == 0;
    if (*done) {
        rc = tt_agree(t->world, tt_metrics_valid(metrics, t, &loss, err), err);
    }
out:
    return rc;
}

/* The weights are compared every n steps, and before each checkpoint: what is saved is of all ranks.
 * *verified: the last step's are already. */
static tt_code verify(tt_trainer *t, bool *verified, tt_err *err)
{
    tt_code rc = TT_OK;
    if (!*verified && t->print.config.dist.verify_every > 0) {
        TT_TRY(tt_verify(t, err));
    }
    *verified = true;
out:
    return rc;
}

/* wait: until it is there. */
static tt_code save(tt_trainer *t, tt_metrics *metrics, bool *verified, bool wait, tt_err *err)
{
    tt_code rc = TT_OK;
    TT_TRY(verify(t, verified, err));
    rc = tt_saver_save(t, metrics, wait, t->progress.skips == 0, err);
out:
    return rc;
}

/* The state is in its file: it is there already, or is saved now. */
static tt_code keep(tt_trainer *t, tt_metrics *metrics, bool saved, bool *verified, tt_err *err)
{
    tt_code rc = TT_OK;
    if (saved) {
        TT_TRY(tt_saver_there(t, metrics, t->progress.step, &saved, err));
    }
    if (!saved && tt_halt_stops(&t->halt)) {
        tt_info(t->log, "asked to stop: saving step %lld", (long long)t->progress.step);
    }
    rc = saved ? TT_OK : save(t, metrics, verified, true, err);
out:
    return rc;
}

/* Everything that all ranks do after the last step; asked to stop, all but evaluating. */
static tt_code finish(tt_trainer *t, tt_metrics *metrics, bool *evaluated, bool saved,
                      bool *verified, const tt_record *last, tt_err *err)
{
    tt_code rc = TT_OK;
    const tt_config *config = &t->print.config;
    if (!*evaluated && !tt_halt_stops(&t->halt)) {
        TT_TRY(evaluate(t, metrics, evaluated, err));
    }
    TT_TRY(keep(t, metrics, saved, verified, err));
    if (t->progress.skips > 0 && t->world->rank == 0) {
        char steps[40] = "step was";
        if (t->progress.skips > 1) {
            snprintf(steps, sizeof steps, "%lld steps were", (long long)t->progress.skips);
        }
        tt_warn(t->log, "the last %s skipped: not finite", steps);
    }
    if (config->run.dump_gradients[0] != '\0') {
        if (last->tokens == 0) {
            tt_info(t->log, "run.dump_gradients: no step was made, so nothing is written");
        } else {
            TT_TRY(tt_state_dump_gradients(t, 1.0 / last->mean_over, err));
        }
    }
    rc = tell_memory(t, metrics, err);
out:
    return rc;
}

/* The evaluation after the step that the run continues from, which a stop has cost it, is made now:
 * lines are those of a run that was left alone. *evaluated out: it is there. Collective. */
static tt_code make_up(tt_trainer *t, tt_metrics *metrics, bool *evaluated, tt_err *err)
{
    tt_code rc = TT_OK;
    const tt_config *config = &t->print.config;
    const int64_t step = t->progress.step;
    int64_t there = metrics->evaluated; /* rank 0 knows */
    TT_TRY(tt_sum_i64(t->world, &there, 1, err));
    *evaluated = there > 0;
    if (!*evaluated && step > 0 && step < config->run.steps && due(config->run.eval_every, step)) {
        TT_TRY(evaluate(t, metrics, evaluated, err));
    }
out:
    return rc;
}

/* The sentence of a run that stops before its end; its first step here was the one after `began`. */
static tt_code stopped(const tt_trainer *t, int64_t began, tt_err *err)
{
    const tt_config *config = &t->print.config;
    const long long step = t->progress.step;
    char why[64] = "a signal", when[64] = "before the first step; step 0";
    const bool late = t->halt.all.by_signal == 0;
    if (late) {
        snprintf(why, sizeof why, "run.max_seconds (%lld)", (long long)config->run.max_seconds);
    }
    if (step > 0) {
        snprintf(when, sizeof when, "after step %lld, which", step);
    }
    return tt_fail(err, TT_ESTOP, "stopped by %s %s is saved in %s%s", why, when, config->run.dir,
                   late && step == began ? "; it left no time for a step" : "");
}

tt_code tt_trainer_run(tt_trainer *t, tt_err *err)
{
    tt_code rc = TT_OK;
    const tt_config *config = &t->print.config;
    const bool evaluates = t->valid_tokens && config->run.eval_every > 0;
    const int64_t began = t->progress.step;
    bool evaluated = !evaluates, saved = t->kept, verified = false;
    tt_request request = {.code = TT_OK};
    tt_record record = {0};
    tt_metrics metrics = {0};
    tt_digests digests = {0}, *taken = NULL; /* taken: after the step just made */

    TT_TRY(tt_agree(t->world, tt_metrics_open(&metrics, t, err), err));
    if (config->run.digest_every > 0) {
        TT_TRY(tt_agree(t->world, tt_digests_open(&digests, t, err), err));
    }
    if (evaluates) {
        TT_TRY(make_up(t, &metrics, &evaluated, err));
    }
    if (began >= config->run.steps) {
        tt_info(t->log, "all %lld steps of run.steps are done: nothing to train",
                (long long)config->run.steps);
    }
    while (t->progress.step < config->run.steps && !tt_halt_stops(&t->halt)) {
        request.saving = tt_saver_busy(t);
        const tt_progress before = t->progress;
        TT_TRY(tt_step(t, &request, &record, err));
        if (!record.saving) {
            TT_TRY(tt_saver_next(t, &metrics, err));
        }
        if (record.left) {
            break;
        }
        TT_TRY(tt_inject_weight(t, err));
        tt_beat(t->world, "writing metrics");
        tt_fault_strike(&t->fault, "in_metrics", t->world->rank, record.step);
        verified = false;
        taken = digests_due(t, &record) ? &digests : NULL;
        if (taken) {
            TT_TRY(tt_digests_take(taken, t, err));
        }
        /* The code is told in the next step, or before this one is saved: no checkpoint is ahead of the
         * metrics, so that steps without a line are made again. */
        request.code = tt_metrics_trace(&metrics, t, &request.err);
        if (request.code == TT_OK) {
            request.code = tt_metrics_step(&metrics, t, &record, taken, &request.err);
        }
        if (tt_nonfinite_stops(t, &record)) {
            TT_TRY(verify(t, &verified, err));
            rc = tt_nonfinite_stop(t, &before, saved, &record, err);
            goto out;
        }
        TT_TRY(tt_nonfinite_check(t, &record, err));
        if (due(config->dist.verify_every, record.step)) {
            TT_TRY(verify(t, &verified, err));
        }
        evaluated = !evaluates;
        saved = false;
        if (evaluates && due(config->run.eval_every, record.step) && !record.stop) {
            TT_TRY(evaluate(t, &metrics, &evaluated, err));
        }
        /* While steps are being skipped nothing is learned, and saving would push out checkpoints
         * from before the trouble. */
        if (due(config->run.save_every, record.step) && t->progress.skips == 0) {
            *err = request.err;
            TT_TRY(tt_agree(t->world, request.code, err));
            TT_TRY(save(t, &metrics, &verified, false, err));
            saved = true;
        }
    }
    const bool done = t->progress.step >= config->run.steps;
    *err = request.err;
    TT_TRY(tt_agree(t->world, request.code, err));
    if (done) {
        TT_TRY(finish(t, &metrics, &evaluated, saved, &verified, &record, err));
    } else {
        TT_TRY(keep(t, &metrics, saved, &verified, err)); /* asked to stop */
        TT_TRY(tell_memory(t, &metrics, err));
    }
    if (!done || !evaluated) { /* a run that has done all ends well, whoever asked it to stop */
        rc = stopped(t, began, err);
    }
out:
    if (rc != TT_OK) { /* whatever ended the run: what was good before it is worth its file */
        tt_err lost;
        tt_saver_finish(t, NULL, &lost);
    }
    tt_live_end(t->log);
    tt_metrics_close(&metrics);
    tt_digests_close(&digests);
    return rc;
}
