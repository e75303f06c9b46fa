/* option_names.c: from the name that was written to the row that was meant.
 *
 * Three ways to miss are told apart: a typo (edit distance), the right key in the wrong section, and
 * the name that another trainer uses for the same thing. */
#include <stdio.h>
#include <string.h>

#include "base/base_impl.h"

int tt_option_section(const tt_option *option)
{
    return (int)strcspn(option->path, ".");
}

const char *tt_option_key(const tt_option *option)
{
    return option->path + tt_option_section(option) + 1;
}

const tt_option *tt_option_find(const char *path)
{
    for (int i = 0; i < tt_option_count; i++) {
        if (strcmp(path, tt_options[i].path) == 0) {
            return &tt_options[i];
        }
    }
    return NULL;
}

/* Does the row belong to the section named by the first `length` bytes of `name`? */
static bool in_section(const tt_option *option, const char *name, size_t length)
{
    return (size_t)tt_option_section(option) == length && strncmp(option->path, name, length) == 0;
}

bool tt_section_exists(const char *name)
{
    for (int i = 0; i < tt_option_count; i++) {
        if (in_section(&tt_options[i], name, strlen(name))) {
            return true;
        }
    }
    return false;
}

/* Other trainers' names. */
static const struct {
    const char *theirs, *ours;
} aliases[] = {
    {"accumulation_steps", "batch.accumulate"},
    {"backoff_factor", "scaler.backoff"},
    {"batch_size", "batch.sequences"},
    {"block_size", "model.context"},
    {"bucket_size", "dist.bucket_mb"},
    {"checkpoint_every", "run.save_every"},
    {"d_model", "model.channels"},
    {"decay_lr", "optim.schedule"},
    {"device_batch_size", "batch.micro"},
    {"dim", "model.channels"},
    {"dtype", "precision.compute"},
    {"dynamic_loss_scale", "precision.loss_scale"},
    {"epsilon", "optim.eps"},
    {"eval_interval", "run.eval_every"},
    {"eval_iters", "run.eval_sequences"},
    {"global_batch_size", "batch.sequences"},
    {"grad_accum", "batch.accumulate"},
    {"grad_clip", "optim.clip"},
    {"grad_scaler", "precision.loss_scale"},
    {"gradient_accumulation_steps", "batch.accumulate"},
    {"growth_factor", "scaler.growth"},
    {"growth_interval", "scaler.interval"},
    {"hidden_size", "model.channels"},
    {"init_scale", "scaler.start"},
    {"initial_loss_scale", "scaler.start"},
    {"initial_scale", "scaler.start"},
    {"iters", "run.steps"},
    {"learning_rate", "optim.lr"},
    {"local_batch_size", "batch.micro"},
    {"log_interval", "run.log_every"},
    {"loss_scale_window", "scaler.interval"},
    {"loss_scaling", "precision.loss_scale"},
    {"max_iters", "run.steps"},
    {"max_loss_scale", "scaler.cap"},
    {"max_norm", "optim.clip"},
    {"max_scale", "scaler.cap"},
    {"max_seq_len", "model.context"},
    {"max_steps", "run.steps"},
    {"micro_batch_size", "batch.micro"},
    {"min_learning_rate", "optim.min_lr"},
    {"min_loss_scale", "scaler.floor"},
    {"min_scale", "scaler.floor"},
    {"n_embd", "model.channels"},
    {"n_head", "model.heads"},
    {"n_heads", "model.heads"},
    {"n_layer", "model.layers"},
    {"n_layers", "model.layers"},
    {"num_heads", "model.heads"},
    {"num_layers", "model.layers"},
    {"out_dir", "run.dir"},
    {"output_dir", "run.dir"},
    {"save_interval", "run.save_every"},
    {"scale_factor", "scaler.growth"},
    {"scale_window", "scaler.interval"},
    {"seq_len", "model.context"},
    {"static_loss_scale", "precision.loss_scale"},
    {"vocab_size", "model.vocab"},
    {"warmup_iters", "optim.warmup"},
    {"warmup_steps", "optim.warmup"},
    {"zero_stage", "memory.zero"},
};

