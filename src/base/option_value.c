/* option_value.c: one value of a config, by its row: set from text, written as text, compared.
 *
 * Invariant: a value that was set lies in its row's range, and what is written reads back equal. */
#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base_impl.h"

static const void *field(const tt_config *config, const tt_option *option)
{
    return (const char *)config + option->offset;
}

static int64_t int_of(const tt_config *config, const tt_option *option)
{
    return *(const int64_t *)field(config, option);
}

static double real_of(const tt_config *config, const tt_option *option)
{
    return *(const double *)field(config, option);
}

static bool bool_of(const tt_config *config, const tt_option *option)
{
    return *(const bool *)field(config, option);
}

static const char *text_of(const tt_config *config, const tt_option *option)
{
    return field(config, option);
}

/* The first word of "a|b|c", of *length bytes, and *rest behind it; NULL when there are no more, which
 * is what *rest is after the last. */
static const char *next_choice(const char **rest, size_t *length)
{
    const char *word = *rest;
    if (word != NULL) {
        *length = strcspn(word, "|");
        *rest = word[*length] == '|' ? word + *length + 1 : NULL;
    }
    return word;
}

/* Is it part of what a run learns? data.train is no option of the trajectory, as files move, but
 * its tokens are. */
static bool shapes_run(const tt_option *option)
{
    return option->resume == TT_TRAJECTORY || strcmp(option->path, "data.train") == 0;
}

/* Word n of a list's choices, of *length bytes; NULL: there are not so many. Choices NULL stand for
 * the paths of all options that shape a run. */
static const char *list_word(const tt_option *option, int n, size_t *length)
{
    const char *rest = option->choices, *word = NULL;
    for (int i = 0; option->choices == NULL && i < tt_option_count; i++) {
        if (shapes_run(&tt_options[i]) && n-- == 0) {
            *length = strlen(tt_options[i].path);
            return tt_options[i].path;
        }
    }
    for (int i = 0; option->choices != NULL && i <= n; i++) {
        word = next_choice(&rest, length);
    }
    return word;
}

/* "bf16|fp32" as "bf16 or fp32". */
static void add_choices(const char *choices, tt_text *out)
{
    size_t length;
    for (const char *word; (word = next_choice(&choices, &length)) != NULL;) {
        const bool last_but_one = choices != NULL && strchr(choices, '|') == NULL;
        tt_text_add_bytes(out, word, length);
        tt_text_add(out, "%s", choices == NULL ? "" : last_but_one ? " or " : ", ");
    }
}

static void add_range(const tt_option *option, tt_text *out)
{
    bool whole = option->type == TT_OPT_INT;
    tt_text_add(out, whole ? "a whole number" : "a number");
    if (isinf(option->high) || option->high >= 0x1p63) {
        tt_text_add(out, option->open_low ? " above " : " of at least ");
        tt_text_add_double(out, option->low);
        return;
    }
    tt_text_add(out, option->open_low ? " above " : " from ");
    tt_text_add_double(out, option->low);
    tt_text_add(out, !option->open_high ? " to " : option->open_low ? " and below " : " to below ");
    if (whole) { /* never as 1e+09 */
        tt_text_add(out, "%" PRId64, (int64_t)option->high);
    } else {
        tt_text_add_double(out, option->high);
    }
}

void tt_option_allowed(const tt_option *option, tt_text *out)
{
    switch (option->type) {
    case TT_OPT_INT:
    case TT_OPT_REAL:
        add_range(option, out);
        break;
    case TT_OPT_BOOL:
        add_choices("true|false", out);
        break;
    case TT_OPT_CHOICE:
        add_choices(option->choices, out);
        break;
    case TT_OPT_CHOICE_OR_REAL:
        add_choices(option->choices, out);
        tt_text_add(out, ", or ");
        add_range(option, out);
        break;
    case TT_OPT_CHOICE_OR_AUTO:
        add_choices(option->choices, out);
        tt_text_add(out, ", or auto:SIZE, such as auto:8GiB");
        break;
    case TT_OPT_LIST:
        tt_text_add(out, "a list [...] of any of ");
        if (option->choices == NULL) {
            tt_text_add(out, "the options that shape a run (class trajectory, and data.train)");
        } else {
            add_choices(option->choices, out);
        }
        break;
    case TT_OPT_STRING:
        tt_text_add(out, "text");
        break;
    }
}

