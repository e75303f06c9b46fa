/* formats.c: `tutti formats [NUMBER ...]`: the table of number formats, and what becomes of numbers. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "tutti/numerics/format.h"

#include "cli/cli_impl.h"

static void table(tt_text *out)
{
    tt_text_add(out, "%-8s %5s %5s %5s %12s %12s %14s %12s  %s\n", "format", "bits", "exp.",
                "mant.", "max", "min normal", "min subnormal", "epsilon", "note");
    for (int f = 0; f < TT_FORMATS; f++) {
        const tt_format_info *i = &tt_formats[f];
        tt_text_add(out, "%-8s %5d %5d %5d %12.6g %12.6g %14.6g %12.6g  %s\n", i->name, i->bits,
                    i->exponent_bits, i->mantissa_bits, i->max, i->min_normal, i->min_subnormal,
                    i->epsilon, i->note);
    }
}

/* A number as C prints it, infinity and NaN too. */
static bool parse(const char *text, double *value)
{
    const bool minus = text[0] == '-';
    const char *size = text + (minus || text[0] == '+');
    if (strcasecmp(size, "inf") == 0 || strcasecmp(size, "infinity") == 0) {
        *value = minus ? -(double)INFINITY : (double)INFINITY;
        return true;
    }
    if (strcasecmp(size, "nan") == 0) {
        *value = (double)(minus ? -NAN : NAN);
        return true;
    }
    return tt_parse_double(text, value);
}

enum { EXACT = ' ', BEYOND = '^', VANISHED = '_', SUBNORMAL = '~' };

/* Does a number of this size round beyond the largest? A tie is even where infinity follows; E4M3's
 * largest is even itself. */
static bool beyond(tt_format f, double size)
{
    const double tie =
        tt_formats[f].max + ldexp(tt_formats[f].epsilon, ilogb(tt_formats[f].max)) / 2;
    return size > tie || (size == tie && f != TT_E4M3);
}

/* How a finite number fared when it became FP32 and from there `result`. */
static char mark_of(tt_format f, double value, float single, double result)
{
    if (!isfinite(value) || value == 0) {
        return EXACT;
    }
    if (!isfinite(single) || beyond(f, fabs((double)single))) {
        return BEYOND;
    }
    if (result == 0) {
        return VANISHED;
    }
    return fabs(result) < tt_formats[f].min_normal ? SUBNORMAL : EXACT;
}

static void explain(bool any, char mark, const char *what, tt_text *out)
{
    if (any) {
        tt_text_add(out, "%c  %s\n", mark, what);
    }
}

/* One row a number, one column a format, and one for E5M2 as FP8 training converts to it. */
static tt_code conversions(int count, char **number, tt_text *out, tt_err *err)
{
    tt_code rc = TT_OK;
    bool seen[128] = {false};
    tt_text_add(out, "%-14s", "number");
    for (int f = 0; f < TT_FORMATS; f++) {
        tt_text_add(out, " %14s ", tt_formats[f].name);
    }
    tt_text_add(out, " %14s\n", "e5m2 saturated");
    for (int i = 0; i < count; i++) {
        double value;
        if (!parse(number[i], &value)) {
            rc = tt_fail(err, TT_EUSER, "tutti formats: '%.200s' is %s", number[i],
                         tt_spells_decimal(number[i])
                             ? "beyond FP64, in which numbers are read: infinite or 0 there"
                             : "not a number, inf or nan");
            goto out;
        }
        tt_text_add(out, "%-14s", number[i]);
        for (int column = 0; column <= TT_FORMATS; column++) {
            const bool saturated = column == TT_FORMATS;
            const tt_format f = saturated ? TT_E5M2 : (tt_format)column;
            const float single = (float)value;
            const uint32_t code =
                saturated ? tt_format_saturated(f, single) : tt_format_code(f, single);
            const double result = (double)tt_format_value(f, code);
            const char mark = mark_of(f, value, single, result);
            seen[(int)mark] = true;
            tt_text_add(out, mark == EXACT && saturated ? " %14.8g" : " %14.8g%c", result, mark);
        }
        tt_text_add(out, "\n");
    }
    explain(seen[BEYOND], BEYOND,
            "beyond the largest number: infinity, or the largest where the conversion saturates",
            out);
    explain(seen[SUBNORMAL], SUBNORMAL, "below the smallest normal number: fewer bits are left",
            out);
    explain(seen[VANISHED], VANISHED, "too small: became 0", out);
out:
    return rc;
}

static const char usage[] =
    "usage: tutti formats [--] [NUMBER ...]\n\n"
    "The table of number formats; or, of each number (inf and nan are allowed), what it\n"
    "becomes in each format: rounded to FP32 first, then from there to nearest, ties to\n"
    "even.\n";

/* Negative numbers look like flags, so this command reads its words itself. */
int tt_cmd_formats(int argc, char **argv)
{
    tt_code rc = TT_OK;
    tt_err err = {TT_OK, ""};
    tt_text text = {0};
    int first = 1;
    for (; first < argc && strcmp(argv[first], "--") != 0; first++) {
        if (strcmp(argv[first], "-h") == 0 || strcmp(argv[first], "--help") == 0) {
            fputs(usage, stdout);
            return TT_OK;
        }
    }
    if (first < argc) { /* what stands before "--" keeps its place */
        memmove(argv + 2, argv + 1, (size_t)(first - 1) * sizeof *argv);
        argc--;
        argv++;
    }
    if (argc > 1) {
        TT_TRY(conversions(argc - 1, argv + 1, &text, &err));
    } else {
        table(&text);
    }
    rc = tt_cli_print(&text, &err);
out:
    tt_text_free(&text);
    return tt_cli_end(NULL, rc, &err);
}
