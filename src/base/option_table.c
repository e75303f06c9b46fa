/* option_table.c: the rows for people: aligned columns, or Markdown for README. */
#include <string.h>

#include "base/base_impl.h"

static const char *const resume_word[] = {
    [TT_TRAJECTORY] = "trajectory", [TT_LAYOUT] = "layout", [TT_FREE] = "free"};

static void add_preset(const tt_option *option, tt_text *out)
{
    const char *preset = option->preset;
    tt_text_add(out, "%s", preset == NULL ? "required" : preset[0] == '\0' ? "\"\"" : preset);
}

/* Pads the line that starts at `start` to `width` columns. */
static void pad_to(tt_text *out, size_t start, size_t width)
{
    while (!out->failed && out->length - start < width) {
        tt_text_add_bytes(out, " ", 1);
    }
}

static void people_row(const tt_option *option, tt_text *out)
{
    size_t start = out->length;
    tt_text_add(out, "  %s ", option->path);
    pad_to(out, start, 24);
    add_preset(option, out);
    tt_text_add(out, " ");
    pad_to(out, start, 38);
    tt_text_add(out, "%s ", resume_word[option->resume]);
    pad_to(out, start, 50);
    tt_text_add(out, "%s\n", option->help);
    start = out->length;
    pad_to(out, start, 50);
    tt_option_allowed(option, out);
    tt_text_add(out, "\n");
}

static void markdown_row(const tt_option *option, tt_text *out)
{
    tt_text_add(out, "| `%s` | `", option->path);
    add_preset(option, out);
    tt_text_add(out, "` | ");
    tt_option_allowed(option, out);
    tt_text_add(out, " | %s | %s |\n", resume_word[option->resume], option->help);
}

void tt_options_table(bool markdown, tt_text *out)
{
    if (markdown) {
        tt_text_add(out, "| key | default | allowed | on resume | meaning |\n"
                         "|---|---|---|---|---|\n");
    } else {
        tt_text_add(out,
                    "Every key of a configuration file; each can be set as section.key=value.\n"
                    "A resumed run may not change a key of the trajectory; layout and free "
                    "keys may change.\n\n");
        size_t start = out->length;
        tt_text_add(out, "  key ");
        pad_to(out, start, 24);
        tt_text_add(out, "default ");
        pad_to(out, start, 38);
        tt_text_add(out, "on resume   meaning, allowed values\n");
    }
    for (int i = 0; i < tt_option_count; i++) {
        if (markdown) {
            markdown_row(&tt_options[i], out);
        } else {
            people_row(&tt_options[i], out);
        }
    }
}
