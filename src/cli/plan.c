/* plan.c: `tutti plan CONFIG [key=value ...] --ranks R`: what a run would take. Trains nothing. */
#include <stdio.h>
#include <stdlib.h>

#include "tutti/base/file.h"
#include "tutti/base/narrow.h"
#include "tutti/base/options.h"
#include "tutti/data/tokens.h"
#include "tutti/train/plan.h"

#include "cli/cli_impl.h"

static const char usage[] = "usage: tutti plan CONFIG [key=value ...] [--ranks R]\n\n"
                            "Prints memory per rank by component, batch arithmetic, bytes on the "
                            "wire and FLOPs of the run\n"
                            "that CONFIG describes on R ranks (default 1). Needs no token file "
                            "unless model.vocab is left to\n"
                            "it. Threads are run.threads, or OMP_NUM_THREADS, or 1.\n";

/* The vocabulary of the token file when there is one; 0: not known. */
static tt_code data_vocab(const tt_config *config, int64_t *vocab, tt_err *err)
{
    tt_code rc = TT_OK;
    tt_tokens *tokens = NULL;
    *vocab = 0;
    if (config->data.train[0] != '\0' && tt_file_exists(config->data.train)) {
        TT_TRY(tt_tokens_open(&tokens, config->data.train, false, err));
        *vocab = tt_tokens_vocab(tokens);
    } else if (config->model.vocab == 0) {
        rc =
            tt_fail(err, TT_EUSER,
                    "model.vocab is 0 (from the token file), but data.train '%s' is not there; set "
                    "model.vocab or build the token file first",
                    config->data.train);
    }
out:
    tt_tokens_close(tokens);
    return rc;
}

int tt_cmd_plan(int argc, char **argv)
{
    tt_code rc = TT_OK;
    tt_err err = {TT_OK, ""};
    tt_blueprint print = {0};
    tt_text text = {0};
    tt_config config;
    int64_t ranks = 1, vocab = 0;
    bool help = false;
    const tt_flag flag[] = {{.name = "--ranks", .i64 = &ranks, .low = 1, .high = 1e6}};

    TT_TRY(tt_flags_take(&argc, argv, flag, 1, &help, &err));
    if (help) {
        fputs(usage, stdout);
        goto out;
    }
    if (argc < 2) {
        rc =
            tt_fail(&err, TT_EUSER, "tutti plan needs a configuration file; see tutti plan --help");
        goto out;
    }
    tt_config_preset(&config);
    TT_TRY(tt_config_load(&config, argv[1], argc - 2, argv + 2, &err));
    TT_TRY(data_vocab(&config, &vocab, &err));
    TT_TRY(tt_blueprint_make(&print, &config, vocab, 0, tt_int(ranks),
                             tt_threads_choose(&config, 1), getenv("TUTTI_ISA"), &err));
    tt_plan_text(&print, &text);
    rc = tt_cli_print(&text, &err);
out:
    tt_blueprint_free(&print);
    return tt_cli_end(NULL, rc, &err);
}
