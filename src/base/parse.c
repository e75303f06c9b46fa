/* parse.c: text to numbers, the same in every locale, and names that nearly match.
 *
 * The accepted spelling is checked by hand and only then handed to the C library, which by itself
 * would also take white space, hexadecimal, "inf" and a rest that is no number. */
#include <errno.h>
#include <locale.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tutti/base/text.h"

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static const char *skip_digits(const char *s)
{
    while (is_digit(*s)) {
        s++;
    }
    return s;
}

static const char *skip_sign(const char *s)
{
    return *s == '+' || *s == '-' ? s + 1 : s;
}

bool tt_parse_int(const char *text, int64_t *out)
{
    const char *digits = skip_sign(text);
    const char *end = skip_digits(digits);
    if (end == digits || *end != '\0') {
        return false;
    }
    errno = 0;
    long long value = strtoll(text, NULL, 10);
    if (errno != 0) {
        return false;
    }
    *out = value;
    return true;
}

bool tt_spells_decimal(const char *text)
{
    const char *s = skip_sign(text);
    const char *whole = s;
    s = skip_digits(s);
    bool digits = s > whole;
    if (*s == '.') {
        const char *fraction = s + 1;
        s = skip_digits(fraction);
        digits = digits || s > fraction;
    }
    if (!digits) {
        return false;
    }
    if (*s == 'e' || *s == 'E') {
        const char *exponent = skip_sign(s + 1);
        s = skip_digits(exponent);
        if (s == exponent) {
            return false;
        }
    }
    return *s == '\0';
}

bool tt_parse_double(const char *text, double *out)
{
    if (!tt_spells_decimal(text)) {
        return false;
    }
    locale_t plain = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    if (plain == (locale_t)0) {
        return false;
    }
    errno = 0;
    double value = strtod_l(text, NULL, plain);
    int why = errno;
    freelocale(plain);
    /* ERANGE on a subnormal result is fine; a number that became zero or infinity is not. */
    if (!isfinite(value) || (why == ERANGE && value == 0)) {
        return false;
    }
    *out = value;
    return true;
}

bool tt_parse_bytes(const char *text, int64_t *out)
{
    static const struct {
        const char *name;
        double bytes;
    } unit[] = {{"KiB", 0x1p10}, {"MiB", 0x1p20}, {"GiB", 0x1p30}, {"TiB", 0x1p40}, {"K", 0x1p10},
                {"M", 0x1p20},   {"G", 0x1p30},   {"T", 0x1p40},   {"kB", 1e3},     {"KB", 1e3},
                {"MB", 1e6},     {"GB", 1e9},     {"TB", 1e12},    {"B", 1},        {"", 1}};
    enum { UNITS = sizeof unit / sizeof unit[0], DIGITS = 32 };
    const size_t digits = strspn(text, "0123456789.");
    char number[DIGITS];
    double value;
    if (digits >= sizeof number) {
        return false;
    }
    memcpy(number, text, digits);
    number[digits] = '\0';
    for (int i = 0; i < UNITS; i++) {
        if (strcmp(text + digits, unit[i].name) == 0) {
            const bool fits = tt_parse_double(number, &value) && value * unit[i].bytes < 0x1p63;
            *out = fits ? (int64_t)(value * unit[i].bytes) : 0;
            return fits;
        }
    }
    return false;
}

enum { LONGEST = 64 }; /* of names that are compared letter by letter */

/* The variant called optimal string alignment: a transposed pair is not edited again. */
int tt_edit_distance(const char *a, const char *b)
{
    size_t m = strlen(a), n = strlen(b);
    if (m > LONGEST || n > LONGEST) {
        return (int)(m > n ? m : n); /* not a typo of anything */
    }
    int d[LONGEST + 1][LONGEST + 1];
    for (size_t i = 0; i <= m; i++) {
        d[i][0] = (int)i;
    }
    for (size_t j = 0; j <= n; j++) {
        d[0][j] = (int)j;
    }
    for (size_t i = 1; i <= m; i++) {
        for (size_t j = 1; j <= n; j++) {
            int best = d[i - 1][j - 1] + (a[i - 1] != b[j - 1]);
            int gone = d[i - 1][j] + 1, come = d[i][j - 1] + 1;
            best = gone < best ? gone : best;
            best = come < best ? come : best;
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
                int swap = d[i - 2][j - 2] + 1;
                best = swap < best ? swap : best;
            }
            d[i][j] = best;
        }
    }
    return d[m][n];
}
