/* bench_optimizer_file.c: what memory.optimizer_file costs an update, beside the disk.
 *
 *     memory        an update of masters, m and v in memory
 *     file          the same with them in a file: all of it is read and written. One update comes right
 *                   after another here, where a run has forward and backward between them
 *     transfer      the walk of an update that computes nothing
 *     write, read   a file of the same size, in transfers of the same size, one after another
 *
 * One trainer has both: a view of it keeps masters, m and v elsewhere. Rounds take all five in turn, so
 * that a machine that slows down does it to all. The gradient is 0, which takes the kernel as long as
 * any other. Times are those of the slowest rank. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tutti/base/clock.h"
#include "tutti/base/log.h"
#include "tutti/base/narrow.h"
#include "tutti/base/scratch.h"
#include "tutti/train/trainer.h"
#include "tutti/train/update.h"

#include "cli/bench_impl.h"

enum { MEMORY, IN_FILE, TRANSFER, WRITE, READ, ROWS };

static const char *const names[ROWS] = {"memory", "file", "transfer", "write", "read"};

/* What the rows run on. */
typedef struct bed {
    tt_trainer trainer;   /* owned */
    tt_trainer view;      /* the same but for its optimizer, which it owns */
    tt_arena arena;       /* owned: memory of that */
    tt_scratch scratch;   /* owned: the disk by itself */
    void *buffer;         /* owned: [bytes] */
    int64_t whole, bytes; /* of the file, of a transfer */
} bed;

/* The view, and a second file beside its own. Local. */
static tt_code open_files(bed *b, const char *file, tt_err *err)
{
    tt_code rc = TT_OK;
    const tt_blueprint *p = &b->trainer.print;
    const int64_t elements = p->shard.elements;
    tt_text path = {0};
    if (elements == 0) {
        return tt_fail(err, TT_EUSER,
                       "tutti bench optimizer_file: a rank has no share of so small a model");
    }
    b->whole = tt_count(tt_optimizer_file(p->master, elements, true));
    b->view = b->trainer;
    b->view.optimizer = (tt_optimizer){.chunks = NULL};
    tt_text_add(&path, "%s.%d", file, b->trainer.world->rank);
    if (path.failed) {
        rc = tt_fail(err, TT_EWORLD, "out of memory");
        goto out;
    }
    TT_TRY(tt_arena_open(&b->arena, "slots", tt_optimizer_memory(p->master, elements, true), err));
    TT_TRY(tt_optimizer_open(&b->view.optimizer, p->master, elements, path.data, &b->arena, err));
    b->bytes = b->whole / tt_ceil_div(elements, b->view.optimizer.chunk);
    TT_TRY(
        tt_scratch_open(&b->scratch, path.data, b->whole, true, err)); /* the name is free again */
    if (posix_memalign(&b->buffer, TT_SCRATCH_UNIT, tt_size(b->bytes)) != 0) {
        rc = tt_fail(err, TT_EWORLD, "out of memory");
        goto out;
    }
    memset(b->buffer, 1, tt_size(b->bytes));
out:
    tt_text_free(&path);
    return rc;
}

static void bed_close(bed *b)
{
    tt_optimizer_close(&b->view.optimizer);
    tt_trainer_close(&b->trainer);
    tt_arena_close(&b->arena);
    tt_scratch_close(&b->scratch);
    free(b->buffer);
}

/* The whole file once. */
static tt_code pass(const bed *b, bool write, tt_err *err)
{
    tt_code rc = TT_OK;
    for (int64_t at = 0; at < b->whole; at += b->bytes) {
        TT_TRY(write ? tt_scratch_write(&b->scratch, b->buffer, b->bytes, at, err)
                     : tt_scratch_read(&b->scratch, b->buffer, b->bytes, at, err));
    }
out:
    return rc;
}