const char *tt_option_auto(const char *value)
{
    return strncmp(value, "auto:", 5) == 0 ? value + 5 : NULL;
}

/* Which of the words of "a|b|c" is value[length]? -1: none. */
static int find_choice(const char *choices, const char *value, size_t length)
{
    size_t wide;
    int at = 0;
    for (const char *word; (word = next_choice(&choices, &wide)) != NULL; at++) {
        if (wide == length && memcmp(word, value, length) == 0) {
            return at;
        }
    }
    return -1;
}

static bool is_choice(const char *choices, const char *value)
{
    return find_choice(choices, value, strlen(value)) >= 0;
}

/* Which of the words of a list is value[length]? -1: none. */
static int find_word(const tt_option *option, const char *value, size_t length)
{
    size_t wide;
    const char *word;
    for (int at = 0; (word = list_word(option, at, &wide)) != NULL; at++) {
        if (wide == length && memcmp(word, value, length) == 0) {
            return at;
        }
    }
    return -1;
}

/* The nearest word of a list, if it is near. */
static void add_near_word(const tt_option *option, const char *value, tt_text *out)
{
    char name[TT_NAME], best[TT_NAME] = "";
    int least = 2 + (int)strlen(value) / 3;
    size_t wide;
    const char *word;
    for (int at = 0; (word = list_word(option, at, &wide)) != NULL; at++) {
        snprintf(name, sizeof name, "%.*s", (int)wide, word);
        int distance = tt_edit_distance(value, name);
        if (distance < least) {
            least = distance;
            memcpy(best, name, sizeof best);
        }
    }
    if (best[0] != '\0') {
        tt_text_add(out, " (did you mean %s?)", best);
    }
}

/* The first of the words between commas in text[*rest], without the blanks around it: *length bytes.
 * Moves *text and *rest behind its comma; *rest is 0 and *more false when it was the last. */
static const char *next_word(const char **text, size_t *rest, size_t *length, bool *more)
{
    const char *word = *text, *comma = memchr(word, ',', *rest);
    size_t wide = comma != NULL ? (size_t)(comma - word) : *rest;
    *more = comma != NULL;
    *text += wide + *more;
    *rest -= wide + *more;
    for (; wide > 0 && *word == ' '; word++) {
        wide--;
    }
    while (wide > 0 && word[wide - 1] == ' ') {
        wide--;
    }
    *length = wide;
    return word;
}

/* Which choices a list names, as bits of *chosen; false with what is wrong with it. */
static bool read_list(const tt_option *option, const char *value, uint64_t *chosen, tt_text *wrong)
{
    size_t rest = strlen(value), length = 0;
    const bool opens = value[0] == '[', closes = rest > 0 && value[rest - 1] == ']';
    const char *at = value + opens;
    if (opens != closes) {
        tt_text_add(wrong, "lacks its %s", opens ? "closing ]" : "opening [");
        return false;
    }
    rest -= opens ? 2 : 0;
    *chosen = 0;
    for (bool more = strspn(at, " ") < rest; more;) {
        char name[TT_NAME];
        const char *word = next_word(&at, &rest, &length, &more);
        const int choice = find_word(option, word, length);
        snprintf(name, sizeof name, "%.*s", (int)(length < TT_NAME ? length : 0), word);
        if (choice < 0) {
            tt_text_add(wrong,
                        length == 0 ? "has an empty place" : "holds a word it does not know");
            if (name[0] != '\0') {
                add_near_word(option, name, wrong);
            }
            return false;
        }
        if (*chosen >> choice & 1) {
            tt_text_add(wrong, "names %s twice", name);
            return false;
        }
        assert(choice < 64);
        *chosen |= UINT64_C(1) << choice;
    }
    return true;
}

