/* options.h: one row per configuration key, and everything that follows from the row.
 *
 * The row drives YAML parsing, `section.key=value` overrides, `tutti options`, typo hints, the table
 * in README (a test compares), the check across ranks, and the text stored in a checkpoint.
 *
 * Invariant: a tt_config that tt_config_load returned satisfies every row's type and range; what
 * one row cannot see (batch arithmetic, heads dividing channels) is checked by its owner.
 *
 * Reads a YAML file (libyaml), writes tt_config; next: numerics/format.h, data/batch.h. */
#ifndef TUTTI_BASE_OPTIONS_H
#define TUTTI_BASE_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tutti/base/status.h"
#include "tutti/base/text.h"

enum { TT_PATH = 1024, TT_NAME = 64, TT_LIST = 128 };

/* Every key of the configuration, sections as in the YAML file. Strings are stored in place: a
 * tt_config owns nothing outside itself and may be copied by assignment. Choices are stored as the
 * chosen word, lists as their words in the order of the row's choices with commas between: equal lists
 * are equal texts. "" means not set, or an empty list. */
typedef struct tt_config {
    struct {
        char arch[TT_NAME];
        int64_t layers, heads, kv_heads, channels, ffn, vocab,
            context; /* kv_heads, ffn, vocab: 0 = from the others */
        double dropout;
        bool tie_embeddings;
    } model;
    struct {
        char train[TT_PATH], valid[TT_PATH];
        int64_t seed;
        char mode[TT_NAME]; /* stream | documents */
    } data;
    struct {
        int64_t sequences, micro, accumulate; /* 0 = not given */
    } batch;
    struct {
        char name[TT_NAME];
        double lr, beta1, beta2, eps, weight_decay, clip;
        char schedule[TT_NAME]; /* constant | cosine | linear | wsd */
        int64_t warmup, decay; /* optimizer steps; decay: length of wsd's last phase, 0 = a fifth */
        double min_lr;
        char lr_scaling[TT_NAME]; /* none | linear | sqrt, against lr_sequences */
        int64_t lr_sequences;
        int64_t max_skips;
    } optim;
    struct {
        char compute[TT_NAME];    /* bf16 | fp32 | tf32 | fp16 | fp8 */
        char loss_scale[TT_NAME]; /* none | dynamic | a number as tt_text_add_double writes it */
        char master[TT_NAME];     /* fp32 | split | none */
        char rounding[TT_NAME];   /* nearest | stochastic */
        char fp32_ops[TT_LIST];   /* operations that run in FP32: a list */
    } precision;
    struct {
        double start, growth;
        int64_t interval; /* good steps in a row */
        double backoff, floor, cap;
    } scaler; /* of the loss scale, when it is dynamic */
    struct {
        char recipe[TT_NAME];   /* current | delayed | mxfp8 */
        char backward[TT_NAME]; /* bf16 | e5m2 */
        int64_t history, margin;
    } fp8;
    struct {
        int64_t zero;             /* 0 | 1 | 2 | 3 */
        char gradients[TT_NAME];  /* auto | whole | pieces */
        char recompute[TT_NAME];  /* none | selective | sqrt | block | auto:SIZE */
        int64_t recompute_blocks; /* of block, the first ones; 0 = all */
        bool pack_weights;
        char optimizer_file[TT_PATH]; /* "": in memory */
    } memory;
    struct {
        double bucket_mb;              /* 10^6 bytes */
        int64_t timeout, verify_every; /* seconds, steps */
        char node_shared[TT_NAME];     /* auto | true | false */
        int64_t node_ranks;            /* that share; 0: all of a machine */
        char overlap[TT_NAME];         /* auto | true | false */
        char progress_thread[TT_NAME]; /* auto | true | false */
    } dist;
    struct {
        char dir[TT_PATH];
        int64_t steps, seed, threads, log_every, eval_every, eval_sequences, save_every, keep,
            keep_every, digest_every, numerics_every, max_seconds;
        bool exact, save_async, read_back;
        char resume[TT_NAME];       /* auto | never | must */
        char on_nonfinite[TT_NAME]; /* skip | stop */
        char allow_change[TT_PATH]; /* paths of options, with commas between */
        int64_t replay;             /* step; 0: none */
        char init_from[TT_PATH], dump_gradients[TT_PATH];
        bool trace_data;
    } run;
} tt_config;

