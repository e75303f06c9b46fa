/* main.c: the table of commands. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tutti/version.h"

#include "cli/cli_impl.h"

typedef struct tt_command {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *help;
} tt_command;

static const tt_command commands[] = {
    {"train", tt_cmd_train, "CONFIG [key=value ...]: train, alone or under mpirun"},
    {"plan", tt_cmd_plan, "CONFIG [key=value ...] --ranks R: memory, batch, wire; trains nothing"},
    {"data", tt_cmd_data, "build --out FILE.h5 INPUT... | info FILE.h5: token files"},
    {"eval", tt_cmd_eval, "CHECKPOINT [--data FILE.h5] [key=value ...]: held-out loss"},
    {"generate", tt_cmd_generate, "CHECKPOINT --prompt TEXT [--tokens N]: sample text"},
    {"checkpoint", tt_cmd_checkpoint, "info|verify FILE.h5 | diff A.h5 B.h5"},
    {"bench", tt_cmd_bench,
     "peak|gemm|attention|step|exact|recompute|allreduce|optimizer_file|checkpoint [key=value "
     "...]"},
    {"formats", tt_cmd_formats, "[NUMBER ...]: the number formats, and what becomes of numbers"},
    {"options", tt_cmd_options, "[--markdown]: every configuration key"},
    {"version", tt_cmd_version, "build, ISA, MPI, HDF5, BLAS"},
};
enum { COMMANDS = sizeof commands / sizeof commands[0] };

static void usage(FILE *out)
{
    fprintf(out,
            "tutti %s: data-parallel training of transformer language models\n\n"
            "usage: tutti COMMAND [ARGUMENTS]      mpirun -n RANKS tutti train CONFIG\n\n",
            TUTTI_VERSION);
    for (int i = 0; i < COMMANDS; i++) {
        fprintf(out, "  %-11s %s\n", commands[i].name, commands[i].help);
    }
    fprintf(out, "\nEvery command takes --help. Exit codes: 0 done; 1 the world failed; 2 wrong "
                 "input; 75 stopped by\na signal or run.max_seconds, after saving.\n");
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        usage(stderr);
        return TT_EUSER;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 ||
        strcmp(argv[1], "help") == 0) {
        usage(stdout);
        return EXIT_SUCCESS;
    }
    const char *wanted = strcmp(argv[1], "--version") == 0 ? "version" : argv[1];
    int nearest = 0;
    for (int i = 0; i < COMMANDS; i++) {
        if (strcmp(wanted, commands[i].name) == 0) {
            return commands[i].run(argc - 1, argv + 1);
        }
        if (tt_edit_distance(wanted, commands[i].name) <
            tt_edit_distance(wanted, commands[nearest].name)) {
            nearest = i;
        }
    }
    fprintf(stderr,
            "tutti: there is no command '%s'; did you mean '%s'? (tutti --help lists all)\n",
            wanted, commands[nearest].name);
    return TT_EUSER;
}
