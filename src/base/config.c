/* config.c: YAML text and overrides into a tt_config.
 *
 * The file is two levels: sections, then keys with one plain value, or one list of words, each. libyaml
 * gives a stream of events; this reader asks for the one event that may come next and refuses all
 * others where they stand, so hostile nesting, anchors and aliases never build anything.
 *
 * Owns nothing after it returns. Reads a file, writes tt_config; next: option_value.c. */
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

#include "base/base_impl.h"
#include "tutti/base/file.h"
#include "tutti/base/memory.h"

enum { FILE_LIMIT = 1 << 20 };

typedef struct reader {
    yaml_parser_t parser;
    yaml_event_t event; /* the current one; owned, deleted by the next */
    bool has_event;
    const char *name;  /* of the file; borrowed */
    size_t skipped;    /* bytes of the mark that some editors put before UTF-8 */
    tt_config *config; /* borrowed */
    int *line;         /* [tt_option_count] where each key was given, 0 = not yet; owned */
    char where[TT_PATH + 32];
} reader;

/* "file:line" of the current event, for errors. */
static const char *here(reader *r)
{
    snprintf(r->where, sizeof r->where, "%s:%zu", r->name, r->event.start_mark.line + 1);
    return r->where;
}

static tt_code next(reader *r, tt_err *err)
{
    if (r->has_event) {
        yaml_event_delete(&r->event);
        r->has_event = false;
    }
    if (yaml_parser_parse(&r->parser, &r->event)) {
        r->has_event = true;
        return TT_OK;
    }
    const char *problem = r->parser.problem != NULL ? r->parser.problem : "cannot be read";
    if (r->parser.error == YAML_MEMORY_ERROR) {
        return tt_fail(err, TT_EWORLD, "%s: out of memory", r->name);
    }
    if (r->parser.error == YAML_READER_ERROR) {
        return tt_fail(err, TT_EUSER, "%s: is not YAML text: %s at byte %zu", r->name, problem,
                       r->parser.problem_offset + r->skipped);
    }
    return tt_fail(err, TT_EUSER, "%s:%zu: is not YAML: %s%s%s", r->name,
                   r->parser.problem_mark.line + 1, r->parser.context ? r->parser.context : "",
                   r->parser.context ? ", " : "", problem);
}

/* The current event's anchor and tag, whatever its kind. */
static tt_code check_plain(reader *r, tt_err *err)
{
    const yaml_char_t *anchor = NULL, *tag = NULL;
    if (r->event.type == YAML_SCALAR_EVENT) {
        anchor = r->event.data.scalar.anchor;
        tag = r->event.data.scalar.tag;
    } else if (r->event.type == YAML_SEQUENCE_START_EVENT) {
        anchor = r->event.data.sequence_start.anchor;
        tag = r->event.data.sequence_start.tag;
    } else if (r->event.type == YAML_MAPPING_START_EVENT) {
        anchor = r->event.data.mapping_start.anchor;
        tag = r->event.data.mapping_start.tag;
    }
    if (anchor != NULL || r->event.type == YAML_ALIAS_EVENT) {
        return tt_fail(err, TT_EUSER,
                       "%s: anchors and aliases are not allowed; write the value out", here(r));
    }
    if (tag != NULL) {
        return tt_fail(err, TT_EUSER, "%s: tags are not allowed; write the value alone", here(r));
    }
    return TT_OK;
}

static const char *kind_of(const reader *r)
{
    switch (r->event.type) {
    case YAML_SEQUENCE_START_EVENT:
        return "a list";
    case YAML_MAPPING_START_EVENT:
        return "a mapping";
    default:
        return "a single value";
    }
}

/* The scalar's text, borrowed from the event; NULL when a NUL byte hides in it. */
static const char *scalar(const reader *r)
{
    const char *text = (const char *)r->event.data.scalar.value;
    return strlen(text) == r->event.data.scalar.length ? text : NULL;
}

