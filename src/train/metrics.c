/* metrics.c: metrics.jsonl, data.jsonl, digests.jsonl, numerics.jsonl, nonfinite.jsonl and the lines for
 * people. See metrics.h.
 *
 * Reads records; writes files and stderr; next: scripts/plot_loss.sh. */
#include "tutti/train/metrics.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "tutti/base/clock.h"
#include "tutti/base/file.h"
#include "tutti/base/narrow.h"
#include "tutti/base/text.h"
#include "tutti/train/arithmetic.h"
#include "tutti/train/state.h"
#include "tutti/version.h"

#include "train/train_impl.h"

/* Each file of the run. */
enum { FILES = 5 };
typedef struct lines {
    FILE **file;
    const char *name;
} lines;

static void all_lines(tt_metrics *metrics, lines of[FILES])
{
    of[0] = (lines){&metrics->file, "metrics.jsonl"};
    of[1] = (lines){&metrics->trace, "data.jsonl"};
    of[2] = (lines){&metrics->digests, "digests.jsonl"};
    of[3] = (lines){&metrics->numerics, "numerics.jsonl"};
    of[4] = (lines){&metrics->nonfinite, "nonfinite.jsonl"};
}

/* The whole text in one write, so that a killed run leaves whole lines; and by the system's own call, as
 * the library would keep what a full disk has refused, and try again when the file is closed. */
static tt_code write_line(FILE *file, const tt_text *line, const char *name, tt_err *err)
{
    return line->failed ? tt_fail(err, TT_EWORLD, "out of memory for a line of %s", name)
                        : tt_append(fileno(file), line->data, line->length, name, err);
}

/* The same, and frees the line. */
static tt_code put(FILE *file, tt_text *line, const char *name, tt_err *err)
{
    tt_code rc = write_line(file, line, name, err);
    tt_text_free(line);
    return rc;
}

/* Cuts the file back also when this run adds nothing to it (*file stays NULL unless `wanted`): its
 * lines of steps that are made again would be another run's. */
static tt_code open_lines(FILE **file, bool wanted, const char *dir, const char *name, int64_t last,
                          bool *valid, tt_err *err)
{
    tt_code rc = TT_OK;
    char *path = tt_join(dir, name, err);
    if (!path) {
        rc = err->code;
        goto out;
    }
    TT_TRY(tt_lines_cut(path, last, valid, err));
    if (!wanted) {
        goto out;
    }
    TT_TRY(tt_make_folders(dir, err)); /* which may have been moved since the run began */
    rc = tt_fopen(file, path, "a", err);
out:
    free(path);
    return rc;
}

/* {"run": {...}}: version, configuration, ranks, threads, ISA, arithmetic, parameters, plan. */
static void run_line(const tt_trainer *t, tt_text *line)
{
    const tt_plan *plan = &t->print.plan;
    char stamp[TT_STAMP];
    tt_text arithmetic = {0};
    const char *section = "";
    size_t section_length = 0;
    tt_stamp(stamp);
    tt_text_add(line, "{\"run\": {\"version\": \"%s\", \"build\": \"%s\", \"time\": \"%s\", ",
                TUTTI_VERSION, TUTTI_CONFIG, stamp);
    tt_text_add(line, "\"ranks\": %d, \"threads\": %d, \"isa\": \"%s\", ", plan->ranks,
                plan->threads, t->print.ops.isa);
    tt_arithmetic_text(&t->print, &arithmetic);
    tt_text_add(line, "\"arithmetic\": ");
    tt_text_add_json(line, arithmetic.data ? arithmetic.data : "");
    line->failed = line->failed || arithmetic.failed;
    tt_text_free(&arithmetic);
    tt_text_add(line, ", \"parameters\": %lld, \"first_step\": %lld, \"peak_gflops\": %.1f, ",
                (long long)plan->parameters, (long long)t->progress.step + 1, t->peak_flops / 1e9);
    tt_text_add(line, "\"plan\": {");
    for (int i = 0; i < TT_MEM_COMPONENTS; i++) {
        tt_text_add(line, "\"%s_bytes\": %zu, ", tt_component_names[i], plan->bytes[i]);
    }
    tt_text_add(line,
                "\"total_bytes\": %zu, \"libraries_bytes\": %zu, \"kept_bytes\": %zu, "
                "\"optimizer_file_bytes\": %zu, \"tokens_per_step\": %lld, "
                "\"flops_per_step\": %.6g, "
                "\"wire_calls\": %lld, \"wire_bytes\": %lld}, ",
                plan->total, plan->libraries, plan->kept, plan->file_bytes,
                (long long)plan->tokens_per_step, plan->flops_per_step, (long long)plan->wire_calls,
                (long long)plan->wire_bytes);
    tt_text_add(line, "\"config\": {");
    for (int i = 0; i < tt_option_count; i++) { /* rows of one section are neighbours */
        const tt_option *o = &tt_options[i];
        const char *dot = strchr(o->path, '.');
        size_t length = (size_t)(dot - o->path);
        bool same = length == section_length && strncmp(o->path, section, length) == 0;
        if (!same) {
            tt_text_add(line, "%s\"%.*s\": {", i == 0 ? "" : "}, ", (int)length, o->path);
        }
        tt_text value = {0};
        tt_config_value_json(&t->print.config, o, &value);
        tt_text_add(line, "%s\"%s\": %s", same ? ", " : "", dot + 1,
                    value.data ? value.data : "null");
        line->failed = line->failed || value.failed;
        tt_text_free(&value);
        section = o->path;
        section_length = length;
    }
    tt_text_add(line, "}}}}\n");
}