/* How far a name is from a row: the whole path counts, so that a typo in either half does; or the key
 * alone, in any section, at the price of one edit more. */
static int distance_of(const char *path, const tt_option *option)
{
    const char *dot = strchr(path, '.');
    int whole = tt_edit_distance(path, option->path);
    int alone = tt_edit_distance(dot != NULL ? dot + 1 : path, tt_option_key(option)) + 1;
    return whole < alone ? whole : alone;
}

/* Adds the likeliest meant path, or section for a bare word, or nothing when none is near. */
static void add_nearest(const char *path, tt_text *out)
{
    const char *dot = strchr(path, '.');
    const char *key = dot != NULL ? dot + 1 : path;
    for (size_t i = 0; i < sizeof aliases / sizeof *aliases; i++) {
        if (strcmp(key, aliases[i].theirs) == 0) {
            tt_text_add(out, "%s", aliases[i].ours);
            return;
        }
    }
    int least = 2 + (int)strlen(key) / 3; /* a third of the word may be wrong */
    const tt_option *best = NULL;
    bool section = false;
    for (int i = 0; i < tt_option_count; i++) {
        const tt_option *option = &tt_options[i];
        int distance = distance_of(path, option);
        if (distance < least) {
            best = option;
            section = false;
            least = distance;
        }
        char name[TT_NAME];
        snprintf(name, sizeof name, "%.*s", tt_option_section(option), option->path);
        if (dot == NULL && (distance = tt_edit_distance(path, name)) < least) {
            best = option;
            section = true;
            least = distance;
        }
    }
    if (best != NULL) {
        tt_text_add(out, "%.*s", section ? tt_option_section(best) : TT_NAME, best->path);
    }
}

/* ", "-separated keys of a section, or names of all sections when name is NULL. */
static void add_names(const char *name, size_t length, tt_text *out)
{
    const tt_option *before = NULL;
    const char *between = "";
    for (int i = 0; i < tt_option_count; i++) {
        const tt_option *option = &tt_options[i];
        size_t section = (size_t)tt_option_section(option);
        if (name != NULL && in_section(option, name, length)) {
            tt_text_add(out, "%s%s", between, tt_option_key(option));
            between = ", ";
        } else if (name == NULL && (before == NULL || !in_section(before, option->path, section))) {
            tt_text_add(out, "%s%.*s", between, (int)section, option->path);
            between = ", ";
        }
        before = option;
    }
}

tt_code tt_option_unknown(const char *where, const char *path, tt_err *err)
{
    const char *dot = strchr(path, '.');
    size_t section = dot != NULL ? (size_t)(dot - path) : 0;
    bool known = false;
    for (int i = 0; dot != NULL && i < tt_option_count; i++) {
        known = known || in_section(&tt_options[i], path, section);
    }
    tt_text shown = {0}, near = {0}, names = {0};
    tt_text_add_json(&shown, path);
    add_nearest(path, &near);
    if (known) {
        tt_text_add(&names, "keys of section %.*s are ", (int)section, path);
    } else {
        tt_text_add(&names, "sections are ");
    }
    add_names(known ? path : NULL, section, &names);
    tt_fail(err, TT_EUSER, "%s: unknown %s %s%s%s%s; %s", where, dot != NULL ? "key" : "section",
            shown.failed || shown.length > 200 ? "of that name" : shown.data,
            near.length > 0 ? " (did you mean " : "", near.length > 0 ? near.data : "",
            near.length > 0 ? "?)" : "", names.failed ? "see tutti options" : names.data);
    tt_text_free(&shown);
    tt_text_free(&near);
    tt_text_free(&names);
    return err->code;
}