/* A key of a mapping into path behind `prefix` bytes that are there already. */
static tt_code read_name(reader *r, char *path, size_t prefix, tt_err *err)
{
    tt_code rc = check_plain(r, err);
    if (rc != TT_OK) {
        return rc;
    }
    if (r->event.type != YAML_SCALAR_EVENT) {
        return tt_fail(err, TT_EUSER, "%s: a name is due here, not %s", here(r), kind_of(r));
    }
    const char *name = scalar(r);
    if (name == NULL || prefix + strlen(name) >= TT_PATH) {
        return tt_fail(err, TT_EUSER, "%s: this name is no key; tutti options lists them", here(r));
    }
    strcpy(path + prefix, name);
    return TT_OK;
}

static tt_code holds_nul(reader *r, const char *path, tt_err *err)
{
    return tt_fail(err, TT_EUSER, "%s: %s holds a NUL byte", here(r), path);
}

/* The words of a list as an override has them, "[a,b]", into *words; the current event is the list's
 * start. */
static tt_code read_words(reader *r, const char *path, tt_text *words, tt_err *err)
{
    tt_code rc = TT_OK;
    tt_text_add(words, "[");
    for (;;) {
        TT_TRY(next(r, err));
        if (r->event.type == YAML_SEQUENCE_END_EVENT) {
            break;
        }
        TT_TRY(check_plain(r, err));
        const char *word = r->event.type == YAML_SCALAR_EVENT ? scalar(r) : NULL;
        if (word == NULL && r->event.type == YAML_SCALAR_EVENT) {
            rc = holds_nul(r, path, err);
            goto out;
        }
        if (word == NULL || word[0] == '\0' || strchr(word, ',') != NULL) {
            rc = tt_fail(err, TT_EUSER, "%s: %s is a list of words, and here is %s", here(r), path,
                         word == NULL        ? kind_of(r)
                         : strchr(word, ',') ? "one with a comma in it"
                                             : "an empty one");
            goto out;
        }
        tt_text_add(words, "%s%s", words->length > 1 ? "," : "", word);
    }
    tt_text_add(words, "]");
    if (words->failed) {
        rc = tt_fail(err, TT_EWORLD, "%s: out of memory", r->name);
    }
out:
    return rc;
}

static tt_code read_list(reader *r, const char *path, tt_err *err)
{
    tt_text words = {0};
    const int line = (int)r->event.start_mark.line + 1;
    tt_code rc = read_words(r, path, &words, err);
    if (rc == TT_OK) {
        char where[sizeof r->where];
        snprintf(where, sizeof where, "%s:%d", r->name, line);
        rc = tt_config_set(r->config, where, path, words.data, err);
    }
    tt_text_free(&words);
    return rc;
}

/* The value of the key `path`; the current event is the one after the key. */
static tt_code read_value(reader *r, const char *path, tt_err *err)
{
    const tt_option *option = tt_option_find(path);
    if (option == NULL) {
        return tt_option_unknown(here(r), path, err);
    }
    int *line = &r->line[option - tt_options];
    if (*line != 0) {
        return tt_fail(err, TT_EUSER, "%s: %s is given twice, first in line %d; keep one", here(r),
                       path, *line);
    }
    *line = (int)(r->event.start_mark.line + 1);
    tt_code rc = check_plain(r, err);
    if (rc != TT_OK) {
        return rc;
    }
    if (r->event.type == YAML_SEQUENCE_START_EVENT && option->type == TT_OPT_LIST) {
        return read_list(r, path, err);
    }
    if (r->event.type != YAML_SCALAR_EVENT) {
        tt_text allowed = {0};
        tt_option_allowed(option, &allowed);
        tt_fail(err, TT_EUSER, "%s: %s wants %s, not %s; allowed is %s", here(r), path,
                option->type == TT_OPT_LIST ? "a list" : "a single value", kind_of(r),
                allowed.failed ? "less" : allowed.data);
        tt_text_free(&allowed);
        return err->code;
    }
    const char *value = scalar(r);
    if (value == NULL) {
        return holds_nul(r, path, err);
    }
    bool plain = r->event.data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
    bool word = option->type == TT_OPT_STRING || option->type == TT_OPT_CHOICE ||
                option->type == TT_OPT_CHOICE_OR_REAL || option->type == TT_OPT_CHOICE_OR_AUTO ||
                option->type == TT_OPT_LIST;
    if (!plain && !word) {
        tt_text allowed = {0};
        tt_option_allowed(option, &allowed);
        tt_fail(err, TT_EUSER, "%s: %s is quoted, which makes it text; allowed is %s", here(r),
                path, allowed.failed ? "less" : allowed.data);
        tt_text_free(&allowed);
        return err->code;
    }
    if (plain && (option->type == TT_OPT_STRING || option->type == TT_OPT_LIST) &&
        (strcmp(value, "~") == 0 || strcmp(value, "null") == 0)) {
        value = ""; /* YAML's two words for nothing */
    }
    return tt_config_set(r->config, here(r), path, value, err);
}