static bool in_range(const tt_option *option, double value)
{
    return (option->open_low ? value > option->low : value >= option->low) &&
           (option->open_high ? value < option->high : value <= option->high);
}

/* Stores a word; NULL, or what is wrong with it. */
static const char *store_text(tt_config *config, const tt_option *option, const char *value)
{
    char *target = (char *)config + option->offset;
    const size_t length = strlen(value);
    if (length >= option->bytes) {
        return "is too long";
    }
    memset(target, 0, option->bytes); /* equal values are equal bytes */
    memcpy(target, value, length);
    return NULL;
}

/* Stores a number as the shortest text that reads back to it. */
static const char *store_number(tt_config *config, const tt_option *option, double number)
{
    tt_text text = {0};
    tt_text_add_double(&text, number);
    const char *wrong =
        text.failed ? "cannot be stored: out of memory" : store_text(config, option, text.data);
    tt_text_free(&text);
    return wrong;
}

/* The words of the choices in `chosen`, in their order. */
static void add_words(const tt_option *option, uint64_t chosen, const char *between, tt_text *out)
{
    const char *gap = "", *word;
    size_t wide;
    for (int at = 0; (word = list_word(option, at, &wide)) != NULL; at++) {
        if (chosen >> at & 1) {
            tt_text_add(out, "%s%.*s", gap, (int)wide, word);
            gap = between;
        }
    }
}

/* Stores a list; false with what is wrong with it. */
static bool store_list(tt_config *config, const tt_option *option, const char *value,
                       tt_text *wrong)
{
    uint64_t chosen = 0;
    tt_text words = {0};
    if (!read_list(option, value, &chosen, wrong)) {
        return false;
    }
    add_words(option, chosen, ",", &words);
    const char *why = words.failed ? "finds no memory" /* the row holds all its words */
                                   : store_text(config, option, words.data ? words.data : "");
    tt_text_add(wrong, "%s", why != NULL ? why : "");
    tt_text_free(&words);
    return why == NULL;
}

/* Stores a value that is no list; NULL, or what is wrong with it. */
static const char *store_one(tt_config *config, const tt_option *option, const char *value)
{
    void *target = (char *)config + option->offset;
    int64_t whole;
    double real;
    switch (option->type) {
    case TT_OPT_INT:
        if (!tt_parse_int(value, &whole)) {
            return "is not a whole number in decimal digits";
        }
        if (!in_range(option, (double)whole)) {
            return "is out of range";
        }
        *(int64_t *)target = whole;
        return NULL;
    case TT_OPT_REAL:
        if (!tt_parse_double(value, &real)) {
            return tt_spells_decimal(value) ? "is beyond FP64" : "is not a number";
        }
        if (!in_range(option, real)) {
            return "is out of range";
        }
        *(double *)target = real;
        return NULL;
    case TT_OPT_BOOL:
        if (!is_choice("true|false", value)) {
            return "is neither true nor false";
        }
        *(bool *)target = strcmp(value, "true") == 0;
        return NULL;
    case TT_OPT_CHOICE:
        if (!is_choice(option->choices, value)) {
            return "is not one of its values";
        }
        break;
    case TT_OPT_CHOICE_OR_REAL:
        if (is_choice(option->choices, value)) {
            break;
        }
        if (!tt_parse_double(value, &real)) {
            return tt_spells_decimal(value) ? "is beyond FP64"
                                            : "is neither one of its words nor a number";
        }
        return in_range(option, real) ? store_number(config, option, real) : "is out of range";
    case TT_OPT_CHOICE_OR_AUTO:
        if (!is_choice(option->choices, value) &&
            (tt_option_auto(value) == NULL || !tt_parse_bytes(tt_option_auto(value), &whole))) {
            return "is not one of its values";
        }
        break;
    case TT_OPT_LIST:
        assert(false);
        break;
    case TT_OPT_STRING:
        if (!tt_text_is_clean(value)) {
            return "holds control characters or is not UTF-8";
        }
        if (value[0] == '\0' && option->preset != NULL && option->preset[0] != '\0') {
            return "is empty";
        }
        break;
    }
    return store_text(config, option, value);
}

