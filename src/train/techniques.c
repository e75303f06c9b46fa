/* techniques.c: the table of techniques, and the difference that each makes. See techniques.h.
 *
 * Owns nothing. Reads plans; next: ledger.c. */
#include "tutti/train/techniques.h"

#include <stdio.h>
#include <string.h>

#include "tutti/base/narrow.h"

const char *const tt_group_names[TT_GROUPS] = {"weights",   "gradients", "optimizer", "activations",
                                               "workspace", "libraries", "total"};

static const tt_group group_of[TT_MEM_COMPONENTS] = {
    [TT_MEM_WEIGHTS] = TT_GROUP_WEIGHTS,     [TT_MEM_WIDE] = TT_GROUP_WEIGHTS,
    [TT_MEM_PACKED] = TT_GROUP_WEIGHTS,      [TT_MEM_GRADIENTS] = TT_GROUP_GRADIENTS,
    [TT_MEM_OPTIMIZER] = TT_GROUP_OPTIMIZER, [TT_MEM_ACTIVATIONS] = TT_GROUP_ACTIVATIONS,
    [TT_MEM_WORKSPACE] = TT_GROUP_WORKSPACE, [TT_MEM_SNAPSHOT] = TT_GROUP_OPTIMIZER,
    [TT_MEM_BATCH] = TT_GROUP_WORKSPACE};

void tt_group_bytes(const size_t component[TT_MEM_COMPONENTS], size_t libraries,
                    size_t group[TT_GROUPS])
{
    memset(group, 0, TT_GROUPS * sizeof *group);
    for (int i = 0; i < TT_MEM_COMPONENTS; i++) {
        group[group_of[i]] += component[i];
        group[TT_GROUP_TOTAL] += component[i];
    }
    group[TT_GROUP_LIBRARIES] = libraries;
    group[TT_GROUP_TOTAL] += libraries;
}

/* ---- the table ---- */

typedef struct technique {
    const char *name;
    const char *with, *without; /* "key=value ...": switch it on, and off; @: a rank's sequences */
    const char
        *both;    /* what both sides of a comparison need, so that it alone makes the difference */
    bool many;    /* it is on in many ways: whenever the keys are not those of `without` */
    bool only_on; /* nobody switches it on for the sake of memory: no row unless it is on */
} technique;

#define WHOLE_MASTERS "precision.master=fp32 precision.rounding=nearest"

#define KEEP "memory.recompute=none memory.recompute_blocks=0"

/* A new technique is a new row. */
static const technique techniques[] = {
    {"bf16", "precision.compute=bf16", "precision.compute=fp32", WHOLE_MASTERS, false, false},
    {"fp8", "precision.compute=fp8", "precision.compute=bf16", WHOLE_MASTERS, false, false},
    {"fp16", "precision.compute=fp16", "precision.compute=fp32", "", false, true},
    {"tf32", "precision.compute=tf32", "precision.compute=fp32", "", false, true},
    {"fp32 operations", "", "precision.fp32_ops=[]", "", true, true},
    {"fp32 masters", WHOLE_MASTERS, "precision.master=none", "", false, false},
    {"split master", "precision.master=split precision.rounding=nearest", WHOLE_MASTERS, "", false,
     false},
    {"no master", "precision.master=none", WHOLE_MASTERS, "", false, false},
    {"accumulation", "batch.micro=1 batch.accumulate=@", "batch.micro=@ batch.accumulate=1", "",
     true, false},
    {"recompute selective", "memory.recompute=selective memory.recompute_blocks=0", KEEP, "", false,
     false},
    {"recompute sqrt", "memory.recompute=sqrt memory.recompute_blocks=0", KEEP, "", false, false},
    {"recompute block", "memory.recompute=block", KEEP, "", false, false},
    {"zero 1", "memory.zero=1", "memory.zero=0", "", false, false},
    {"zero 2", "memory.zero=2", "memory.zero=0", "", false, false},
    {"zero 3", "memory.zero=3", "memory.zero=0", "", false, false},
    {"shared weights", "dist.node_shared=true", "dist.node_shared=false", "", true, false},
    {"optimizer file", "memory.optimizer_file=FILE", "memory.optimizer_file=", "", true, false},
    {"asynchronous saves", "run.save_async=true", "run.save_async=false", "", false, false},
    {"packed weights", "memory.pack_weights=true", "memory.pack_weights=false", "", false, false},
    {"exact mode", "run.exact=true", "run.exact=false", "", false, false},
};
enum { ROWS = sizeof techniques / sizeof *techniques };
_Static_assert((int)ROWS <= (int)TT_TECHNIQUES, "room for every row");

