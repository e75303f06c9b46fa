/* checkpoint.c: `tutti checkpoint info|config|verify|diff`: what is in a checkpoint, is it whole, are
 * two the same.
 *
 * Prints results to stdout. Exit: 0 whole or identical, 1 damaged or different, 2 not checkpoints or
 * not comparable. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "tutti/base/options.h"
#include "tutti/ckpt/ckpt.h"

#include "cli/cli_impl.h"

static const char usage[] =
    "usage: tutti checkpoint info FILE.h5        what it holds\n"
    "       tutti checkpoint config FILE.h5      its configuration, in YAML\n"
    "       tutti checkpoint verify FILE.h5      recomputes every digest; exit 1 when one differs\n"
    "       tutti checkpoint diff A.h5 B.h5      exit 0 when every tensor and number is\n"
    "                                            bit-identical; else the first element that "
    "differs\n"
    "                                            and the differences per group, and exit 1\n";

static void diff_table(const tt_group_diff *group, int groups, tt_text *out)
{
    tt_text_add(out, "%-12s %12s %14s %14s  %s\n", "group", "different", "largest rel.", "l2 rel.",
                "largest in");
    for (int i = 0; i < groups; i++) {
        const tt_group_diff *g = &group[i];
        char l2[32] = "-"; /* means nothing for a mixture of steps, seeds and scales */
        if (strcmp(g->group, "state") != 0) {
            snprintf(l2, sizeof l2, "%.6g", g->l2);
        }
        tt_text_add(out, "%-12s %12" PRId64 " %14.6g %14s  %s\n", g->group, g->different,
                    g->largest, l2, g->tensor[0] != '\0' ? g->tensor : "-");
    }
}

/* "params/wte[3,17]", "state/step" */
static void first_line(const tt_first_diff *first, const char *a, const char *b, tt_text *out)
{
    tt_text_add(out, "first difference: %s", first->path);
    for (int i = 0; i < first->dims; i++) {
        tt_text_add(out, "%s%" PRId64, i == 0 ? "[" : ",", first->at[i]);
    }
    tt_text_add(out, "%s is %s in %s, %s in %s\n", first->dims > 0 ? "]" : "", first->value[0], a,
                first->value[1], b);
}

/* How the runs that made the files differ in what shapes the numbers: the first explanation of all
 * other differences. A gradient dump has no configuration, and one of another version may not be read
 * by this: then nothing is said. */
static void compare_runs(const char *a, const char *b, tt_text *out)
{
    tt_err ignored;
    tt_text text[2] = {{0}, {0}}, value[2] = {{0}, {0}};
    tt_config config[2];
    const char *const path[] = {a, b};
    bool read = true;
    for (int i = 0; i < 2; i++) {
        read = read && tt_ckpt_texts(path[i], &text[i], NULL, &ignored) == TT_OK &&
               tt_config_parse(&config[i], path[i], text[i].data, &ignored) == TT_OK;
    }
    for (int k = 0; read && k < tt_option_count; k++) {
        for (int i = 0; i < 2; i++) {
            value[i].length = 0;
            tt_config_value(&config[i], &tt_options[k], &value[i]);
            read = read && !value[i].failed;
        }
        if (read && tt_options[k].resume != TT_FREE && strcmp(value[0].data, value[1].data) != 0) {
            tt_text_add(out, "%s is %s in %s, %s in %s\n", tt_options[k].path, value[0].data, a,
                        value[1].data, b);
        }
    }
    for (int i = 0; i < 2; i++) {
        text[i].length = 0;
        read = tt_ckpt_arithmetic(path[i], &text[i], &ignored) == TT_OK && text[i].length > 0 &&
               (i == 0 || read);
    }
    if (read && strcmp(text[0].data, text[1].data) != 0) {
        tt_text_add(out, "arithmetic is %s in %s, %s in %s\n", text[0].data, a, text[1].data, b);
    }
    for (int i = 0; i < 2; i++) {
        tt_text_free(&text[i]);
        tt_text_free(&value[i]);
    }
}

static tt_code diff(const char *a, const char *b, tt_text *out, bool *identical, tt_err *err)
{
    enum { ROOM = 32 };
    tt_group_diff group[ROOM];
    int groups = 0;
    tt_first_diff first;
    tt_code rc = tt_ckpt_diff(a, b, identical, group, ROOM, &groups, &first, err);
    if (rc == TT_OK && *identical) {
        tt_text_add(out, "identical: every tensor and number is bit-identical\n");
        compare_runs(a, b, out);
    } else if (rc == TT_OK) {
        first_line(&first, a, b, out);
        diff_table(group, groups, out);
        compare_runs(a, b, out);
    }
    return rc;
}

int tt_cmd_checkpoint(int argc, char **argv)
{
    bool help = false, identical = true;
    tt_text out = {0};
    tt_err err = {TT_OK, ""}, printing;
    tt_code rc = TT_OK;
    TT_TRY(tt_flags_take(&argc, argv, NULL, 0, &help, &err));
    const char *verb = argc > 1 ? argv[1] : "";
    if (help) {
        tt_text_add(&out, "%s", usage);
    } else if (strcmp(verb, "info") == 0 && argc == 3) {
        rc = tt_ckpt_info(argv[2], &out, &err);
    } else if (strcmp(verb, "verify") == 0 && argc == 3) {
        rc = tt_ckpt_verify(argv[2], &out, &err);
    } else if (strcmp(verb, "config") == 0 && argc == 3) {
        rc = tt_ckpt_texts(argv[2], &out, NULL, &err);
    } else if (strcmp(verb, "diff") == 0 && argc == 4) {
        rc = diff(argv[2], argv[3], &out, &identical, &err);
    } else {
        rc = tt_fail(
            &err, TT_EUSER,
            "tutti checkpoint wants info FILE, config FILE, verify FILE or diff A B; see tutti "
            "checkpoint --help");
    }
    /* A verdict of damage still comes with its list of what is damaged. */
    if (out.length > 0 && tt_cli_print(&out, &printing) != TT_OK && rc == TT_OK) {
        rc = tt_fail(&err, printing.code, "%s", printing.text);
    }
out:
    tt_text_free(&out);
    return rc == TT_OK && !identical ? TT_EWORLD : tt_cli_end(NULL, rc, &err);
}
