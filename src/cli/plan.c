/* plan.c: `tutti plan CONFIG [key=value ...] --ranks R`: what a run would take. Trains nothing. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "tutti/base/file.h"
#include "tutti/base/narrow.h"
#include "tutti/base/options.h"
#include "tutti/data/tokens.h"
#include "tutti/train/ledger.h"
#include "tutti/train/plan.h"

#include "cli/cli_impl.h"

static const char usage[] =
    "usage: tutti plan CONFIG [key=value ...] [--ranks R] [--ranks-per-node N] [--memory SIZE]\n"
    "                  [--latency_us L --gbps G [--tokens_per_s X] [--sum_gb_s Y]]\n"
    "                  [--json]\n\n"
    "Prints what the run that CONFIG describes takes on R ranks (default 1): memory by component,\n"
    "of a rank and of a node of N ranks (default: all), who share memory as dist.node_shared and\n"
    "dist.node_ranks say; what each technique changes in it; formats; bytes on the wire and "
    "FLOPs.\n"
    "Nothing is trained.\n\n"
    "--memory, which is what a rank may take (8GiB, 16GB, 900MiB): for each way to recompute\n"
    "activations whether it fits, the largest micro-batch that does, and what it costs in time, "
    "by\n"
    "the speed of the kernels here and now: a second or two of work.\n\n"
    "--latency_us and --gbps, of the network between nodes: a step's time and efficiency with\n"
    "overlap and without, for the plan's accumulate, 1, 8 and 32, from that speed and what\n"
    "collectives take on paper (include/tutti/train/network.h has the formulas). N is then 1 "
    "unless\n"
    "given, and the ranks of a node have one link of G Gbit/s each way. --tokens_per_s: what one\n"
    "rank alone trains on such a node, as tutti bench step says; --sum_gb_s: how fast it adds a\n"
    "vector to another; default: what it would here.\n\n"
    "--json: all of it as one object; the network's part is \"wire\": {\"step_ms\", \"comm_ms\",\n"
    "\"comm_exposed_ms\", \"efficiency\", \"blocking\": {...}, ...}.\n\n"
    "Needs no token file unless model.vocab is left to it. Threads are run.threads, or\n"
    "OMP_NUM_THREADS, or 1.\n";

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

/* --memory as bytes; 0: not given. With more, the search for what fits would leave 64 bits. */
static tt_code memory_limit(const char *text, int64_t *limit, tt_err *err)
{
    *limit = 0;
    if (text != NULL && (!tt_parse_bytes(text, limit) || *limit < 1 || *limit > (int64_t)1 << 60)) {
        return tt_fail(
            err, TT_EUSER,
            "--memory: '%s' is not a size; allowed is 1 byte to 1048576TiB, such as 8GiB, "
            "16GB or 900MiB",
            text);
    }
    return TT_OK;
}

/* The speed of the kernels, which takes so long that a person may wonder. */
static tt_code measure(tt_price *price, const tt_blueprint *print, tt_err *err)
{
    const bool person = isatty(STDERR_FILENO);
    if (person) {
        fputs("measuring the kernels ...", stderr);
    }
    const tt_code rc = tt_price_measure(price, print, err);
    if (person) {
        fputs("\r\033[K", stderr);
    }
    return rc;
}

/* What was asked of a network: all of it or nothing. */
static tt_code check_network(const tt_network *network, double rate, tt_err *err)
{
    const bool latency = network->latency >= 0, link = network->link > 0;
    if (latency != link) {
        return tt_fail(err, TT_EUSER, "--%s needs --%s: a network is its latency and its speed",
                       latency ? "latency_us" : "gbps", latency ? "gbps" : "latency_us");
    }
    if (!latency && rate > 0) {
        return tt_fail(err, TT_EUSER, "--tokens_per_s goes with --latency_us and --gbps");
    }
    if (!latency && network->sum > 0) {
        return tt_fail(err, TT_EUSER, "--sum_gb_s goes with --latency_us and --gbps");
    }
    return TT_OK;
}