/* ---- a plan with other keys ---- */

/* Sets the "key=value ..." of `keys`, @ being a rank's sequences. */
static tt_code apply(tt_config *config, const char *keys, int64_t sequences, tt_err *err)
{
    tt_code rc = TT_OK;
    while (*keys != '\0' && rc == TT_OK) {
        const int name = tt_int(tt_count(strcspn(keys, "=")));
        const int length = tt_int(tt_count(strcspn(keys, " ")));
        char path[TT_NAME], value[TT_NAME];
        snprintf(path, sizeof path, "%.*s", name, keys);
        snprintf(value, sizeof value, "%.*s", length - name - 1, keys + name + 1);
        if (strcmp(value, "@") == 0) {
            snprintf(value, sizeof value, "%lld", (long long)sequences);
        }
        rc = tt_config_set(config, "technique", path, value, err);
        keys += length + (keys[length] == ' ');
    }
    return rc;
}

static bool same(const tt_config *a, const tt_config *b, bool *failed)
{
    tt_text x = {0}, y = {0};
    tt_config_text(a, false, &x);
    tt_config_text(b, false, &y);
    *failed |= x.failed || y.failed;
    const bool equal = !*failed && strcmp(x.data, y.data) == 0;
    tt_text_free(&x);
    tt_text_free(&y);
    return equal;
}

/* Would these keys change nothing? */
static bool holds(const tt_blueprint *print, const char *keys, bool *failed)
{
    tt_config config = print->config;
    tt_err refused = {TT_OK, ""};
    const int64_t sequences = print->split.sequences / print->split.ranks;
    return apply(&config, keys, sequences, &refused) == TT_OK &&
           same(&config, &print->config, failed);
}

/* Bytes by group of the same run with other keys. */
static tt_code bytes_with(const tt_blueprint *print, const char *keys, const char *more,
                          size_t group[TT_GROUPS], tt_err *err)
{
    tt_code rc = TT_OK;
    tt_config config = print->config;
    tt_blueprint other = {.act_bytes = 0};
    const int64_t sequences = print->split.sequences / print->split.ranks;
    TT_TRY(apply(&config, keys, sequences, err));
    TT_TRY(apply(&config, more, sequences, err));
    TT_TRY(tt_blueprint_imagine(&other, &config, print->shape.vocab_used, print->neighbours,
                                print->plan.ranks, print->plan.threads, print->ops.isa, err));
    /* What all ranks of a machine map is there once, whatever a rank is said to have of it. */
    const int64_t mapped = tt_ceil_div(tt_count(other.plan.mapped), other.node_ranks);
    tt_group_bytes(other.plan.bytes, other.plan.libraries - tt_size(mapped), group);
out:
    tt_blueprint_free(&other);
    return rc;
}

/* The user's mistake would be to ask for it: then it is not possible, which is what we say. */
static tt_code make_effect(tt_effect *e, const technique *t, const tt_blueprint *print, tt_err *err)
{
    size_t with[TT_GROUPS], without[TT_GROUPS];
    tt_code rc = e->on ? bytes_with(print, t->both, "", with, &e->why)
                       : bytes_with(print, t->both, t->with, with, &e->why);
    if (rc == TT_OK) {
        rc = e->on ? bytes_with(print, t->both, t->without, without, &e->why)
                   : bytes_with(print, "", "", without, &e->why);
    }
    e->possible = rc == TT_OK;
    for (int g = 0; g < TT_GROUPS && e->possible; g++) {
        e->change[g] = tt_count(with[g]) - tt_count(without[g]);
    }
    if (rc != TT_OK && rc != TT_EUSER) {
        *err = e->why;
        return rc;
    }
    return TT_OK;
}

tt_code tt_techniques_make(tt_effect effect[TT_TECHNIQUES], int *count, const tt_blueprint *print,
                           tt_err *err)
{
    tt_code rc = TT_OK;
    bool failed = false;
    *count = 0;
    for (int i = 0; i < ROWS; i++) {
        const technique *t = &techniques[i];
        const bool on =
            t->many ? !holds(print, t->without, &failed) : holds(print, t->with, &failed);
        if (failed) {
            rc = tt_fail(err, TT_EWORLD, "out of memory");
            goto out;
        }
        if (on || !t->only_on) {
            tt_effect *e = &effect[(*count)++];
            *e = (tt_effect){.name = t->name, .on = on};
            TT_TRY(make_effect(e, t, print, err));
        }
    }
out:
    return rc;
}

