/* generate.c: `tutti generate CHECKPOINT --prompt TEXT ...`: samples text, one process, no MPI.
 *
 * Each new token is drawn from the logits of the last `context` tokens; draw i uses the random number
 * (seed, i), so the same arguments give the same text. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tutti/base/memory.h"
#include "tutti/base/narrow.h"
#include "tutti/base/rng.h"
#include "tutti/train/infer.h"

#include "cli/cli_impl.h"

static const char usage[] =
    "usage: tutti generate CHECKPOINT --prompt TEXT [--tokens N] [--temperature X] [--top-k K]\n"
    "                      [--seed S] [key=value ...]\n\n"
    "Prints the prompt and N more tokens (default 256), or fewer when the model ends the "
    "document.\n"
    "Temperature 0 takes the likeliest token (greedy); top-k 0 draws from all (default).\n";

typedef struct tt_choice {
    float logit;
    int32_t token;
} tt_choice;

static int likelier_first(const void *a, const void *b)
{
    const tt_choice *x = a, *y = b;
    int by_logit = (x->logit < y->logit) - (x->logit > y->logit);
    return by_logit != 0 ? by_logit : (x->token > y->token) - (x->token < y->token);
}

/* Draws from softmax(logits / temperature) over the `top` likeliest; u in [0, 1). choice[n] is
 * scratch. */
static int32_t draw(tt_choice *choice, const float *logits, int64_t n, double temperature,
                    int64_t top, double u)
{
    for (int64_t i = 0; i < n; i++) {
        choice[i] = (tt_choice){logits[i], (int32_t)i};
    }
    qsort(choice, tt_size(n), sizeof *choice, likelier_first);
    if (temperature == 0) {
        return choice[0].token;
    }
    n = top > 0 ? tt_min(top, n) : n;
    double sum = 0, passed = 0;
    for (int64_t i = 0; i < n; i++) {
        sum += exp(((double)choice[i].logit - (double)choice[0].logit) / temperature);
    }
    for (int64_t i = 0; i < n; i++) {
        passed += exp(((double)choice[i].logit - (double)choice[0].logit) / temperature);
        if (u * sum < passed) {
            return choice[i].token;
        }
    }
    return choice[n - 1].token;
}

typedef struct tt_request_text {
    const char *prompt;
    double temperature;
    int64_t tokens, top_k, seed;
} tt_request_text;

static tt_code generate(tt_infer *infer, const tt_request_text *request, tt_err *err)
{
    tt_code rc = TT_OK;
    const tt_shape *shape = &infer->print.shape;
    const int64_t used = shape->vocab_used, length = tt_count(strlen(request->prompt));
    const tt_key key = tt_rng_key((uint64_t)request->seed, TT_RNG_SAMPLE, 0);
    float *logits = tt_alloc(shape->V, sizeof *logits, err);
    tt_choice *choice = tt_alloc(used, sizeof *choice, err);
    int32_t *token = tt_alloc(1 + length + request->tokens, sizeof *token, err);
    int64_t count = 0;
    tt_text text = {0};
    if (!logits || !choice || !token) {
        rc = err->code;
        goto out;
    }
    /* The end token before the prompt: a document begins here. */
    token[0] = infer->tokenizer.end;
    tt_encode(&infer->tokenizer, request->prompt, length, token + 1, &count);
    count++;
    fputs(request->prompt, stdout);
    for (int64_t i = 0; i < request->tokens; i++) {
        int64_t seen = tt_min(count, shape->T);
        tt_model_next(infer->model, token + (count - seen), seen, logits);
        for (int64_t j = 0; j < used; j++) {
            if (!isfinite(logits[j])) {
                rc = tt_fail(err, TT_EWORLD, "the model gives non-finite logits at token %lld",
                             (long long)i);
                goto out;
            }
        }
        int32_t next = draw(choice, logits, used, request->temperature, request->top_k,
                            tt_rng_uniform(key, 0, (uint64_t)i));
        if (next == infer->tokenizer.end) {
            break;
        }
        token[count++] = next;
        tt_decode(&infer->tokenizer, next, &text);
        TT_TRY(tt_cli_print(&text, err));
    }
    putchar('\n');
out:
    free(logits);
    free(choice);
    free(token);
    tt_text_free(&text);
    return rc;
}

int tt_cmd_generate(int argc, char **argv)
{
    tt_code rc = TT_OK;
    tt_err err = {TT_OK, ""};
    tt_infer infer = {0};
    bool help = false;
    tt_request_text request = {.temperature = 0.8, .tokens = 256};
    const tt_flag flag[] = {
        {.name = "--prompt", .text = &request.prompt},
        {.name = "--tokens", .i64 = &request.tokens, .low = 0, .high = 1e9},
        {.name = "--temperature", .f64 = &request.temperature, .low = 0, .high = 1e6},
        {.name = "--top-k", .i64 = &request.top_k, .low = 0, .high = 1e9},
        {.name = "--seed", .i64 = &request.seed, .low = 0, .high = 9e18}};

    TT_TRY(tt_flags_take(&argc, argv, flag, 5, &help, &err));
    if (help) {
        fputs(usage, stdout);
        goto out;
    }
    if (argc < 2 || !request.prompt) {
        rc = tt_fail(&err, TT_EUSER,
                     "tutti generate needs a checkpoint and --prompt TEXT; see tutti "
                     "generate --help");
        goto out;
    }
    TT_TRY(tt_infer_open(&infer, NULL, argv[1], argc - 2, argv + 2, 1, &err));
    TT_TRY(generate(&infer, &request, &err));
out:
    tt_infer_close(&infer);
    return tt_cli_end(NULL, rc, &err);
}