/* Local. */
static tt_code run(bed *b, int row, tt_err *err)
{
    tt_trainer *t = row == MEMORY ? &b->trainer : &b->view;
    if (row == WRITE || row == READ) {
        return pass(b, row == WRITE, err);
    }
    if (row == TRANSFER) {
        for (tt_window w = {.count = 0}; tt_optimizer_next(&t->optimizer, &w);) {
        }
    } else {
        t->progress.updates++;
        tt_update_shard(t, 1e-4, 1.0);
    }
    return tt_optimizer_check(&t->optimizer, err);
}

/* One round that is not counted, then n: seconds[ROWS][n]. Collective. */
static tt_code measure(bed *b, int64_t n, double *seconds[ROWS], tt_err *err)
{
    tt_code rc = TT_OK;
    for (int64_t round = -1; round < n; round++) {
        for (int row = 0; row < ROWS; row++) { /* after the agreement all begin together */
            const double start = tt_seconds();
            rc = run(b, row, err);
            seconds[row][tt_max(round, 0)] = tt_seconds() - start;
            TT_TRY(tt_agree(b->trainer.world, rc, err));
        }
    }
out:
    return rc;
}

static void print(const bed *b, const double *middle, bool json, tt_text *out)
{
    const tt_blueprint *p = &b->trainer.print;
    const double file = (double)b->whole, mb = 1048576.0;
    for (int i = 0; i < ROWS; i++) {
        const double moved = i == MEMORY ? 0 : i < WRITE ? 2 * file : file;
        tt_text_add(out,
                    json
                        ? "{\"row\": \"%s\", \"ms\": %.2f, \"over_memory\": %.3f, \"mb_s\": %.1f}\n"
                        : "%-9s %10.1f ms, %.2f times as long as in memory, %.0f MB/s of disk\n",
                    names[i], 1e3 * middle[i], middle[i] / middle[MEMORY], moved / middle[i] / 1e6);
    }
    tt_text_add(
        out,
        json ? "{\"file_mb\": %.1f, \"memory_mb\": %.1f, \"direct\": %s, \"ranks\": %d, "
               "\"threads\": %d, \"isa\": \"%s\"}\n"
             : "a file of %.1f MiB a rank through %.1f MiB of memory (around the page cache: "
               "%s), %d ranks of %d threads, %s\n",
        file / mb, (double)b->arena.used / mb, b->scratch.direct ? "true" : "false", p->plan.ranks,
        p->plan.threads, p->ops.isa);
}

tt_code tt_bench_optimizer_file(tt_bench *bench, tt_err *err)
{
    tt_code rc = TT_OK;
    bed b = {.bytes = 0};
    tt_noise noise = {0};
    tt_log log = tt_log_open(bench->world->rank);
    const int64_t n = bench->repeat;
    double middle[ROWS], *seconds[ROWS];
    char file[TT_PATH];
    double *memory = tt_alloc(tt_mul(ROWS, n), sizeof *memory, err);
    TT_TRY(tt_agree(bench->world, memory != NULL ? TT_OK : err->code, err));
    for (int i = 0; i < ROWS; i++) {
        seconds[i] = memory + i * n;
    }
    TT_TRY(tt_noise_open(&noise, bench, err));
    snprintf(file, sizeof file, "%s", bench->config.memory.optimizer_file);
    if (file[0] == '\0') { /* beside the tokens, in TMPDIR */
        snprintf(file, sizeof file, "%s", bench->config.data.train);
    }
    bench->config.memory.optimizer_file[0] = '\0';
    bench->config.run.steps = 1;
    TT_TRY(tt_trainer_open(&b.trainer, &bench->config, bench->world, &log, err));
    TT_TRY(tt_agree(bench->world, open_files(&b, file, err), err));
    tt_noise_close(&noise);
    TT_TRY(measure(&b, n, seconds, err));
    for (int i = 0; i < ROWS; i++) {
        middle[i] = tt_median(seconds[i], n);
    }
    TT_TRY(tt_max_f64(bench->world, middle, ROWS, err));
    print(&b, middle, bench->json, &bench->out);
out:
    bed_close(&b);
    tt_noise_close(&noise);
    free(memory);
    return rc;
}
