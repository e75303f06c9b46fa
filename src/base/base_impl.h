/* base_impl.h: what the option files share. Nothing outside src/base includes it.
 *
 * options.c holds the rows; option_value.c reads, writes and compares one value; option_names.c
 * finds a key by its name or by what was likely meant; option_table.c prints the rows; config.c
 * reads YAML and overrides. */
#ifndef TUTTI_BASE_IMPL_H
#define TUTTI_BASE_IMPL_H

#include <stdbool.h>

#include "tutti/base/options.h"
#include "tutti/base/text.h"

/* What a row allows, as a phrase: "a whole number from 1 to 1000", "bf16 or fp32". */
void tt_option_allowed(const tt_option *option, tt_text *out);

/* Length of the section's name in the row's path, and the key behind it. */
int tt_option_section(const tt_option *option);
const char *tt_option_key(const tt_option *option);

/* The row of "section.key", or NULL. */
const tt_option *tt_option_find(const char *path);

bool tt_section_exists(const char *name);

/* A sentence about a key that does not exist: the likeliest meant key if one is near, then what the
 * section allows. `path` is "section.key" or a bare word found where a section was due. */
tt_code tt_option_unknown(const char *where, const char *path, tt_err *err);

#endif
