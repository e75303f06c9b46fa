/* data.c: `tutti data build|info`: token files made from text, and what they hold.
 *
 * Needs no MPI: it is one process. Prints the same table after a build as info does later. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "tutti/data/tokens.h"

#include "cli/cli_impl.h"

static const char usage[] =
    "usage: tutti data build --out FILE.h5 [--tokenizer bytes] [--valid FRACTION] [--seed N] "
    "INPUT...\n"
    "       tutti data info FILE.h5\n"
    "\n"
    "build makes a token file of text files and folders. Each file is one document, in the order "
    "of\n"
    "its name; links are followed; hidden, empty and binary files are skipped.\n"
    "  --out FILE.h5         replaced when it is a token file already\n"
    "  --tokenizer NAME      bytes (default): 256 byte values and the end of a document\n"
    "  --valid FRACTION      documents to hold out, from 0 (default) to less than 1\n"
    "  --seed N              which documents are held out (default 0)\n"
    "info says what a token file holds, and reads all of it to be sure.\n";

static void row(tt_text *out, const char *name, int64_t documents, int64_t tokens)
{
    tt_text_add(out, "%-10s %12" PRId64 " documents %15" PRId64 " tokens\n", name, documents,
                tokens);
}

static void table(const char *path, const tt_tokens_summary *s, tt_text *out)
{
    tt_text_add(out, "%-10s %s\n", "file", path);
    tt_text_add(out, "%-10s %s, vocabulary %" PRId64 "\n", "tokenizer", s->tokenizer, s->vocab);
    row(out, "training", s->documents, s->tokens);
    row(out, "held out", s->valid_documents, s->valid_tokens);
    tt_text_add(out, "%-10s %12" PRId64 " tokens in one document\n", "longest",
                s->longest_document);
    tt_text_add(out, "%-10s %12.6f nats per token (order 0, training part)\n", "entropy",
                s->entropy_nats);
}

static tt_code info(const char *path, tt_text *out, tt_err *err)
{
    tt_tokens_summary summary;
    tt_code rc = tt_tokens_inspect(path, &summary, err);
    if (rc == TT_OK) {
        table(path, &summary, out);
    }
    return rc;
}

static tt_code build(tt_tokens_build *build, tt_text *out, tt_err *err)
{
    tt_tokens_summary summary;
    tt_code rc = tt_tokens_build_file(build, &summary, err);
    if (rc == TT_OK) {
        table(build->out, &summary, out);
        tt_text_add(out, "%-10s %12" PRId64 " files (hidden, empty, binary, or met before)\n",
                    "skipped", summary.skipped_files);
    }
    return rc;
}

int tt_cmd_data(int argc, char **argv)
{
    tt_code rc = TT_OK;
    tt_err err = {TT_OK, ""};
    tt_text out = {0};
    bool help = false;
    int64_t seed = 0;
    tt_tokens_build job = {.out = NULL, .tokenizer = "bytes"};
    const tt_flag flags[] = {
        {.name = "--out", .text = &job.out},
        {.name = "--tokenizer", .text = &job.tokenizer},
        {.name = "--valid", .f64 = &job.valid_fraction, .low = 0, .high = 1},
        {.name = "--seed", .i64 = &seed, .low = 0, .high = 9.2e18},
    };
    TT_TRY(tt_flags_take(&argc, argv, flags, sizeof flags / sizeof flags[0], &help, &err));
    const char *verb = argc > 1 ? argv[1] : "";
    if (help) {
        tt_text_add(&out, "%s", usage);
    } else if (strcmp(verb, "info") == 0 && argc == 3) {
        TT_TRY(info(argv[2], &out, &err));
    } else if (strcmp(verb, "build") == 0 && job.out != NULL) {
        job.seed = (uint64_t)seed;
        job.inputs = argc - 2;
        job.input = argv + 2;
        TT_TRY(build(&job, &out, &err));
    } else if (strcmp(verb, "build") == 0) {
        rc = tt_fail(&err, TT_EUSER, "tutti data build needs --out FILE.h5; see tutti data --help");
        goto out;
    } else {
        rc =
            tt_fail(&err, TT_EUSER,
                    "tutti data wants build --out FILE.h5 INPUT... or info FILE.h5; see tutti data "
                    "--help");
        goto out;
    }
    rc = tt_cli_print(&out, &err);
out:
    tt_text_free(&out);
    return tt_cli_end(NULL, rc, &err);
}