static void greet(const tt_metrics *metrics, const tt_trainer *t)
{
    const tt_plan *plan = &t->print.plan;
    const tt_split *split = &t->print.split;
    char total[32];
    tt_human_bytes((double)(plan->total + plan->libraries), total);
    tt_info(metrics->log,
            "tutti %s: %lld parameters, %s on %s, %d rank%s x %d thread%s, %.0f GFLOP/s peak",
            TUTTI_VERSION, (long long)plan->parameters, t->print.config.precision.compute,
            t->print.ops.isa, plan->ranks, plan->ranks == 1 ? "" : "s", plan->threads,
            plan->threads == 1 ? "" : "s", t->peak_flops / 1e9);
    tt_info(metrics->log,
            "batch %lld sequences x %lld tokens = micro %lld x accumulate %lld x ranks %d; %s "
            "planned per rank",
            (long long)split->sequences, (long long)t->print.shape.T, (long long)split->micro,
            (long long)split->accumulate, split->ranks, total);
}

tt_code tt_metrics_open(tt_metrics *metrics, const tt_trainer *t, tt_err *err)
{
    tt_code rc = TT_OK;
    const tt_config *config = &t->print.config;
    *metrics = (tt_metrics){
        .log = t->log, .started = tt_seconds(), .first_step = t->progress.step, .valid_loss = -1};
    if (t->world->rank != 0) {
        goto out;
    }
    greet(metrics, t);
    const char *dir = config->run.dir;
    const int64_t last = t->progress.step;
    TT_TRY(open_lines(&metrics->file, true, dir, "metrics.jsonl", last, &metrics->evaluated, err));
    TT_TRY(open_lines(&metrics->trace, config->run.trace_data, dir, "data.jsonl", last, NULL, err));
    TT_TRY(open_lines(&metrics->digests, config->run.digest_every > 0, dir, "digests.jsonl", last,
                      NULL, err));
    TT_TRY(open_lines(&metrics->numerics, config->run.numerics_every > 0, dir, "numerics.jsonl",
                      last, NULL, err));
    TT_TRY(open_lines(&metrics->nonfinite, false, dir, "nonfinite.jsonl", last, NULL, err));
    tt_text line = {0};
    run_line(t, &line);
    TT_TRY(put(metrics->file, &line, "metrics.jsonl", err));
out:
    return rc;
}

static const char *truth(bool value)
{
    return value ? "true" : "false";
}

/* "1:02:03" or "2:03" */
static void clock_text(double seconds, char out[32])
{
    long long s = seconds > 0 ? (long long)(seconds + 0.5) : 0;
    if (s >= 3600) {
        snprintf(out, 32, "%lld:%02lld:%02lld", s / 3600, s / 60 % 60, s % 60);
    } else {
        snprintf(out, 32, "%lld:%02lld", s / 60, s % 60);
    }
}

/* The line for people: redrawn on a terminal, every run.log_every steps elsewhere. */
static void show(const tt_metrics *metrics, const tt_trainer *t, const tt_record *r)
{
    const tt_config *config = &t->print.config;
    const double passed = tt_seconds() - metrics->started;
    const int64_t done = r->step - metrics->first_step, left = config->run.steps - r->step;
    char eta[32], valid[32] = "";
    tt_text line = {0};
    clock_text(done > 0 ? passed / (double)done * (double)left : 0, eta);
    if (metrics->valid_loss >= 0) {
        snprintf(valid, sizeof valid, "  valid %.4f", metrics->valid_loss);
    }
    tt_text_add(&line,
                "step %lld/%lld  loss %.4f%s  lr %.2e  norm %.3f  %.0f tokens/s  eta %s  "
                "mfu %.0f%%%s",
                (long long)r->step, (long long)config->run.steps, r->loss, valid, r->lr,
                r->grad_norm, r->tokens_per_s, eta, 100 * r->mfu,
                r->skipped ? "  (skipped: not finite)" : "");
    if (tt_scaler_is_dynamic(config)) {
        tt_text_add(&line, "  scale %.9g", r->loss_scale);
    }
    if (line.data) {
        bool kept = r->step == 1 || r->step == config->run.steps || r->skipped ||
                    (config->run.log_every > 0 && r->step % config->run.log_every == 0);
        if (metrics->log->columns > 0) {
            tt_live(metrics->log, "%s", line.data);
        } else if (kept) {
            tt_info(metrics->log, "%s", line.data);
        }
    }
    tt_text_free(&line);
}