typedef enum tt_option_type {
    TT_OPT_INT,
    TT_OPT_REAL,
    TT_OPT_BOOL,
    TT_OPT_STRING,
    TT_OPT_CHOICE,
    TT_OPT_CHOICE_OR_REAL, /* stored as text: equal numbers are equal texts */
    TT_OPT_CHOICE_OR_AUTO, /* or auto:SIZE, SIZE as tt_parse_bytes reads it; stored as written */
    TT_OPT_LIST            /* of any of the choices, each at most once */
} tt_option_type;

typedef enum tt_option_scope {
    TT_GLOBAL, /* must be equal on all ranks */
    TT_LOCAL   /* may differ from rank to rank */
} tt_option_scope;

typedef enum tt_option_resume {
    TT_TRAJECTORY, /* part of what is learned: refused when a resumed run changes it */
    TT_LAYOUT,     /* how the work is split: free to change, the numbers stay */
    TT_FREE        /* neither */
} tt_option_resume;

typedef struct tt_option {
    const char *path; /* "optim.lr" */
    tt_option_type type;
    size_t offset;            /* into tt_config */
    size_t bytes;             /* room for strings, terminator included */
    const char *preset;       /* default, written as in YAML; NULL: required by train and plan */
    double low, high;         /* range of numbers, both ends included unless said otherwise */
    bool open_low, open_high; /* the end itself is not allowed */
    /* "bf16|fp32" for CHOICE.. and LIST; else NULL. A LIST's NULL: the paths of all TT_TRAJECTORY rows,
     * and data.train */
    const char *choices;
    tt_option_scope scope;
    tt_option_resume resume;
    const char *help; /* one line, with the unit */
} tt_option;

extern const tt_option tt_options[];
extern const int tt_option_count;

/* What follows the "auto:" of a CHOICE_OR_AUTO's value; NULL: it is a choice. */
const char *tt_option_auto(const char *value);

/* Every key at its preset. */
void tt_config_preset(tt_config *config);

/* Presets, then the YAML file (libyaml), then the overrides "section.key=value" in order. Refuses an
 * unknown key (with the likeliest meant one), a wrong type, a value out of range, a duplicate key,
 * anchors and multiple documents, naming file, line, key, value and what is allowed (TT_EUSER); an
 * unreadable file is TT_EUSER too. `path` NULL: the overrides alone, onto what config holds. Local. */
tt_code tt_config_load(tt_config *config, const char *path, int overrides, char *const *override,
                       tt_err *err);

/* Presets, then YAML text already in memory (a checkpoint's /config); `name` appears in errors. */
tt_code tt_config_parse(tt_config *config, const char *name, const char *text, tt_err *err);

/* TT_EUSER naming the first required key (preset NULL) that was not given. */
tt_code tt_config_require(const tt_config *config, tt_err *err);

/* Sets one key from its text; `where` is named in errors. A list is written head,qkv or [head, qkv]. */
tt_code tt_config_set(tt_config *config, const char *where, const char *path, const char *value,
                      tt_err *err);

/* All keys as YAML that tt_config_parse reads back to equal values; required keys that were not given
 * are left out. scope_global_only leaves TT_LOCAL rows out: this text must be equal on all ranks. */
void tt_config_text(const tt_config *config, bool scope_global_only, tt_text *out);

/* One value as text (0.0006, true, bf16, [head, qkv], "a string"), as tt_config_text writes it. */
void tt_config_value(const tt_config *config, const tt_option *option, tt_text *out);

/* The same as a value of JSON: words are strings too. */
void tt_config_value_json(const tt_config *config, const tt_option *option, tt_text *out);

/* Compares the TT_TRAJECTORY rows of a stored and a new config: TT_EUSER naming the first key that
 * changed with both values, unless now->run.allow_change lists it. *changed, when not NULL, gets
 * one line "optim.lr was 0.1 and is 0.2" for each that it lists and that did. */
tt_code tt_config_same_trajectory(const tt_config *stored, const tt_config *now, tt_text *changed,
                                  tt_err *err);
/* Does run.allow_change list this option? */
bool tt_config_may_change(const tt_config *config, const char *path);

/* The table for people (`tutti options`) or as Markdown. */
void tt_options_table(bool markdown, tt_text *out);

#endif