/* Stores the value; false with what is wrong with it. */
static bool store(tt_config *config, const tt_option *option, const char *value, tt_text *wrong)
{
    if (option->type == TT_OPT_LIST) {
        return store_list(config, option, value, wrong);
    }
    const char *why = store_one(config, option, value);
    tt_text_add(wrong, "%s", why != NULL ? why : "");
    return why == NULL;
}

tt_code tt_config_set(tt_config *config, const char *where, const char *path, const char *value,
                      tt_err *err)
{
    const tt_option *option = tt_option_find(path);
    if (option == NULL) {
        return tt_option_unknown(where, path, err);
    }
    tt_text wrong = {0}, shown = {0}, allowed = {0};
    if (store(config, option, value, &wrong)) {
        tt_text_free(&wrong);
        return TT_OK;
    }
    tt_text_add_json(&shown, value);
    if (shown.length > 100) {
        shown.length = 0;
        tt_text_add(&shown, "a value of %zu bytes", strlen(value));
    }
    tt_option_allowed(option, &allowed);
    if (option->type == TT_OPT_STRING) {
        tt_text_add(&allowed, " of 1 to %zu bytes", option->bytes - 1);
    }
    tt_fail(err, TT_EUSER, "%s: %s: %s %s; allowed is %s", where, path,
            shown.failed ? "the value" : shown.data, wrong.failed ? "is refused" : wrong.data,
            allowed.failed ? "less" : allowed.data);
    tt_text_free(&wrong);
    tt_text_free(&shown);
    tt_text_free(&allowed);
    return err->code;
}

void tt_config_preset(tt_config *config)
{
    memset(config, 0, sizeof *config); /* required keys stay 0 or "": not given */
    for (int i = 0; i < tt_option_count; i++) {
        const tt_option *option = &tt_options[i];
        if (option->preset != NULL) {
            tt_text wrong = {0};
            bool stored = store(config, option, option->preset, &wrong);
            assert(stored);
            (void)stored;
            tt_text_free(&wrong);
        }
    }
}

/* Required keys have no valid value that is all zero bytes. */
static bool is_given(const tt_config *config, const tt_option *option)
{
    if (option->preset != NULL) {
        return true;
    }
    const unsigned char *bytes = field(config, option);
    for (size_t i = 0; i < option->bytes; i++) {
        if (bytes[i] != 0) {
            return true;
        }
    }
    return false;
}

tt_code tt_config_require(const tt_config *config, tt_err *err)
{
    for (int i = 0; i < tt_option_count; i++) {
        if (!is_given(config, &tt_options[i])) {
            return tt_fail(err, TT_EUSER,
                           "%s is required (%s): set it in the configuration file or as %s=...",
                           tt_options[i].path, tt_options[i].help, tt_options[i].path);
        }
    }
    return TT_OK;
}

/* [head, qkv], each word in quotes `quote`. */
static void add_list(const tt_config *config, const tt_option *option, const char *quote,
                     tt_text *out)
{
    uint64_t chosen = 0;
    tt_text none = {0}, words = {0};
    char between[8];
    snprintf(between, sizeof between, "%s, %s", quote, quote);
    (void)read_list(option, text_of(config, option), &chosen, &none); /* it was set so */
    add_words(option, chosen, between, &words);
    quote = chosen != 0 ? quote : "";
    tt_text_add(out, "[%s%s%s]", quote, words.data != NULL ? words.data : "", quote);
    out->failed = out->failed || words.failed;
    tt_text_free(&words);
}