/* As many digits as tell it from every other double, so that equal texts are equal bits. JSON has no NaN
 * and no infinity: null stands for both. */
static void add_number(tt_text *line, const char *key, double value)
{
    tt_text_add(line, "\"%s\": ", key);
    tt_text_add_double(line, value);
    tt_text_add(line, ", ");
}

/* Of a step that is not finite; the file is there from the first one on. */
static tt_code put_blame(tt_metrics *metrics, const tt_trainer *t, const tt_record *r, tt_err *err)
{
    tt_code rc = TT_OK;
    static const char name[] = "nonfinite.jsonl";
    tt_text line = {0};
    if (metrics->nonfinite == NULL) {
        TT_TRY(open_lines(&metrics->nonfinite, true, t->print.config.run.dir, name, r->step - 1,
                          NULL, err));
    }
    tt_blame_line(t, r, &line);
    rc = put(metrics->nonfinite, &line, name, err);
out:
    return rc;
}

tt_code tt_metrics_step(tt_metrics *metrics, const tt_trainer *t, const tt_record *r,
                        tt_digests *digests, tt_err *err)
{
    tt_code rc = TT_OK;
    if (!metrics->file) {
        goto out;
    }
    tt_text line = {0};
    char stamp[TT_STAMP];
    tt_stamp(stamp);
    tt_text_add(&line, "{\"step\": %lld, ", (long long)r->step);
    add_number(&line, "loss", r->loss);
    tt_text_add(&line, "\"tokens\": %lld, \"tokens_seen\": %lld, ", (long long)r->tokens,
                (long long)r->tokens_seen);
    add_number(&line, "lr", r->lr);
    add_number(&line, "grad_norm", r->grad_norm);
    tt_text_add(&line, "\"clipped\": %s, ", truth(r->clipped));
    add_number(&line, "loss_scale", r->loss_scale);
    tt_text_add(&line, "\"skipped\": %s, \"nonfinite\": %lld, ", truth(r->skipped),
                (long long)r->nonfinite);
    if (digests) {
        tt_text_add(&line, "\"digest\": \"%016" PRIx64 "\", ", digests->weights);
    }
    if (t->print.fp8.sites > 0) {
        tt_text_add(&line, "\"fp8_amax\": ");
        tt_fp8_text(&t->print.fp8, r->mean_over, &line);
        tt_text_add(&line, ", ");
    }
    tt_text_add(&line,
                "\"step_ms\": %.3f, \"tokens_per_s\": %.1f, \"mfu\": %.4f, \"comm_ms\": %.3f, "
                "\"comm_exposed_ms\": %.3f, \"imbalance_ms\": %.3f, \"comm_calls\": %lld, "
                "\"comm_bytes\": %lld, "
                "\"rss_mb\": %.1f, \"time\": \"%s\"}\n",
                r->step_ms, r->tokens_per_s, r->mfu, r->comm_ms, r->comm_exposed_ms,
                r->imbalance_ms, (long long)r->comm_calls, (long long)r->comm_bytes, r->rss_mb,
                stamp);
    TT_TRY(put(metrics->file, &line, "metrics.jsonl", err));
    if (digests) {
        TT_TRY(
            write_line(metrics->digests, tt_digests_line(digests, r->step), "digests.jsonl", err));
    }
    if (r->numerics) {
        line = (tt_text){0};
        tt_text_add(&line, "{\"step\": %lld, \"numerics\": ", (long long)r->step);
        tt_numerics_text(r->numerics, &line);
        tt_text_add(&line, "}\n");
        TT_TRY(put(metrics->numerics, &line, "numerics.jsonl", err));
    }
    if (r->blame.bad) {
        TT_TRY(put_blame(metrics, t, r, err));
    }
    show(metrics, t, r);
out:
    return rc;
}

