/* bench_checkpoint.c: how fast a checkpoint is written, beside the disk, and what it takes from
 * training.
 *
 *     disk     as many bytes by rank 0 in writes of 1 MiB, then fsync: what dd conv=fsync does
 *     save     the state as a run saves it with run.read_back=false: digests, elements, fsync, renamed
 *     checked  the same, read back from the disk before it is renamed
 *     async    the same while steps go on: what it adds to them, and of that how long they stood still
 *
 * Rounds take all in turn, so that a disk that slows down does it to all. Files go away after each,
 * in the folder that TMPDIR names. Times are those of the slowest rank. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tutti/base/clock.h"
#include "tutti/base/file.h"
#include "tutti/base/log.h"
#include "tutti/base/narrow.h"
#include "tutti/train/saver.h"
#include "tutti/train/state.h"
#include "tutti/train/step.h"
#include "tutti/train/trainer.h"

#include "cli/bench_impl.h"

enum { PLAIN = 2, EVERY = 20, UNIT = 1 << 20 }; /* steps a round without a save, steps a save */

enum { DISK, SAVE, CHECKED, STEP, EXTRA, HELD, ROWS };

typedef struct bed {
    tt_trainer trainer;   /* owned */
    char *path, *other;   /* owned: of the checkpoint, of the disk's file */
    unsigned char *block; /* owned: [UNIT] */
    int64_t bytes;        /* of a checkpoint */
    tt_save_times times;  /* of the last save that was not read back */
} bed;

/* The disk's own speed. Rank 0. */
static tt_code write_disk(const bed *b, tt_err *err)
{
    const int fd = tt_open(b->other, O_WRONLY | O_CREAT | O_TRUNC);
    int failed = fd < 0 ? errno : 0;
    for (int64_t at = 0; failed == 0 && at < b->bytes; at += UNIT) {
        failed = tt_pwrite_all(fd, b->block, tt_min(UNIT, b->bytes - at), at);
    }
    if (failed == 0 && tt_fsync(fd) != 0) {
        failed = errno;
    }
    if (fd >= 0 && close(fd) != 0 && failed == 0) {
        failed = errno;
    }
    return failed == 0 ? TT_OK
                       : tt_fail(err, TT_EWORLD, "cannot write %s: %s", b->other, strerror(failed));
}

/* Takes away what a row has written, and lets all ranks begin the next together. Collective. */
static tt_code clean(const bed *b, tt_err *err)
{
    if (b->trainer.world->rank == 0) {
        unlink(b->path);
        unlink(b->other);
        sync();
    }
    return tt_barrier(b->trainer.world, err);
}

static tt_code one_step(tt_trainer *t, tt_record *record, tt_err *err)
{
    const tt_request request = {.code = TT_OK, .saving = tt_saver_busy(t)};
    return tt_step(t, &request, record, err);
}

/* Steps without a save, then with one that is written meanwhile: seconds of one, what the save adds, and
 * how long steps stood still. Collective. */
static tt_code while_training(bed *b, double *step, double *extra, double *held, tt_err *err)
{
    tt_code rc = TT_OK;
    tt_trainer *t = &b->trainer;
    tt_record record;
    int steps = 0;
    const int64_t at = t->progress.step;
    double start = tt_seconds();
    for (int i = 0; i < PLAIN; i++) {
        TT_TRY(one_step(t, &record, err));
    }
    *step = (tt_seconds() - start) / PLAIN;
    t->progress.step = at; /* its name is that of the other row's */
    start = tt_seconds();
    TT_TRY(tt_saver_save(t, NULL, false, false, err));
    while (t->saver.saving != NULL) {
        TT_TRY(one_step(t, &record, err));
        steps++;
        if (!record.saving) {
            TT_TRY(tt_saver_next(t, NULL, err));
        }
    }
    *extra = tt_seconds() - start - *step * steps;
    *held = t->saver.held;
    t->progress.step = at;
out:
    return rc;
}

static tt_code round_of(bed *b, double *seconds, tt_err *err)
{
    tt_code rc = TT_OK;
    tt_trainer *t = &b->trainer;
    TT_TRY(clean(b, err));
    double start = tt_seconds();
    TT_TRY(tt_agree(t->world, t->world->rank == 0 ? write_disk(b, err) : TT_OK, err));
    seconds[DISK] = tt_seconds() - start;
    TT_TRY(clean(b, err));
    t->print.config.run.read_back = false;
    start = tt_seconds();
    TT_TRY(tt_saver_save(t, NULL, true, false, err));
    seconds[SAVE] = tt_seconds() - start;
    b->times = t->saver.times;
    TT_TRY(clean(b, err));
    t->print.config.run.read_back = true;
    start = tt_seconds();
    TT_TRY(tt_saver_save(t, NULL, true, false, err));
    seconds[CHECKED] = tt_seconds() - start;
    TT_TRY(clean(b, err));
    TT_TRY(while_training(b, &seconds[STEP], &seconds[EXTRA], &seconds[HELD], err));
    TT_TRY(clean(b, err));
out:
    return rc;
}