void tt_config_value(const tt_config *config, const tt_option *option, tt_text *out)
{
    switch (option->type) {
    case TT_OPT_INT:
        tt_text_add(out, "%" PRId64, int_of(config, option));
        break;
    case TT_OPT_REAL:
        tt_text_add_double(out, real_of(config, option));
        break;
    case TT_OPT_BOOL:
        tt_text_add(out, "%s", bool_of(config, option) ? "true" : "false");
        break;
    case TT_OPT_CHOICE:
    case TT_OPT_CHOICE_OR_REAL:
    case TT_OPT_CHOICE_OR_AUTO:
        tt_text_add(out, "%s", text_of(config, option));
        break;
    case TT_OPT_LIST:
        add_list(config, option, "", out);
        break;
    case TT_OPT_STRING: /* a JSON string is a double-quoted YAML scalar */
        tt_text_add_json(out, text_of(config, option));
        break;
    }
}

void tt_config_value_json(const tt_config *config, const tt_option *option, tt_text *out)
{
    if (option->type == TT_OPT_LIST) {
        add_list(config, option, "\"", out);
    } else if (option->type == TT_OPT_CHOICE_OR_AUTO ||
               (option->choices != NULL && is_choice(option->choices, text_of(config, option)))) {
        tt_text_add_json(out, text_of(config, option));
    } else {
        tt_config_value(config, option, out);
    }
}

void tt_config_text(const tt_config *config, bool scope_global_only, tt_text *out)
{
    const tt_option *before = NULL;
    for (int i = 0; i < tt_option_count; i++) {
        const tt_option *option = &tt_options[i];
        if ((scope_global_only && option->scope == TT_LOCAL) || !is_given(config, option)) {
            continue;
        }
        int section = tt_option_section(option);
        if (before == NULL || strncmp(before->path, option->path, (size_t)section + 1) != 0) {
            tt_text_add(out, "%.*s:\n", section, option->path);
        }
        tt_text_add(out, "  %s: ", tt_option_key(option));
        tt_config_value(config, option, out);
        tt_text_add(out, "\n");
        before = option;
    }
}

static bool same_value(const tt_config *a, const tt_config *b, const tt_option *option)
{
    switch (option->type) {
    case TT_OPT_INT:
        return int_of(a, option) == int_of(b, option);
    case TT_OPT_REAL:
        return real_of(a, option) == real_of(b, option);
    case TT_OPT_BOOL:
        return bool_of(a, option) == bool_of(b, option);
    case TT_OPT_CHOICE:
    case TT_OPT_CHOICE_OR_REAL:
    case TT_OPT_CHOICE_OR_AUTO:
    case TT_OPT_LIST:
    case TT_OPT_STRING:
        return strcmp(text_of(a, option), text_of(b, option)) == 0;
    }
    return false;
}

bool tt_config_may_change(const tt_config *config, const char *path)
{
    const char *at = config->run.allow_change;
    size_t rest = strlen(at), length = 0;
    for (bool more = rest > 0; more;) {
        const char *word = next_word(&at, &rest, &length, &more);
        if (length == strlen(path) && memcmp(word, path, length) == 0) {
            return true;
        }
    }
    return false;
}

tt_code tt_config_same_trajectory(const tt_config *stored, const tt_config *now, tt_text *changed,
                                  tt_err *err)
{
    for (int i = 0; i < tt_option_count; i++) {
        const tt_option *option = &tt_options[i];
        if (option->resume != TT_TRAJECTORY || same_value(stored, now, option)) {
            continue;
        }
        tt_text was = {0}, is = {0};
        tt_config_value(stored, option, &was);
        tt_config_value(now, option, &is);
        const char *before = was.failed ? "?" : was.data, *after = is.failed ? "?" : is.data;
        const bool allowed = tt_config_may_change(now, option->path);
        if (allowed && changed != NULL) {
            tt_text_add(changed, "%s was %s and is %s\n", option->path, before, after);
        } else if (!allowed) {
            tt_fail(err, TT_EUSER,
                    "%s is %s in the checkpoint but %s now, and may change what is learned; set it "
                    "back, list it in run.allow_change, or start a new run in another run.dir",
                    option->path, before, after);
        }
        tt_text_free(&was);
        tt_text_free(&is);
        if (!allowed) {
            return err->code;
        }
    }
    return TT_OK;
}
