/* text.h: strings that grow, numbers that parse the same in every locale, names that nearly match. */
#ifndef TUTTI_BASE_TEXT_H
#define TUTTI_BASE_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tutti/base/status.h"

/* A growing string, owned; zero-initialise, free with tt_text_free. `data` is always terminated
 * once something was added. Running out of memory sets `failed`, checked once at the end. */
typedef struct tt_text {
    char *data;
    size_t length, capacity;
    bool failed;
} tt_text;

void tt_text_add(tt_text *text, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void tt_text_add_bytes(tt_text *text, const char *bytes, size_t length);
/* The string as a JSON string literal, quotes included; invalid UTF-8 becomes U+FFFD. */
void tt_text_add_json(tt_text *text, const char *value);
/* The shortest decimal number that tt_parse_double reads back to the same value, in every locale,
 * and that JSON and YAML 1.1 take for a number (1.0e-08, not 1e-08); "null" when it is not finite,
 * as JSON wants. */
void tt_text_add_double(tt_text *text, double value);
void tt_text_free(tt_text *text);
/* Is the string valid UTF-8 without control characters? */
bool tt_text_is_clean(const char *value);

/* Whole-string parses, C locale, no white space; false when the text is anything else, is out of
 * the type's range, or (double) is not finite. */
bool tt_parse_int(const char *text, int64_t *out);
bool tt_parse_double(const char *text, double *out);
/* [sign] (digits [. [digits]] | . digits) [e [sign] digits]: what tt_parse_double reads, unless it is
 * infinite or 0 in a double without being 0. */
bool tt_spells_decimal(const char *text);

/* A size of memory: a number at least 0 and a unit without a space: KiB, MiB, GiB, TiB; K, M, G, T, the
 * same; kB, KB, MB, GB, TB, powers of ten; B or none, bytes. Whole bytes, less than 2^63. */
bool tt_parse_bytes(const char *text, int64_t *out);

/* Damerau-Levenshtein distance, for "did you mean". */
int tt_edit_distance(const char *a, const char *b);

/* "1.5 GiB", "12.0 MiB" into out. */
void tt_human_bytes(double bytes, char out[32]);

#endif
