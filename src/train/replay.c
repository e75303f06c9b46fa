/* replay.c: a step again, and what is said of it. See tutti/train/replay.h. */
#include "tutti/train/replay.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tutti/base/file.h"
#include "tutti/base/narrow.h"
#include "tutti/train/step.h"

#include "train/train_impl.h"

tt_code tt_replay_check(const tt_config *config, tt_err *err)
{
    const long long step = config->run.replay, steps = config->run.steps;
    if (step > steps) {
        return tt_fail(err, TT_EUSER, "run.replay: the run has no step %lld, run.steps is %lld",
                       step, steps);
    }
    if (step > 0 && !tt_file_exists(config->run.dir)) {
        return tt_fail(err, TT_EUSER, "run.replay: there is no run in %s (run.dir)",
                       config->run.dir);
    }
    return TT_OK;
}

/* ---- looking ---- */

void tt_replay_look(tt_replay *replay, const tt_wrote *wrote)
{
    const tt_trainer *t = replay->trainer;
    replay->looks++;
    if (replay->mine.found) { /* all that follows may come from that */
        return;
    }
    const tt_wrote_bad bad = tt_wrote_scan(wrote, t->ctx.threads);
    if (bad.inf + bad.nan + bad.other == 0) {
        return;
    }
    replay->mine = (tt_sighting){.found = 1,
                                 .micro = t->suspect.micro,
                                 .kind = wrote->kind,
                                 .again = wrote->again,
                                 .stage = wrote->stage,
                                 .layer = wrote->layer,
                                 .inf = bad.inf,
                                 .nan = bad.nan,
                                 .other = bad.other,
                                 .first = bad.first,
                                 .rows = wrote->rows,
                                 .columns = wrote->columns};
    snprintf(replay->mine.tensor, sizeof replay->mine.tensor, "%s", wrote->tensor);
}

/* ---- what is said ---- */

enum { COLUMNS = 9, CELL = TT_NAME + 40 };
typedef char cells[COLUMNS][CELL]; /* a row of the table */

/* "h.3", or "-" of what is in no block. */
static void block_name(const tt_trainer *t, int64_t stage, char out[CELL])
{
    if (stage == 0 || stage > t->print.shape.L) {
        snprintf(out, CELL, "-");
    } else {
        snprintf(out, CELL, "h.%lld", (long long)stage - 1);
    }
}

static const char *pass_name(const tt_sighting *s)
{
    switch ((tt_wrote_kind)s->kind) {
    case TT_WROTE_WEIGHT:
        return "before forward";
    case TT_WROTE_ACTIVATION:
    case TT_WROTE_LOSS:
        break;
    case TT_WROTE_GRADIENT:
    case TT_WROTE_SUM:
        return "backward";
    }
    return s->again ? "forward again" : "forward";
}

/* "gradient of attn.qkv.weight" */
static void tensor_name(const tt_sighting *s, char out[CELL])
{
    static const char *const of[] = {[TT_WROTE_WEIGHT] = "weights ",
                                     [TT_WROTE_ACTIVATION] = "",
                                     [TT_WROTE_LOSS] = "",
                                     [TT_WROTE_GRADIENT] = "gradient of ",
                                     [TT_WROTE_SUM] = "gradient of "};
    snprintf(out, CELL, "%s%s", of[s->kind], s->tensor);
}

/* "1 NaN, 2 inf of 512" */
static void count_text(const tt_sighting *s, char out[CELL])
{
    const long long all = tt_mul(s->rows, s->columns);
    if (s->other > 0) {
        snprintf(out, CELL, "%lld %s", (long long)s->other,
                 s->kind == TT_WROTE_LOSS ? "tokens" : "summands out of range");
    } else if (s->inf > 0 && s->nan > 0) {
        snprintf(out, CELL, "%lld inf, %lld NaN of %lld", (long long)s->inf, (long long)s->nan,
                 all);
    } else {
        snprintf(out, CELL, "%lld %s of %lld", (long long)(s->inf + s->nan),
                 s->inf > 0 ? "inf" : "NaN", all);
    }
}

/* The first global sample of micro-batch k of a rank in the step that was made last. */
static int64_t first_sample(const tt_trainer *t, int rank, int64_t k)
{
    const tt_split *split = &t->print.split;
    return (t->progress.step - 1) * split->sequences + (k * split->ranks + rank) * split->micro;
}

/* "sample 17, token 3, channel 5", or "row 3, column 5" of a parameter. */
static void place_text(const tt_trainer *t, const tt_sighting *s, int rank, char out[CELL])
{
    const long long row = s->first / s->columns, column = s->first % s->columns;
    const int64_t T = t->print.shape.T;
    if (s->first < 0) {
        snprintf(out, CELL, "-");
    } else if (s->kind == TT_WROTE_ACTIVATION || s->kind == TT_WROTE_GRADIENT) {
        snprintf(out, CELL, "sample %lld, token %lld, channel %lld",
                 (long long)(first_sample(t, rank, s->micro) + row / T), row % (long long)T,
                 column);
    } else if (s->columns > 1) {
        snprintf(out, CELL, "row %lld, column %lld", row, column);
    } else {
        snprintf(out, CELL, "element %lld", row);
    }
}