tt_code tt_metrics_valid(tt_metrics *metrics, const tt_trainer *t, const tt_loss *loss, tt_err *err)
{
    tt_code rc = TT_OK;
    metrics->valid_loss = tt_loss_mean(loss);
    if (!metrics->file) {
        goto out;
    }
    tt_text line = {0};
    tt_text_add(&line, "{\"step\": %lld, ", (long long)t->progress.step);
    add_number(&line, "valid_loss", metrics->valid_loss);
    tt_text_add(&line, "\"valid_tokens\": %lld}\n", (long long)loss->count);
    TT_TRY(put(metrics->file, &line, "metrics.jsonl", err));
    tt_info(metrics->log, "step %lld  valid loss %.4f over %lld tokens",
            (long long)t->progress.step, metrics->valid_loss, (long long)loss->count);
out:
    return rc;
}

/* Somebody may have moved, removed or replaced a file, or the whole folder, while the run writes to it:
 * what comes now goes to where it is looked for. */
static tt_code follow(tt_metrics *metrics, const tt_trainer *t, tt_err *err)
{
    tt_code rc = TT_OK;
    tt_text line = {0};
    char *path = NULL;
    lines of[FILES];
    all_lines(metrics, of);
    for (int i = 0; i < FILES; i++) {
        path = *of[i].file != NULL ? tt_join(t->print.config.run.dir, of[i].name, err) : NULL;
        if (*of[i].file != NULL && path == NULL) {
            rc = err->code;
            goto out;
        }
        if (path != NULL && !tt_is_at(fileno(*of[i].file), path)) {
            tt_warn(metrics->log,
                    "%s was moved, removed or replaced while this job wrote to it: what has come "
                    "since then is not in it, what comes now will be",
                    path);
            fclose(*of[i].file);
            TT_TRY(tt_fopen(of[i].file, path, "a", err));
            if (of[i].file == &metrics->file) {
                run_line(t, &line);
                TT_TRY(put(metrics->file, &line, of[i].name, err));
            }
        }
        free(path);
        path = NULL;
    }
out:
    free(path);
    return rc;
}

tt_code tt_metrics_saved(tt_metrics *metrics, const tt_trainer *t, const tt_saved *saved,
                         tt_err *err)
{
    tt_code rc = TT_OK;
    tt_text line = {0};
    char name[TT_STEP_NAME];
    char *path = NULL;
    struct stat info;
    if (!metrics->file) {
        goto out;
    }
    TT_TRY(follow(metrics, t, err));
    tt_state_name(saved->step, name);
    path = tt_state_path(t, saved->step, err);
    if (!path) {
        rc = err->code;
        goto out;
    }
    const double bytes = stat(path, &info) == 0 ? (double)info.st_size : 0;
    tt_text_add(&line,
                "{\"step\": %lld, \"saved\": \"%s\", \"save_s\": %.4f, \"held_up_s\": %.4f, "
                "\"save_mb_per_s\": %.1f}\n",
                (long long)saved->step, name, saved->seconds, saved->held,
                1e-6 * bytes / fmax(saved->seconds, 1e-9));
    TT_TRY(put(metrics->file, &line, "metrics.jsonl", err));
out:
    free(path);
    return rc;
}

tt_code tt_metrics_memory(tt_metrics *metrics, const tt_memory *memory, tt_err *err)
{
    if (!metrics->file) {
        return TT_OK;
    }
    tt_text line = {0};
    tt_text_add(&line, "{\"memory\": ");
    tt_memory_text(memory, &line);
    tt_text_add(&line, "}\n");
    return put(metrics->file, &line, "metrics.jsonl", err);
}

tt_code tt_metrics_trace(tt_metrics *metrics, const tt_trainer *t, tt_err *err)
{
    tt_code rc = TT_OK;
    if (!metrics->trace) {
        goto out;
    }
    tt_text line = {0};
    const int64_t S = t->print.split.sequences, first = (t->progress.step - 1) * S;
    tt_text_add(&line, "{\"step\": %lld, \"samples\": [", (long long)t->progress.step);
    for (int64_t i = 0; i < S; i++) {
        tt_text_add(&line, "%s%lld", i == 0 ? "" : ", ", (long long)(first + i));
    }
    tt_text_add(&line, "], \"elements\": [");
    for (int64_t i = 0; i < S; i++) {
        tt_text_add(&line, "%s%lld", i == 0 ? "" : ", ",
                    (long long)tt_sampler_element(&t->sampler, first + i));
    }
    tt_text_add(&line, "]}\n");
    TT_TRY(put(metrics->trace, &line, "data.jsonl", err));
out:
    return rc;
}

void tt_metrics_close(tt_metrics *metrics)
{
    lines of[FILES];
    all_lines(metrics, of);
    for (int i = 0; i < FILES; i++) {
        if (*of[i].file != NULL) {
            fclose(*of[i].file);
        }
        *of[i].file = NULL;
    }
}