/* ---- what is said of them ---- */

static const tt_group columns[] = {TT_GROUP_WEIGHTS,     TT_GROUP_GRADIENTS, TT_GROUP_OPTIMIZER,
                                   TT_GROUP_ACTIVATIONS, TT_GROUP_WORKSPACE, TT_GROUP_TOTAL};
enum { COLUMNS = sizeof columns / sizeof *columns };

/* Scratch and libraries, which no technique is about, share a column. */
static const char *column_name(tt_group group)
{
    return group == TT_GROUP_WORKSPACE ? "other" : tt_group_names[group];
}

static int64_t column_of(const tt_effect *e, tt_group group)
{
    return e->change[group] + (group == TT_GROUP_WORKSPACE ? e->change[TT_GROUP_LIBRARIES] : 0);
}

/* "-1.2 GiB", "+96 B", "." */
static void cell_text(int64_t change, char out[40])
{
    char size[32];
    tt_human_bytes((double)change, size);
    snprintf(out, 40, "%s%s", change > 0 ? "+" : "", change == 0 ? "." : size);
}

/* The number of the first effect with the same reason, from 1 in order of appearance; *fresh: it is
 * this one. */
static int reason(const tt_effect *effect, int i, bool *fresh)
{
    int number = 0;
    *fresh = true;
    for (int j = 0; j <= i; j++) {
        bool seen = effect[j].possible;
        for (int k = 0; k < j && !seen; k++) {
            seen = !effect[k].possible && strcmp(effect[k].why.text, effect[j].why.text) == 0;
        }
        number += !seen;
        if (!effect[j].possible && strcmp(effect[j].why.text, effect[i].why.text) == 0) {
            *fresh = j == i;
            return number;
        }
    }
    return number;
}

void tt_techniques_text(const tt_effect *effect, int count, tt_text *out)
{
    bool fresh;
    tt_text_add(out,
                "Techniques, each alone: on: what it adds to a rank or saves; off: what it would\n"
                "  %-19s    ",
                "");
    for (int c = 0; c < COLUMNS; c++) {
        tt_text_add(out, " %12s", column_name(columns[c]));
    }
    tt_text_add(out, "\n");
    for (int i = 0; i < count; i++) {
        const tt_effect *e = &effect[i];
        tt_text_add(out, "  %-19s %3s", e->name, e->on ? "on" : "off");
        for (int c = 0; c < COLUMNS; c++) {
            char cell[40] = "-";
            if (e->possible) {
                cell_text(column_of(e, columns[c]), cell);
            }
            tt_text_add(out, " %12s", cell);
        }
        if (!e->possible) {
            tt_text_add(out, " [%d]", reason(effect, i, &fresh));
        }
        tt_text_add(out, "\n");
    }
    for (int i = 0; i < count; i++) {
        const int number = effect[i].possible ? 0 : reason(effect, i, &fresh);
        if (number > 0 && fresh) {
            tt_text_add(out, "  [%d] %s\n", number, effect[i].why.text);
        }
    }
    tt_text_add(out, "\n");
}

void tt_techniques_json(const tt_effect *effect, int count, tt_text *out)
{
    tt_text_add(out, "[");
    for (int i = 0; i < count; i++) {
        const tt_effect *e = &effect[i];
        tt_text_add(out, "%s{\"name\": \"%s\", \"on\": %s, ", i > 0 ? ", " : "", e->name,
                    e->on ? "true" : "false");
        if (e->possible) {
            tt_text_add(out, "\"change_bytes\": {");
            for (int g = 0; g < TT_GROUPS; g++) {
                tt_text_add(out, "%s\"%s\": %lld", g > 0 ? ", " : "", tt_group_names[g],
                            (long long)e->change[g]);
            }
            tt_text_add(out, "}}");
        } else {
            tt_text_add(out, "\"refused\": ");
            tt_text_add_json(out, e->why.text);
            tt_text_add(out, "}");
        }
    }
    tt_text_add(out, "]");
}