static void head_row(cells row)
{
    static const char *const head[COLUMNS] = {"rank",   "micro",      "samples",
                                              "block",  "layer",      "pass",
                                              "tensor", "not finite", "the first at"};
    for (int c = 0; c < COLUMNS; c++) {
        snprintf(row[c], CELL, "%s", head[c]);
    }
}

/* "31" or "28-31": the samples of the micro-batch. */
static void samples_text(const tt_trainer *t, const tt_sighting *s, int rank, char out[CELL])
{
    const int64_t first = first_sample(t, rank, s->micro), B = t->print.split.micro;
    if (B == 1) {
        snprintf(out, CELL, "%lld", (long long)first);
    } else {
        snprintf(out, CELL, "%lld-%lld", (long long)first, (long long)(first + B - 1));
    }
}

static void rank_row(const tt_trainer *t, const tt_sighting *s, int rank, cells row)
{
    snprintf(row[0], CELL, "%d", rank);
    snprintf(row[1], CELL, "%lld/%lld", (long long)s->micro + 1,
             (long long)t->print.split.accumulate);
    samples_text(t, s, rank, row[2]);
    block_name(t, s->stage, row[3]);
    snprintf(row[4], CELL, "%s", tt_op_row_names[s->layer]);
    snprintf(row[5], CELL, "%s", pass_name(s));
    tensor_name(s, row[6]);
    count_text(s, row[7]);
    place_text(t, s, rank, row[8]);
}

/* One row for each rank that met something, in columns as wide as their widest cell. */
static void add_table(const tt_trainer *t, const tt_sighting *all, tt_text *out)
{
    int width[COLUMNS] = {0};
    cells row;
    for (int draw = 0; draw <= 1; draw++) {
        for (int r = -1; r < t->world->size; r++) {
            if (r < 0) {
                head_row(row);
            } else if (all[r].found) {
                rank_row(t, &all[r], r, row);
            } else {
                continue;
            }
            for (int c = 0; c < COLUMNS && draw == 0; c++) {
                const int length = tt_int(tt_count(strlen(row[c])));
                width[c] = length > width[c] ? length : width[c];
            }
            for (int c = 0; c < COLUMNS && draw == 1; c++) {
                const bool last = c == COLUMNS - 1;
                tt_text_add(out, "%-*s%s", last ? 0 : width[c], row[c], last ? "\n" : "  ");
            }
        }
    }
}

/* Which rank met it first: in the earliest micro-batch, and of several there the lowest; -1: none. */
static int first_rank(const tt_trainer *t, const tt_sighting *all)
{
    int first = -1;
    for (int r = 0; r < t->world->size; r++) {
        if (all[r].found && (first < 0 || all[r].micro < all[first].micro)) {
            first = r;
        }
    }
    return first;
}

static void add_ranks(const tt_trainer *t, const tt_sighting *all, tt_text *out)
{
    const int rank = first_rank(t, all);
    const tt_sighting *s = &all[rank];
    char block[CELL], tensor[CELL], count[CELL], samples[CELL];
    int others = 0;
    block_name(t, s->stage, block);
    const bool in_block = strcmp(block, "-") != 0;
    tensor_name(s, tensor);
    count_text(s, count);
    samples_text(t, s, rank, samples);
    for (int r = 0; r < t->world->size; r++) {
        others += !all[r].found;
    }
    tt_text_add(out, "\n");
    add_table(t, all, out);
    if (others > 0) {
        tt_text_add(out, "%d other rank%s met nothing\n", others, others == 1 ? "" : "s");
    }
    tt_text_add(
        out, "\nfirst on rank %d, micro-batch %lld of %lld, sample%s %s: %s%s%s, %s: %s has %s\n",
        rank, (long long)s->micro + 1, (long long)t->print.split.accumulate,
        t->print.split.micro == 1 ? "" : "s", samples, tt_op_row_names[s->layer],
        in_block ? " of " : "", in_block ? block : "", pass_name(s), tensor, count);
}

/* ---- beside metrics.jsonl ---- */

/* Number behind `"key": ` in a line; NaN for null. false: there is none. */
static bool number_in(const char *line, const char *key, double *out)
{
    char label[32], number[64];
    snprintf(label, sizeof label, "\"%s\": ", key);
    const char *at = strstr(line, label);
    if (at == NULL) {
        return false;
    }
    at += strlen(label);
    snprintf(number, sizeof number, "%.*s", (int)strcspn(at, ",}"), at);
    *out = NAN;
    return strcmp(number, "null") == 0 || tt_parse_double(number, out);
}

