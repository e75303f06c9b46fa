/* formats.c: `tutti formats [NUMBER ...]`: the table of number formats, and what becomes of numbers. */
#include <inttypes.h>
#include <stdio.h>

#include "tutti/numerics/format.h"

#include "cli/cli_impl.h"

static void table(tt_text *out)
{
    tt_text_add(out, "%-6s %5s %5s %5s %12s %12s %14s %12s  %s\n", "format", "bits", "exp.",
                "mant.", "max", "min normal", "min subnormal", "epsilon", "note");
    for (int f = 0; f < TT_FORMATS; f++) {
        const tt_format_info *i = &tt_formats[f];
        tt_text_add(out, "%-6s %5d %5d %5d %12.6g %12.6g %14.6g %12.6g  %s\n", i->name, i->bits,
                    i->exponent_bits, i->mantissa_bits, i->max, i->min_normal, i->min_subnormal,
                    i->epsilon, i->note);
    }
}

/* One row a number, one column a format: the value it becomes. */
static tt_code conversions(int count, char **number, tt_text *out, tt_err *err)
{
    tt_code rc = TT_OK;
    tt_text_add(out, "%-14s", "number");
    for (int f = 0; f < TT_FORMATS; f++) {
        tt_text_add(out, " %14s", tt_formats[f].name);
    }
    tt_text_add(out, "\n");
    for (int i = 0; i < count; i++) {
        double value;
        if (!tt_parse_double(number[i], &value)) {
            rc = tt_fail(err, TT_EUSER, "tutti formats: '%s' is not a number", number[i]);
            goto out;
        }
        tt_text_add(out, "%-14s", number[i]);
        for (tt_format f = 0; f < TT_FORMATS; f++) {
            float single = (float)value;
            tt_text_add(out, " %14.8g", (double)tt_format_value(f, tt_format_code(f, single)));
        }
        tt_text_add(out, "\n");
    }
out:
    return rc;
}

/* Negative numbers look like flags, so this command reads its words itself. */
int tt_cmd_formats(int argc, char **argv)
{
    tt_code rc = TT_OK;
    tt_err err = {TT_OK, ""};
    tt_text text = {0};
    for (int i = 1; i < argc; i++) {
        if (argv[i][0] == '-' && (argv[i][1] == 'h' || argv[i][1] == '-')) {
            puts("usage: tutti formats [NUMBER ...]");
            return TT_OK;
        }
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
