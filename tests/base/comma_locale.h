/* comma_locale.h: a locale that writes numbers with a comma, made on the spot by localedef, because
 * few machines have one. Where localedef cannot make it, the caller tests nothing. */
#ifndef COMMA_LOCALE_H
#define COMMA_LOCALE_H

#include <locale.h>

#include "tt_test.h"

/* Switches the process to the locale and calls `check`; then back to C. */
static inline void in_comma_locale(void (*check)(void))
{
    char folder[] = "/tmp/tutti-locale-XXXXXX", command[512];
    ck_assert_ptr_nonnull(mkdtemp(folder));
    snprintf(command, sizeof command,
             "printf 'LC_NUMERIC\\ndecimal_point \",\"\\nthousands_sep \".\"\\ngrouping 3;3\\n"
             "END LC_NUMERIC\\n' >%s/source && "
             "localedef -c -i %s/source -f ISO-8859-1 %s/comma >/dev/null 2>&1",
             folder, folder, folder);
    /* -c makes localedef report its warnings as status 1: the file counts, not the status. */
    (void)!system(command);
    setenv("LOCPATH", folder, 1);
    if (setlocale(LC_NUMERIC, "comma") != NULL) {
        char comma[8];
        snprintf(comma, sizeof comma, "%.1f", 0.5);
        ck_assert_str_eq(comma, "0,5");
        check();
    }
    setlocale(LC_ALL, "C");
    unsetenv("LOCPATH");
    snprintf(command, sizeof command, "rm -rf %s", folder);
    ck_assert_int_eq(system(command), 0);
}

#endif
