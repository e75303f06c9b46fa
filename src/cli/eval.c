/* eval.c: `tutti eval CHECKPOINT [--data FILE.h5] [key=value ...]`, alone or under mpirun. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tutti/base/log.h"
#include "tutti/base/memory.h"
#include "tutti/base/narrow.h"
#include "tutti/data/batch.h"
#include "tutti/dist/watch.h"
#include "tutti/train/evaluate.h"
#include "tutti/train/infer.h"

#include "cli/cli_impl.h"

static const char usage[] =
    "usage: tutti eval CHECKPOINT [--data FILE.h5] [--json] [key=value ...]\n\n"
    "Mean loss over the held-out part of FILE.h5 (default: the data of the run), or over all of "
    "it\n"
    "when it holds nothing out. The whole part is read unless run.eval_sequences is given here.\n";

enum { B = 4 }; /* sequences at a time; changes nothing but speed */

static bool gives(int overrides, char *const *override, const char *key)
{
    for (int i = 0; i < overrides; i++) {
        if (strncmp(override[i], key, strlen(key)) == 0 && override[i][strlen(key)] == '=') {
            return true;
        }
    }
    return false;
}

static tt_code evaluate(tt_world *world, int argc, char **argv, const char *data, bool json,
                        tt_err *err)
{
    tt_code rc = TT_OK;
    tt_infer infer = {0};
    tt_tokens *tokens = NULL;
    tt_sampler sampler;
    tt_batch batch;
    tt_text text = {0};
    void *memory = NULL;
    tt_loss loss;
    TT_TRY(tt_infer_open(&infer, world, argv[1], argc - 2, argv + 2, B, err));
    const tt_config *config = &infer.print.config;
    const char *path = data ? data : config->data.valid;
    path = path[0] != '\0' ? path : config->data.train;
    rc = tt_evaluate_open(&tokens, path, err);
    if (rc == TT_OK && tt_tokens_vocab(tokens) > infer.print.shape.V) {
        rc = tt_fail(err, TT_EUSER, "%s has a vocabulary of %lld, the model one of %lld", path,
                     (long long)tt_tokens_vocab(tokens), (long long)infer.print.shape.V);
    }
    if (rc == TT_OK) {
        rc = tt_evaluate_sampler(&sampler, tokens, config->data.mode, infer.print.shape.T, err);
    }
    if (rc == TT_OK) {
        memory = tt_alloc(1, tt_batch_bytes(B, infer.print.shape.T), err);
        rc = memory ? TT_OK : err->code;
    }
    TT_TRY(tt_agree(world, rc, err));
    tt_batch_place(&batch, B, infer.print.shape.T, memory);
    int64_t count = sampler.samples;
    if (gives(argc - 2, argv + 2, "run.eval_sequences")) {
        count = tt_min(count, config->run.eval_sequences);
    }
    TT_TRY(tt_evaluate(world, infer.model, &sampler, &batch, count, NULL, NULL, &loss, err));
    const double mean = tt_loss_mean(&loss);
    if (!isfinite(mean)) {
        rc = tt_fail(err, TT_EWORLD,
                     "the loss of %s over %lld sequences of %s is not finite, computed in %s",
                     argv[1], (long long)count, path, config->precision.compute);
        goto out;
    }
    if (world->rank == 0 && json) {
        tt_text_add(&text, "{\"valid_loss\": ");
        tt_text_add_double(&text, mean);
        tt_text_add(&text, ", \"valid_tokens\": %lld, \"sequences\": %lld}\n",
                    (long long)loss.count, (long long)count);
    } else if (world->rank == 0) {
        tt_text_add(&text,
                    "loss        %.6f nats per token\nperplexity  %.4f\ntokens      %lld\n"
                    "sequences   %lld of %lld in %s\n",
                    mean, exp(mean), (long long)loss.count, (long long)count,
                    (long long)sampler.samples, path);
    }
    rc = tt_agree(world, tt_cli_print(&text, err), err);
out:
    free(memory);
    tt_tokens_close(tokens);
    tt_infer_close(&infer);
    return rc;
}

int tt_cmd_eval(int argc, char **argv)
{
    tt_code rc = TT_OK;
    tt_err err = {TT_OK, ""};
    tt_world world = {0};
    const char *data = NULL;
    bool help = false, json = false;
    const tt_flag flag[] = {{.name = "--data", .text = &data}, {.name = "--json", .flag = &json}};

    if (tt_world_open(&world, &argc, &argv, &err) != TT_OK) {
        return tt_cli_end(&world, err.code, &err);
    }
    tt_watch_opening();
    rc = tt_flags_take(&argc, argv, flag, 2, &help, &err);
    if (rc == TT_OK && !help && argc < 2) {
        rc = tt_fail(&err, TT_EUSER, "tutti eval needs a checkpoint; see tutti eval --help");
    }
    TT_TRY(tt_agree(&world, rc, &err));
    if (help) {
        fputs(world.rank == 0 ? usage : "", stdout);
        goto out;
    }
    rc = evaluate(&world, argc, argv, data, json, &err);
out:
    tt_cli_end(&world, rc, &err);
    tt_world_close(&world);
    return (int)rc;
}
