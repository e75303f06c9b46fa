/* cli_impl.h: the commands: one file each, one row each in main.c.
 *
 * A command gets its own name as argv[0], prints results to stdout, one sentence about what went
 * wrong to stderr, and returns the exit code. */
#ifndef TUTTI_CLI_IMPL_H
#define TUTTI_CLI_IMPL_H

#include <stdbool.h>

#include "tutti/base/status.h"
#include "tutti/base/text.h"
#include "tutti/dist/world.h"

int tt_cmd_train(int argc, char **argv);
int tt_cmd_plan(int argc, char **argv);
int tt_cmd_data(int argc, char **argv);
int tt_cmd_eval(int argc, char **argv);
int tt_cmd_generate(int argc, char **argv);
int tt_cmd_checkpoint(int argc, char **argv);
int tt_cmd_bench(int argc, char **argv);
int tt_cmd_formats(int argc, char **argv);
int tt_cmd_options(int argc, char **argv);
int tt_cmd_version(int argc, char **argv);

/* One "--name VALUE", "--name=VALUE" or, with value NULL, bare "--name" of a command. Exactly one of
 * the targets is set for an option with a value. */
typedef struct tt_flag {
    const char *name; /* "--tokens" */
    const char **text;
    int64_t *i64;
    double *f64;
    bool *flag;
    double low, high; /* range of numbers, inclusive */
} tt_flag;

/* Takes the flags out of argv (anywhere, until "--"), leaving argv[0] and the rest in order; *argc is
 * the new count. "--help" or "-h" sets *help. Unknown flags, missing and bad values are TT_EUSER. */
tt_code tt_flags_take(int *argc, char **argv, const tt_flag *flag, int flags, bool *help,
                      tt_err *err);

/* Prints "tutti: <sentence>" to stderr for a failure, on rank 0 only where a world is given, and returns
 * the exit code. */
int tt_cli_end(const tt_world *world, tt_code rc, const tt_err *err);

/* Prints the text to stdout and frees it; TT_EWORLD when memory or stdout failed. */
tt_code tt_cli_print(tt_text *text, tt_err *err);

#endif