/* The keys of one section; the current event is the one after the section's name. */
static tt_code read_section(reader *r, const char *section, tt_err *err)
{
    tt_code rc = TT_OK;
    char path[TT_PATH + 1];
    TT_TRY(check_plain(r, err));
    if (r->event.type == YAML_SCALAR_EVENT && r->event.data.scalar.length == 0 &&
        r->event.data.scalar.style == YAML_PLAIN_SCALAR_STYLE) {
        return TT_OK; /* "model:" with every key commented out */
    }
    if (r->event.type != YAML_MAPPING_START_EVENT) {
        return tt_fail(err, TT_EUSER, "%s: section %s wants keys below it, not %s", here(r),
                       section, kind_of(r));
    }
    size_t prefix = (size_t)snprintf(path, sizeof path, "%s.", section);
    for (;;) {
        TT_TRY(next(r, err));
        if (r->event.type == YAML_MAPPING_END_EVENT) {
            return TT_OK;
        }
        TT_TRY(read_name(r, path, prefix, err));
        if (tt_option_find(path) == NULL) {
            return tt_option_unknown(here(r), path, err);
        }
        TT_TRY(next(r, err));
        TT_TRY(read_value(r, path, err));
    }
out:
    return rc;
}

/* The sections of the document; the current event is the document's first. */
static tt_code read_sections(reader *r, tt_err *err)
{
    tt_code rc = TT_OK;
    char section[TT_PATH + 1];
    tt_text seen = {0}; /* " model data": names of sections given so far */
    TT_TRY(check_plain(r, err));
    if (r->event.type == YAML_SCALAR_EVENT && r->event.data.scalar.length == 0) {
        goto out;
    }
    if (r->event.type != YAML_MAPPING_START_EVENT) {
        rc = tt_fail(err, TT_EUSER,
                     "%s: sections are due here, not %s; a file reads like model: "
                     "{layers: 12}",
                     here(r), kind_of(r));
        goto out;
    }
    for (;;) {
        TT_TRY(next(r, err));
        if (r->event.type == YAML_MAPPING_END_EVENT) {
            goto out;
        }
        TT_TRY(read_name(r, section, 0, err));
        if (!tt_section_exists(section)) {
            rc = tt_option_unknown(here(r), section, err);
            goto out;
        }
        char mark[TT_PATH + 3];
        snprintf(mark, sizeof mark, " %s;", section);
        if (seen.data != NULL && strstr(seen.data, mark) != NULL) {
            rc = tt_fail(err, TT_EUSER, "%s: section %s is given twice; put its keys together",
                         here(r), section);
            goto out;
        }
        tt_text_add(&seen, "%s", mark);
        if (seen.failed) {
            rc = tt_fail(err, TT_EWORLD, "%s: out of memory", r->name);
            goto out;
        }
        TT_TRY(next(r, err));
        TT_TRY(read_section(r, section, err));
    }
out:
    tt_text_free(&seen);
    return rc;
}