/* The size of a checkpoint, from one that is not counted. Collective. */
static tt_code warm_up(bed *b, tt_err *err)
{
    tt_code rc = TT_OK;
    struct stat info;
    tt_record record;
    tt_trainer *t = &b->trainer;
    TT_TRY(one_step(t, &record, err));
    b->path = tt_state_path(t, t->progress.step, err);
    b->other = tt_join(t->print.config.run.dir, "disk", err);
    b->block = tt_alloc(UNIT, 1, err);
    rc = b->path == NULL || b->other == NULL || b->block == NULL ? err->code : TT_OK;
    TT_TRY(tt_agree(t->world, rc, err));
    TT_TRY(tt_saver_save(t, NULL, true, false, err));
    if (t->world->rank == 0 && stat(b->path, &info) == 0) {
        b->bytes = info.st_size;
    }
    rc = tt_sum_i64(t->world, &b->bytes, 1, err);
out:
    return rc;
}

static void print(const bed *b, const double *middle, double of_disk, double share, bool json,
                  tt_text *out)
{
    const tt_save_times *times = &b->times;
    const double mb = 1e-6 * (double)b->bytes;
    tt_text_add(out,
                json ? "{\"row\": \"disk\", \"s\": %.4f, \"mb_s\": %.1f}\n"
                     : "disk   %8.3f s, %7.1f MB/s: writes of 1 MiB by one rank, then fsync\n",
                middle[DISK], mb / middle[DISK]);
    tt_text_add(out,
                json ? "{\"row\": \"save\", \"s\": %.4f, \"mb_s\": %.1f, \"of_disk\": %.3f}\n"
                     : "save   %8.3f s, %7.1f MB/s, %.2f times as fast as the disk by itself\n",
                middle[SAVE], mb / middle[SAVE], of_disk);
    tt_text_add(out,
                json ? "{\"row\": \"checked\", \"s\": %.4f, \"mb_s\": %.1f}\n"
                     : "checked%7.3f s, %7.1f MB/s: read back from the disk as well\n",
                middle[CHECKED], mb / middle[CHECKED]);
    tt_text_add(out,
                json ? "{\"row\": \"async\", \"s\": %.4f, \"held_s\": %.4f, \"step_s\": %.4f, "
                       "\"share\": %.5f}\n"
                     : "async  %8.3f s added to steps, %.3f of them standing still; a step takes "
                       "%.3f s: %.2f %% of\n       training with a save every 20 steps\n",
                middle[EXTRA], middle[HELD], middle[STEP], json ? share : 100 * share);
    tt_text_add(out,
                json
                    ? "{\"bytes\": %lld, \"begin_s\": %.4f, \"meta_s\": %.4f, \"write_s\": %.4f, "
                      "\"commit_s\": %.4f, \"ranks\": %d, \"threads\": %d}\n"
                    : "%lld bytes; the last save: digests %.3f s, file %.3f, elements %.3f, commit "
                      "%.3f; %d ranks of %d threads\n",
                (long long)b->bytes, times->begin, times->meta, times->write, times->commit,
                b->trainer.print.plan.ranks, b->trainer.print.plan.threads);
}

/* Medians of the slowest rank, and of the ratios of each round. Collective. */
static tt_code summarize(const bed *b, int64_t n, double *seconds, bool json, tt_text *out,
                         tt_err *err)
{
    tt_code rc = TT_OK;
    double middle[ROWS], of_disk, share;
    double *column = tt_alloc(n, sizeof *column, err);
    TT_TRY(tt_agree(b->trainer.world, column != NULL ? TT_OK : err->code, err));
    TT_TRY(tt_max_f64(b->trainer.world, seconds, (int)tt_mul(n, ROWS), err));
    for (int row = 0; row < ROWS; row++) {
        for (int64_t i = 0; i < n; i++) {
            column[i] = seconds[i * ROWS + row];
        }
        middle[row] = tt_median(column, n);
    }
    for (int64_t i = 0; i < n; i++) {
        column[i] = seconds[i * ROWS + DISK] / seconds[i * ROWS + SAVE];
    }
    of_disk = tt_median(column, n);
    for (int64_t i = 0; i < n; i++) {
        column[i] = seconds[i * ROWS + EXTRA] / (EVERY * seconds[i * ROWS + STEP]);
    }
    share = tt_median(column, n);
    print(b, middle, of_disk, share, json, out);
out:
    free(column);
    return rc;
}

tt_code tt_bench_checkpoint(tt_bench *bench, tt_err *err)
{
    tt_code rc = TT_OK;
    bed b = {.bytes = 0};
    tt_noise noise = {0};
    tt_log log = tt_log_open(bench->world->rank);
    const int64_t n = bench->repeat;
    double *seconds = tt_alloc(tt_mul(ROWS, n), sizeof *seconds, err);
    TT_TRY(tt_agree(bench->world, seconds != NULL ? TT_OK : err->code, err));
    TT_TRY(tt_noise_open(&noise, bench, err));
    bench->config.run.steps = 1;
    bench->config.run.save_async = true;
    TT_TRY(tt_trainer_open(&b.trainer, &bench->config, bench->world, &log, err));
    TT_TRY(warm_up(&b, err));
    for (int64_t i = 0; i < n; i++) {
        TT_TRY(round_of(&b, seconds + i * ROWS, err));
    }
    TT_TRY(summarize(&b, n, seconds, bench->json, &bench->out, err));
out:
    tt_trainer_close(&b.trainer);
    if (bench->world->rank == 0 && b.path != NULL) {
        unlink(b.path);
    }
    if (bench->world->rank == 0 && b.other != NULL) {
        unlink(b.other);
    }
    tt_noise_close(&noise);
    free(b.path);
    free(b.other);
    free(b.block);
    free(seconds);
    return rc;
}
