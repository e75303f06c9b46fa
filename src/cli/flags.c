/* flags.c: arguments of commands, and how commands end. See cli_impl.h. */
#include <stdio.h>
#include <string.h>

#include "cli/cli_impl.h"

static tt_code take_value(const tt_flag *flag, const char *value, tt_err *err)
{
    tt_code rc = TT_OK;
    if (flag->text) {
        *flag->text = value;
    } else if (flag->i64) {
        if (!tt_parse_int(value, flag->i64) || (double)*flag->i64 < flag->low ||
            (double)*flag->i64 > flag->high) {
            rc = tt_fail(err, TT_EUSER, "%s: '%s' is not a whole number from %.0f to %.0f",
                         flag->name, value, flag->low, flag->high);
        }
    } else if (!tt_parse_double(value, flag->f64) || *flag->f64 < flag->low ||
               *flag->f64 > flag->high) {
        rc = tt_fail(err, TT_EUSER, "%s: '%s' is not a number from %g to %g", flag->name, value,
                     flag->low, flag->high);
    }
    return rc;
}

tt_code tt_flags_take(int *argc, char **argv, const tt_flag *flag, int flags, bool *help,
                      tt_err *err)
{
    tt_code rc = TT_OK;
    int kept = 1;
    *help = false;
    for (int i = 1; i < *argc; i++) {
        char *word = argv[i];
        if (strcmp(word, "--") == 0) {
            while (++i < *argc) {
                argv[kept++] = argv[i];
            }
            break;
        }
        if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0) {
            *help = true;
            continue;
        }
        if (word[0] != '-' || word[1] == '\0') {
            argv[kept++] = word;
            continue;
        }
        size_t length = strcspn(word, "=");
        const tt_flag *found = NULL;
        for (int f = 0; f < flags; f++) {
            if (strlen(flag[f].name) == length && strncmp(word, flag[f].name, length) == 0) {
                found = &flag[f];
            }
        }
        if (!found) {
            rc = tt_fail(err, TT_EUSER, "tutti %s does not know '%s'; see tutti %s --help", argv[0],
                         word, argv[0]);
            goto out;
        }
        if (found->flag) {
            if (word[length] == '=') {
                rc = tt_fail(err, TT_EUSER, "%s takes no value, but was given '%s'", found->name,
                             word + length + 1);
                goto out;
            }
            *found->flag = true;
        } else if (word[length] == '=') {
            TT_TRY(take_value(found, word + length + 1, err));
        } else if (i + 1 < *argc) {
            TT_TRY(take_value(found, argv[++i], err));
        } else {
            rc = tt_fail(err, TT_EUSER, "%s needs a value; see tutti %s --help", found->name,
                         argv[0]);
            goto out;
        }
    }
    *argc = kept;
    argv[kept] = NULL;
out:
    return rc;
}

int tt_cli_end(const tt_world *world, tt_code rc, const tt_err *err)
{
    if (rc != TT_OK && (!world || world->rank == 0)) {
        fprintf(stderr, "tutti: %s\n", err->text);
    }
    return (int)rc;
}

tt_code tt_cli_print(tt_text *text, tt_err *err)
{
    tt_code rc = TT_OK;
    if (text->failed) {
        rc = tt_fail(err, TT_EWORLD, "out of memory");
    } else if (text->length > 0 && (fwrite(text->data, 1, text->length, stdout) != text->length ||
                                    fflush(stdout) != 0)) {
        rc = tt_fail(err, TT_EWORLD, "cannot write to standard output");
    }
    tt_text_free(text);
    return rc;
}
