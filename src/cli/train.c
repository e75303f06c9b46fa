/* train.c: `tutti train CONFIG [key=value ...]`, alone or under mpirun. */
#include <stdio.h>
#include <string.h>

#include "tutti/base/log.h"
#include "tutti/base/options.h"
#include "tutti/dist/stop.h"
#include "tutti/dist/watch.h"
#include "tutti/train/advice.h"
#include "tutti/train/replay.h"
#include "tutti/train/signals.h"
#include "tutti/train/trainer.h"

#include "cli/cli_impl.h"

static const char usage[] =
    "usage: tutti train CONFIG [key=value ...]\n"
    "       mpirun -n RANKS tutti train CONFIG [key=value ...]\n\n"
    "Trains the model that CONFIG (YAML) describes. Keys are section.key, see `tutti options`.\n"
    "Writes checkpoints and metrics.jsonl to run.dir and continues from what it finds there\n"
    "(run.resume). SIGTERM, SIGINT and SIGUSR1 save and end with exit code 75; once more, two\n"
    "seconds later or more, they end it at once.\n"
    "run.replay=STEP makes one step again, looks after every layer for what is not finite,\n"
    "prints what it met and writes nothing.\n";

static void ask(void *world)
{
    tt_stop_ask(world, TT_STOP_SIGNAL);
}

int tt_cmd_train(int argc, char **argv)
{
    tt_code rc = TT_OK;
    tt_err err = {TT_OK, ""};
    tt_world world = {0};
    tt_trainer trainer = {0};
    tt_config config;
    tt_text report = {0};
    tt_signals *signals = NULL;
    bool help = false;
    int failed = 0;

    if (tt_signals_open(&signals, &err) != TT_OK ||
        tt_world_open(&world, &argc, &argv, &err) != TT_OK) {
        return tt_cli_end(&world, err.code, &err);
    }
    tt_watch_opening();
    tt_log log = tt_log_open(world.rank);
    TT_TRY(tt_stop_open(&world, &err));
    tt_signals_tell(signals, ask, &world);
    rc = tt_flags_take(&argc, argv, NULL, 0, &help, &err);
    if (rc == TT_OK && help) {
        if (world.rank == 0) {
            fputs(usage, stdout);
        }
        goto out;
    }
    if (rc == TT_OK && argc < 2) {
        rc = tt_fail(&err, TT_EUSER,
                     "tutti train needs a configuration file; see tutti train --help");
    }
    if (rc == TT_OK) {
        tt_config_preset(&config);
        rc = tt_config_load(&config, argv[1], argc - 2, argv + 2, &err);
    }
    if (rc == TT_OK) {
        rc = tt_config_require(&config, &err);
    }
    TT_TRY(tt_agree(&world, rc, &err));
    TT_TRY(tt_trainer_open(&trainer, &config, &world, &log, &err));
    TT_TRY(tt_advice_give(&world, &config, trainer.print.plan.threads, &log, &err));
    if (config.run.replay > 0) {
        TT_TRY(tt_replay_run(&trainer, &report, &err));
        rc = world.rank == 0 ? tt_cli_print(&report, &err) : TT_OK;
        TT_TRY(tt_agree(&world, rc, &err));
    } else {
        rc = tt_trainer_run(&trainer, &err);
        tt_fault_strike(&trainer.fault, "in_end", world.rank, trainer.progress.step);
    }
out:
    tt_text_free(&report);
    tt_signals_tell(signals, NULL, NULL); /* from here on there is nothing to stop */
    failed = tt_cli_end(&world, rc, &err);
    tt_trainer_close(&trainer);
    tt_world_close(&world);
    tt_signals_close(signals);
    return failed;
}
