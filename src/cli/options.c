/* options.c: `tutti options [--markdown]`: every configuration key, from the option table. */
#include <stdio.h>

#include "tutti/base/options.h"

#include "cli/cli_impl.h"

int tt_cmd_options(int argc, char **argv)
{
    tt_code rc = TT_OK;
    tt_err err = {TT_OK, ""};
    tt_text text = {0};
    bool help = false, markdown = false;
    const tt_flag flag[] = {{.name = "--markdown", .flag = &markdown}};
    TT_TRY(tt_flags_take(&argc, argv, flag, 1, &help, &err));
    if (help || argc > 1) {
        fputs("usage: tutti options [--markdown]\n", help ? stdout : stderr);
        return help ? TT_OK : TT_EUSER;
    }
    tt_options_table(markdown, &text);
    rc = tt_cli_print(&text, &err);
out:
    return tt_cli_end(NULL, rc, &err);
}