/* Stream start, at most one document, stream end. */
static tt_code read_stream(reader *r, tt_err *err)
{
    tt_code rc = TT_OK;
    TT_TRY(next(r, err));
    TT_TRY(next(r, err));
    if (r->event.type == YAML_STREAM_END_EVENT) {
        return TT_OK; /* nothing but comments: every key at its preset */
    }
    TT_TRY(next(r, err));
    TT_TRY(read_sections(r, err));
    TT_TRY(next(r, err)); /* the document's end */
    TT_TRY(next(r, err));
    if (r->event.type != YAML_STREAM_END_EVENT) {
        rc = tt_fail(err, TT_EUSER, "%s: a second document begins here; one file is one document",
                     here(r));
    }
out:
    return rc;
}

/* Adds to what config holds. */
static tt_code read_yaml(tt_config *config, const char *name, const char *text, size_t length,
                         tt_err *err)
{
    tt_code rc = TT_OK;
    reader r = {.name = name, .config = config};
    r.line = tt_alloc(tt_option_count, sizeof *r.line, err);
    if (r.line == NULL) {
        return err->code;
    }
    if (!yaml_parser_initialize(&r.parser)) {
        free(r.line);
        return tt_fail(err, TT_EWORLD, "%s: out of memory", name);
    }
    yaml_parser_set_encoding(&r.parser, YAML_UTF8_ENCODING);
    /* libyaml skips a byte order mark, but counts it as a column, and columns mean depth. */
    static const char mark[] = {'\xef', '\xbb', '\xbf'};
    if (length >= sizeof mark && memcmp(text, mark, sizeof mark) == 0) {
        r.skipped = sizeof mark;
    }
    yaml_parser_set_input_string(&r.parser, (const unsigned char *)text + r.skipped,
                                 length - r.skipped);
    rc = read_stream(&r, err);
    if (r.has_event) {
        yaml_event_delete(&r.event);
    }
    yaml_parser_delete(&r.parser);
    free(r.line);
    return rc;
}

tt_code tt_config_parse(tt_config *config, const char *name, const char *text, tt_err *err)
{
    tt_config_preset(config);
    return read_yaml(config, name, text, strlen(text), err);
}

static tt_code apply_override(tt_config *config, const char *argument, tt_err *err)
{
    tt_code rc = TT_OK;
    tt_text where = {0}, path = {0};
    const char *equals = strchr(argument, '=');
    tt_text_add(&where, "argument %.200s", argument);
    tt_text_add_bytes(&path, argument, equals != NULL ? (size_t)(equals - argument) : 0);
    if (where.failed || path.failed) {
        rc = tt_fail(err, TT_EWORLD, "out of memory");
    } else if (equals == NULL || tt_section_exists(path.data)) {
        rc = tt_fail(err, TT_EUSER, "%s: an override is written section.key=value", where.data);
    } else {
        rc = tt_config_set(config, where.data, path.data, equals + 1, err);
    }
    tt_text_free(&where);
    tt_text_free(&path);
    return rc;
}

tt_code tt_config_load(tt_config *config, const char *path, int overrides, char *const *override,
                       tt_err *err)
{
    tt_code rc = TT_OK;
    tt_text text = {0};
    if (path != NULL) {
        tt_config_preset(config);
        rc = tt_read_file(path, FILE_LIMIT, &text, err);
        if (rc != TT_OK) {
            rc = err->code = TT_EUSER; /* the user named the file */
            goto out;
        }
        TT_TRY(read_yaml(config, path, text.data, text.length, err));
    }
    for (int i = 0; i < overrides; i++) {
        TT_TRY(apply_override(config, override[i], err));
    }
out:
    tt_text_free(&text);
    return rc;
}