static tt_code look_out(tt_outlook *outlook, const tt_blueprint *print, const tt_price *price,
                        const tt_network *network, double rate, tt_err *err)
{
    char size[32];
    if (price->wanted > 0) {
        tt_human_bytes((double)price->wanted, size);
        return tt_fail(err, TT_EWORLD,
                       "--latency_us and --gbps: no step can be predicted, because its kernels "
                       "cannot be measured: one block of this model takes %s to run",
                       size);
    }
    return tt_outlook_make(outlook, print, price, network, rate, err);
}

int tt_cmd_plan(int argc, char **argv)
{
    tt_code rc = TT_OK;
    tt_err err = {TT_OK, ""};
    tt_blueprint print = {0};
    tt_ledger ledger;
    tt_price price;
    tt_outlook outlook;
    tt_text text = {0};
    tt_config config;
    const char *memory = NULL;
    int64_t ranks = 1, per_node = 0, limit = 0, vocab = 0;
    double latency_us = -1, gbps = 0, rate = 0, sum_gb_s = 0; /* not given */
    bool help = false, json = false;
    const tt_flag flag[] = {{.name = "--ranks", .i64 = &ranks, .low = 1, .high = 1e6},
                            {.name = "--ranks-per-node", .i64 = &per_node, .low = 1, .high = 1e6},
                            {.name = "--memory", .text = &memory},
                            {.name = "--latency_us", .f64 = &latency_us, .low = 0, .high = 1e7},
                            {.name = "--gbps", .f64 = &gbps, .low = 1e-6, .high = 1e6},
                            {.name = "--tokens_per_s", .f64 = &rate, .low = 1e-6, .high = 1e12},
                            {.name = "--sum_gb_s", .f64 = &sum_gb_s, .low = 1e-6, .high = 1e6},
                            {.name = "--json", .flag = &json}};

    TT_TRY(tt_flags_take(&argc, argv, flag, sizeof flag / sizeof *flag, &help, &err));
    if (help) {
        fputs(usage, stdout);
        goto out;
    }
    if (argc < 2) {
        rc =
            tt_fail(&err, TT_EUSER, "tutti plan needs a configuration file; see tutti plan --help");
        goto out;
    }
    const bool wired = gbps > 0;
    const int machine = tt_int(per_node > 0 ? per_node : wired ? 1 : ranks);
    tt_network network = {.ranks = tt_int(ranks),
                          .node_ranks = (int)tt_min(machine, ranks),
                          .latency = 1e-6 * latency_us,
                          .link = 1e9 / 8 * gbps,
                          .sum = sum_gb_s > 0 ? 1e-9 / sum_gb_s : 0};
    TT_TRY(memory_limit(memory, &limit, &err));
    TT_TRY(check_network(&network, rate, &err));
    tt_config_preset(&config);
    TT_TRY(tt_config_load(&config, argv[1], argc - 2, argv + 2, &err));
    TT_TRY(data_vocab(&config, &vocab, &err));
    TT_TRY(tt_blueprint_imagine(&print, &config, vocab, machine, tt_int(ranks),
                                tt_threads_choose(&config, 1), getenv("TUTTI_ISA"), &err));
    network.shared = print.node_ranks > 1 && print.node_ranks == network.node_ranks;
    if (limit > 0 || wired) {
        TT_TRY(measure(&price, &print, &err));
    }
    if (wired) {
        TT_TRY(look_out(&outlook, &print, &price, &network, rate, &err));
    }
    TT_TRY(tt_ledger_make(&ledger, &print, limit, limit > 0 || wired ? &price : NULL,
                          wired ? &outlook : NULL, &err));
    (json ? tt_ledger_json : tt_ledger_text)(&ledger, &text);
    rc = tt_cli_print(&text, &err);
out:
    tt_text_free(&text);
    tt_blueprint_free(&print);
    return tt_cli_end(NULL, rc, &err);
}