/* What the run wrote of the step. false: nothing that can be read. */
static bool recorded(const tt_trainer *t, double *loss, double *norm)
{
    tt_err err;
    char start[48], *line = NULL;
    size_t room = 0;
    bool found = false;
    char *path = tt_join(t->print.config.run.dir, "metrics.jsonl", &err);
    FILE *file = NULL;
    if (path != NULL && tt_fopen(&file, path, "r", &err) != TT_OK) {
        file = NULL; /* no line of this step */
    }
    snprintf(start, sizeof start, "{\"step\": %lld, \"loss\": ", (long long)t->progress.step);
    while (file != NULL && getline(&line, &room, file) > 0) {
        if (strncmp(line, start, strlen(start)) == 0) {
            found = number_in(line, "loss", loss) && number_in(line, "grad_norm", norm);
        }
    }
    if (file != NULL) {
        fclose(file);
    }
    free(line);
    free(path);
    return found;
}

static bool same(double a, double b)
{
    return a == b || (isnan(a) && isnan(b));
}

/* In exact mode the same step is the same bits; else where sums over ranks came in the same order. */
static void add_recorded(const tt_trainer *t, const tt_record *record, tt_text *out)
{
    double loss, norm;
    if (!recorded(t, &loss, &norm)) {
        tt_text_add(out, "metrics.jsonl has no line of this step\n");
        return;
    }
    if (same(loss, record->loss) && same(norm, record->grad_norm)) {
        tt_text_add(out, "metrics.jsonl has the same loss and norm, to the bit\n");
        return;
    }
    tt_text_add(out, "metrics.jsonl differs: loss ");
    tt_text_add_double(out, loss);
    tt_text_add(out, ", grad norm ");
    tt_text_add_double(out, norm);
    const bool finite = isfinite(record->loss) && isfinite(record->grad_norm);
    if (finite != (isfinite(loss) && isfinite(norm))) {
        tt_text_add(out, finite ? "; what was not finite then has not come again: look at the "
                                  "memory and the processor of the rank that nonfinite.jsonl names"
                                : "; what is not finite now was finite then");
    } else if (!t->print.config.run.exact) {
        tt_text_add(
            out,
            "; outside exact mode sums over ranks are rounded in the order in which they come");
    } else {
        tt_text_add(out, "; in exact mode the same step is the same to the bit");
    }
    tt_text_add(out, "\n");
}

static tt_code report(const tt_trainer *t, const tt_sighting *all, const tt_record *record,
                      int64_t looks, tt_text *out, tt_err *err)
{
    tt_text_add(out, "step %lld replayed: ", (long long)record->step);
    tt_text_add(out, record->blame.bad ? "not finite" : "everything is finite");
    tt_text_add(out, "; loss ");
    tt_text_add_double(out, record->loss);
    tt_text_add(out, ", grad norm ");
    tt_text_add_double(out, record->grad_norm);
    tt_text_add(out, "; %lld tensors looked at on each rank\n", (long long)looks);
    add_recorded(t, record, out);
    if (first_rank(t, all) >= 0) {
        add_ranks(t, all, out);
    } else if (record->blame.bad) { /* nothing that a layer left */
        tt_text_add(out, "what layers wrote is finite on every rank; the gradient of %s is not, ",
                    record->nonfinite_in);
        tt_blame_text(t, record, out);
        tt_text_add(out, "\n");
    }
    return out->failed ? tt_fail(err, TT_EWORLD, "out of memory") : TT_OK;
}

/* ---- the run ---- */

static tt_code step_again(tt_trainer *t, tt_record *record, tt_err *err)
{
    tt_code rc = TT_OK;
    const tt_request request = {.code = TT_OK};
    TT_TRY(tt_step(t, &request, record, err));
    if (record->stop || record->left) {
        rc = tt_fail(err, TT_ESTOP, "a replay was stopped by %s after step %lld; it saves nothing",
                     t->halt.all.by_signal != 0 ? "a signal" : "run.max_seconds",
                     (long long)record->step);
    }
out:
    return rc;
}

tt_code tt_replay_run(tt_trainer *t, tt_text *out, tt_err *err)
{
    enum { WORDS = sizeof(tt_sighting) / sizeof(int64_t) };
    tt_code rc = TT_OK;
    const int64_t step = t->print.config.run.replay;
    tt_record record = {0};
    tt_replay replay = {.trainer = t};
    tt_sighting *all = tt_alloc(t->world->size, sizeof *all, err);
    TT_TRY(tt_agree(t->world, all != NULL ? TT_OK : err->code, err));
    if (t->progress.step + 1 < step) {
        tt_info(t->log, "step %lld is replayed; first the steps from %lld on are made again",
                (long long)step, (long long)t->progress.step + 1);
    }
    while (t->progress.step + 1 < step) {
        TT_TRY(step_again(t, &record, err));
        tt_live(t->log, "step %lld/%lld made again", (long long)record.step, (long long)step - 1);
    }
    t->tutti.replay = &replay;
    rc = step_again(t, &record, err);
    t->tutti.replay = NULL;
    TT_TRY(rc);
    all[t->world->rank] = replay.mine;
    TT_TRY(tt_sum_i64(t->world, (int64_t *)all, tt_int(tt_mul(t->world->size, WORDS)), err));
    if (t->world->rank == 0) {
        rc = report(t, all, &record, replay.looks, out, err);
    }
    rc = tt_agree(t->world, rc, err);
out:
    tt_live_end(t->log);
    free(all);
    return rc;
}
